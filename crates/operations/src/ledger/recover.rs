use super::execute::settle;
use super::sessions::leave_behind;
use super::{audit_session, put_moved};
use crate::attempt::AttemptEnd;
use crate::audit::AuditKind;
use crate::operation::Dropped;
use crate::rows::Rows;
use crate::session::SessionState;
use crate::store::{RecoveryReport, StoreError};
use vocab::WallTime;
use vocab::effect::OperationStatus;

/// Takes over what a dead process left. Only the process that holds the store alone may do this.
pub async fn recover(rows: &mut dyn Rows, now: WallTime) -> Result<RecoveryReport, StoreError> {
    let mut report = RecoveryReport::default();
    for mut session in rows.sessions_in(SessionState::Live).await? {
        session.state = SessionState::Lost;
        let (created, uncertain) = leave_behind(rows, &session, now).await?;
        audit_session(rows, &session, AuditKind::SessionLeft, now).await?;
        report.sessions_lost += 1;
        report.deliveries_uncertain += uncertain;
        report.deliveries_created += created.len() as u32;
    }
    for id in rows.unsettled_operations().await? {
        let Some(mut operation) = rows.operation(&id).await? else { continue };
        let from = operation.status;
        let attempt = rows.attempt(&operation.id, operation.fence).await?;
        let sent = attempt.as_ref().is_some_and(|attempt| attempt.sent_at.is_some());
        match operation.recover(sent, now) {
            Ok(()) => {}
            Err(Dropped::Stale) => continue,
            Err(Dropped::Illegal(illegal)) => return Err(illegal.into()),
        }
        if let Some(mut attempt) = attempt.filter(|attempt| attempt.finished_at.is_none()) {
            attempt.finished_at = Some(now);
            attempt.end = Some(if sent { AttemptEnd::Info } else { AttemptEnd::Unsent });
            attempt.detail = Some("process ended".into());
            rows.put_attempt(&attempt).await?;
        }
        if from == OperationStatus::Unknown {
            put_moved(rows, &operation, Some(from), now).await?;
            report.unknown += 1;
            continue;
        }
        let settled = settle(rows, operation, Some(from), now).await?;
        report.deliveries_created += u32::from(settled.delivery.is_some());
        match settled.operation.status {
            OperationStatus::Unknown => report.unknown += 1,
            OperationStatus::FailedRetryable if sent => report.to_retry += 1,
            OperationStatus::FailedRetryable | OperationStatus::Admitted => report.readmitted += 1,
            OperationStatus::Running
            | OperationStatus::Committed
            | OperationStatus::FailedFinal
            | OperationStatus::Cancelled => {}
        }
    }
    Ok(report)
}
