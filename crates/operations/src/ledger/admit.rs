use super::{audit_batch, audit_row, drain_if_done, live_session, put_moved};
use crate::admission::RefusalReason;
use crate::attempt::Fence;
use crate::audit::{AuditKind, AuditRow};
use crate::batch::{Batch, BatchState};
use crate::delivery::Delivery;
use crate::operation::Operation;
use crate::recovery::may_change;
use crate::rows::Rows;
use crate::store::{Admission, Admit, SealBatch, StoreError};
use vocab::effect::{EffectClass, OperationStatus};

/// Occurrences of one intent in one session. A model that asks for more than this is in a circle.
const MAX_OCCURRENCES: u32 = 100;

/// Whether a second request is answered from this operation. A mutation attaches while it is live and after it
/// committed; one that came to nothing may be tried again, as a new operation under a new key. A read attaches only
/// while it is live: what it found then may be stale now.
const fn attaches(operation: &Operation) -> bool {
    match operation.status {
        OperationStatus::Admitted
        | OperationStatus::Running
        | OperationStatus::FailedRetryable
        | OperationStatus::Unknown => true,
        OperationStatus::Committed => match operation.effect {
            EffectClass::Read => false,
            EffectClass::Keyed | EffectClass::Lookup | EffectClass::Opaque => true,
        },
        OperationStatus::FailedFinal | OperationStatus::Cancelled => false,
    }
}

/// Creates the operation once, attaches to the one that is there, or refuses. A refusal changes nothing.
pub async fn admit(rows: &mut dyn Rows, ask: &Admit) -> Result<Admission, StoreError> {
    let checked = &ask.checked;
    let contract = &checked.contract;
    if live_session(rows, &ask.session, ask.epoch).await?.is_none() {
        return Ok(Admission::Refused(RefusalReason::SessionClosed));
    }

    let mut occurrence = 0;
    let key = loop {
        let key = checked.intent.key(occurrence);
        match rows.operation_by_key(&key).await? {
            None => break key,
            Some(there) if attaches(&there) => {
                rows.put_provider_call(&ask.session, &ask.provider_call, &there.id).await?;
                let row = AuditRow {
                    session: Some(ask.session.clone()),
                    operation: Some(there.id.clone()),
                    to: Some(there.status.as_str().into()),
                    detail: Some(ask.provider_call.0.clone()),
                    ..audit_row(ask.now, AuditKind::OperationAttached)
                };
                rows.append_audit(&row).await?;
                return Ok(Admission::Attached(there));
            }
            Some(_) => occurrence += 1,
        }
        if occurrence >= MAX_OCCURRENCES {
            return Ok(Admission::Refused(RefusalReason::QueueFull));
        }
    };

    if ask.now >= checked.deadline_at {
        return Ok(Admission::Refused(RefusalReason::DeadlineUnreachable));
    }
    let load = rows.load(Some(&contract.name)).await?;
    // Those that wait for a free slot and those that run share one bound.
    if load.waiting + load.running >= contract.max_running.saturating_add(contract.max_queued) {
        return Ok(Admission::Refused(RefusalReason::QueueFull));
    }
    let batch = match rows.batch_of_response(&ask.session, ask.epoch, ask.response).await? {
        Some(batch) if batch.state == BatchState::Open => batch,
        Some(_) => return Ok(Admission::Refused(RefusalReason::BatchSealed)),
        None => {
            let batch = Batch {
                id: ask.batch.clone(),
                session: ask.session.clone(),
                session_epoch: ask.epoch,
                response: ask.response,
                state: BatchState::Open,
                deliveries: 0,
                opened_at: ask.now,
                drained_at: None,
            };
            rows.put_batch(&batch).await?;
            batch
        }
    };
    let operation = Operation {
        id: ask.operation.clone(),
        session: ask.session.clone(),
        caller: ask.caller.clone(),
        agent: ask.agent.clone(),
        tool: contract.name.clone(),
        effect: contract.effect,
        batch: batch.id,
        turn: ask.turn,
        provider_call: ask.provider_call.clone(),
        key,
        fingerprint: checked.intent.fingerprint.clone(),
        arguments: checked.arguments.clone(),
        // Reads hold nothing: only mutations run one after another.
        resource: checked.resource.clone().filter(|_| may_change(contract.effect)),
        status: OperationStatus::Admitted,
        reason: None,
        version: 1,
        fence: Fence(0),
        attempts: 0,
        retry: contract.retry,
        may_have_acted: false,
        next_due_at: Some(ask.now),
        deadline_at: checked.deadline_at,
        unknown_since: None,
        look_ups: 0,
        told: None,
        delivery: contract.delivery.clone(),
        result: None,
        provider_ref: None,
        tool_requested_at: ask.requested_at,
        action_admitted_at: ask.now,
        effect_committed_at: None,
        result_observed_at: None,
    };
    put_moved(rows, &operation, None, ask.now).await?;
    rows.put_provider_call(&ask.session, &ask.provider_call, &operation.id).await?;
    Ok(Admission::Created(operation))
}

/// No more tool calls come from this response. Without an admitted member there is no batch and nothing to tell.
pub async fn seal_batch(rows: &mut dyn Rows, ask: &SealBatch) -> Result<Option<Delivery>, StoreError> {
    if live_session(rows, &ask.session, ask.epoch).await?.is_none() {
        return Ok(None);
    }
    let Some(mut batch) = rows.batch_of_response(&ask.session, ask.epoch, ask.response).await? else {
        return Ok(None);
    };
    if !batch.seal() {
        return Ok(None);
    }
    rows.put_batch(&batch).await?;
    audit_batch(rows, &batch, AuditKind::BatchSealed, ask.now).await?;
    drain_if_done(rows, &mut batch, ask.now).await
}
