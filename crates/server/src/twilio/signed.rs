//! A form post that Twilio signed. Being an extractor, it cannot be forgotten: a webhook has no other way to its fields.

use crate::doors::Doors;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use vocab::{CallSid, CallerId};

/// The longest SID that we take; Twilio's have 34 characters.
const MAX_SID_LEN: usize = 64;

/// Every field of a verified webhook, with the two that all of them have.
pub(crate) struct SignedForm {
    pub call_sid: CallSid,
    pub account_sid: String,
    fields: Vec<(String, String)>,
}

/// Who calls, by a verified webhook.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub id: CallerId,
    pub verified: bool,
}

/// What Twilio puts into `From` when the number is withheld or unknown: the words, or the keypad digits of the words
/// (ANONYMOUS, RESTRICTED, BLOCKED, UNKNOWN, UNAVAILABLE).
const NO_NUMBER: [&str; 5] = ["+266696687", "+7378742833", "+2562533", "+8656696", "+86282452253"];

impl SignedForm {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// `From` as an E.164 number; everything else (withheld, SIP address, client name) is an anonymous caller of this call only.
    pub fn caller(&self) -> Caller {
        let from = self.field("From").unwrap_or_default();
        if is_e164(from) && !NO_NUMBER.contains(&from) {
            Caller { id: CallerId::new(from), verified: true }
        } else {
            Caller { id: CallerId::new(format!("anonymous:{}", self.call_sid)), verified: false }
        }
    }
}

impl FromRequest<Arc<Doors>> for SignedForm {
    type Rejection = Response;

    async fn from_request(request: Request, doors: &Arc<Doors>) -> Result<Self, Response> {
        let is_form =
            request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
                kind.split(';')
                    .next()
                    .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
            });
        if !is_form {
            return Err(refused("not_a_form", StatusCode::UNSUPPORTED_MEDIA_TYPE, "a form post is expected"));
        }
        let (parts, body) = request.into_parts();
        let body = Bytes::from_request(Request::from_parts(parts.clone(), body), &())
            .await
            .map_err(IntoResponse::into_response)?;
        let fields: Vec<(String, String)> = url::form_urlencoded::parse(&body).into_owned().collect();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        doors.carrier.check_form(&doors.addresses.page(path), &parts.headers, &fields).map_err(|refusal| {
            tracing::warn!(path, %refusal, "webhook refused");
            refused("signature", StatusCode::FORBIDDEN, "the signature does not match")
        })?;

        let sid = |name: &str| fields.iter().find(|(field, _)| field == name).and_then(|(_, value)| plain_sid(value));
        let (Some(call_sid), Some(account_sid)) = (sid("CallSid"), sid("AccountSid")) else {
            return Err(refused("incomplete", StatusCode::BAD_REQUEST, "CallSid and AccountSid are needed"));
        };
        if !doors.carrier.takes_account(&account_sid) {
            tracing::warn!(path, account_sid, "webhook refused: not one of our accounts");
            return Err(refused("account", StatusCode::FORBIDDEN, "this account is not served here"));
        }
        Ok(Self { call_sid: CallSid::new(call_sid), account_sid, fields })
    }
}

fn refused(reason: &'static str, status: StatusCode, text: &'static str) -> Response {
    metrics::counter!("webhooks_refused_total", "reason" => reason).increment(1);
    (status, text).into_response()
}

/// A SID goes into logs, maps and file names: letters and digits only.
fn plain_sid(text: &str) -> Option<String> {
    let plain = !text.is_empty() && text.len() <= MAX_SID_LEN && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| text.to_owned())
}

/// E.164: a plus, then up to 15 digits that do not start with zero. Shorter than 7 digits is a service code, not a caller.
fn is_e164(text: &str) -> bool {
    text.strip_prefix('+').is_some_and(|digits| {
        (7..=15).contains(&digits.len()) && !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller_of(from: &str) -> Caller {
        let fields = vec![("From".to_owned(), from.to_owned())];
        SignedForm { call_sid: CallSid::new("CA1"), account_sid: "AC1".into(), fields }.caller()
    }

    #[test]
    fn only_a_real_number_is_a_verified_caller() {
        assert_eq!(caller_of("+14158675309"), Caller { id: CallerId::new("+14158675309"), verified: true });
        for withheld in [
            "",
            "anonymous",
            "Restricted",
            "+266696687",
            "+7378742833",
            "sip:a@b",
            "client:joe",
            "14158675309",
            "+0123456789",
        ] {
            assert_eq!(
                caller_of(withheld),
                Caller { id: CallerId::new("anonymous:CA1"), verified: false },
                "{withheld}"
            );
        }
    }

    #[test]
    fn a_sid_with_anything_but_letters_and_digits_is_none() {
        assert_eq!(plain_sid("CA0123abc").as_deref(), Some("CA0123abc"));
        for odd in ["", "CA 1", "CA/../1", "CA\n1", &"C".repeat(65)] {
            assert_eq!(plain_sid(odd), None, "{odd}");
        }
    }
}
