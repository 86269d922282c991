//! The hot path of `wire.rs`: a field scan for the two messages that come all the time, `media` and `mark`, as Twilio's own
//! encoder writes them. It allocates nothing and copies nothing.
//!
//! It is not a JSON parser and need not be one: at the first thing that it does not know (an escape, an unknown nested
//! object, a fraction) it gives up, and the caller asks a real parser. `wire.rs` proves by property test that whenever
//! the scan has an answer, the parser has the same.

/// A value that may be written as a number or as a string holding one: clones of the protocol differ.
pub(super) type Count = Option<u32>;

/// The raw fields of a message, each `None` when absent. Strings are as they stand between their quotes, free of escapes.
#[derive(Default, Debug, PartialEq)]
pub(super) struct Fields<'a> {
    pub event: Option<&'a str>,
    pub stream: Option<&'a str>,
    pub sequence: Count,
    pub media: Option<Media<'a>>,
    pub mark: Option<&'a str>,
}

#[derive(Default, Debug, PartialEq)]
pub(super) struct Media<'a> {
    pub track: Option<&'a str>,
    pub chunk: Count,
    pub timestamp: Count,
    pub payload: Option<&'a str>,
}

/// A scalar between two structural characters.
enum Scalar<'a> {
    Text(&'a str),
    Number(Count),
    Other,
}

impl<'a> Scalar<'a> {
    fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(_) | Self::Other => None,
        }
    }
    fn count(self) -> Count {
        match self {
            Self::Text(text) => count(text),
            Self::Number(number) => number,
            Self::Other => None,
        }
    }
}

/// Decimal digits, nothing else; `None` when they are no `u32`.
pub(super) fn count(text: &str) -> Count {
    // `parse` alone would take a sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// The fields of `text` if it is a plain `media` or `mark` message, else `None`: ask the parser.
pub(super) fn fields(text: &str) -> Option<Fields<'_>> {
    let mut scan = Scan { text, bytes: text.as_bytes(), at: 0 };
    let mut fields = Fields::default();
    scan.object(|scan, key| {
        match key {
            "event" => fields.event = scan.scalar()?.text(),
            "streamSid" => fields.stream = scan.scalar()?.text(),
            "sequenceNumber" => fields.sequence = scan.scalar()?.count(),
            "media" => {
                let mut media = Media::default();
                scan.object(|scan, key| {
                    let value = scan.scalar()?;
                    match key {
                        "track" => media.track = value.text(),
                        "chunk" => media.chunk = value.count(),
                        "timestamp" => media.timestamp = value.count(),
                        "payload" => media.payload = value.text(),
                        _ => {}
                    }
                    Some(())
                })?;
                fields.media = Some(media);
            }
            "mark" => {
                let mut name = None;
                scan.object(|scan, key| {
                    let value = scan.scalar()?;
                    if key == "name" {
                        name = value.text();
                    }
                    Some(())
                })?;
                fields.mark = name;
            }
            _ => {
                scan.scalar()?;
            }
        }
        Some(())
    })?;
    scan.space();
    if scan.at != scan.bytes.len() {
        return None;
    }
    match fields.event {
        Some("media" | "mark") => Some(fields),
        _ => None,
    }
}

struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.bytes.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    /// Reads `{"key":value,…}`; `member` reads each value. Nesting is bounded: only `fields` calls this, two deep.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            self.space();
            let key = self.string()?;
            self.take(b':')?;
            member(self, key)?;
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    fn string(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let start = self.at;
        // A payload is most of a message, so both passes are ones that the compiler widens: a search for the quote, then
        // a look for what a plain string cannot hold. A quote that was escaped is caught by its backslash.
        let length = self.text.get(start..)?.find('"')?;
        let string = &self.bytes[start..start + length];
        let unusual = string.iter().fold(false, |unusual, &byte| unusual | (byte == b'\\') | (byte < 0x20));
        self.at = start + length + 1;
        // Both ends are ASCII quotes, so the slice falls on character boundaries.
        if unusual { None } else { self.text.get(start..start + length) }
    }

    fn scalar(&mut self) -> Option<Scalar<'a>> {
        self.space();
        match self.bytes.get(self.at)? {
            b'"' => self.string().map(Scalar::Text),
            b'0'..=b'9' => {
                let start = self.at;
                while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
                    self.at += 1;
                }
                let digits = self.text.get(start..self.at)?;
                let plain = !matches!(self.bytes.get(self.at), Some(b'.' | b'e' | b'E'));
                let leading_zero = digits.len() > 1 && digits.starts_with('0');
                (plain && !leading_zero).then(|| Scalar::Number(count(digits)))
            }
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => None,
        }
    }

    fn word(&mut self, word: &str) -> Option<Scalar<'a>> {
        self.bytes[self.at..].starts_with(word.as_bytes()).then(|| {
            self.at += word.len();
            Scalar::Other
        })
    }
}
