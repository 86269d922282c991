//! Asks the system of record about outcomes that nobody knows. A question changes nothing, so it needs no deadline; a
//! refusal met while asking proves nothing.

use crate::workers::tool_request;
use crate::{Shared, crash_point, measure, persist};
use operations::store::{FinishLookUp, Finished};
use operations::{LookUpAnswer, Operation};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;
use tools::{LookUp, Tool, ToolRequest};
use tracing::{Instrument, error, info, warn};

pub(crate) async fn run(shared: &Arc<Shared>, operation: Operation) {
    let clock = &shared.config.clock;
    let answer = match (shared.tools.get(&operation.tool), shared.catalog.contract(&operation.tool)) {
        (Some(tool), Some(contract)) => {
            let timeout = Duration::from_millis(contract.attempt_timeout_ms);
            let request = tool_request(&operation, operation.attempts, timeout);
            ask(tool.clone(), request, timeout + Duration::from_millis(shared.config.overrun_ms)).await
        }
        // The tool has left the configuration: a person has to settle it, or a start that knows it again.
        (None, _) | (_, None) => LookUpAnswer::CannotAsk,
    };
    crash_point("after_look_up");
    let random = shared.config.entropy.random();
    let finish = || {
        shared.store.finish_look_up(FinishLookUp {
            operation: operation.id.clone(),
            fence: operation.fence,
            answer: answer.clone(),
            rule: shared.config.reconcile,
            now: clock.now(),
            random,
        })
    };
    match persist(None, finish).await {
        Ok(Finished::Recorded(settled)) => {
            info!(status = settled.operation.status.as_str(), "look-up finished");
            if settled.operation.status.is_terminal() {
                measure::settled(&settled, clock.now());
                shared.sessions.tell(*settled);
            }
        }
        Ok(Finished::Stale) => warn!("a late look-up under an old fence was dropped"),
        Err(error) => error!(%error, "a look-up could not be recorded; the next start asks again"),
    }
}

async fn ask(tool: Arc<dyn Tool>, request: ToolRequest, limit: Duration) -> LookUpAnswer {
    let running = async move {
        match tool.look_up(request) {
            Some(asking) => Some(asking.await),
            None => None,
        }
    };
    let running = AbortOnDropHandle::new(tokio::spawn(running.in_current_span()));
    match tokio::time::timeout(limit, running).await {
        Ok(Ok(Some(LookUp::Found { result, provider_ref }))) => LookUpAnswer::Found { result, provider_ref },
        Ok(Ok(Some(LookUp::Absent))) => LookUpAnswer::Absent,
        Ok(Ok(Some(LookUp::Unanswered { reason }))) => LookUpAnswer::Unanswered { reason },
        Ok(Ok(None)) => LookUpAnswer::CannotAsk,
        Ok(Err(ended)) => {
            error!(error = %ended, "the tool broke down while it was asked");
            LookUpAnswer::Unanswered { reason: "the tool broke down".into() }
        }
        Err(_) => {
            warn!("the look-up gave no answer in time");
            LookUpAnswer::Unanswered { reason: "no answer in time".into() }
        }
    }
}
