//! One behaviour suite for every store, and random histories that must leave all of them in the same state.

mod bench;
mod histories;
mod sqlite;

use bench::*;
use operations::attempt::{AttemptEnd, AttemptKind, Fence};

use operations::store::*;
use operations::{AttemptAnswer, Delivery, LookUpAnswer, SessionEnd, SessionState};
use serde_json::json;
use vocab::AudioMs;
use vocab::delivery::{DeliveryChange, DeliveryState};
use vocab::effect::{EffectClass, OperationStatus};

/// Each test runs on each store.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod memory_store {
            $(#[tokio::test] async fn $name() { super::$name(crate::bench::Bench::memory()).await; })*
        }
        mod sqlite_store {
            $(#[tokio::test] async fn $name() { super::$name(crate::bench::Bench::sqlite().await).await; })*
        }
    };
}

on_every_store![
    the_same_intent_is_created_once_and_attached_after,
    a_detail_that_does_not_define_the_intent_joins_and_changes_nothing,
    what_came_to_nothing_may_be_asked_again_under_a_new_key,
    a_settled_read_is_asked_afresh,
    a_full_queue_refuses,
    a_stale_epoch_can_do_nothing,
    a_batch_drains_once_whatever_the_order_of_its_members,
    an_empty_batch_makes_no_delivery,
    a_late_result_of_an_old_fence_changes_nothing,
    a_result_reported_twice_makes_one_delivery,
    a_sent_mark_asked_for_twice_counts_one_request,
    an_unknown_member_is_told_and_corrected_after_the_first_was_offered,
    a_correction_supersedes_what_was_never_offered,
    a_corrected_delivery_that_was_interrupted_does_not_come_back,
    a_corrected_delivery_that_lost_its_evidence_does_not_come_back,
    mutations_of_one_resource_run_one_after_another,
    what_waits_past_its_deadline_is_closed_without_an_attempt,
    a_retry_is_claimed_only_when_due_and_says_when,
    a_clean_close_leaves_offers_uncertain_and_news_for_the_next_call,
    an_unverified_caller_gets_nothing_of_another_call,
    a_delivery_held_by_a_live_call_is_not_given_to_a_second_one,
    a_result_after_the_call_finds_the_caller_who_is_back_on_the_line,
    a_resumed_call_keeps_its_session_and_shuts_out_the_old_stream,
    the_end_of_a_call_closes_what_its_last_stream_left,
    news_that_went_stale_between_calls_expires,
    recovery_follows_the_effect_class,
    recovery_seals_the_batches_of_the_dead_and_drains_them,
    an_absent_effect_is_tried_again_and_then_corrected,
    members_that_expire_together_are_each_changed_as_the_other_left_them,
    recovery_finds_each_member_as_the_one_before_left_it,
    a_session_can_be_told_again_what_it_missed,
    the_audit_names_every_move_and_no_argument,
];

async fn the_same_intent_is_created_once_and_attached_after(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let first = b.created(&s, 1, EffectClass::Keyed, json!({"a": 1})).await;
    for _ in 0..3 {
        match b.propose(&s, 2, EffectClass::Keyed, json!({"a": 1})).await {
            Admission::Attached(there) => assert_eq!(there.id, first.id),
            other => panic!("{other:?}"),
        }
    }
    b.commit(&first).await;
    match b.propose(&s, 3, EffectClass::Keyed, json!({"a": 1})).await {
        Admission::Attached(there) => assert_eq!(there.status, OperationStatus::Committed),
        other => panic!("{other:?}"),
    }
    let history = b.history(&s).await;
    assert_eq!(history.operations.len(), 1);
    assert_eq!(history.operations[0].provider_calls.len(), 5);
    // Attaching opened no batch that could ever ask for a delivery.
    assert!(b.seal(&s, 2).await.is_none());
    assert!(b.seal(&s, 3).await.is_none());
}

async fn a_detail_that_does_not_define_the_intent_joins_and_changes_nothing(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    b.intent_fields = vec!["date".into()];
    let first = b.created(&s, 1, EffectClass::Keyed, json!({"date": "d", "note": "x"})).await;
    match b.propose(&s, 1, EffectClass::Keyed, json!({"date": "d", "note": "y"})).await {
        Admission::Attached(there) => assert_eq!((there.id, there.arguments), (first.id, first.arguments)),
        other => panic!("{other:?}"),
    }
    let history = b.history(&s).await;
    assert_eq!((history.operations.len(), history.operations[0].provider_calls.len()), (1, 2));
}

async fn what_came_to_nothing_may_be_asked_again_under_a_new_key(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let first = b.created(&s, 1, EffectClass::Opaque, json!({})).await;
    b.answer(&first, AttemptAnswer::Refused { result: json!("full") }).await;
    let second = b.created(&s, 2, EffectClass::Opaque, json!({})).await;
    assert_ne!(first.key, second.key);
    b.commit(&second).await;
    assert!(matches!(b.propose(&s, 3, EffectClass::Opaque, json!({})).await, Admission::Attached(_)));
}

async fn a_settled_read_is_asked_afresh(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let first = b.created(&s, 1, EffectClass::Read, json!({})).await;
    assert!(matches!(b.propose(&s, 1, EffectClass::Read, json!({})).await, Admission::Attached(_)));
    b.commit(&first).await;
    b.created(&s, 2, EffectClass::Read, json!({})).await;
}

async fn a_full_queue_refuses(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    for n in 0..4 {
        b.created(&s, 1, EffectClass::Keyed, json!({ "n": n })).await;
    }
    match b.propose(&s, 1, EffectClass::Keyed, json!({"n": 4})).await {
        Admission::Refused(reason) => assert_eq!(reason.code(), "queue_full"),
        other => panic!("{other:?}"),
    }
}

async fn a_stale_epoch_can_do_nothing(mut b: Bench) {
    let old = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&old, 1, EffectClass::Keyed, json!({})).await;
    b.commit(&operation).await;
    let delivery = b.seal(&old, 1).await.unwrap();
    let new = b.open("CA1", "+1", true).await;
    assert!(new.resumed && new.session.epoch == 2);
    match b.propose(&old, 2, EffectClass::Keyed, json!({"other": 1})).await {
        Admission::Refused(reason) => assert_eq!(reason.code(), "session_closed"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(b.save(&old, &delivery.id, offered()).await, SavedDelivery::Refused { .. }));
    assert!(b.close(&old, SessionEnd::CallEnded).await.is_empty());
    // The new stream still holds it.
    assert_eq!(b.save(&new.session, &delivery.id, offered()).await, SavedDelivery::Saved);
}

async fn a_batch_drains_once_whatever_the_order_of_its_members(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let first = b.created(&s, 1, EffectClass::Keyed, json!({"n": 1})).await;
    let second = b.created(&s, 1, EffectClass::Keyed, json!({"n": 2})).await;
    assert!(b.seal(&s, 1).await.is_none());
    let (first, second) = (b.claimed(&first.id).await, b.claimed(&second.id).await);
    assert!(b.finish(&second, committed()).await.delivery.is_none());
    let delivery = b.finish(&first, AttemptAnswer::Refused { result: json!("no") }).await.delivery.unwrap();
    assert_eq!(delivery.operations, [first.id, second.id]);
    assert!(!delivery.all_committed);
    assert_eq!(delivery.text, "book: refused, nothing was done \"no\"\nbook: committed {\"reference\":\"B-7\"}");
    assert_eq!((delivery.state, delivery.holder.as_ref()), (DeliveryState::Ready, Some(&s.id)));
    assert!(b.seal(&s, 1).await.is_none());
    assert_eq!(b.history(&s).await.deliveries.len(), 1);
}

async fn an_empty_batch_makes_no_delivery(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    assert!(b.seal(&s, 1).await.is_none());
    assert!(b.history(&s).await.deliveries.is_empty());
}

async fn a_late_result_of_an_old_fence_changes_nothing(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&s, 1, EffectClass::Keyed, json!({})).await;
    let old = b.claimed(&operation.id).await;
    b.finish(&old, AttemptAnswer::Retryable { reason: "503".into() }).await;
    b.pass(2_000);
    let new = b.claimed(&operation.id).await;
    assert_eq!((old.fence, new.fence), (Fence(1), Fence(2)));
    let before = b.history(&s).await;
    assert_eq!(b.try_finish(&old, committed()).await, Finished::Stale);
    assert_eq!(b.mark_sent(&old).await, MarkedSent::Stale);
    assert_eq!(b.history(&s).await, before);
}

async fn a_result_reported_twice_makes_one_delivery(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&s, 1, EffectClass::Keyed, json!({})).await;
    b.seal(&s, 1).await;
    let claimed = b.claimed(&operation.id).await;
    assert!(b.finish(&claimed, committed()).await.delivery.is_some());
    let before = b.history(&s).await;
    for _ in 0..3 {
        assert_eq!(b.try_finish(&claimed, committed()).await, Finished::Stale);
    }
    assert_eq!(b.history(&s).await, before);
}

async fn a_sent_mark_asked_for_twice_counts_one_request(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&s, 1, EffectClass::Keyed, json!({})).await;
    let claimed = b.claimed(&operation.id).await;
    let before = b.history(&s).await;
    assert_eq!(b.mark_sent(&claimed).await, MarkedSent::Send(1));
    assert_eq!(b.history(&s).await, before);
}

async fn an_unknown_member_is_told_and_corrected_after_the_first_was_offered(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&s, 1, EffectClass::Lookup, json!({})).await;
    b.seal(&s, 1).await;
    let claimed = b.claimed(&operation.id).await;
    let told = b.finish(&claimed, unclear()).await.delivery.unwrap();
    assert!(!told.all_committed && told.text.contains("not confirmed yet"));
    assert_eq!(b.save(&s, &told.id, offered()).await, SavedDelivery::Saved);
    let asked = b.look_up().await;
    let settled = b.finish_look_up(&asked, found()).await;
    let correction = settled.delivery.unwrap();
    assert!(correction.all_committed);
    assert_eq!(correction.kind.as_str(), "correction");
    let deliveries = b.history(&s).await.deliveries;
    assert_eq!(deliveries.iter().map(|d| d.state).collect::<Vec<_>>(), [DeliveryState::Offered, DeliveryState::Ready]);
    let attempts = b.store.attempts(operation.id).await.unwrap();
    assert_eq!(attempts.iter().map(|a| a.kind).collect::<Vec<_>>(), [AttemptKind::Execute, AttemptKind::Reconcile]);
    assert_eq!(attempts.iter().map(|a| a.end).collect::<Vec<_>>(), [Some(AttemptEnd::Info), Some(AttemptEnd::Ok)]);
}

async fn a_correction_supersedes_what_was_never_offered(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let sure = b.created(&s, 1, EffectClass::Keyed, json!({"n": 1})).await;
    let unsure = b.created(&s, 1, EffectClass::Lookup, json!({"n": 2})).await;
    b.seal(&s, 1).await;
    b.commit(&sure).await;
    let claimed = b.claimed(&unsure.id).await;
    let first = b.finish(&claimed, unclear()).await.delivery.unwrap();
    let asked = b.look_up().await;
    let second = b.finish_look_up(&asked, found()).await.delivery.unwrap();
    assert_eq!(second.operations.len(), 2, "it says all that the first would have said");
    assert!(second.all_committed);
    assert!(matches!(b.save(&s, &first.id, offered()).await, SavedDelivery::Refused { .. }));
    let deliveries = b.history(&s).await.deliveries;
    assert_eq!(deliveries[0].superseded_by.as_ref(), Some(&second.id));
}

/// Told as unknown, on offer, and settled meanwhile: the first and its correction.
async fn corrected_on_offer(b: &mut Bench, s: &operations::SessionRecord) -> (Delivery, Delivery) {
    let operation = b.created(s, 1, EffectClass::Lookup, json!({})).await;
    b.seal(s, 1).await;
    let claimed = b.claimed(&operation.id).await;
    let told = b.finish(&claimed, unclear()).await.delivery.unwrap();
    b.save(s, &told.id, offered()).await;
    let asked = b.look_up().await;
    (told, b.finish_look_up(&asked, found()).await.delivery.unwrap())
}

async fn a_corrected_delivery_that_was_interrupted_does_not_come_back(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let (told, correction) = corrected_on_offer(&mut b, &s).await;
    let cut = DeliveryChange::Interrupted { heard: AudioMs(100) };
    assert_eq!(b.save(&s, &told.id, cut).await, SavedDelivery::Saved);
    assert!(matches!(b.save(&s, &told.id, offered()).await, SavedDelivery::Refused { .. }));
    assert_eq!(b.save(&s, &correction.id, offered()).await, SavedDelivery::Saved);
    assert_eq!(b.history(&s).await.deliveries[0].superseded_by, Some(correction.id));
}

async fn a_corrected_delivery_that_lost_its_evidence_does_not_come_back(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let (_, correction) = corrected_on_offer(&mut b, &s).await;
    b.close(&s, SessionEnd::CallEnded).await;
    let next = b.open("CA2", "+1", true).await;
    assert_eq!(next.deliveries.iter().map(|d| &d.id).collect::<Vec<_>>(), [&correction.id]);
}

async fn mutations_of_one_resource_run_one_after_another(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    b.resource = Some("table:7".into());
    let first = b.created(&s, 1, EffectClass::Lookup, json!({"n": 1})).await;
    b.created(&s, 1, EffectClass::Lookup, json!({"n": 2})).await;
    let claimed = b.claim().await.requests;
    assert_eq!(claimed.iter().map(|o| &o.id).collect::<Vec<_>>(), [&first.id]);
    b.mark_sent(&claimed[0]).await;
    b.finish(&claimed[0], unclear()).await;
    // Unknown still holds it: whether the table is taken is not known yet.
    assert!(b.claim_requests_only().await.is_empty());
    let asked = b.look_up().await;
    b.finish_look_up(&asked, found()).await;
    assert_eq!(b.claim().await.requests.len(), 1);
}

async fn what_waits_past_its_deadline_is_closed_without_an_attempt(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&s, 1, EffectClass::Opaque, json!({})).await;
    b.seal(&s, 1).await;
    b.pass(60_000);
    let claimed = b.claim().await;
    assert!(claimed.requests.is_empty());
    assert_eq!(claimed.expired.len(), 1);
    assert_eq!(claimed.expired[0].operation.status, OperationStatus::FailedFinal);
    assert!(claimed.expired[0].delivery.is_some());
    assert!(b.store.attempts(operation.id).await.unwrap().is_empty());
}

async fn a_retry_is_claimed_only_when_due_and_says_when(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&s, 1, EffectClass::Keyed, json!({})).await;
    let claimed = b.claimed(&operation.id).await;
    b.finish(&claimed, AttemptAnswer::Retryable { reason: "503".into() }).await;
    let early = b.claim().await;
    assert!(early.requests.is_empty());
    assert_eq!(early.load.waiting, 1);
    let due = early.next_due.unwrap();
    b.now = due;
    assert_eq!(b.claim().await.requests.len(), 1);
}

async fn a_clean_close_leaves_offers_uncertain_and_news_for_the_next_call(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let (told, news, heard) = (
        b.delivered(&s, 1, json!({"n": 1})).await,
        b.delivered(&s, 2, json!({"n": 2})).await,
        b.delivered(&s, 3, json!({"n": 3})).await,
    );
    b.save(&s, &told.id, offered()).await;
    b.save(&s, &heard.id, offered()).await;
    b.save(&s, &heard.id, DeliveryChange::Heard { heard: AudioMs(900) }).await;
    b.close(&s, SessionEnd::CallEnded).await;
    let next = b.open("CA2", "+1", true).await;
    assert!(!next.resumed);
    let got: Vec<_> = next.deliveries.iter().map(|d| (d.id.clone(), d.state)).collect();
    assert_eq!(got, [(told.id.clone(), DeliveryState::Uncertain), (news.id, DeliveryState::Ready)]);
    let brief = next.deliveries[0].brief(&next.session.id, b.now);
    assert!(brief.from_earlier_call);
    assert_eq!(b.save(&next.session, &told.id, offered()).await, SavedDelivery::Saved);
    let elsewhere = DeliveryChange::Interrupted { heard: AudioMs(10) };
    assert!(matches!(b.save(&s, &told.id, elsewhere).await, SavedDelivery::Refused { .. }));
}

async fn an_unverified_caller_gets_nothing_of_another_call(mut b: Bench) {
    let verified = b.open("CA1", "+1", true).await.session;
    b.delivered(&verified, 1, json!({})).await;
    b.close(&verified, SessionEnd::CallEnded).await;
    let unverified = b.open("CA2", "+1", false).await;
    assert!(unverified.deliveries.is_empty());
    b.delivered(&unverified.session, 1, json!({})).await;
    b.close(&unverified.session, SessionEnd::CallEnded).await;
    let again = b.open("CA3", "+1", true).await;
    assert_eq!(again.deliveries.len(), 1, "what an unverified call did is no news for the number's owner");
    assert_eq!(again.deliveries[0].session, verified.id);
}

async fn a_delivery_held_by_a_live_call_is_not_given_to_a_second_one(mut b: Bench) {
    let first = b.open("CA1", "+1", true).await.session;
    b.delivered(&first, 1, json!({})).await;
    assert!(b.open("CA2", "+1", true).await.deliveries.is_empty());
    assert!(b.open("CA3", "+2", true).await.deliveries.is_empty());
}

async fn a_result_after_the_call_finds_the_caller_who_is_back_on_the_line(mut b: Bench) {
    let first = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&first, 1, EffectClass::Keyed, json!({})).await;
    b.close(&first, SessionEnd::CallEnded).await;
    let second = b.open("CA2", "+1", true).await.session;
    let claimed = b.claimed(&operation.id).await;
    let delivery = b.finish(&claimed, committed()).await.delivery.unwrap();
    assert_eq!(delivery.holder.as_ref(), Some(&second.id));
    assert!(delivery.brief(&second.id, b.now).from_earlier_call);
}

async fn a_resumed_call_keeps_its_session_and_shuts_out_the_old_stream(mut b: Bench) {
    let old = b.open("CA1", "anonymous:CA1", false).await.session;
    let told = b.delivered(&old, 2, json!({"n": 2})).await;
    let operation = b.created(&old, 1, EffectClass::Keyed, json!({})).await;
    b.save(&old, &told.id, offered()).await;
    b.close(&old, SessionEnd::StreamLost).await;
    b.commit(&operation).await;
    let new = b.open("CA1", "anonymous:CA1", false).await;
    assert!(new.resumed);
    assert_eq!(new.session.id, old.id);
    let states: Vec<_> = new.deliveries.iter().map(|d| d.state).collect();
    assert_eq!(states, [DeliveryState::Uncertain, DeliveryState::Ready]);
    assert!(new.deliveries.iter().all(|d| !d.brief(&new.session.id, b.now).from_earlier_call));
    // The same intent in the resumed call is still the same intent.
    assert!(matches!(b.propose(&new.session, 1, EffectClass::Keyed, json!({})).await, Admission::Attached(_)));
    b.close(&new.session, SessionEnd::CallEnded).await;
    assert!(!b.open("CA1", "anonymous:CA1", false).await.resumed, "an ended session stays ended");
}

async fn the_end_of_a_call_closes_what_its_last_stream_left(mut bench: Bench) {
    let first = bench.open("CA1", "+1", true).await.session;
    bench.close(&first, SessionEnd::StreamLost).await;
    let second = bench.open("CA1", "+1", true).await.session;
    let news = bench.delivered(&second, 1, json!({})).await;
    bench.close(&second, SessionEnd::StreamLost).await;

    bench.end_call("CA1", Some(first.epoch)).await;
    assert_eq!(bench.history(&second).await.session.state, SessionState::Lost, "a stream came after the first one");
    bench.end_call("CA1", Some(second.epoch)).await;
    let ended = bench.history(&second).await.session;
    assert_eq!((ended.state, ended.ended_at.is_some()), (SessionState::Ended, true));
    bench.end_call("CA1", None).await;
    assert_eq!(bench.history(&second).await.session, ended, "an ended session stays as it is");
    bench.end_call("CA9", None).await;

    let next = bench.open("CA1", "+1", true).await;
    assert!(!next.resumed);
    assert_eq!(next.deliveries.iter().map(|delivery| &delivery.id).collect::<Vec<_>>(), [&news.id]);
    // Also one that a stream still holds: what that one writes then is refused.
    bench.end_call("CA1", None).await;
    assert!(matches!(bench.save(&next.session, &news.id, offered()).await, SavedDelivery::Refused { .. }));
}

async fn news_that_went_stale_between_calls_expires(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    b.stale_after_ms = Some(1_000);
    let delivery = b.delivered(&s, 1, json!({})).await;
    b.close(&s, SessionEnd::CallEnded).await;
    b.pass(1_000);
    assert!(b.open("CA2", "+1", true).await.deliveries.is_empty());
    let history = b.history(&s).await;
    assert_eq!((&history.deliveries[0].id, history.deliveries[0].state), (&delivery.id, DeliveryState::Expired));
}

async fn recovery_follows_the_effect_class(mut b: Bench) {
    use EffectClass as E;
    use OperationStatus as S;
    for (n, (effect, sent, status)) in [
        (E::Read, true, S::FailedRetryable),
        (E::Keyed, true, S::FailedRetryable),
        (E::Lookup, true, S::Unknown),
        (E::Opaque, true, S::Unknown),
        (E::Opaque, false, S::Admitted),
    ]
    .into_iter()
    .enumerate()
    {
        let s = b.open(&format!("CA{n}"), "+1", true).await.session;
        let operation = b.created(&s, 1, effect, json!({})).await;
        let claimed = b.claim().await.requests;
        assert_eq!(claimed.len(), 1);
        if sent {
            b.mark_sent(&claimed[0]).await;
        }
        let report = b.store.recover(b.now).await.unwrap();
        assert_eq!(report.sessions_lost, 1);
        assert_eq!(b.operation(&s, &operation.id).await.status, status, "{effect:?} sent {sent}");
        assert_eq!(b.try_finish(&claimed[0], committed()).await, Finished::Stale, "the dead worker is shut out");
        // Settle it, so that the next round claims only its own.
        b.pass(70_000);
        b.claim().await;
    }
}

async fn recovery_seals_the_batches_of_the_dead_and_drains_them(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&s, 1, EffectClass::Keyed, json!({})).await;
    b.commit(&operation).await;
    let offered_before = b.delivered(&s, 2, json!({"n": 2})).await;
    b.save(&s, &offered_before.id, offered()).await;
    let report = b.store.recover(b.now).await.unwrap();
    assert_eq!((report.deliveries_created, report.deliveries_uncertain), (1, 1));
    let again = b.store.recover(b.now).await.unwrap();
    assert_eq!(again, RecoveryReport::default(), "recovering twice is recovering once");
    let resumed = b.open("CA1", "+1", true).await;
    assert!(resumed.resumed);
    assert_eq!(resumed.deliveries.len(), 2);
}

async fn an_absent_effect_is_tried_again_and_then_corrected(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&s, 1, EffectClass::Lookup, json!({})).await;
    b.seal(&s, 1).await;
    let claimed = b.claimed(&operation.id).await;
    b.finish(&claimed, unclear()).await;
    let asked = b.look_up().await;
    b.finish_look_up(&asked, LookUpAnswer::Absent).await;
    assert_eq!(b.operation(&s, &operation.id).await.status, OperationStatus::Unknown, "too early to prove anything");
    b.pass(5_000);
    let asked = b.look_up().await;
    assert!(b.finish_look_up(&asked, LookUpAnswer::Absent).await.delivery.is_none());
    let claimed = b.claimed(&operation.id).await;
    let settled = b.finish(&claimed, committed()).await;
    assert!(settled.delivery.unwrap().all_committed);
    let history = b.history(&s).await;
    assert_eq!(history.operations[0].operation.told, Some(OperationStatus::Committed));
    assert_eq!(history.operations[0].operation.attempts, 2);
}

/// Two mutations of one batch whose answers were lost.
async fn two_without_an_answer(b: &mut Bench, s: &operations::SessionRecord) -> [operations::Operation; 2] {
    let mut claimed = Vec::new();
    for n in [1, 2] {
        let operation = b.created(s, 1, EffectClass::Lookup, json!({"n": n})).await;
        claimed.push(b.claimed(&operation.id).await);
    }
    b.seal(s, 1).await;
    claimed.try_into().unwrap()
}

async fn members_that_expire_together_are_each_changed_as_the_other_left_them(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let pair = two_without_an_answer(&mut b, &s).await;
    for claimed in &pair {
        b.finish(claimed, unclear()).await;
    }
    b.pass(6_000);
    for _ in &pair {
        let asked = b.look_up().await;
        b.finish_look_up(&asked, LookUpAnswer::Absent).await;
    }
    let before = b.operation(&s, &pair[1].id).await;
    assert_eq!(before.status, OperationStatus::FailedRetryable);
    b.pass(60_000);
    assert_eq!(b.claim().await.expired.len(), 2);
    let after = b.operation(&s, &pair[1].id).await;
    assert_eq!(after.told, Some(OperationStatus::FailedFinal));
    assert_eq!(after.version, before.version + 3, "told with the first, expired, told again");
}

async fn recovery_finds_each_member_as_the_one_before_left_it(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let [running, unknown] = two_without_an_answer(&mut b, &s).await;
    assert!(b.finish(&unknown, unclear()).await.delivery.is_none(), "the other member is still at work");
    assert_eq!(b.store.recover(b.now).await.unwrap().deliveries_created, 1);
    for id in [&running.id, &unknown.id] {
        let left = b.operation(&s, id).await;
        assert_eq!((left.status, left.told), (OperationStatus::Unknown, Some(OperationStatus::Unknown)), "{id}");
    }
}

async fn a_session_can_be_told_again_what_it_missed(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    b.created(&s, 1, EffectClass::Keyed, json!({"n": 1})).await;
    let delivery = b.delivered(&s, 2, json!({"n": 2})).await;
    let missed = b.store.missed(s.id.clone()).await.unwrap();
    assert_eq!(missed.operations.iter().map(|o| o.id.clone()).collect::<Vec<_>>(), delivery.operations);
    assert_eq!(missed.deliveries, [delivery]);
}

async fn the_audit_names_every_move_and_no_argument(mut b: Bench) {
    let s = b.open("CA1", "+1", true).await.session;
    let operation = b.created(&s, 1, EffectClass::Keyed, json!({"card": "4111"})).await;
    b.commit(&operation).await;
    b.seal(&s, 1).await;
    let history = b.history(&s).await;
    let moves: Vec<_> = history
        .audit
        .iter()
        .filter(|row| row.kind.as_str() == "operation_moved")
        .map(|row| (row.from.clone(), row.to.clone()))
        .collect();
    let word = |text: &str| Some(text.to_owned());
    assert_eq!(
        moves,
        [(None, word("admitted")), (word("admitted"), word("running")), (word("running"), word("committed"))]
    );
    assert!(history.audit.iter().any(|row| row.kind.as_str() == "attempt_sent"));
    assert!(history.audit.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert!(!serde_json::to_string(&history.audit).unwrap().contains("4111"));
    assert!(b.store.history(operations::history::Scope::Caller(s.caller)).await.unwrap().sessions.len() == 1);
}
