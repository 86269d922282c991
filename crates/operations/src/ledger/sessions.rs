use super::{audit_batch, audit_row, audit_session, drain_if_done, live_session, put_delivery, supersede_if_covered};
use crate::audit::{AuditKind, AuditRow};
use crate::batch::can_be_told;
use crate::delivery::Delivery;
use crate::rows::Rows;
use crate::session::{SessionRecord, SessionState};
use crate::store::{CloseSession, EndCall, Missed, OpenSession, OpenedSession, StoreError};
use vocab::delivery::DeliveryChange;
use vocab::{SessionId, WallTime};

/// Takes up the unfinished session of the call or begins a new one, and hands over what waits for this caller.
pub async fn open_session(rows: &mut dyn Rows, ask: &OpenSession) -> Result<OpenedSession, StoreError> {
    let (session, resumed) = match rows.unfinished_session(&ask.call_sid).await? {
        // Also while it is live: the new stream may arrive before the loss of the old one is noticed.
        Some(mut session) => {
            session.stream_sid = ask.stream_sid.clone();
            session.agent = ask.agent.clone();
            session.state = SessionState::Live;
            session.epoch += 1;
            // Ordinals start again with the new stream, so the batches of the old one get no more members.
            leave_behind(rows, &session, ask.now).await?;
            (session, true)
        }
        None => {
            let session = SessionRecord {
                id: ask.fresh.clone(),
                call_sid: ask.call_sid.clone(),
                stream_sid: ask.stream_sid.clone(),
                caller: ask.caller.clone(),
                caller_verified: ask.caller_verified,
                agent: ask.agent.clone(),
                state: SessionState::Live,
                epoch: 1,
                started_at: ask.now,
                ended_at: None,
            };
            (session, false)
        }
    };
    rows.put_session(&session).await?;
    let kind = if resumed { AuditKind::SessionResumed } else { AuditKind::SessionOpened };
    audit_session(rows, &session, kind, ask.now).await?;
    let deliveries = take_deliveries(rows, &session, ask.now).await?;
    Ok(OpenedSession { session, resumed, deliveries })
}

/// Those of the session itself, and, for a verified caller, those of earlier verified calls that no live session
/// holds. An unverified caller never gets another call's deliveries.
async fn take_deliveries(
    rows: &mut dyn Rows,
    session: &SessionRecord,
    now: WallTime,
) -> Result<Vec<Delivery>, StoreError> {
    let mut taken = Vec::new();
    for mut delivery in rows.open_deliveries_of_caller(&session.caller).await? {
        let own = delivery.session == session.id;
        let may_pass = session.caller_verified && delivery.caller_verified;
        if !own && !may_pass {
            continue;
        }
        if let Some(holder) = delivery.holder.clone().filter(|holder| *holder != session.id)
            && rows.session(&holder).await?.is_some_and(|holder| holder.state == SessionState::Live)
        {
            continue;
        }
        if !delivery.is_waiting() {
            continue;
        }
        let from = delivery.state;
        if delivery.is_stale(now) && delivery.change(&DeliveryChange::Expired, now).is_ok() {
            put_delivery(rows, &delivery, Some(from), Some("stale before anybody could hear it".into()), now).await?;
            continue;
        }
        if delivery.holder.as_ref() != Some(&session.id) {
            delivery.holder = Some(session.id.clone());
            delivery.version += 1;
            rows.put_delivery(&delivery).await?;
            let row = AuditRow {
                session: Some(delivery.session.clone()),
                delivery: Some(delivery.id.clone()),
                to: Some(delivery.state.as_str().into()),
                detail: Some(format!("to {}", session.id)),
                ..audit_row(now, AuditKind::DeliveryPassed)
            };
            rows.append_audit(&row).await?;
        }
        taken.push(delivery);
    }
    Ok(taken)
}

/// What a stream or process leaves behind: its open batches are sealed (their model response is gone), its offers
/// become uncertain. Returns the deliveries that sealing created and how many offers lost their evidence.
pub(super) async fn leave_behind(
    rows: &mut dyn Rows,
    session: &SessionRecord,
    now: WallTime,
) -> Result<(Vec<Delivery>, u32), StoreError> {
    // Visible as left or taken over before the batches drain, so that what they create goes to the right holder.
    rows.put_session(session).await?;
    let mut uncertain = 0;
    for mut delivery in rows.open_deliveries_of_caller(&session.caller).await? {
        if delivery.holder.as_ref() != Some(&session.id) {
            continue;
        }
        let from = delivery.state;
        let lost = delivery.lose_evidence(now);
        if session.state != SessionState::Live {
            delivery.holder = None;
            delivery.version += 1;
        }
        if lost {
            uncertain += 1;
            let to = delivery.state;
            put_delivery(rows, &delivery, Some(from), Some("evidence lost".into()), now).await?;
            if supersede_if_covered(rows, &mut delivery, now).await? {
                put_delivery(rows, &delivery, Some(to), Some("told better since".into()), now).await?;
            }
        } else {
            rows.put_delivery(&delivery).await?;
        }
    }
    let mut created = Vec::new();
    for mut batch in rows.open_batches(&session.id).await? {
        if batch.seal() {
            rows.put_batch(&batch).await?;
            audit_batch(rows, &batch, AuditKind::BatchSealed, now).await?;
            created.extend(drain_if_done(rows, &mut batch, now).await?);
        }
    }
    Ok((created, uncertain))
}

/// Lets go of the session; its operations go on. Nothing happens under a stale epoch.
pub async fn close_session(rows: &mut dyn Rows, ask: &CloseSession) -> Result<Vec<Delivery>, StoreError> {
    let Some(mut session) = live_session(rows, &ask.session, ask.epoch).await? else {
        return Ok(Vec::new());
    };
    end(rows, &mut session, ask.end.leaves(), ask.now).await
}

/// Ends the unfinished session of a call, if no stream came after the one that is meant.
pub async fn end_call(rows: &mut dyn Rows, ask: &EndCall) -> Result<Vec<Delivery>, StoreError> {
    let Some(mut session) = rows.unfinished_session(&ask.call_sid).await? else {
        return Ok(Vec::new());
    };
    if ask.unless_after.is_some_and(|epoch| session.epoch > epoch) {
        return Ok(Vec::new());
    }
    end(rows, &mut session, SessionState::Ended, ask.now).await
}

async fn end(
    rows: &mut dyn Rows,
    session: &mut SessionRecord,
    state: SessionState,
    now: WallTime,
) -> Result<Vec<Delivery>, StoreError> {
    session.state = state;
    if state == SessionState::Ended {
        session.ended_at = Some(now);
    }
    let (created, _) = leave_behind(rows, session, now).await?;
    audit_session(rows, session, AuditKind::SessionLeft, now).await?;
    Ok(created)
}

/// Everything that a session may have to be told again after its mailbox was full.
pub async fn missed(rows: &mut dyn Rows, session: &SessionId) -> Result<Missed, StoreError> {
    let Some(record) = rows.session(session).await? else {
        return Ok(Missed::default());
    };
    let mut operations = rows.operations_of_session(session).await?;
    operations.retain(|operation| can_be_told(operation.status));
    let mut deliveries = rows.open_deliveries_of_caller(&record.caller).await?;
    deliveries.retain(|delivery| delivery.is_waiting() && delivery.holder.as_ref() == Some(session));
    Ok(Missed { operations, deliveries })
}
