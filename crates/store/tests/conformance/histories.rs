//! Random histories of verbs, the same on every store: each reply and the final state must be equal, and the rules
//! that hold in any history must hold in the result.

use crate::bench::*;
use operations::delivery::DeliveryKind;
use operations::history::{History, Scope};
use operations::store::*;
use operations::{AttemptAnswer, LookUpAnswer, Operation, SessionEnd, SessionRecord};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use vocab::delivery::{DeliveryChange, DeliveryState};
use vocab::effect::{EffectClass, OperationStatus};
use vocab::{AudioMs, CallerId, DeliveryId};

/// Numbers choose among what the history has produced so far, old and stale things included.
#[derive(Clone, Debug)]
enum Step {
    Open { call: u8, caller: u8, verified: bool },
    Close { session: usize, lost: bool },
    Propose { session: usize, response: u32, effect: u8, argument: u8, resource: bool },
    Seal { session: usize, response: u32 },
    Claim,
    MarkSent { claimed: usize },
    Finish { claimed: usize, answer: u8 },
    FinishLookUp { asked: usize, answer: u8 },
    Save { session: usize, delivery: usize, change: u8 },
    Recover,
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let index = 0usize..64;
    prop_oneof![
        2 => (0u8..4, 0u8..2, any::<bool>()).prop_map(|(call, caller, verified)| Step::Open { call, caller, verified }),
        1 => (index.clone(), any::<bool>()).prop_map(|(session, lost)| Step::Close { session, lost }),
        6 => (index.clone(), 0u32..3, 0u8..4, 0u8..4, any::<bool>()).prop_map(
            |(session, response, effect, argument, resource)| Step::Propose { session, response, effect, argument, resource }
        ),
        3 => (index.clone(), 0u32..3).prop_map(|(session, response)| Step::Seal { session, response }),
        5 => Just(Step::Claim),
        6 => index.clone().prop_map(|claimed| Step::MarkSent { claimed }),
        6 => (index.clone(), 0u8..4).prop_map(|(claimed, answer)| Step::Finish { claimed, answer }),
        3 => (index.clone(), 0u8..4).prop_map(|(asked, answer)| Step::FinishLookUp { asked, answer }),
        4 => (index.clone(), index, 0u8..7).prop_map(|(session, delivery, change)| Step::Save { session, delivery, change }),
        1 => Just(Step::Recover),
        3 => prop_oneof![Just(50u64), Just(6_000), Just(61_000)].prop_map(|ms| Step::Pass { ms }),
    ]
}

#[derive(Default)]
struct Seen {
    sessions: Vec<SessionRecord>,
    claimed: Vec<Operation>,
    asked: Vec<Operation>,
    deliveries: Vec<DeliveryId>,
}

fn pick<T: Clone>(from: &[T], n: usize) -> Option<T> {
    // Counted from the end, so that what is new is met more often than what is stale.
    if from.is_empty() { None } else { from.get(from.len() - 1 - n % from.len().min(8)).cloned() }
}

const CALLERS: [&str; 2] = ["+1", "+2"];

/// Plays the steps and returns every reply in words, and what the store holds at the end.
async fn play(mut b: Bench, steps: &[Step]) -> (Vec<String>, Vec<History>) {
    let mut seen = Seen::default();
    let mut replies = Vec::new();
    for step in steps {
        replies.push(take(&mut b, &mut seen, step).await);
    }
    let mut end = Vec::new();
    for caller in CALLERS {
        end.push(b.store.history(Scope::Caller(CallerId::new(caller))).await.unwrap());
    }
    replies.push(format!("{:?}", b.store.load().await));
    (replies, end)
}

async fn take(b: &mut Bench, seen: &mut Seen, step: &Step) -> String {
    match step.clone() {
        Step::Open { call, caller, verified } => {
            // One call has one caller.
            let caller = CALLERS[usize::from(call ^ caller) % 2];
            let opened = b.open(&format!("CA{call}{caller}"), caller, verified).await;
            seen.sessions.push(opened.session.clone());
            format!("{opened:?}")
        }
        Step::Close { session, lost } => {
            let Some(s) = pick(&seen.sessions, session) else { return String::new() };
            let end = if lost { SessionEnd::StreamLost } else { SessionEnd::CallEnded };
            let made = b.close(&s, end).await;
            seen.deliveries.extend(made.iter().map(|d| d.id.clone()));
            format!("{made:?}")
        }
        Step::Propose { session, response, effect, argument, resource } => {
            let Some(s) = pick(&seen.sessions, session) else { return String::new() };
            let effect =
                [EffectClass::Read, EffectClass::Keyed, EffectClass::Lookup, EffectClass::Opaque][usize::from(effect)];
            b.resource = resource.then(|| format!("r{}", argument % 2));
            b.intent_fields = vec!["a".into()];
            format!("{:?}", b.propose(&s, response, effect, json!({"a": argument / 2, "b": argument})).await)
        }
        Step::Seal { session, response } => {
            let Some(s) = pick(&seen.sessions, session) else { return String::new() };
            let made = b.seal(&s, response).await;
            seen.deliveries.extend(made.iter().map(|d| d.id.clone()));
            format!("{made:?}")
        }
        Step::Claim => {
            let claimed = b.claim().await;
            seen.claimed.extend(claimed.requests.iter().cloned());
            seen.asked.extend(claimed.look_ups.iter().cloned());
            seen.deliveries.extend(claimed.expired.iter().filter_map(|s| s.delivery.as_ref()).map(|d| d.id.clone()));
            format!("{claimed:?}")
        }
        Step::MarkSent { claimed } => {
            let Some(operation) = pick(&seen.claimed, claimed) else { return String::new() };
            format!("{:?}", b.mark_sent(&operation).await)
        }
        Step::Finish { claimed, answer } => {
            let Some(operation) = pick(&seen.claimed, claimed) else { return String::new() };
            let answer = match answer {
                0 => committed(),
                1 => unclear(),
                2 => AttemptAnswer::Refused { result: json!("no") },
                _ => AttemptAnswer::Retryable { reason: "503".into() },
            };
            let finished = b.try_finish(&operation, answer).await;
            if let Finished::Recorded(settled) = &finished {
                seen.deliveries.extend(settled.delivery.iter().map(|d| d.id.clone()));
            }
            format!("{finished:?}")
        }
        Step::FinishLookUp { asked, answer } => {
            let Some(operation) = pick(&seen.asked, asked) else { return String::new() };
            let answer = match answer {
                0 => found(),
                1 => LookUpAnswer::Absent,
                2 => LookUpAnswer::CannotAsk,
                _ => LookUpAnswer::Unanswered { reason: "down".into() },
            };
            let verb = FinishLookUp {
                operation: operation.id,
                fence: operation.fence,
                answer,
                rule: RULE,
                now: b.now,
                random: 7,
            };
            let finished = b.store.finish_look_up(verb).await.unwrap();
            if let Finished::Recorded(settled) = &finished {
                seen.deliveries.extend(settled.delivery.iter().map(|d| d.id.clone()));
            }
            format!("{finished:?}")
        }
        Step::Save { session, delivery, change } => {
            let (Some(s), Some(id)) = (pick(&seen.sessions, session), pick(&seen.deliveries, delivery)) else {
                return String::new();
            };
            let change = match change {
                0 | 1 => offered(),
                2 => DeliveryChange::Heard { heard: AudioMs(900) },
                3 => DeliveryChange::Interrupted { heard: AudioMs(300) },
                4 => DeliveryChange::Withdrawn { counts: false },
                5 => DeliveryChange::Suppressed { reason: "old".into() },
                _ => DeliveryChange::Expired,
            };
            format!("{:?}", b.save(&s, &id, change).await)
        }
        Step::Recover => format!("{:?}", b.store.recover(b.now).await),
        Step::Pass { ms } => {
            b.pass(ms);
            String::new()
        }
    }
}

/// What holds in any history. (durability.md 6(e): 2, 3, 5, 6, 7, 8)
fn check(history: &History) -> Result<(), TestCaseError> {
    let mut keys = BTreeMap::new();
    let mut holding = BTreeMap::new();
    for one in history.operations() {
        let operation = &one.operation;
        prop_assert!(keys.insert(operation.key.clone(), operation.id.clone()).is_none(), "two rows under one key");
        prop_assert!(operation.attempts <= operation.retry.max_attempts);
        let sent = one.attempts.iter().filter(|a| a.kind.as_str() == "execute" && a.sent_at.is_some()).count();
        prop_assert_eq!(sent as u32, operation.attempts);
        prop_assert!(
            one.attempts
                .iter()
                .all(|a| a.kind.as_str() != "execute" || a.sent_at.is_none_or(|at| at < operation.deadline_at))
        );
        if operation.effect == EffectClass::Opaque {
            let lost = one.attempts.iter().filter(|a| a.end.is_some_and(|e| e.as_str() == "info")).count();
            prop_assert!(lost <= 1, "an opaque request whose answer was lost was sent again");
        }
        if operation.status == OperationStatus::Committed {
            prop_assert!(operation.effect_committed_at.is_some() && operation.result.is_some());
        }
        if let (true, Some(resource)) = (operation.holds_resource(), &operation.resource) {
            prop_assert!(holding.insert(resource.clone(), operation.id.clone()).is_none(), "two hold {}", resource);
        }
    }
    for session in &history.sessions {
        // Replaying the audit gives the rows, and it never leaves a terminal state.
        let mut replayed: BTreeMap<String, String> = BTreeMap::new();
        for row in session.audit.iter().filter(|row| row.kind.as_str() == "operation_moved") {
            let id = row.operation.clone().map(|id| id.0).unwrap_or_default();
            let to = row.to.clone().unwrap_or_default();
            prop_assert_eq!(replayed.insert(id, to), row.from.clone());
        }
        for one in &session.operations {
            let status = one.operation.status.as_str();
            prop_assert_eq!(replayed.get(one.operation.id.as_str()).map(String::as_str), Some(status));
        }
        let mut finals = BTreeMap::new();
        for delivery in &session.deliveries {
            if delivery.kind == DeliveryKind::Final && delivery.state != DeliveryState::Superseded {
                prop_assert!(finals.insert(delivery.batch.clone(), ()).is_none(), "two finals in one batch");
            }
            if delivery.state == DeliveryState::Heard {
                prop_assert!(delivery.offers > 0);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_store_ends_in_the_same_state(steps in prop::collection::vec(step(), 20..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (memory, sqlite) = runtime.block_on(async {
            (play(Bench::memory(), &steps).await, play(Bench::sqlite().await, &steps).await)
        });
        for (n, (one, other)) in memory.0.iter().zip(&sqlite.0).enumerate() {
            prop_assert_eq!(one, other, "step {} {:?}", n, steps.get(n));
        }
        // Both stores number their audit rows, but a SQL sequence may have gaps.
        let bare = |mut end: Vec<History>| {
            for row in end.iter_mut().flat_map(|h| &mut h.sessions).flat_map(|s| &mut s.audit) {
                row.seq = 0;
            }
            end
        };
        for history in &memory.1 {
            check(history)?;
        }
        prop_assert_eq!(bare(memory.1), bare(sqlite.1));
    }

    #[test]
    fn no_history_breaks_a_rule(steps in prop::collection::vec(step(), 50..400)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (_, end) = runtime.block_on(play(Bench::memory(), &steps));
        for history in &end {
            check(history)?;
        }
    }
}
