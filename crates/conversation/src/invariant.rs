//! What must be true after every step, whatever happened. Checked by the stage and the simulator, not in production.

use crate::conversation::Conversation;
use crate::owed::AgentState;
use vocab::delivery::DeliveryState;

impl Conversation {
    /// The first promise that does not hold, in words; `None` when all hold.
    pub fn broken_invariant(&self) -> Option<String> {
        if self.is_closed() {
            return None;
        }
        if let Some(slot) = self.responses.in_slot() {
            match self.responses.get(slot) {
                None => return Some(format!("{slot} writes the conversation but is not known")),
                Some(response) if response.state.is_over() => return Some(format!("{slot} is over but still writes")),
                Some(_) => {}
            }
        }
        if let Some(broken) = self.playback.broken_invariant() {
            return Some(broken);
        }
        for pending in self.pending.iter() {
            let id = &pending.brief.delivery;
            if let Some(by) = pending.said_by {
                if pending.brief.state != DeliveryState::Offered || pending.is_saving() {
                    return Some(format!("{id} is being said by {by} without a durable offer"));
                }
                let knows = self.responses.get(by).is_some_and(|response| response.deliveries.contains(id));
                if !knows {
                    return Some(format!("{id} waits for {by}, which does not know of it"));
                }
            }
        }
        let owes = self.owed.is_due()
            || self.work.owes_answer()
            || self.work.is_running()
            || self.responses.in_slot().is_some()
            || self.playback.is_live();
        if self.agent_state() == AgentState::Listening && owes {
            return Some("listening is published while something is owed".into());
        }
        None
    }
}
