//! Takes due work from the store and runs it. One dispatcher claims; each attempt is a task of its own, bounded by the
//! tool's and the executor's limits.

use crate::{Shared, StopReport, crash_point, measure, persist, reconcile};
use operations::store::{Claim, FinishAttempt, Finished, MarkSent, MarkedSent, StoreError};
use operations::{AttemptAnswer, Operation};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use tools::{Tool, ToolOutcome, ToolRequest};
use tracing::{Instrument, error, info, info_span, warn};
use vocab::ToolName;

/// Without any event the store is looked at this often.
const IDLE: Duration = Duration::from_secs(60);

/// Running attempts by tool, and look-ups under no name.
#[derive(Default)]
struct Slots {
    requests: BTreeMap<ToolName, u32>,
    look_ups: u32,
}

/// Holds a place until it is dropped, however the task ends.
struct Place {
    shared: Arc<Shared>,
    slots: Arc<Mutex<Slots>>,
    tool: Option<ToolName>,
}

impl Place {
    fn take(shared: &Arc<Shared>, slots: &Arc<Mutex<Slots>>, tool: Option<ToolName>) -> Self {
        {
            let mut taken = slots.lock().unwrap_or_else(PoisonError::into_inner);
            match &tool {
                Some(tool) => *taken.requests.entry(tool.clone()).or_default() += 1,
                None => taken.look_ups += 1,
            }
        }
        shared.running.fetch_add(1, Ordering::AcqRel);
        Self { shared: shared.clone(), slots: slots.clone(), tool }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut taken = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            match &self.tool {
                Some(tool) => {
                    if let Some(count) = taken.requests.get_mut(tool) {
                        *count = count.saturating_sub(1);
                    }
                }
                None => taken.look_ups = taken.look_ups.saturating_sub(1),
            }
        }
        self.shared.running.fetch_sub(1, Ordering::AcqRel);
        // A free place, a due retry, a free resource: any of them may let the next one start.
        self.shared.wake.notify_one();
    }
}

pub(crate) async fn dispatch(shared: Arc<Shared>) -> StopReport {
    let slots = Arc::new(Mutex::new(Slots::default()));
    // Dropping the set cuts its tasks off: that is how a stop without patience ends.
    let mut tasks: JoinSet<()> = JoinSet::new();
    let mut turn = 0usize;
    while !shared.stop.is_cancelled() {
        let wait = claim(&shared, &slots, &mut tasks, turn).await;
        turn = turn.wrapping_add(1);
        tokio::select! {
            () = shared.stop.cancelled() => {}
            () = shared.wake.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        while let Some(ended) = tasks.try_join_next() {
            report(ended);
        }
    }
    let finished = tasks.len() as u32;
    while let Some(ended) = tasks.join_next().await {
        report(ended);
    }
    StopReport { finished, cut_off: 0 }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(ended) = ended {
        // Tools panic inside a task of their own; this would be ours.
        error!(error = %ended, "an attempt's task ended badly");
    }
}

/// Claims and starts what there is room for. Returns how long nothing is due.
async fn claim(shared: &Arc<Shared>, slots: &Arc<Mutex<Slots>>, tasks: &mut JoinSet<()>, turn: usize) -> Duration {
    let now = shared.config.clock.now();
    let verb = {
        let taken = slots.lock().unwrap_or_else(PoisonError::into_inner);
        let running: u32 = taken.requests.values().sum();
        let mut free: Vec<(ToolName, u32)> = shared
            .catalog
            .contracts()
            .map(|contract| {
                let busy = taken.requests.get(&contract.name).copied().unwrap_or_default();
                (contract.name.clone(), contract.max_running.saturating_sub(busy))
            })
            .collect();
        // Each tool is first in its turn, or the last ones would starve under the common limit.
        if !free.is_empty() {
            let first = turn % free.len();
            free.rotate_left(first);
        }
        Claim {
            free,
            limit: shared.config.max_running.saturating_sub(running),
            look_ups: shared.config.max_look_ups.saturating_sub(taken.look_ups),
            now,
        }
    };
    let claimed = match shared.store.claim(verb).await {
        Ok(claimed) => claimed,
        Err(error) => {
            error!(%error, "no work can be claimed");
            return if error == StoreError::Closed { IDLE } else { Duration::from_millis(250) };
        }
    };
    shared.waiting.store(claimed.load.waiting, Ordering::Relaxed);
    shared.unknown.store(claimed.load.unknown, Ordering::Relaxed);
    measure::unknown(claimed.load.unknown);
    for settled in claimed.expired {
        info!(operation = %settled.operation.id, tool = %settled.operation.tool,
            status = settled.operation.status.as_str(), "operation closed at its deadline");
        measure::settled(&settled, now);
        shared.sessions.tell(settled);
    }
    for operation in claimed.requests {
        let place = Place::take(shared, slots, Some(operation.tool.clone()));
        let span = info_span!("attempt", session = %operation.session, operation = %operation.id,
            tool = %operation.tool, fence = %operation.fence);
        tasks.spawn(
            async move {
                run(&place.shared, operation).await;
            }
            .instrument(span),
        );
    }
    for operation in claimed.look_ups {
        let place = Place::take(shared, slots, None);
        let span = info_span!("look_up", session = %operation.session, operation = %operation.id,
            tool = %operation.tool, fence = %operation.fence);
        tasks.spawn(
            async move {
                reconcile::run(&place.shared, operation).await;
            }
            .instrument(span),
        );
    }
    match claimed.next_due {
        Some(due) => Duration::from_millis(due.ms_since(shared.config.clock.now())).min(IDLE),
        None => IDLE,
    }
}

/// One attempt: mark, request, outcome.
async fn run(shared: &Arc<Shared>, operation: Operation) {
    let clock = &shared.config.clock;
    let (Some(tool), Some(contract)) = (shared.tools.get(&operation.tool), shared.catalog.contract(&operation.tool))
    else {
        // Only tools of the catalogue are claimed.
        error!("a tool without an implementation was claimed");
        return;
    };
    crash_point("before_sent");
    let mark = || {
        let now = clock.now();
        shared.store.mark_sent(MarkSent { operation: operation.id.clone(), fence: operation.fence, now })
    };
    let attempt = match persist(None, mark).await {
        Ok(MarkedSent::Send(attempt)) => attempt,
        Ok(MarkedSent::TooLate(settled)) => {
            measure::settled(&settled, clock.now());
            shared.sessions.tell(*settled);
            return;
        }
        Ok(MarkedSent::Stale) => {
            warn!("another fence holds the operation; nothing was sent");
            return;
        }
        Err(error) => {
            // Nothing has left; the next start claims it again.
            error!(%error, "the sent mark could not be written; nothing was sent");
            return;
        }
    };
    crash_point("after_sent");
    let sent_at = clock.now();
    measure::sent(&operation, attempt, sent_at);
    let timeout = Duration::from_millis(contract.attempt_timeout_ms.min(operation.deadline_at.ms_since(sent_at)));
    let request = tool_request(&operation, attempt, timeout);
    let limit = timeout + Duration::from_millis(shared.config.overrun_ms);
    let answer = ask(tool.clone(), request, limit).await;
    let answered_at = clock.now();
    crash_point("after_effect");
    if matches!(answer, AttemptAnswer::Unclear { .. }) && answered_at.ms_since(sent_at) >= timeout.as_millis() as u64 {
        measure::timed_out(&operation);
    }
    // The same random number at each try of the write: a repeated verb must be the same verb.
    let random = shared.config.entropy.random();
    let finish = || {
        shared.store.finish_attempt(FinishAttempt {
            operation: operation.id.clone(),
            fence: operation.fence,
            answer: answer.clone(),
            answered_at,
            now: clock.now(),
            random,
        })
    };
    match persist(None, finish).await {
        Ok(Finished::Recorded(settled)) => {
            crash_point("after_outcome");
            if settled.delivery.is_some() {
                crash_point("after_batch_drained");
            }
            info!(status = settled.operation.status.as_str(), attempt, "attempt finished");
            measure::settled(&settled, answered_at);
            shared.sessions.tell(*settled);
        }
        Ok(Finished::Stale) => warn!("a late answer under an old fence was dropped"),
        Err(error) => error!(%error, "an outcome could not be recorded; the next start treats it as lost"),
    }
}

pub(crate) fn tool_request(operation: &Operation, attempt: u32, timeout: Duration) -> ToolRequest {
    ToolRequest {
        operation: operation.id.clone(),
        key: operation.key.clone(),
        session: operation.session.clone(),
        caller: operation.caller.clone(),
        arguments: operation.arguments.clone(),
        attempt,
        timeout,
    }
}

/// Runs the tool in a task of its own: a panic ends that attempt, not the worker. Whatever the way in which no answer
/// came, the request may have had its effect.
async fn ask(tool: Arc<dyn Tool>, request: ToolRequest, limit: Duration) -> AttemptAnswer {
    let attempt = request.attempt;
    // What the tool logs belongs to the attempt.
    let running = async move { tool.run(request).await }.in_current_span();
    let running = AbortOnDropHandle::new(tokio::spawn(running));
    match tokio::time::timeout(limit, running).await {
        Ok(Ok(ToolOutcome::Committed { result, provider_ref })) => AttemptAnswer::Committed { result, provider_ref },
        Ok(Ok(ToolOutcome::Refused { result })) => AttemptAnswer::Refused { result },
        Ok(Ok(ToolOutcome::Retryable { reason })) => AttemptAnswer::Retryable { reason },
        Ok(Ok(ToolOutcome::Unclear { reason })) => AttemptAnswer::Unclear { reason },
        Ok(Err(ended)) => {
            error!(error = %ended, "the tool broke down");
            AttemptAnswer::Unclear { reason: "the tool broke down".into() }
        }
        Err(_) => {
            warn!(attempt, "the tool gave no answer in time");
            AttemptAnswer::Unclear { reason: "no answer in time".into() }
        }
    }
}
