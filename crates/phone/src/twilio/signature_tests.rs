use super::*;

const FORM_URL: &str = "https://mycompany.com/myapp.php?foo=1&bar=2";
const FORM_SIGNATURE: &str = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";
const UPGRADE_SHA1: &str = "jFDHVhI8XO69C49uXR3xmdZPylY=";
const UPGRADE_SHA256: &str = "9vcxwRUePA6mZ2xb6UTPNQJhjz9tsjeFDwQQbFiFgW0=";

fn secret(text: &str) -> SecretString {
    SecretString::from(text.to_owned())
}
fn verifier() -> Verifier {
    Verifier::new([secret("12345")])
}
fn claim(signature: &str) -> Claim<'_> {
    Claim { signature: Some(signature), settings: None }
}
fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}
fn call() -> Vec<(String, String)> {
    pairs(&[
        ("To", "+18005551212"),
        ("CallSid", "CA1234567890ABCDE"),
        ("Digits", "1234"),
        ("From", "+14158675309"),
        ("Caller", "+14158675309"),
    ])
}

#[test]
fn the_vendors_own_form_vector_validates() {
    assert_eq!(sign_form(&secret("12345"), Algorithm::HmacSha1, FORM_URL, &call()), FORM_SIGNATURE);
    assert_eq!(verifier().verify_form(claim(FORM_SIGNATURE), FORM_URL, &call()), Ok(()));
}

#[test]
fn a_form_of_other_fields_address_or_letter_case_does_not() {
    let refused = |url: &str, parameters: &[(String, String)], signature: &str| {
        matches!(verifier().verify_form(claim(signature), url, parameters), Err(SignatureError::Mismatch { .. }))
    };
    assert!(refused(FORM_URL, &call()[1..], FORM_SIGNATURE));
    assert!(refused("https://mycompany.com/myapp.php?foo=1&bar=3", &call(), FORM_SIGNATURE));
    assert!(refused("http://mycompany.com/myapp.php?foo=1&bar=2", &call(), FORM_SIGNATURE));
    assert!(refused(FORM_URL, &call(), &FORM_SIGNATURE.to_lowercase()));
    assert!(refused(FORM_URL, &call(), "not base64 at all"));
    let mut more = call();
    more.push(("New".into(), String::new()));
    assert!(refused(FORM_URL, &more, FORM_SIGNATURE), "an empty field is signed too, by its name");
}

#[test]
fn repeated_names_count_once_a_value_and_empties_count() {
    let suffix = form_suffix(&pairs(&[("b", "2"), ("a", ""), ("b", "1"), ("b", "2"), ("B", " x ")]));
    assert_eq!(suffix, "B x ab1b2");
}

#[test]
fn a_form_body_is_read_with_its_empties_and_repeats() {
    assert_eq!(
        form_parameters(b"To=%2B1800&Empty=&A=b+c&A=d"),
        pairs(&[("To", "+1800"), ("Empty", ""), ("A", "b c"), ("A", "d")])
    );
}

#[test]
fn a_json_body_validates_by_its_hash() {
    let body = br#"{"CallSid":"CA1234567890ABCDE","Caller":"+12349013030"}"#;
    let hash = "5ccde7145dfb8f56479710896586cb9d5911809d83afbe34627818790db0aec9";
    assert_eq!(body_sha256(body), hash);
    let url = format!("https://example.com/myapp?bodySHA256={hash}");
    let signature = "hPXmLwIy3Fgqv1i9KPmH/HhQ6zo=";
    assert_eq!(verifier().verify_json(claim(signature), &url, body), Ok(()));
    assert_eq!(verifier().verify_json(claim(signature), &url, b"{}"), Err(SignatureError::OtherBody));
    let bare = "https://example.com/myapp?x=1";
    let signed = sign_url(&secret("12345"), Algorithm::HmacSha1, bare);
    assert_eq!(verifier().verify_json(claim(&signed), bare, body), Err(SignatureError::NoBodyHash));
    // A right hash under a wrong signature proves nothing.
    assert!(matches!(verifier().verify_json(claim(FORM_SIGNATURE), &url, body), Err(SignatureError::Mismatch { .. })));
}

#[test]
fn a_get_signs_the_url_with_its_query_and_either_standard_port() {
    let secret = secret("12345");
    for signed in ["https://example.com/a?b=1", "https://example.com:443/a?b=1"] {
        let signature = sign_url(&secret, Algorithm::HmacSha1, signed);
        for configured in
            ["https://example.com/a?b=1", "https://example.com:443/a?b=1", "https://u:p@example.com/a?b=1"]
        {
            assert_eq!(verifier().verify_get(claim(&signature), configured), Ok(()), "{signed} as {configured}");
        }
    }
    let signature = sign_url(&secret, Algorithm::HmacSha1, "http://example.com:80/a");
    assert_eq!(verifier().verify_get(claim(&signature), "http://example.com/a"), Ok(()));
}

#[test]
fn every_form_of_the_upgrade_vector_validates_from_every_form_of_the_address() {
    let signatures = [
        UPGRADE_SHA1,
        "zT3E7J41/O0MIJ8mFRuffODYWF4=", // with :443
        "BXF4dPv/qKwfALEQ/o2fVPPvK/c=", // with a trailing slash
    ];
    for signature in signatures {
        for url in [
            "wss://voice.example.com/media",
            "wss://voice.example.com:443/media",
            "wss://voice.example.com/media/",
            "https://voice.example.com/media",
            "https://user:word@voice.example.com:443/media/",
        ] {
            assert_eq!(verifier().verify_upgrade(claim(signature), url), Ok(()), "{signature} at {url}");
        }
    }
}

#[test]
fn an_upgrade_signed_under_https_must_not_validate() {
    let https = "2A768no+sGy6/ZLDxHITQfda/E8=";
    assert_eq!(sign_url(&secret("12345"), Algorithm::HmacSha1, "https://voice.example.com/media"), https);
    for url in ["wss://voice.example.com/media", "https://voice.example.com/media"] {
        let error = verifier().verify_upgrade(claim(https), url).unwrap_err();
        assert!(matches!(error, SignatureError::Mismatch { .. }), "{error}");
    }
}

#[test]
fn the_vendors_trap_of_port_80_under_wss_is_not_ours() {
    let signature = sign_url(&secret("12345"), Algorithm::HmacSha1, "wss://voice.example.com:80/media");
    assert!(verifier().verify_upgrade(claim(&signature), "wss://voice.example.com/media").is_err());
}

#[test]
fn a_failure_names_all_six_addresses_and_no_secret() {
    let error =
        verifier().verify_upgrade(claim("AAAA"), "https://user:hunter2@voice.example.com:8443/media").unwrap_err();
    let SignatureError::Mismatch { tried } = &error else { panic!("{error}") };
    assert_eq!(
        tried,
        &[
            "wss://voice.example.com:8443/media",
            "wss://voice.example.com/media",
            "wss://voice.example.com:443/media",
            "wss://voice.example.com:8443/media/",
            "wss://voice.example.com/media/",
            "wss://voice.example.com:443/media/",
        ]
    );
    let told = format!("{error} {error:?} {:?}", verifier());
    assert!(!told.contains("12345") && !told.contains("hunter2") && !told.contains(UPGRADE_SHA1), "{told}");
}

#[test]
fn an_ipv6_address_keeps_its_colons() {
    assert_eq!(
        upgrade_candidates("wss://[::1]:9000/m").unwrap()[..3],
        ["wss://[::1]:9000/m", "wss://[::1]/m", "wss://[::1]:443/m"]
    );
}

#[test]
fn both_secrets_of_a_rotation_are_good_and_an_empty_one_is_none() {
    let url = "wss://voice.example.com/media";
    for order in [["12345", "next"], ["next", "12345"]] {
        let verifier = Verifier::new(order.map(secret));
        assert_eq!(verifier.verify_upgrade(claim(UPGRADE_SHA1), url), Ok(()));
        let next = sign_url(&secret("next"), Algorithm::HmacSha1, url);
        assert_eq!(verifier.verify_upgrade(claim(&next), url), Ok(()));
    }
    let everyone = sign_url(&secret(""), Algorithm::HmacSha1, url);
    assert_eq!(Verifier::new([secret("")]).verify_upgrade(claim(&everyone), url), Err(SignatureError::NoSecret));
}

#[test]
fn a_missing_signature_fails_closed() {
    for claim in [Claim::default(), claim(""), claim("  ")] {
        assert_eq!(verifier().verify_form(claim, FORM_URL, &call()), Err(SignatureError::Missing));
    }
}

#[test]
fn an_address_that_is_none_is_refused() {
    for url in ["", "voice.example.com/media", "ftp://voice.example.com/", "https:///media"] {
        assert!(matches!(verifier().verify_upgrade(claim("AAAA"), url), Err(SignatureError::BadAddress(_))), "{url}");
    }
}

#[test]
fn a_shared_key_signs_with_its_own_secret_and_hash() {
    let url = "wss://voice.example.com/media";
    let verifier = Verifier::new([secret("token")]).with_shared_key("SK1", secret("12345"));
    let signed = |signature, settings| Claim { signature: Some(signature), settings: Some(settings) };
    for (signature, settings) in [
        (UPGRADE_SHA256, "key=SK1,algorithm=HMAC_SHA256"),
        (UPGRADE_SHA1, "key=SK1,algorithm=HMAC_SHA1"),
        (UPGRADE_SHA256, "algorithm=HMAC_SHA256, key=SK1, later=1"),
    ] {
        assert_eq!(verifier.verify_upgrade(signed(signature, settings), url), Ok(()), "{settings}");
    }
    let refusals = [
        ("key=SK1,algorithm=HMAC_MD5", SignatureError::UnknownAlgorithm("HMAC_MD5".into())),
        ("key=SK1,algorithm=hmac_sha256", SignatureError::UnknownAlgorithm("hmac_sha256".into())),
        ("key=SK2,algorithm=HMAC_SHA256", SignatureError::UnknownKey("SK2".into())),
        ("algorithm=HMAC_SHA256", SignatureError::BadSettings),
        ("key=SK1", SignatureError::BadSettings),
        ("key=,algorithm=HMAC_SHA256", SignatureError::BadSettings),
        ("key=SK1,key=SK2,algorithm=HMAC_SHA256", SignatureError::BadSettings),
        ("", SignatureError::BadSettings),
    ];
    for (settings, error) in refusals {
        assert_eq!(verifier.verify_upgrade(signed(UPGRADE_SHA256, settings), url), Err(error), "{settings}");
    }
    // The account's token is no substitute for the key that the header names, nor the other way round.
    let by_token = sign_url(&secret("token"), Algorithm::HmacSha256, url);
    let settings = "key=SK1,algorithm=HMAC_SHA256";
    assert!(verifier.verify_upgrade(signed(&by_token, settings), url).is_err());
    assert!(verifier.verify_upgrade(claim(UPGRADE_SHA1), url).is_err());
    assert!(verifier.verify_upgrade(signed(UPGRADE_SHA1, settings), url).is_err(), "the named hash, no other");
}
