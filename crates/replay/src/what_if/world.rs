//! The world around the core, played from a tape: it answers a changed agent as it answered the recorded one.

use super::measures::Tally;
use super::tape::{ResponseTape, SaveAnswer, Tape, played_by};
use conversation::{Command, Conversation, Decision, Input, Policy, Purpose};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::work::{Proposal, WorkCommand, WorkEvent};
use vocab::{
    CallTime, DeliveryId, MarkName, ModelItemId, ModelResponseId, OperationId, ResponseId, Samples, SaveId, TurnId,
};

/// Ids of the model that the world gives out start here, above any that a recording holds.
const FIRST_MODEL_ID: u32 = 1_000_000;
/// A world that runs in circles is stopped: far above any hour of call (frames are 180,000).
const MAX_STEPS: u64 = 5_000_000;
/// A response that nothing in the call resembles: started and sounding after about what realtime models take.
const MADE_UP_CREATED_US: u64 = 250_000;
const MADE_UP_AUDIO_US: u64 = 600_000;
const MADE_UP_MS: u32 = 1_500;

enum Happening {
    Input(Input),
    /// An event of a response, unless it was cancelled in between.
    Model(ResponseId, ModelEvent),
}

/// A response that is being played.
struct Play {
    model: ModelResponseId,
    /// Nothing more of it comes.
    over: bool,
}

struct World<'a> {
    tape: &'a Tape,
    conversation: Conversation,
    tally: Tally,
    now: CallTime,
    queue: BTreeMap<(CallTime, u64), Happening>,
    next: u64,
    plays: BTreeMap<ResponseId, Play>,
    used: BTreeSet<usize>,
    last_id: u32,
    planned: Option<(Purpose, Option<TurnId>, Vec<DeliveryId>)>,
    /// When each outcome of an operation was told, its admission first.
    told: BTreeMap<OperationId, Vec<CallTime>>,
    delivered: BTreeSet<usize>,
    saves: BTreeMap<DeliveryId, usize>,
    commits: usize,
    buffer_end: CallTime,
    marks: VecDeque<(CallTime, MarkName)>,
}

/// Plays the tape under `policy`, to the end of what is known.
pub(super) fn play(tape: &Tape, policy: Policy) -> Tally {
    let mut world = World {
        tape,
        conversation: Conversation::new(policy),
        tally: Tally::default(),
        now: CallTime(0),
        queue: BTreeMap::new(),
        next: 0,
        plays: BTreeMap::new(),
        used: BTreeSet::new(),
        last_id: FIRST_MODEL_ID,
        planned: None,
        told: BTreeMap::new(),
        delivered: BTreeSet::new(),
        saves: BTreeMap::new(),
        commits: 0,
        buffer_end: CallTime(0),
        marks: VecDeque::new(),
    };
    world.run();
    world.tally
}

impl World<'_> {
    fn run(&mut self) {
        let tape = self.tape;
        let mut fixed = tape.fixed.iter().peekable();
        let mut out = Vec::new();
        for _ in 0..MAX_STEPS {
            let candidates = [
                fixed.peek().map(|(at, _)| *at),
                self.queue.keys().next().map(|(at, _)| *at),
                self.marks.front().map(|(at, _)| *at),
                self.conversation.next_deadline(),
            ];
            let Some(at) = candidates.iter().flatten().min().copied() else { return };
            if at > tape.ends || self.conversation.is_closed() {
                return;
            }
            self.now = self.now.max(at);
            // At the same moment: the fixed, then echoes, then answers; a deadline fires inside whatever step comes.
            let input = if candidates[0] == Some(at) {
                match fixed.next() {
                    Some((_, input)) => input.clone(),
                    None => return,
                }
            } else if candidates[2] == Some(at) {
                match self.marks.pop_front() {
                    Some((_, mark)) => Input::MarkReturned { mark },
                    None => return,
                }
            } else if candidates[1] == Some(at) {
                match self.queue.pop_first() {
                    Some((_, Happening::Input(input))) => input,
                    Some((_, Happening::Model(response, event))) => match self.still_comes(response, event) {
                        Some(event) => Input::Model(event),
                        None => continue,
                    },
                    None => return,
                }
            } else {
                Input::TimePassed
            };
            out.clear();
            self.conversation.step(self.now, input, &mut out);
            for command in out.drain(..) {
                self.tally.see(self.now, &command);
                self.answer(command);
            }
        }
        self.tally.cut_short = 1;
    }

    fn later(&mut self, delay: u64, happening: Happening) -> CallTime {
        let at = CallTime(self.now.0 + delay);
        self.at(at, happening);
        at
    }

    fn at(&mut self, at: CallTime, happening: Happening) {
        self.next += 1;
        self.queue.insert((at, self.next), happening);
    }

    fn still_comes(&mut self, response: ResponseId, event: ModelEvent) -> Option<ModelEvent> {
        let play = self.plays.get_mut(&response)?;
        if play.over {
            return None;
        }
        play.over = matches!(event, ModelEvent::ResponseEnded { .. } | ModelEvent::CreateRefused { .. });
        Some(event)
    }

    fn answer(&mut self, command: Command) {
        match command {
            Command::SendAudio { from, to, .. } => self.buffer_end = played_by(self.buffer_end, self.now, to - from),
            Command::SendMark { mark } => {
                if let Some(lag) = self.tape.mark_lag {
                    let played = match mark {
                        MarkName::Played { .. } => self.buffer_end.max(self.now),
                        MarkName::Fence { .. } => self.now,
                    };
                    self.marks.push_back((CallTime(played.0 + lag), mark));
                }
            }
            Command::ClearPlayback => {
                // The clear returns every mark that is outstanding when it arrives.
                let returned = CallTime(self.now.0 + self.tape.mark_lag.unwrap_or_default());
                for (at, _) in &mut self.marks {
                    *at = (*at).min(returned);
                }
                self.buffer_end = self.now;
            }
            Command::Model(command) => self.answer_as_model(command),
            Command::Work(WorkCommand::Propose(proposal)) => self.answer_proposal(&proposal),
            Command::Work(WorkCommand::SaveDelivery { save, delivery, .. }) => self.answer_save(save, delivery),
            Command::Explain(Decision::ResponsePlanned { purpose, turn, deliveries, .. }) => {
                self.planned = Some((purpose, turn, deliveries));
            }
            Command::KeepAudio { .. }
            | Command::ReleaseAudio { .. }
            | Command::Work(WorkCommand::SealBatch { .. })
            | Command::OpenModel
            | Command::PublishState { .. }
            | Command::Measure { .. }
            | Command::CloseStream { .. }
            | Command::Explain(_) => {}
        }
    }

    fn answer_as_model(&mut self, command: ModelCommand) {
        match command {
            ModelCommand::CreateResponse { response, .. } => self.respond(response),
            ModelCommand::CancelResponse { response } => {
                if let Some(play) = self.plays.get_mut(&response).filter(|play| !play.over) {
                    play.over = true;
                    let (response, request, end) = (play.model, Some(response), ResponseEnd::Cancelled);
                    let ended = ModelEvent::ResponseEnded { response, request, end };
                    self.later(self.tape.cancel_delay, Happening::Input(Input::Model(ended)));
                }
            }
            ModelCommand::CommitTurn => {
                let (delay, item) = match self.tape.commits.get(self.commits) {
                    Some((delay, item)) => (*delay, *item),
                    None => (self.tape.commit_delay, ModelItemId(self.fresh_id())),
                };
                self.commits += 1;
                self.later(delay, Happening::Input(Input::Model(ModelEvent::TurnCommitted { item })));
            }
            ModelCommand::TruncateItem { .. }
            | ModelCommand::DeleteItem { .. }
            | ModelCommand::SubmitToolOutput { .. }
            | ModelCommand::AddContext { .. }
            | ModelCommand::AddHistory { .. } => {}
        }
    }

    fn fresh_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Plays the recorded response that fits best.
    fn respond(&mut self, response: ResponseId) {
        let (purpose, turn, deliveries) = self.planned.take().unwrap_or((Purpose::Reply, None, Vec::new()));
        let model = ModelResponseId(self.fresh_id());
        self.plays.insert(response, Play { model, over: false });
        let tapes = &self.tape.responses;
        let fresh = |wanted: &dyn Fn(&ResponseTape) -> bool| {
            let fits = |(place, tape): &(usize, &ResponseTape)| {
                tape.tells() && !self.used.contains(place) && tape.purpose == purpose && wanted(tape)
            };
            tapes.iter().enumerate().find(fits).map(|(place, _)| place)
        };
        let place = fresh(&|tape| !deliveries.is_empty() && tape.deliveries == deliveries)
            .or_else(|| fresh(&|tape| turn.is_some() && tape.turn == turn))
            .or_else(|| fresh(&|tape| tape.deliveries.is_empty() == deliveries.is_empty()))
            .or_else(|| fresh(&|_| true));
        if let Some(place) = place {
            self.used.insert(place);
            return self.schedule(response, model, &tapes[place].events, true);
        }
        self.tally.invented += 1;
        // Told once already: the same sound again, but the same call of a tool would be the same intent.
        match tapes.iter().rev().find(|tape| tape.tells() && tape.purpose == purpose) {
            Some(tape) => self.schedule(response, model, &tape.events, false),
            None => {
                let item = ModelItemId(0);
                let made_up = [
                    (MADE_UP_CREATED_US, ModelEvent::ResponseCreated { response: model, request: Some(response) }),
                    (
                        MADE_UP_AUDIO_US,
                        ModelEvent::AudioReceived { response: model, item, samples: Samples::from_ms(MADE_UP_MS) },
                    ),
                    (
                        MADE_UP_AUDIO_US,
                        ModelEvent::ResponseEnded { response: model, request: None, end: ResponseEnd::Completed },
                    ),
                ];
                self.schedule(response, model, &made_up, false);
            }
        }
    }

    fn schedule(&mut self, request: ResponseId, response: ModelResponseId, events: &[(u64, ModelEvent)], tools: bool) {
        let mut items: BTreeMap<ModelItemId, ModelItemId> = BTreeMap::new();
        for (delay, event) in events {
            let mut renamed = |item: &ModelItemId| match items.get(item) {
                Some(known) => *known,
                None => {
                    let fresh = ModelItemId(self.fresh_id());
                    items.insert(*item, fresh);
                    fresh
                }
            };
            let event = match event {
                ModelEvent::ResponseCreated { .. } => ModelEvent::ResponseCreated { response, request: Some(request) },
                ModelEvent::AudioReceived { item, samples, .. } => {
                    ModelEvent::AudioReceived { response, item: renamed(item), samples: *samples }
                }
                ModelEvent::TranscriptReceived { item, text, .. } => {
                    ModelEvent::TranscriptReceived { response, item: renamed(item), text: text.clone() }
                }
                ModelEvent::ToolCallReceived { provider_call, name, arguments, .. } => {
                    if !tools {
                        continue;
                    }
                    let (provider_call, name, arguments) = (provider_call.clone(), name.clone(), arguments.clone());
                    ModelEvent::ToolCallReceived { response, provider_call, name, arguments }
                }
                ModelEvent::ResponseEnded { end, .. } => {
                    ModelEvent::ResponseEnded { response, request: Some(request), end: end.clone() }
                }
                ModelEvent::CreateRefused { busy, message, .. } => {
                    ModelEvent::CreateRefused { request, busy: *busy, message: message.clone() }
                }
                // A tape of a response holds none of these.
                ModelEvent::SessionOpened { .. }
                | ModelEvent::SessionReady
                | ModelEvent::SessionExpires { .. }
                | ModelEvent::SpeechStarted
                | ModelEvent::SpeechStopped
                | ModelEvent::TurnCommitted { .. }
                | ModelEvent::CallerTranscript { .. }
                | ModelEvent::ErrorReported { .. }
                | ModelEvent::SessionLost { .. } => continue,
            };
            self.later(*delay, Happening::Model(request, event));
        }
    }

    fn answer_proposal(&mut self, proposal: &Proposal) {
        // Not answered before the recording ended: not answered here.
        let Some((delay, answer)) = self.tape.admissions.get(&proposal.provider_call) else { return };
        let (tool_call, mut answer) = (proposal.tool_call, answer.clone());
        let mut admitted = None;
        match &mut answer {
            WorkEvent::Admitted { tool_call: recorded, operation, .. } => {
                *recorded = tool_call;
                admitted = Some(operation.clone());
            }
            WorkEvent::Refused { tool_call: recorded, .. } => *recorded = tool_call,
            WorkEvent::Finished { .. }
            | WorkEvent::DeliveryReady(_)
            | WorkEvent::Saved { .. }
            | WorkEvent::SaveRefused { .. }
            | WorkEvent::SaveFailed { .. } => {}
        }
        let at = self.later(*delay, Happening::Input(Input::Work(answer)));
        if let Some(operation) = admitted.filter(|operation| !self.told.contains_key(operation)) {
            self.run_operation(operation, at);
        }
    }

    /// An operation takes as long as it took, and so does the delivery of all that drained with it.
    fn run_operation(&mut self, operation: OperationId, admitted: CallTime) {
        let tape = self.tape;
        let mut told = vec![admitted];
        for (delay, outcome) in tape.outcomes.get(&operation).map_or(&[][..], Vec::as_slice) {
            let at = CallTime(admitted.0 + delay);
            told.push(at);
            self.at(at, Happening::Input(Input::Work(outcome.clone())));
        }
        self.told.insert(operation, told);
        for (place, delivery) in tape.deliveries.iter().enumerate() {
            if self.delivered.contains(&place) {
                continue;
            }
            let after = delivery.after.iter().map(|(operation, count)| {
                let told = self.told.get(operation)?;
                told.get(*count).copied()
            });
            let Some(after) = after.collect::<Option<Vec<_>>>() else { continue };
            self.delivered.insert(place);
            let since = after.into_iter().max().unwrap_or(admitted);
            let ready = WorkEvent::DeliveryReady(delivery.brief.clone());
            self.at(CallTime(since.0 + delivery.delay), Happening::Input(Input::Work(ready)));
        }
    }

    fn answer_save(&mut self, save: SaveId, delivery: DeliveryId) {
        let count = self.saves.entry(delivery.clone()).or_default();
        let recorded = self.tape.saves.get(&delivery).and_then(|saves| saves.get(*count));
        *count += 1;
        let (delay, answer) =
            recorded.map_or((self.tape.save_delay, SaveAnswer::Saved), |save| (save.delay, save.answer.clone()));
        let answer = match answer {
            SaveAnswer::Refused(reason) => WorkEvent::SaveRefused { save, reason },
            SaveAnswer::Failed(reason) => WorkEvent::SaveFailed { save, reason },
            SaveAnswer::Saved => WorkEvent::Saved { save },
        };
        self.later(delay, Happening::Input(Input::Work(answer)));
    }
}
