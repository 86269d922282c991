//! Who has the floor: what the user clock tells, and how the caller's turns open and end.

use crate::command::Command;
use crate::conversation::Conversation;
use crate::deadline::Deadline;
use crate::decision::Decision;
use crate::policy::TurnEnd;
use crate::turn::{TurnEndedBy, VoiceChange};
use vocab::model::ModelCommand;
use vocab::{ModelItemId, Samples, VoiceEvidence};

impl Conversation {
    /// Most frames change nothing and cost nothing more.
    pub(crate) fn caller_audio(&mut self, samples: Samples, evidence: VoiceEvidence, out: &mut Vec<Command>) -> bool {
        let over_voice = self.playback.is_live();
        let Some(change) = self.turn.hear(self.now, samples, evidence, over_voice, &self.policy.turn) else {
            return false;
        };
        match change {
            VoiceChange::Started => self.hold_voice(out),
            VoiceChange::Retracted => {
                self.resume_voice(out);
                self.caller_fell_quiet(out);
            }
            VoiceChange::Confirmed => self.caller_takes_the_floor(out),
            VoiceChange::Paused => {}
            // The model took the pause for the end of the turn, and the caller goes on: they have the floor again.
            VoiceChange::Continued if self.turn.open_turn().is_none() => self.caller_takes_the_floor(out),
            VoiceChange::Continued => self.deadlines.set(Deadline::ModelTurnEnd, None),
            VoiceChange::Stopped => {
                out.push(Command::Explain(Decision::SpeechEnded));
                self.caller_fell_quiet(out);
            }
        }
        true
    }

    fn caller_takes_the_floor(&mut self, out: &mut Vec<Command>) {
        self.cut_by_turn |= self.barge_in(out);
        self.deadlines.set(Deadline::ModelTurnEnd, None);
        self.caller_is_back();
        if let Some(turn) = self.turn.open() {
            out.push(Command::Explain(Decision::TurnOpened { turn }));
        }
    }

    /// The open turn ends, or the model gets its time to end it.
    fn caller_fell_quiet(&mut self, out: &mut Vec<Command>) {
        match self.turn.ended_by_quiet(self.turn_end()) {
            Some(by) => {
                if by == TurnEndedBy::Hangover {
                    out.push(Command::Model(ModelCommand::CommitTurn));
                }
                self.close_turn(by, out);
            }
            None if self.turn.open_turn().is_some() => {
                let patience = u64::from(self.policy.turn.model_end_timeout_ms);
                self.deadlines.set(Deadline::ModelTurnEnd, Some(self.now.plus_ms(patience)));
            }
            None => {}
        }
    }

    /// The model's turn detection never said a word about it.
    pub(crate) fn turn_timed_out(&mut self, out: &mut Vec<Command>) {
        if self.turn.open_turn().is_none() || self.turn.caller_is_speaking() {
            // Falling quiet sets the deadline anew.
            return;
        }
        let by = if self.turn.is_committed() { TurnEndedBy::Model } else { TurnEndedBy::Timeout };
        let before = self.owed.turn;
        // What a session heard that is gone was speech for all we know.
        let silenced_us = self.cut_by_turn || self.turn.is_half_heard();
        self.close_turn(by, out);
        self.cut_by_turn = false;
        // What the model does not take for speech (a cough) needs no answer, unless it silenced us.
        if by == TurnEndedBy::Timeout && !silenced_us {
            self.owed.turn = before;
        }
    }

    pub(crate) fn close_turn(&mut self, by: TurnEndedBy, out: &mut Vec<Command>) {
        self.deadlines.set(Deadline::ModelTurnEnd, None);
        if let Some(turn) = self.turn.close() {
            if by != TurnEndedBy::Timeout {
                self.cut_by_turn = false;
            }
            self.owed.turn = Some(turn);
            self.owed.turn_closed_at = Some(self.now);
            self.owed.turn_ended_at = Some(self.turn.last_speech().unwrap_or(self.now));
            out.push(Command::Explain(Decision::TurnClosed { turn, by }));
            self.turn_may_be_answered();
        }
    }

    pub(crate) fn model_committed(&mut self, item: ModelItemId, out: &mut Vec<Command>) {
        // Also whom only the model can hear.
        self.caller_is_back();
        match self.turn_end() {
            // Our own commit, echoed: the turn closed when we sent it.
            TurnEnd::Local => {
                if let Some(turn) = self.turn.latest_turn() {
                    self.history.caller_spoke(turn, item);
                }
            }
            TurnEnd::Model => {
                let (turn, pausing) = self.turn.model_committed();
                self.history.caller_spoke(turn, item);
                if pausing {
                    self.close_turn(TurnEndedBy::Model, out);
                }
            }
        }
    }
}
