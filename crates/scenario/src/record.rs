//! All that one run left, whichever runner ran it.

use crate::ear::Hearing;
use crate::events::Event;
use operations::history::History;
use std::time::Duration;
use vocab::delivery::DeliveryState;
use vocab::effect::OperationStatus;

#[derive(Clone, Debug, Default)]
pub struct Record {
    pub events: Vec<Event>,
    /// In order of hearing.
    pub heard: Vec<Hearing>,
    /// Tool and status, in order of admission.
    pub operations: Vec<(String, OperationStatus)>,
    /// In order of age.
    pub deliveries: Vec<DeliveryState>,
    /// Bookings, with their keys.
    pub bookings: Vec<Option<String>>,
    /// What must never happen, whatever the scenario expects: broken invariants, the carrier's complaints, lines and
    /// faults that never came.
    pub violations: Vec<String>,
    /// Real time that the run took.
    pub took: Duration,
}

impl Record {
    pub fn take_history(&mut self, history: &History) {
        let mut operations: Vec<_> = history.operations().map(|known| &known.operation).collect();
        operations.sort_by(|a, b| (a.action_admitted_at, &a.id).cmp(&(b.action_admitted_at, &b.id)));
        self.operations.extend(operations.iter().map(|o| (o.tool.0.clone(), o.status)));
        let mut deliveries: Vec<_> = history.deliveries().collect();
        deliveries.sort_by(|a, b| (a.became_ready_at, &a.id).cmp(&(b.became_ready_at, &b.id)));
        self.deliveries.extend(deliveries.iter().map(|delivery| delivery.state));
    }
}
