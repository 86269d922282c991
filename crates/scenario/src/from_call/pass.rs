//! One stream on its way into the facts, step by step.

use super::facts::{Facts, Happening, Hearing, Operation, Response};
use super::sounds::sounds;
use super::streams::Stream;
use crate::events::{Event, Steps, WordsOf};
use conversation::{CloseReason, Command, Decision, Input, PlaybackEndedBy, Policy};
use replay::ReplayStep;
use std::collections::BTreeMap;
use vocab::delivery::{DeliveryChange, DeliveryState};
use vocab::model::{ModelCommand, ModelEvent};
use vocab::work::{Proposal, WorkCommand, WorkEvent};
use vocab::{DeliveryId, MarkName, ModelResponseId, ResponseId, SaveId, ToolCallId};

/// A mark that takes longer than its audio and so much more is late.
const LATE_US: u64 = 250_000;
/// Nobody hears less of a line; the ear of a scenario wants as much to be sure.
const HEARD_SAMPLES: u32 = 400;
/// A last part frame may be missing from a line that was heard.
const FRAME_SAMPLES: u32 = 160;

pub struct Pass<'a> {
    facts: &'a mut Facts,
    stream: &'a Stream,
    offset_us: u64,
    steps: &'a mut usize,
    told: Steps,
    /// Where each response of this stream lies in the facts.
    place: BTreeMap<ResponseId, usize>,
    by_model: BTreeMap<ModelResponseId, usize>,
    proposed: BTreeMap<ToolCallId, Proposal>,
    saving: BTreeMap<SaveId, (DeliveryId, DeliveryChange)>,
    buffer_us: u64,
    marks: BTreeMap<MarkName, u64>,
    marks_sent: u32,
    marks_back: u32,
    /// When they should have come back, and how late they did.
    late: Vec<(u64, u64)>,
}

impl<'a> Pass<'a> {
    pub fn new(facts: &'a mut Facts, stream: &'a Stream, offset_us: u64, steps: &'a mut usize) -> Self {
        Self {
            facts,
            stream,
            offset_us,
            steps,
            told: Steps::default(),
            place: BTreeMap::new(),
            by_model: BTreeMap::new(),
            proposed: BTreeMap::new(),
            saving: BTreeMap::new(),
            buffer_us: 0,
            marks: BTreeMap::new(),
            marks_sent: 0,
            marks_back: 0,
            late: Vec::new(),
        }
    }

    pub fn run(mut self, policy: &Policy) {
        for sound in sounds(self.stream, policy) {
            self.happened(self.offset_us + sound.from_us, Happening::Sound(sound));
        }
        for step in &self.stream.steps {
            *self.steps += 1;
            self.step(step);
        }
        if self.marks_sent > 0 && self.marks_back == 0 {
            self.happened(self.offset_us, Happening::MarksDropped);
        } else if let Some((from_us, _)) = self.late.first() {
            let mut lags: Vec<u64> = self.late.iter().map(|(_, lag_us)| *lag_us).collect();
            lags.sort_unstable();
            let ms = lags[lags.len() / 2] / 1_000;
            self.happened(*from_us, Happening::MarksLate(ms as u32));
        }
    }

    fn happened(&mut self, at_us: u64, what: Happening) {
        self.facts.happenings.push((at_us, what));
    }

    fn step(&mut self, step: &ReplayStep) {
        let at_us = self.offset_us + step.at.0;
        let mut events: Vec<Event> = Vec::new();
        self.told.input(at_us, &step.input, &mut events);
        match &step.input {
            Input::CallStarted { greeting } if self.facts.greeting.is_none() => {
                self.facts.greeting.clone_from(greeting)
            }
            Input::DtmfPressed { digit } => self.happened(at_us, Happening::Key(*digit)),
            Input::MarkReturned { mark } => self.mark_returned(at_us, *mark),
            Input::Model(event) => self.model(at_us, event),
            Input::Work(event) => self.work(at_us, event),
            Input::StreamEnded => self.facts.lose_evidence(),
            Input::DrainRequested => {
                self.facts.untold.push("the server was asked to stop during the call".into());
            }
            Input::CallStarted { .. } | Input::CallerAudio { .. } | Input::TimePassed => {}
        }
        for command in &step.commands {
            let words_of = |response: ResponseId| self.stream.words.get(&response).cloned();
            self.told.command(at_us, command, WordsOf::Response(&words_of), &mut events);
            self.command(at_us, command);
        }
        self.facts.events.extend(events.into_iter().map(|event| (*self.steps, event)));
    }

    fn response(&mut self, response: &ModelResponseId) -> Option<&mut Response> {
        self.facts.responses.get_mut(*self.by_model.get(response)?)
    }

    fn model(&mut self, at_us: u64, event: &ModelEvent) {
        match event {
            ModelEvent::ResponseCreated { response, request } => {
                let place = match request {
                    Some(request) => self.place.get(request).copied(),
                    None => self.place.values().copied().max(),
                };
                if let Some(place) = place {
                    self.by_model.insert(*response, place);
                }
            }
            ModelEvent::AudioReceived { response, samples, .. } => {
                if let Some(known) = self.response(response) {
                    known.first_us.get_or_insert(at_us);
                    known.samples += samples.0;
                }
            }
            ModelEvent::ToolCallReceived { response, name, arguments, .. } => {
                if let Some(known) = self.response(response) {
                    known.first_us.get_or_insert(at_us);
                    known.calls.push((name.clone(), arguments.clone()));
                }
            }
            ModelEvent::ResponseEnded { response, request, end } => {
                let asked = request.and_then(|request| self.place.get(&request).copied());
                let place = self.by_model.get(response).copied().or(asked);
                if let Some(known) = place.and_then(|place| self.facts.responses.get_mut(place)) {
                    known.end = Some(end.clone());
                }
            }
            ModelEvent::CreateRefused { request, .. } => {
                if let Some(place) = self.place.get(request).copied() {
                    self.facts.responses[place].refused = true;
                    let asked_us = self.facts.responses[place].asked_us;
                    self.happened(asked_us.saturating_sub(50_000), Happening::Refused(1));
                }
            }
            ModelEvent::SessionLost { .. } => self.happened(at_us, Happening::ModelLost),
            ModelEvent::ErrorReported { code, .. } => {
                self.facts.untold.push(format!("the model's provider complained of `{code}`"));
            }
            ModelEvent::SessionOpened { .. }
            | ModelEvent::SessionReady
            | ModelEvent::SessionExpires { .. }
            | ModelEvent::SpeechStarted
            | ModelEvent::SpeechStopped
            | ModelEvent::TurnCommitted { .. }
            | ModelEvent::CallerTranscript { .. }
            | ModelEvent::TranscriptReceived { .. } => {}
        }
    }

    fn work(&mut self, at_us: u64, event: &WorkEvent) {
        match event {
            WorkEvent::Admitted { tool_call, operation, inline_wait_ms, attached_to: None, .. } => {
                let proposal = self.proposed.get(tool_call);
                self.facts.operations.push(Operation {
                    id: operation.clone(),
                    tool: proposal.map(|proposal| proposal.tool.clone()).unwrap_or_default(),
                    arguments: proposal.map(|proposal| proposal.arguments.clone()).unwrap_or_default(),
                    inline_wait_ms: *inline_wait_ms,
                    admitted_us: at_us,
                    outcomes: Vec::new(),
                    killed_us: None,
                });
            }
            WorkEvent::Finished { operation, status, result } => {
                if let Some(known) = self.facts.operations.iter_mut().find(|known| known.id == *operation) {
                    known.outcomes.push((at_us, *status, result.clone()));
                }
            }
            WorkEvent::DeliveryReady(brief) => {
                // What is newer says it better.
                for old in self.facts.briefs.iter().filter(|old| old.delivery != brief.delivery) {
                    let covered = old.operations.iter().all(|operation| brief.operations.contains(operation));
                    let known = self.facts.deliveries.iter_mut().find(|(known, _)| *known == old.delivery);
                    if let Some((_, state)) = known.filter(|(_, state)| covered && !state.is_final()) {
                        *state = DeliveryState::Superseded;
                    }
                }
                match self.facts.deliveries.iter_mut().find(|(known, _)| *known == brief.delivery) {
                    Some((_, state)) => *state = brief.state,
                    None => self.facts.deliveries.push((brief.delivery.clone(), brief.state)),
                }
                // Nobody was there to hear of the outcome itself.
                for operation in self.facts.operations.iter_mut().filter(|o| brief.operations.contains(&o.id)) {
                    if operation.outcomes.is_empty() && brief.all_committed {
                        let committed = vocab::effect::OperationStatus::Committed;
                        operation.outcomes.push((at_us, committed, brief.text.clone()));
                    }
                }
                self.facts.briefs.push(brief.clone());
            }
            WorkEvent::SaveRefused { save, .. } | WorkEvent::SaveFailed { save, .. } => {
                self.saving.remove(save);
            }
            WorkEvent::Saved { save } => {
                if let Some((delivery, change)) = self.saving.remove(save) {
                    self.changed(&delivery, &change);
                }
            }
            WorkEvent::Admitted { .. } | WorkEvent::Refused { .. } => {}
        }
    }

    fn changed(&mut self, delivery: &DeliveryId, change: &DeliveryChange) {
        let Some((_, state)) = self.facts.deliveries.iter_mut().find(|(known, _)| known == delivery) else { return };
        *state = match change {
            DeliveryChange::Offered { .. } => DeliveryState::Offered,
            DeliveryChange::Heard { .. } => DeliveryState::Heard,
            DeliveryChange::Interrupted { .. } | DeliveryChange::Withdrawn { .. } => DeliveryState::Ready,
            DeliveryChange::Unproven { .. } => DeliveryState::Uncertain,
            DeliveryChange::Suppressed { .. } => DeliveryState::Suppressed,
            DeliveryChange::Superseded { .. } => DeliveryState::Superseded,
            DeliveryChange::Expired => DeliveryState::Expired,
        };
    }

    fn command(&mut self, at_us: u64, command: &Command) {
        match command {
            Command::ClearPlayback => {
                self.facts.clears += 1;
                self.marks.clear();
                self.buffer_us = at_us;
            }
            Command::SendAudio { from, to, .. } => {
                let length_us = (*to - *from).duration().as_micros() as u64;
                self.buffer_us = self.buffer_us.max(at_us) + length_us;
            }
            Command::SendMark { mark: mark @ MarkName::Played { .. } } => {
                self.marks_sent += 1;
                self.marks.insert(*mark, self.buffer_us.max(at_us));
            }
            Command::Model(ModelCommand::CreateResponse { response, directions, .. }) => {
                if let Some(place) = self.place.get(response) {
                    self.facts.responses[*place].directions.clone_from(directions);
                }
            }
            Command::Model(ModelCommand::CancelResponse { response }) => {
                if let Some(place) = self.place.get(response) {
                    self.facts.responses[*place].cancelled_us.get_or_insert(at_us);
                }
            }
            Command::Work(WorkCommand::Propose(proposal)) => {
                self.proposed.insert(proposal.tool_call, proposal.clone());
            }
            Command::Work(WorkCommand::SaveDelivery { save, delivery, change }) => {
                self.saving.insert(*save, (delivery.clone(), change.clone()));
            }
            Command::CloseStream { reason } => match reason {
                // The loss itself was an input, or the recording shows it as one.
                CloseReason::ModelLost { .. } | CloseReason::ModelSilent { .. } | CloseReason::CallerAway => {}
                CloseReason::Drained => self.facts.untold.push("the server stopped and ended the call".into()),
                CloseReason::ModelRefused { code } => {
                    self.facts.untold.push(format!("the model's provider would not serve us: `{code}`"));
                }
            },
            Command::Explain(decision) => self.decision(at_us, decision),
            Command::KeepAudio { .. }
            | Command::SendMark { mark: MarkName::Fence { .. } }
            | Command::ReleaseAudio { .. }
            | Command::Model(
                ModelCommand::CommitTurn
                | ModelCommand::TruncateItem { .. }
                | ModelCommand::DeleteItem { .. }
                | ModelCommand::SubmitToolOutput { .. }
                | ModelCommand::AddContext { .. }
                | ModelCommand::AddHistory { .. },
            )
            | Command::Work(WorkCommand::SealBatch { .. })
            | Command::OpenModel
            | Command::PublishState { .. }
            | Command::Measure { .. } => {}
        }
    }

    fn decision(&mut self, at_us: u64, decision: &Decision) {
        if let Decision::ResponsePlanned { response, purpose, .. } = decision {
            self.place.insert(*response, self.facts.responses.len());
            self.facts.responses.push(Response {
                purpose: *purpose,
                directions: None,
                asked_us: at_us,
                first_us: None,
                samples: 0,
                words: self.stream.words.get(response).cloned(),
                calls: Vec::new(),
                end: None,
                cancelled_us: None,
                refused: false,
            });
        }
        let Decision::PlaybackEnded(end) = decision else { return };
        let Some(words) = self.stream.words.get(&end.response) else { return };
        let total = end.total.unwrap_or(end.received);
        let whole = match end.how {
            PlaybackEndedBy::Played | PlaybackEndedBy::MarksLost => Some(true),
            PlaybackEndedBy::Cleared if end.possible.0 + FRAME_SAMPLES < total.0 => Some(false),
            PlaybackEndedBy::Cleared | PlaybackEndedBy::StreamEnded => None,
        };
        if whole != Some(false) || end.proven.0 >= HEARD_SAMPLES {
            self.facts.heard.push(Hearing { words: words.clone(), whole });
        }
    }

    fn mark_returned(&mut self, at_us: u64, mark: MarkName) {
        if let Some(due_us) = self.marks.remove(&mark) {
            self.marks_back += 1;
            let lag_us = at_us.saturating_sub(due_us);
            if lag_us > LATE_US {
                self.late.push((due_us, lag_us));
            }
        }
    }
}
