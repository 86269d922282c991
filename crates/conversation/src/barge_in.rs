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
        self.cut_voice(out);
        self.withdraw_unsaid(GateReason::CallerSpeaking, out);
        had_the_floor
    }

    /// Clear first: the ear goes before the books.
    pub(crate) fn cut_voice(&mut self, out: &mut Vec<Command>) {
        let cut = self.playback.clear(self.now, out);
        if let Some(response) = self.responses.in_slot()
            && self.responses.cancel(self.now, response)
        {
            out.push(Command::Model(ModelCommand::CancelResponse { response }));
            self.tools_answered_again(response);
        }
        let Some(cut) = cut else { return };
        let slack = Samples::from_ms(self.policy.gate.heard_slack_ms);
        for (response, unheard) in &cut.responses {
            self.responses.cancel(self.now, *response);
            if unheard.is_none_or(|unheard| unheard > slack) {
                self.tools_answered_again(*response);
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
        let responses = cut.responses.into_iter().map(|(response, _)| response).collect();
        out.push(Command::Explain(Decision::BargedIn { responses, unheard: cut.unheard.ms() }));
    }

    /// The voice is cut, the debt is not: outputs of tools whose answer was not heard are owed an answer again (B3).
    fn tools_answered_again(&mut self, response: ResponseId) {
        let answers = self.responses.get(response).map(|response| response.answers.clone()).unwrap_or_default();
        for group in answers {
            self.work.owe_again(group);
        }
    }
}
