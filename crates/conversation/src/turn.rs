//! The user clock. A detector gives evidence, this file judges: quiet → tentative → speaking → stopping → quiet, where both
//! in-between states can be revised, and whether the caller holds the floor. (behaviour.md 2)

use crate::policy::{TurnEnd, TurnPolicy};
use serde::{Deserialize, Serialize};
use vocab::{CallTime, Samples, TurnId, VoiceEvidence};

/// The caller's voice right now. Lengths are counted in audio, not in arrival times: frames come in bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Voice {
    Quiet {
        since: CallTime,
    },
    /// Speech that has not lasted long enough to count.
    Tentative {
        since: CallTime,
        speech_ms: u32,
        gap_ms: u32,
    },
    Speaking {
        since: CallTime,
    },
    /// A pause that may still be inside the utterance.
    Stopping {
        since: CallTime,
        quiet_ms: u32,
    },
}

/// What one stretch of audio changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoiceChange {
    /// Quiet became tentative.
    Started,
    /// Tentative became quiet again: a false start.
    Retracted,
    /// Tentative became speaking.
    Confirmed,
    /// Speaking became stopping.
    Paused,
    /// Stopping became speaking again: the same utterance.
    Continued,
    /// Stopping became quiet.
    Stopped,
}

/// How a turn came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEndedBy {
    /// The model's turn detection committed it.
    Model,
    /// The local hangover ran out.
    Hangover,
    /// The model's turn detection stayed silent for too long.
    Timeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenTurn {
    id: TurnId,
    /// The model committed it while the caller was still, or again, speaking.
    committed: bool,
    /// A model session that is gone heard some of it, and told nobody.
    half_heard: bool,
}

#[derive(Clone, Debug)]
pub struct TurnTracker {
    voice: Voice,
    open: Option<OpenTurn>,
    last: TurnId,
    /// When the caller was last heard to speak (start of the present or end of the last utterance).
    last_speech: Option<CallTime>,
}

impl TurnTracker {
    pub fn new() -> Self {
        Self { voice: Voice::Quiet { since: CallTime(0) }, open: None, last: TurnId(0), last_speech: None }
    }

    pub fn voice(&self) -> Voice {
        self.voice
    }

    /// The turn that the caller holds now.
    pub fn open_turn(&self) -> Option<TurnId> {
        self.open.map(|turn| turn.id)
    }

    /// The open turn, else the one before; `None` before the first.
    pub fn latest_turn(&self) -> Option<TurnId> {
        (self.last > TurnId(0)).then_some(self.last)
    }

    /// Tentative speech counts: nobody should start to talk into it.
    pub fn caller_is_speaking(&self) -> bool {
        match self.voice {
            Voice::Quiet { .. } => false,
            Voice::Tentative { .. } | Voice::Speaking { .. } | Voice::Stopping { .. } => true,
        }
    }

    /// Since when the caller has been silent; `None` while speaking.
    pub fn quiet_since(&self) -> Option<CallTime> {
        match self.voice {
            Voice::Quiet { since } => Some(since),
            Voice::Tentative { .. } | Voice::Speaking { .. } | Voice::Stopping { .. } => None,
        }
    }

    /// When the caller was last heard.
    pub fn last_speech(&self) -> Option<CallTime> {
        self.last_speech
    }

    /// Takes one stretch of audio that ended at `at`. `over_voice`: our own sound is out, and may come back as its echo.
    pub fn hear(
        &mut self,
        at: CallTime,
        samples: Samples,
        evidence: VoiceEvidence,
        over_voice: bool,
        policy: &TurnPolicy,
    ) -> Option<VoiceChange> {
        let ms = samples.ms().0;
        // Whoever has the floor already is not asked to be louder than our voice.
        let begins = matches!(self.voice, Voice::Quiet { .. } | Voice::Tentative { .. });
        let (floor_dbfs, confirm_ms) = match over_voice && begins {
            true => (policy.floor_over_voice_dbfs, policy.confirm_over_voice_ms),
            false => (policy.floor_dbfs, policy.confirm_ms),
        };
        let speech = evidence.speech && evidence.level_dbfs >= floor_dbfs;
        let began = at.minus_ms(u64::from(ms));
        let (voice, change) = match (self.voice, speech) {
            (Voice::Quiet { .. }, false) => return None,
            (Voice::Quiet { .. }, true) if ms >= confirm_ms => {
                (Voice::Speaking { since: began }, Some(VoiceChange::Confirmed))
            }
            (Voice::Quiet { .. }, true) => {
                (Voice::Tentative { since: began, speech_ms: ms, gap_ms: 0 }, Some(VoiceChange::Started))
            }
            (Voice::Tentative { since, speech_ms, .. }, true) if speech_ms + ms >= confirm_ms => {
                (Voice::Speaking { since }, Some(VoiceChange::Confirmed))
            }
            (Voice::Tentative { since, speech_ms, gap_ms }, speech) => {
                let speech_ms = if speech { speech_ms + ms } else { speech_ms };
                let gap_ms = if speech { 0 } else { gap_ms + ms };
                // Crackle must not keep us holding our voice: tentative speech gets a bounded time to prove itself.
                let patience = u64::from(confirm_ms + policy.retract_ms);
                if gap_ms >= policy.retract_ms || at.ms_since(since) >= patience {
                    (Voice::Quiet { since: at }, Some(VoiceChange::Retracted))
                } else {
                    (Voice::Tentative { since, speech_ms, gap_ms }, None)
                }
            }
            (Voice::Speaking { .. }, true) => {
                self.last_speech = Some(at);
                return None;
            }
            (Voice::Speaking { .. }, false) => {
                (Voice::Stopping { since: began, quiet_ms: ms }, Some(VoiceChange::Paused))
            }
            (Voice::Stopping { .. }, true) => (Voice::Speaking { since: began }, Some(VoiceChange::Continued)),
            (Voice::Stopping { since, quiet_ms }, false) if quiet_ms + ms >= policy.hangover_ms => {
                (Voice::Quiet { since }, Some(VoiceChange::Stopped))
            }
            (Voice::Stopping { since, quiet_ms }, false) => (Voice::Stopping { since, quiet_ms: quiet_ms + ms }, None),
        };
        self.voice = voice;
        match voice {
            Voice::Speaking { .. } => self.last_speech = Some(at),
            Voice::Quiet { .. } | Voice::Tentative { .. } | Voice::Stopping { .. } => {}
        }
        change
    }

    /// Gives the caller the floor; the present turn goes on if one is open.
    pub fn open(&mut self) -> Option<TurnId> {
        match &mut self.open {
            Some(turn) => {
                // The caller spoke on after the model thought that they had finished.
                turn.committed = false;
                None
            }
            None => {
                self.last = self.last.next();
                self.open = Some(OpenTurn { id: self.last, committed: false, half_heard: false });
                Some(self.last)
            }
        }
    }

    /// The model's turn detection made the caller's speech an item. Opens a turn that the local detector missed.
    /// Returns the turn that the item belongs to, and whether it can close now.
    pub fn model_committed(&mut self) -> (TurnId, bool) {
        let id = match self.open {
            Some(turn) => turn.id,
            None => {
                self.last = self.last.next();
                self.last
            }
        };
        self.open = Some(OpenTurn { id, committed: true, half_heard: false });
        let pausing = match self.voice {
            Voice::Quiet { .. } | Voice::Stopping { .. } => true,
            Voice::Tentative { .. } | Voice::Speaking { .. } => false,
        };
        (id, pausing)
    }

    /// Whether the open turn ends now that the caller has fallen quiet, and by whom.
    pub fn ended_by_quiet(&self, end: TurnEnd) -> Option<TurnEndedBy> {
        let turn = self.open?;
        match end {
            TurnEnd::Local => Some(TurnEndedBy::Hangover),
            TurnEnd::Model => turn.committed.then_some(TurnEndedBy::Model),
        }
    }

    /// The model session that listened is gone.
    pub fn session_lost(&mut self) {
        if let Some(turn) = &mut self.open {
            turn.half_heard = true;
        }
    }

    pub fn is_half_heard(&self) -> bool {
        self.open.is_some_and(|turn| turn.half_heard)
    }

    /// The model committed the open turn: it needs no time-out to end.
    pub fn is_committed(&self) -> bool {
        self.open.is_some_and(|turn| turn.committed)
    }

    /// Takes the floor back. Returns the turn that ended.
    pub fn close(&mut self) -> Option<TurnId> {
        self.open.take().map(|turn| turn.id)
    }
}

impl Default for TurnTracker {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEECH: VoiceEvidence = VoiceEvidence { speech: true, level_dbfs: -20 };
    const SILENCE: VoiceEvidence = VoiceEvidence { speech: false, level_dbfs: -60 };
    /// Loud enough for the detector, too quiet for the floor.
    const FAINT: VoiceEvidence = VoiceEvidence { speech: true, level_dbfs: -70 };

    struct Line {
        tracker: TurnTracker,
        policy: TurnPolicy,
        at: CallTime,
    }

    impl Line {
        fn new() -> Self {
            Self { tracker: TurnTracker::new(), policy: TurnPolicy::default(), at: CallTime::from_ms(0) }
        }

        /// Feeds `ms` of 20 ms frames and returns the changes.
        fn hear(&mut self, ms: u32, evidence: VoiceEvidence) -> Vec<VoiceChange> {
            (0..ms / 20)
                .filter_map(|_| {
                    self.at = self.at.plus_ms(20);
                    self.tracker.hear(self.at, Samples::from_ms(20), evidence, false, &self.policy)
                })
                .collect()
        }
    }

    #[test]
    fn speech_is_tentative_first_and_confirmed_after_the_confirmation_length() {
        let mut line = Line::new();
        assert_eq!(line.hear(20, SPEECH), [VoiceChange::Started]);
        assert_eq!(line.hear(160, SPEECH), []);
        assert_eq!(line.hear(20, SPEECH), [VoiceChange::Confirmed]);
        assert_eq!(line.tracker.voice(), Voice::Speaking { since: CallTime::from_ms(0) });
    }

    #[test]
    fn a_short_burst_is_retracted_as_a_false_start() {
        let mut line = Line::new();
        assert_eq!(line.hear(80, SPEECH), [VoiceChange::Started]);
        assert_eq!(line.hear(100, SILENCE), [VoiceChange::Retracted]);
        assert_eq!(line.tracker.open_turn(), None);
    }

    #[test]
    fn crackle_cannot_hold_our_voice_for_ever() {
        let mut line = Line::new();
        let mut changes = line.hear(20, SPEECH);
        for _ in 0..6 {
            changes.extend(line.hear(40, SILENCE));
            changes.extend(line.hear(20, SPEECH));
        }
        assert_eq!(changes[..2], [VoiceChange::Started, VoiceChange::Retracted]);
        assert!(!changes.contains(&VoiceChange::Confirmed));
    }

    #[test]
    fn a_pause_inside_the_hangover_is_the_same_utterance() {
        let mut line = Line::new();
        line.hear(400, SPEECH);
        assert_eq!(line.hear(280, SILENCE), [VoiceChange::Paused]);
        assert_eq!(line.hear(20, SPEECH), [VoiceChange::Continued]);
        assert_eq!(line.hear(300, SILENCE), [VoiceChange::Paused, VoiceChange::Stopped]);
        assert_eq!(line.tracker.quiet_since(), Some(CallTime::from_ms(700)), "quiet counts from the last speech");
    }

    #[test]
    fn what_lies_under_the_energy_floor_is_not_speech() {
        let mut line = Line::new();
        assert_eq!(line.hear(1_000, FAINT), []);
    }

    #[test]
    fn over_our_own_voice_speech_must_be_louder_than_its_echo_and_may_have_to_be_longer() {
        const ECHO: VoiceEvidence = VoiceEvidence { speech: true, level_dbfs: -48 };
        let mut line = Line::new();
        line.policy.confirm_over_voice_ms = 600;
        let mut over_voice = |evidence, ms: u32| -> Vec<VoiceChange> {
            (0..ms / 20)
                .filter_map(|_| {
                    line.at = line.at.plus_ms(20);
                    line.tracker.hear(line.at, Samples::from_ms(20), evidence, true, &line.policy)
                })
                .collect()
        };
        assert_eq!(over_voice(ECHO, 1_000), []);
        assert_eq!(over_voice(SPEECH, 500), [VoiceChange::Started], "a word of assent");
        assert_eq!(over_voice(SILENCE, 100), [VoiceChange::Retracted]);
        assert_eq!(over_voice(SPEECH, 600), [VoiceChange::Started, VoiceChange::Confirmed]);
        assert_eq!(over_voice(ECHO, 200), [], "who has the floor may speak low");
    }

    #[test]
    fn one_long_frame_of_speech_is_confirmed_at_once() {
        let mut line = Line::new();
        line.at = CallTime::from_ms(500);
        let change = line.tracker.hear(line.at, Samples::from_ms(240), SPEECH, false, &line.policy);
        assert_eq!(change, Some(VoiceChange::Confirmed));
    }

    #[test]
    fn a_commit_in_the_pause_closes_and_one_during_speech_waits_for_quiet() {
        let mut line = Line::new();
        line.hear(400, SPEECH);
        assert_eq!(line.tracker.open(), Some(TurnId(1)));
        assert_eq!(line.tracker.model_committed(), (TurnId(1), false), "still speaking");
        line.hear(300, SILENCE);
        assert_eq!(line.tracker.ended_by_quiet(TurnEnd::Model), Some(TurnEndedBy::Model));
        assert_eq!(line.tracker.close(), Some(TurnId(1)));
        assert_eq!(line.tracker.model_committed(), (TurnId(2), true), "a turn that only the model heard");
    }

    #[test]
    fn speaking_on_after_a_commit_keeps_the_same_turn_open() {
        let mut line = Line::new();
        line.hear(400, SPEECH);
        line.tracker.open();
        line.tracker.model_committed();
        assert_eq!(line.tracker.open(), None, "the turn was open already");
        line.hear(300, SILENCE);
        assert_eq!(line.tracker.ended_by_quiet(TurnEnd::Model), None, "the commit was withdrawn by more speech");
    }
}
