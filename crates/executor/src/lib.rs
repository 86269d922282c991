//! The operation executor: admits what calls propose, runs it against the systems of record, settles what became
//! unknown, and tells each session what is ready to be said.
//!
//! What is absent here on purpose: any decision about speech. A finished operation makes a delivery; the conversation
//! decides when it can be heard. Nothing here is cancelled by an interruption, a hang-up or a lost stream.
//!
//! Order of truth: the store first, then the mailbox. An event that a mailbox misses is only late, never lost:
//! deliveries stay ready in the store.

mod clock;
mod crash;
mod desk;
mod entropy;
mod measure;
mod reconcile;
mod recovery;
mod sessions;
mod workers;

pub use clock::Clock;
pub use crash::{CRASH_AT, CRASH_POINTS, Died, crash_point, on_crash_point};
pub use desk::{DeskFull, SessionDesk, SessionOpening};
pub use entropy::Entropy;
pub use operations::SessionEnd;

use desk::DESK_TRIES;
use operations::admission::{ContractError, ToolCatalog};
use operations::contract::ToolContract;
use operations::history::{History, Scope};
use operations::retry::ReconcileRule;
use operations::rows::Load;
use operations::store::{EndCall, RecoveryReport, Store, StoreError};
use serde::Serialize;
use sessions::Sessions;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tools::Tool;
use vocab::{CallSid, ToolName};

/// A tool with its contract, ready to be offered to agents.
#[derive(Clone)]
pub struct RegisteredTool {
    pub contract: ToolContract,
    pub tool: Arc<dyn Tool>,
}

#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// Requests to systems of record at once, over all tools. The rest wait in the store.
    pub max_running: u32,
    /// Questions about unknown outcomes at once.
    pub max_look_ups: u32,
    pub reconcile: ReconcileRule,
    /// Commands that one session may have waiting; the next `send` is refused.
    pub desk_commands: usize,
    /// Events that one session may have waiting; beyond it the desk waits and re-reads the store later.
    pub desk_events: usize,
    /// A tool that outlives its own timeout by this much is cut off and its answer counts as lost, in milliseconds.
    pub overrun_ms: u64,
    pub clock: Clock,
    pub entropy: Entropy,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self {
            max_running: 64,
            max_look_ups: 8,
            reconcile: ReconcileRule::default(),
            desk_commands: 128,
            desk_events: 256,
            // Enough for a tool to turn its own time-out into an answer that says more than ours.
            overrun_ms: 500,
            clock: Clock::System,
            entropy: Entropy::System,
        }
    }
}

/// The executor could not start.
#[derive(Debug, Error)]
pub enum ExecutorError {
    #[error(transparent)]
    Contract(#[from] ContractError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a stop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StopReport {
    /// Attempts that ended within the grace.
    pub finished: u32,
    /// Attempts that were cut off. The next start treats them as after a crash.
    pub cut_off: u32,
}

/// A look at the work, for readiness and metrics. The store's figures are those of the latest claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct ExecutorCounts {
    pub sessions: u32,
    /// Attempts and look-ups that run in this process.
    pub running: u32,
    pub waiting: u32,
    pub unknown: u32,
    pub stopping: bool,
}

/// What every task of the executor shares.
struct Shared {
    store: Arc<dyn Store>,
    catalog: ToolCatalog,
    tools: BTreeMap<ToolName, Arc<dyn Tool>>,
    config: ExecutorConfig,
    sessions: Sessions,
    /// Something may have become claimable.
    wake: Notify,
    stop: CancellationToken,
    running: AtomicU32,
    waiting: AtomicU32,
    unknown: AtomicU32,
}

pub struct Executor {
    shared: Arc<Shared>,
    dispatcher: Mutex<Option<JoinHandle<StopReport>>>,
    recovered: RecoveryReport,
}

impl Executor {
    /// Compiles the contracts, recovers what a dead process left, and starts to work. The store must belong to this
    /// process alone.
    pub async fn start(
        store: Arc<dyn Store>,
        tools: Vec<RegisteredTool>,
        config: ExecutorConfig,
    ) -> Result<Self, ExecutorError> {
        let catalog = ToolCatalog::compile(tools.iter().map(|tool| tool.contract.clone()).collect())?;
        let tools = tools.into_iter().map(|tool| (tool.contract.name, tool.tool)).collect();
        measure::describe();
        let recovered = recovery::recover(store.as_ref(), &config.clock).await?;
        let shared = Arc::new(Shared {
            store,
            catalog,
            tools,
            config,
            sessions: Sessions::default(),
            wake: Notify::new(),
            stop: CancellationToken::new(),
            running: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            unknown: AtomicU32::new(0),
        });
        let dispatcher = tokio::spawn(workers::dispatch(shared.clone()));
        Ok(Self { shared, dispatcher: Mutex::new(Some(dispatcher)), recovered })
    }

    /// What the start found.
    pub fn recovered(&self) -> &RecoveryReport {
        &self.recovered
    }

    /// A stream of a call has started. A call whose session has not ended keeps its session; an older stream of it is
    /// shut out. What waits for this caller comes as the first events.
    pub async fn open_session(&self, opening: SessionOpening) -> Result<SessionDesk, ExecutorError> {
        Ok(desk::open(self.shared.clone(), opening).await?)
    }

    /// The carrier says that the call is over: its session is not taken up again, and its news wait for the caller's next
    /// call. With `unless_after`, only if no stream came after the one of that epoch.
    pub async fn end_call(&self, call_sid: &CallSid, unless_after: Option<u32>) -> Result<(), StoreError> {
        let verb = EndCall { call_sid: call_sid.clone(), unless_after, now: self.shared.config.clock.now() };
        for delivery in persist(DESK_TRIES, || self.shared.store.end_call(verb.clone())).await? {
            self.shared.sessions.tell_ready(delivery);
        }
        Ok(())
    }

    /// Stops claiming and admitting, and lets what runs finish within `grace`. Sessions can still save deliveries.
    pub async fn stop(&self, grace: Duration) -> StopReport {
        self.shared.stop.cancel();
        let dispatcher = self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut dispatcher) = dispatcher else { return StopReport { finished: 0, cut_off: 0 } };
        let running = self.shared.running.load(Ordering::Acquire);
        // The dispatcher waits for its attempts; after the grace they are cut off by dropping it.
        match tokio::time::timeout(grace, &mut dispatcher).await {
            Ok(Ok(report)) => report,
            Ok(Err(_)) | Err(_) => {
                let cut_off = self.shared.running.load(Ordering::Acquire);
                dispatcher.abort();
                let _ = dispatcher.await;
                StopReport { finished: running.saturating_sub(cut_off), cut_off }
            }
        }
    }

    pub fn counts(&self) -> ExecutorCounts {
        ExecutorCounts {
            sessions: self.shared.sessions.len(),
            running: self.shared.running.load(Ordering::Acquire),
            waiting: self.shared.waiting.load(Ordering::Relaxed),
            unknown: self.shared.unknown.load(Ordering::Relaxed),
            stopping: self.shared.stop.is_cancelled(),
        }
    }

    /// Everything the store knows of a session or caller: operations with their attempts, deliveries, audit rows.
    pub async fn history(&self, scope: Scope) -> Result<History, StoreError> {
        self.shared.store.history(scope).await
    }

    /// Whether the store answers, and what is in it: for readiness.
    pub async fn ping(&self) -> Result<Load, StoreError> {
        self.shared.store.load().await
    }

    pub fn contracts(&self) -> impl Iterator<Item = &ToolContract> {
        self.shared.catalog.contracts()
    }
}

impl Drop for Executor {
    /// Without a [`Executor::stop`] before: claims no more and lets what runs finish.
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// Repeats a write while the store says that it may pass, for at most `tries`; `None` repeats until it is done. Every
/// verb is safe to repeat under the same fence and ids.
async fn persist<T, F>(tries: Option<u32>, mut write: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut failures = 0u32;
    loop {
        match write().await {
            Ok(reply) => return Ok(reply),
            Err(error) if error.may_pass() && tries.is_none_or(|tries| failures + 1 < tries) => {
                tracing::warn!(%error, failures, "the store did not take a write; trying again");
                // 20 ms doubling to 1.28 s: a disk that hangs is not helped by more writes.
                tokio::time::sleep(Duration::from_millis(20 << failures.min(6))).await;
                failures += 1;
            }
            Err(error) => return Err(error),
        }
    }
}
