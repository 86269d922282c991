//! One response under way: which event comes next, and when. Pure: the session asks, with the time.

use super::formats::{OutputFormat, encode_stretch};
use super::record::CallRecord;
use super::script::{LoadedScript, Rule, Voice};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

/// How output audio is paced.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Audio in each delta.
    pub chunk_ms: u32,
    /// Times real time: 1.0 is real time, 0.0 sends all at once. The service bursts; 8 is a moderate guess.
    pub speed: f32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { chunk_ms: 200, speed: 8.0 }
    }
}

#[derive(Debug)]
enum Part {
    Say { voice: Arc<Voice>, text: String, phase: Option<String> },
    Call { name: String, arguments: String },
    Fail { code: String },
}

/// What happened beside the events, for the conversation and the record.
#[derive(Debug)]
pub(super) enum Progress {
    ItemOpened {
        item: Value,
    },
    /// `sent_ms` of the item's audio are out.
    AudioSent {
        item_id: String,
        sent_ms: u64,
    },
    ItemClosed {
        item: Value,
    },
    Ended,
}

#[derive(Debug)]
struct OpenItem {
    id: String,
    index: usize,
    part: Part,
    call_id: String,
    /// Bytes of μ-law that are out.
    sent: usize,
    /// Characters of transcript that are out.
    said: usize,
}

#[derive(Debug)]
pub(super) struct Generation {
    /// The response object without `status`, `status_details`, `output`, `usage`.
    response: Value,
    pub(super) id: String,
    pub(super) in_conversation: bool,
    parts: VecDeque<Part>,
    open: Option<OpenItem>,
    output: Vec<Value>,
    format: OutputFormat,
    pace: Pace,
    created: bool,
    thinking_us: u64,
    pub(super) next_at_us: u64,
    audio_ms: u64,
    text_chars: usize,
    id_prefix: String,
}

pub(super) struct Begin<'a> {
    pub(super) response: Value,
    pub(super) id: String,
    pub(super) in_conversation: bool,
    pub(super) rule: Option<&'a Rule>,
    /// `tool_choice` is not `none`: a model that may not call does not.
    pub(super) may_call: bool,
    pub(super) script: &'a LoadedScript,
    pub(super) format: OutputFormat,
    pub(super) pace: Pace,
    pub(super) created_at_us: u64,
    pub(super) extra_delay_ms: u64,
    pub(super) id_prefix: String,
}

impl Generation {
    pub(super) fn new(begin: Begin<'_>) -> Self {
        let mut parts = VecDeque::new();
        let mut delay_ms = begin.extra_delay_ms;
        if let Some(rule) = begin.rule {
            delay_ms += rule.delay_ms;
            if let Some(say) = &rule.say {
                let voice = begin.script.audio.get(&say.file).cloned().unwrap_or_default();
                parts.push_back(Part::Say { voice, text: say.text.clone(), phase: say.phase.clone() });
            }
            for call in rule.call.iter().chain(&rule.more_calls).filter(|_| begin.may_call) {
                parts.push_back(Part::Call { name: call.name.clone(), arguments: call.arguments_text() });
            }
            if let Some(code) = &rule.fail {
                parts.push_back(Part::Fail { code: code.clone() });
            }
        }
        Self {
            response: begin.response,
            id: begin.id,
            in_conversation: begin.in_conversation,
            parts,
            open: None,
            output: Vec::new(),
            format: begin.format,
            pace: begin.pace,
            created: false,
            thinking_us: delay_ms * 1_000,
            next_at_us: begin.created_at_us,
            audio_ms: 0,
            text_chars: 0,
            id_prefix: begin.id_prefix,
        }
    }

    pub(super) fn is_created(&self) -> bool {
        self.created
    }

    /// The words of the items that are closed, as far as they were sent.
    pub(super) fn texts(&self) -> Vec<String> {
        self.output.iter().filter(|i| i["type"] == "message").map(super::events::item_text).collect()
    }

    pub(super) fn calls(&self) -> Vec<CallRecord> {
        let field = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let calls = self.output.iter().filter(|item| item["type"] == "function_call");
        calls
            .map(|item| CallRecord {
                call_id: field(item, "call_id"),
                name: field(item, "name"),
                arguments: field(item, "arguments"),
                completed: item["status"] == "completed",
            })
            .collect()
    }

    /// The next step, due at `next_at_us`. Ends with [`Progress::Ended`].
    pub(super) fn step(&mut self, events: &mut Vec<Value>, progress: &mut Vec<Progress>) {
        if !self.created {
            self.created = true;
            events.push(json!({ "type": "response.created", "response": self.body("in_progress", Value::Null) }));
            self.next_at_us += self.thinking_us;
            return;
        }
        if self.open.is_some() {
            return self.continue_item(events, progress);
        }
        match self.parts.pop_front() {
            None => self.end("completed", Value::Null, events, progress),
            Some(Part::Fail { code }) => {
                let message = format!("The model failed with {code}.");
                let error = json!({ "type": "server_error", "code": code, "message": message });
                let details = json!({ "type": "failed", "error": error });
                self.parts.clear();
                self.end("failed", details, events, progress);
            }
            Some(part) => self.open_item(part, events, progress),
        }
    }

    /// Stop here: the open item closes as incomplete and the response as cancelled.
    pub(super) fn cancel(&mut self, reason: &str, events: &mut Vec<Value>, progress: &mut Vec<Progress>) {
        if !self.created {
            // Nothing is known of it outside yet; it must still be born before it can end.
            self.step(events, progress);
        }
        self.close_item("incomplete", events, progress);
        self.parts.clear();
        self.end("cancelled", json!({ "type": "cancelled", "reason": reason }), events, progress);
    }

    fn open_item(&mut self, part: Part, events: &mut Vec<Value>, progress: &mut Vec<Progress>) {
        let index = self.output.len();
        let open = OpenItem {
            id: format!("item_{}_{index}", self.id_prefix),
            call_id: format!("call_{}_{index}", self.id_prefix),
            index,
            part,
            sent: 0,
            said: 0,
        };
        let item = open.item("in_progress", self.format);
        events.push(json!({ "type": "response.output_item.added", "response_id": self.id, "output_index": index, "item": item }));
        if self.in_conversation {
            events.push(json!({ "type": "conversation.item.added", "previous_item_id": null, "item": item }));
        }
        progress.push(Progress::ItemOpened { item });
        if let Part::Say { .. } = open.part {
            let part = if self.format == OutputFormat::Text {
                json!({ "type": "text", "text": "" })
            } else {
                json!({ "type": "audio", "transcript": "" })
            };
            events.push(self.content_event("response.content_part.added", &open, "part", part));
        }
        self.open = Some(open);
    }

    fn continue_item(&mut self, events: &mut Vec<Value>, progress: &mut Vec<Progress>) {
        let Some(mut open) = self.open.take() else { return };
        let finished = match &open.part {
            Part::Say { voice, text, .. } => {
                let length = voice.mulaw.len();
                let end = (open.sent + self.pace.chunk_ms as usize * 8).min(length);
                // The transcript runs along in proportion; the real one is not aligned either.
                let upto = if end == length { text.len() } else { floor_char(text, text.len() * end / length) };
                let said = text[open.said..upto].to_owned();
                let audio = encode_stretch(voice, open.sent..end, self.format);
                let chunk_ms = (end - open.sent) as u64 / 8;
                let finished = end == length;
                open.sent = end;
                open.said = upto;
                if !said.is_empty() {
                    self.text_chars += said.len();
                    let kind = if self.format == OutputFormat::Text {
                        "response.output_text.delta"
                    } else {
                        "response.output_audio_transcript.delta"
                    };
                    events.push(self.content_event(kind, &open, "delta", said.into()));
                }
                if let Some(audio) = audio {
                    events.push(self.content_event("response.output_audio.delta", &open, "delta", audio.into()));
                    self.audio_ms += chunk_ms;
                    let sent_ms = open.sent as u64 / 8;
                    progress.push(Progress::AudioSent { item_id: open.id.clone(), sent_ms });
                }
                if self.pace.speed > 0.0 && !finished {
                    self.next_at_us += (chunk_ms as f64 * 1_000.0 / f64::from(self.pace.speed)) as u64;
                }
                finished
            }
            Part::Call { name, arguments } => {
                // Two deltas, so that a reader that takes the first for the whole is found out.
                let half = floor_char(arguments, arguments.len() / 2);
                for delta in [&arguments[..half], &arguments[half..]].into_iter().filter(|d| !d.is_empty()) {
                    events.push(json!({
                        "type": "response.function_call_arguments.delta", "response_id": self.id, "item_id": open.id,
                        "output_index": open.index, "call_id": open.call_id, "delta": delta
                    }));
                }
                events.push(json!({
                    "type": "response.function_call_arguments.done", "response_id": self.id, "item_id": open.id,
                    "output_index": open.index, "call_id": open.call_id, "name": name, "arguments": arguments
                }));
                self.text_chars += arguments.len();
                true
            }
            Part::Fail { .. } => true,
        };
        self.open = Some(open);
        if finished {
            self.close_item("completed", events, progress);
        }
    }

    fn close_item(&mut self, status: &str, events: &mut Vec<Value>, progress: &mut Vec<Progress>) {
        let Some(open) = self.open.take() else { return };
        if let Part::Say { text, .. } = &open.part {
            let said = &text[..open.said];
            if self.format == OutputFormat::Text {
                events.push(self.content_event("response.output_text.done", &open, "text", said.into()));
                let part = json!({ "type": "text", "text": said });
                events.push(self.content_event("response.content_part.done", &open, "part", part));
            } else {
                let mut done = self.content_event("response.output_audio.done", &open, "", Value::Null);
                if let Value::Object(fields) = &mut done {
                    fields.remove("");
                }
                events.push(done);
                events.push(self.content_event(
                    "response.output_audio_transcript.done",
                    &open,
                    "transcript",
                    said.into(),
                ));
                let part = json!({ "type": "audio", "transcript": said });
                events.push(self.content_event("response.content_part.done", &open, "part", part));
            }
        }
        let item = open.item(status, self.format);
        if self.in_conversation {
            events.push(json!({ "type": "conversation.item.done", "previous_item_id": null, "item": item }));
        }
        events.push(json!({ "type": "response.output_item.done", "response_id": self.id, "output_index": open.index, "item": item }));
        self.output.push(item.clone());
        progress.push(Progress::ItemClosed { item });
    }

    fn end(&mut self, status: &str, details: Value, events: &mut Vec<Value>, progress: &mut Vec<Progress>) {
        events.push(json!({ "type": "response.done", "response": self.body(status, details) }));
        events.push(super::events::rate_limits());
        progress.push(Progress::Ended);
    }

    fn body(&self, status: &str, details: Value) -> Value {
        let mut body = self.response.clone();
        body["status"] = status.into();
        body["status_details"] = details;
        body["output"] = Value::Array(self.output.clone());
        body["usage"] =
            if status == "in_progress" { Value::Null } else { super::events::usage(self.audio_ms, self.text_chars) };
        body
    }

    fn content_event(&self, kind: &str, open: &OpenItem, field: &str, value: Value) -> Value {
        json!({
            "type": kind, "response_id": self.id, "item_id": open.id,
            "output_index": open.index, "content_index": 0, field: value
        })
    }
}

impl OpenItem {
    fn item(&self, status: &str, format: OutputFormat) -> Value {
        match &self.part {
            Part::Say { text, phase, .. } => {
                let said = &text[..self.said];
                let content = match (status, format) {
                    ("in_progress", _) => json!([]),
                    (_, OutputFormat::Text) => json!([{ "type": "output_text", "text": said }]),
                    (_, OutputFormat::Pcmu | OutputFormat::Pcma | OutputFormat::Pcm24 | OutputFormat::Pcm16) => {
                        json!([{ "type": "output_audio", "transcript": said }])
                    }
                };
                let mut item = json!({
                    "id": self.id, "object": "realtime.item", "type": "message", "status": status, "role": "assistant", "content": content
                });
                if let Some(phase) = phase {
                    item["phase"] = phase.as_str().into();
                }
                item
            }
            Part::Call { name, arguments } => {
                let arguments = if status == "in_progress" { "" } else { arguments };
                json!({
                    "id": self.id, "object": "realtime.item", "type": "function_call", "status": status, "call_id": self.call_id, "name": name,
                    "arguments": arguments
                })
            }
            Part::Fail { .. } => Value::Null,
        }
    }
}

/// The nearest character boundary at or before `at`.
fn floor_char(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&n| text.is_char_boundary(n)).unwrap_or(0)
}
