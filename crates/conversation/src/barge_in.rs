//! Barge-in in two steps: tentative speech holds our voice, confirmed speech cuts it. No operation is touched (R5).
//! The six cancels stay apart: what is stopped here is the generation, the feeding, and the carrier's buffer.

use crate::command::{Command, Measure};
use crate::conversation::{Conversation, measure};
use crate::decision::Decision;
use crate::gate::GateReason;
use vocab::model::ModelCommand;
use vocab::{ResponseId, Samples};

impl Conversation {
    /// Somebody makes a sound: stop feeding the carrier. The lead plays on, longer than a false start can last.
    pub(crate) fn hold_voice(&mut self, out: &mut Vec<Command>) {
        self.playback.hold();
        out.push(Command::Explain(Decision::SpeechTentative { held: self.playback.is_live() }));
    }

    /// It was a false start: feed on from the sample where we stopped.
    pub(crate) fn resume_voice(&mut self, out: &mut Vec<Command>) {
        self.playback.resume();
        out.push(Command::Explain(Decision::SpeechRetracted { resumed: self.playback.is_live() }));
    }

    /// It is speech: the caller has the floor. Returns whether that took it from us.
    pub(crate) fn barge_in(&mut self, out: &mut Vec<Command>) -> bool {
        out.push(Command::Explain(Decision::SpeechConfirmed));
        let had_the_floor = self.playback.is_live() || self.responses.in_slot().is_some();
        let slot = self.responses.in_slot().filter(|id| self.responses.is_wanted(*id));
        let cut = self.cut_voice(out);
        self.hush(out);
        // The voice is cut, the debt to tool calls is not (B3): the answer to the turn that begins now pays it.
        let answered: Vec<_> = slot
            .into_iter()
            .chain(cut)
            .flat_map(|id| self.responses.get(id).map(|response| response.answers.clone()).unwrap_or_default())
            .collect();
        if !self.model_speaks_by_itself() {
            answered.into_iter().for_each(|group| self.work.owe_again(group));
        } else if !answered.is_empty() {
            // It has the outputs and cannot be asked a second time: that answer comes of itself.
            self.owe_latest_turn();
        }
        self.withdraw_unsaid(GateReason::CallerSpeaking, out);
        had_the_floor
    }

    /// Clear first: the ear goes before the books. Returns the responses that were not heard to their end.
    pub(crate) fn cut_voice(&mut self, out: &mut Vec<Command>) -> Vec<ResponseId> {
        let cut = self.playback.clear(self.now, out);
        if let Some(response) = self.responses.in_slot()
            && self.responses.cancel(self.now, response)
        {
            out.push(Command::Model(ModelCommand::CancelResponse { response }));
        }
        let Some(cut) = cut else { return Vec::new() };
        for response in &cut.responses {
            if self.responses.cancel(self.now, *response) {
                out.push(Command::Model(ModelCommand::CancelResponse { response: *response }));
            }
        }
        for part in &cut.items {
            if part.whole {
                continue;
            }
            let item = part.item;
            // A cut at zero is refused or harmful at some providers; the item goes instead.
            out.push(Command::Model(if part.heard.ms().0 == 0 {
                ModelCommand::DeleteItem { item }
            } else {
                ModelCommand::TruncateItem { item, audio_end: part.heard.ms() }
            }));
        }
        if cut.unheard > Samples::ZERO {
            out.push(measure(Measure::CancelledResponseUnheard, u64::from(cut.unheard.ms().0)));
        }
        out.push(Command::Explain(Decision::BargedIn { responses: cut.responses, unheard: cut.unheard.ms() }));
        cut.unfinished
    }
}
