//! What reading a config finds: values with their origin, and mistakes with their place.

use super::mistake::{ConfigError, ConfigErrors};
use miette::NamedSource;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// Of environment variables that override the config.
pub(super) const PREFIX: &str = "ANSWERBACK__";

/// One config file as read.
#[derive(Debug)]
pub(super) struct Source {
    pub name: String,
    pub text: String,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    File {
        file: usize,
        span: Range<usize>,
        key: String,
    },
    Environment {
        var: String,
    },
    /// In no file: a default, or something that is missing altogether.
    Nowhere {
        key: String,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    pub value: T,
    pub place: Place,
}

/// A value with its origin, as `print-config` shows it.
#[derive(Clone, Debug)]
pub(super) struct Effective {
    pub table: String,
    pub key: String,
    /// A TOML literal.
    pub shown: String,
    pub origin: String,
}

struct Draft {
    place: Place,
    message: String,
    help: Option<String>,
}

/// Collects what reading finds.
pub(super) struct Findings<'a> {
    pub sources: &'a [Source],
    /// Everything, for named secrets.
    pub env: &'a BTreeMap<String, String>,
    /// Secret files are relative to it.
    pub dir: &'a Path,
    mistakes: RefCell<Vec<Draft>>,
    effective: RefCell<Vec<Effective>>,
    /// Parts of a file that no picture may show.
    secret_spans: RefCell<Vec<(usize, Range<usize>)>>,
}

impl<'a> Findings<'a> {
    pub fn new(sources: &'a [Source], env: &'a BTreeMap<String, String>, dir: &'a Path) -> Self {
        Self {
            sources,
            env,
            dir,
            mistakes: RefCell::default(),
            effective: RefCell::default(),
            secret_spans: RefCell::default(),
        }
    }

    pub fn mistake(&self, place: &Place, message: impl Into<String>, help: Option<String>) {
        self.mistakes.borrow_mut().push(Draft { place: place.clone(), message: message.into(), help });
    }

    pub fn hide(&self, place: &Place) {
        if let Place::File { file, span, .. } = place {
            self.secret_spans.borrow_mut().push((*file, span.clone()));
        }
    }

    /// Every text under a name that sounds secret, known or not: a picture shows the neighbours of a mistake as well.
    pub fn hide_secrets(&self, file: usize, table: &DeTable<'_>) {
        for (key, value) in table {
            match value.get_ref() {
                DeValue::Table(inner) => self.hide_secrets(file, inner),
                DeValue::String(_) if sounds_secret(key.get_ref()) => {
                    self.secret_spans.borrow_mut().push((file, value.span()));
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => {}
            }
        }
    }

    pub fn note(&self, table: &str, key: &str, shown: String, place: Option<&Place>) {
        let origin = match place {
            None | Some(Place::Nowhere { .. }) => "default".to_owned(),
            Some(Place::File { file, span, .. }) => {
                let (name, line, _) = self.line_of(*file, span.start);
                format!("{name}:{line}")
            }
            Some(Place::Environment { var }) => format!("environment {var}"),
        };
        self.effective.borrow_mut().push(Effective { table: table.to_owned(), key: key.to_owned(), shown, origin });
    }

    fn line_of(&self, file: usize, at: usize) -> (&str, usize, usize) {
        let Some(source) = self.sources.get(file) else { return ("", 0, 0) };
        let before = source.text.get(..at).unwrap_or(&source.text);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (&source.name, before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// What was read, or every mistake in the order of the files.
    pub fn finish(self) -> Result<Vec<Effective>, ConfigErrors> {
        let mut drafts = self.mistakes.take();
        if drafts.is_empty() {
            return Ok(self.effective.take());
        }
        drafts.sort_by_key(|draft| match &draft.place {
            Place::File { file, span, .. } => (*file, span.start),
            Place::Environment { .. } | Place::Nowhere { .. } => (usize::MAX, 0),
        });
        let spans = self.secret_spans.take();
        let blanked: Vec<_> = (self.sources.iter().enumerate())
            .map(|(file, source)| {
                let mut bytes = source.text.clone().into_bytes();
                for (_, span) in spans.iter().filter(|(f, _)| *f == file) {
                    // Line ends stay, or the picture would show other lines.
                    bytes[span.clone()].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b'*');
                }
                let text = String::from_utf8(bytes).unwrap_or_default();
                Arc::new(NamedSource::new(&source.name, text).with_language("TOML"))
            })
            .collect();
        let errors = drafts.into_iter().map(|Draft { place, message, help }| match place {
            Place::File { file, span, key } => {
                let (name, line, column) = self.line_of(file, span.start);
                // A syntax error may stand beside a secret that nobody has recognised yet.
                let source = if key.is_empty() { None } else { blanked.get(file).cloned() };
                ConfigError { file: name.to_owned(), line, column, key, message, help, source, span }
            }
            Place::Environment { var } => {
                let file = "environment".to_owned();
                ConfigError { file, line: 0, column: 0, key: var, message, help, source: None, span: 0..0 }
            }
            Place::Nowhere { key } => {
                let file = self.sources.first().map_or_else(String::new, |source| source.name.clone());
                ConfigError { file, line: 0, column: 0, key, message, help, source: None, span: 0..0 }
            }
        });
        Err(ConfigErrors(errors.collect()))
    }

    /// For a string written plainly on one line: the place of byte `at` inside it.
    pub fn inside(&self, text: &Located<String>, at: usize) -> Place {
        if let Place::File { file, span, key } = &text.place
            && let Some(raw) = self.sources.get(*file).and_then(|source| source.text.get(span.clone()))
            && raw.len() == text.value.len() + 2
            && raw[1..raw.len() - 1] == text.value
        {
            let at = span.start + 1 + at;
            return Place::File { file: *file, span: at..span.end, key: key.clone() };
        }
        text.place.clone()
    }
}

/// What the nearest of `known` is, if any is near enough to be meant.
pub(super) fn nearest<'k>(wrong: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(wrong, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().min(wrong.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

pub(super) fn did_you_mean<'k>(wrong: &str, known: impl IntoIterator<Item = &'k str> + Clone) -> Option<String> {
    match nearest(wrong, known.clone()) {
        Some(near) => Some(format!("did you mean `{near}`?")),
        None => {
            let all: Vec<_> = known.into_iter().map(|k| format!("`{k}`")).collect();
            (!all.is_empty()).then(|| format!("known here: {}", all.join(", ")))
        }
    }
}

/// A TOML literal of a text.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A word that an operator would use for the name of a secret.
pub(super) fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    !name.ends_with("_file")
        && ["secret", "token", "password", "api_key", "apikey", "auth", "cookie"].iter().any(|word| name.contains(word))
}
