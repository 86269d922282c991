//! One stream of the call: core, carrier, detector and model session, as `call::actor` joins them, on one clock.

use super::VirtualError;
use crate::events::{Event, Steps};
use audio::VoiceActivity;
use audio::g711::MULAW;
use bytes::BytesMut;
use conversation::{Command, Conversation, Input};
use executor::SessionDesk;
use models::SessionConfig;
use models::openai_realtime::ids::Ids;
use models::openai_realtime::wire::{self, Decoded, METADATA_KEY, Standing};
use sim::model::OfflineSession;
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
    ids: Ids,
    standing: Standing,
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
            ids: Ids::default(),
            standing: Standing::of(session),
            kept: BTreeMap::new(),
            model_audio: Vec::new(),
            steps: Steps::default(),
            model_opens_us: now_us + MODEL_OPENS_US,
            wants_model: false,
            closing: false,
            broken: Vec::new(),
        };
        let mut out = BytesMut::new();
        wire::session_update(session, &mut leg.ids, &mut out);
        leg.send_model(now_us, &out);
        leg
    }

    fn at(&self, now_us: u64) -> CallTime {
        CallTime(now_us - self.started_us)
    }

    /// Another session of the model in the place of the one before.
    pub fn reopen_model(&mut self, now_us: u64, model: OfflineSession, session: &SessionConfig) {
        self.wants_model = false;
        self.model = model;
        self.ids = Ids::default();
        self.model_opens_us = now_us + MODEL_OPENS_US;
        let mut out = BytesMut::new();
        wire::session_update(session, &mut self.ids, &mut out);
        self.send_model(now_us, &out);
    }

    fn send_model(&mut self, now_us: u64, text: &[u8]) {
        self.model.receive(now_us, &String::from_utf8_lossy(text));
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
                let record = self.model.record();
                let words_of = |response: ResponseId| {
                    let name = response.to_string();
                    let asked = |r: &&sim::model::ResponseRecord| r.metadata[METADATA_KEY] == name.as_str();
                    record.responses.iter().rev().find(asked).and_then(|r| words(r.rule))
                };
                self.steps.command(now_us, &command, &words_of, &mut events);
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
        let mut out = BytesMut::new();
        match wire::encode(command, &self.standing, &mut self.ids, &mut out) {
            wire::Encoded::Written => self.send_model(now_us, &out),
            wire::Encoded::Deferred | wire::Encoded::Dropped(_) => {}
        }
    }

    /// 20 ms of the caller.
    pub fn hear(&mut self, now_us: u64, codes: &[u8]) -> Input {
        let mut samples = Vec::new();
        MULAW.decode(codes, &mut samples);
        let evidence = self.detector.hear(&samples);
        let mut out = BytesMut::new();
        wire::append(codes, &mut out);
        self.send_model(now_us, &out);
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
        for event in self.model.advance(now_us) {
            self.model_audio.clear();
            let decoded = wire::decode(&event.to_string(), &mut self.ids, &mut self.model_audio);
            let mut out = BytesMut::new();
            while wire::cancel_due(&mut self.ids, &mut out) {
                self.send_model(now_us, &out);
                out.clear();
            }
            match decoded {
                Decoded::Event(event) => events.extend(self.step(now_us, Input::Model(event), words)),
                Decoded::Events(several) => {
                    for event in several {
                        events.extend(self.step(now_us, Input::Model(event), words));
                    }
                }
                Decoded::WrongFormat { input, output } => return Err(VirtualError::WrongFormat { input, output }),
                Decoded::Ignored(_) => {}
            }
            if self.closing {
                break;
            }
        }
        Ok(events)
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
        let model = self.model.next_at_us().map(|at| at.max(self.model_opens_us));
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
