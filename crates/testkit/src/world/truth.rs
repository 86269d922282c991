//! What truly happened on one stream, kept beside the core and never shown to it: what each response was asked to say, what
//! of it the caller heard, what the model was told. The core's claims are measured against it.

use super::checks::status_of;
use super::engine::World;
use super::line::Line;
use super::model::Model;
use super::plan::Fault;
use super::queue::{MS, Micros};
use conversation::history::Entry;
use conversation::{AgentState, Command, Decision, Purpose};
use operations::batch::can_be_told;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vocab::audio::FRAME_BYTES;
use vocab::delivery::{DeliveryChange, DeliveryState};
use vocab::effect::{OperationStatus, Priority};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::work::{WorkCommand, WorkEvent};
use vocab::{DeliveryId, ModelItemId, ModelResponseId, OperationId, PlaybackId, ProviderCallId, ResponseId, Samples};

/// Creates within a second; a model that fails at once is asked three times within it.
const MOST_CREATES_A_SECOND: usize = 12;
/// Tool calls of one response that may become work.
const MOST_PROPOSALS: u32 = 8;
/// The words that say that something is no news.
const HEDGE: &str = "The caller may already have heard this";

#[derive(Debug)]
pub struct Asked {
    purpose: Purpose,
    /// Answers outputs of tools, and no turn.
    answers_tools: bool,
    /// With whether it was told as news.
    deliveries: Vec<(DeliveryId, bool)>,
    cancelled: bool,
    playback: Option<PlaybackId>,
    received: Samples,
    sent: Samples,
    end: Option<ResponseEnd>,
    proposals: u32,
}

#[derive(Debug)]
struct Known {
    operations: Vec<OperationId>,
    text: String,
    in_model: bool,
}

#[derive(Debug, Default)]
pub struct Truth {
    asked: BTreeMap<ResponseId, Asked>,
    planned: Option<(ResponseId, Purpose, bool, Vec<DeliveryId>)>,
    by_playback: BTreeMap<PlaybackId, ResponseId>,
    items: BTreeMap<ModelItemId, (PlaybackId, Samples)>,
    /// The audio event that is being stepped.
    hearing: Option<(ModelResponseId, ModelItemId, Samples)>,
    cleared: Option<PlaybackId>,
    known: BTreeMap<DeliveryId, Known>,
    /// Outcomes that the model has been given.
    in_model: BTreeSet<OperationId>,
    admitted: BTreeSet<OperationId>,
    /// Outputs for each call of the model.
    calls: BTreeMap<ProviderCallId, u32>,
    creates: VecDeque<Micros>,
    /// When the carrier's buffer runs dry, as far as the sender can know.
    fed_until: Micros,
    /// An answer to tool outputs was cut before it was heard.
    cut_answer: Option<ResponseId>,
    /// Another model session is being opened: outcomes go to it with the history.
    reopening: bool,
    /// Outcomes that the next session must be told of.
    untold: BTreeSet<OperationId>,
}

impl Truth {
    pub fn model_said(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::AudioReceived { response, item, samples } => self.hearing = Some((*response, *item, *samples)),
            ModelEvent::ToolCallReceived { provider_call, .. } => {
                self.calls.insert(provider_call.clone(), 0);
            }
            ModelEvent::ResponseEnded { request: Some(request), end, .. } => {
                if let Some(asked) = self.asked.get_mut(request) {
                    asked.end.get_or_insert(end.clone());
                }
            }
            _ => {}
        }
    }

    pub fn work_said(&mut self, event: &WorkEvent) {
        match event {
            WorkEvent::Admitted { operation, .. } => {
                self.admitted.insert(operation.clone());
            }
            WorkEvent::DeliveryReady(brief) => {
                let known = Known { operations: brief.operations.clone(), text: brief.text.clone(), in_model: false };
                self.known.entry(brief.delivery.clone()).or_insert(known);
            }
            _ => {}
        }
    }

    /// R11: an outcome that the core was told of goes to the model in the same step.
    pub fn finished(&mut self, operation: &OperationId, status: OperationStatus, out: &[Command]) -> Option<String> {
        if !self.admitted.contains(operation) {
            return None;
        }
        if self.reopening {
            self.untold.insert(operation.clone());
            return None;
        }
        let told = out.iter().any(|command| match command {
            Command::Model(ModelCommand::SubmitToolOutput { output: text, .. } | ModelCommand::AddContext { text }) => {
                text.contains(operation.as_str()) && text.contains(status.as_str())
            }
            _ => false,
        });
        self.in_model.insert(operation.clone());
        (!told).then(|| format!("{operation} is {} and the model is not told", status.as_str()))
    }

    /// The session is gone with all that it knew, and nothing more comes of what it was asked.
    pub fn session_lost(&mut self) {
        self.reopening = true;
        self.untold.append(&mut self.in_model);
        self.calls.clear();
        for known in self.known.values_mut() {
            known.in_model = false;
        }
        for asked in self.asked.values_mut() {
            asked.end.get_or_insert(ResponseEnd::Failed { code: "session_lost".into() });
        }
    }

    /// A part of the history for a new session; the last one says that it is the last. R11: every outcome is among them.
    fn history_told(&mut self, text: &str) -> Option<(&'static str, String)> {
        self.untold.retain(|operation| !text.contains(operation.as_str()));
        if !text.contains("was renewed") {
            return None;
        }
        self.reopening = false;
        let untold = std::mem::take(&mut self.untold);
        self.in_model.extend(self.admitted.iter().filter(|operation| !untold.contains(*operation)).cloned());
        (!untold.is_empty()).then(|| ("R11", format!("a new model session is not told of {untold:?}")))
    }

    /// An output may carry an outcome: of a call that joined an operation which had settled.
    fn output_tells(&mut self, output: &str) {
        let output: serde_json::Value = serde_json::from_str(output).unwrap_or_default();
        let status = output["status"].as_str().and_then(status_of);
        if let (Some(id), Some(status)) = (output["operation_id"].as_str(), status)
            && can_be_told(status)
        {
            self.in_model.insert(OperationId::new(id));
        }
    }

    /// Nothing is on its way to the model that a response of its own could be mistaken for.
    pub fn asks_nothing(&self) -> bool {
        self.asked.values().all(|asked| asked.cancelled || asked.end.is_some())
    }

    pub fn unanswered_call(&self) -> Option<String> {
        self.calls.iter().find(|(_, outputs)| **outputs == 0).map(|(call, _)| format!("{call} never got an output"))
    }

    fn heard(&self, line: &Line, now: Micros, response: ResponseId) -> Samples {
        let playback = self.asked.get(&response).and_then(|asked| asked.playback);
        playback.map_or(Samples::ZERO, |playback| line.heard_of(now, playback))
    }

    /// The sound of an answer to tool outputs was cut before its end.
    fn cut(&mut self, line: &Line, now: Micros, response: ResponseId) {
        let heard = self.heard(line, now, response);
        if let Some(asked) = self.asked.get_mut(&response) {
            asked.cancelled = true;
            if asked.answers_tools && (asked.end.is_none() || heard + Samples::from_ms(900) < asked.received) {
                self.cut_answer = Some(response);
            }
        }
    }

    fn audio_kept(&mut self, model: &Model, playback: PlaybackId, from: Samples) -> Option<(&'static str, String)> {
        let (response, item, samples) = self.hearing.take()?;
        let Some(request) = model.request_of(response) else {
            return Some(("R4", format!("{response}, which nobody asked for, is kept as {playback}")));
        };
        let asked = self.asked.get_mut(&request)?;
        if asked.cancelled {
            return Some(("R4", format!("audio of {request} is kept after it was cancelled")));
        }
        asked.playback = Some(playback);
        asked.received += samples;
        self.by_playback.insert(playback, request);
        self.items.entry(item).or_insert((playback, from));
        None
    }

    fn audio_sent(&mut self, playback: PlaybackId, from: Samples, to: Samples) -> Option<(&'static str, String)> {
        if self.cleared.is_some_and(|cleared| playback <= cleared) {
            return Some(("R4", format!("{playback} is fed again after it was cleared")));
        }
        let response = *self.by_playback.get(&playback)?;
        let asked = self.asked.get_mut(&response)?;
        if from != asked.sent || to > asked.received {
            let what = format!("{playback}: {}..{} sent after {} of {}", from.0, to.0, asked.sent.0, asked.received.0);
            return Some(("B", what));
        }
        asked.sent = to;
        None
    }

    fn output(&mut self, call: &ProviderCallId) -> Option<(&'static str, String)> {
        let outputs = self.calls.get_mut(call)?;
        *outputs += 1;
        (*outputs > 1).then(|| ("R11", format!("{call} got {outputs} outputs")))
    }
}

impl World {
    pub fn check_command(&mut self, n: usize, command: &Command) {
        let now = self.now;
        let stream = &mut self.streams[n];
        let cut_off = stream.is_cut_off();
        let truth = &mut stream.truth;
        let broken = match command {
            Command::Explain(Decision::ResponsePlanned { response, purpose, turn, deliveries }) => {
                let tools = turn.is_none() && matches!(purpose, Purpose::Reply | Purpose::Acknowledge);
                truth.planned = Some((*response, *purpose, tools, deliveries.clone()));
                None
            }
            Command::Explain(Decision::BargedIn { responses, .. }) => {
                for response in responses {
                    truth.cut(&stream.line, now, *response);
                }
                None
            }
            // Not cut by the caller: what a failure leaves is a delivery (B4).
            Command::Explain(Decision::ResponseEnded { response, end: ResponseEnd::Failed { code } })
                if code == "stalled" =>
            {
                truth.cut_answer = truth.cut_answer.filter(|cut| cut != response);
                None
            }
            Command::Explain(Decision::AnswerAbandoned { response }) => {
                truth.cut_answer = truth.cut_answer.filter(|cut| cut != response);
                None
            }
            Command::KeepAudio { playback, from } => truth.audio_kept(&stream.model, *playback, *from),
            Command::SendAudio { playback, from, to } => {
                let frames = (*to - *from).0.div_ceil(FRAME_BYTES as u32);
                truth.fed_until = truth.fed_until.max(now) + u64::from(frames) * 20 * MS;
                // The silence that fills the last frame comes on top.
                let lead = (u64::from(self.plan.policy.playback.lead_ms) + 20) * MS;
                truth.audio_sent(*playback, *from, *to).or((truth.fed_until > now + lead).then(|| {
                    ("R14", format!("{playback}: {} ms lie in the carrier's buffer", (truth.fed_until - now) / MS))
                }))
            }
            Command::Work(WorkCommand::Propose(proposal)) => {
                truth.asked.get_mut(&proposal.response).and_then(|asked| {
                    asked.proposals += 1;
                    (asked.proposals > MOST_PROPOSALS)
                        .then(|| ("R14", format!("{} proposes {} tool calls", proposal.response, asked.proposals)))
                })
            }
            Command::ClearPlayback => {
                truth.fed_until = now;
                truth.cleared = truth.by_playback.keys().next_back().copied();
                None
            }
            Command::Model(ModelCommand::CreateResponse { response, directions, .. }) => {
                return self.check_create(n, *response, directions.as_deref().unwrap_or_default());
            }
            Command::Model(ModelCommand::CancelResponse { response }) => {
                truth.cut(&stream.line, now, *response);
                None
            }
            Command::Model(ModelCommand::SubmitToolOutput { provider_call, output }) => {
                truth.output_tells(output);
                let garbled = serde_json::from_str::<serde_json::Value>(output)
                    .is_err()
                    .then(|| ("R11", format!("the output of {provider_call} is no JSON: {output}")));
                let twice = truth.output(provider_call).or(garbled);
                return self.check_told(n, output, twice);
            }
            Command::Model(ModelCommand::AddContext { text }) => return self.check_told(n, text, None),
            Command::Model(ModelCommand::AddHistory { text, .. }) => {
                let untold = truth.history_told(text);
                return self.check_told(n, text, untold);
            }
            Command::Model(ModelCommand::TruncateItem { item, audio_end }) => {
                let slack = slack_ms(&stream.line, self.faults.has(Fault::Jitter));
                truth.items.get(item).and_then(|(playback, start)| {
                    let heard = stream.line.heard_of(now, *playback).saturating_sub(*start).ms().0;
                    (audio_end.0 > heard + slack && !cut_off)
                        .then(|| ("R6", format!("{item} is cut at {audio_end}, {heard} ms of it were heard")))
                })
            }
            Command::Work(WorkCommand::SaveDelivery { delivery, change: DeliveryChange::Heard { heard }, .. }) => {
                let said = truth.asked.iter().rev().find(|(_, asked)| {
                    asked.playback.is_some() && asked.deliveries.iter().any(|(known, _)| known == delivery)
                });
                match said {
                    None => Some(("R7", format!("{delivery} is heard and nobody said it"))),
                    Some((response, asked)) => {
                        let truly = truth.heard(&stream.line, now, *response);
                        let slack = Samples::from_ms(self.plan.policy.gate.heard_slack_ms);
                        let needed = asked.received.saturating_sub(slack).max(Samples(asked.received.0 / 2));
                        let error = if self.plan.faults.has(Fault::Jitter) { 130 } else { 0 };
                        let most = truly + Samples::from_ms(error);
                        (most < needed || *heard > most.ms()).then(|| {
                            let (truly, all) = (truly.ms(), asked.received.ms());
                            ("R7", format!("{delivery} is saved as heard to {heard}; {truly} of {all} were"))
                        })
                    }
                }
            }
            Command::PublishState { state: AgentState::Listening } => {
                if stream.line.sounds(now) && !stream.line.disturbed && stream.line.clears_under_way == 0 {
                    Some(("B8", "listening is published while the line sounds".to_owned()))
                } else if let Some(call) = truth.unanswered_call() {
                    Some(("B1", format!("listening is published and {call}")))
                } else {
                    truth.cut_answer.map(|cut| ("B3", format!("listening is published while the answer {cut} is owed")))
                }
            }
            _ => None,
        };
        if let Some((rule, what)) = broken {
            self.violated(rule, what);
        }
    }

    /// R1: no word of success before the system of record has it.
    fn check_told(&mut self, n: usize, text: &str, twice: Option<(&'static str, String)>) {
        for known in self.streams[n].truth.known.values_mut() {
            known.in_model |= text.contains(&known.text);
        }
        let early = self.store.look(|tables| {
            let claims = text.contains(r#""status":"committed""#) || text.contains("is now committed");
            let named = tables.operations.values().find(|operation| text.contains(operation.id.as_str()));
            named.filter(|named| claims && named.status != OperationStatus::Committed).map(|named| named.id.clone())
        });
        if let Some(early) = early {
            self.violated("R1", format!("the model is told that {early} is committed and it is not"));
        } else if text.contains("cancelled") {
            self.violated("R12", format!("nothing can be cancelled, and the model is told: {text}"));
        } else if let Some((rule, what)) = twice {
            self.violated(rule, what);
        }
    }

    fn check_create(&mut self, n: usize, response: ResponseId, directions: &str) {
        let (now, wall) = (self.now, self.wall());
        let jumps = self.plan.faults.has(Fault::ClockJumps);
        let stream = &mut self.streams[n];
        let truth = &mut stream.truth;
        let Some((planned, purpose, answers_tools, deliveries)) = truth.planned.take() else { return };
        let holder = stream.desk.and_then(|desk| self.process.desks.get(desk)).filter(|desk| !desk.superseded);
        let mut broken = (planned != response).then(|| ("core", format!("{planned} planned, {response} asked for")));
        let mut said = Vec::new();
        let mut urgent = false;
        for id in &deliveries {
            let ready_at = self.checks.ready_at(id);
            let found = self.store.look(|tables| {
                let Some(row) = tables.deliveries.get(id) else { return Some(("R8", "is not in the store".into())) };
                urgent |= row.priority == Priority::Urgent;
                said.push((id.clone(), !row.was_uncertain));
                let uncommitted = |id: &OperationId| {
                    tables.operations.get(id).is_none_or(|row| row.status != OperationStatus::Committed)
                };
                let hedged = directions.contains(&format!("{HEDGE}. Mention it as such, in a few words: {}", row.text));
                let old = row.stale_after_ms.is_some_and(|ms| now > ready_at + (ms + 60) * MS);
                if let Some(desk) = holder
                    && (row.state != DeliveryState::Offered || row.holder.as_ref() != Some(&desk.session))
                {
                    return Some(("6e.8", format!("is said while it is {} in the store", row.state.as_str())));
                }
                if !directions.contains(&row.text) {
                    return Some(("R8", "is offered, and the directions do not name it".into()));
                }
                if row.was_uncertain && !hedged {
                    return Some(("6e.8", "may have been heard and is told as news".into()));
                }
                if row.all_committed && row.operations.iter().any(uncommitted) {
                    return Some(("R1", "claims a success that is not committed".into()));
                }
                if row.text.contains("cancelled") {
                    return Some(("R12", "tells of a cancellation, and nothing can be cancelled".into()));
                }
                if !row.all_committed && !directions.contains("claim no success") {
                    return Some(("R1", "is not all committed, and the directions do not say so".into()));
                }
                (old && !jumps).then(|| ("R9", format!("is told though stale at {wall:?}")))
            });
            if let Some((rule, what)) = found {
                broken = broken.or(Some((rule, format!("{id} {what}"))));
            }
        }
        for known in truth.known.values_mut() {
            known.in_model |= directions.contains(&known.text)
                || known.operations.iter().all(|operation| truth.in_model.contains(operation));
        }
        let open = |id: &DeliveryId| {
            self.store.look(|tables| tables.deliveries.get(id).is_some_and(|row| !row.state.is_final()))
        };
        if let Some((id, _)) = truth.known.iter().find(|(id, known)| !known.in_model && open(id)) {
            broken = broken.or(Some(("R11", format!("{response} is asked for and the model knows nothing of {id}"))));
        }
        if purpose == Purpose::Deliver && !urgent && stream.conversation.caller_is_speaking() {
            broken = broken.or(Some(("R4", format!("{response} speaks of its own accord into the caller's speech"))));
        }
        truth.cut_answer = None;
        truth.creates.push_back(now);
        while truth.creates.front().is_some_and(|at| at + 1_000 * MS < now) {
            truth.creates.pop_front();
        }
        if truth.creates.len() > MOST_CREATES_A_SECOND {
            broken = broken.or(Some(("R14", "the model is asked again and again without a pause".into())));
        }
        truth.asked.insert(
            response,
            Asked {
                purpose,
                answers_tools,
                deliveries: said,
                cancelled: false,
                playback: None,
                received: Samples::ZERO,
                sent: Samples::ZERO,
                end: None,
                proposals: 0,
            },
        );
        if let Some((rule, what)) = broken {
            self.violated(rule, what);
        }
    }

    /// The stream is over, or all has settled: what was said is compared with what was heard.
    pub fn ended_truth(&mut self, n: usize) {
        let now = self.now;
        let stream = &self.streams[n];
        if !stream.has_begun() {
            return;
        }
        let (truth, line) = (&stream.truth, &stream.line);
        let slack = slack_ms(line, self.plan.faults.has(Fault::Jitter));
        let mut broken = None;
        for entry in stream.conversation.history().entries() {
            let Entry::Agent { response, proven, possible, heard, .. } = entry else { continue };
            let truly = truth.heard(line, now, *response).ms().0;
            // A mark that comes back after a clear counts if its audio could have played by then (behaviour.md 3); the
            // network's jitter is the error of that arithmetic.
            let error = if self.plan.faults.has(Fault::Jitter) { 130 } else { 0 };
            if proven.0 > truly + error {
                broken = Some(("R6", format!("{response}: proven {proven}, heard {truly} ms")));
            } else if possible.0 > truly + slack && !stream.is_cut_off() && !line.disturbed {
                broken = Some(("R6", format!("{response}: possible {possible}, heard {truly} ms")));
            } else if possible.0 == 0 && !heard.is_empty() {
                broken = Some(("R6", format!("{response}: words in the history that nobody heard")));
            }
        }
        let mut told = Vec::new();
        for (response, asked) in &truth.asked {
            let heard = truth.heard(line, now, *response);
            let whole = asked.end == Some(ResponseEnd::Completed) && heard >= asked.received;
            // Marks that the network ate or kept back leave a doubt that only the caller could resolve.
            if whole && heard > Samples::ZERO && !line.disturbed && asked.purpose != Purpose::Unasked {
                told.extend(asked.deliveries.iter().filter(|(_, news)| *news).map(|(id, _)| id.clone()));
            }
        }
        let twice = self.checks.told_to_the_end(&self.store, told);
        if let Some((rule, what)) = broken.or(twice) {
            self.violated(rule, what);
        }
    }
}

/// How far the clock may run ahead of the ear: the ways there and back, what they vary by, and one chunk.
fn slack_ms(line: &Line, jitter: bool) -> u32 {
    (line.up_ms + line.down_ms) as u32 + if jitter { 260 } else { 20 } + 100
}
