//! The stage: one conversation, one carrier, one store, and the time that passes between them.

use crate::carrier::Carrier;
use conversation::{AgentState, Command, Conversation, Decision, Input, Policy};
use std::collections::VecDeque;
use vocab::delivery::{DeliveryBrief, DeliveryChange, DeliveryState};
use vocab::effect::{OperationStatus, Priority};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::work::{WorkCommand, WorkEvent};
use vocab::{
    CallTime, DeliveryId, ModelItemId, ModelResponseId, OperationId, ProviderCallId, ResponseId, Samples, SaveId,
    ToolCallId, VoiceEvidence,
};

pub type Watch = Box<dyn FnMut(CallTime, &Input, &[Command])>;

pub struct Stage {
    pub now: CallTime,
    pub conversation: Conversation,
    pub carrier: Carrier,
    /// Everything commanded, with its time.
    pub log: Vec<(CallTime, Command)>,
    /// Every change of a delivery that was asked of the store.
    pub changes: Vec<(DeliveryId, DeliveryChange)>,
    /// The public state, each time it changed.
    pub states: Vec<(CallTime, AgentState)>,
    /// How long the disk takes; `None`: it hangs.
    pub disk_ms: Option<u64>,
    /// Is shown every step: its time, its input, and what it caused.
    pub watch: Option<Watch>,
    saves: VecDeque<(CallTime, SaveId)>,
    seen: usize,
    speaking: bool,
    next_frame: CallTime,
    last_model_response: ModelResponseId,
    last_item: ModelItemId,
}

impl Stage {
    pub fn new(policy: Policy) -> Self {
        Self {
            now: CallTime(0),
            conversation: Conversation::new(policy),
            carrier: Carrier::new(),
            log: Vec::new(),
            changes: Vec::new(),
            states: Vec::new(),
            disk_ms: Some(1),
            watch: None,
            saves: VecDeque::new(),
            seen: 0,
            speaking: false,
            next_frame: CallTime::from_ms(20),
            last_model_response: ModelResponseId(0),
            last_item: ModelItemId(0),
        }
    }

    /// The default, but for a caller who may be silent for as long as a test likes.
    pub fn patient_policy() -> Policy {
        let mut policy = Policy::default();
        policy.idle.check_in_after_ms = 0;
        policy
    }

    /// A call whose model is ready and whose agent waits for the caller.
    pub fn answered() -> Self {
        let mut stage = Self::new(Self::patient_policy());
        stage.input(Input::CallStarted { greeting: None });
        stage.model(ModelEvent::SessionReady);
        stage
    }

    /// Gives the core one input now and carries its commands out.
    pub fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        let shown = self.watch.is_some().then(|| input.clone());
        self.conversation.step(self.now, input, &mut out);
        if let (Some(watch), Some(input)) = (&mut self.watch, shown) {
            watch(self.now, &input, &out);
        }
        if let Some(broken) = self.conversation.broken_invariant() {
            panic!("at {:?}: {broken}\nafter {out:?}", self.now);
        }
        for command in out {
            match &command {
                Command::SendAudio { playback, from, to } => self.carrier.media(self.now, *playback, *from, *to),
                Command::SendMark { mark } => self.carrier.mark(self.now, *mark),
                Command::ClearPlayback => self.carrier.clear(self.now),
                Command::Work(WorkCommand::SaveDelivery { save, delivery, change }) => {
                    self.changes.push((delivery.clone(), change.clone()));
                    if let Some(disk_ms) = self.disk_ms {
                        self.saves.push_back((self.now.plus_ms(disk_ms), *save));
                    }
                }
                Command::PublishState { state } => self.states.push((self.now, *state)),
                Command::KeepAudio { .. }
                | Command::ReleaseAudio { .. }
                | Command::Model(_)
                | Command::Work(_)
                | Command::Measure { .. }
                | Command::OpenModel
                | Command::CloseStream { .. }
                | Command::Explain(_) => {}
            }
            self.log.push((self.now, command));
        }
    }

    pub fn model(&mut self, event: ModelEvent) {
        self.input(Input::Model(event));
    }

    pub fn work(&mut self, event: WorkEvent) {
        self.input(Input::Work(event));
    }

    /// Lets time pass: frames of the caller every 20 ms, echoes, deadlines and disk acknowledgements each at their moment.
    pub fn run(&mut self, ms: u64) {
        let end = self.now.plus_ms(ms);
        loop {
            let save = self.saves.front().map(|(at, _)| *at);
            let next =
                [Some(self.next_frame), self.carrier.next_event(self.now), self.conversation.next_deadline(), save]
                    .into_iter()
                    .flatten()
                    .min()
                    .unwrap_or(end);
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            if let Some(mark) = self.carrier.take_echo(self.now) {
                self.input(Input::MarkReturned { mark });
            } else if let Some((_, save)) = self.saves.pop_front_if(|(at, _)| *at <= self.now) {
                self.work(WorkEvent::Saved { save });
            } else if self.next_frame <= self.now {
                self.next_frame = self.next_frame.plus_ms(20);
                let evidence = if self.speaking {
                    VoiceEvidence { speech: true, level_dbfs: -20 }
                } else {
                    VoiceEvidence { speech: false, level_dbfs: -70 }
                };
                self.input(Input::CallerAudio { samples: Samples::from_ms(20), evidence });
            } else {
                self.input(Input::TimePassed);
            }
        }
        self.now = end;
    }

    /// The caller speaks for this long.
    pub fn speak(&mut self, ms: u64) {
        self.speaking = true;
        self.run(ms);
        self.speaking = false;
    }

    /// The model's turn detection ends the caller's turn.
    pub fn commit_turn(&mut self) -> ModelItemId {
        self.last_item = self.last_item.next();
        let item = self.last_item;
        self.model(ModelEvent::TurnCommitted { item });
        item
    }

    /// The caller speaks, falls silent, and the model commits the turn.
    pub fn take_turn(&mut self, ms: u64) {
        self.speak(ms);
        self.run(500);
        self.commit_turn();
        self.run(10);
    }

    /// The response that was asked for last, which the model has not started yet.
    pub fn asked(&self) -> Option<ResponseId> {
        self.log.iter().rev().find_map(|(_, command)| match command {
            Command::Model(ModelCommand::CreateResponse { response, .. }) => Some(*response),
            _ => None,
        })
    }

    /// The directions of that response.
    pub fn asked_directions(&self) -> Option<&str> {
        self.log.iter().rev().find_map(|(_, command)| match command {
            Command::Model(ModelCommand::CreateResponse { directions, .. }) => Some(directions.as_deref()?),
            _ => None,
        })
    }

    pub fn responses_asked(&self) -> usize {
        self.model_commands(|command| matches!(command, ModelCommand::CreateResponse { .. })).count()
    }

    /// The model starts the response that was asked for.
    pub fn start_response(&mut self) -> ModelResponseId {
        let request = self.asked();
        self.last_model_response = self.last_model_response.next();
        let response = self.last_model_response;
        self.model(ModelEvent::ResponseCreated { response, request });
        response
    }

    /// Audio of a new item of that response comes in one burst.
    pub fn audio(&mut self, response: ModelResponseId, ms: u32) -> ModelItemId {
        self.last_item = self.last_item.next();
        let item = self.last_item;
        self.model(ModelEvent::AudioReceived { response, item, samples: Samples::from_ms(ms) });
        item
    }

    pub fn end_response(&mut self, response: ModelResponseId, end: ResponseEnd) {
        self.model(ModelEvent::ResponseEnded { response, request: None, end });
    }

    /// The model answers what was asked with `ms` of speech, faster than real time as the real one does.
    pub fn say(&mut self, ms: u32) -> ModelItemId {
        let response = self.start_response();
        let item = self.audio(response, ms);
        self.end_response(response, ResponseEnd::Completed);
        item
    }

    /// As [`Self::say`], with its words.
    pub fn say_words(&mut self, words: &str, ms: u32) {
        let response = self.start_response();
        let item = self.audio(response, ms);
        self.model(ModelEvent::TranscriptReceived { response, item, text: words.into() });
        self.end_response(response, ResponseEnd::Completed);
    }

    /// The model answers what was asked at the pace of speech, a frame at a time.
    pub fn say_smoothly(&mut self, ms: u32) {
        let response = self.start_response();
        let item = self.audio(response, 20);
        for _ in 1..ms / 20 {
            self.run(20);
            self.model(ModelEvent::AudioReceived { response, item, samples: Samples::from_ms(20) });
        }
        self.end_response(response, ResponseEnd::Completed);
    }

    /// The model calls a tool in the response that was asked for, and the response ends.
    pub fn call_tool(&mut self, name: &str) -> ToolCallId {
        let response = self.start_response();
        let call = self.propose(response, name);
        self.end_response(response, ResponseEnd::Completed);
        call
    }

    pub fn propose(&mut self, response: ModelResponseId, name: &str) -> ToolCallId {
        let provider_call = ProviderCallId::new(format!("call_{}", self.log.len()));
        self.model(ModelEvent::ToolCallReceived { response, provider_call, name: name.into(), arguments: "{}".into() });
        self.log
            .iter()
            .rev()
            .find_map(|(_, command)| match command {
                Command::Work(WorkCommand::Propose(proposal)) => Some(proposal.tool_call),
                _ => None,
            })
            .unwrap_or_default()
    }

    pub fn admit(&mut self, tool_call: ToolCallId, operation: &str) {
        self.work(WorkEvent::Admitted {
            tool_call,
            operation: OperationId::new(operation),
            inline_wait_ms: 700,
            attached_to: None,
            result: None,
            stands: None,
        });
    }

    /// The operation commits and its batch's delivery is ready, as the executor tells them: in one breath.
    pub fn commit(&mut self, operation: &str, delivery: &str) {
        self.finish(operation, OperationStatus::Committed);
        self.work(WorkEvent::DeliveryReady(brief(delivery, operation)));
    }

    pub fn finish(&mut self, operation: &str, status: OperationStatus) {
        let result = r#"{"reference":"B-7"}"#.into();
        self.work(WorkEvent::Finished { operation: OperationId::new(operation), status, result });
    }

    pub fn model_commands<'a>(
        &'a self,
        wanted: impl Fn(&ModelCommand) -> bool + 'a,
    ) -> impl Iterator<Item = &'a ModelCommand> {
        self.log.iter().filter_map(move |(_, command)| match command {
            Command::Model(command) if wanted(command) => Some(command),
            _ => None,
        })
    }

    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.log.iter().filter_map(|(_, command)| match command {
            Command::Explain(decision) => Some(decision),
            _ => None,
        })
    }

    /// Commands since the last time this was asked, without explanations.
    pub fn news(&mut self) -> Vec<Command> {
        let news = self.log[self.seen..]
            .iter()
            .map(|(_, command)| command.clone())
            .filter(|command| !matches!(command, Command::Explain(_) | Command::Measure { .. }))
            .collect();
        self.seen = self.log.len();
        news
    }

    /// The changes of one delivery, in order.
    pub fn story(&self, delivery: &str) -> Vec<DeliveryChange> {
        self.changes.iter().filter(|(id, _)| id.as_str() == delivery).map(|(_, change)| change.clone()).collect()
    }

    pub fn clears(&self) -> usize {
        self.log.iter().filter(|(_, command)| matches!(command, Command::ClearPlayback)).count()
    }

    /// Acknowledges everything that a hanging disk still owes.
    pub fn release_disk(&mut self) {
        let owed: Vec<_> = self
            .log
            .iter()
            .filter_map(|(_, command)| match command {
                Command::Work(WorkCommand::SaveDelivery { save, .. }) => Some(*save),
                _ => None,
            })
            .collect();
        self.disk_ms = Some(1);
        for save in owed {
            self.work(WorkEvent::Saved { save });
        }
    }
}

/// News of one committed operation.
pub fn brief(delivery: &str, operation: &str) -> DeliveryBrief {
    DeliveryBrief {
        delivery: DeliveryId::new(delivery),
        operations: vec![OperationId::new(operation)],
        text: format!("{operation} committed"),
        all_committed: true,
        priority: Priority::Normal,
        quiet_ms: None,
        fresh_for_ms: None,
        state: DeliveryState::Ready,
        offers: 0,
        from_earlier_call: false,
    }
}
