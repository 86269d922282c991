//! What is wrong with a config: where, what, and what to do about it.

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// One mistake.
#[derive(Clone, Debug)]
pub struct ConfigError {
    /// The file as it was opened, or `environment`.
    pub file: String,
    /// From 1; 0 when the mistake stands at no place of a file.
    pub line: usize,
    /// In characters, from 1; 0 as above.
    pub column: usize,
    /// Dotted path of the key, or the name of the environment variable; empty for a file that cannot be read at all.
    pub key: String,
    pub message: String,
    /// What to do, where we know it.
    pub help: Option<String>,
    /// The file with every secret blanked out, for the picture that miette draws.
    pub(super) source: Option<Arc<NamedSource<String>>>,
    pub(super) span: Range<usize>,
}

impl ConfigError {
    /// Place and message, for a picture that draws the help by itself.
    fn without_help(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.without_help(f)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigError {}

/// All mistakes of a config, by file and line. Never empty.
#[derive(Clone, Debug)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        heading(self.0.len(), f)?;
        for mistake in &self.0 {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// One heading with each mistake drawn below it, for miette. Each help is told once.
#[derive(Debug)]
pub struct Drawing(Vec<Drawn>);

#[derive(Debug)]
struct Drawn(ConfigError);

impl From<ConfigErrors> for Drawing {
    fn from(mistakes: ConfigErrors) -> Self {
        Self(mistakes.0.into_iter().map(Drawn).collect())
    }
}

impl fmt::Display for Drawing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        heading(self.0.len(), f)
    }
}

impl std::error::Error for Drawing {}

impl Diagnostic for Drawing {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.0.iter().map(|mistake| mistake as &dyn Diagnostic)))
    }
}

impl fmt::Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.without_help(f)
    }
}

impl std::error::Error for Drawn {}

impl Diagnostic for Drawn {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.0.source.as_deref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.0.source.as_ref()?;
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some("here".to_owned()), self.0.span.clone()))))
    }
}

fn heading(mistakes: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match mistakes {
        1 => f.write_str("the config has a mistake"),
        n => write!(f, "the config has {n} mistakes"),
    }
}
