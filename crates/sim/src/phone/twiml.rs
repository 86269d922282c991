//! TwiML, as far as a call with a bidirectional stream needs it: the verbs in order, with a strict little XML reader.

/// One verb of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Connect(Stream),
    Pause {
        seconds: u32,
    },
    Redirect {
        /// `POST` unless the document says `GET`.
        post: bool,
        url: String,
    },
    Hangup,
    Reject,
    /// Words that Twilio itself would speak.
    Say {
        text: String,
    },
    Play {
        url: String,
    },
}

/// `<Connect><Stream>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    pub url: String,
    pub name: Option<String>,
    pub track: Option<String>,
    pub status_callback: Option<String>,
    /// `<Parameter>`s in order.
    pub parameters: Vec<(String, String)>,
    /// `<Connect action>`: asked for when the verb ends.
    pub action: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TwimlError {
    /// Twilio's 12100.
    #[error("not well-formed XML at byte {at}: {problem}")]
    Xml { at: usize, problem: &'static str },
    /// Twilio's 12200.
    #[error("not valid TwiML: {0}")]
    Schema(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
    text: String,
}

/// The verbs of `<Response>`.
pub fn parse(text: &str) -> Result<Vec<Verb>, TwimlError> {
    let root = Reader { text, at: 0 }.document()?;
    if root.name != "Response" {
        return Err(TwimlError::Schema(format!("the root is <{}>, not <Response>", root.name)));
    }
    root.children.into_iter().map(verb).collect()
}

fn verb(element: Element) -> Result<Verb, TwimlError> {
    let schema = |problem: String| Err(TwimlError::Schema(problem));
    let text = element.text.trim().to_owned();
    match element.name.as_str() {
        "Connect" => {
            let action = element.attribute("action");
            match <[Element; 1]>::try_from(element.children) {
                Ok([child]) if child.name == "Stream" => stream(child, action),
                Ok(_) | Err(_) => schema("<Connect> must hold exactly one <Stream> here".into()),
            }
        }
        "Pause" => {
            let length = element.attribute("length").unwrap_or_else(|| "1".into());
            match length.parse() {
                Ok(seconds) => Ok(Verb::Pause { seconds }),
                Err(_) => schema(format!("<Pause length={length:?}>")),
            }
        }
        "Redirect" if text.is_empty() => schema("<Redirect> without a URL".into()),
        "Redirect" => Ok(Verb::Redirect {
            post: element.attribute("method").is_none_or(|m| !m.eq_ignore_ascii_case("GET")),
            url: text,
        }),
        "Hangup" => Ok(Verb::Hangup),
        "Reject" => Ok(Verb::Reject),
        "Say" => Ok(Verb::Say { text }),
        "Play" => Ok(Verb::Play { url: text }),
        other => schema(format!("<{other}> is not a verb that this caller follows")),
    }
}

fn stream(element: Element, action: Option<String>) -> Result<Verb, TwimlError> {
    let url = element.attribute("url").ok_or_else(|| TwimlError::Schema("<Stream> without url".into()))?;
    let mut parameters = Vec::new();
    for child in &element.children {
        match (child.name.as_str(), child.attribute("name"), child.attribute("value")) {
            // Together under 500 characters (Twilio, <Stream>: custom parameters).
            ("Parameter", Some(name), Some(value)) if name.len() + value.len() < 500 => parameters.push((name, value)),
            ("Parameter", Some(name), Some(_)) => {
                return Err(TwimlError::Schema(format!("<Parameter> {name} is 500 characters or longer")));
            }
            _ => return Err(TwimlError::Schema(format!("<{}> inside <Stream>", child.name))),
        }
    }
    Ok(Verb::Connect(Stream {
        url,
        name: element.attribute("name"),
        track: element.attribute("track"),
        status_callback: element.attribute("statusCallback"),
        parameters,
        action,
    }))
}

impl Element {
    fn attribute(&self, name: &str) -> Option<String> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())
    }
}

/// Nesting deeper than any TwiML.
const MAX_DEPTH: usize = 8;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn document(mut self) -> Result<Element, TwimlError> {
        self.skip_between()?;
        let root = self.element(0)?;
        self.skip_between()?;
        if self.at < self.text.len() { self.wrong("something follows the root element") } else { Ok(root) }
    }

    fn element(&mut self, depth: usize) -> Result<Element, TwimlError> {
        if depth > MAX_DEPTH {
            return self.wrong("nested too deep");
        }
        self.expect("<")?;
        let mut element = Element { name: self.name()?, ..Element::default() };
        loop {
            self.skip_space();
            if self.take("/>") {
                return Ok(element);
            }
            if self.take(">") {
                break;
            }
            let name = self.name()?;
            self.skip_space();
            self.expect("=")?;
            self.skip_space();
            let quote = if self.take("\"") {
                "\""
            } else {
                self.expect("'")?;
                "'"
            };
            let raw = self.until(quote)?;
            if raw.contains('<') {
                return self.wrong("< inside an attribute");
            }
            let value = self.unescaped(raw)?;
            element.attributes.push((name, value));
        }
        loop {
            let upto = self.rest().find('<').unwrap_or(self.rest().len());
            let raw = &self.rest()[..upto].to_owned();
            element.text.push_str(&self.unescaped(raw.clone())?);
            self.at += upto;
            if self.take("<!--") {
                self.until("-->")?;
            } else if self.take("</") {
                let name = self.name()?;
                self.skip_space();
                self.expect(">")?;
                return if name == element.name { Ok(element) } else { self.wrong("a closing tag of another name") };
            } else {
                element.children.push(self.element(depth + 1)?);
            }
        }
    }

    fn skip_between(&mut self) -> Result<(), TwimlError> {
        loop {
            self.skip_space();
            if self.take("<?") {
                self.until("?>")?;
            } else if self.take("<!--") {
                self.until("-->")?;
            } else {
                return Ok(());
            }
        }
    }

    fn name(&mut self) -> Result<String, TwimlError> {
        let end =
            self.rest().find(|c: char| !c.is_ascii_alphanumeric() && !"-_.:".contains(c)).unwrap_or(self.rest().len());
        if end == 0 {
            return self.wrong("a name was expected");
        }
        let name = self.rest()[..end].to_owned();
        self.at += end;
        Ok(name)
    }

    fn unescaped(&self, raw: String) -> Result<String, TwimlError> {
        let mut out = String::new();
        let mut rest = raw.as_str();
        while let Some(at) = rest.find('&') {
            out.push_str(&rest[..at]);
            let Some(end) = rest[at..].find(';') else { return self.wrong("a bare &") };
            let entity = &rest[at + 1..at + end];
            let number = entity
                .strip_prefix("#x")
                .map(|hex| u32::from_str_radix(hex, 16))
                .or_else(|| entity.strip_prefix('#').map(str::parse));
            match (entity, number) {
                ("amp", _) => out.push('&'),
                ("lt", _) => out.push('<'),
                ("gt", _) => out.push('>'),
                ("quot", _) => out.push('"'),
                ("apos", _) => out.push('\''),
                (_, Some(Ok(code))) => match char::from_u32(code) {
                    Some(c) => out.push(c),
                    None => return self.wrong("a character that does not exist"),
                },
                _ => return self.wrong("an unknown entity"),
            }
            rest = &rest[at + end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }
    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }
    fn take(&mut self, wanted: &str) -> bool {
        let found = self.rest().starts_with(wanted);
        self.at += if found { wanted.len() } else { 0 };
        found
    }
    fn expect(&mut self, wanted: &'static str) -> Result<(), TwimlError> {
        if self.take(wanted) { Ok(()) } else { self.wrong("another character was expected") }
    }
    fn until(&mut self, end: &str) -> Result<String, TwimlError> {
        let Some(upto) = self.rest().find(end) else { return self.wrong("it breaks off") };
        let taken = self.rest()[..upto].to_owned();
        self.at += upto + end.len();
        Ok(taken)
    }
    fn wrong<T>(&self, problem: &'static str) -> Result<T, TwimlError> {
        Err(TwimlError::Xml { at: self.at, problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_with_its_tail_reads_in_order() {
        let verbs = parse(
            r#"<?xml version="1.0" encoding="UTF-8"?>
            <!-- answer --><Response>
              <Connect action="/done"><Stream url="wss://h/s?a&amp;b" name='n' statusCallback="https://h/cb">
                <Parameter name="token" value="a&lt;b&#33;"/></Stream></Connect>
              <Pause length="1"/><Redirect method="POST">https://h/resume?n=1&amp;m=2</Redirect><Hangup/>
            </Response>"#,
        )
        .unwrap();
        let stream = Stream {
            url: "wss://h/s?a&b".into(),
            name: Some("n".into()),
            track: None,
            status_callback: Some("https://h/cb".into()),
            parameters: vec![("token".into(), "a<b!".into())],
            action: Some("/done".into()),
        };
        assert_eq!(
            verbs,
            [
                Verb::Connect(stream),
                Verb::Pause { seconds: 1 },
                Verb::Redirect { post: true, url: "https://h/resume?n=1&m=2".into() },
                Verb::Hangup
            ]
        );
    }

    #[test]
    fn what_twilio_would_not_take_is_refused() {
        for text in [
            "",
            "hello",
            "<Response>",
            "<Response></Wrong>",
            "<Response/><Response/>",
            "<Response>a & b</Response>",
            "<Response a=b/>",
            "<Reply/>",
            "<Response><Connect/></Response>",
            "<Response><Dial/></Response>",
            "<Response><Connect><Stream/></Connect></Response>",
            "<Response><Redirect/></Response>",
            "<Response><Pause length=\"-1\"/></Response>",
            "<Response>&nope;</Response>",
            "<Response>&#xd800;</Response>",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let long = format!(
            "<Response><Connect><Stream url=\"wss://h\"><Parameter name=\"t\" value=\"{}\"/></Stream></Connect></Response>",
            "x".repeat(499)
        );
        assert!(parse(&long).is_err());
        assert!(parse(&"<a>".repeat(10_000)).is_err());
    }
}
