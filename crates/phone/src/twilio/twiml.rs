//! The documents that we answer webhooks with (Twilio, "TwiML: `<Connect><Stream>`").

use std::fmt::Write as _;

/// `name` and `value` of one `<Parameter>` together must stay under this many characters (Twilio, `<Parameter>`).
pub const PARAMETER_LIMIT_CHARS: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TwimlError {
    #[error("the stream URL carries a query, which the carrier strips: put it into the path or a parameter")]
    QueryInStreamUrl,
    #[error("{what} must be an absolute {schemes} URL")]
    BadUrl { what: &'static str, schemes: &'static str },
    #[error("the parameter {name:?} is {chars} characters long with its name; it must be under 500")]
    ParameterTooLong { name: String, chars: usize },
    #[error("the parameter {name:?} appears twice, or has no name")]
    BadParameterName { name: String },
    #[error("{what} holds a character that XML cannot carry")]
    NotXml { what: &'static str },
}

/// A two-way stream, and what happens after it.
#[derive(Clone, Debug)]
pub struct ConnectStream<'a> {
    /// `wss://…` without a query. `ws://…` is let through for a simulator on a local network; the carrier refuses it.
    pub url: &'a str,
    /// Where the carrier reports `stream-started`, `-stopped` and `-error`: the only view of a failed handshake.
    pub status_callback: &'a str,
    /// Arrive in `start.customParameters`. One is the one-time token, so errors never show a value.
    pub parameters: &'a [(&'a str, &'a str)],
    /// Asked for (POST) when the stream has ended and the call has not: the call's state says what comes next.
    pub resume_url: &'a str,
}

/// Why a call is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The caller hears a busy tone: we are full or going away.
    Busy,
    /// The caller hears "not in service".
    Rejected,
}

/// Connects the call to our socket, then asks [`ConnectStream::resume_url`].
pub fn connect_stream(answer: &ConnectStream<'_>) -> Result<String, TwimlError> {
    let ConnectStream { url, status_callback, parameters, resume_url } = *answer;
    if url.contains('?') {
        return Err(TwimlError::QueryInStreamUrl);
    }
    absolute("the stream URL", url, &["wss", "ws"], "wss")?;
    absolute("the status callback", status_callback, &["https", "http"], "https")?;
    absolute("the resume URL", resume_url, &["https", "http"], "https")?;
    let mut document = String::from(DECLARATION);
    document.push_str("<Response><Connect><Stream");
    attribute(&mut document, "url", url, "the stream URL")?;
    attribute(&mut document, "statusCallback", status_callback, "the status callback")?;
    document.push_str(" statusCallbackMethod=\"POST\">");
    for (at, &(name, value)) in parameters.iter().enumerate() {
        if name.is_empty() || parameters[..at].iter().any(|(earlier, _)| *earlier == name) {
            return Err(TwimlError::BadParameterName { name: name.into() });
        }
        let chars = name.chars().count() + value.chars().count();
        if chars >= PARAMETER_LIMIT_CHARS {
            return Err(TwimlError::ParameterTooLong { name: name.chars().take(64).collect(), chars });
        }
        document.push_str("<Parameter");
        attribute(&mut document, "name", name, "a parameter's name")?;
        attribute(&mut document, "value", value, "a parameter's value")?;
        document.push_str("/>");
    }
    document.push_str("</Stream></Connect><Redirect method=\"POST\">");
    escape(&mut document, resume_url, "the resume URL")?;
    document.push_str("</Redirect></Response>");
    Ok(document)
}

/// Ends the call.
pub fn hang_up() -> String {
    format!("{DECLARATION}<Response><Hangup/></Response>")
}

/// Does not answer the call. Only works as the first verb, before anything was answered; costs the caller nothing.
pub fn reject(why: Rejection) -> String {
    let reason = match why {
        Rejection::Busy => "busy",
        Rejection::Rejected => "rejected",
    };
    format!("{DECLARATION}<Response><Reject reason=\"{reason}\"/></Response>")
}

const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

fn absolute(what: &'static str, text: &str, schemes: &[&str], named: &'static str) -> Result<(), TwimlError> {
    let bad = TwimlError::BadUrl { what, schemes: named };
    match url::Url::parse(text) {
        Ok(parsed) if schemes.contains(&parsed.scheme()) && parsed.has_host() => Ok(()),
        Ok(_) | Err(_) => Err(bad),
    }
}

fn attribute(document: &mut String, name: &str, value: &str, what: &'static str) -> Result<(), TwimlError> {
    document.push(' ');
    document.push_str(name);
    document.push_str("=\"");
    escape(document, value, what)?;
    document.push('"');
    Ok(())
}

fn escape(document: &mut String, text: &str, what: &'static str) -> Result<(), TwimlError> {
    for char in text.chars() {
        match char {
            '&' => document.push_str("&amp;"),
            '<' => document.push_str("&lt;"),
            '>' => document.push_str("&gt;"),
            '"' => document.push_str("&quot;"),
            '\'' => document.push_str("&apos;"),
            // Bare, a parser would read these three as spaces in an attribute. Writing to a `String` cannot fail.
            '\t' | '\n' | '\r' => drop(write!(document, "&#{};", char as u32)),
            // Outside XML 1.0's characters, not even as a reference.
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => return Err(TwimlError::NotXml { what }),
            char => document.push(char),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: ConnectStream<'static> = ConnectStream {
        url: "wss://voice.example.com/twilio/stream/abc",
        status_callback: "https://voice.example.com/twilio/stream-status",
        parameters: &[("token", "t0k"), ("session", "ses_1")],
        resume_url: "https://voice.example.com/twilio/resume?n=1&call=CA1",
    };

    #[test]
    fn a_stream_is_answered_with_its_parameters_and_what_comes_after() {
        assert_eq!(
            connect_stream(&ANSWER).unwrap(),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response><Connect>\
             <Stream url=\"wss://voice.example.com/twilio/stream/abc\" \
             statusCallback=\"https://voice.example.com/twilio/stream-status\" statusCallbackMethod=\"POST\">\
             <Parameter name=\"token\" value=\"t0k\"/><Parameter name=\"session\" value=\"ses_1\"/></Stream></Connect>\
             <Redirect method=\"POST\">https://voice.example.com/twilio/resume?n=1&amp;call=CA1</Redirect></Response>"
        );
    }

    #[test]
    fn a_value_cannot_leave_its_attribute() {
        let parameters = [("a", "\"/><Hangup/>&'\n")];
        let document = connect_stream(&ConnectStream { parameters: &parameters, ..ANSWER }).unwrap();
        assert!(document.contains("value=\"&quot;/&gt;&lt;Hangup/&gt;&amp;&apos;&#10;\"/>"), "{document}");
        let parameters = [("a", "\u{1}")];
        assert_eq!(
            connect_stream(&ConnectStream { parameters: &parameters, ..ANSWER }),
            Err(TwimlError::NotXml { what: "a parameter's value" })
        );
    }

    #[test]
    fn a_query_in_the_stream_url_is_refused() {
        let url = "wss://voice.example.com/s?token=1";
        assert_eq!(connect_stream(&ConnectStream { url, ..ANSWER }), Err(TwimlError::QueryInStreamUrl));
    }

    #[test]
    fn an_address_that_the_carrier_could_not_reach_is_refused() {
        for url in ["", "/media", "https://voice.example.com/media", "wss:///"] {
            let error = connect_stream(&ConnectStream { url, ..ANSWER }).unwrap_err();
            assert_eq!(error, TwimlError::BadUrl { what: "the stream URL", schemes: "wss" }, "{url}");
        }
        for address in ["", "/status", "wss://voice.example.com/status"] {
            assert!(connect_stream(&ConnectStream { status_callback: address, ..ANSWER }).is_err(), "{address}");
            assert!(connect_stream(&ConnectStream { resume_url: address, ..ANSWER }).is_err(), "{address}");
        }
    }

    #[test]
    fn a_parameter_is_refused_at_five_hundred_characters_and_its_value_is_not_told() {
        let value = "é".repeat(494);
        let fits = [("token", value.as_str())];
        assert!(connect_stream(&ConnectStream { parameters: &fits, ..ANSWER }).is_ok(), "499 characters");
        let value = "s".repeat(495);
        let long = [("token", value.as_str())];
        let error = connect_stream(&ConnectStream { parameters: &long, ..ANSWER }).unwrap_err();
        assert_eq!(error, TwimlError::ParameterTooLong { name: "token".into(), chars: 500 });
        assert!(!error.to_string().contains("sss"));
    }

    #[test]
    fn a_parameter_has_a_name_of_its_own() {
        for parameters in [[("a", "1"), ("a", "2")], [("a", "1"), ("", "2")]] {
            let answer = ConnectStream { parameters: &parameters, ..ANSWER };
            assert!(matches!(connect_stream(&answer), Err(TwimlError::BadParameterName { .. })));
        }
    }

    #[test]
    fn a_call_can_be_ended_or_not_taken() {
        assert!(hang_up().ends_with("<Response><Hangup/></Response>"));
        assert!(reject(Rejection::Busy).ends_with("<Response><Reject reason=\"busy\"/></Response>"));
        assert!(reject(Rejection::Rejected).ends_with("<Response><Reject reason=\"rejected\"/></Response>"));
    }
}
