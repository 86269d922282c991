//! A recording taken apart: what happened whatever the agent did, and what answered the agent, each answer with its distance
//! from what it answers.

use crate::files::ReplayStep;
use conversation::policy::TurnEnd;
use conversation::{Command, Decision, Input, Purpose};
use std::collections::BTreeMap;
use vocab::delivery::DeliveryBrief;
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::work::{WorkCommand, WorkEvent};
use vocab::{
    CallTime, DeliveryId, MarkName, ModelItemId, ModelResponseId, OperationId, ProviderCallId, ResponseId, Samples,
    SaveId, ToolCallId, TurnId,
};

/// One way to the carrier and back when a recording has no mark that tells: the two 40 ms of the test carrier.
const USUAL_MARK_LAG_US: u64 = 80_000;
/// A commit on a disk that nothing is known of.
const USUAL_SAVE_US: u64 = 2_000;
/// The model's word on a commit or a cancel of which nothing is known.
const USUAL_MODEL_US: u64 = 100_000;

/// A response as it came: events with their distance from the asking, in µs.
#[derive(Clone, Debug)]
pub(super) struct ResponseTape {
    response: ResponseId,
    pub purpose: Purpose,
    pub turn: Option<TurnId>,
    pub deliveries: Vec<DeliveryId>,
    asked_at: CallTime,
    cancelled_at: Option<CallTime>,
    model: Option<ModelResponseId>,
    pub events: Vec<(u64, ModelEvent)>,
}

impl ResponseTape {
    /// It says something about what the model would have done: it sounded, called a tool, or ended by itself.
    pub fn tells(&self) -> bool {
        self.events.iter().any(|(_, event)| match event {
            ModelEvent::AudioReceived { .. }
            | ModelEvent::ToolCallReceived { .. }
            | ModelEvent::CreateRefused { .. } => true,
            ModelEvent::ResponseEnded { end, .. } => *end != ResponseEnd::Cancelled,
            ModelEvent::SessionOpened { .. }
            | ModelEvent::SessionReady
            | ModelEvent::SessionExpires { .. }
            | ModelEvent::SpeechStarted
            | ModelEvent::SpeechStopped
            | ModelEvent::TurnCommitted { .. }
            | ModelEvent::CallerTranscript { .. }
            | ModelEvent::ResponseCreated { .. }
            | ModelEvent::TranscriptReceived { .. }
            | ModelEvent::ErrorReported { .. }
            | ModelEvent::SessionLost { .. } => false,
        })
    }
}

/// A delivery that came out of operations of this call.
#[derive(Clone, Debug)]
pub(super) struct DeliveryTape {
    pub brief: DeliveryBrief,
    /// Of each of its operations: how many outcomes had been told before.
    pub after: Vec<(OperationId, usize)>,
    pub delay: u64,
}

#[derive(Clone, Debug)]
pub(super) struct SaveTape {
    pub delay: u64,
    pub answer: SaveAnswer,
}

#[derive(Clone, Debug)]
pub(super) enum SaveAnswer {
    Saved,
    Refused(String),
    Failed(String),
}

#[derive(Clone, Debug)]
pub(super) struct Tape {
    turn_end: TurnEnd,
    /// What happened whatever the agent did.
    pub fixed: Vec<(CallTime, Input)>,
    pub responses: Vec<ResponseTape>,
    /// Admission or refusal of a proposal.
    pub admissions: BTreeMap<ProviderCallId, (u64, WorkEvent)>,
    /// Outcomes of an operation, from its admission.
    pub outcomes: BTreeMap<OperationId, Vec<(u64, WorkEvent)>>,
    pub deliveries: Vec<DeliveryTape>,
    pub saves: BTreeMap<DeliveryId, Vec<SaveTape>>,
    /// Items that the model made of our commits.
    pub commits: Vec<(u64, ModelItemId)>,
    pub save_delay: u64,
    pub commit_delay: u64,
    pub cancel_delay: u64,
    /// From the end of a mark's audio to its echo; `None`: no mark ever came back.
    pub mark_lag: Option<u64>,
    /// Nothing is known after this.
    pub ends: CallTime,

    by_model: BTreeMap<ModelResponseId, Option<usize>>,
    proposed: BTreeMap<ToolCallId, (ProviderCallId, CallTime)>,
    admitted: BTreeMap<OperationId, CallTime>,
    told: BTreeMap<OperationId, Vec<CallTime>>,
    saving: BTreeMap<SaveId, (DeliveryId, CallTime)>,
    committed: Vec<CallTime>,
    buffer_end: CallTime,
    marks: BTreeMap<MarkName, CallTime>,
    marks_sent: u32,
    lags: Vec<u64>,
    cancels: Vec<u64>,
}

impl Tape {
    pub fn new(turn_end: TurnEnd) -> Self {
        Self {
            turn_end,
            fixed: Vec::new(),
            responses: Vec::new(),
            admissions: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            deliveries: Vec::new(),
            saves: BTreeMap::new(),
            commits: Vec::new(),
            save_delay: USUAL_SAVE_US,
            commit_delay: USUAL_MODEL_US,
            cancel_delay: USUAL_MODEL_US,
            mark_lag: Some(USUAL_MARK_LAG_US),
            ends: CallTime(0),
            by_model: BTreeMap::new(),
            proposed: BTreeMap::new(),
            admitted: BTreeMap::new(),
            told: BTreeMap::new(),
            saving: BTreeMap::new(),
            committed: Vec::new(),
            buffer_end: CallTime(0),
            marks: BTreeMap::new(),
            marks_sent: 0,
            lags: Vec::new(),
            cancels: Vec::new(),
        }
    }

    /// Takes the next step in.
    pub fn take(&mut self, step: ReplayStep) {
        let at = step.at;
        self.ends = self.ends.max(at);
        match step.input {
            Input::TimePassed => {}
            Input::MarkReturned { mark } => {
                if let Some(due) = self.marks.remove(&mark) {
                    self.lags.push(at.0.saturating_sub(due.0));
                }
            }
            Input::Model(event) => self.model(at, event),
            Input::Work(event) => self.work(at, event),
            Input::CallStarted { .. }
            | Input::CallerAudio { .. }
            | Input::DtmfPressed { .. }
            | Input::StreamEnded
            | Input::DrainRequested => self.fixed.push((at, step.input)),
        }
        for command in step.commands {
            self.commanded(at, command);
        }
    }

    fn model(&mut self, at: CallTime, event: ModelEvent) {
        let place = match &event {
            ModelEvent::TurnCommitted { item } if self.turn_end == TurnEnd::Local => {
                // The model's answer to a commit of ours: they come in order.
                if let Some(asked) = self.committed.get(self.commits.len()) {
                    self.commits.push((at.0.saturating_sub(asked.0), *item));
                    return;
                }
                None
            }
            ModelEvent::ResponseCreated { response, request } => {
                let place = match request {
                    Some(request) => self.responses.iter().position(|tape| tape.response == *request),
                    None => self.responses.iter().rposition(|tape| tape.model.is_none() && tape.events.is_empty()),
                };
                if let Some(place) = place {
                    self.responses[place].model = Some(*response);
                }
                self.by_model.insert(*response, place);
                place
            }
            ModelEvent::AudioReceived { response, .. }
            | ModelEvent::TranscriptReceived { response, .. }
            | ModelEvent::ToolCallReceived { response, .. } => self.by_model.get(response).copied().flatten(),
            ModelEvent::ResponseEnded { response, request, .. } => {
                let by_request = || self.responses.iter().position(|tape| Some(tape.response) == *request);
                self.by_model.get(response).copied().unwrap_or_else(by_request)
            }
            ModelEvent::CreateRefused { request, .. } => {
                self.responses.iter().position(|tape| tape.response == *request)
            }
            ModelEvent::SessionOpened { .. }
            | ModelEvent::SessionReady
            | ModelEvent::SessionExpires { .. }
            | ModelEvent::SpeechStarted
            | ModelEvent::SpeechStopped
            | ModelEvent::TurnCommitted { .. }
            | ModelEvent::CallerTranscript { .. }
            | ModelEvent::ErrorReported { .. }
            | ModelEvent::SessionLost { .. } => None,
        };
        let Some(place) = place else {
            self.fixed.push((at, Input::Model(event)));
            return;
        };
        let tape = &mut self.responses[place];
        if let (ModelEvent::ResponseEnded { end: ResponseEnd::Cancelled, .. }, Some(cancelled)) =
            (&event, tape.cancelled_at)
        {
            self.cancels.push(at.0.saturating_sub(cancelled.0));
        }
        tape.events.push((at.0.saturating_sub(tape.asked_at.0), event));
    }

    fn work(&mut self, at: CallTime, event: WorkEvent) {
        match &event {
            WorkEvent::Admitted { tool_call, operation, .. } => {
                if let Some((call, asked)) = self.proposed.get(tool_call) {
                    self.admissions.insert(call.clone(), (at.0.saturating_sub(asked.0), event.clone()));
                    self.admitted.entry(operation.clone()).or_insert(at);
                    return;
                }
            }
            WorkEvent::Refused { tool_call, .. } => {
                if let Some((call, asked)) = self.proposed.get(tool_call) {
                    self.admissions.insert(call.clone(), (at.0.saturating_sub(asked.0), event));
                    return;
                }
            }
            WorkEvent::Finished { operation, .. } => {
                if let Some(admitted) = self.admitted.get(operation) {
                    let delay = at.0.saturating_sub(admitted.0);
                    self.told.entry(operation.clone()).or_default().push(at);
                    self.outcomes.entry(operation.clone()).or_default().push((delay, event));
                    return;
                }
            }
            WorkEvent::DeliveryReady(brief) => {
                let ours = brief.operations.iter().all(|operation| self.admitted.contains_key(operation));
                if ours && !brief.operations.is_empty() {
                    let told = |operation: &OperationId| self.told.get(operation).map_or(&[][..], Vec::as_slice);
                    let last = |operation| told(operation).last().or(self.admitted.get(operation)).copied();
                    let since = brief.operations.iter().filter_map(last).max().unwrap_or(at);
                    let after = brief.operations.iter().map(|id| (id.clone(), told(id).len())).collect();
                    let delay = at.0.saturating_sub(since.0);
                    self.deliveries.push(DeliveryTape { brief: brief.clone(), after, delay });
                    return;
                }
            }
            WorkEvent::Saved { save } => return self.saved(at, *save, SaveAnswer::Saved),
            WorkEvent::SaveRefused { save, reason } => {
                return self.saved(at, *save, SaveAnswer::Refused(reason.clone()));
            }
            WorkEvent::SaveFailed { save, reason } => return self.saved(at, *save, SaveAnswer::Failed(reason.clone())),
        }
        // Of something that this log does not hold the beginning of.
        self.fixed.push((at, Input::Work(event)));
    }

    fn saved(&mut self, at: CallTime, save: SaveId, answer: SaveAnswer) {
        if let Some((delivery, asked)) = self.saving.remove(&save) {
            let delay = at.0.saturating_sub(asked.0);
            self.saves.entry(delivery).or_default().push(SaveTape { delay, answer });
        }
    }

    fn commanded(&mut self, at: CallTime, command: Command) {
        match command {
            Command::Explain(Decision::ResponsePlanned { response, purpose, turn, deliveries }) => {
                self.responses.push(ResponseTape {
                    response,
                    purpose,
                    turn,
                    deliveries,
                    asked_at: at,
                    cancelled_at: None,
                    model: None,
                    events: Vec::new(),
                });
            }
            Command::Model(ModelCommand::CancelResponse { response }) => {
                if let Some(tape) = self.responses.iter_mut().find(|tape| tape.response == response) {
                    tape.cancelled_at = Some(at);
                }
            }
            Command::Model(ModelCommand::CommitTurn) => self.committed.push(at),
            Command::Work(WorkCommand::Propose(proposal)) => {
                self.proposed.insert(proposal.tool_call, (proposal.provider_call, at));
            }
            Command::Work(WorkCommand::SaveDelivery { save, delivery, .. }) => {
                self.saving.insert(save, (delivery, at));
            }
            Command::SendAudio { from, to, .. } => self.buffer_end = played_by(self.buffer_end, at, to - from),
            Command::SendMark { mark } => match mark {
                MarkName::Played { .. } => {
                    self.marks_sent += 1;
                    self.marks.insert(mark, self.buffer_end.max(at));
                }
                MarkName::Fence { .. } => {}
            },
            Command::ClearPlayback => {
                // Their echoes tell of the clear.
                self.marks.clear();
                self.buffer_end = at;
            }
            Command::KeepAudio { .. }
            | Command::ReleaseAudio { .. }
            | Command::Model(
                ModelCommand::CreateResponse { .. }
                | ModelCommand::TruncateItem { .. }
                | ModelCommand::DeleteItem { .. }
                | ModelCommand::SubmitToolOutput { .. }
                | ModelCommand::AddContext { .. }
                | ModelCommand::AddHistory { .. },
            )
            | Command::Work(WorkCommand::SealBatch { .. })
            | Command::OpenModel
            | Command::PublishState { .. }
            | Command::Measure { .. }
            | Command::CloseStream { .. }
            | Command::Explain(_) => {}
        }
    }

    /// All steps were taken: what is usual in this call.
    pub fn wound_up(mut self) -> Self {
        let delays = self.saves.values().flatten().map(|save| save.delay).collect();
        self.save_delay = median(delays).unwrap_or(self.save_delay);
        self.commit_delay = median(self.commits.iter().map(|(delay, _)| *delay).collect()).unwrap_or(self.commit_delay);
        self.cancel_delay = median(std::mem::take(&mut self.cancels)).unwrap_or(self.cancel_delay);
        // Sent, and none came back: this carrier tells nothing. None sent: as usual.
        let usual = (self.marks_sent == 0).then_some(USUAL_MARK_LAG_US);
        self.mark_lag = median(std::mem::take(&mut self.lags)).or(usual);
        for tape in &mut self.responses {
            close(tape);
        }
        self
    }
}

/// When a buffer that runs dry at `end` runs dry after more audio, which is padded to whole frames.
pub(super) fn played_by(end: CallTime, at: CallTime, audio: Samples) -> CallTime {
    let frame = vocab::audio::FRAME_BYTES as u32;
    end.max(at) + Samples(audio.0.div_ceil(frame) * frame).duration()
}

/// A response that was cut off is taken as ending where it was cut: what it would have said is not in the recording.
fn close(tape: &mut ResponseTape) {
    let Some(model) = tape.model else { return };
    let last = tape.events.last().map_or(0, |(delay, _)| *delay);
    let mut ended = false;
    for (_, event) in &mut tape.events {
        if let ModelEvent::ResponseEnded { end, .. } = event {
            ended = true;
            if *end == ResponseEnd::Cancelled {
                *end = ResponseEnd::Completed;
            }
        }
    }
    if !ended {
        let end = ResponseEnd::Completed;
        tape.events.push((last, ModelEvent::ResponseEnded { response: model, request: Some(tape.response), end }));
    }
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
