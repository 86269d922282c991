//! Small JSON needs that the adapters share.

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{BufMut, BytesMut};
use serde_json::Value;

/// Standard alphabet; padding optional, as compatible servers differ.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

pub fn str_of<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

/// A string as it is, a number as written; servers differ in how they write codes.
pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

pub fn write(event: &Value, out: &mut BytesMut) {
    // A `Value` always serialises and `BytesMut` grows, so there is nothing to fail.
    let written = serde_json::to_writer(out.writer(), event);
    debug_assert!(written.is_ok());
}

/// `head`, the audio in base64, and the end of the string and the object. Nothing is allocated but what `out` lacks.
pub fn append_audio(head: &[u8], mulaw: &[u8], out: &mut BytesMut) {
    const TAIL: &[u8] = br#""}"#;
    let encoded = mulaw.len().div_ceil(3) * 4;
    out.reserve(head.len() + encoded + TAIL.len());
    out.extend_from_slice(head);
    let start = out.len();
    out.resize(start + encoded, 0);
    // The slice has the exact length, so this cannot fail; if it did, an empty append is what goes out.
    let written = STANDARD.encode_slice(mulaw, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
    out.extend_from_slice(TAIL);
}
