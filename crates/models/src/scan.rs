//! Reads the top-level members of a JSON object without building anything: the hot path wants four strings of an event
//! whose rest it does not care about. Lenient about what it skips; whatever it hands out is checked by its reader.

use memchr::{memchr2, memchr3};
use std::borrow::Cow;

/// The raw JSON text of each named top-level member, in the order of `names`. A repeated member counts once, the first
/// time. Stops as soon as all are found; `None` for those that are absent or come after the text stopped being JSON.
pub fn members<'a, const N: usize>(text: &'a str, names: [&str; N]) -> [Option<&'a str>; N] {
    let mut found = [None; N];
    let mut missing = N;
    let mut scanner = Scanner { text, at: 0 };
    if !scanner.take(b'{') {
        return found;
    }
    while missing > 0 {
        let Some(name) = scanner.raw_string() else { break };
        if !scanner.take(b':') {
            break;
        }
        let Some(value) = scanner.raw_value() else { break };
        // A name comes with its quotes; one written with escapes is simply not one of ours.
        let name = name.get(1..name.len() - 1).unwrap_or_default();
        if let Some(place) = names.iter().position(|wanted| *wanted == name)
            && found[place].is_none()
        {
            found[place] = Some(value);
            missing -= 1;
        }
        if !scanner.take(b',') {
            break;
        }
    }
    found
}

/// What a raw JSON string says. Borrowed unless it holds escapes; `None` if `raw` is no string.
pub fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn take(&mut self, wanted: u8) -> bool {
        let there = self.peek() == Some(wanted);
        if there {
            self.at += 1;
        }
        there
    }

    fn raw_string(&mut self) -> Option<&'a str> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at;
        self.at = end_of_string(self.text.as_bytes(), start)?;
        self.text.get(start..self.at)
    }

    fn raw_value(&mut self) -> Option<&'a str> {
        match self.peek()? {
            b'"' => self.raw_string(),
            b'{' | b'[' => {
                let start = self.at;
                self.at = end_of_nest(self.text.as_bytes(), start)?;
                self.text.get(start..self.at)
            }
            _ => {
                let start = self.at;
                let rest = self.text.as_bytes().get(start..)?;
                self.at = start + memchr3(b',', b'}', b']', rest)?;
                self.text.get(start..self.at).map(str::trim_ascii_end).filter(|value| !value.is_empty())
            }
        }
    }
}

/// One past the closing quote of the string that opens at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        let hit = at + memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[hit] == b'"' {
            return Some(hit + 1);
        }
        at = hit + 2;
    }
}

/// One past the bracket that closes the one at `start`. Counts depth, so no nesting can overflow the stack.
fn end_of_nest(bytes: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = start;
    loop {
        match bytes.get(at)? {
            b'"' => at = end_of_string(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn members_are_found_in_any_order_and_nested_ones_are_not_mistaken_for_them() {
        let text =
            r#" { "skip" : {"delta":"inner","x":[1,"]}",{"y":"\""}]}, "n": -1.5e3 , "delta":"ab\/c", "type":"t" } "#;
        let [kind, delta, number, absent] = members(text, ["type", "delta", "n", "absent"]);
        assert_eq!(kind.and_then(string).as_deref(), Some("t"));
        assert_eq!(delta.and_then(string).as_deref(), Some("ab/c"));
        assert_eq!(number, Some("-1.5e3"));
        assert_eq!(absent, None);
    }

    #[test]
    fn text_that_stops_early_or_is_no_object_yields_nothing() {
        for text in ["", "{", "[]", "null", "{\"type\"", "{\"type\":", "{\"type\":\"x", "{\"type\":\"x\\", "{\"a\":{"] {
            assert_eq!(members(text, ["type"]), [None], "{text}");
        }
    }

    #[test]
    fn an_unescaped_string_is_borrowed() {
        assert!(matches!(string(r#""abc+/==""#), Some(Cow::Borrowed("abc+/=="))));
        assert_eq!(string(r#""\ud83d\ude00""#).as_deref(), Some("😀"));
        assert_eq!(string("12"), None);
        assert_eq!(string("\""), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_scanner_panic(text in ".{0,200}") {
            let _ = members(&text, ["type", "delta"]);
            let _ = string(&text);
        }

        #[test]
        fn the_scanner_agrees_with_serde_on_valid_objects(
            names in proptest::collection::vec("[a-z]{1,4}", 0..6),
            texts in proptest::collection::vec("\\PC{0,20}", 6),
        ) {
            let mut object = serde_json::Map::new();
            for (name, text) in names.iter().zip(&texts) {
                object.insert(name.clone(), serde_json::json!(text));
                object.insert(format!("{name}_nested"), serde_json::json!({"type": text, "list": [text, 1, null]}));
            }
            object.insert("type".into(), serde_json::json!("wanted"));
            let written = serde_json::Value::Object(object.clone()).to_string();
            let [kind] = members(&written, ["type"]);
            prop_assert_eq!(kind.and_then(string), Some(Cow::Borrowed("wanted")));
            for name in &names {
                let [value] = members(&written, [name.as_str()]);
                let expected = object[name].as_str().map(str::to_owned);
                prop_assert_eq!(value.and_then(string).map(Cow::into_owned), expected);
            }
        }
    }
}
