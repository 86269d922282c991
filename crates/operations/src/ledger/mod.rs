//! The verbs: what each transaction reads, decides and writes. One implementation for every store.
//!
//! A verb decides before it writes wherever it can, and returns an error only for what must roll the transaction back.
//!
//! A change may reach further than its own row: a batch that drains marks all its members as told. So a loop that settles
//! operations reads each one when its turn comes; a list read before the loop would write back what the first change undid.

mod admit;
mod deliver;
mod execute;
mod recover;
mod sessions;

pub use admit::{admit, seal_batch};
pub use deliver::save_delivery;
pub use execute::{claim, finish_attempt, finish_look_up, mark_sent};
pub use recover::recover;
pub use sessions::{close_session, end_call, missed, open_session};

use crate::audit::{AuditKind, AuditRow};
use crate::batch::{Batch, BatchState, can_be_told};
use crate::delivery::{Delivery, DeliveryKind};
use crate::operation::Operation;
use crate::rows::Rows;
use crate::session::{SessionRecord, SessionState};
use crate::store::StoreError;
use vocab::delivery::{DeliveryChange, DeliveryState};
use vocab::effect::OperationStatus;
use vocab::{DeliveryId, SessionId, WallTime};

/// The session, if it is live under this epoch: otherwise another stream has taken it over, or it is closed.
async fn live_session(rows: &mut dyn Rows, id: &SessionId, epoch: u32) -> Result<Option<SessionRecord>, StoreError> {
    Ok(rows.session(id).await?.filter(|session| session.state == SessionState::Live && session.epoch == epoch))
}

fn audit_row(at: WallTime, kind: AuditKind) -> AuditRow {
    AuditRow { seq: 0, at, session: None, operation: None, delivery: None, kind, from: None, to: None, detail: None }
}

async fn audit_session(
    rows: &mut dyn Rows,
    session: &SessionRecord,
    kind: AuditKind,
    now: WallTime,
) -> Result<(), StoreError> {
    let row = AuditRow {
        session: Some(session.id.clone()),
        to: Some(session.state.as_str().into()),
        detail: Some(format!("epoch {}", session.epoch)),
        ..audit_row(now, kind)
    };
    rows.append_audit(&row).await
}

/// Puts the operation and the audit row of its move. `from` is what the row said before.
async fn put_moved(
    rows: &mut dyn Rows,
    operation: &Operation,
    from: Option<OperationStatus>,
    now: WallTime,
) -> Result<(), StoreError> {
    rows.put_operation(operation).await?;
    if from == Some(operation.status) {
        return Ok(());
    }
    let row = AuditRow {
        session: Some(operation.session.clone()),
        operation: Some(operation.id.clone()),
        from: from.map(|from| from.as_str().into()),
        to: Some(operation.status.as_str().into()),
        // A refusal's text is the backend's and may hold anything; our own reasons are short.
        detail: operation.reason.as_deref().map(|reason| reason.chars().take(200).collect()),
        ..audit_row(now, AuditKind::OperationMoved)
    };
    rows.append_audit(&row).await
}

async fn put_delivery(
    rows: &mut dyn Rows,
    delivery: &Delivery,
    from: Option<DeliveryState>,
    detail: Option<String>,
    now: WallTime,
) -> Result<(), StoreError> {
    rows.put_delivery(delivery).await?;
    let row = AuditRow {
        session: Some(delivery.session.clone()),
        delivery: Some(delivery.id.clone()),
        from: from.map(|from| from.as_str().into()),
        to: Some(delivery.state.as_str().into()),
        detail,
        ..audit_row(now, AuditKind::DeliveryMoved)
    };
    rows.append_audit(&row).await
}

async fn audit_batch(rows: &mut dyn Rows, batch: &Batch, kind: AuditKind, now: WallTime) -> Result<(), StoreError> {
    let row = AuditRow {
        session: Some(batch.session.clone()),
        to: Some(batch.state.as_str().into()),
        detail: Some(batch.id.0.clone()),
        ..audit_row(now, kind)
    };
    rows.append_audit(&row).await
}

/// Drains the batch if its last member can be told, and creates its one final delivery.
async fn drain_if_done(rows: &mut dyn Rows, batch: &mut Batch, now: WallTime) -> Result<Option<Delivery>, StoreError> {
    let mut members = rows.operations_of_batch(&batch.id).await?;
    if !batch.may_drain(members.iter().map(|member| member.status)) {
        return Ok(None);
    }
    batch.drain(now);
    let id = batch.next_delivery();
    rows.put_batch(batch).await?;
    audit_batch(rows, batch, AuditKind::BatchDrained, now).await?;
    let delivery = create_delivery(rows, batch, id, DeliveryKind::Final, &mut members, now).await?;
    Ok(Some(delivery))
}

/// After a write to `operation`: what its batch makes of it.
///
/// A batch that has told the operation as unknown tells it again when it settles. If the delivery that would have told
/// it as unknown has not been offered yet, the new one says it all and supersedes it; otherwise the new one is a
/// correction that tells the settled operation only.
async fn after_change(
    rows: &mut dyn Rows,
    operation: &Operation,
    now: WallTime,
) -> Result<Option<Delivery>, StoreError> {
    if !can_be_told(operation.status) || operation.told == Some(operation.status) {
        return Ok(None);
    }
    let Some(mut batch) = rows.batch(&operation.batch).await? else {
        return Err(StoreError::Corrupt(format!("{} names no batch", operation.id)));
    };
    match batch.state {
        BatchState::Open => Ok(None),
        BatchState::Sealed => drain_if_done(rows, &mut batch, now).await,
        BatchState::Drained => correct(rows, &mut batch, operation, now).await.map(Some),
    }
}

async fn correct(
    rows: &mut dyn Rows,
    batch: &mut Batch,
    operation: &Operation,
    now: WallTime,
) -> Result<Delivery, StoreError> {
    let latest = match batch.latest_delivery() {
        Some(id) => rows.delivery(&id).await?,
        None => None,
    };
    let replaced = latest.filter(|latest| match latest.state {
        DeliveryState::Ready => true,
        // Its other members may have been heard already: told again as news only if there are none.
        DeliveryState::Uncertain => latest.operations == [operation.id.clone()],
        DeliveryState::Offered
        | DeliveryState::Heard
        | DeliveryState::Suppressed
        | DeliveryState::Superseded
        | DeliveryState::Expired => false,
    });
    let id = batch.next_delivery();
    rows.put_batch(batch).await?;
    let mut members = rows.operations_of_batch(&batch.id).await?;
    let mut kind = DeliveryKind::Correction;
    match &replaced {
        Some(old) => {
            kind = old.kind;
            members.retain(|member| member.id == operation.id || old.operations.contains(&member.id));
        }
        None => members.retain(|member| member.id == operation.id),
    }
    if let Some(mut old) = replaced {
        let from = old.state;
        // Waiting deliveries can always be superseded.
        if old.change(&DeliveryChange::Superseded { by: id.clone() }, now).is_ok() {
            put_delivery(rows, &old, Some(from), Some(format!("by {id}")), now).await?;
        }
    }
    create_delivery(rows, batch, id, kind, &mut members, now).await
}

/// A delivery has come back from its offer unheard. If later ones of its batch say everything that it says, and say it
/// truer (it told an outcome as unknown that has settled meanwhile), it is superseded instead of waiting again.
async fn supersede_if_covered(rows: &mut dyn Rows, delivery: &mut Delivery, now: WallTime) -> Result<bool, StoreError> {
    if !delivery.is_waiting() {
        return Ok(false);
    }
    let Some(batch) = rows.batch(&delivery.batch).await? else {
        return Ok(false);
    };
    let later = batch.deliveries_after(&delivery.id);
    let mut said = Vec::new();
    for id in &later {
        said.extend(rows.delivery(id).await?.map(|later| later.operations).unwrap_or_default());
    }
    let Some(by) = later.last().filter(|_| delivery.operations.iter().all(|operation| said.contains(operation))) else {
        return Ok(false);
    };
    Ok(delivery.change(&DeliveryChange::Superseded { by: by.clone() }, now).is_ok())
}

async fn create_delivery(
    rows: &mut dyn Rows,
    batch: &Batch,
    id: DeliveryId,
    kind: DeliveryKind,
    members: &mut [Operation],
    now: WallTime,
) -> Result<Delivery, StoreError> {
    for member in members.iter_mut() {
        member.told = Some(member.status);
        member.version += 1;
        rows.put_operation(member).await?;
    }
    let mut delivery = Delivery::new(id, batch.id.clone(), kind, members, now);
    let origin = rows.session(&batch.session).await?;
    delivery.caller_verified = origin.as_ref().is_some_and(|session| session.caller_verified);
    delivery.holder = match origin {
        Some(session) if session.state == SessionState::Live => Some(session.id),
        // The call is over, but the caller may be back on the line.
        Some(session) if session.caller_verified => rows
            .sessions_of_caller(&session.caller)
            .await?
            .into_iter()
            .rfind(|other| other.state == SessionState::Live && other.caller_verified)
            .map(|other| other.id),
        Some(_) | None => None,
    };
    put_delivery(rows, &delivery, None, None, now).await?;
    Ok(delivery)
}
