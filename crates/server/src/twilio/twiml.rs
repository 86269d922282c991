//! Our answers as HTTP, and the two documents that are the server's own: giving a call up, and letting it ask again.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use phone::twilio::twiml;

/// A whole TwiML document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Twiml(String);

impl Twiml {
    pub fn connect(stream: &twiml::ConnectStream<'_>) -> Result<Self, twiml::TwimlError> {
        twiml::connect_stream(stream).map(Self)
    }

    /// Not answered and not billed: the caller hears the busy tone. Works as the first verb of a call only.
    pub fn busy() -> Self {
        Self(twiml::reject(twiml::Rejection::Busy))
    }

    /// Ends an answered call.
    pub fn hang_up() -> Self {
        Self(twiml::hang_up())
    }

    /// Says one sentence, then ends the call.
    pub fn say_and_hang_up(sentence: &str) -> Self {
        Self::document(&format!("<Say>{}</Say><Hangup/>", escaped(sentence)))
    }

    /// Keeps an answered call for a moment, then asks again: another process may take it.
    pub fn ask_again(pause_s: u32, resume_url: &str) -> Self {
        let resume_url = escaped(resume_url);
        Self::document(&format!(r#"<Pause length="{pause_s}"/><Redirect method="POST">{resume_url}</Redirect>"#))
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

/// Element text. What goes in is ours (a sentence, our own address) and holds no control characters.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        let Twiml(text) = Twiml::ask_again(2, "https://a.example/b&c/twilio/resume?n=1");
        assert!(text.ends_with("https://a.example/b&amp;c/twilio/resume?n=1</Redirect></Response>"), "{text}");
        let Twiml(text) = Twiml::say_and_hang_up("</Say><Dial>+1900</Dial>");
        assert!(!text.contains("<Dial>"), "{text}");
    }
}
