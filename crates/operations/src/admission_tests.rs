use super::*;
use crate::contract::{DeliveryRule, RetryRule};
use serde_json::json;
use vocab::effect::{EffectClass, Priority};
use vocab::{ProviderCallId, ResponseId, ToolCallId};

fn contract() -> ToolContract {
    ToolContract {
        name: ToolName::new("book_table"),
        description: String::new(),
        parameters: json!({
            "type": "object",
            "properties": {
                "date": {"type": "string", "format": "date"},
                "time": {"type": "string"},
                "party": {"type": "integer", "minimum": 1, "default": 2}
            },
            "required": ["date", "time"],
            "additionalProperties": false
        }),
        effect: EffectClass::Keyed,
        intent_fields: vec![],
        resource: Some("table:{/date}:{/time}:{/party}".into()),
        deadline_ms: 10_000,
        attempt_timeout_ms: 2_000,
        retry: RetryRule { max_attempts: 3, base_ms: 100, cap_ms: 1_000 },
        inline_wait_ms: 700,
        max_running: 2,
        max_queued: 2,
        delivery: DeliveryRule { priority: Priority::Normal, quiet_ms: None, stale_after_ms: None },
    }
}

fn check_at(tool: &str, arguments: &str, now: i64) -> Result<CheckedProposal, RefusalReason> {
    let other = ToolContract { name: ToolName::new("other"), ..contract() };
    let catalog = ToolCatalog::compile(vec![contract(), other]).unwrap();
    let proposal = Proposal {
        tool_call: ToolCallId(1),
        provider_call: ProviderCallId::new("call_1"),
        tool: tool.into(),
        arguments: arguments.into(),
        turn: None,
        response: ResponseId(1),
    };
    let allowed = [ToolName::new("book_table")];
    catalog.check(&allowed, &proposal, &CallerId::new("+1"), &SessionId::new("ses_1"), WallTime(0), WallTime(now))
}

fn check(arguments: &str) -> Result<CheckedProposal, RefusalReason> {
    check_at("book_table", arguments, 0)
}

#[test]
fn a_tool_that_the_agent_does_not_have_is_refused() {
    assert_eq!(check_at("nope", "{}", 0).unwrap_err().code(), "unknown_tool");
    assert_eq!(check_at("other", "{}", 0).unwrap_err().code(), "unknown_tool");
}

#[test]
fn arguments_must_be_a_json_object_of_bounded_size() {
    assert_eq!(check("{\"date\":").unwrap_err(), RefusalReason::ArgumentsNotJson);
    assert_eq!(check("[1]").unwrap_err(), RefusalReason::ArgumentsNotJson);
    let long = format!("{{\"date\":\"{}\"}}", "x".repeat(MAX_ARGUMENT_BYTES));
    assert_eq!(check(&long).unwrap_err().code(), "arguments_too_large");
}

#[test]
fn arguments_that_break_the_schema_are_refused_with_the_place_named() {
    let refused = check(r#"{"date":"2026-12-01","time":"20:00","party":0}"#).unwrap_err();
    assert_eq!(refused.code(), "arguments_invalid");
    assert!(refused.say().contains("/party"), "{}", refused.say());
    assert_eq!(check("").unwrap_err().code(), "arguments_invalid");
    assert_eq!(check(r#"{"date":"2026-02-30","time":"20:00"}"#).unwrap_err().code(), "arguments_invalid");
    assert_eq!(check(r#"{"date":"2026-12-01","time":"20:00","x":1}"#).unwrap_err().code(), "arguments_invalid");
}

#[test]
fn what_passes_is_normalised_and_names_its_resource() {
    let a = check(r#"{"date":" 2026-12-01 ","time":"20:00","party":2.0}"#).unwrap();
    let b = check(r#"{"time":"20:00","date":"2026-12-01"}"#).unwrap();
    assert_eq!(a.arguments, json!({"date": "2026-12-01", "time": "20:00", "party": 2}));
    assert_eq!(a.intent, b.intent);
    assert_eq!(a.resource.as_deref(), Some("table:2026-12-01:20:00:2"));
    assert_eq!(a.deadline_at, WallTime(10_000));
}

#[test]
fn a_proposal_that_waited_past_its_deadline_is_refused() {
    let arguments = r#"{"date":"2026-12-01","time":"20:00"}"#;
    assert!(check_at("book_table", arguments, 9_999).is_ok());
    assert_eq!(check_at("book_table", arguments, 10_000).unwrap_err(), RefusalReason::DeadlineUnreachable);
}

#[test]
fn contracts_that_cannot_work_are_refused_at_start() {
    let bad = |change: fn(&mut ToolContract)| {
        let mut one = contract();
        change(&mut one);
        ToolCatalog::compile(vec![one]).err()
    };
    assert!(matches!(bad(|c| c.parameters = json!({"type": 7})), Some(ContractError::Schema { .. })));
    assert!(matches!(bad(|c| c.max_running = 0), Some(ContractError::Zero { .. })));
    assert!(matches!(ToolCatalog::compile(vec![contract(), contract()]), Err(ContractError::Twice { .. })));
}

#[test]
fn every_refusal_says_that_nothing_was_done() {
    for reason in [
        RefusalReason::UnknownTool(ToolName::new("x")),
        RefusalReason::ArgumentsNotJson,
        RefusalReason::QueueFull,
        RefusalReason::StoreUnavailable,
        RefusalReason::Stopping,
    ] {
        assert!(reason.refusal().say.starts_with("Nothing"), "{reason}");
    }
}
