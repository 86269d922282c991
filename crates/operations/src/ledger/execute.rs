use super::{after_change, audit_row, put_moved};
use crate::attempt::{Attempt, AttemptEnd, AttemptKind, Fence};
use crate::audit::{AuditKind, AuditRow};
use crate::operation::{Dropped, Operation, SendVerdict};
use crate::rows::Rows;
use crate::store::{Claim, Claimed, FinishAttempt, FinishLookUp, Finished, MarkSent, MarkedSent, Settled, StoreError};
use vocab::effect::OperationStatus;
use vocab::{OperationId, WallTime};

/// Overdue operations closed in one transaction; the rest follow in the next one.
const EXPIRE_AT_ONCE: u32 = 64;

/// Closes what is overdue, takes what is due, and says when to come back.
pub async fn claim(rows: &mut dyn Rows, ask: &Claim) -> Result<Claimed, StoreError> {
    let mut claimed = Claimed::default();
    for _ in 0..EXPIRE_AT_ONCE {
        let Some(mut operation) = rows.overdue_operation(ask.now).await? else { break };
        let from = operation.status;
        operation.expire(ask.now)?;
        claimed.expired.push(settle(rows, operation, Some(from), ask.now).await?);
    }
    let mut left = ask.limit;
    for (tool, free) in &ask.free {
        // One at a time: each claim may take the resource that the next one is waiting for.
        for _ in 0..(*free).min(left) {
            let Some(mut operation) = rows.due_operations(tool, ask.now, 1).await?.pop() else { break };
            let from = operation.status;
            let fence = operation.claim()?;
            put_moved(rows, &operation, Some(from), ask.now).await?;
            let attempt = Attempt {
                operation: operation.id.clone(),
                fence,
                kind: AttemptKind::Execute,
                number: operation.attempts + 1,
                claimed_at: ask.now,
                sent_at: None,
                finished_at: None,
                end: None,
                provider_ref: None,
                detail: None,
            };
            rows.put_attempt(&attempt).await?;
            left -= 1;
            claimed.requests.push(operation);
        }
    }
    for mut operation in rows.due_look_ups(ask.now, ask.look_ups).await? {
        let fence = operation.claim_look_up();
        rows.put_operation(&operation).await?;
        let attempt = Attempt {
            operation: operation.id.clone(),
            fence,
            kind: AttemptKind::Reconcile,
            number: operation.look_ups + 1,
            claimed_at: ask.now,
            // A question changes nothing, so nobody has to know later whether it left.
            sent_at: Some(ask.now),
            finished_at: None,
            end: None,
            provider_ref: None,
            detail: None,
        };
        rows.put_attempt(&attempt).await?;
        claimed.look_ups.push(operation);
    }
    claimed.next_due =
        if claimed.expired.len() < EXPIRE_AT_ONCE as usize { rows.next_due(ask.now).await? } else { Some(ask.now) };
    claimed.load = rows.load(None).await?;
    Ok(claimed)
}

/// Durable before the first byte leaves.
pub async fn mark_sent(rows: &mut dyn Rows, ask: &MarkSent) -> Result<MarkedSent, StoreError> {
    let Some(mut operation) = rows.operation(&ask.operation).await? else {
        return Ok(MarkedSent::Stale);
    };
    let from = operation.status;
    if ask.fence == operation.fence && from == OperationStatus::Running {
        let attempt = attempt_of(rows, &operation.id, ask.fence).await?;
        // The worker of this fence asks again because it never saw the answer: one mark, one request.
        if attempt.sent_at.is_some() {
            return Ok(MarkedSent::Send(attempt.number));
        }
    }
    match operation.mark_sent(ask.fence, ask.now) {
        Err(Dropped::Stale) => Ok(MarkedSent::Stale),
        Err(Dropped::Illegal(illegal)) => Err(illegal.into()),
        Ok(SendVerdict::TooLate) => {
            let mut attempt = attempt_of(rows, &operation.id, ask.fence).await?;
            attempt.finished_at = Some(ask.now);
            attempt.end = Some(AttemptEnd::Unsent);
            rows.put_attempt(&attempt).await?;
            Ok(MarkedSent::TooLate(Box::new(settle(rows, operation, Some(from), ask.now).await?)))
        }
        Ok(SendVerdict::Send(number)) => {
            let mut attempt = attempt_of(rows, &operation.id, ask.fence).await?;
            attempt.sent_at = Some(ask.now);
            rows.put_attempt(&attempt).await?;
            rows.put_operation(&operation).await?;
            let row = AuditRow {
                session: Some(operation.session.clone()),
                operation: Some(operation.id.clone()),
                to: Some(operation.status.as_str().into()),
                detail: Some(format!("attempt {number}, fence {}", ask.fence)),
                ..audit_row(ask.now, AuditKind::AttemptSent)
            };
            rows.append_audit(&row).await?;
            Ok(MarkedSent::Send(number))
        }
    }
}

/// Outcome, attempt, batch, delivery and audit rows together. Under a stale fence nothing changes, so that a result
/// counts once however often it is reported.
pub async fn finish_attempt(rows: &mut dyn Rows, ask: &FinishAttempt) -> Result<Finished, StoreError> {
    let Some(mut operation) = rows.operation(&ask.operation).await? else {
        return Ok(Finished::Stale);
    };
    let from = operation.status;
    match operation.conclude(ask.fence, &ask.answer, ask.answered_at, ask.now, ask.random) {
        Err(Dropped::Stale) => return Ok(Finished::Stale),
        Err(Dropped::Illegal(illegal)) => return Err(illegal.into()),
        Ok(()) => {}
    }
    let mut attempt = attempt_of(rows, &operation.id, ask.fence).await?;
    attempt.finished_at = Some(ask.answered_at);
    attempt.end = Some(ask.answer.end());
    attempt.detail = ask.answer.detail().map(short);
    attempt.provider_ref.clone_from(&operation.provider_ref);
    rows.put_attempt(&attempt).await?;
    Ok(Finished::Recorded(Box::new(settle(rows, operation, Some(from), ask.now).await?)))
}

/// The system of record's answer about an unknown outcome.
pub async fn finish_look_up(rows: &mut dyn Rows, ask: &FinishLookUp) -> Result<Finished, StoreError> {
    let Some(mut operation) = rows.operation(&ask.operation).await? else {
        return Ok(Finished::Stale);
    };
    let from = operation.status;
    match operation.conclude_look_up(ask.fence, &ask.answer, &ask.rule, ask.now, ask.random) {
        Err(Dropped::Stale) => return Ok(Finished::Stale),
        Err(Dropped::Illegal(illegal)) => return Err(illegal.into()),
        Ok(()) => {}
    }
    let mut attempt = attempt_of(rows, &operation.id, ask.fence).await?;
    attempt.finished_at = Some(ask.now);
    attempt.end = Some(ask.answer.end());
    attempt.detail = ask.answer.detail().map(short);
    attempt.provider_ref.clone_from(&operation.provider_ref);
    rows.put_attempt(&attempt).await?;
    if operation.status == OperationStatus::Unknown {
        let row = AuditRow {
            session: Some(operation.session.clone()),
            operation: Some(operation.id.clone()),
            to: Some(operation.status.as_str().into()),
            detail: attempt.detail,
            ..audit_row(ask.now, AuditKind::LookUpFruitless)
        };
        rows.append_audit(&row).await?;
    }
    Ok(Finished::Recorded(Box::new(settle(rows, operation, Some(from), ask.now).await?)))
}

/// Puts the moved operation and lets its batch react.
pub(super) async fn settle(
    rows: &mut dyn Rows,
    operation: Operation,
    from: Option<OperationStatus>,
    now: WallTime,
) -> Result<Settled, StoreError> {
    put_moved(rows, &operation, from, now).await?;
    let delivery = after_change(rows, &operation, now).await?;
    // Draining marks its members as told.
    let operation = match &delivery {
        Some(_) => rows.operation(&operation.id).await?.unwrap_or(operation),
        None => operation,
    };
    Ok(Settled { operation, delivery })
}

async fn attempt_of(rows: &mut dyn Rows, operation: &OperationId, fence: Fence) -> Result<Attempt, StoreError> {
    rows.attempt(operation, fence)
        .await?
        .ok_or_else(|| StoreError::Corrupt(format!("{operation} has no attempt under fence {fence}")))
}

/// Enough to see what went wrong; a whole error page helps nobody.
fn short(detail: String) -> String {
    match detail.char_indices().nth(500) {
        Some((end, _)) => detail[..end].to_owned(),
        None => detail,
    }
}
