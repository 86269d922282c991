//! The executor over the memory store, in paused time: every wait is jumped over, none is slept through.

mod fake;

use executor::*;
use fake::*;
use operations::SessionEnd;
use operations::history::Scope;
use operations::retry::ReconcileRule;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::MemoryStore;
use tools::LookUp;
use vocab::delivery::{DeliveryBrief, DeliveryChange, DeliveryState};
use vocab::effect::{EffectClass, OperationStatus};
use vocab::work::{WorkCommand, WorkEvent};
use vocab::{AudioMs, CallSid, CallerId, OperationId, ResponseId, SaveId, WallTime};

async fn start(store: &Arc<MemoryStore>, tools: Vec<RegisteredTool>) -> Executor {
    start_with(store, tools, ExecutorConfig::default()).await
}

async fn start_with(store: &Arc<MemoryStore>, tools: Vec<RegisteredTool>, config: ExecutorConfig) -> Executor {
    let reconcile = ReconcileRule { settle_ms: 5_000, base_ms: 500, cap_ms: 10_000, max_look_ups: 20 };
    let config = ExecutorConfig { clock: Clock::runtime(WallTime(1_000_000)), reconcile, ..config };
    Executor::start(store.clone(), tools, config).await.unwrap()
}

fn admitted(event: WorkEvent) -> OperationId {
    match event {
        WorkEvent::Admitted { operation, attached_to: None, .. } => operation,
        other => panic!("{other:?}"),
    }
}

fn finished(event: WorkEvent) -> (OperationStatus, String) {
    match event {
        WorkEvent::Finished { status, result, .. } => (status, result),
        other => panic!("{other:?}"),
    }
}

fn ready(event: WorkEvent) -> DeliveryBrief {
    match event {
        WorkEvent::DeliveryReady(brief) => brief,
        other => panic!("{other:?}"),
    }
}

/// The next event within a minute of paused time; a test that waits for nothing ends there.
async fn next(desk: &mut SessionDesk) -> WorkEvent {
    tokio::time::timeout(Duration::from_secs(60), desk.next()).await.expect("an event comes").expect("the desk is open")
}

/// Nothing comes in a minute.
async fn silent(desk: &mut SessionDesk) {
    let event = tokio::time::timeout(Duration::from_secs(60), desk.next()).await;
    assert!(event.is_err(), "{event:?}");
}

fn seal(response: u32) -> WorkCommand {
    WorkCommand::SealBatch { response: ResponseId(response) }
}

#[tokio::test(start_paused = true)]
async fn a_proposal_is_admitted_run_and_delivered_in_that_order() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([commits("B-7")]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    assert!(!desk.resumed && desk.session.as_str().starts_with("ses_"));
    desk.send(propose(1, 1, "book", json!({"n": 1}))).unwrap();
    desk.send(seal(1)).unwrap();
    match next(&mut desk).await {
        WorkEvent::Admitted { inline_wait_ms: 700, attached_to: None, .. } => {}
        other => panic!("{other:?}"),
    }
    let (status, result) = finished(next(&mut desk).await);
    assert_eq!((status, result.as_str()), (OperationStatus::Committed, r#"book: committed {"reference":"B-7"}"#));
    let brief = ready(next(&mut desk).await);
    assert_eq!(brief.text, result);
    assert!(brief.all_committed && !brief.from_earlier_call);
    silent(&mut desk).await;
    assert_eq!(executor.counts().running, 0);
}

#[tokio::test(start_paused = true)]
async fn every_refusal_is_spoken_and_starts_nothing() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "fly", json!({}))).unwrap();
    desk.send(propose(2, 1, "book", json!({"n": "one"}))).unwrap();
    desk.send(seal(1)).unwrap();
    for code in ["unknown_tool", "arguments_invalid"] {
        match next(&mut desk).await {
            WorkEvent::Refused { refusal, .. } => assert_eq!(refusal.code, code),
            other => panic!("{other:?}"),
        }
    }
    silent(&mut desk).await;
    assert_eq!(tool.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_intent_twice_has_one_effect_and_its_state_as_the_answer() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([commits("B-7")]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "book", json!({"n": 1}))).unwrap();
    desk.send(propose(2, 1, "book", json!({"n": 1.0}))).unwrap();
    desk.send(seal(1)).unwrap();
    let first = admitted(next(&mut desk).await);
    let mut attached = 0;
    let mut delivered = 0;
    while delivered == 0 {
        match next(&mut desk).await {
            WorkEvent::Admitted { operation, attached_to: Some(_), .. } => {
                assert_eq!(operation, first);
                attached += 1;
            }
            WorkEvent::Finished { operation, .. } => assert_eq!(operation, first),
            WorkEvent::DeliveryReady(_) => delivered += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(attached, 1);
    desk.send(propose(3, 2, "book", json!({"n": 1}))).unwrap();
    desk.send(seal(2)).unwrap();
    match next(&mut desk).await {
        WorkEvent::Admitted { attached_to, result, inline_wait_ms, .. } => {
            assert_eq!((attached_to, inline_wait_ms), (Some(OperationStatus::Committed), 0));
            assert!(result.unwrap().contains("B-7"));
        }
        other => panic!("{other:?}"),
    }
    silent(&mut desk).await;
    assert_eq!(tool.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn members_that_finish_in_reverse_order_make_one_delivery() {
    let store = Arc::new(MemoryStore::new());
    let slow = FakeTool::answering([after(3_000, commits("slow"))]);
    let quick = FakeTool::answering([after(100, commits("quick"))]);
    let tools = vec![slow.registered("slow", EffectClass::Keyed), quick.registered("quick", EffectClass::Keyed)];
    let executor = start(&store, tools).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "slow", json!({}))).unwrap();
    desk.send(propose(2, 1, "quick", json!({}))).unwrap();
    desk.send(seal(1)).unwrap();
    admitted(next(&mut desk).await);
    admitted(next(&mut desk).await);
    assert!(finished(next(&mut desk).await).1.contains("quick"));
    assert!(finished(next(&mut desk).await).1.contains("slow"));
    let brief = ready(next(&mut desk).await);
    assert_eq!(brief.operations.len(), 2);
    silent(&mut desk).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_a_keyed_tool_is_sent_again_under_the_same_key() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([unclear(), Script::Panic, Script::Hang, commits("B-7")]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    admitted(next(&mut desk).await);
    assert_eq!(finished(next(&mut desk).await).0, OperationStatus::Committed);
    let requests = tool.requests();
    assert_eq!(requests.iter().map(|r| r.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(requests.windows(2).all(|pair| pair[0].key == pair[1].key));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_a_lookup_tool_is_told_as_unknown_and_settled_by_asking() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([unclear()]).looking_up([
        LookUp::Unanswered { reason: "401".into() },
        LookUp::Absent,
        found("B-7"),
    ]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Lookup)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    desk.send(seal(1)).unwrap();
    admitted(next(&mut desk).await);
    assert_eq!(finished(next(&mut desk).await).0, OperationStatus::Unknown);
    let told = ready(next(&mut desk).await);
    assert!(!told.all_committed && told.text.contains("not confirmed yet"));
    desk.send(save(1, &told, DeliveryChange::Offered { attached: false })).unwrap();
    assert_eq!(next(&mut desk).await, WorkEvent::Saved { save: SaveId(1) });
    assert_eq!(finished(next(&mut desk).await).0, OperationStatus::Committed);
    assert!(ready(next(&mut desk).await).all_committed);
    assert_eq!(tool.calls(), 1, "nothing was sent again");
    silent(&mut desk).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_an_opaque_tool_stays_unknown_and_is_never_sent_again() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([Script::Hang]);
    let executor = start(&store, vec![tool.registered("pay", EffectClass::Opaque)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "pay", json!({}))).unwrap();
    desk.send(seal(1)).unwrap();
    admitted(next(&mut desk).await);
    assert_eq!(finished(next(&mut desk).await).0, OperationStatus::Unknown);
    ready(next(&mut desk).await);
    silent(&mut desk).await;
    silent(&mut desk).await;
    assert_eq!(tool.calls(), 1);
    assert_eq!(executor.counts().unknown, 1);
}

#[tokio::test(start_paused = true)]
async fn an_effect_proven_absent_is_tried_again() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([unclear(), commits("B-7")]).looking_up([LookUp::Absent, LookUp::Absent]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Lookup)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    admitted(next(&mut desk).await);
    assert_eq!(finished(next(&mut desk).await).0, OperationStatus::Unknown);
    assert_eq!(finished(next(&mut desk).await).0, OperationStatus::Committed);
    assert_eq!((tool.calls(), tool.look_ups()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn the_limits_of_a_tool_hold_and_what_does_not_fit_is_refused() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering((0..5).map(|n| after(1_000, commits(&n.to_string()))));
    let mut registered = tool.registered("book", EffectClass::Keyed);
    registered.contract.max_running = 2;
    registered.contract.max_queued = 3;
    let executor = start(&store, vec![registered]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    for n in 1..=6 {
        desk.send(propose(n, 1, "book", json!({ "n": n }))).unwrap();
    }
    let mut refused = 0;
    let mut done = 0;
    while done < 5 {
        match next(&mut desk).await {
            WorkEvent::Refused { refusal, .. } => {
                assert_eq!(refusal.code, "queue_full");
                refused += 1;
            }
            WorkEvent::Finished { status, .. } => {
                assert_eq!(status, OperationStatus::Committed);
                done += 1;
            }
            WorkEvent::Admitted { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((refused, tool.most_at_once()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_after_the_call_and_waits_for_the_verified_caller() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([after(1_500, commits("B-7"))]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    admitted(next(&mut desk).await);
    desk.close(SessionEnd::CallEnded).await;
    assert_eq!(executor.counts().sessions, 0);
    // Virtual time: the work ends with nobody there.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut stranger = executor.open_session(opening("CA2", "+1", false)).await.unwrap();
    silent(&mut stranger).await;
    stranger.close(SessionEnd::CallEnded).await;
    let mut again = executor.open_session(opening("CA3", "+1", true)).await.unwrap();
    let brief = ready(next(&mut again).await);
    assert!(brief.from_earlier_call);
    assert_eq!(brief.state, DeliveryState::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_desk_is_a_lost_stream_and_the_same_call_resumes_it() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([after(1_000, commits("B-7"))]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "anonymous:CA1", false)).await.unwrap();
    let session = desk.session.clone();
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    let operation = admitted(next(&mut desk).await);
    drop(desk);
    // Virtual time: the work ends with nobody there.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut desk = executor.open_session(opening("CA1", "anonymous:CA1", false)).await.unwrap();
    assert!(desk.resumed);
    assert_eq!(desk.session, session);
    let brief = ready(next(&mut desk).await);
    assert_eq!((brief.operations, brief.from_earlier_call), (vec![operation], false));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_over_is_not_resumed_and_its_news_waits_for_the_next_one() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([after(1_000, commits("B-7"))]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    let (first, epoch) = (desk.session.clone(), desk.epoch);
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    admitted(next(&mut desk).await);
    desk.close(SessionEnd::StreamLost).await;
    executor.end_call(&CallSid::new("CA1"), Some(epoch)).await.unwrap();
    // Virtual time: the work ends with nobody there.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    assert!(!desk.resumed && desk.session != first);
    assert!(ready(next(&mut desk).await).from_earlier_call);
}

#[tokio::test(start_paused = true)]
async fn a_second_stream_of_a_call_shuts_out_the_first() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([commits("B-7")]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut old = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    let mut new = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    assert_eq!(old.next().await, None);
    assert_eq!(old.send(seal(1)), Err(DeskFull::Closed));
    old.close(SessionEnd::CallEnded).await;
    new.send(propose(1, 1, "book", json!({}))).unwrap();
    admitted(next(&mut new).await);
    assert_eq!(executor.counts().sessions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_mailbox_is_only_late() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering((0..8).map(|n| after(1_000, commits(&n.to_string()))));
    let mut registered = tool.registered("book", EffectClass::Keyed);
    registered.contract.max_running = 8;
    let config = ExecutorConfig { desk_events: 1, ..ExecutorConfig::default() };
    let executor = start_with(&store, vec![registered], config).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    for n in 1..=8 {
        desk.send(propose(n, n, "book", json!({ "n": n }))).unwrap();
        desk.send(seal(n)).unwrap();
        admitted(next(&mut desk).await);
    }
    // All of it finishes while nobody reads.
    // Virtual time: the work ends with nobody there.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (mut done, mut deliveries) = (0, 0);
    while deliveries < 8 || done < 8 {
        match next(&mut desk).await {
            WorkEvent::Finished { .. } => done += 1,
            WorkEvent::DeliveryReady(_) => deliveries += 1,
            other => panic!("{other:?}"),
        }
    }
    silent(&mut desk).await;
    assert_eq!((done, deliveries), (8, 8));
}

#[tokio::test(start_paused = true)]
async fn too_many_commands_are_refused_at_the_door() {
    let store = Arc::new(MemoryStore::new());
    let config = ExecutorConfig { desk_commands: 2, ..ExecutorConfig::default() };
    let executor = start_with(&store, vec![], config).await;
    let desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    assert_eq!(desk.send(seal(1)), Ok(()));
    assert_eq!(desk.send(seal(2)), Ok(()));
    assert_eq!(desk.send(seal(3)), Err(DeskFull::Full));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_is_heard_once_and_then_no_change_is_taken() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([commits("B-7")]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    desk.send(seal(1)).unwrap();
    admitted(next(&mut desk).await);
    finished(next(&mut desk).await);
    let brief = ready(next(&mut desk).await);
    let heard = DeliveryChange::Heard { heard: AudioMs(1_200) };
    desk.send(save(1, &brief, heard.clone())).unwrap();
    desk.send(save(2, &brief, DeliveryChange::Offered { attached: true })).unwrap();
    desk.send(save(3, &brief, heard.clone())).unwrap();
    desk.send(save(4, &brief, heard)).unwrap();
    assert!(matches!(next(&mut desk).await, WorkEvent::SaveRefused { save: SaveId(1), .. }));
    assert_eq!(next(&mut desk).await, WorkEvent::Saved { save: SaveId(2) });
    assert_eq!(next(&mut desk).await, WorkEvent::Saved { save: SaveId(3) });
    assert!(matches!(next(&mut desk).await, WorkEvent::SaveRefused { save: SaveId(4), .. }));
    let session = desk.session.clone();
    desk.close(SessionEnd::CallEnded).await;
    let history = executor.history(Scope::Session(session)).await.unwrap();
    assert_eq!(history.deliveries().map(|d| d.state).collect::<Vec<_>>(), [DeliveryState::Heard]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_work_finish_and_takes_no_more() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([after(1_000, commits("B-7"))]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    admitted(next(&mut desk).await);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(executor.stop(Duration::from_secs(5)).await, StopReport { finished: 1, cut_off: 0 });
    assert_eq!(finished(next(&mut desk).await).0, OperationStatus::Committed);
    desk.send(propose(2, 2, "book", json!({"n": 2}))).unwrap();
    assert!(matches!(next(&mut desk).await, WorkEvent::Refused { refusal, .. } if refusal.code == "stopping"));
}

#[tokio::test(start_paused = true)]
async fn what_a_stop_cuts_off_is_recovered_by_the_next_start() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([Script::Hang, commits("B-7")]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    admitted(next(&mut desk).await);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(executor.stop(Duration::from_millis(10)).await, StopReport { finished: 0, cut_off: 1 });
    // As a dead process would: without a word.
    std::mem::forget(desk);
    let next_life = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    assert_eq!((next_life.recovered().to_retry, next_life.recovered().sessions_lost), (1, 1));
    let mut desk = next_life.open_session(opening("CA1", "+1", true)).await.unwrap();
    assert!(desk.resumed);
    let mut delivered = None;
    while delivered.is_none() {
        if let WorkEvent::DeliveryReady(brief) = next(&mut desk).await {
            delivered = Some(brief);
        }
    }
    assert!(delivered.unwrap().all_committed);
    let requests = tool.requests();
    assert_eq!((requests.len(), requests[0].key == requests[1].key), (2, true));
}

#[tokio::test(start_paused = true)]
async fn one_slow_tool_does_not_hold_up_another() {
    let store = Arc::new(MemoryStore::new());
    let slow = FakeTool::answering([Script::Hang, Script::Hang]);
    let quick = FakeTool::answering([commits("quick")]);
    let mut slow_tool = slow.registered("slow", EffectClass::Opaque);
    slow_tool.contract.max_running = 1;
    let tools = vec![slow_tool, quick.registered("quick", EffectClass::Keyed)];
    let config = ExecutorConfig { max_running: 2, ..ExecutorConfig::default() };
    let executor = start_with(&store, tools, config).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "slow", json!({"n": 1}))).unwrap();
    desk.send(propose(2, 1, "slow", json!({"n": 2}))).unwrap();
    desk.send(propose(3, 1, "quick", json!({}))).unwrap();
    for _ in 0..3 {
        admitted(next(&mut desk).await);
    }
    assert!(finished(next(&mut desk).await).1.contains("quick"));
}

#[tokio::test(start_paused = true)]
async fn a_caller_can_be_read_back_with_every_attempt() {
    let store = Arc::new(MemoryStore::new());
    let tool = FakeTool::answering([retryable(), commits("B-7")]);
    let executor = start(&store, vec![tool.registered("book", EffectClass::Keyed)]).await;
    let mut desk = executor.open_session(opening("CA1", "+1", true)).await.unwrap();
    desk.send(propose(1, 1, "book", json!({}))).unwrap();
    admitted(next(&mut desk).await);
    finished(next(&mut desk).await);
    let history = executor.history(Scope::Caller(CallerId::new("+1"))).await.unwrap();
    let one = history.operations().next().unwrap();
    assert_eq!(one.attempts.len(), 2);
    let operation = &one.operation;
    assert!(operation.tool_requested_at <= operation.action_admitted_at);
    assert!(operation.effect_committed_at.unwrap() <= operation.result_observed_at.unwrap());
    assert!(serde_json::to_value(&history).is_ok());
    assert_eq!(tool.requests()[0].arguments, json!({}));
}
