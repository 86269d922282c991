//! `X-Twilio-Signature` as Twilio makes it: base64(HMAC-SHA1(auth token, URL + sorted form fields)).
//! (Twilio, "Webhooks security".)

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

/// The signature over a URL as configured and, for a form POST, its fields. A WebSocket upgrade has none and signs the
/// `wss://` URL.
pub fn sign(auth_token: &str, url: &str, fields: &[(String, String)]) -> String {
    let mut sorted: Vec<&(String, String)> = fields.iter().collect();
    sorted.sort();
    sorted.dedup();
    // HMAC takes a key of any length; the constructor's error cannot happen.
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(auth_token.as_bytes()) else { return String::new() };
    mac.update(url.as_bytes());
    for (name, value) in sorted {
        mac.update(name.as_bytes());
        mac.update(value.as_bytes());
    }
    STANDARD.encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_come_out() {
        let fields: Vec<(String, String)> = [
            ("CallSid", "CA1234567890ABCDE"),
            ("Caller", "+14158675309"),
            ("Digits", "1234"),
            ("From", "+14158675309"),
            ("To", "+18005551212"),
        ]
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .to_vec();
        assert_eq!(
            sign("12345", "https://mycompany.com/myapp.php?foo=1&bar=2", &fields),
            "RSOYDt4T1cUTdK1PDd93/VVr8B8="
        );
        assert_eq!(sign("12345", "wss://voice.example.com/media", &[]), "jFDHVhI8XO69C49uXR3xmdZPylY=");
        assert_eq!(sign("12345", "wss://voice.example.com/media/", &[]), "BXF4dPv/qKwfALEQ/o2fVPPvK/c=");
    }
}
