//! Deliveries that wait for their moment: what the store knows of them, what is being said, what evidence came back.
//! A state change that a crash must not forget is asked of the store (Save) and counts only once it is durable (Saved).

use crate::gate::{DeliveryView, GateDecision, GateReason};
use crate::playback::{PlaybackEnd, PlaybackEndedBy};
use crate::policy::GatePolicy;
use std::collections::BTreeMap;
use vocab::delivery::{DeliveryBrief, DeliveryChange, DeliveryState};
use vocab::effect::Priority;
use vocab::work::WorkCommand;
use vocab::{AudioMs, CallTime, DeliveryId, ResponseId, Samples, SaveId};

/// A disk that takes longer than this makes the caller wait for an answer: the answer then goes without the delivery.
const SAVE_WAIT_MS: u64 = 1_000;
/// After a write failed, which takes the store about as long to find out: a disk that hangs is not helped by more writes.
const SAVE_AGAIN_MS: u64 = 2_000;

#[derive(Clone, Debug)]
pub struct Pending {
    pub brief: DeliveryBrief,
    pub ready_at: CallTime,
    stale_at: Option<CallTime>,
    /// The offer joins a response that is due anyway: not counted, since it is not of its own accord.
    attached: bool,
    /// An `Offered` that is not durable yet: nobody may say it before.
    saving: Option<SaveId>,
    offered_at: CallTime,
    /// The response that was asked to say it.
    pub said_by: Option<ResponseId>,
    /// Its last offer was cut short: the next one is shorter.
    pub interrupted: bool,
    /// It may have been heard before: whatever happens, it is never news again.
    pub uncertain: bool,
    /// The last decision that was logged.
    pub judged: Option<(GateDecision, GateReason)>,
}

impl Pending {
    pub fn view(&self, at: CallTime) -> DeliveryView {
        DeliveryView {
            state: self.brief.state,
            priority: self.brief.priority,
            quiet_ms: self.brief.quiet_ms,
            offers: self.brief.offers,
            stale: self.stale_at.is_some_and(|stale_at| stale_at <= at),
        }
    }

    /// Durably offered and waiting for a response to say it.
    pub fn may_be_said(&self) -> bool {
        self.brief.state == DeliveryState::Offered && self.saving.is_none() && self.said_by.is_none()
    }

    /// Its state while nobody is saying it.
    fn unsaid(&self) -> DeliveryState {
        if self.uncertain { DeliveryState::Uncertain } else { DeliveryState::Ready }
    }

    /// As the gate would see it had it not been offered: asked again before it is said.
    pub fn view_before_offer(&self, at: CallTime) -> DeliveryView {
        let counted = u32::from(!self.attached);
        DeliveryView { state: self.unsaid(), offers: self.brief.offers.saturating_sub(counted), ..self.view(at) }
    }

    pub fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// Until when an answer waits for the disk to take the offer that would join it.
    fn save_awaited_until(&self) -> Option<CallTime> {
        self.saving.map(|_| self.offered_at.plus_ms(SAVE_WAIT_MS))
    }

    /// A response is saying it, and it may interrupt.
    pub fn is_urgent_voice(&self) -> bool {
        self.said_by.is_some() && self.brief.priority == Priority::Urgent
    }
}

#[derive(Clone, Debug, Default)]
pub struct PendingDeliveries {
    waiting: BTreeMap<DeliveryId, Pending>,
    /// Asked of the store and not known to be done.
    unsaved: BTreeMap<SaveId, Unsaved>,
    last_save: SaveId,
    /// A delivery that came tells of something that is done.
    any_committed: bool,
}

#[derive(Clone, Debug)]
struct Unsaved {
    delivery: DeliveryId,
    change: DeliveryChange,
    /// It failed, and is asked for again then.
    again_at: Option<CallTime>,
}

impl PendingDeliveries {
    /// A delivery became ready. The same one told twice changes nothing.
    pub fn ready(&mut self, at: CallTime, brief: DeliveryBrief) -> bool {
        if self.waiting.contains_key(&brief.delivery) {
            return false;
        }
        self.any_committed |= brief.all_committed;
        let stale_at = brief.fresh_for_ms.map(|ms| at.plus_ms(ms));
        let (interrupted, id) = (brief.offers > 0, brief.delivery.clone());
        let uncertain = brief.state == DeliveryState::Uncertain;
        self.waiting.insert(
            id,
            Pending {
                brief,
                ready_at: at,
                stale_at,
                attached: false,
                saving: None,
                offered_at: at,
                said_by: None,
                interrupted,
                uncertain,
                judged: None,
            },
        );
        true
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.waiting.values_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.waiting.values()
    }

    pub fn get(&self, delivery: &DeliveryId) -> Option<&Pending> {
        self.waiting.get(delivery)
    }

    /// Something was done, in this call or one before.
    pub fn knows_commit(&self) -> bool {
        self.any_committed
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the next one stops being news.
    pub fn stale_at(&self) -> Option<CallTime> {
        let not_said = |pending: &&Pending| pending.brief.state == DeliveryState::Ready;
        self.waiting.values().filter(not_said).filter_map(|pending| pending.stale_at).min()
    }

    /// When the last offer that an answer waits for is given up; `None` when nothing is waited for.
    pub fn saves_awaited_until(&self) -> Option<CallTime> {
        self.waiting.values().filter_map(Pending::save_awaited_until).max()
    }

    fn save(&mut self, delivery: &DeliveryId, change: DeliveryChange) -> (SaveId, WorkCommand) {
        self.last_save = self.last_save.next();
        let save = self.last_save;
        // A change that was not written is overtaken by the next one.
        self.unsaved.retain(|_, unsaved| unsaved.delivery != *delivery || unsaved.again_at.is_none());
        let unsaved = Unsaved { delivery: delivery.clone(), change: change.clone(), again_at: None };
        self.unsaved.insert(save, unsaved);
        (save, WorkCommand::SaveDelivery { save, delivery: delivery.clone(), change })
    }

    /// Asks the store to make it `offered`.
    pub fn offer(&mut self, at: CallTime, delivery: &DeliveryId, attached: bool) -> Option<WorkCommand> {
        if !self.waiting.contains_key(delivery) {
            return None;
        }
        let (save, command) = self.save(delivery, DeliveryChange::Offered { attached });
        let pending = self.waiting.get_mut(delivery)?;
        pending.saving = Some(save);
        pending.offered_at = at;
        pending.attached = attached;
        pending.brief.state = DeliveryState::Offered;
        pending.brief.offers += u32::from(!attached);
        Some(command)
    }

    /// The write is durable. Returns the delivery that may be said now, if the gate still agrees.
    pub fn saved(&mut self, save: SaveId) -> Option<DeliveryId> {
        self.unsaved.remove(&save);
        let pending = self.waiting.values_mut().find(|pending| pending.saving == Some(save))?;
        pending.saving = None;
        Some(pending.brief.delivery.clone())
    }

    /// The store says it is not ours to change: somebody else settled it.
    pub fn save_refused(&mut self, save: SaveId) -> Option<DeliveryId> {
        self.unsaved.remove(&save);
        let id = self.waiting.values().find(|pending| pending.saving == Some(save))?.brief.delivery.clone();
        self.waiting.remove(&id);
        Some(id)
    }

    /// The write was not done: it is asked for again, unless another change of the delivery has been asked for since.
    pub fn save_failed(&mut self, at: CallTime, save: SaveId) -> Option<DeliveryId> {
        let delivery = self.unsaved.get(&save)?.delivery.clone();
        if self.unsaved.iter().any(|(later, unsaved)| *later > save && unsaved.delivery == delivery) {
            self.unsaved.remove(&save);
            return None;
        }
        self.unsaved.get_mut(&save)?.again_at = Some(at.plus_ms(SAVE_AGAIN_MS));
        Some(delivery)
    }

    pub fn save_again_at(&self) -> Option<CallTime> {
        self.unsaved.values().filter_map(|unsaved| unsaved.again_at).min()
    }

    /// What failed and is due again, under new numbers.
    pub fn save_again(&mut self, at: CallTime) -> Vec<WorkCommand> {
        let due = |unsaved: &Unsaved| unsaved.again_at.is_some_and(|again_at| again_at <= at);
        let failed: Vec<_> = self.unsaved.iter().filter(|(_, unsaved)| due(unsaved)).map(|(save, _)| *save).collect();
        let mut commands = Vec::new();
        for old in failed {
            let Some(Unsaved { delivery, change, .. }) = self.unsaved.remove(&old) else { continue };
            let (new, command) = self.save(&delivery, change);
            if let Some(pending) = self.waiting.get_mut(&delivery).filter(|pending| pending.saving == Some(old)) {
                pending.saving = Some(new);
            }
            commands.push(command);
        }
        commands
    }

    pub fn said_by(&mut self, delivery: &DeliveryId, response: ResponseId) {
        if let Some(pending) = self.waiting.get_mut(delivery) {
            pending.said_by = Some(response);
        }
    }

    /// It was offered but nothing of it sounded: as before the offer.
    /// `counts`: it was of its own accord, and the model made nothing of it.
    pub fn withdraw(&mut self, delivery: &DeliveryId, counts: bool) -> Option<WorkCommand> {
        let pending = self.waiting.get_mut(delivery)?;
        pending.said_by = None;
        pending.saving = None;
        pending.judged = None;
        let counts = counts || pending.attached;
        pending.brief.offers = pending.brief.offers.saturating_sub(u32::from(!counts));
        pending.brief.state = pending.unsaid();
        let change = if pending.uncertain {
            DeliveryChange::Unproven { possible: AudioMs(0) }
        } else {
            DeliveryChange::Withdrawn { counts }
        };
        Some(self.save(delivery, change).1)
    }

    pub fn suppress(&mut self, delivery: &DeliveryId, reason: &str) -> Option<WorkCommand> {
        self.waiting.remove(delivery)?;
        Some(self.save(delivery, DeliveryChange::Suppressed { reason: reason.into() }).1)
    }

    /// The sound that said it has ended: evidence decides. Returns the change to save, and the delivery while it lives on.
    /// `at_most`: what may have played if no evidence is asked for.
    pub fn evidence(
        &mut self,
        delivery: &DeliveryId,
        end: &PlaybackEnd,
        at_most: Samples,
        policy: &GatePolicy,
    ) -> Option<Verdict> {
        let pending = self.waiting.get_mut(delivery)?;
        let heard = end.proven.ms();
        let change = if covers(end.proven, end, policy) {
            DeliveryChange::Heard { heard }
        } else if pending.uncertain || end.how == PlaybackEndedBy::MarksLost || covers(at_most, end, policy) {
            // It may have been heard though no evidence came back: neither news nor silence.
            DeliveryChange::Unproven { possible: at_most.ms() }
        } else {
            DeliveryChange::Interrupted { heard }
        };
        let ready_at = pending.ready_at;
        if matches!(change, DeliveryChange::Heard { .. }) {
            self.waiting.remove(delivery);
        } else {
            pending.uncertain |= matches!(change, DeliveryChange::Unproven { .. });
            pending.interrupted = true;
            pending.said_by = None;
            pending.judged = None;
            pending.brief.state = pending.unsaid();
        }
        let command = self.save(delivery, change.clone()).1;
        Some(Verdict { change, command, ready_at })
    }
}

pub struct Verdict {
    pub change: DeliveryChange,
    pub command: WorkCommand,
    pub ready_at: CallTime,
}

/// All but the last bit of the audio; of very short audio, at least half.
fn covers(heard: Samples, end: &PlaybackEnd, policy: &GatePolicy) -> bool {
    let Some(total) = end.total else { return false };
    let needed = total.saturating_sub(Samples::from_ms(policy.heard_slack_ms)).max(Samples(total.0 / 2));
    total > Samples::ZERO && heard >= needed && heard.ms() > AudioMs(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::PlaybackId;

    fn end(proven_ms: u32, total_ms: Option<u32>) -> PlaybackEnd {
        PlaybackEnd {
            playback: PlaybackId(1),
            response: ResponseId(1),
            proven: Samples::from_ms(proven_ms),
            possible: Samples::from_ms(proven_ms),
            total: total_ms.map(Samples::from_ms),
            received: Samples::from_ms(total_ms.unwrap_or(proven_ms)),
            how: PlaybackEndedBy::Played,
        }
    }

    #[test]
    fn r7_heard_needs_evidence_for_all_but_the_last_300_ms() {
        let policy = GatePolicy::default();
        let is_heard = |proven_ms, total_ms| {
            let end = end(proven_ms, total_ms);
            covers(end.proven, &end, &policy)
        };
        assert!(is_heard(2_700, Some(3_000)));
        assert!(!is_heard(2_699, Some(3_000)));
        assert!(!is_heard(3_000, None), "a cut generation has no end to be heard");
        assert!(!is_heard(0, Some(200)), "short audio is not heard for free");
        assert!(is_heard(100, Some(200)));
    }
}
