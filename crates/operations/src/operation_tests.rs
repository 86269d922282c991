use super::*;
use OperationStatus as S;
use proptest::prelude::*;
use serde_json::json;
use vocab::effect::Priority;

const ALL: [OperationStatus; 7] =
    [S::Admitted, S::Running, S::Committed, S::FailedRetryable, S::FailedFinal, S::Unknown, S::Cancelled];

fn operation(effect: EffectClass) -> Operation {
    Operation {
        id: OperationId::new("op_1"),
        session: SessionId::new("ses_1"),
        caller: CallerId::new("+1"),
        agent: AgentId::new("host"),
        tool: ToolName::new("book"),
        effect,
        batch: BatchId::new("bat_1"),
        turn: None,
        provider_call: ProviderCallId::new("call_1"),
        key: IntentKey::new("ik_1"),
        fingerprint: "f".into(),
        arguments: json!({}),
        resource: None,
        status: S::Admitted,
        reason: None,
        version: 1,
        fence: Fence(0),
        attempts: 0,
        retry: RetryRule { max_attempts: 2, base_ms: 100, cap_ms: 1_000 },
        may_have_acted: false,
        next_due_at: Some(WallTime(0)),
        deadline_at: WallTime(60_000),
        unknown_since: None,
        look_ups: 0,
        told: None,
        delivery: DeliveryRule { priority: Priority::Normal, quiet_ms: None, stale_after_ms: None },
        result: None,
        provider_ref: None,
        tool_requested_at: WallTime(0),
        action_admitted_at: WallTime(0),
        effect_committed_at: None,
        result_observed_at: None,
    }
}

/// Claimed and sent at `now`.
fn sent(effect: EffectClass, now: i64) -> (Operation, Fence) {
    let mut operation = operation(effect);
    let fence = operation.claim().unwrap();
    assert_eq!(operation.mark_sent(fence, WallTime(now)), Ok(SendVerdict::Send(1)));
    (operation, fence)
}

fn committed() -> AttemptAnswer {
    AttemptAnswer::Committed { result: json!({"reference": "B-7"}), provider_ref: Some("B-7".into()) }
}
fn unclear() -> AttemptAnswer {
    AttemptAnswer::Unclear { reason: "timeout".into() }
}
fn refused() -> AttemptAnswer {
    AttemptAnswer::Refused { result: json!({"error": "taken"}) }
}
fn retryable() -> AttemptAnswer {
    AttemptAnswer::Retryable { reason: "503".into() }
}

#[test]
fn terminal_states_absorb_and_unknown_leaves_only_by_evidence() {
    for from in ALL {
        for to in ALL {
            if from.is_terminal() {
                assert!(!may_become(from, to), "{from:?} {to:?}");
            }
        }
        assert!(!may_become(from, from));
    }
    let out: Vec<_> = ALL.into_iter().filter(|to| may_become(S::Unknown, *to)).collect();
    assert_eq!(out, [S::Committed, S::FailedRetryable, S::FailedFinal]);
    assert!(!may_become(S::Unknown, S::Running));
}

#[test]
fn the_answer_of_an_old_fence_changes_nothing() {
    let (mut operation, old) = sent(EffectClass::Keyed, 0);
    operation.conclude(old, &retryable(), WallTime(10), WallTime(10), 0).unwrap();
    let new = operation.claim().unwrap();
    assert!(new > old);
    let before = operation.clone();
    assert_eq!(operation.conclude(old, &committed(), WallTime(20), WallTime(20), 0), Err(Dropped::Stale));
    assert_eq!(operation.mark_sent(old, WallTime(20)), Err(Dropped::Stale));
    assert_eq!(operation, before);
}

#[test]
fn a_result_reported_twice_counts_once() {
    let (mut operation, fence) = sent(EffectClass::Keyed, 0);
    operation.conclude(fence, &committed(), WallTime(10), WallTime(12), 0).unwrap();
    let before = operation.clone();
    assert_eq!(operation.conclude(fence, &refused(), WallTime(20), WallTime(20), 0), Err(Dropped::Stale));
    assert_eq!(operation, before);
    assert_eq!(operation.effect_committed_at, Some(WallTime(10)));
    assert_eq!(operation.result_observed_at, Some(WallTime(12)));
}

#[test]
fn a_lost_answer_is_repeated_for_keyed_and_read_and_unknown_for_the_others() {
    for (effect, status) in [
        (EffectClass::Read, S::FailedRetryable),
        (EffectClass::Keyed, S::FailedRetryable),
        (EffectClass::Lookup, S::Unknown),
        (EffectClass::Opaque, S::Unknown),
    ] {
        let (mut operation, fence) = sent(effect, 0);
        operation.conclude(fence, &unclear(), WallTime(10), WallTime(10), u32::MAX).unwrap();
        assert_eq!(operation.status, status, "{effect:?}");
        let asked = operation.next_due_at.is_some();
        assert_eq!(asked, effect != EffectClass::Opaque, "{effect:?}");
    }
}

#[test]
fn a_failure_is_told_in_words_that_can_be_said_and_the_detail_stays_for_operators() {
    let detail = "error sending request: tcp connect error: Connection refused (os error 111)";
    let (mut failed, fence) = sent(EffectClass::Keyed, 0);
    failed.attempts = failed.retry.max_attempts;
    let answer = AttemptAnswer::Retryable { reason: detail.into() };
    failed.conclude(fence, &answer, WallTime(10), WallTime(10), 0).unwrap();
    assert_eq!((failed.status, failed.reason.as_deref()), (S::FailedFinal, Some(detail)));
    assert_eq!(answer.detail().as_deref(), Some(detail), "the attempt's row keeps it");
    let told = crate::delivery::outcome(&failed);
    assert!(told.contains("nothing was done") && told.contains("could not be reached"), "{told}");
    assert!(!told.contains("os error") && !told.contains("tcp"), "{told}");

    let mut late = operation(EffectClass::Keyed);
    late.expire(WallTime(20)).unwrap();
    let told = crate::delivery::outcome(&late);
    assert!(told.contains("no time left") && !told.contains("deadline"), "{told}");
}

#[test]
fn an_exhausted_budget_is_failure_only_when_nothing_can_have_happened() {
    for (effect, first, status) in [
        (EffectClass::Read, unclear(), S::FailedFinal),
        (EffectClass::Keyed, retryable(), S::FailedFinal),
        (EffectClass::Keyed, unclear(), S::Unknown),
    ] {
        let (mut operation, fence) = sent(effect, 0);
        operation.conclude(fence, &first, WallTime(10), WallTime(10), 0).unwrap();
        let fence = operation.claim().unwrap();
        assert_eq!(operation.mark_sent(fence, WallTime(20)), Ok(SendVerdict::Send(2)));
        operation.conclude(fence, &retryable(), WallTime(30), WallTime(30), 0).unwrap();
        assert_eq!(operation.status, status, "{effect:?} after {first:?}");
    }
}

#[test]
fn a_refusal_after_a_lost_answer_proves_nothing() {
    let (mut operation, fence) = sent(EffectClass::Keyed, 0);
    operation.conclude(fence, &unclear(), WallTime(10), WallTime(10), 0).unwrap();
    let fence = operation.claim().unwrap();
    operation.mark_sent(fence, WallTime(20)).unwrap();
    operation.conclude(fence, &refused(), WallTime(30), WallTime(30), 0).unwrap();
    assert_eq!(operation.status, S::Unknown);
    assert_eq!(operation.result, None);
}

#[test]
fn a_refusal_with_nothing_lost_is_final() {
    let (mut operation, fence) = sent(EffectClass::Opaque, 0);
    operation.conclude(fence, &refused(), WallTime(10), WallTime(10), 0).unwrap();
    assert_eq!((operation.status, operation.result.is_some()), (S::FailedFinal, true));
    assert_eq!(operation.effect_committed_at, None);
}

#[test]
fn nothing_leaves_after_the_deadline() {
    let mut late = operation(EffectClass::Keyed);
    let fence = late.claim().unwrap();
    assert_eq!(late.mark_sent(fence, WallTime(60_000)), Ok(SendVerdict::TooLate));
    assert_eq!((late.status, late.attempts), (S::FailedFinal, 0));
    let (mut lost, fence) = sent(EffectClass::Keyed, 0);
    lost.conclude(fence, &unclear(), WallTime(59_999), WallTime(59_999), u32::MAX).unwrap();
    assert_eq!(lost.status, S::Unknown);
}

const RULE: ReconcileRule = ReconcileRule { settle_ms: 5_000, base_ms: 500, cap_ms: 60_000, max_look_ups: 3 };

fn unknown() -> Operation {
    let (mut operation, fence) = sent(EffectClass::Lookup, 0);
    operation.conclude(fence, &unclear(), WallTime(1_000), WallTime(1_000), 0).unwrap();
    operation
}

#[test]
fn found_settles_at_once_and_absent_only_after_the_settle_time() {
    let mut found = unknown();
    let fence = found.claim_look_up();
    let answer = LookUpAnswer::Found { result: json!(1), provider_ref: None };
    found.conclude_look_up(fence, &answer, &RULE, WallTime(1_001), 0).unwrap();
    assert_eq!(found.status, S::Committed);

    let mut absent = unknown();
    let fence = absent.claim_look_up();
    absent.conclude_look_up(fence, &LookUpAnswer::Absent, &RULE, WallTime(5_999), 0).unwrap();
    assert_eq!((absent.status, absent.next_due_at), (S::Unknown, Some(WallTime(6_000))));
    let fence = absent.claim_look_up();
    absent.conclude_look_up(fence, &LookUpAnswer::Absent, &RULE, WallTime(6_000), 0).unwrap();
    assert_eq!((absent.status, absent.may_have_acted), (S::FailedRetryable, false));
}

#[test]
fn absence_proven_past_the_deadline_is_final() {
    let mut absent = unknown();
    let fence = absent.claim_look_up();
    absent.conclude_look_up(fence, &LookUpAnswer::Absent, &RULE, WallTime(60_000), 0).unwrap();
    assert_eq!(absent.status, S::FailedFinal);
}

#[test]
fn no_answer_to_a_question_never_settles_it_and_the_questions_end() {
    let mut operation = unknown();
    for n in 1..=3 {
        let fence = operation.claim_look_up();
        let none = LookUpAnswer::Unanswered { reason: "401".into() };
        operation.conclude_look_up(fence, &none, &RULE, WallTime(900_000), u32::MAX).unwrap();
        assert_eq!(operation.status, S::Unknown);
        assert_eq!(operation.next_due_at.is_some(), n < 3);
    }
    operation.recover(true, WallTime(1_000_000)).unwrap();
    assert_eq!(operation.next_due_at, Some(WallTime(1_000_000)), "a restart asks again");
}

#[test]
fn a_late_look_up_answer_of_an_old_fence_changes_nothing() {
    let mut operation = unknown();
    let old = operation.claim_look_up();
    operation.claim_look_up();
    let before = operation.clone();
    let answer = LookUpAnswer::Found { result: json!(1), provider_ref: None };
    assert_eq!(operation.conclude_look_up(old, &answer, &RULE, WallTime(9_000), 0), Err(Dropped::Stale));
    assert_eq!(operation, before);
}

#[test]
fn a_crash_before_the_request_left_loses_nothing() {
    let mut fresh = operation(EffectClass::Opaque);
    fresh.claim().unwrap();
    fresh.recover(false, WallTime(50)).unwrap();
    assert_eq!((fresh.status, fresh.next_due_at), (S::Admitted, Some(WallTime(50))));
}

#[test]
fn a_crash_after_the_request_left_follows_the_effect_class() {
    for (effect, status) in [
        (EffectClass::Read, S::FailedRetryable),
        (EffectClass::Keyed, S::FailedRetryable),
        (EffectClass::Lookup, S::Unknown),
        (EffectClass::Opaque, S::Unknown),
    ] {
        let (mut operation, _) = sent(effect, 0);
        operation.recover(true, WallTime(50)).unwrap();
        assert_eq!(operation.status, status, "{effect:?}");
    }
}

proptest! {
    /// Whatever the answers, an operation with one lost mutation is never called failed without proof of absence,
    /// and attempts stay within the budget.
    #[test]
    fn a_lost_mutation_never_becomes_failed_without_proof(answers in prop::collection::vec(0u8..4, 1..8), keyed: bool) {
        let effect = if keyed { EffectClass::Keyed } else { EffectClass::Lookup };
        let mut operation = operation(effect);
        operation.retry.max_attempts = 5;
        let mut lost = false;
        for answer in answers {
            let Ok(fence) = operation.claim() else { break };
            if operation.mark_sent(fence, WallTime(1)).is_err() { break }
            let answer = match answer { 0 => committed(), 1 => refused(), 2 => retryable(), _ => unclear() };
            lost |= matches!(answer, AttemptAnswer::Unclear { .. });
            operation.conclude(fence, &answer, WallTime(2), WallTime(2), 0).unwrap();
        }
        prop_assert!(!(lost && operation.status == S::FailedFinal));
        prop_assert!(operation.attempts <= 5);
    }
}
