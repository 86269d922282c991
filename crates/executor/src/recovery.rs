//! Before anything else: take over what a dead process left. The rules are `operations::recovery`.

use crate::{Clock, persist};
use operations::store::{RecoveryReport, Store, StoreError};
use tracing::{info, warn};

pub(crate) async fn recover(store: &dyn Store, clock: &Clock) -> Result<RecoveryReport, StoreError> {
    let report = persist(Some(5), || store.recover(clock.now())).await?;
    if report.unknown > 0 {
        warn!(unknown = report.unknown, "operations whose outcome is unknown were found");
    }
    if report != RecoveryReport::default() {
        info!(
            sessions = report.sessions_lost,
            readmitted = report.readmitted,
            to_retry = report.to_retry,
            deliveries_uncertain = report.deliveries_uncertain,
            deliveries_created = report.deliveries_created,
            "recovered what an earlier process left"
        );
    }
    Ok(report)
}
