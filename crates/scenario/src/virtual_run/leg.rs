//! One stream of the call: core, carrier, detector and model session, as `call::actor` joins them, on one clock.

use super::VirtualError;
use super::adapter::Adapter;
use crate::events::{Event, Steps, WordsOf};
use audio::VoiceActivity;
use audio::g711::MULAW;
use conversation::{Command, Conversation, Input};
use executor::SessionDesk;
use models::SessionConfig;
use models::openai_realtime::wire::METADATA_KEY;
use sim::model::{OfflineRecord, OfflineSession};
use std::collections::{BTreeMap, VecDeque};
use testkit::Carrier;
use vocab::model::{ModelCommand, ModelEvent};
use vocab::{CallTime, MarkName, PlaybackId, ResponseId, Samples};

/// Each way between us and the carrier, in milliseconds.
const CARRIER_DELAY_MS: u64 = 20;

/// Opening the model's session takes a handshake: what the store knows is there before, as it is over real sockets.
const MODEL_OPENS_US: u64 = 20_000;

/// Sound with the moment of its first sample.
pub type Spans = Vec<(u64, Vec<u8>)>;

pub struct Leg {
    started_us: u64,
    pub desk: SessionDesk,
    conversation: Conversation,
    pub carrier: Carrier,
    pub delay_marks_ms: u32,
    late_marks: VecDeque<(u64, MarkName)>,
    detector: Box<dyn VoiceActivity>,
    pub model: OfflineSession,
    adapter: Adapter,
    /// The core has been told of the present model session.
    model_is_open: bool,
    /// μ-law of each playback, as it came.
    kept: BTreeMap<PlaybackId, Vec<u8>>,
    model_audio: Vec<u8>,
    steps: Steps,
    /// When the present model session opens.
    model_opens_us: u64,
    /// The core wants another model session.
    pub wants_model: bool,
    /// The core wants the stream closed.
    pub closing: bool,
    pub broken: Vec<String>,
}

impl Leg {
    pub fn new(
        now_us: u64,
        desk: SessionDesk,
        model: OfflineSession,
        session: &SessionConfig,
        policy: conversation::Policy,
        detector: Box<dyn VoiceActivity>,
    ) -> Self {
        let mut carrier = Carrier::new();
        carrier.delay_ms = CARRIER_DELAY_MS;
        let mut leg = Self {
            started_us: now_us,
            desk,
            conversation: Conversation::new(policy),
            carrier,
            delay_marks_ms: 0,
            late_marks: VecDeque::new(),
            detector,
            model,
            adapter: Adapter::open(now_us, session),
            model_is_open: false,
            kept: BTreeMap::new(),
            model_audio: Vec::new(),
            steps: Steps::default(),
            model_opens_us: now_us + MODEL_OPENS_US,
            wants_model: false,
            closing: false,
            broken: Vec::new(),
        };
        leg.flush_model(now_us);
        leg
    }

    fn at(&self, now_us: u64) -> CallTime {
        CallTime(now_us - self.started_us)
    }

    /// Another session of the model in the place of the one before.
    pub fn reopen_model(&mut self, now_us: u64, model: OfflineSession, session: &SessionConfig) {
        self.wants_model = false;
        self.model = model;
        self.adapter = Adapter::open(now_us, session);
        self.model_is_open = false;
        self.model_opens_us = now_us + MODEL_OPENS_US;
        self.flush_model(now_us);
    }

    fn flush_model(&mut self, now_us: u64) {
        while let Some(event) = self.adapter.next_out() {
            self.model.receive(now_us, &event);
        }
    }

    /// One step of the core and everything that follows from it.
    pub fn step(&mut self, now_us: u64, input: Input, words: &dyn Fn(Option<usize>) -> Option<String>) -> Vec<Event> {
        let mut events = Vec::new();
        let at = self.at(now_us);
        self.steps.input(now_us, &input, &mut events);
        let mut commands = Vec::new();
        self.conversation.step(at, input, &mut commands);
        if let Some(broken) = self.conversation.broken_invariant() {
            self.broken.push(format!("at {} ms: {broken}", now_us / 1_000));
        }
        for command in commands {
            {
                let steps = &mut self.steps;
                match self.model.record() {
                    OfflineRecord::Realtime(record) => {
                        let words_of = |response: ResponseId| {
                            let name = response.to_string();
                            let asked = |r: &&sim::model::ResponseRecord| r.metadata[METADATA_KEY] == name.as_str();
                            record.responses.iter().rev().find(asked).and_then(|r| words(r.rule))
                        };
                        steps.command(now_us, &command, WordsOf::Response(&words_of), &mut events);
                    }
                    OfflineRecord::Live(record) => {
                        let now = || record.newest_said().map(|said| said.text.clone());
                        steps.command(now_us, &command, WordsOf::Now(&now), &mut events);
                    }
                }
            }
            self.perform(now_us, command);
        }
        events
    }

    fn perform(&mut self, now_us: u64, command: Command) {
        let at = self.at(now_us);
        match command {
            Command::KeepAudio { playback, .. } => {
                self.kept.entry(playback).or_default().extend_from_slice(&self.model_audio);
            }
            Command::SendAudio { playback, from, to } => self.carrier.media(at, playback, from, to),
            Command::SendMark { mark } => self.carrier.mark(at, mark),
            Command::ClearPlayback => self.carrier.clear(at),
            Command::Model(command) => self.tell_model(now_us, &command),
            Command::Work(command) => {
                if self.desk.send(command).is_err() {
                    self.broken.push(format!("at {} ms: the desk takes no more", now_us / 1_000));
                }
            }
            Command::OpenModel => self.wants_model = true,
            Command::CloseStream { .. } => self.closing = true,
            Command::ReleaseAudio { .. }
            | Command::PublishState { .. }
            | Command::Measure { .. }
            | Command::Explain(_) => {}
        }
    }

    fn tell_model(&mut self, now_us: u64, command: &ModelCommand) {
        self.adapter.tell(now_us, command);
        self.flush_model(now_us);
    }

    /// 20 ms of the caller.
    pub fn hear(&mut self, now_us: u64, codes: &[u8]) -> Input {
        let mut samples = Vec::new();
        MULAW.decode(codes, &mut samples);
        let evidence = self.detector.hear(&samples);
        self.adapter.append(codes);
        self.flush_model(now_us);
        Input::CallerAudio { samples: Samples(codes.len() as u32), evidence }
    }

    /// What the model says by now; the sound of one event at a time lies in `model_audio` while it is stepped.
    pub fn model_says(
        &mut self,
        now_us: u64,
        words: &dyn Fn(Option<usize>) -> Option<String>,
    ) -> Result<Vec<Event>, VirtualError> {
        let mut events = Vec::new();
        if now_us < self.model_opens_us {
            return Ok(events);
        }
        if !std::mem::replace(&mut self.model_is_open, true) {
            let opened = ModelEvent::SessionOpened { capabilities: self.adapter.capabilities() };
            events.extend(self.step(now_us, Input::Model(opened), words));
        }
        for event in self.model.advance(now_us) {
            self.adapter.receive(now_us, &event.to_string())?;
            self.model_says_on(now_us, words, &mut events);
            if self.closing || self.wants_model {
                return Ok(events);
            }
        }
        self.adapter.tick(now_us);
        self.model_says_on(now_us, words, &mut events);
        Ok(events)
    }

    fn model_says_on(&mut self, now_us: u64, words: &dyn Fn(Option<usize>) -> Option<String>, events: &mut Vec<Event>) {
        loop {
            self.flush_model(now_us);
            self.model_audio.clear();
            let Some(event) = self.adapter.next_event(&mut self.model_audio) else { return };
            events.extend(self.step(now_us, Input::Model(event), words));
            if self.closing || self.wants_model {
                return;
            }
        }
    }

    pub fn lose_model(&mut self, now_us: u64, words: &dyn Fn(Option<usize>) -> Option<String>) -> Vec<Event> {
        let lost = ModelEvent::SessionLost { reason: "the connection was closed".into() };
        self.step(now_us, Input::Model(lost), words)
    }

    /// A mark or a deadline that is due.
    pub fn due(&mut self, now_us: u64) -> Option<Input> {
        let at = self.at(now_us);
        while let Some(mark) = self.carrier.take_echo(at) {
            self.late_marks.push_back((now_us + u64::from(self.delay_marks_ms) * 1_000, mark));
        }
        if let Some((_, mark)) = self.late_marks.pop_front_if(|(due, _)| *due <= now_us) {
            return Some(Input::MarkReturned { mark });
        }
        self.conversation.next_deadline().is_some_and(|due| due <= at).then_some(Input::TimePassed)
    }

    pub fn next_us(&mut self, now_us: u64) -> Option<u64> {
        let at = self.at(now_us);
        let carrier = self.carrier.next_event(at).map(|due| self.started_us + due.0);
        let deadline = self.conversation.next_deadline().map(|due| self.started_us + due.0);
        let late = self.late_marks.front().map(|(due, _)| *due);
        let opens = (!self.model_is_open).then_some(self.model_opens_us);
        let ticks = self.adapter.next_us();
        let model = [self.model.next_at_us(), ticks, opens].into_iter().flatten().min();
        let model = model.map(|at| at.max(self.model_opens_us));
        [carrier, deadline, late, model].into_iter().flatten().min()
    }

    /// The stream is over: what the caller heard of it.
    pub fn heard(mut self, now_us: u64) -> (SessionDesk, Spans, Vec<String>) {
        self.carrier.clear(self.at(now_us));
        let piece = |piece: &testkit::HeardPiece| {
            let bytes = self.kept.get(&piece.playback).map(Vec::as_slice).unwrap_or_default();
            let (from, to) = (piece.from.0 as usize, (piece.to.0 as usize).min(bytes.len()));
            (self.started_us + piece.at.0, bytes[from.min(to)..to].to_vec())
        };
        let spans = self.carrier.heard.iter().map(piece).collect();
        (self.desk, spans, self.broken)
    }
}
