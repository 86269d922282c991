//! Is this Twilio? The one place where signatures are checked.

use super::status::SeenCallbacks;
use crate::settings::TwilioSettings;
use axum::http::HeaderMap;
use phone::twilio::signature::{Claim, SETTINGS_HEADER, SIGNATURE_HEADER, SignatureError, Verifier};

/// The carrier as we know it: its secrets, its accounts, and what it told us already.
pub(crate) struct Carrier {
    verifier: Verifier,
    account_sids: Vec<String>,
    pub callbacks: SeenCallbacks,
}

impl Carrier {
    pub fn new(settings: TwilioSettings) -> Self {
        let verifier = settings
            .shared_keys
            .into_iter()
            .fold(Verifier::new(settings.auth_tokens), |verifier, (id, secret)| verifier.with_shared_key(id, secret));
        Self { verifier, account_sids: settings.account_sids, callbacks: SeenCallbacks::default() }
    }

    pub fn takes_account(&self, account_sid: &str) -> bool {
        self.account_sids.is_empty() || self.account_sids.iter().any(|ours| ours == account_sid)
    }

    /// `url`: our public address with the request's path and query as they came.
    pub fn check_form(
        &self,
        url: &str,
        headers: &HeaderMap,
        fields: &[(String, String)],
    ) -> Result<(), SignatureError> {
        self.verifier.verify_form(claim(headers), url, fields)
    }

    /// `url`: our public stream address.
    pub fn check_upgrade(&self, url: &str, headers: &HeaderMap) -> Result<(), SignatureError> {
        self.verifier.verify_upgrade(claim(headers), url)
    }
}

fn claim(headers: &HeaderMap) -> Claim<'_> {
    // A header that is no text counts as an empty one: unreadable settings must not turn into the account's default.
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    Claim { signature: text(SIGNATURE_HEADER), settings: text(SETTINGS_HEADER) }
}
