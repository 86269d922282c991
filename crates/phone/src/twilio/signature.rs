//! Who sent this request? `X-Twilio-Signature` on webhooks and on the WebSocket upgrade (Twilio, "Webhooks security";
//! behaviour of the vendor's own SDKs where the page is silent).
//!
//! The URL is always built from the **configured** public address, never from `Host` or `X-Forwarded-*`, which anyone can
//! write. Everything fails closed, and an error names the URLs that were tried and never a secret.
//!
//! A signature proves the sender, not the call: it can be replayed. The one-time token in `start` binds the call.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt::Write as _;
use subtle::{Choice, ConstantTimeEq};

/// The header that carries the signature.
pub const SIGNATURE_HEADER: &str = "x-twilio-signature";
/// The header that names another key and hash than the account's: `key=<id>,algorithm=<HMAC_SHA1|HMAC_SHA256>`.
pub const SETTINGS_HEADER: &str = "x-twilio-webhooks-signature-settings";

/// What the request claims: the values of the two headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claim<'a> {
    pub signature: Option<&'a str>,
    pub settings: Option<&'a str>,
}

/// The hash under the HMAC. Without a settings header it is SHA-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Algorithm {
    #[default]
    HmacSha1,
    HmacSha256,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the request carries no {SIGNATURE_HEADER} header")]
    Missing,
    #[error("no secret is configured that could verify the request")]
    NoSecret,
    #[error("the {SETTINGS_HEADER} header is not key=…,algorithm=…")]
    BadSettings,
    #[error("the request is signed with {0:?}, which is not HMAC_SHA1 or HMAC_SHA256")]
    UnknownAlgorithm(String),
    #[error("the request is signed with the shared key {0:?}, which is not configured")]
    UnknownKey(String),
    #[error("the URL of a JSON request carries no bodySHA256")]
    NoBodyHash,
    #[error("the body is not the one that was signed")]
    OtherBody,
    #[error("the configured public address {0:?} is no absolute http, https, ws or wss URL")]
    BadAddress(String),
    #[error("the signature fits none of the configured addresses: tried {}", tried.join(", "))]
    Mismatch { tried: Vec<String> },
}

/// The secrets of one account (they are per account and region).
#[derive(Debug, Default)]
pub struct Verifier {
    auth_tokens: Vec<SecretString>,
    shared_keys: Vec<(String, SecretString)>,
}

impl Verifier {
    /// `auth_tokens`: the account's token, and during a rotation the other one too. Empty ones are not taken: an empty
    /// secret would let everyone in.
    pub fn new(auth_tokens: impl IntoIterator<Item = SecretString>) -> Self {
        let auth_tokens = auth_tokens.into_iter().filter(|token| !token.expose_secret().is_empty()).collect();
        Self { auth_tokens, shared_keys: Vec::new() }
    }

    /// Adds a SharedKey secret under the id that the settings header will name.
    #[must_use]
    pub fn with_shared_key(mut self, id: impl Into<String>, secret: SecretString) -> Self {
        if !secret.expose_secret().is_empty() {
            self.shared_keys.push((id.into(), secret));
        }
        self
    }

    /// A form POST. `url`: the configured address with the request's path and query exactly as sent. `parameters`: every
    /// field of the body, decoded, none left out and none trimmed.
    pub fn verify_form(
        &self,
        claim: Claim<'_>,
        url: &str,
        parameters: &[(String, String)],
    ) -> Result<(), SignatureError> {
        self.verify(claim, webhook_candidates(url)?, &form_suffix(parameters))
    }

    /// A GET. `url` includes the query that the carrier added.
    pub fn verify_get(&self, claim: Claim<'_>, url: &str) -> Result<(), SignatureError> {
        self.verify(claim, webhook_candidates(url)?, "")
    }

    /// A JSON POST: the URL is signed, and its `bodySHA256` vouches for the raw body.
    pub fn verify_json(&self, claim: Claim<'_>, url: &str, body: &[u8]) -> Result<(), SignatureError> {
        let (_, query) = url.split_once('?').ok_or(SignatureError::NoBodyHash)?;
        let hash =
            query.split('&').find_map(|pair| pair.strip_prefix("bodySHA256=")).ok_or(SignatureError::NoBodyHash)?;
        let same_body = body_sha256(body).as_bytes().ct_eq(hash.to_ascii_lowercase().as_bytes());
        self.verify(claim, webhook_candidates(url)?, "")?;
        if bool::from(same_body) { Ok(()) } else { Err(SignatureError::OtherBody) }
    }

    /// The WebSocket upgrade. `url`: the configured address with the stream's path, under `https` or `wss`; what was signed
    /// starts with `wss` in either case.
    pub fn verify_upgrade(&self, claim: Claim<'_>, url: &str) -> Result<(), SignatureError> {
        self.verify(claim, upgrade_candidates(url)?, "")
    }

    fn verify(&self, claim: Claim<'_>, candidates: Vec<String>, suffix: &str) -> Result<(), SignatureError> {
        let signature =
            claim.signature.map(str::trim).filter(|text| !text.is_empty()).ok_or(SignatureError::Missing)?;
        let (secrets, algorithm) = self.secrets(claim.settings)?;
        let mut matches = Choice::from(0);
        for url in &candidates {
            for secret in &secrets {
                let expected = sign(secret, algorithm, url, suffix);
                matches |= expected.as_bytes().ct_eq(signature.as_bytes());
            }
        }
        if bool::from(matches) { Ok(()) } else { Err(SignatureError::Mismatch { tried: candidates }) }
    }

    fn secrets(&self, settings: Option<&str>) -> Result<(Vec<&SecretString>, Algorithm), SignatureError> {
        let Some(settings) = settings else {
            return if self.auth_tokens.is_empty() {
                Err(SignatureError::NoSecret)
            } else {
                Ok((self.auth_tokens.iter().collect(), Algorithm::HmacSha1))
            };
        };
        let (mut key, mut algorithm) = (None, None);
        for part in settings.split(',') {
            match part.trim().split_once('=') {
                Some(("key", id)) if key.is_none() && !id.is_empty() => key = Some(id),
                Some(("algorithm", name)) if algorithm.is_none() => algorithm = Some(name),
                // A repeated or malformed part leaves open which one was meant.
                Some(("key" | "algorithm", _)) | None => return Err(SignatureError::BadSettings),
                Some(_) => {}
            }
        }
        let (Some(key), Some(algorithm)) = (key, algorithm) else { return Err(SignatureError::BadSettings) };
        let algorithm = match algorithm {
            "HMAC_SHA1" => Algorithm::HmacSha1,
            "HMAC_SHA256" => Algorithm::HmacSha256,
            other => return Err(SignatureError::UnknownAlgorithm(other.chars().take(32).collect())),
        };
        let secrets: Vec<_> = self.shared_keys.iter().filter(|(id, _)| id == key).map(|(_, secret)| secret).collect();
        if secrets.is_empty() {
            return Err(SignatureError::UnknownKey(key.chars().take(64).collect()));
        }
        Ok((secrets, algorithm))
    }
}

/// The signature of a GET, a JSON POST (`bodySHA256` in the URL) or an upgrade (`wss://…`).
pub fn sign_url(secret: &SecretString, algorithm: Algorithm, url: &str) -> String {
    sign(secret, algorithm, url, "")
}

/// The signature of a form POST.
pub fn sign_form(secret: &SecretString, algorithm: Algorithm, url: &str, parameters: &[(String, String)]) -> String {
    sign(secret, algorithm, url, &form_suffix(parameters))
}

/// Lower-case hex SHA-256 of a raw body, as `bodySHA256` carries it.
pub fn body_sha256(body: &[u8]) -> String {
    Sha256::digest(body).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The fields of an `application/x-www-form-urlencoded` body, decoded, in their order, empties and repeats included.
pub fn form_parameters(body: &[u8]) -> Vec<(String, String)> {
    url::form_urlencoded::parse(body).into_owned().collect()
}

fn sign(secret: &SecretString, algorithm: Algorithm, url: &str, suffix: &str) -> String {
    fn mac<M: Mac + KeyInit>(key: &[u8], url: &str, suffix: &str) -> String {
        // HMAC takes a key of any length.
        let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes any key");
        mac.update(url.as_bytes());
        mac.update(suffix.as_bytes());
        STANDARD.encode(mac.finalize().into_bytes())
    }
    let key = secret.expose_secret().as_bytes();
    match algorithm {
        Algorithm::HmacSha1 => mac::<Hmac<Sha1>>(key, url, suffix),
        Algorithm::HmacSha256 => mac::<Hmac<Sha256>>(key, url, suffix),
    }
}

/// Names in byte order, each followed by its value, nothing between. A repeated name counts once for each different value,
/// in the order of the values.
fn form_suffix(parameters: &[(String, String)]) -> String {
    let mut sorted: Vec<_> = parameters.iter().collect();
    sorted.sort();
    sorted.dedup();
    sorted.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]).collect()
}

/// An absolute URL cut where the rules need it, otherwise byte for byte as configured: re-writing it through a URL
/// library would change escapes that were signed.
struct Address<'a> {
    scheme: &'a str,
    /// Without credentials (they are not signed) and port.
    host: &'a str,
    port: Option<&'a str>,
    path: &'a str,
    /// `?…` or nothing.
    query: &'a str,
}

impl<'a> Address<'a> {
    fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let authority = authority.rsplit_once('@').map_or(authority, |(_credentials, host)| host);
        // The colons of an IPv6 address stand inside brackets.
        let after_host = authority.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match authority[after_host..].find(':') {
            Some(colon) => (&authority[..after_host + colon], Some(&authority[after_host + colon + 1..])),
            None => (authority, None),
        };
        (!host.is_empty()).then_some(Self { scheme, host, port, path, query })
    }

    fn write(&self, scheme: &str, port: Option<&str>, path: &str) -> String {
        let port: Cow<'_, str> = port.map_or("".into(), |port| format!(":{port}").into());
        format!("{scheme}://{}{port}{path}{}", self.host, self.query)
    }

    /// As configured, without a port, with the standard one: the carrier's back ends disagree, its SDKs accept all.
    fn ports(&self, standard: &'a str) -> Vec<Option<&'a str>> {
        let mut ports = vec![self.port];
        for port in [None, Some(standard)] {
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        ports
    }
}

fn webhook_candidates(url: &str) -> Result<Vec<String>, SignatureError> {
    let bad = || SignatureError::BadAddress(without_credentials(url));
    let address = Address::parse(url).ok_or_else(bad)?;
    let standard = match address.scheme {
        "https" | "wss" => "443",
        "http" | "ws" => "80",
        _ => return Err(bad()),
    };
    Ok(address.ports(standard).into_iter().map(|port| address.write(address.scheme, port, address.path)).collect())
}

/// {as configured, without port, with the standard port} × {path as configured, the other way about its trailing slash}.
fn upgrade_candidates(url: &str) -> Result<Vec<String>, SignatureError> {
    let bad = || SignatureError::BadAddress(without_credentials(url));
    let address = Address::parse(url).ok_or_else(bad)?;
    // The scheme of the TwiML, which an operator's public address does not carry. The vendor's helper would add `:80` to
    // `wss`; the standard port is 443.
    let (scheme, standard) = match address.scheme {
        "https" | "wss" => ("wss", "443"),
        "http" | "ws" => ("ws", "80"),
        _ => return Err(bad()),
    };
    let other = match address.path.strip_suffix('/') {
        Some(without) => without.to_owned(),
        None => format!("{}/", address.path),
    };
    let paths = [address.path, other.as_str()];
    let candidates = paths.iter().flat_map(|path| {
        let address = &address;
        address.ports(standard).into_iter().map(move |port| address.write(scheme, port, path))
    });
    Ok(candidates.collect())
}

fn without_credentials(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
