//! A session under test, the time, and everything that came of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use models::gpt_live::commands::Obeyed;
use models::gpt_live::session::{LiveSession, Received};
use models::gpt_live::voice::GAP_MS;
use models::{Delegation, GptLiveSettings, Provider, SessionConfig, ToolSpec, TurnDetection};
use serde_json::{Value, json};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::{ModelResponseId, ProviderCallId, ResponseId};

pub const LOUD: u8 = 0x10;
pub const SILENT: u8 = 0xff;

pub fn config(delegation: Delegation) -> (SessionConfig, GptLiveSettings) {
    let settings = GptLiveSettings { delegation };
    let config = SessionConfig {
        provider: Provider::GptLive(settings.clone()),
        base_url: "ws://127.0.0.1/v1".into(),
        model: "gpt-live-1".into(),
        api_key: "sk-test".to_owned().into(),
        instructions: "Be brief.".into(),
        voice: "cedar".into(),
        language: None,
        transcription: None,
        tools: vec![ToolSpec {
            name: "book".into(),
            description: "Books.".into(),
            parameters: json!({"type": "object"}),
        }],
        turn_detection: TurnDetection::Off,
    };
    (config, settings)
}

pub fn backend() -> Delegation {
    Delegation::Responses { model: "backend-1".into(), instructions: None }
}

/// A session, the time, and everything that came of it.
pub struct Call {
    pub session: LiveSession,
    pub now_ms: u64,
}

impl Call {
    pub fn unstarted(delegation: Delegation) -> Self {
        let (config, settings) = config(delegation);
        Self { session: LiveSession::new(&config, &settings), now_ms: 0 }
    }

    pub fn with(delegation: Delegation) -> Self {
        let mut call = Self::unstarted(delegation);
        assert_eq!(call.sent()[0]["type"], "session.start");
        let format = json!({"type": "audio/pcmu", "rate": 8000});
        call.says(json!({"type": "session.started", "session": {"id": "live_1", "audio": {"format": format}}}));
        assert_eq!(call.told(), [ModelEvent::SessionReady]);
        call
    }

    pub fn started() -> Self {
        Self::with(backend())
    }

    pub fn says(&mut self, event: Value) -> Received {
        self.session.receive(self.now_ms, &event.to_string())
    }

    /// So much of the stream passes, in pieces as the service sends them.
    pub fn streams(&mut self, byte: u8, ms: u64) {
        for piece in vec![byte; ms as usize * 8].chunks(640) {
            self.now_ms += piece.len() as u64 / 8;
            self.says(json!({"type": "session.output_audio.delta", "delta": STANDARD.encode(piece)}));
            self.session.tick(self.now_ms);
        }
    }

    /// Time passes without a word of the service.
    pub fn waits(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while let Some(next_ms) = self.session.next_tick_ms().filter(|next_ms| *next_ms <= end_ms) {
            self.session.tick(next_ms.max(self.now_ms));
            self.now_ms = next_ms.max(self.now_ms);
        }
        self.now_ms = end_ms;
    }

    pub fn asks(&mut self, command: ModelCommand) -> Obeyed {
        self.session.command(self.now_ms, &command)
    }

    pub fn creates(&mut self, request: u32, directions: Option<&str>) {
        let directions = directions.map(str::to_owned);
        self.asks(ModelCommand::CreateResponse { response: ResponseId(request), directions, tools: true });
    }

    pub fn submits(&mut self, call: &str) -> Obeyed {
        self.asks(ModelCommand::SubmitToolOutput {
            provider_call: ProviderCallId::new(call),
            output: format!("{{\"of\":\"{call}\"}}"),
        })
    }

    pub fn runs(&mut self, delegation: Option<&str>, event: Value) {
        self.says(json!({"type": "response.event", "delegation_id": delegation, "event": event}));
    }

    /// A run that calls and has completed.
    pub fn runs_with_calls(&mut self, delegation: Option<&str>, calls: &[&str]) {
        self.runs(delegation, created("resp_1"));
        for call in calls {
            self.runs(delegation, called(call, "completed"));
        }
        self.runs(delegation, completed("resp_1"));
    }

    pub fn acknowledges(&mut self, sent: &Value) {
        let kind = sent["type"].as_str().expect("a type").replace(".append", ".appended");
        self.says(json!({"type": kind, "client_event_id": sent["event_id"], "start_ms": 1, "end_ms": 1}));
    }

    /// Audio is left out: it is looked at where it matters.
    pub fn told(&mut self) -> Vec<ModelEvent> {
        let mut audio = Vec::new();
        let mut told = Vec::new();
        while let Some(event) = self.session.next_event(&mut audio) {
            if !matches!(event, ModelEvent::AudioReceived { .. }) {
                told.push(event);
            }
        }
        told
    }

    pub fn sent(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.session.next_client_event()).collect()
    }

    pub fn sent_kinds(&mut self) -> Vec<String> {
        self.sent().iter().map(|event| event["type"].as_str().expect("a type").to_owned()).collect()
    }

    /// A stretch of 400 ms, and the gap that ends it: what is told of it.
    pub fn speaks(&mut self) -> Vec<ModelEvent> {
        self.streams(LOUD, 400);
        self.streams(SILENT, u64::from(GAP_MS) + 80);
        self.told()
    }
}

pub fn created(name: &str) -> Value {
    json!({"type": "response.created", "sequence_number": 0, "response": {"id": name, "status": "in_progress", "output": []}})
}

pub fn completed(name: &str) -> Value {
    json!({"type": "response.completed", "response": {"id": name, "status": "completed", "output": []}})
}

pub fn failed(name: &str) -> Value {
    json!({"type": "response.failed", "response": {"id": name, "status": "failed", "error": {"code": "server_error",
        "message": "It broke."}}})
}

pub fn called(call: &str, status: &str) -> Value {
    json!({"type": "response.output_item.done", "output_index": 1, "item": {"type": "function_call", "id": "fc_1",
        "call_id": call, "name": "book", "arguments": "{\"party\":2}", "status": status}})
}

pub fn opens(response: u32, request: Option<u32>) -> ModelEvent {
    ModelEvent::ResponseCreated { response: ModelResponseId(response), request: request.map(ResponseId) }
}

pub fn ends(response: u32, request: Option<u32>, end: ResponseEnd) -> ModelEvent {
    ModelEvent::ResponseEnded { response: ModelResponseId(response), request: request.map(ResponseId), end }
}

pub fn tool_call(response: u32, call: &str) -> ModelEvent {
    ModelEvent::ToolCallReceived {
        response: ModelResponseId(response),
        provider_call: ProviderCallId::new(call),
        name: "book".into(),
        arguments: "{\"party\":2}".into(),
    }
}

pub const DONE: ResponseEnd = ResponseEnd::Completed;

pub fn words(text: &str, start_ms: u64, end_ms: u64) -> Value {
    json!({"type": "session.output_transcript.delta", "delta": text, "start_ms": start_ms, "end_ms": end_ms})
}
