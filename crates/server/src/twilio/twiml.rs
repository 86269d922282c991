//! The TwiML documents that we answer with. Few enough to be written out; every value is escaped.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::fmt::Write;

/// A whole document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Twiml(String);

/// `<Connect><Stream>` and the tail that brings the call back to us when the socket closes for any reason.
pub(crate) struct ConnectStream<'a> {
    pub stream_url: &'a str,
    pub status_url: &'a str,
    /// `(name, value)`; name and value together stay below Twilio's 500 characters.
    pub parameters: &'a [(&'a str, &'a str)],
    pub resume_url: &'a str,
}

impl Twiml {
    pub fn connect(stream: &ConnectStream<'_>) -> Self {
        let mut body = format!(
            r#"<Connect><Stream url="{}" statusCallback="{}" statusCallbackMethod="POST">"#,
            escaped(stream.stream_url),
            escaped(stream.status_url)
        );
        for (name, value) in stream.parameters {
            let _ = write!(body, r#"<Parameter name="{}" value="{}"/>"#, escaped(name), escaped(value));
        }
        let _ = write!(body, r#"</Stream></Connect><Redirect method="POST">{}</Redirect>"#, escaped(stream.resume_url));
        Self::document(&body)
    }

    /// Not answered and not billed: the caller hears the busy tone. Works as the first verb of a call only.
    pub fn busy() -> Self {
        Self::document(r#"<Reject reason="busy"/>"#)
    }

    /// Ends an answered call.
    pub fn hang_up() -> Self {
        Self::document("<Hangup/>")
    }

    /// Says one sentence, then ends the call.
    pub fn say_and_hang_up(sentence: &str) -> Self {
        Self::document(&format!("<Say>{}</Say><Hangup/>", escaped(sentence)))
    }

    /// Keeps an answered call for a moment, then asks again: another process may take it.
    pub fn ask_again(pause_s: u32, resume_url: &str) -> Self {
        Self::document(&format!(
            r#"<Pause length="{pause_s}"/><Redirect method="POST">{}</Redirect>"#,
            escaped(resume_url)
        ))
    }

    fn document(body: &str) -> Self {
        Self(format!(r#"<?xml version="1.0" encoding="UTF-8"?><Response>{body}</Response>"#))
    }
}

impl IntoResponse for Twiml {
    fn into_response(self) -> Response {
        // The token in it must not be kept by anything in between.
        ([(header::CONTENT_TYPE, "text/xml; charset=utf-8"), (header::CACHE_CONTROL, "no-store")], self.0)
            .into_response()
    }
}

/// XML text and attribute escaping; characters that XML 1.0 forbids are dropped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' => out.push(' '),
            control if (control as u32) < 0x20 || control == '\u{fffe}' || control == '\u{ffff}' => {}
            plain => out.push(plain),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_leave_their_place() {
        let Twiml(text) = Twiml::connect(&ConnectStream {
            stream_url: "wss://a.example/twilio/stream",
            status_url: "https://a.example/s?a=1&b=2",
            parameters: &[("caller", r#""/><Dial>+1900</Dial><x y="'"#), ("odd", "a\u{0}b\u{7}c")],
            resume_url: "https://a.example/twilio/resume?n=1",
        });
        assert!(!text.contains("<Dial>"), "{text}");
        assert!(text.contains("&quot;/&gt;&lt;Dial&gt;+1900"), "{text}");
        assert!(text.contains("s?a=1&amp;b=2"), "{text}");
        assert!(text.contains(r#"value="abc""#), "{text}");
    }
}
