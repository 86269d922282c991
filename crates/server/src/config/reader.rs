//! Reads TOML with the place of every value, so that each mistake can be pointed at, and goes on after a mistake, so
//! that all are found at once. (serde stops at the first, and loses places in merged layers.)
//!
//! The same calls that read a value also note its name, so unknown keys are known by what was never asked for; and its
//! origin, so `print-config` shows exactly what was read.

use super::findings::{Findings, Located, PREFIX, Place, did_you_mean, nearest, quoted, sounds_secret};
use secrecy::SecretString;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

enum Found<'a> {
    File(&'a Spanned<DeValue<'a>>, Place),
    Environment(&'a str, Place),
}

/// One table of a file, with the environment above it.
pub(super) struct Reader<'a, 'f> {
    pub findings: &'f Findings<'a>,
    file: usize,
    table: Option<&'a DeTable<'a>>,
    /// The table's own place, for what it lacks.
    pub place: Place,
    /// Dotted path inside the file.
    path: String,
    /// Dotted path for `print-config`.
    pub shown_as: String,
    /// This section's overrides, by key in lower case; only sections of the main file have any.
    overrides: BTreeMap<String, (&'a str, String)>,
    known: RefCell<Vec<String>>,
    secrets: RefCell<Vec<String>>,
}

impl<'a, 'f> Reader<'a, 'f> {
    /// The top of a file. `shown_as` is empty for the main file.
    pub fn top(findings: &'f Findings<'a>, file: usize, table: Option<&'a DeTable<'a>>, shown_as: &str) -> Self {
        // What a file lacks as a whole is shown at its first line.
        let place = Place::File { file, span: 0..0, key: String::new() };
        Self {
            findings,
            file,
            table,
            place,
            path: String::new(),
            shown_as: shown_as.to_owned(),
            overrides: BTreeMap::new(),
            known: RefCell::default(),
            secrets: RefCell::default(),
        }
    }

    /// A section of the main file: the environment may override its keys.
    pub fn section(&self, name: &str) -> Self {
        let mut section = self.table(name);
        let prefix = format!("{PREFIX}{}__", name.to_ascii_uppercase());
        for (var, text) in self.findings.env {
            if let Some(key) = var.strip_prefix(&prefix)
                && !text.is_empty()
            {
                section.overrides.insert(key.to_ascii_lowercase(), (text, var.clone()));
            }
        }
        section
    }

    /// A table inside this one; absent reads as empty.
    pub fn table(&self, name: &str) -> Self {
        let place = self.place_of(name);
        let table = match self.find(name) {
            None => None,
            Some(Found::Environment(_, place)) => {
                self.findings.mistake(
                    &place,
                    format!("`{name}` is a table; it cannot be set from the environment"),
                    None,
                );
                None
            }
            Some(Found::File(value, place)) => match value.get_ref() {
                DeValue::Table(table) => Some(table),
                other => {
                    self.wrong_type(&place, "a table", other);
                    None
                }
            },
        };
        Self {
            findings: self.findings,
            file: self.file,
            table,
            place,
            path: join(&self.path, name),
            shown_as: join(&self.shown_as, name),
            overrides: BTreeMap::new(),
            known: RefCell::default(),
            secrets: RefCell::default(),
        }
    }

    /// Whether the key is given. To ask for a key is to know it.
    pub fn has(&self, key: &str) -> bool {
        self.knows(key);
        self.overrides.contains_key(key) || self.table.is_some_and(|table| table.contains_key(key))
    }

    /// The table as TOML, for parts that have their own meaning (schemas, bodies).
    pub fn raw(&self, key: &str) -> Option<(&'a Spanned<DeValue<'a>>, Place)> {
        match self.find(key)? {
            Found::File(value, place) => Some((value, place)),
            Found::Environment(_, place) => {
                self.findings.mistake(&place, "cannot be set from the environment", None);
                None
            }
        }
    }

    /// Every key of this table, for tables whose names are free.
    pub fn names(&self) -> Vec<String> {
        self.table.map(|table| table.keys().map(|key| key.get_ref().to_string()).collect()).unwrap_or_default()
    }

    pub fn place_of(&self, key: &str) -> Place {
        let path = join(&self.path, key);
        if let Some((_, var)) = self.overrides.get(key) {
            return Place::Environment { var: var.clone() };
        }
        match self.table.and_then(|table| table.get_key_value(key)) {
            Some((name, value)) => Place::File {
                file: self.file,
                // A table's span is its header or its braces; a plain key is pointed at by its value.
                span: if value.get_ref().is_table() { name.span() } else { value.span() },
                key: path,
            },
            None => match &self.place {
                Place::File { file, span, .. } => Place::File { file: *file, span: span.clone(), key: path },
                Place::Environment { .. } | Place::Nowhere { .. } => Place::Nowhere { key: path },
            },
        }
    }

    fn find(&self, key: &str) -> Option<Found<'a>> {
        self.knows(key);
        if let Some((text, var)) = self.overrides.get(key) {
            return Some(Found::Environment(text, Place::Environment { var: var.clone() }));
        }
        let value = self.table?.get(key)?;
        Some(Found::File(value, self.place_of(key)))
    }

    fn knows(&self, key: &str) {
        let mut known = self.known.borrow_mut();
        if !known.iter().any(|k| k == key) {
            known.push(key.to_owned());
        }
    }

    fn wrong_type(&self, place: &Place, wanted: &str, found: &DeValue<'_>) {
        self.findings.mistake(place, format!("must be {wanted}, not {}", article(found.type_str())), None);
    }

    pub fn note(&self, key: &str, shown: String, place: Option<&Place>) {
        self.findings.note(&self.shown_as, key, shown, place);
    }

    pub fn text(&self, key: &str) -> Option<Located<String>> {
        let located = match self.find(key)? {
            Found::Environment(text, place) => Located { value: text.to_owned(), place },
            Found::File(value, place) => match value.get_ref() {
                DeValue::String(text) => Located { value: text.to_string(), place },
                other => {
                    self.wrong_type(&place, "a text", other);
                    return None;
                }
            },
        };
        self.note(key, quoted(&located.value), Some(&located.place));
        Some(located)
    }

    pub fn text_or(&self, key: &str, default: &str) -> Located<String> {
        self.text(key).unwrap_or_else(|| {
            if !self.has(key) {
                self.note(key, quoted(default), None);
            }
            Located { value: default.to_owned(), place: self.place_of(key) }
        })
    }

    /// A text that says something: an empty one is a mistake.
    pub fn filled_or(&self, key: &str, default: &str) -> Located<String> {
        let text = self.text_or(key, default);
        if text.value.trim().is_empty() {
            let help = format!("leave it out for `{default}`");
            self.findings.mistake(&text.place, "is empty", Some(help));
        }
        text
    }

    /// A text that must be there; a mistake and `None` when it is not.
    pub fn required_text(&self, key: &str, help: &str) -> Option<Located<String>> {
        if !self.has(key) {
            self.findings.mistake(&self.place_of(key), "is missing", Some(help.to_owned()));
            return None;
        }
        let text = self.text(key)?;
        if text.value.trim().is_empty() {
            self.findings.mistake(&text.place, "is empty", Some(help.to_owned()));
            return None;
        }
        Some(text)
    }

    /// A text read as something else; `wanted` completes "must be …".
    pub fn parsed<T>(&self, key: &str, wanted: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Located<T>> {
        let text = self.text(key)?;
        match parse(&text.value) {
            Some(value) => Some(Located { value, place: text.place }),
            None => {
                self.findings.mistake(&text.place, format!("must be {wanted}"), None);
                None
            }
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, key: &str, default: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text_or(key, default);
        let found = choices.iter().find(|(word, _)| *word == text.value).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<_> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
            let help =
                nearest(&text.value, choices.iter().map(|(word, _)| *word)).map(|w| format!("did you mean `{w}`?"));
            self.findings.mistake(&text.place, format!("must be one of {}", words.join(", ")), help);
        }
        found
    }

    /// A whole number inside the range.
    pub fn number(&self, key: &str, range: RangeInclusive<u64>) -> Option<Located<u64>> {
        let (value, place) = match self.find(key)? {
            Found::Environment(text, place) => (text.trim().parse::<i128>().ok(), place),
            Found::File(value, place) => match value.get_ref() {
                DeValue::Integer(n) => (i128::from_str_radix(n.as_str(), n.radix()).ok(), place),
                other => {
                    self.wrong_type(&place, "a whole number", other);
                    return None;
                }
            },
        };
        match value.and_then(|n| u64::try_from(n).ok()).filter(|n| range.contains(n)) {
            Some(value) => {
                self.note(key, value.to_string(), Some(&place));
                Some(Located { value, place })
            }
            None => {
                let message = format!("must be a whole number from {} to {}", range.start(), range.end());
                self.findings.mistake(&place, message, None);
                None
            }
        }
    }

    pub fn number_or(&self, key: &str, default: u64, range: RangeInclusive<u64>) -> Located<u64> {
        self.number(key, range).unwrap_or_else(|| {
            if !self.has(key) {
                self.note(key, default.to_string(), None);
            }
            Located { value: default, place: self.place_of(key) }
        })
    }

    /// `true` or `false`.
    pub fn flag_or(&self, key: &str, default: bool) -> bool {
        let (value, place) = match self.find(key) {
            None => {
                self.note(key, default.to_string(), None);
                return default;
            }
            Some(Found::Environment(text, place)) => (text.trim().parse().ok(), place),
            Some(Found::File(value, place)) => match value.get_ref() {
                DeValue::Boolean(flag) => (Some(*flag), place),
                other => {
                    self.wrong_type(&place, "true or false", other);
                    return default;
                }
            },
        };
        let Some(value) = value else {
            self.findings.mistake(&place, "must be true or false", None);
            return default;
        };
        self.note(key, value.to_string(), Some(&place));
        value
    }

    /// A number from 0 to 1.
    pub fn share_or(&self, key: &str, default: f32) -> f32 {
        let (value, place) = match self.find(key) {
            None => {
                self.note(key, format!("{default:?}"), None);
                return default;
            }
            Some(Found::Environment(text, place)) => (text.trim().parse::<f32>().ok(), place),
            Some(Found::File(value, place)) => match value.get_ref() {
                DeValue::Float(n) => (n.as_str().parse().ok(), place),
                DeValue::Integer(n) => (n.as_str().parse().ok(), place),
                other => {
                    self.wrong_type(&place, "a number", other);
                    return default;
                }
            },
        };
        match value.filter(|n| (0.0..=1.0).contains(n)) {
            Some(value) => {
                self.note(key, format!("{value:?}"), Some(&place));
                value
            }
            None => {
                self.findings.mistake(&place, "must be a number from 0 to 1", None);
                default
            }
        }
    }

    /// A list of texts; in the environment they are parted by commas. Empty when absent.
    pub fn texts(&self, key: &str) -> Vec<Located<String>> {
        let (list, place): (Vec<Located<String>>, Place) = match self.find(key) {
            None => return Vec::new(),
            Some(Found::Environment(text, place)) => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                (parts.map(|part| Located { value: part.to_owned(), place: place.clone() }).collect(), place)
            }
            Some(Found::File(value, place)) => {
                let Some(array) = self.array(value, &place, "a list of texts") else { return Vec::new() };
                let mut list = Vec::with_capacity(array.len());
                for element in array.iter() {
                    let place = Place::File { file: self.file, span: element.span(), key: join(&self.path, key) };
                    match element.get_ref() {
                        DeValue::String(text) => list.push(Located { value: text.to_string(), place }),
                        other => self.wrong_type(&place, "a text", other),
                    }
                }
                (list, place)
            }
        };
        let shown = toml::Value::Array(list.iter().map(|l| toml::Value::String(l.value.clone())).collect());
        self.note(key, shown.to_string(), Some(&place));
        list
    }

    /// A list of whole numbers; `None` when absent.
    pub fn numbers(&self, key: &str, range: RangeInclusive<u64>) -> Option<Vec<u64>> {
        let (value, place) = self.raw(key)?;
        let array = self.array(value, &place, "a list of whole numbers")?;
        let mut list = Vec::with_capacity(array.len());
        for element in array.iter() {
            let number = match element.get_ref() {
                DeValue::Integer(n) => u64::from_str_radix(n.as_str(), n.radix()).ok().filter(|n| range.contains(n)),
                _ => None,
            };
            match number {
                Some(number) => list.push(number),
                None => {
                    let place = Place::File { file: self.file, span: element.span(), key: join(&self.path, key) };
                    let message = format!("must be a whole number from {} to {}", range.start(), range.end());
                    self.findings.mistake(&place, message, None);
                }
            }
        }
        self.note(key, format!("{list:?}"), Some(&place));
        Some(list)
    }

    fn array(&self, value: &'a Spanned<DeValue<'a>>, place: &Place, wanted: &str) -> Option<&'a DeArray<'a>> {
        match value.get_ref() {
            DeValue::Array(array) => Some(array),
            other => {
                self.wrong_type(place, wanted, other);
                None
            }
        }
    }

    /// A secret: from the environment, or from the file that `<key>_file` names; never from the TOML. `also` is another
    /// environment variable that is accepted.
    pub fn secret(&self, key: &str, also: Option<&str>) -> Option<SecretString> {
        let file_key = format!("{key}_file");
        self.secrets.borrow_mut().push(key.to_owned());
        let section = self.path.to_ascii_uppercase().replace('.', "__");
        let var = format!("{PREFIX}{section}__{}", key.to_ascii_uppercase());
        let file = self.text(&file_key);
        // Also when the environment overrides it: it stands there for everyone to read.
        if let Some(value) = self.table.and_then(|table| table.get(key)) {
            let place = Place::File { file: self.file, span: value.span(), key: join(&self.path, key) };
            self.findings.hide(&place);
            let help = format!("set {var} in the environment, or `{file_key}` to a file that holds it");
            self.findings.mistake(&place, "a secret does not stand in the config", Some(help));
        }
        let secret = match self.find(key) {
            Some(Found::Environment(text, place)) => Some((text.to_owned(), place)),
            Some(Found::File(..)) | None => None,
        };
        let secret = secret.or_else(|| file.and_then(|path| self.secret_file(&path))).or_else(|| {
            let name = also?;
            let text = self.findings.env.get(name).filter(|text| !text.is_empty())?;
            Some((text.clone(), Place::Environment { var: name.to_owned() }))
        });
        match secret {
            Some((text, place)) => {
                self.note(key, quoted("<set>"), Some(&place));
                Some(SecretString::from(text))
            }
            None => {
                self.note(key, quoted("<unset>"), None);
                None
            }
        }
    }

    /// The content without the line end that editors add.
    pub fn secret_file(&self, path: &Located<String>) -> Option<(String, Place)> {
        let text = self.file(path)?.trim_end_matches(['\r', '\n']).to_owned();
        if text.is_empty() {
            self.findings.mistake(&path.place, format!("the file `{}` is empty", path.value), None);
            return None;
        }
        Some((text, path.place.clone()))
    }

    /// The text of another file, relative to the config folder.
    pub fn file(&self, path: &Located<String>) -> Option<String> {
        let full: PathBuf = self.findings.dir.join(&path.value);
        match std::fs::read_to_string(&full) {
            Ok(text) => Some(text),
            Err(e) => {
                self.findings.mistake(&path.place, format!("cannot read {}: {e}", full.display()), None);
                None
            }
        }
    }

    /// Reports what was never asked for. Call last.
    pub fn finish(self) {
        let known = self.known.borrow();
        let secrets = self.secrets.borrow();
        let unknown = |key: &str, place: &Place, value: Option<Range<usize>>| {
            if known.iter().any(|k| k == key) {
                return;
            }
            // A secret under a misspelt name is still a secret.
            if let Some(span) = value
                && (sounds_secret(key) || nearest(key, secrets.iter().map(String::as_str)).is_some())
            {
                self.findings.hide(&Place::File { file: self.file, span, key: String::new() });
            }
            self.findings.mistake(place, "unknown key", did_you_mean(key, known.iter().map(String::as_str)));
        };
        for (key, value) in self.table.into_iter().flatten() {
            let place = Place::File { file: self.file, span: key.span(), key: join(&self.path, key.get_ref()) };
            unknown(key.get_ref(), &place, Some(value.span()));
        }
        for (key, (_, var)) in &self.overrides {
            unknown(key, &Place::Environment { var: var.clone() }, None);
        }
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn article(kind: &str) -> String {
    match kind {
        "string" => "a text".to_owned(),
        "integer" | "array" => format!("an {kind}"),
        other => format!("a {other}"),
    }
}

/// TOML as JSON. Dates have no JSON form, nor do infinite floats: the error is the span and what is wrong.
pub(super) fn to_json(value: &Spanned<DeValue<'_>>) -> Result<serde_json::Value, (Range<usize>, String)> {
    use serde_json::Value;
    let wrong = |message: &str| (value.span(), message.to_owned());
    Ok(match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(n) => {
            let n = i64::from_str_radix(n.as_str(), n.radix()).map_err(|_| wrong("the number is too large"))?;
            Value::from(n)
        }
        DeValue::Float(n) => {
            let n = n.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            Value::Number(n.ok_or_else(|| wrong("JSON has no such number"))?)
        }
        DeValue::Boolean(truth) => Value::Bool(*truth),
        DeValue::Datetime(_) => return Err(wrong("JSON has no dates: put it into quotes")),
        DeValue::Array(list) => Value::Array(list.iter().map(to_json).collect::<Result<_, _>>()?),
        DeValue::Table(table) => Value::Object(
            table.iter().map(|(k, v)| Ok((k.get_ref().to_string(), to_json(v)?))).collect::<Result<_, _>>()?,
        ),
    })
}

/// The part of a TOML value that a JSON Pointer names; the deepest part that exists.
pub(super) fn deepest<'v, 'd>(value: &'v Spanned<DeValue<'d>>, pointer: &str) -> &'v Spanned<DeValue<'d>> {
    let mut at = value;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let next = match at.get_ref() {
            DeValue::Table(table) => table.get(token.as_str()),
            DeValue::Array(list) => token.parse().ok().and_then(|i: usize| list.get(i)),
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}
