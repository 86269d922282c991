//! The process is killed at each named point with SQLite on disk, and started again. The system of record counts
//! effects in a file of its own; the second life must find one effect for the intent and one delivery to be heard.
//!
//! The test runs itself as the child: `cargo test` never runs the child part by itself.

use executor::*;
use operations::contract::{DeliveryRule, RetryRule, ToolContract};
use operations::history::Scope;
use operations::{SessionEnd, Store};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;
use store::SqliteStore;
use tools::{BoxFuture, LookUp, Tool, ToolOutcome, ToolRequest};
use vocab::delivery::{DeliveryBrief, DeliveryChange, DeliveryState};
use vocab::effect::{EffectClass, OperationStatus, Priority};
use vocab::work::{Proposal, WorkCommand, WorkEvent};
use vocab::{AgentId, AudioMs, CallSid, CallerId, ProviderCallId, ResponseId, SaveId, StreamSid, ToolCallId, ToolName};

const DIRECTORY: &str = "ANSWERBACK_CRASH_TEST_DIRECTORY";
const EFFECT: &str = "ANSWERBACK_CRASH_TEST_EFFECT";

/// A system of record that honours idempotency keys: one line for each effect, however often the key comes.
struct Ledger {
    file: PathBuf,
    effect: EffectClass,
}

fn effects(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

impl Tool for Ledger {
    fn run(&self, request: ToolRequest) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let known = effects(&self.file).contains(&request.key.0);
            // Only a keyed backend looks at the key; any other one does it again.
            if !(known && self.effect == EffectClass::Keyed) {
                let mut file = OpenOptions::new().create(true).append(true).open(&self.file).unwrap();
                writeln!(file, "{}", request.key).unwrap();
                file.sync_all().unwrap();
            }
            ToolOutcome::Committed { result: json!({"reference": "B-7"}), provider_ref: None }
        })
    }

    fn look_up(&self, request: ToolRequest) -> Option<BoxFuture<'_, LookUp>> {
        Some(Box::pin(async move {
            if effects(&self.file).contains(&request.key.0) {
                LookUp::Found { result: json!({"reference": "B-7"}), provider_ref: None }
            } else {
                LookUp::Absent
            }
        }))
    }
}

fn contract(effect: EffectClass) -> ToolContract {
    ToolContract {
        name: ToolName::new("book"),
        description: String::new(),
        parameters: json!({"type": "object"}),
        effect,
        intent_fields: vec![],
        resource: Some("table".into()),
        deadline_ms: 60_000,
        attempt_timeout_ms: 5_000,
        retry: RetryRule { max_attempts: 5, base_ms: 10, cap_ms: 50 },
        inline_wait_ms: 700,
        max_running: 4,
        max_queued: 4,
        delivery: DeliveryRule { priority: Priority::Normal, quiet_ms: None, stale_after_ms: None },
    }
}

fn opening() -> SessionOpening {
    SessionOpening {
        call_sid: CallSid::new("CA1"),
        stream_sid: StreamSid::new("MZ1"),
        caller: CallerId::new("+1"),
        caller_verified: true,
        agent: AgentId::new("host"),
        tools: vec![ToolName::new("book")],
    }
}

/// One life: propose the same booking, hear its delivery out, leave.
#[tokio::test]
#[ignore = "one life of the process that the other tests start and kill"]
async fn one_life() {
    let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let effect = serde_json::from_value(json!(std::env::var(EFFECT).unwrap())).unwrap();
    let store = Arc::new(SqliteStore::open(&directory.join("store")).await.unwrap());
    let tool = Arc::new(Ledger { file: directory.join("effects"), effect });
    let tools = vec![RegisteredTool { contract: contract(effect), tool }];
    let mut config = ExecutorConfig::default();
    config.reconcile.settle_ms = 100;
    let executor = Executor::start(store.clone(), tools, config).await.unwrap();
    let mut desk = executor.open_session(opening()).await.unwrap();
    // In a second life the model, whose memory is gone too, asks for the same thing again.
    desk.send(WorkCommand::Propose(Proposal {
        tool_call: ToolCallId(1),
        provider_call: ProviderCallId(format!("call_{}", std::process::id())),
        tool: "book".into(),
        arguments: json!({"time": "20:00"}).to_string(),
        turn: None,
        response: ResponseId(1),
    }))
    .unwrap();
    desk.send(WorkCommand::SealBatch { response: ResponseId(1) }).unwrap();
    let mut save = SaveId(0);
    let mut told: Option<DeliveryBrief> = None;
    let listening = async {
        loop {
            match desk.next().await.unwrap() {
                WorkEvent::DeliveryReady(brief) => {
                    // A later one replaces what has not been offered yet.
                    save = save.next();
                    let change = DeliveryChange::Offered { attached: false };
                    desk.send(WorkCommand::SaveDelivery { save, delivery: brief.delivery.clone(), change }).unwrap();
                    told = Some(brief);
                }
                WorkEvent::Saved { save: SaveId(n) } if n == save.0 => {
                    let brief = told.take().unwrap();
                    let change = DeliveryChange::Heard { heard: AudioMs(900) };
                    let save = SaveId(100 + n);
                    desk.send(WorkCommand::SaveDelivery { save, delivery: brief.delivery, change }).unwrap();
                    if brief.all_committed {
                        break;
                    }
                }
                WorkEvent::Admitted { result: Some(_), .. } => {
                    // Already known when it was asked again; whether it was heard is in the store.
                    if executor
                        .history(Scope::Caller(CallerId::new("+1")))
                        .await
                        .unwrap()
                        .deliveries()
                        .any(|d| d.state == DeliveryState::Heard)
                    {
                        break;
                    }
                }
                WorkEvent::Refused { refusal, .. } => panic!("{refusal:?}"),
                WorkEvent::Admitted { .. }
                | WorkEvent::Finished { .. }
                | WorkEvent::Saved { .. }
                | WorkEvent::SaveRefused { .. }
                | WorkEvent::SaveFailed { .. } => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), listening).await.expect("the delivery comes");
    desk.close(SessionEnd::CallEnded).await;
    executor.stop(Duration::from_secs(5)).await;
    store.close().await;
}

fn live(directory: &Path, effect: &str, crash_at: Option<&str>) -> Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["one_life", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    child.env(DIRECTORY, directory).env(EFFECT, effect).env_remove(CRASH_AT);
    if let Some(point) = crash_at {
        child.env(CRASH_AT, point);
    }
    child.output().unwrap()
}

fn words(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

struct TestDir(PathBuf);

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Dies at each of `points` in its turn, lives once more, and asks the record and the store what is true.
async fn survives(effect: &str, points: &[&str], offered_before: bool) {
    let point = points.join("+");
    let name = format!("answerback-crash-{}-{effect}-{point}", std::process::id());
    let directory = TestDir(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&directory.0).unwrap();
    for point in points {
        let dead = live(&directory.0, effect, Some(point));
        assert!(!dead.status.success(), "it lived through {point}: {}", words(&dead));
        // An abort ends the process by a signal; a failed assertion would end it with a code.
        assert_eq!(dead.status.code(), None, "{point}: {}", words(&dead));
    }
    let last = live(&directory.0, effect, None);
    assert!(last.status.success(), "{point}: {}", words(&last));

    assert_eq!(effects(&directory.0.join("effects")).len(), 1, "{effect} {point}: one intent, one effect");
    let store = SqliteStore::open(&directory.0.join("store")).await.unwrap();
    let history = store.history(Scope::Caller(CallerId::new("+1"))).await.unwrap();
    store.close().await;
    assert_eq!(history.sessions.len(), 1, "{point}: the call was resumed");
    let operations: Vec<_> = history.operations().collect();
    assert_eq!(operations.len(), 1, "{point}");
    assert_eq!(operations[0].operation.status, OperationStatus::Committed, "{point}");
    let telling: Vec<_> =
        history.deliveries().filter(|d| d.all_committed && d.state != DeliveryState::Superseded).collect();
    assert_eq!(telling.len(), 1, "{effect} {point}: one completion: {telling:?}");
    assert_eq!(telling[0].state, DeliveryState::Heard, "{point}");
    assert_eq!(telling[0].was_uncertain, offered_before, "{point}");
}

#[tokio::test]
async fn a_keyed_effect_survives_a_kill_at_every_point() {
    for point in ["after_admit", "before_sent", "after_sent", "after_effect", "after_outcome", "after_batch_drained"] {
        survives("keyed", &[point], false).await;
    }
    survives("keyed", &["after_offered"], true).await;
}

#[tokio::test]
async fn an_effect_that_can_be_looked_up_survives_a_kill_at_every_point() {
    for point in ["after_admit", "before_sent", "after_sent", "after_effect", "after_outcome"] {
        survives("lookup", &[point], false).await;
    }
}

#[tokio::test]
async fn a_second_kill_during_recovery_changes_nothing() {
    survives("keyed", &["after_effect", "after_effect"], false).await;
    survives("lookup", &["after_effect", "after_look_up"], false).await;
}

#[tokio::test]
async fn what_was_heard_before_a_kill_is_not_told_again() {
    survives("keyed", &["after_heard"], false).await;
}
