//! One Live session as the call sees it: what the service says becomes [`ModelEvent`]s, what the call asks becomes client events.
//! Pure: time is an argument, in milliseconds since the session was opened.
//!
//! The rules are those of the folder's documentation. This file hears the service; `commands.rs` hears the call.

use super::callers::CallerWords;
use super::requests::{Requests, Stage};
use super::runs::Runs;
use super::stretches::{Stretch, Stretches};
use super::voice::{Heard, Voice};
use super::wire::{self, Ignored, LiveError, LiveEvent, PCMU, RunEvent, Words};
use super::{Delegation, GptLiveSettings, encode};
use crate::SessionConfig;
use crate::codes::is_fatal;
use crate::event_ids::{Sent, event_id, read_event_id};
use serde_json::Value;
use std::collections::VecDeque;
use vocab::model::{ModelEvent, ResponseEnd};
use vocab::{ModelItemId, ModelResponseId, ProviderCallId, ResponseId, Samples};

/// A stream that is silent on the wire, not just in sound, for so long has stopped: what was being said is over.
pub const STALL_MS: u64 = 2_000;
/// Words that came before the voice that says them; the oldest is forgotten first.
pub const EARLY_WORDS_KEPT: usize = 32;
/// How long before a stretch words may come that belong to it.
const EARLY_MS: u64 = 3_000;
/// Client events kept until the session has started; what comes beyond is not sent and counted.
pub const HELD_KEPT: usize = 64;
/// Delegations to us that are not answered; the oldest is forgotten first.
pub const DELEGATIONS_KEPT: usize = 16;
/// A delegation says nothing of what is wanted: the words that say it may still be on their way.
pub const DELEGATION_SETTLE_MS: u64 = 600;

/// What came of a message, beside the events and client events that it caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    Taken,
    /// The session does not hold μ-law: it cannot be used.
    WrongFormat(Option<String>),
    Ignored(Ignored),
}

/// See the module.
#[derive(Debug)]
pub struct LiveSession {
    pub(super) settings: GptLiveSettings,
    pub(super) started: bool,
    /// When the service will end it, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
    pub(super) now_ms: u64,
    pub(super) voice: Voice,
    pub(super) stretches: Stretches,
    pub(super) runs: Runs,
    pub(super) requests: Requests,
    callers: CallerWords,
    early_words: VecDeque<Words>,
    /// Delegations to us: those whose call is to be told then, and those that wait for an output.
    settling: VecDeque<(u64, String)>,
    pub(super) delegations: VecDeque<String>,
    /// A result was given to the voice as something to know, and nothing asked it to be said.
    pub(super) known_result: Option<KnownResult>,
    next_response: ModelResponseId,
    next_item: ModelItemId,
    last_audio_ms: u64,
    scratch: Vec<u8>,
    told: VecDeque<ModelEvent>,
    /// The sound of the events in `told`.
    sound: Vec<u8>,
    sound_read: usize,
    sent_events: u64,
    out: VecDeque<Value>,
    held: VecDeque<Value>,
    /// Client events that were not sent.
    pub dropped: u64,
}

/// Where a result went that the voice knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KnownResult {
    /// Into the session.
    Session,
    /// Into a delegation of ours.
    Delegation(String),
}

impl LiveSession {
    /// `session.start` is the first client event, and alone until the service has answered it.
    pub fn new(config: &SessionConfig, settings: &GptLiveSettings) -> Self {
        let mut session = Self {
            settings: settings.clone(),
            started: false,
            expires_at: None,
            now_ms: 0,
            voice: Voice::default(),
            stretches: Stretches::default(),
            runs: Runs::default(),
            requests: Requests::default(),
            callers: CallerWords::default(),
            early_words: VecDeque::new(),
            settling: VecDeque::new(),
            delegations: VecDeque::new(),
            known_result: None,
            next_response: ModelResponseId::default(),
            next_item: ModelItemId::default(),
            last_audio_ms: 0,
            scratch: Vec::new(),
            told: VecDeque::new(),
            sound: Vec::new(),
            sound_read: 0,
            sent_events: 0,
            out: VecDeque::new(),
            held: VecDeque::new(),
            dropped: 0,
        };
        let id = session.event_id("session");
        session.out.push_back(encode::session_start(config, settings, &id));
        session
    }

    pub const fn is_started(&self) -> bool {
        self.started
    }

    /// A message of the service.
    pub fn receive(&mut self, now_ms: u64, text: &str) -> Received {
        self.now_ms = now_ms;
        let mut audio = std::mem::take(&mut self.scratch);
        audio.clear();
        let event = wire::decode(text, &mut audio);
        let received = self.take(event, &audio);
        self.scratch = audio;
        self.continue_if_due();
        received
    }

    /// Time has passed: see [`LiveSession::next_tick_ms`].
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        if self.stretches.open().is_some() && now_ms >= self.last_audio_ms + STALL_MS {
            self.voice.stop();
            self.end_stretch(ResponseEnd::Completed);
        }
        if let Some(said) = self.callers.finished(now_ms) {
            self.tell_caller_words(said);
        }
        while let Some((due_ms, _)) = self.settling.front()
            && *due_ms <= now_ms
        {
            if let Some((_, delegation)) = self.settling.pop_front() {
                self.tell_delegation(delegation);
            }
        }
        while let Some(delegation) = self.runs.given_up(now_ms) {
            self.run_ended(delegation.as_deref(), ResponseEnd::Failed { code: "run_never_ended".to_owned() });
        }
        // While another stretch is being said the answer cannot come.
        while self.stretches.open().is_none()
            && let Some((request, stage)) = self.requests.in_vain(now_ms)
        {
            if stage == Stage::Continuing {
                self.runs.refused(request);
            }
            self.tell_end_without_voice(request, ResponseEnd::Completed);
        }
        self.continue_if_due();
    }

    /// When [`LiveSession::tick`] has something to do.
    pub fn next_tick_ms(&mut self) -> Option<u64> {
        let is_open = self.stretches.open().is_some();
        let stall = is_open.then(|| self.last_audio_ms + STALL_MS);
        let voice = self.requests.next_due_ms().filter(|_| !is_open);
        let settled = self.settling.front().map(|(due_ms, _)| *due_ms);
        [stall, voice, settled, self.callers.finishes_ms(), self.runs.next_give_up_ms()].into_iter().flatten().min()
    }

    /// The next event; the sound of [`ModelEvent::AudioReceived`] is appended to `audio`.
    pub fn next_event(&mut self, audio: &mut Vec<u8>) -> Option<ModelEvent> {
        let event = self.told.pop_front()?;
        if let ModelEvent::AudioReceived { samples, .. } = &event {
            // One byte of μ-law is one sample.
            let end = self.sound.len().min(self.sound_read + samples.0 as usize);
            audio.extend_from_slice(&self.sound[self.sound_read..end]);
            self.sound_read = end;
        }
        if self.sound_read == self.sound.len() {
            self.sound.clear();
            self.sound_read = 0;
        }
        Some(event)
    }

    pub fn has_events(&self) -> bool {
        !self.told.is_empty()
    }

    /// The next client event to send.
    pub fn next_client_event(&mut self) -> Option<Value> {
        self.out.pop_front()
    }

    /// How many entries each table holds: stretches, runs, requests, early words, delegations, held client events.
    pub fn sizes(&self) -> [usize; 6] {
        [
            self.stretches.len(),
            self.runs.len(),
            self.requests.len(),
            self.early_words.len(),
            self.settling.len() + self.delegations.len(),
            self.held.len(),
        ]
    }

    fn take(&mut self, event: LiveEvent, audio: &[u8]) -> Received {
        match event {
            LiveEvent::Audio { start_ms } => self.hear(audio, start_ms),
            LiveEvent::Started { format, .. } if format.as_deref() != Some(PCMU) => {
                return Received::WrongFormat(format);
            }
            LiveEvent::Started { expires_at, .. } => {
                self.expires_at = expires_at;
                self.start();
            }
            LiveEvent::ModelWords(words) => self.model_words(words),
            LiveEvent::CallerWords(words) => {
                if let Some(said) = self.callers.hear(&words, self.now_ms) {
                    self.tell_caller_words(said);
                }
            }
            LiveEvent::Appended { client_event_id } => {
                if let Some(Sent::Create(request)) = client_event_id.as_deref().and_then(read_event_id) {
                    self.requests.moves(request, Stage::Speakable, self.now_ms);
                }
            }
            LiveEvent::Delegated { delegation } => self.delegated(delegation),
            LiveEvent::Run { delegation, event } => self.run(delegation.as_deref(), event),
            LiveEvent::Closed { reason } => self.told.push_back(ModelEvent::SessionLost { reason }),
            LiveEvent::Error(error) => self.error(error),
            LiveEvent::Ignored(ignored) => return Received::Ignored(ignored),
        }
        Received::Taken
    }

    fn start(&mut self) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        self.out.append(&mut self.held);
        self.last_audio_ms = self.now_ms;
        self.told.push_back(ModelEvent::SessionReady);
    }

    // ---- the voice ------------------------------------------------------------------------------------------------------

    fn hear(&mut self, mut audio: &[u8], start_ms: Option<u64>) {
        self.last_audio_ms = self.now_ms;
        if let Some(start_ms) = start_ms {
            self.voice.is_at(start_ms);
        }
        while !audio.is_empty() {
            let (taken, heard) = self.voice.take(audio);
            audio = &audio[taken..];
            match heard {
                Some(Heard::Nothing) if self.voice.is_discarding() => {
                    self.stretches.went_on_until(self.voice.position_ms());
                }
                None | Some(Heard::Nothing) => {}
                Some(Heard::Onset) => {
                    self.begin_stretch();
                    self.give();
                }
                Some(Heard::Sound) => self.give(),
                Some(Heard::Ended) => self.end_stretch(ResponseEnd::Completed),
            }
        }
    }

    fn begin_stretch(&mut self) {
        let request = self.requests.answered_by_voice();
        self.runs.voice_began();
        let (response, item) = (self.new_response(), self.new_item());
        let begin_ms = self.voice.position_ms().saturating_sub(u64::from(super::voice::PREROLL_MS));
        self.stretches.begin(Stretch::new(response, item, request, begin_ms, self.voice.position_ms()));
        self.told.push_back(ModelEvent::ResponseCreated { response, request });
        for words in std::mem::take(&mut self.early_words) {
            // Those that are older than this were about something that made no sound.
            if words.start_ms + EARLY_MS >= begin_ms {
                self.model_words(words);
            }
        }
    }

    fn give(&mut self) {
        let position_ms = self.voice.position_ms();
        let Some(stretch) = self.stretches.open() else { return };
        let samples = Samples(u32::try_from(self.voice.take_held(&mut self.sound)).unwrap_or(u32::MAX));
        stretch.give(samples, position_ms);
        let (of, in_item) = (stretch.response, stretch.item);
        match self.told.back_mut() {
            Some(ModelEvent::AudioReceived { response, samples: more, .. }) if *response == of => *more += samples,
            Some(_) | None => self.told.push_back(ModelEvent::AudioReceived { response: of, item: in_item, samples }),
        }
    }

    pub(super) fn end_stretch(&mut self, end: ResponseEnd) {
        let end_ms = self.voice.voiced_until_ms();
        let Some(stretch) = self.stretches.open() else { return };
        match end {
            ResponseEnd::Cancelled => stretch.cut(end_ms),
            ResponseEnd::Completed | ResponseEnd::Incomplete { .. } | ResponseEnd::Failed { .. } => stretch.end(end_ms),
        }
        let (response, request) = (stretch.response, stretch.request);
        self.told.push_back(ModelEvent::ResponseEnded { response, request, end });
        self.requests.others_are_done(self.now_ms);
    }

    /// Words make no stretch: without a voice there is nothing to hear (behaviour.md, B5).
    fn model_words(&mut self, words: Words) {
        self.voice.words_until(words.end_ms);
        match self.stretches.place(&words) {
            Some(Some((response, item))) => {
                self.told.push_back(ModelEvent::TranscriptReceived { response, item, text: words.text });
            }
            Some(None) => {}
            None => {
                if self.early_words.len() >= EARLY_WORDS_KEPT {
                    self.early_words.pop_front();
                }
                self.early_words.push_back(words);
            }
        }
    }

    fn tell_caller_words(&mut self, text: String) {
        let item = self.new_item();
        // The service has no turns: this is where the words are to be put, when they are known to be whole.
        self.told.push_back(ModelEvent::TurnCommitted { item });
        self.told.push_back(ModelEvent::CallerTranscript { item, text });
    }

    // ---- the backend's runs ---------------------------------------------------------------------------------------------

    fn run(&mut self, delegation: Option<&str>, event: RunEvent) {
        match event {
            RunEvent::Created { .. } => {
                if self.runs.is_running_for(delegation) {
                    self.run_ended(delegation, ResponseEnd::Completed);
                }
                let request = self.runs.created(delegation, self.now_ms).or_else(|| self.unasked_is_asked_for());
                if let Some(request) = request {
                    self.requests.moves(request, Stage::Running, self.now_ms);
                }
            }
            RunEvent::Call { call, name, arguments } => {
                let mut next = self.next_response;
                let told = self.runs.called(delegation, &call, &name, self.now_ms, || {
                    let response = next;
                    next = next.next();
                    response
                });
                self.next_response = next;
                let Some(told) = told else { return };
                let response = told.response;
                if told.is_first {
                    self.told.push_back(ModelEvent::ResponseCreated { response, request: told.request });
                }
                let provider_call = ProviderCallId::new(call);
                self.told.push_back(ModelEvent::ToolCallReceived { response, provider_call, name, arguments });
            }
            RunEvent::Answering => {
                if let Some(request) = self.runs.said(delegation, self.now_ms)
                    && self.requests.is_at(request) == Some(&Stage::Running)
                {
                    self.requests.moves(request, Stage::Speakable, self.now_ms);
                }
            }
            RunEvent::Ended(end) => self.run_ended(delegation, end),
        }
    }

    /// The service goes on with results before it was asked to: a request that waits for that is answered by it.
    fn unasked_is_asked_for(&mut self) -> Option<ResponseId> {
        let (request, _) = self.requests.deferred()?;
        self.runs.adopt_unasked(request).map(|_| request)
    }

    fn run_ended(&mut self, delegation: Option<&str>, end: ResponseEnd) {
        let Some(ended) = self.runs.ended(delegation, &end) else { return };
        for (call, tool, output) in &ended.outputs {
            if end == ResponseEnd::Completed {
                let id = self.event_id("output");
                self.say_to_service(encode::tool_output(call, output, &id));
            } else {
                self.let_voice_know(tool, output);
            }
        }
        let fatal = match &end {
            ResponseEnd::Failed { code } if is_fatal(code) => Some(code.clone()),
            ResponseEnd::Failed { .. }
            | ResponseEnd::Completed
            | ResponseEnd::Cancelled
            | ResponseEnd::Incomplete { .. } => None,
        };
        let is_answer = end == ResponseEnd::Completed && !ended.had_calls;
        match (ended.told_as, ended.request) {
            (Some(response), request) => {
                let open = request.is_some_and(|request| self.requests.settle(request).is_some());
                let request = request.filter(|_| open);
                self.told.push_back(ModelEvent::ResponseEnded { response, request, end });
            }
            (None, Some(request)) if is_answer => {
                if self.requests.is_at(request) == Some(&Stage::Running) {
                    self.requests.moves(request, Stage::Speakable, self.now_ms);
                }
            }
            (None, Some(request)) => {
                if self.requests.settle(request).is_some() {
                    self.tell_end_without_voice(request, end);
                }
            }
            (None, None) => {}
        }
        if let Some(code) = fatal {
            let message = "the backend's run failed for a reason that will not pass".to_owned();
            self.told.push_back(ModelEvent::ErrorReported { code, message, fatal: true });
        }
    }

    // ---- work that is ours ----------------------------------------------------------------------------------------------

    fn delegated(&mut self, delegation: String) {
        if self.settling.len() >= DELEGATIONS_KEPT {
            self.settling.pop_front();
        }
        self.settling.push_back((self.now_ms + DELEGATION_SETTLE_MS, delegation));
    }

    fn tell_delegation(&mut self, delegation: String) {
        let tool = match &self.settings.delegation {
            Delegation::Client { tool } => tool.clone(),
            Delegation::Responses { .. } => None,
        };
        let Some(name) = tool else {
            // Unanswered, it would be waited for.
            let id = self.event_id("delegation");
            let content = "Nothing can be done or looked up in this call: tell the caller so.";
            return self.say_to_service(encode::append(encode::Append::Commentary, Some(&delegation), content, &id));
        };
        if self.delegations.len() >= DELEGATIONS_KEPT {
            self.delegations.pop_front();
        }
        self.delegations.push_back(delegation.clone());
        let response = self.new_response();
        let arguments = serde_json::json!({ super::REQUEST_ARGUMENT: self.callers.take_asked() }).to_string();
        let provider_call = ProviderCallId::new(delegation);
        self.told.extend([
            ModelEvent::ResponseCreated { response, request: None },
            ModelEvent::ToolCallReceived { response, provider_call, name, arguments },
            ModelEvent::ResponseEnded { response, request: None, end: ResponseEnd::Completed },
        ]);
    }

    // ---- what is common -------------------------------------------------------------------------------------------------

    fn error(&mut self, error: LiveError) {
        let LiveError { code, kind, message, client_event_id } = error;
        let fatal = is_fatal(&code) || is_fatal(&kind) || code == super::FORBIDDEN || kind == super::FORBIDDEN;
        match client_event_id.as_deref().and_then(read_event_id) {
            Some(Sent::Create(request)) if !fatal && self.requests.is_at(request).is_some() => {
                let was_continuing = self.requests.settle(request) == Some(Stage::Continuing);
                self.runs.refused(request);
                let busy = self.runs.is_running();
                if was_continuing && !busy {
                    for (tool, output) in self.runs.refused_for_nothing() {
                        self.let_voice_know(&tool, &output);
                    }
                }
                let message = if message.is_empty() { code } else { message };
                self.told.push_back(ModelEvent::CreateRefused { request, busy, message });
            }
            sent => {
                // A session that was refused does not exist: it cannot be used.
                let unusable = sent == Some(Sent::SessionUpdate) && !self.started;
                self.told.push_back(ModelEvent::ErrorReported { code, message, fatal: fatal || unusable });
            }
        }
    }

    pub(super) fn tell_end_without_voice(&mut self, request: ResponseId, end: ResponseEnd) {
        let response = self.new_response();
        self.told.push_back(ModelEvent::ResponseEnded { response, request: Some(request), end });
    }

    /// Sends a client event, once the session has started.
    pub(super) fn say_to_service(&mut self, event: Value) {
        if self.started {
            self.out.push_back(event);
        } else if self.held.len() < HELD_KEPT {
            self.held.push_back(event);
        } else {
            self.dropped += 1;
        }
    }

    pub(super) fn event_id(&mut self, what: &str) -> String {
        event_id(&mut self.sent_events, what)
    }

    fn new_response(&mut self) -> ModelResponseId {
        let response = self.next_response;
        self.next_response = response.next();
        response
    }

    fn new_item(&mut self) -> ModelItemId {
        let item = self.next_item;
        self.next_item = item.next();
        item
    }
}
