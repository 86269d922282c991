//! A caller who does not answer: asked whether they are there, then told goodbye, then let go once that was heard. The timer runs only
//! while nothing is owed and the carrier's buffer is empty, so it can never talk over work or over our own voice (behaviour.md 6).

use crate::command::{CloseReason, Command};
use crate::conversation::{Conversation, Phase};
use crate::owed::AgentState;
use crate::playback::{PlaybackEnd, PlaybackEndedBy};
use crate::response::Purpose;
use vocab::CallTime;

#[derive(Clone, Copy, Debug, Default)]
pub struct Idle {
    /// Questions and goodbyes since the caller last spoke.
    asked: u32,
    /// The last of those, or the last sign of the caller.
    counts_from: Option<CallTime>,
}

impl Conversation {
    /// When a caller who stays silent is next spoken to. `None` while something is owed, or somebody speaks.
    pub(crate) fn idle_until(&self) -> Option<CallTime> {
        let wait_ms = u64::from(self.policy.idle.check_in_after_ms);
        let free = self.phase == Phase::Open
            && self.session.ready
            && self.published == AgentState::Listening
            && self.turn.open_turn().is_none();
        if wait_ms == 0 || !free || self.playback.is_live() {
            return None;
        }
        let since =
            [self.turn.quiet_since()?].into_iter().chain(self.playback.silent_since()).chain(self.idle.counts_from);
        Some(since.max()?.plus_ms(wait_ms))
    }

    /// The caller has been silent for long enough. Returns what is to be said of it.
    pub(crate) fn idle_is_over(&mut self, out: &mut Vec<Command>) -> Option<Purpose> {
        if self.idle_until().is_none_or(|until| until > self.now) {
            return None;
        }
        let check_ins = self.policy.idle.check_ins;
        if self.idle.asked > check_ins {
            // The goodbye could not be said: the line is not kept for it.
            self.close_stream(CloseReason::CallerAway, out);
            return None;
        }
        self.idle.asked += 1;
        self.idle.counts_from = Some(self.now);
        Some(if self.idle.asked > check_ins { Purpose::Farewell } else { Purpose::CheckIn })
    }

    /// The caller spoke or pressed a key: the silence counts from there.
    pub(crate) fn caller_is_back(&mut self) {
        self.idle = Idle { asked: 0, counts_from: Some(self.now) };
    }

    /// A sound of ours ended: the call ends with a goodbye that was heard.
    pub(crate) fn farewell_ended(&mut self, purpose: Purpose, end: &PlaybackEnd, out: &mut Vec<Command>) {
        let to_its_end = match end.how {
            PlaybackEndedBy::Played | PlaybackEndedBy::MarksLost => true,
            PlaybackEndedBy::Cleared | PlaybackEndedBy::StreamEnded => false,
        };
        // Whoever came back meanwhile, by a key or by words that only the model heard, is not hung up on.
        let still_away = self.idle.asked > self.policy.idle.check_ins && !self.owed.is_due();
        if purpose == Purpose::Farewell && to_its_end && still_away && self.phase != Phase::Closed {
            self.close_stream(CloseReason::CallerAway, out);
        }
    }
}
