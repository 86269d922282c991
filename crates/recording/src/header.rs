//! What a replay must know before the first step, and what a person wants to know of the call.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use vocab::{AgentId, CallSid, CallerId, SessionId, StreamSid, ToolName, WallTime};

/// The format that is written. Older ones stay readable; each has a fixture in `tests/fixtures/recordings`.
pub const FORMAT: u32 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub format: u32,
    /// Version of the program that recorded.
    pub program: String,
    pub session: SessionId,
    pub stream: StreamSid,
    pub call: CallSid,
    pub agent: AgentId,
    /// See [`redacted_caller`].
    pub caller: String,
    /// When the stream started: the call's time zero.
    pub started: WallTime,
    /// The policy of the conversation, whole: defaults of a later program must not change a replay.
    pub policy: Value,
    /// The voice activity detector that made the evidence.
    pub detector: Value,
    pub tools: ToolFacts,
    /// Words, numbers and voices were taken out: the audio no longer belongs to the evidence.
    #[serde(default)]
    pub scrubbed: bool,
}

/// Which tools the agent had, and whether their contracts were these.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolFacts {
    pub names: Vec<ToolName>,
    /// SHA-256 over the contracts as JSON, in hexadecimal: says *whether* two calls had the same tools, not what they were.
    pub digest: String,
}

impl ToolFacts {
    /// Of contracts in the order in which the agent has them.
    pub fn of<'a, T: Serialize + 'a>(contracts: impl IntoIterator<Item = (&'a ToolName, &'a T)>) -> Self {
        let mut names = Vec::new();
        let mut hash = Sha256::new();
        for (name, contract) in contracts {
            names.push(name.clone());
            // A contract that cannot be written as JSON is told apart by its name only.
            hash.update(serde_json::to_vec(contract).unwrap_or_default());
            hash.update([b'\n']);
        }
        let digest = hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            text.push_str(&format!("{byte:02x}"));
            text
        });
        Self { names, digest }
    }
}

/// A caller as a recording names them by default: the last two digits of a number, otherwise only the kind of name.
pub fn redacted_caller(caller: &CallerId) -> String {
    let text = caller.as_str();
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.len() > 4 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("…{}", &digits[digits.len() - 2..]);
    }
    match text.split_once(':') {
        Some((kind, _)) if kind.bytes().all(|byte| byte.is_ascii_alphabetic()) => kind.to_owned(),
        Some(_) | None => "redacted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_its_last_two_digits_and_any_other_name_nothing() {
        for (caller, expected) in [
            ("+14155550123", "…23"),
            ("4930123456", "…56"),
            ("anonymous:CA00ff", "anonymous"),
            ("sip:bob@example.com", "sip"),
            ("1234", "redacted"),
            ("Bob Smith", "redacted"),
            ("", "redacted"),
        ] {
            assert_eq!(redacted_caller(&CallerId::new(caller)), expected, "{caller}");
        }
    }

    #[test]
    fn a_changed_contract_has_another_digest() {
        let name = ToolName::new("book_table");
        let facts = |deadline: u64| ToolFacts::of([(&name, &deadline)]);
        assert_eq!(facts(1), facts(1));
        assert_ne!(facts(1).digest, facts(2).digest);
        assert_eq!(facts(1).digest.len(), 64);
    }
}
