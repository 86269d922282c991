//! From a template and one attempt to the request that leaves. Pure.

use super::template::{BodyTemplate, FillError, Place, Template, UrlTemplate};
use crate::ToolRequest;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

/// Carries the operation's key, the same at every attempt (IETF draft "The Idempotency-Key HTTP Header Field").
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Without a body template the arguments themselves are the body.
    pub const fn carries_body(self) -> bool {
        match self {
            Self::Post | Self::Put | Self::Patch => true,
            Self::Get | Self::Delete => false,
        }
    }
}

/// Where a header's value comes from.
#[derive(Clone, Debug)]
pub enum HeaderSource {
    Template(Template),
    /// Read from the environment or a file when the config was loaded; `prefix` is e.g. `Bearer `.
    Secret {
        prefix: String,
        secret: SecretString,
    },
}

#[derive(Clone, Debug)]
pub struct RequestTemplate {
    pub method: Method,
    pub url: UrlTemplate,
    /// Names in lower case.
    pub headers: Vec<(String, HeaderSource)>,
    /// `None`: the arguments as they are where the method carries a body, else nothing.
    pub body: Option<BodyTemplate>,
    /// Whether the idempotency key goes along: with every mutation.
    pub with_key: bool,
}

/// A request ready to leave.
#[derive(Debug)]
pub struct BuiltRequest {
    pub method: Method,
    pub url: Url,
    /// Checked: only visible ASCII, so no value can end its line.
    pub headers: Vec<(String, SecretString)>,
    /// JSON.
    pub body: Option<Vec<u8>>,
}

impl RequestTemplate {
    /// Every place of the template, for checks at load.
    pub fn places(&self) -> Vec<&Place> {
        let mut places: Vec<&Place> = self.url.places().collect();
        for (_, source) in &self.headers {
            match source {
                HeaderSource::Template(template) => places.extend(template.places()),
                HeaderSource::Secret { .. } => {}
            }
        }
        if let Some(body) = &self.body {
            places.extend(body.places());
        }
        places
    }

    pub fn build(&self, request: &ToolRequest) -> Result<BuiltRequest, FillError> {
        let mut headers = Vec::with_capacity(self.headers.len() + 1);
        for (name, source) in &self.headers {
            let place = || format!("the header {name}");
            let value = match source {
                HeaderSource::Template(template) => template.fill(request, &place(), str::to_owned)?,
                HeaderSource::Secret { prefix, secret } => Some(format!("{prefix}{}", secret.expose_secret())),
            };
            if let Some(value) = value {
                headers.push((name.clone(), visible(value, place)?));
            }
        }
        if self.with_key {
            let key = visible(request.key.as_str().to_owned(), || "the idempotency key".to_owned())?;
            headers.push((IDEMPOTENCY_KEY.to_owned(), key));
        }
        let body = match &self.body {
            Some(template) => template.fill(request)?,
            None if self.method.carries_body() => Some(request.arguments.clone()),
            None => None,
        };
        Ok(BuiltRequest {
            method: self.method,
            url: self.url.fill(request)?,
            headers,
            body: body.map(|value| value.to_string().into_bytes()),
        })
    }
}

fn visible(value: String, place: impl Fn() -> String) -> Result<SecretString, FillError> {
    if value.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        Ok(SecretString::from(value))
    } else {
        Err(FillError::Header { place: place() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;
    use vocab::{CallerId, IntentKey, OperationId, SessionId};

    fn request(arguments: Value) -> ToolRequest {
        ToolRequest {
            operation: OperationId::new("op_1"),
            key: IntentKey::new("key_1"),
            session: SessionId::new("ses_1"),
            caller: CallerId::new("+4930123456"),
            arguments,
            attempt: 1,
            timeout: Duration::from_secs(1),
        }
    }

    fn template(url: &str, body: Option<Value>) -> RequestTemplate {
        RequestTemplate {
            method: Method::Post,
            url: UrlTemplate::parse(url).expect("url"),
            headers: Vec::new(),
            body: body.map(|b| BodyTemplate::from_value(&b).expect("body")),
            with_key: true,
        }
    }

    fn url(text: &str, arguments: Value) -> Result<String, FillError> {
        template(text, None).build(&request(arguments)).map(|built| built.url.to_string())
    }

    fn body(body: Value, arguments: Value) -> Result<Value, FillError> {
        let built = template("http://h/", Some(body)).build(&request(arguments))?;
        Ok(serde_json::from_slice(&built.body.expect("a body")).expect("json"))
    }

    #[test]
    fn an_argument_cannot_leave_its_path_segment_or_query_value() {
        assert_eq!(
            url("http://h/t/{/id}/seats?day={/day}&by={caller}", json!({"id": "a/b?c#d%", "day": "x&y=1 é"})).unwrap(),
            "http://h/t/a%2Fb%3Fc%23d%25/seats?day=x%26y%3D1%20%C3%A9&by=%2B4930123456"
        );
        for id in ["", ".", ".."] {
            assert_eq!(
                url("http://h/t/{/id}", json!({ "id": id })),
                Err(FillError::PathSegment { place: "the url".to_owned() }),
                "{id:?}"
            );
        }
        // Next to text, dots are harmless; made of two arguments they are not.
        assert_eq!(url("http://h/t/x{/id}", json!({"id": ".."})).unwrap(), "http://h/t/x..");
        assert!(url("http://h/t/{/a}{/b}/x", json!({"a": ".", "b": "."})).is_err());
        assert!(url("http://h/t/%2e{/a}/x", json!({"a": "."})).is_err());
    }

    #[test]
    fn the_host_is_fixed_by_the_config() {
        for (text, at) in [("http://{/host}/x", 7), ("http://h:{/port}/x", 7), ("{/scheme}://h/x", 12)] {
            let error = UrlTemplate::parse(text).unwrap_err();
            assert!(error.message.contains("host are fixed"), "{text}: {error}");
            assert_eq!(error.at, at, "{text}");
        }
        // A value that looks like a host stays a segment.
        assert_eq!(url("http://h/{/x}", json!({"x": "@evil.example/"})).unwrap(), "http://h/%40evil.example%2F");
    }

    #[test]
    fn an_absent_argument_is_named_and_an_optional_one_leaves_its_pair_out() {
        assert_eq!(
            url("http://h/{/id}", json!({"other": 1})).unwrap_err().to_string(),
            "the url needs the argument /id, which is absent"
        );
        assert_eq!(url("http://h/?a={/a?}&b={/b?}&c", json!({"b": 2})).unwrap(), "http://h/?b=2&c");
        assert_eq!(
            url("http://h/{/id}", json!({"id": {"x": 1}})).unwrap_err().to_string(),
            "the url needs text, a number or a boolean at /id, not a list or an object"
        );
    }

    #[test]
    fn a_body_keeps_json_types_and_escapes_text() {
        let arguments = json!({"n": 2, "name": "O\"Neil\\\n", "list": [1, {"a": null}], "b": true});
        assert_eq!(
            body(
                json!({"n": "{/n}", "text": "for {/name}, {/n}", "list": "{/list}", "first": "{/list/0}",
                       "ref": "{operation}/{key}", "fixed": 7, "brace": "{{x}}", "deep": {"b": ["{/b}", "{/gone?}"]},
                       "gone": "{/gone?}"}),
                arguments
            )
            .unwrap(),
            json!({"n": 2, "text": "for O\"Neil\\\n, 2", "list": [1, {"a": null}], "first": 1,
                   "ref": "op_1/key_1", "fixed": 7, "brace": "{x}", "deep": {"b": [true]}})
        );
        assert_eq!(
            body(json!({"n": "{/n}"}), json!({"n": null})).unwrap_err().to_string(),
            "the body needs the argument /n, which is absent"
        );
        // Without a template the arguments are the body.
        assert_eq!(template("http://h/", None).build(&request(json!({"a": 1}))).unwrap().body.unwrap(), b"{\"a\":1}");
    }

    #[test]
    fn an_argument_cannot_end_a_header_line() {
        let mut template = template("http://h/", None);
        template.headers = vec![("x-name".to_owned(), HeaderSource::Template(Template::parse("n={/n}").unwrap()))];
        let value =
            |arguments| template.build(&request(arguments)).map(|built| built.headers[0].1.expose_secret().to_owned());
        assert_eq!(value(json!({"n": "Ann"})).unwrap(), "n=Ann");
        for bad in ["a\r\nevil: 1", "a\nb", "é", "\u{0}"] {
            assert_eq!(
                value(json!({ "n": bad })).unwrap_err().to_string(),
                "the header x-name does not fit into a header: only visible ASCII does"
            );
        }
    }

    #[test]
    fn a_secret_header_is_sent_and_never_shown() {
        let mut template = template("http://h/", None);
        template.headers = vec![(
            "authorization".to_owned(),
            HeaderSource::Secret { prefix: "Bearer ".to_owned(), secret: SecretString::from("hush") },
        )];
        let built = template.build(&request(json!({}))).unwrap();
        assert_eq!(built.headers[0].1.expose_secret(), "Bearer hush");
        assert!(!format!("{template:?} {built:?}").contains("hush"));
    }

    #[test]
    fn a_template_that_cannot_be_read_says_where() {
        for (text, at, message) in [
            ("a{/b", 1, "without its `}`"),
            ("a}b", 1, "without its `{`"),
            ("é{b}", 2, "`{b}` is no place"),
            ("{/a~2}", 0, "not a JSON Pointer"),
            ("{key?}", 0, "always there"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert_eq!(error.at, at, "{text}");
            assert!(error.message.contains(message), "{text}: {error}");
        }
        for (text, at, message) in [
            ("ftp://h/", 0, "use http or https"),
            ("/x", 0, "not a URL"),
            ("http://u:p@h/", 7, "secret_headers"),
            ("http://h/a/{/b?}", 11, "cannot be optional"),
            ("http://h/?{/a}=1", 10, "name of a query field is fixed"),
            ("http://h/?a=1&b={c}", 16, "`{c}` is no place"),
            ("http://h/x/{y}", 11, "`{y}` is no place"),
            ("http://h/#x", 9, "fragment"),
        ] {
            let error = UrlTemplate::parse(text).unwrap_err();
            assert!(error.message.contains(message), "{text}: {error}");
            assert_eq!(error.at, at, "{text}");
        }
    }
}
