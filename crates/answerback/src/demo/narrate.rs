//! Puts events of the phone and of the server into words.

use super::moment::{Lane, Moment, Tone};
use super::world::CALLER_LINES;
use crate::live::Step;
use conversation::gate::{GateDecision, GateReason};
use conversation::{Command, Decision, Input, PlaybackEnd, PlaybackEndedBy, Purpose};
use sim::phone::{Happened, TimelineEvent};
use std::collections::BTreeSet;
use vocab::ModelResponseId;
use vocab::delivery::DeliveryChange;
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::work::WorkEvent;

/// What must be remembered between events.
#[derive(Debug, Default)]
pub(crate) struct Narrator {
    /// Generations under way.
    generating: BTreeSet<ModelResponseId>,
}

impl Narrator {
    /// `dialled_us` is when this call was dialled.
    pub fn of_phone(&mut self, event: &TimelineEvent, dialled_us: u64) -> Vec<Moment> {
        let at_us = dialled_us + event.at_us;
        let one = |moment: Moment| vec![moment];
        match &event.what {
            Happened::Dialled => one(Moment::says(at_us, Lane::Caller, "dials")),
            Happened::StreamOpened { .. } => {
                one(Moment::says(at_us, Lane::Caller, "is through: the media stream is open"))
            }
            Happened::StreamFailed { code, reason } => {
                one(Moment::says(at_us, Lane::Caller, format!("no media stream ({code}): {reason}")).in_tone(Tone::Cut))
            }
            Happened::StreamClosed { .. } => one(Moment::says(at_us, Lane::Caller, "the stream is closed")),
            Happened::FetchFailed { reason, .. } => {
                // The last part is the cause; before it stand address and layers.
                let cause = reason.rsplit(": ").next().unwrap_or(reason);
                let text = format!("the carrier gets no answer from the server: {cause}");
                one(Moment::says(at_us, Lane::Caller, text).in_tone(Tone::Cut))
            }
            Happened::CallerSpeaks { file } => {
                let words =
                    CALLER_LINES.iter().find(|(voice, _)| voice == file).map_or(file.as_str(), |(_, text)| text);
                one(Moment::says(at_us, Lane::Caller, format!("“{words}”")).turning(true))
            }
            Happened::CallerSilent => one(Moment::turns(at_us, Lane::Caller, false)),
            Happened::AgentAudible => one(Moment::turns(at_us, Lane::Heard, true)),
            Happened::AgentSilent => one(Moment::turns(at_us, Lane::Heard, false)),
            Happened::ClearReceived { dropped_ms, .. } => {
                let text = format!("stops: the carrier threw away {dropped_ms} ms");
                one(Moment::says(at_us, Lane::Heard, text).in_tone(Tone::Cut))
            }
            Happened::StepDone { timed_out: true, step } => {
                one(Moment::says(at_us, Lane::Caller, format!("waited in vain (step {step})")).in_tone(Tone::Cut))
            }
            Happened::ViolationSeen { code } => {
                let text = format!("a message that Twilio would complain of ({code})");
                one(Moment::says(at_us, Lane::Sent, text).in_tone(Tone::Cut))
            }
            Happened::CarrierSpeaks { text } => {
                one(Moment::says(at_us, Lane::Heard, format!("the carrier says: {text}")))
            }
            Happened::CallEnded => one(Moment::says(at_us, Lane::Caller, "the call is over").turning(false)),
            Happened::DocumentReceived { .. }
            | Happened::StepStarted { .. }
            | Happened::StepDone { .. }
            | Happened::MarkReceived { .. }
            | Happened::MarkReturned { .. }
            | Happened::MarkSwallowed { .. }
            | Happened::DigitSent { .. } => Vec::new(),
        }
    }

    /// `opened_us` is when the stream of this step's call opened; `words` are those of the model's latest response.
    pub fn of_step(&mut self, step: &Step, opened_us: u64, words: impl FnOnce() -> Option<String>) -> Vec<Moment> {
        let at_us = opened_us + step.at_us.0;
        let told = match (&step.input, &step.command) {
            (Some(Input::Model(event)), _) => self.of_model(at_us, event, words),
            (Some(Input::Work(event)), _) => of_work(at_us, event),
            (_, Some(command)) => self.of_command(at_us, command),
            (Some(_) | None, None) => None,
        };
        told.into_iter().collect()
    }

    fn of_model(&mut self, at_us: u64, event: &ModelEvent, words: impl FnOnce() -> Option<String>) -> Option<Moment> {
        let says = |text: String| Moment::says(at_us, Lane::Model, text);
        match event {
            ModelEvent::ResponseCreated { response, .. } => {
                self.generating.insert(*response);
                Some(Moment::turns(at_us, Lane::Model, true))
            }
            ModelEvent::ToolCallReceived { name, arguments, .. } => Some(says(format!("proposes {name} {arguments}"))),
            ModelEvent::ResponseEnded { response, end, .. } => {
                self.generating.remove(response);
                let idle = !self.generating.is_empty();
                let said = match (end, words()) {
                    (ResponseEnd::Completed, Some(words)) => says(format!("has generated “{words}”")),
                    (ResponseEnd::Completed, None) => return Some(Moment::turns(at_us, Lane::Model, idle)),
                    (ResponseEnd::Cancelled, _) => says("its generation is cancelled".to_owned()).in_tone(Tone::Cut),
                    (ResponseEnd::Incomplete { reason }, _) => {
                        says(format!("stopped short: {reason}")).in_tone(Tone::Cut)
                    }
                    (ResponseEnd::Failed { code }, _) => says(format!("failed: {code}")).in_tone(Tone::Cut),
                };
                Some(said.turning(idle))
            }
            ModelEvent::CreateRefused { message, .. } => Some(says(format!("refuses: {message}")).in_tone(Tone::Cut)),
            ModelEvent::ErrorReported { code, message, .. } => {
                Some(says(format!("error {code}: {message}")).in_tone(Tone::Cut))
            }
            ModelEvent::SessionLost { reason } => Some(says(format!("is lost: {reason}")).in_tone(Tone::Cut)),
            ModelEvent::SessionOpened { .. }
            | ModelEvent::SessionReady
            | ModelEvent::SessionExpires { .. }
            | ModelEvent::SpeechStarted
            | ModelEvent::SpeechStopped
            | ModelEvent::TurnCommitted { .. }
            | ModelEvent::CallerTranscript { .. }
            | ModelEvent::AudioReceived { .. }
            | ModelEvent::TranscriptReceived { .. } => None,
        }
    }

    fn of_command(&mut self, at_us: u64, command: &Command) -> Option<Moment> {
        match command {
            Command::Explain(decision) => self.of_decision(at_us, decision),
            Command::Model(ModelCommand::SubmitToolOutput { output, .. }) => {
                let status = serde_json::from_str::<serde_json::Value>(output)
                    .ok()
                    .and_then(|output| output["status"].as_str().map(str::to_owned))
                    .unwrap_or_else(|| "the outcome".to_owned());
                Some(Moment::says(at_us, Lane::Work, format!("the model is told: {status}")))
            }
            Command::Model(ModelCommand::TruncateItem { audio_end, .. }) => {
                let text = format!("its memory is cut to the {} ms that were heard", audio_end.0);
                Some(Moment::says(at_us, Lane::Model, text).in_tone(Tone::Cut))
            }
            Command::Model(ModelCommand::DeleteItem { .. }) => {
                Some(Moment::says(at_us, Lane::Model, "forgets what nobody heard").in_tone(Tone::Cut))
            }
            Command::Model(
                ModelCommand::CommitTurn
                | ModelCommand::CreateResponse { .. }
                | ModelCommand::CancelResponse { .. }
                | ModelCommand::AddContext { .. }
                | ModelCommand::AddHistory { .. },
            )
            | Command::KeepAudio { .. }
            | Command::SendAudio { .. }
            | Command::SendMark { .. }
            | Command::ClearPlayback
            | Command::ReleaseAudio { .. }
            | Command::Work(_)
            | Command::OpenModel
            | Command::PublishState { .. }
            | Command::Measure { .. }
            | Command::CloseStream { .. } => None,
        }
    }

    fn of_decision(&mut self, at_us: u64, decision: &Decision) -> Option<Moment> {
        let says = |lane, text: String| Some(Moment::says(at_us, lane, text));
        match decision {
            Decision::SpeechRetracted { resumed: true } => {
                says(Lane::Sent, "a false start: goes on where it held".to_owned())
            }
            Decision::BargedIn { unheard, .. } => {
                let text = format!("the caller cuts in: {} ms of this will never be heard", unheard.0);
                Some(Moment::says(at_us, Lane::Sent, text).turning(false).in_tone(Tone::Cut))
            }
            Decision::ResponsePlanned { purpose, deliveries, .. } => {
                let news = if deliveries.is_empty() { "" } else { ", with the news" };
                says(Lane::Model, format!("is asked for {}{news}", purpose_in_words(*purpose)))
            }
            Decision::ResponseSounds { .. } => Some(Moment::turns(at_us, Lane::Sent, true)),
            Decision::PlaybackEnded(end) => Some(played(at_us, end)),
            Decision::ResponseRefused { .. } => says(Lane::Model, "would not start; the answer stays owed".to_owned()),
            Decision::AnswerAbandoned { .. } => {
                Some(Moment::says(at_us, Lane::Model, "gives no answer; given up").in_tone(Tone::Cut))
            }
            Decision::SessionLost { reason } => Some(
                Moment::says(at_us, Lane::Model, format!("another session is opened: {reason}")).in_tone(Tone::Cut),
            ),
            Decision::ClaimUnfounded { claim, .. } => Some(
                Moment::says(at_us, Lane::Model, format!("claims what is not done: \"{claim}\"")).in_tone(Tone::Cut),
            ),
            Decision::SessionRestored { .. } => says(Lane::Model, "is told what came before".to_owned()),
            Decision::GateJudged { decision, reason, .. } => {
                says(Lane::Gate, format!("{}: {}", decision_in_words(*decision), reason_in_words(*reason)))
            }
            Decision::OfferWithdrawn { reason, .. } => {
                says(Lane::Gate, format!("takes it back: {}", reason_in_words(*reason)))
            }
            Decision::DeliveryChanged { change, .. } => Some(delivery_changed(at_us, change)),
            Decision::DeliveryTakenOver { reason, .. } => says(Lane::Gate, format!("no longer ours to tell: {reason}")),
            Decision::ModelComplained { code, message } => says(Lane::Model, format!("complains ({code}): {message}")),
            Decision::SaveFailed { .. }
            | Decision::SpeechTentative { .. }
            | Decision::SpeechRetracted { resumed: false }
            | Decision::SpeechConfirmed
            | Decision::SpeechEnded
            | Decision::TurnOpened { .. }
            | Decision::TurnClosed { .. }
            | Decision::CallerSaid { .. }
            | Decision::MarkJudged { .. }
            | Decision::ResponseEnded { .. }
            | Decision::LateForResponse { .. }
            | Decision::ToolCallDropped { .. }
            | Decision::ToolCallProposed { .. } => None,
        }
    }
}

fn of_work(at_us: u64, event: &WorkEvent) -> Option<Moment> {
    let says = |text: String| Moment::says(at_us, Lane::Work, text);
    match event {
        WorkEvent::Admitted { attached_to: Some(_), .. } => {
            Some(says("already asked for: nothing is started again".to_owned()))
        }
        WorkEvent::Admitted { .. } => Some(says("admitted and on disk; the request goes out".to_owned()).turning(true)),
        WorkEvent::Refused { refusal, .. } => Some(says(format!("refused: {}", refusal.say)).in_tone(Tone::Cut)),
        WorkEvent::Finished { status, result, .. } => {
            // The result begins with the tool and its status.
            Some(says(format!("the executor knows: {result}")).turning(!status.is_terminal()).in_tone(Tone::Good))
        }
        WorkEvent::DeliveryReady(brief) => {
            let from = if brief.from_earlier_call { " from the earlier call" } else { "" };
            Some(Moment::says(at_us, Lane::Gate, format!("has news{from} for the caller")).turning(true))
        }
        WorkEvent::SaveRefused { reason, .. } => {
            Some(says(format!("a write was refused: {reason}")).in_tone(Tone::Cut))
        }
        WorkEvent::SaveFailed { reason, .. } => {
            Some(says(format!("a write failed and is tried again: {reason}")).in_tone(Tone::Cut))
        }
        WorkEvent::Saved { .. } => None,
    }
}

fn played(at_us: u64, end: &PlaybackEnd) -> Moment {
    let (proven, possible) = (end.proven.ms().0, end.possible.ms().0);
    let total = end.total.map_or_else(String::new, |total| format!(" of {}", total.ms().0));
    let (text, tone) = match end.how {
        PlaybackEndedBy::Played => (format!("marks prove {proven}{total} ms heard"), Tone::Plain),
        PlaybackEndedBy::Cleared => {
            (format!("was cut: marks prove {proven}, at most {possible}{total} ms heard"), Tone::Cut)
        }
        PlaybackEndedBy::MarksLost => {
            (format!("no marks: {proven} ms proven, {possible}{total} ms possible"), Tone::Cut)
        }
        PlaybackEndedBy::StreamEnded => (format!("the stream ended at {proven} to {possible}{total} ms"), Tone::Cut),
    };
    Moment::says(at_us, Lane::Sent, text).turning(false).in_tone(tone)
}

fn delivery_changed(at_us: u64, change: &DeliveryChange) -> Moment {
    let says = |text: String| Moment::says(at_us, Lane::Gate, text);
    match change {
        DeliveryChange::Offered { attached: true } => says("lets it join the answer that is due".to_owned()),
        DeliveryChange::Offered { attached: false } => says("lets it be told now".to_owned()),
        DeliveryChange::Heard { heard } => {
            says(format!("told: heard by mark, {} ms", heard.0)).turning(false).in_tone(Tone::Good)
        }
        DeliveryChange::Interrupted { heard } => {
            says(format!("cut after {} ms: due again", heard.0)).in_tone(Tone::Cut)
        }
        DeliveryChange::Unproven { possible } => {
            says(format!("no mark came: uncertain ({} ms possible), never news again", possible.0)).in_tone(Tone::Cut)
        }
        DeliveryChange::Withdrawn { .. } => says("not said after all: due again".to_owned()),
        DeliveryChange::Suppressed { reason } => says(format!("not to be told: {reason}")).turning(false),
        DeliveryChange::Superseded { .. } => says("newer news says it better".to_owned()).turning(false),
        DeliveryChange::Expired => says("too late to be news".to_owned()).turning(false),
    }
}

const fn purpose_in_words(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Greet => "a greeting",
        Purpose::Reply => "an answer",
        Purpose::Acknowledge => "an acknowledgement that promises nothing",
        Purpose::Deliver => "the news",
        Purpose::Prod => "an answer that has not come",
        Purpose::CheckIn => "whether the caller is there",
        Purpose::Farewell => "goodbye",
        Purpose::Unasked => "nothing",
        Purpose::OfItself => "what the model says of itself",
    }
}

pub(crate) const fn decision_in_words(decision: GateDecision) -> &'static str {
    match decision {
        GateDecision::DeliverNow => "now",
        GateDecision::InterruptAndDeliver => "now, over our own voice",
        GateDecision::QueueUntilQuiet => "when it is quiet",
        GateDecision::QueueAfterPlayback => "after this sentence",
        GateDecision::AttachToNextResponse => "with the next answer",
        GateDecision::SuppressAndPersist => "not at all",
    }
}

pub(crate) const fn reason_in_words(reason: GateReason) -> &'static str {
    match reason {
        GateReason::AlreadySettled => "its story has ended",
        GateReason::BeingSaid => "it is being said",
        GateReason::Stale => "it is no longer news",
        GateReason::MayHaveBeenHeard => "it may have been heard",
        GateReason::OfferedEnough => "it was offered often enough",
        GateReason::Urgent => "it is urgent",
        GateReason::CallerSpeaking => "the caller is speaking",
        GateReason::PlaybackLive => "the agent is speaking",
        GateReason::ResponseDue => "an answer is due anyway",
        GateReason::NothingCame => "the model made nothing of it",
        GateReason::NobodyThere => "nobody is there any more",
        GateReason::QuietTooShort => "the silence is too short yet",
        GateReason::Quiet => "it is quiet",
    }
}
