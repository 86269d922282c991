//! What is compared: measures of behaviour.md 9 that the core takes itself, and counts of what went well or not.

use conversation::{Command, Decision, Measure};
use std::collections::BTreeMap;
use vocab::delivery::DeliveryChange;
use vocab::work::WorkCommand;
use vocab::{CallTime, ResponseId};

/// A caller who speaks so soon after we began was cut in on: they had not finished. Longer, and they reacted to words.
const CUT_IN_MS: u64 = 1_500;

/// What one or many calls came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Delivery ready to its first audio, in milliseconds each.
    pub delivery_wait_ms: Vec<u32>,
    /// Delivery ready to the proof that it was heard.
    pub delivery_heard_ms: Vec<u32>,
    /// End of the caller's speech to the first audio of the answer.
    pub answer_wait_ms: Vec<u32>,
    /// Generated and never heard, at each interruption.
    pub unheard_ms: Vec<u32>,
    /// The caller stopped our voice.
    pub interruptions: u64,
    /// Of those, the ones within 1.5 s of our first audio: we had cut in.
    pub cut_ins: u64,
    pub offers_withdrawn: u64,
    pub deliveries_heard: u64,
    pub deliveries_interrupted: u64,
    pub deliveries_unproven: u64,
    pub deliveries_stale: u64,
    /// Ready and neither heard nor settled when the call ended.
    pub deliveries_left: u64,
    pub responses: u64,
    /// In the model world: responses without a recorded counterpart.
    pub invented: u64,
    /// In the model world: calls that ran in circles and were stopped. Anything but zero is a defect.
    pub cut_short: u64,
    open: BTreeMap<String, bool>,
    sounding: BTreeMap<ResponseId, CallTime>,
}

impl Tally {
    pub fn see(&mut self, at: CallTime, command: &Command) {
        match command {
            Command::Measure { measure, ms } => match measure {
                Measure::DeliveryReadyToFirstAudio => self.delivery_wait_ms.push(*ms),
                Measure::CommitToAudibleAcknowledgement => self.delivery_heard_ms.push(*ms),
                Measure::SpeechStopToAcceptanceAudio => self.answer_wait_ms.push(*ms),
                Measure::CancelledResponseUnheard => self.unheard_ms.push(*ms),
                Measure::BargeInToPlaybackStop | Measure::GeneratedToPlayedGap => {}
            },
            Command::Explain(decision) => self.decided(at, decision),
            Command::Work(WorkCommand::SaveDelivery { delivery, change, .. }) => {
                let settled = match change {
                    DeliveryChange::Offered { .. } | DeliveryChange::Withdrawn { .. } => false,
                    DeliveryChange::Heard { .. } => {
                        self.deliveries_heard += 1;
                        true
                    }
                    DeliveryChange::Interrupted { .. } => {
                        self.deliveries_interrupted += 1;
                        false
                    }
                    DeliveryChange::Unproven { .. } => {
                        self.deliveries_unproven += 1;
                        false
                    }
                    DeliveryChange::Suppressed { .. } | DeliveryChange::Expired => {
                        self.deliveries_stale += 1;
                        true
                    }
                    DeliveryChange::Superseded { .. } => true,
                };
                self.open_or_settled(delivery.as_str(), settled);
            }
            Command::KeepAudio { .. }
            | Command::SendAudio { .. }
            | Command::SendMark { .. }
            | Command::ClearPlayback
            | Command::ReleaseAudio { .. }
            | Command::Model(_)
            | Command::Work(WorkCommand::Propose(_) | WorkCommand::SealBatch { .. })
            | Command::OpenModel
            | Command::PublishState { .. }
            | Command::CloseStream { .. } => {}
        }
    }

    fn decided(&mut self, at: CallTime, decision: &Decision) {
        match decision {
            Decision::ResponsePlanned { .. } => self.responses += 1,
            Decision::ResponseSounds { response } => {
                self.sounding.insert(*response, at);
            }
            Decision::BargedIn { responses, .. } => {
                self.interruptions += 1;
                let soon = |began: &CallTime| at.ms_since(*began) <= CUT_IN_MS;
                self.cut_ins += u64::from(responses.iter().any(|id| self.sounding.get(id).is_some_and(soon)));
            }
            Decision::OfferWithdrawn { .. } => self.offers_withdrawn += 1,
            Decision::GateJudged { delivery, .. } => self.open_or_settled(delivery.as_str(), false),
            Decision::DeliveryTakenOver { delivery, .. } => self.open_or_settled(delivery.as_str(), true),
            Decision::SaveFailed { .. }
            | Decision::SpeechTentative { .. }
            | Decision::SpeechRetracted { .. }
            | Decision::SpeechConfirmed
            | Decision::SpeechEnded
            | Decision::TurnOpened { .. }
            | Decision::TurnClosed { .. }
            | Decision::CallerSaid { .. }
            | Decision::MarkJudged { .. }
            | Decision::PlaybackEnded(_)
            | Decision::ResponseEnded { .. }
            | Decision::ResponseRefused { .. }
            | Decision::AnswerAbandoned { .. }
            | Decision::LateForResponse { .. }
            | Decision::ToolCallDropped { .. }
            | Decision::ToolCallProposed { .. }
            | Decision::DeliveryChanged { .. }
            | Decision::ClaimUnfounded { .. }
            | Decision::SessionLost { .. }
            | Decision::SessionRestored { .. }
            | Decision::ModelComplained { .. } => {}
        }
    }

    fn open_or_settled(&mut self, delivery: &str, settled: bool) {
        match self.open.get_mut(delivery) {
            Some(known) => *known |= settled,
            None => {
                self.open.insert(delivery.to_owned(), settled);
            }
        }
        self.deliveries_left = self.open.values().filter(|settled| !**settled).count() as u64;
    }

    /// Takes in another call. Which responses and deliveries it had is forgotten, since their names are its own.
    pub fn add(&mut self, call: &Self) {
        self.delivery_wait_ms.extend(&call.delivery_wait_ms);
        self.delivery_heard_ms.extend(&call.delivery_heard_ms);
        self.answer_wait_ms.extend(&call.answer_wait_ms);
        self.unheard_ms.extend(&call.unheard_ms);
        for (sum, more) in [
            (&mut self.interruptions, call.interruptions),
            (&mut self.cut_ins, call.cut_ins),
            (&mut self.offers_withdrawn, call.offers_withdrawn),
            (&mut self.deliveries_heard, call.deliveries_heard),
            (&mut self.deliveries_interrupted, call.deliveries_interrupted),
            (&mut self.deliveries_unproven, call.deliveries_unproven),
            (&mut self.deliveries_stale, call.deliveries_stale),
            (&mut self.deliveries_left, call.deliveries_left),
            (&mut self.responses, call.responses),
            (&mut self.invented, call.invented),
            (&mut self.cut_short, call.cut_short),
        ] {
            *sum += more;
        }
    }

    /// Lists of milliseconds, by what they are.
    pub fn spreads(&self) -> [(&'static str, &[u32]); 4] {
        [
            ("delivery ready to first audio", &self.delivery_wait_ms),
            ("delivery ready to heard", &self.delivery_heard_ms),
            ("caller's last word to answer", &self.answer_wait_ms),
            ("unheard at an interruption", &self.unheard_ms),
        ]
    }

    pub fn counts(&self) -> [(&'static str, u64); 9] {
        [
            ("unheard audio in all, ms", self.unheard_ms.iter().map(|ms| u64::from(*ms)).sum()),
            ("caller stopped our voice", self.interruptions),
            ("cut-ins (stopped within 1.5 s)", self.cut_ins),
            ("offers withdrawn", self.offers_withdrawn),
            ("deliveries heard", self.deliveries_heard),
            ("deliveries interrupted", self.deliveries_interrupted),
            ("deliveries unproven", self.deliveries_unproven),
            ("deliveries stale", self.deliveries_stale),
            ("deliveries left at the end", self.deliveries_left),
        ]
    }
}

/// A list of milliseconds in a few numbers; all zero when it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    pub count: u64,
    pub median: u32,
    pub p95: u32,
    pub max: u32,
}

impl Spread {
    /// By the nearest rank: each number is one that was measured.
    pub fn of(values: &[u32]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let rank = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or(0);
        Self { count: sorted.len() as u64, median: rank(50), p95: rank(95), max: rank(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_made_of_measured_values() {
        assert_eq!(Spread::of(&[]), Spread::default());
        assert_eq!(Spread::of(&[7]), Spread { count: 1, median: 7, p95: 7, max: 7 });
        let hundred: Vec<u32> = (1..=100).rev().collect();
        assert_eq!(Spread::of(&hundred), Spread { count: 100, median: 50, p95: 95, max: 100 });
    }
}
