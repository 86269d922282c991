//! Is this Twilio? The one place that knows how signatures are checked.

use super::status::SeenCallbacks;
use crate::settings::TwilioSettings;
use axum::http::HeaderMap;
use phone::twilio::signature;
use std::fmt;

/// The carrier as we know it: its secrets, its accounts, and what it told us already.
pub(crate) struct Carrier {
    settings: TwilioSettings,
    pub callbacks: SeenCallbacks,
}

/// A signature that is missing or matches nothing. Shows the addresses that were tried, so that a wrong public address is
/// seen in the log; never a secret or a signature.
#[derive(Debug)]
pub(crate) struct NotSigned {
    pub why: &'static str,
    pub tried: Vec<String>,
}

impl fmt::Display for NotSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; tried {}", self.why, self.tried.join(" "))
    }
}

impl Carrier {
    pub fn new(settings: TwilioSettings) -> Self {
        Self { settings, callbacks: SeenCallbacks::default() }
    }

    pub fn takes_account(&self, account_sid: &str) -> bool {
        self.settings.account_sids.is_empty() || self.settings.account_sids.iter().any(|ours| ours == account_sid)
    }

    pub fn check_form(&self, url: &str, headers: &HeaderMap, fields: &[(String, String)]) -> Result<(), NotSigned> {
        let mut f: Vec<_> = fields.to_vec();
        f.sort();
        let tail: String = f.iter().map(|(a, b)| format!("{a}{b}")).collect();
        self.check(url, headers, &tail)
    }

    pub fn check_upgrade(&self, url: &str, headers: &HeaderMap) -> Result<(), NotSigned> {
        self.check(url, headers, "")
    }

    fn check(&self, url: &str, headers: &HeaderMap, tail: &str) -> Result<(), NotSigned> {
        let tried = signature::candidates(url);
        let Some(given) = headers.get("x-twilio-signature").and_then(|v| v.to_str().ok()) else {
            return Err(NotSigned { why: "no signature", tried });
        };
        for url in &tried {
            for secret in &self.settings.auth_tokens {
                if signature::sign(secret, &format!("{url}{tail}")) == given {
                    return Ok(());
                }
            }
        }
        Err(NotSigned { why: "the signature matches none", tried })
    }
}
