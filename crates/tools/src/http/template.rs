//! Text with places: `{/json/pointer}` is an argument, `{operation}`, `{key}`, `{caller}` and `{session}` are ours.
//! `{/pointer?}` may be absent. `{{` and `}}` are the braces themselves.
//!
//! Arguments come from a model, so they are untrusted: every place escapes them for where they stand, and none of them
//! can change the host, add a path segment, a query field, a header or a JSON field.

use crate::ToolRequest;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use url::Url;

/// All but the unreserved characters of RFC 3986, section 2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A template that cannot be read. `at` is a byte offset into the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    pub at: usize,
    pub message: String,
}

/// A template that cannot be filled from these arguments. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    #[error("{place} needs the argument {pointer}, which is absent")]
    Absent { place: String, pointer: String },
    #[error("{place} needs text, a number or a boolean at {pointer}, not a list or an object")]
    NotText { place: String, pointer: String },
    #[error("{place}: the argument makes an empty or dotted path segment")]
    PathSegment { place: String },
    #[error("{place} does not fit into a header: only visible ASCII does")]
    Header { place: String },
    #[error("{place} is not a valid URL once filled")]
    Url { place: String },
}

/// What fills a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// RFC 6901 pointer into the arguments.
    Argument(String),
    /// The operation's id.
    Operation,
    /// The idempotency key: the operation's intent key.
    Key,
    /// The caller's verified number.
    Caller,
    Session,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub source: Source,
    /// Absent is allowed: the field, pair or list element that consists of this place is left out.
    pub optional: bool,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Argument(pointer) => write!(f, "{pointer}"),
            Source::Operation => f.write_str("operation"),
            Source::Key => f.write_str("key"),
            Source::Caller => f.write_str("caller"),
            Source::Session => f.write_str("session"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(Place),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        let error = |rest: &str, message: String| TemplateError { at: text.len() - rest.len(), message };
        while let Some(c) = rest.chars().next() {
            if rest.starts_with("{{") || rest.starts_with("}}") {
                plain.push(c);
                rest = &rest[2..];
            } else if c == '{' {
                let Some(end) = rest.find('}') else {
                    return Err(error(rest, "a `{` without its `}`; a brace itself is written `{{`".to_owned()));
                };
                let place = place(&rest[1..end]).map_err(|message| error(rest, message))?;
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Place(place));
                rest = &rest[end + 1..];
            } else if c == '}' {
                return Err(error(rest, "a `}` without its `{`; a brace itself is written `}}`".to_owned()));
            } else {
                plain.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// The places of the template, in order.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Place(place) => Some(place),
        })
    }

    /// The template is one place and nothing else.
    fn only_place(&self) -> Option<&Place> {
        match self.pieces.as_slice() {
            [Piece::Place(place)] => Some(place),
            _ => None,
        }
    }

    /// Fills the template; `escape` is applied to the values, never to the template's own text. `None`: the template
    /// is one optional place, and its value is absent.
    pub(crate) fn fill(
        &self,
        request: &ToolRequest,
        whose: &str,
        escape: impl Fn(&str) -> String,
    ) -> Result<Option<String>, FillError> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Place(place) => match value_of(place, request) {
                    Some(value) => filled.push_str(&escape(&as_text(place, &value, whose)?)),
                    None if !place.optional => return Err(absent(place, whose)),
                    None if self.pieces.len() == 1 => return Ok(None),
                    None => {}
                },
            }
        }
        Ok(Some(filled))
    }
}

fn place(text: &str) -> Result<Place, String> {
    let (name, optional) = match text.strip_suffix('?') {
        Some(name) => (name, true),
        None => (text, false),
    };
    let source = match name {
        "operation" => Source::Operation,
        "key" => Source::Key,
        "caller" => Source::Caller,
        "session" => Source::Session,
        pointer if pointer.starts_with('/') => {
            // RFC 6901, section 3: `~` only as `~0` or `~1`.
            if pointer.split('~').skip(1).any(|after| !after.starts_with(['0', '1'])) {
                return Err(format!("`{pointer}` is not a JSON Pointer: `~` is written `~0`, `/` inside a name `~1`"));
            }
            Source::Argument(pointer.to_owned())
        }
        other => {
            return Err(format!(
                "`{{{other}}}` is no place: write `{{/argument}}`, `{{operation}}`, `{{key}}`, `{{caller}}` or `{{session}}`"
            ));
        }
    };
    if optional && !matches!(source, Source::Argument(_)) {
        return Err(format!("`{name}` is always there: leave the `?` out"));
    }
    Ok(Place { source, optional })
}

/// Null counts as absent.
fn value_of<'a>(place: &Place, request: &'a ToolRequest) -> Option<Cow<'a, Value>> {
    let ours = |text: &str| Some(Cow::Owned(Value::String(text.to_owned())));
    match &place.source {
        Source::Argument(pointer) => request.arguments.pointer(pointer).filter(|v| !v.is_null()).map(Cow::Borrowed),
        Source::Operation => ours(request.operation.as_str()),
        Source::Key => ours(request.key.as_str()),
        Source::Caller => ours(request.caller.as_str()),
        Source::Session => ours(request.session.as_str()),
    }
}

fn as_text(place: &Place, value: &Value, whose: &str) -> Result<String, FillError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(FillError::NotText { place: whose.to_owned(), pointer: place.to_string() })
        }
    }
}

fn absent(place: &Place, whose: &str) -> FillError {
    FillError::Absent { place: whose.to_owned(), pointer: place.to_string() }
}

fn percent(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// A URL whose scheme and host are fixed; places stand in path segments and query values only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate {
    /// Scheme, host and port.
    origin: Url,
    segments: Vec<Template>,
    /// The name as written, and its value; a name without `=` has none.
    query: Vec<(String, Option<Template>)>,
}

impl UrlTemplate {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let wrong = |at: usize, message: String| TemplateError { at, message };
        let Some(scheme_end) = text.find("://") else {
            return Err(wrong(0, "not a URL: it starts with `http://` or `https://`".to_owned()));
        };
        let authority = scheme_end + 3;
        let path_start = text[authority..].find(['/', '?', '#']).map_or(text.len(), |i| authority + i);
        if text[..path_start].contains('{') {
            return Err(wrong(
                authority,
                "the scheme and the host are fixed: places stand in the path and the query only".to_owned(),
            ));
        }
        let origin = Url::parse(&text[..path_start]).map_err(|e| wrong(0, format!("not a URL: {e}")))?;
        if !matches!(origin.scheme(), "http" | "https") {
            return Err(wrong(0, format!("`{}` is not a scheme we speak: use http or https", origin.scheme())));
        }
        if origin.host().is_none() {
            return Err(wrong(authority, "the URL names no host".to_owned()));
        }
        if !origin.username().is_empty() || origin.password().is_some() {
            return Err(wrong(authority, "credentials do not stand in a URL: use `secret_headers`".to_owned()));
        }
        if let Some(at) = text.find('#') {
            return Err(wrong(at, "a fragment is never sent".to_owned()));
        }
        let shifted = |at: usize, e: TemplateError| TemplateError { at: at + e.at, ..e };
        // `?` ends the path, but not inside braces, where it marks an optional place.
        let query_start = outside_braces(&text[path_start..], '?').map(|i| path_start + i);
        let path = &text[path_start..query_start.unwrap_or(text.len())];
        let mut segments = Vec::new();
        let mut at = path_start;
        // A pointer holds slashes itself, so segments are cut outside of braces.
        for segment in split_outside_braces(path.strip_prefix('/').unwrap_or(path), '/') {
            at += 1;
            let template = Template::parse(segment).map_err(|e| shifted(at, e))?;
            if template.places().any(|place| place.optional) {
                return Err(wrong(
                    at,
                    "a place in the path cannot be optional: it would name another resource".to_owned(),
                ));
            }
            at += segment.len();
            segments.push(template);
        }
        let mut query = Vec::new();
        if let Some(start) = query_start {
            let mut at = start;
            for pair in split_outside_braces(&text[start + 1..], '&') {
                at += 1;
                match pair.split_once('=') {
                    Some((name, _)) if name.contains(['{', '}']) => {
                        return Err(wrong(
                            at,
                            "the name of a query field is fixed: places stand in its value".to_owned(),
                        ));
                    }
                    Some((name, value)) => {
                        let template = Template::parse(value).map_err(|e| shifted(at + name.len() + 1, e))?;
                        query.push((name.to_owned(), Some(template)));
                    }
                    None if pair.contains(['{', '}']) => {
                        return Err(wrong(at, "a place in the query needs a name: `name={/argument}`".to_owned()));
                    }
                    None if pair.is_empty() => {}
                    None => query.push((pair.to_owned(), None)),
                }
                at += pair.len();
            }
        }
        Ok(Self { origin, segments, query })
    }

    /// Scheme, host and port: fixed by the config, so the host can be judged before any call.
    pub fn origin(&self) -> &Url {
        &self.origin
    }

    pub fn places(&self) -> impl Iterator<Item = &Place> {
        let query = self.query.iter().filter_map(|(_, value)| value.as_ref());
        self.segments.iter().chain(query).flat_map(Template::places)
    }

    pub(crate) fn fill(&self, request: &ToolRequest) -> Result<Url, FillError> {
        const WHOSE: &str = "the url";
        let mut text = self.origin.as_str().trim_end_matches('/').to_owned();
        for segment in &self.segments {
            let filled = segment.fill(request, WHOSE, percent)?.unwrap_or_default();
            // An argument of `..` would climb to another resource, an empty one would name the whole collection.
            let plain = filled.to_ascii_lowercase().replace("%2e", ".");
            if segment.places().next().is_some() && matches!(plain.as_str(), "" | "." | "..") {
                return Err(FillError::PathSegment { place: WHOSE.to_owned() });
            }
            text.push('/');
            text.push_str(&filled);
        }
        let mut separator = '?';
        for (name, value) in &self.query {
            let filled = match value {
                Some(template) => match template.fill(request, WHOSE, percent)? {
                    Some(value) => format!("{name}={value}"),
                    None => continue,
                },
                None => name.clone(),
            };
            text.push(separator);
            text.push_str(&filled);
            separator = '&';
        }
        Url::parse(&text).map_err(|_| FillError::Url { place: WHOSE.to_owned() })
    }
}

fn outside_braces(text: &str, wanted: char) -> Option<usize> {
    let mut inside = false;
    text.char_indices().find_map(|(i, c)| {
        match c {
            '{' => inside = true,
            '}' => inside = false,
            _ => {}
        }
        (c == wanted && !inside).then_some(i)
    })
}

fn split_outside_braces(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(i) = outside_braces(rest, separator) {
        parts.push(&rest[..i]);
        rest = &rest[i + separator.len_utf8()..];
    }
    parts.push(rest);
    parts
}

/// A JSON body. A string that is exactly one place takes the argument with its JSON type; any other string is text.
#[derive(Clone, Debug, PartialEq)]
pub enum BodyTemplate {
    Fixed(Value),
    Text(Template),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl BodyTemplate {
    pub fn from_value(value: &Value) -> Result<Self, TemplateError> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(text)?),
            Value::Array(list) => Self::List(list.iter().map(Self::from_value).collect::<Result<_, _>>()?),
            Value::Object(fields) => Self::Object(
                fields.iter().map(|(k, v)| Ok((k.clone(), Self::from_value(v)?))).collect::<Result<_, _>>()?,
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Fixed(value.clone()),
        })
    }

    pub fn places(&self) -> Vec<&Place> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Text(template) => template.places().collect(),
            Self::List(list) => list.iter().flat_map(Self::places).collect(),
            Self::Object(fields) => fields.iter().flat_map(|(_, v)| v.places()).collect(),
        }
    }

    /// `None`: an optional place whose value is absent.
    pub(crate) fn fill(&self, request: &ToolRequest) -> Result<Option<Value>, FillError> {
        const WHOSE: &str = "the body";
        Ok(Some(match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => match template.only_place() {
                Some(place) => match value_of(place, request) {
                    Some(value) => value.into_owned(),
                    None if place.optional => return Ok(None),
                    None => return Err(absent(place, WHOSE)),
                },
                None => Value::String(template.fill(request, WHOSE, str::to_owned)?.unwrap_or_default()),
            },
            Self::List(list) => {
                let mut filled = Vec::with_capacity(list.len());
                for element in list {
                    filled.extend(element.fill(request)?);
                }
                Value::Array(filled)
            }
            Self::Object(fields) => {
                let mut filled = Map::new();
                for (name, field) in fields {
                    if let Some(value) = field.fill(request)? {
                        filled.insert(name.clone(), value);
                    }
                }
                Value::Object(filled)
            }
        }))
    }
}
