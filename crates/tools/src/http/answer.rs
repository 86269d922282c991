//! From an answer, or from its absence, to what is *known* about the effect. Pure.
//!
//! A read changes nothing, so whatever went wrong with it may be asked again. With a mutation in doubt the outcome is
//! `Unclear`: whether to send again under the same key or to ask the system of record is the executor's to decide.

use crate::{LookUp, ToolOutcome};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use vocab::effect::EffectClass;

/// How the answers of one backend are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRules {
    pub effect: EffectClass,
    /// 4xx statuses by which the backend says "no, and nothing was done" as a business answer. Leave 409 out where it
    /// means "a request with this key is still running".
    pub refusal_statuses: BTreeSet<u16>,
    /// JSON Pointer to the backend's own name of the effect, e.g. a booking reference. Where there is one, an answer without
    /// it confirms nothing: a login page and a `{"error": …}` come with status 200 as well.
    pub reference: Option<String>,
}

/// How much of the body arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    Whole(Vec<u8>),
    /// Longer than the cap; not read to its end.
    TooLong,
    /// The connection ended, or time did, before the body.
    CutOff(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Whether `Retry-After` came with it.
    pub retry_after: bool,
    pub body: Received,
}

/// No answer at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// We refused to send: no attempt will ever work with these arguments or this config.
    NotAllowed(String),
    /// Not one byte of the request left.
    NotSent(String),
    /// It left, or may have left.
    Lost(String),
}

/// `attempt` counts from 1. A `Retryable` speaks for this attempt only, never for an earlier unclear one.
pub fn outcome(rules: &AnswerRules, attempt: u32, answer: &Answer) -> ToolOutcome {
    let status = answer.status;
    let reason = || format!("status {status}");
    match status {
        // Accepted is not done: only the system of record can say that (RFC 9110, 15.3.3).
        202 => in_doubt(rules.effect, "status 202: accepted, not done".to_owned()),
        200..=299 => match &answer.body {
            Received::Whole(body) => {
                let result = result(status, body);
                match reference(rules, &result) {
                    Ok(provider_ref) => ToolOutcome::Committed { provider_ref, result },
                    Err(missing) => in_doubt(rules.effect, format!("status {status}, but {missing}")),
                }
            }
            // A read without details is nothing.
            Received::TooLong if rules.effect == EffectClass::Read => {
                refused("answer_too_long", "the answer is longer than max_answer_bytes")
            }
            Received::TooLong if rules.reference.is_some() => {
                in_doubt(rules.effect, format!("status {status}, but the answer is longer than max_answer_bytes"))
            }
            // The status is the confirmation; only its details are missing.
            Received::TooLong => ToolOutcome::Committed {
                result: json!({"status": status, "note": "the details of the answer were too long to read"}),
                provider_ref: None,
            },
            Received::CutOff(why) => in_doubt(rules.effect, format!("status {status}, answer cut off: {why}")),
        },
        _ if rules.refusal_statuses.contains(&status) => ToolOutcome::Refused {
            result: match &answer.body {
                Received::Whole(body) => result(status, body),
                Received::TooLong | Received::CutOff(_) => json!({ "status": status }),
            },
        },
        // Not processed, by definition: 425 (RFC 8470), 429 (RFC 6585), and 503 that names a time (RFC 9110, 15.6.4).
        // A 503 without one comes as well from a gateway whose backend got the request.
        425 | 429 => ToolOutcome::Retryable { reason: reason() },
        503 if answer.retry_after => ToolOutcome::Retryable { reason: "status 503 with Retry-After".to_owned() },
        // A proxy that gave up waiting, or a conflict that the config gives no meaning.
        408 | 409 | 499 => in_doubt(rules.effect, reason()),
        400..=499 => match (rules.effect, attempt) {
            // The request was rejected before it meant anything (key, route, form): asking again changes nothing.
            (EffectClass::Read | EffectClass::Lookup | EffectClass::Opaque, _) | (EffectClass::Keyed, 0..=1) => {
                refused("rejected", &format!("the backend rejected the request with status {status}"))
            }
            // An earlier attempt under the same key may have taken effect; a closed door says nothing about it.
            (EffectClass::Keyed, 2..) => in_doubt(rules.effect, reason()),
        },
        // A redirect is not followed, and a 303 comes after an effect; a 5xx can come at any point.
        _ => in_doubt(rules.effect, reason()),
    }
}

/// Why an answer is worth a look, in words without the answer's own: they may hold what the caller said. `None` for a
/// confirmation and for the backend's business answers.
pub fn complaint(rules: &AnswerRules, status: u16, outcome: &ToolOutcome) -> Option<String> {
    match outcome {
        ToolOutcome::Retryable { reason } | ToolOutcome::Unclear { reason } => Some(reason.clone()),
        ToolOutcome::Refused { .. } if !rules.refusal_statuses.contains(&status) => {
            Some(format!("status {status}: the backend takes no such request"))
        }
        ToolOutcome::Committed { .. } | ToolOutcome::Refused { .. } => None,
    }
}

pub fn outcome_of_failure(effect: EffectClass, failure: Failure) -> ToolOutcome {
    match failure {
        Failure::NotAllowed(why) => refused("not_sent", &why),
        Failure::NotSent(reason) => ToolOutcome::Retryable { reason },
        Failure::Lost(reason) => in_doubt(effect, reason),
    }
}

/// 200 with a record is `Found`, 404 is `Absent`; anything else proves nothing. An empty answer (`null`, `[]`, `{}`,
/// text) proves nothing either: it is as likely a search that looked elsewhere.
pub fn look_up(result_pointer: Option<&str>, answer: &Answer, rules: &AnswerRules) -> LookUp {
    let unanswered = |reason: &str| LookUp::Unanswered { reason: reason.to_owned() };
    match (answer.status, &answer.body) {
        (404, _) => LookUp::Absent,
        (200, Received::Whole(body)) => {
            let Ok(whole) = serde_json::from_slice::<Value>(body) else {
                return unanswered("status 200, but the answer is not JSON");
            };
            let record = match result_pointer {
                Some(pointer) => whole.pointer(pointer).cloned().unwrap_or(Value::Null),
                None => whole,
            };
            match &record {
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    unanswered("status 200, but no record in the answer")
                }
                Value::Array(list) if list.is_empty() => unanswered("status 200, but an empty list"),
                Value::Object(fields) if fields.is_empty() => unanswered("status 200, but an empty record"),
                Value::Array(_) | Value::Object(_) => match reference(rules, &record) {
                    Ok(provider_ref) => LookUp::Found { provider_ref, result: record },
                    Err(missing) => unanswered(&format!("status 200, but {missing}")),
                },
            }
        }
        (200, Received::TooLong) => unanswered("status 200, but the answer is longer than max_answer_bytes"),
        (200, Received::CutOff(why)) => unanswered(&format!("answer cut off: {why}")),
        (status, _) => unanswered(&format!("status {status}")),
    }
}

pub fn look_up_failure(failure: Failure) -> LookUp {
    match failure {
        Failure::NotAllowed(reason) | Failure::NotSent(reason) | Failure::Lost(reason) => LookUp::Unanswered { reason },
    }
}

fn in_doubt(effect: EffectClass, reason: String) -> ToolOutcome {
    match effect {
        EffectClass::Read => ToolOutcome::Retryable { reason },
        EffectClass::Keyed | EffectClass::Lookup | EffectClass::Opaque => ToolOutcome::Unclear { reason },
    }
}

/// A final no that is not the backend's own words: `{"error": code, "message": …}`.
fn refused(code: &str, message: &str) -> ToolOutcome {
    ToolOutcome::Refused { result: json!({"error": code, "message": message}) }
}

/// JSON as it is; anything else wrapped as `{"status": …, "text": …}`, without `text` when there is none.
fn result(status: u16, body: &[u8]) -> Value {
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        return value;
    }
    let mut wrapped = Map::from_iter([("status".to_owned(), json!(status))]);
    let text = String::from_utf8_lossy(body);
    if !text.trim().is_empty() {
        wrapped.insert("text".to_owned(), json!(text.trim()));
    }
    Value::Object(wrapped)
}

/// The backend's own name of the effect; `None` where none is declared, an error where it is declared and not there.
fn reference(rules: &AnswerRules, result: &Value) -> Result<Option<String>, String> {
    let Some(pointer) = rules.reference.as_deref() else { return Ok(None) };
    match result.pointer(pointer) {
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) | None => {
            Err(format!("the answer has no reference at {pointer}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(effect: EffectClass) -> AnswerRules {
        AnswerRules { effect, refusal_statuses: BTreeSet::from([422]), reference: Some("/reference".to_owned()) }
    }

    /// Of a backend that names its effects nowhere.
    fn nameless(effect: EffectClass) -> AnswerRules {
        AnswerRules { reference: None, ..rules(effect) }
    }

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, retry_after: false, body: Received::Whole(body.as_bytes().to_vec()) }
    }

    fn kind(outcome: &ToolOutcome) -> &'static str {
        match outcome {
            ToolOutcome::Committed { .. } => "committed",
            ToolOutcome::Refused { .. } => "refused",
            ToolOutcome::Retryable { .. } => "retryable",
            ToolOutcome::Unclear { .. } => "unclear",
        }
    }

    #[test]
    fn each_status_means_what_it_proves() {
        for (status, mutation, read) in [
            (200, "committed", "committed"),
            (201, "committed", "committed"),
            (202, "unclear", "retryable"),
            (204, "committed", "committed"),
            (302, "unclear", "retryable"),
            (303, "unclear", "retryable"),
            (400, "refused", "refused"),
            (401, "refused", "refused"),
            (404, "refused", "refused"),
            (408, "unclear", "retryable"),
            (409, "unclear", "retryable"),
            (422, "refused", "refused"),
            (425, "retryable", "retryable"),
            (429, "retryable", "retryable"),
            (500, "unclear", "retryable"),
            (502, "unclear", "retryable"),
            (503, "unclear", "retryable"),
            (504, "unclear", "retryable"),
            (599, "unclear", "retryable"),
        ] {
            for effect in [EffectClass::Keyed, EffectClass::Lookup, EffectClass::Opaque] {
                assert_eq!(kind(&outcome(&nameless(effect), 1, &answer(status, ""))), mutation, "{status} {effect:?}");
            }
            assert_eq!(kind(&outcome(&nameless(EffectClass::Read), 1, &answer(status, ""))), read, "{status} read");
        }
        let mut busy = answer(503, "");
        busy.retry_after = true;
        assert_eq!(kind(&outcome(&rules(EffectClass::Opaque), 1, &busy)), "retryable");
    }

    #[test]
    fn a_closed_door_at_a_repeated_keyed_attempt_says_nothing_of_the_first() {
        let keyed = rules(EffectClass::Keyed);
        assert_eq!(kind(&outcome(&keyed, 2, &answer(401, ""))), "unclear");
        // A business refusal is the backend's word about the key.
        assert_eq!(kind(&outcome(&keyed, 2, &answer(422, ""))), "refused");
    }

    #[test]
    fn the_result_is_the_json_or_the_wrapped_text() {
        let keyed = nameless(EffectClass::Keyed);
        assert_eq!(
            outcome(&keyed, 1, &answer(201, r#"{"reference":"B-7"}"#)),
            ToolOutcome::Committed { result: json!({"reference": "B-7"}), provider_ref: None }
        );
        assert_eq!(
            outcome(&keyed, 1, &answer(200, " booked\n")),
            ToolOutcome::Committed { result: json!({"status": 200, "text": "booked"}), provider_ref: None }
        );
        assert_eq!(
            outcome(&keyed, 1, &answer(204, "")),
            ToolOutcome::Committed { result: json!({"status": 204}), provider_ref: None }
        );
        assert_eq!(
            outcome(&keyed, 1, &answer(422, r#"{"error":"full"}"#)),
            ToolOutcome::Refused { result: json!({"error": "full"}) }
        );
    }

    #[test]
    fn where_a_reference_is_declared_an_answer_without_one_confirms_nothing() {
        for effect in [EffectClass::Keyed, EffectClass::Lookup, EffectClass::Opaque] {
            for named in [r#"{"reference":"B-7"}"#, r#"{"reference":7}"#] {
                let committed = outcome(&rules(effect), 1, &answer(201, named));
                assert!(matches!(committed, ToolOutcome::Committed { provider_ref: Some(_), .. }), "{committed:?}");
            }
            for nameless in [
                "",
                "<html>Please log in</html>",
                "{}",
                "[]",
                "null",
                r#"{"error":"database is down"}"#,
                r#"{"reference":null}"#,
                r#"{"reference":""}"#,
                r#"{"reference":{"id":7}}"#,
                r#"{"reference":"B-7""#,
            ] {
                for status in [200, 201, 204] {
                    let ToolOutcome::Unclear { reason } = outcome(&rules(effect), 1, &answer(status, nameless)) else {
                        panic!("{status} {nameless} confirms")
                    };
                    assert_eq!(reason, format!("status {status}, but the answer has no reference at /reference"));
                }
            }
        }
        // Nothing was changed by a read: it is asked again.
        assert_eq!(kind(&outcome(&rules(EffectClass::Read), 1, &answer(200, "<html>"))), "retryable");
    }

    #[test]
    fn a_confirmation_too_long_to_read_is_still_one_but_a_cut_off_one_is_not() {
        let long = Answer { body: Received::TooLong, ..answer(200, "") };
        assert_eq!(kind(&outcome(&nameless(EffectClass::Opaque), 1, &long)), "committed");
        assert_eq!(kind(&outcome(&rules(EffectClass::Opaque), 1, &long)), "unclear");
        assert_eq!(kind(&outcome(&rules(EffectClass::Read), 1, &long)), "refused");
        let cut = Answer { body: Received::CutOff("closed".to_owned()), ..answer(200, "") };
        assert_eq!(kind(&outcome(&rules(EffectClass::Opaque), 1, &cut)), "unclear");
    }

    #[test]
    fn a_failure_is_only_retryable_when_nothing_left() {
        let of = |effect, failure| kind(&outcome_of_failure(effect, failure));
        assert_eq!(of(EffectClass::Opaque, Failure::NotSent(String::new())), "retryable");
        assert_eq!(of(EffectClass::Opaque, Failure::Lost(String::new())), "unclear");
        assert_eq!(of(EffectClass::Read, Failure::Lost(String::new())), "retryable");
        assert_eq!(of(EffectClass::Keyed, Failure::NotAllowed(String::new())), "refused");
    }

    #[test]
    fn a_look_up_finds_a_record_or_a_404_and_else_proves_nothing() {
        let rules = rules(EffectClass::Lookup);
        let ask = |status, body| look_up(None, &answer(status, body), &rules);
        assert_eq!(
            ask(200, r#"{"reference":"B-7"}"#),
            LookUp::Found { result: json!({"reference": "B-7"}), provider_ref: Some("B-7".to_owned()) }
        );
        assert_eq!(ask(404, ""), LookUp::Absent);
        for (status, body) in [
            (200, ""),
            (200, "null"),
            (200, "[]"),
            (200, "{}"),
            (200, "<html>"),
            (200, r#"{"error":"database is down"}"#),
            (200, r#"[{"reference":"B-7"}]"#),
            (204, ""),
            (302, ""),
            (401, ""),
            (410, ""),
            (429, ""),
            (500, ""),
        ] {
            assert!(matches!(ask(status, body), LookUp::Unanswered { .. }), "{status} {body}");
        }
        let list = answer(200, r#"{"bookings":[{"reference":"B-8"}]}"#);
        assert_eq!(
            look_up(Some("/bookings/0"), &list, &rules),
            LookUp::Found { result: json!({"reference": "B-8"}), provider_ref: Some("B-8".to_owned()) }
        );
        let none = answer(200, r#"{"bookings":[]}"#);
        assert!(matches!(look_up(Some("/bookings/0"), &none, &rules), LookUp::Unanswered { .. }));
    }
}
