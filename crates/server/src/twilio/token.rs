//! One-time stream tokens. A signature proves that Twilio once sent an upgrade; the token proves that this socket belongs to
//! the call whose webhook we answered a moment ago.

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use vocab::{CallSid, CallerId};

/// What the signed webhook said, kept until the stream comes: the stream's own parameters are never trusted for it.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub account_sid: String,
    pub caller: CallerId,
    pub caller_verified: bool,
}

/// Why a token does not open a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefusal {
    #[error("no token was given")]
    Missing,
    #[error("no token is waiting for this call: never minted, already used, or swept")]
    NoneWaiting,
    #[error("the token belongs to another call or was replaced")]
    Mismatch,
    #[error("the token is too old")]
    Expired,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MintError {
    #[error("the token table is full")]
    Full,
    #[error("no randomness: {0}")]
    NoRandomness(getrandom::Error),
}

struct Waiting {
    digest: [u8; 32],
    expires: Instant,
    grant: Grant,
}

/// The tokens that were handed out and have not come back. One a call: a second webhook of the same call (Twilio repeats a
/// request that timed out) replaces the first token.
pub(crate) struct StreamTokens {
    ttl: Duration,
    capacity: usize,
    waiting: Mutex<BTreeMap<CallSid, Waiting>>,
}

impl StreamTokens {
    pub fn new(ttl: Duration, capacity: usize) -> Self {
        Self { ttl, capacity, waiting: Mutex::new(BTreeMap::new()) }
    }

    /// A fresh 128-bit token, as 32 hex digits, good once, for this call only.
    pub fn mint(&self, call_sid: &CallSid, grant: Grant) -> Result<SecretString, MintError> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).map_err(MintError::NoRandomness)?;
        let token = random.iter().fold(String::with_capacity(32), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let now = Instant::now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, token| token.expires > now);
        if waiting.len() >= self.capacity && !waiting.contains_key(call_sid) {
            return Err(MintError::Full);
        }
        waiting.insert(
            call_sid.clone(),
            Waiting { digest: Sha256::digest(&token).into(), expires: now + self.ttl, grant },
        );
        Ok(token.into())
    }

    /// Takes the call's grant if `token` is the one that waits for it. A wrong token leaves the right one in place: who
    /// replays an old upgrade must not be able to lock the real stream out.
    pub fn redeem(&self, call_sid: &CallSid, token: Option<&SecretString>) -> Result<Grant, TokenRefusal> {
        let token = token.ok_or(TokenRefusal::Missing)?;
        let digest: [u8; 32] = Sha256::digest(token.expose_secret()).into();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let found = waiting.get(call_sid).ok_or(TokenRefusal::NoneWaiting)?;
        if !bool::from(found.digest.ct_eq(&digest)) {
            return Err(TokenRefusal::Mismatch);
        }
        let expired = found.expires <= Instant::now();
        let taken = waiting.remove(call_sid).ok_or(TokenRefusal::NoneWaiting)?;
        if expired { Err(TokenRefusal::Expired) } else { Ok(taken.grant) }
    }

    /// The carrier says that the call is over.
    pub fn forget(&self, call_sid: &CallSid) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(call_sid);
    }

    /// Drops what is too old; [`StreamTokens::mint`] does so too.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, token| token.expires > now);
    }

    /// Calls that were promised a stream and may still come for it.
    pub fn promised(&self) -> BTreeSet<CallSid> {
        let now = Instant::now();
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().filter(|(_, token)| token.expires > now).map(|(sid, _)| sid.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        Grant { account_sid: "AC1".into(), caller: CallerId::new("+15550001"), caller_verified: true }
    }

    fn sid(text: &str) -> CallSid {
        CallSid::new(text)
    }

    #[test]
    fn a_token_opens_its_own_call_once() {
        let tokens = StreamTokens::new(Duration::from_secs(60), 8);
        let token = tokens.mint(&sid("CA1"), grant()).unwrap();
        assert_eq!(token.expose_secret().len(), 32);
        assert_eq!(tokens.redeem(&sid("CA1"), Some(&token)).unwrap().account_sid, "AC1");
        assert_eq!(tokens.redeem(&sid("CA1"), Some(&token)).unwrap_err(), TokenRefusal::NoneWaiting);
    }

    #[test]
    fn a_wrong_token_leaves_the_right_one_in_place() {
        let tokens = StreamTokens::new(Duration::from_secs(60), 8);
        let first = tokens.mint(&sid("CA1"), grant()).unwrap();
        let second = tokens.mint(&sid("CA2"), grant()).unwrap();
        assert_eq!(tokens.redeem(&sid("CA1"), Some(&second)).unwrap_err(), TokenRefusal::Mismatch);
        assert_eq!(tokens.redeem(&sid("CA1"), None).unwrap_err(), TokenRefusal::Missing);
        assert!(tokens.redeem(&sid("CA1"), Some(&first)).is_ok());
        assert!(tokens.redeem(&sid("CA2"), Some(&second)).is_ok());
    }

    #[test]
    fn a_second_webhook_of_a_call_replaces_its_token() {
        let tokens = StreamTokens::new(Duration::from_secs(60), 8);
        let first = tokens.mint(&sid("CA1"), grant()).unwrap();
        let second = tokens.mint(&sid("CA1"), grant()).unwrap();
        assert_eq!(tokens.redeem(&sid("CA1"), Some(&first)).unwrap_err(), TokenRefusal::Mismatch);
        assert!(tokens.redeem(&sid("CA1"), Some(&second)).is_ok());
    }

    #[test]
    fn an_old_token_is_refused_and_swept() {
        let tokens = StreamTokens::new(Duration::ZERO, 8);
        let token = tokens.mint(&sid("CA1"), grant()).unwrap();
        assert_eq!(tokens.redeem(&sid("CA1"), Some(&token)).unwrap_err(), TokenRefusal::Expired);
        let token = tokens.mint(&sid("CA1"), grant()).unwrap();
        tokens.sweep();
        assert_eq!(tokens.redeem(&sid("CA1"), Some(&token)).unwrap_err(), TokenRefusal::NoneWaiting);
    }

    #[test]
    fn the_table_is_bounded_and_expired_tokens_make_room() {
        let full = StreamTokens::new(Duration::from_secs(60), 2);
        full.mint(&sid("CA1"), grant()).unwrap();
        full.mint(&sid("CA2"), grant()).unwrap();
        assert!(matches!(full.mint(&sid("CA3"), grant()), Err(MintError::Full)));
        assert!(full.mint(&sid("CA2"), grant()).is_ok(), "a call that waits already may be served again");
        assert_eq!(full.promised(), BTreeSet::from([sid("CA1"), sid("CA2")]));
        full.forget(&sid("CA1"));
        assert!(full.mint(&sid("CA3"), grant()).is_ok());

        let brief = StreamTokens::new(Duration::ZERO, 1);
        brief.mint(&sid("CA1"), grant()).unwrap();
        assert!(brief.mint(&sid("CA2"), grant()).is_ok());
    }
}
