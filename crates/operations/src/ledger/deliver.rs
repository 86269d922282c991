use super::{live_session, put_delivery, supersede_if_covered};
use crate::rows::Rows;
use crate::store::{SaveDelivery, SavedDelivery, StoreError};
use vocab::delivery::DeliveryChange;

/// Keeps a change of a live session. Refused when the session has lost it to another stream or call, or when the
/// state does not allow the change.
pub async fn save_delivery(rows: &mut dyn Rows, ask: &SaveDelivery) -> Result<SavedDelivery, StoreError> {
    let refused = |reason: String| Ok(SavedDelivery::Refused { reason });
    if live_session(rows, &ask.session, ask.epoch).await?.is_none() {
        return refused("the session is not live under this epoch".into());
    }
    let Some(mut delivery) = rows.delivery(&ask.delivery).await? else {
        return refused("there is no such delivery".into());
    };
    if delivery.holder.as_ref() != Some(&ask.session) {
        return refused("another session holds the delivery".into());
    }
    let from = delivery.state;
    if let Err(not_now) = delivery.change(&ask.change, ask.now) {
        return refused(not_now.to_string());
    }
    let detail = match &ask.change {
        DeliveryChange::Offered { attached: true } => Some("attached".into()),
        DeliveryChange::Offered { attached: false } | DeliveryChange::Expired => None,
        DeliveryChange::Heard { heard } => Some(format!("heard {heard}")),
        DeliveryChange::Interrupted { heard } => Some(format!("interrupted at {heard}")),
        DeliveryChange::Unproven { possible } => Some(format!("no evidence, {possible} possible")),
        DeliveryChange::Withdrawn { .. } => Some("withdrawn".into()),
        DeliveryChange::Suppressed { reason } => Some(reason.clone()),
        DeliveryChange::Superseded { by } => Some(format!("by {by}")),
    };
    let to = delivery.state;
    put_delivery(rows, &delivery, Some(from), detail, ask.now).await?;
    if supersede_if_covered(rows, &mut delivery, ask.now).await? {
        put_delivery(rows, &delivery, Some(to), Some("told better since".into()), ask.now).await?;
    }
    Ok(SavedDelivery::Saved)
}
