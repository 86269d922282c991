//! One model session: client events in, server events out, at given times. Reads no clock and no socket.

use super::events::{self, Refusal};
use super::formats::{Decoder, OutputFormat};
use super::generation::{Begin, Generation, Pace, Progress};
use super::record::{CancelRecord, ErrorRecord, ResponseRecord, SessionRecord, TruncationRecord, TurnRecord};
use super::script::{After, Asked, LoadedScript, ScriptProgress};
use super::turn_detection::{TurnDetector, TurnSignal};
use super::{ModelFaults, locked};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The service refuses to commit less (about 100 ms).
const MIN_COMMIT_MS: u64 = 100;
/// How many of the newest items a rule's `context_contains` looks at.
const CONTEXT_ITEMS: usize = 6;

#[derive(Debug)]
struct Item {
    id: String,
    body: Value,
    /// Assistant audio that was sent (and not truncated away).
    audio_ms: u64,
}

#[derive(Debug)]
struct OpenTurn {
    item_id: String,
    record: usize,
}

pub(super) struct Session {
    name: String,
    pub(super) config: Value,
    script: LoadedScript,
    script_progress: Arc<Mutex<ScriptProgress>>,
    seen: BTreeMap<usize, u32>,
    pace: Pace,
    faults: Arc<Mutex<ModelFaults>>,
    items: Vec<Item>,
    after: After,
    generations: Vec<Generation>,
    detector: TurnDetector,
    decoder: Decoder,
    turn: Option<OpenTurn>,
    committed_ms: u64,
    audio_was_sent: bool,
    next_id: u64,
    /// Responses that have ended.
    pub(super) ended: u32,
    /// Events to send, oldest first; `event_id` is put on when they leave.
    pub(super) events: Vec<Value>,
    /// Events that a fault holds back, with the time at which they go.
    late: Vec<(u64, Value)>,
    pub(super) record: SessionRecord,
}

pub(super) struct Opening {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) expires_at: u64,
    pub(super) script: LoadedScript,
    pub(super) script_progress: Arc<Mutex<ScriptProgress>>,
    pub(super) pace: Pace,
    pub(super) faults: Arc<Mutex<ModelFaults>>,
    pub(super) now_us: u64,
}

impl Session {
    pub(super) fn open(opening: Opening) -> Self {
        let config = events::default_session(&format!("sess_{}", opening.name), &opening.model, opening.expires_at);
        Self {
            events: vec![json!({ "type": "session.created", "session": config })],
            late: Vec::new(),
            config,
            script: opening.script,
            script_progress: opening.script_progress,
            seen: BTreeMap::new(),
            pace: opening.pace,
            faults: opening.faults,
            items: Vec::new(),
            after: After::Nothing,
            generations: Vec::new(),
            detector: TurnDetector::default(),
            decoder: Decoder::default(),
            turn: None,
            committed_ms: 0,
            audio_was_sent: false,
            next_id: 0,
            ended: 0,
            record: SessionRecord { opened_us: opening.now_us, model: opening.model, ..SessionRecord::default() },
            name: opening.name,
        }
    }

    /// When [`Self::advance`] has something to do.
    pub(super) fn next_at_us(&self) -> Option<u64> {
        self.generations.iter().map(|g| g.next_at_us).chain(self.late.iter().map(|(at_us, _)| *at_us)).min()
    }

    /// Everything that is due.
    pub(super) fn advance(&mut self, now_us: u64) {
        while let Some(n) = self.generations.iter().position(|g| g.next_at_us <= now_us) {
            let mut progress = Vec::new();
            self.generations[n].step(&mut self.events, &mut progress);
            self.note_progress(now_us, n, progress);
        }
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|(at_us, _)| *at_us <= now_us);
        self.late = late;
        let due: Vec<(u64, Value)> = due;
        self.events.extend(due.into_iter().map(|(_, event)| event));
    }

    pub(super) fn receive(&mut self, now_us: u64, text: &str) {
        let event: Value = match serde_json::from_str(text) {
            Ok(event @ Value::Object(_)) => event,
            Ok(_) | Err(_) => {
                return self.refuse(now_us, None, Refusal::new("invalid_json", "The event is not a JSON object."));
            }
        };
        let event_id = event["event_id"].as_str().map(str::to_owned);
        let outcome =
            match event["type"].as_str().unwrap_or_default() {
                "session.update" => self.update(&event["session"]),
                "input_audio_buffer.append" => self.append(now_us, &event["audio"]),
                "input_audio_buffer.commit" => self.commit(now_us),
                "input_audio_buffer.clear" => {
                    self.committed_ms = self.detector.position_ms();
                    self.turn = None;
                    self.events.push(json!({ "type": "input_audio_buffer.cleared" }));
                    Ok(())
                }
                "conversation.item.create" => {
                    self.create_item(&event).and_then(|()| self.answer_by_itself(now_us, &event["item"]))
                }
                "conversation.item.retrieve" => self.retrieve(&event["item_id"]),
                "conversation.item.delete" => self.delete(&event["item_id"]),
                "conversation.item.truncate" => self.truncate(now_us, &event),
                "response.create" => self.create_response(now_us, &event["response"], false),
                "response.cancel" => self.cancel(now_us, event["response_id"].as_str()),
                "output_audio_buffer.clear" => {
                    Err(Refusal::new("invalid_value", "output_audio_buffer.clear is for WebRTC and SIP."))
                }
                other => Err(Refusal::new("invalid_value", format!("Invalid value: '{other}' is no client event."))
                    .about("type")),
            };
        if let Err(refusal) = outcome {
            self.refuse(now_us, event_id, refusal);
        }
    }

    pub(super) fn refuse(&mut self, now_us: u64, event_id: Option<String>, refusal: Refusal) {
        let anonymous = locked(&self.faults).anonymous_errors;
        let code = (!anonymous).then_some(refusal.code);
        let event_id = event_id.filter(|_| !anonymous);
        self.events.push(json!({
            "type": "error",
            "error": {
                "type": "invalid_request_error", "code": code, "message": refusal.message, "param": refusal.param,
                "event_id": event_id
            }
        }));
        let code = code.map(str::to_owned);
        self.record.errors.push(ErrorRecord { at_us: now_us, code, message: refusal.message, event_id });
    }

    fn update(&mut self, change: &Value) -> Result<(), Refusal> {
        events::update_session(&mut self.config, change, self.audio_was_sent)?;
        self.record.updates.push(change.clone());
        self.events.push(json!({ "type": "session.updated", "session": self.config }));
        Ok(())
    }

    // Caller audio and turns.

    fn append(&mut self, now_us: u64, audio: &Value) -> Result<(), Refusal> {
        let bytes = audio
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok())
            .ok_or_else(|| Refusal::new("invalid_value", "audio is not base64.").about("audio"))?;
        self.record.appended_bytes += bytes.len() as u64;
        let detection = events::detection_of(&self.config);
        let (prefix, silence) = detection.map_or((0, 500), |d| (d.prefix_ms, d.silence_ms));
        let format = match self.config["audio"]["input"]["format"]["type"].as_str() {
            Some("audio/pcmu") => OutputFormat::Pcmu,
            Some("audio/pcma") => OutputFormat::Pcma,
            _ => OutputFormat::Pcm24,
        };
        let signals = self.detector.hear(self.decoder.decode(&bytes, format).into_iter(), prefix, silence);
        let Some(detection) = detection else { return Ok(()) };
        for signal in signals {
            match signal {
                TurnSignal::Started { audio_start_ms } => {
                    let turn = self.open_turn(Some(now_us));
                    self.events.push(json!({
                        "type": "input_audio_buffer.speech_started", "audio_start_ms": audio_start_ms, "item_id": turn
                    }));
                    if detection.interrupt_response {
                        self.cancel_active(now_us, "turn_detected");
                    }
                }
                TurnSignal::Stopped { audio_end_ms } => {
                    let Some(turn) = &self.turn else { continue };
                    self.events.push(json!({
                        "type": "input_audio_buffer.speech_stopped", "audio_end_ms": audio_end_ms, "item_id": turn.item_id
                    }));
                    self.commit_turn(now_us);
                    if detection.create_response
                        && let Err(refusal) = self.create_response(now_us, &Value::Null, true)
                    {
                        self.refuse(now_us, None, refusal);
                    }
                }
            }
        }
        Ok(())
    }

    fn commit(&mut self, now_us: u64) -> Result<(), Refusal> {
        let buffered = self.detector.position_ms() - self.committed_ms;
        if buffered < MIN_COMMIT_MS {
            let message = format!(
                "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer only has {buffered}.00ms of audio."
            );
            return Err(Refusal::new("input_audio_buffer_commit_empty", message));
        }
        if self.turn.is_none() {
            self.open_turn(None);
        }
        self.commit_turn(now_us);
        Ok(())
    }

    fn open_turn(&mut self, started_us: Option<u64>) -> String {
        let item_id = self.id("item");
        let record = self.record.turns.len();
        let turn = TurnRecord { item_id: item_id.clone(), started_us, committed_us: None, transcript: String::new() };
        self.record.turns.push(turn);
        self.turn = Some(OpenTurn { item_id: item_id.clone(), record });
        item_id
    }

    fn commit_turn(&mut self, now_us: u64) {
        let Some(turn) = self.turn.take() else { return };
        let seconds = (self.detector.position_ms() - self.committed_ms) as f64 / 1_000.0;
        self.committed_ms = self.detector.position_ms();
        let transcript = {
            let mut progress = locked(&self.script_progress);
            let text = self.script.script.transcripts.get(progress.next_transcript).cloned().unwrap_or_default();
            progress.next_transcript += 1;
            text
        };
        let record = &mut self.record.turns[turn.record];
        record.committed_us = Some(now_us);
        record.transcript.clone_from(&transcript);
        let before = self.items.last().map(|i| i.id.clone());
        self.events.push(json!({
            "type": "input_audio_buffer.committed", "previous_item_id": before, "item_id": turn.item_id
        }));
        let item = |transcript: Value| {
            json!({
                "id": turn.item_id, "object": "realtime.item", "type": "message", "status": "completed", "role": "user",
                "content": [{ "type": "input_audio", "transcript": transcript }]
            })
        };
        self.announce(&item(Value::Null), before);
        // The model hears; only the text of what it heard is optional.
        self.items.push(Item { id: turn.item_id.clone(), body: item(transcript.as_str().into()), audio_ms: 0 });
        self.after = After::User;
        if !self.config["audio"]["input"]["transcription"].is_null() {
            let told = json!({
                "type": "conversation.item.input_audio_transcription.completed", "item_id": turn.item_id,
                "content_index": 0, "transcript": transcript, "usage": { "type": "duration", "seconds": seconds }
            });
            match locked(&self.faults).transcript_delay_ms {
                0 => self.events.push(told),
                ms => self.late.push((now_us + ms * 1_000, told)),
            }
        }
    }

    // Items.

    fn create_item(&mut self, event: &Value) -> Result<(), Refusal> {
        let mut item = event["item"].clone();
        let place = match event["previous_item_id"].as_str() {
            None => self.items.len(),
            Some("root") => 0,
            Some(id) => {
                1 + self.position(id).ok_or_else(|| {
                    Refusal::new("item_create_invalid_previous_item_id", format!("Item '{id}' does not exist."))
                        .about("previous_item_id")
                })?
            }
        };
        let kind = item["type"].as_str().unwrap_or_default();
        match kind {
            "message" if item["content"].is_array() && item["role"].is_string() => {}
            "function_call" if item["name"].is_string() && item["call_id"].is_string() => {}
            "function_call_output" => {
                let call_id = item["call_id"].as_str().unwrap_or_default();
                if !self.items.iter().any(|i| i.body["type"] == "function_call" && i.body["call_id"] == call_id) {
                    let message = format!("Tool call ID '{call_id}' not found in conversation.");
                    return Err(Refusal::new("invalid_tool_call_id", message).about("item.call_id"));
                }
                if !item["output"].is_string() {
                    return Err(Refusal::new("invalid_type", "item.output must be a string.").about("item.output"));
                }
            }
            _ => return Err(Refusal::new("invalid_value", "The item has no known type or lacks fields.").about("item")),
        }
        let id = match item["id"].as_str() {
            Some(id) if self.position(id).is_some() => {
                return Err(Refusal::new("item_create_duplicate_item_id", format!("Item '{id}' already exists.")));
            }
            Some(id) => id.to_owned(),
            None => self.id("item"),
        };
        item["id"] = id.as_str().into();
        item["object"] = "realtime.item".into();
        item["status"] = "completed".into();
        if kind_of(&item) == "function_call_output" {
            self.after = After::ToolOutput;
        } else if item["role"] == "user" {
            self.after = After::User;
        }
        let before = place.checked_sub(1).map(|n| self.items[n].id.clone());
        self.announce(&item, before);
        self.record.items.push(item.clone());
        self.items.insert(place, Item { id, body: item, audio_ms: 0 });
        Ok(())
    }

    /// Other services answer a tool output unasked; ours is told to as a fault.
    fn answer_by_itself(&mut self, now_us: u64, item: &Value) -> Result<(), Refusal> {
        let unasked = locked(&self.faults).answers_by_itself && kind_of(item) == "function_call_output";
        if unasked && self.active().is_none() { self.create_response(now_us, &json!({}), false) } else { Ok(()) }
    }

    fn announce(&mut self, item: &Value, before: Option<String>) {
        for kind in ["conversation.item.added", "conversation.item.done"] {
            self.events.push(json!({ "type": kind, "previous_item_id": before, "item": item }));
        }
    }

    fn retrieve(&mut self, id: &Value) -> Result<(), Refusal> {
        let id = id.as_str().unwrap_or_default();
        let at = self.position(id).ok_or_else(|| missing("item_retrieve_invalid_item_id", id))?;
        self.events.push(json!({ "type": "conversation.item.retrieved", "item": self.items[at].body }));
        Ok(())
    }

    fn delete(&mut self, id: &Value) -> Result<(), Refusal> {
        let id = id.as_str().unwrap_or_default();
        let at = self.position(id).ok_or_else(|| missing("item_delete_invalid_item_id", id))?;
        self.items.remove(at);
        self.record.deletions.push(id.to_owned());
        self.events.push(json!({ "type": "conversation.item.deleted", "item_id": id }));
        Ok(())
    }

    fn truncate(&mut self, now_us: u64, event: &Value) -> Result<(), Refusal> {
        let id = event["item_id"].as_str().unwrap_or_default();
        let to_ms = event["audio_end_ms"].as_i64().unwrap_or(-1);
        let at = self.position(id);
        let item_audio_ms = at.map_or(0, |at| self.items[at].audio_ms);
        let verdict = match at {
            None => Err(missing("item_truncate_invalid_item_id", id)),
            Some(at) if self.items[at].body["role"] != "assistant" || item_audio_ms == 0 => {
                Err(Refusal::new("unsupported_content_type", "Only model output audio messages can be truncated."))
            }
            Some(_) if event["content_index"].as_u64() != Some(0) || to_ms < 0 => {
                Err(Refusal::new("invalid_value", "content_index must be 0 and audio_end_ms an integer from 0."))
            }
            Some(_) if to_ms as u64 > item_audio_ms => {
                let message = format!("Audio content of {item_audio_ms}ms is already shorter than {to_ms}ms");
                Err(Refusal::new("invalid_value", message).about("audio_end_ms"))
            }
            Some(at) => Ok(at),
        };
        self.record.truncations.push(TruncationRecord {
            at_us: now_us,
            item_id: id.to_owned(),
            audio_end_ms: to_ms,
            item_audio_ms,
            accepted: verdict.is_ok(),
        });
        let item = &mut self.items[verdict?];
        item.audio_ms = to_ms as u64;
        // The service cannot know which words were heard: the transcript goes.
        item.body["content"] = json!([{ "type": "output_audio" }]);
        self.events.push(json!({
            "type": "conversation.item.truncated", "item_id": id, "content_index": 0, "audio_end_ms": to_ms
        }));
        Ok(())
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.items.iter().position(|i| i.id == id)
    }

    // Responses.

    fn create_response(&mut self, now_us: u64, asked: &Value, by_turn_detection: bool) -> Result<(), Refusal> {
        let in_conversation = asked["conversation"] != "none";
        let faults = {
            let mut faults = locked(&self.faults);
            let now = *faults;
            faults.refuse_creates = faults.refuse_creates.saturating_sub(u32::from(in_conversation));
            now
        };
        let active = self.active().map(|n| self.generations[n].id.clone());
        if in_conversation && (active.is_some() || faults.refuse_creates > 0) {
            let id = active.unwrap_or_else(|| "resp_of_another".to_owned());
            let message = format!(
                "Conversation already has an active response in progress: {id}. Wait until the response is finished before creating a new one."
            );
            return Err(Refusal::new("conversation_already_has_active_response", message));
        }
        let own = asked["instructions"].as_str();
        let context: Vec<String> = match asked["input"].as_array() {
            Some(input) => input.iter().map(events::item_text).collect(),
            None => self.items.iter().rev().take(CONTEXT_ITEMS).map(|i| events::item_text(&i.body)).collect(),
        };
        let script = self.script.clone();
        let chosen = script.script.choose(
            &Asked {
                after: self.after,
                instructions: own.or(self.config["instructions"].as_str()).unwrap_or_default(),
                context: &context,
            },
            &mut self.seen,
            &mut locked(&self.script_progress),
        );
        if in_conversation {
            self.after = After::Nothing;
        }
        let id = self.id("resp");
        let metadata = if faults.no_metadata { Value::Null } else { asked["metadata"].clone() };
        let output = &self.config["audio"]["output"];
        let modalities =
            if asked["output_modalities"].is_array() { asked } else { &self.config }["output_modalities"].clone();
        let tool_choice = if asked["tool_choice"].is_null() { &self.config } else { asked }["tool_choice"].clone();
        let format = match (modalities[0].as_str(), output["format"]["type"].as_str()) {
            (Some("text"), _) => OutputFormat::Text,
            (_, Some("audio/pcmu")) => OutputFormat::Pcmu,
            (_, Some("audio/pcma")) => OutputFormat::Pcma,
            _ => OutputFormat::Pcm24,
        };
        let conversation = if in_conversation { format!("conv_{}", self.name).into() } else { Value::Null };
        let response = json!({
            "object": "realtime.response", "id": id, "conversation_id": conversation, "metadata": metadata,
            "output_modalities": modalities, "max_output_tokens": "inf",
            "audio": { "output": { "format": output["format"], "voice": output["voice"] } }
        });
        self.record.responses.push(ResponseRecord {
            id: id.clone(),
            created_us: now_us,
            done_us: None,
            metadata: asked["metadata"].clone(),
            instructions: own.map(str::to_owned),
            rule: chosen.map(|(n, _)| n + 1),
            texts: Vec::new(),
            calls: Vec::new(),
            audio_ms: 0,
            status: "in_progress".to_owned(),
            by_turn_detection,
        });
        self.generations.push(Generation::new(Begin {
            response,
            id_prefix: id.trim_start_matches("resp_").to_owned(),
            id,
            in_conversation,
            rule: chosen.map(|(_, rule)| rule),
            may_call: tool_choice != "none",
            script: &script,
            format,
            pace: self.pace,
            created_at_us: now_us + faults.create_delay_ms * 1_000,
            extra_delay_ms: faults.answer_delay_ms,
        }));
        Ok(())
    }

    /// The response that writes the conversation, announced or not.
    fn active(&self) -> Option<usize> {
        self.generations.iter().position(|g| g.in_conversation)
    }

    fn cancel(&mut self, now_us: u64, response_id: Option<&str>) -> Result<(), Refusal> {
        let target = match response_id {
            Some(id) => self.generations.iter().position(|g| g.id == id),
            // One that is asked for but not yet created cannot be cancelled: it appears afterwards.
            None => self.active().filter(|&n| self.generations[n].is_created()),
        };
        let ended = target.map(|n| self.generations[n].id.clone());
        let response_id = response_id.map(str::to_owned);
        self.record.cancels.push(CancelRecord { at_us: now_us, response_id, ended });
        match target {
            Some(n) => {
                self.cancel_generation(now_us, n, "client_cancelled");
                Ok(())
            }
            None => Err(Refusal::new("response_cancel_not_active", "Cancellation failed: no active response found")),
        }
    }

    fn cancel_active(&mut self, now_us: u64, reason: &str) {
        if let Some(n) = self.active() {
            self.cancel_generation(now_us, n, reason);
        }
    }

    fn cancel_generation(&mut self, now_us: u64, n: usize, reason: &str) {
        let mut progress = Vec::new();
        self.generations[n].cancel(reason, &mut self.events, &mut progress);
        self.note_progress(now_us, n, progress);
    }

    fn note_progress(&mut self, now_us: u64, n: usize, progress: Vec<Progress>) {
        if locked(&self.faults).swallow_ends {
            self.events.retain(|event| event["type"] != "response.done");
        }
        self.place_items();
        let in_conversation = self.generations[n].in_conversation;
        let id = self.generations[n].id.clone();
        for step in progress {
            match step {
                Progress::ItemOpened { item } if in_conversation => {
                    let id = item["id"].as_str().unwrap_or_default().to_owned();
                    self.items.push(Item { id, body: item, audio_ms: 0 });
                }
                Progress::AudioSent { item_id, sent_ms } => {
                    self.audio_was_sent = true;
                    if let Some(at) = self.position(&item_id) {
                        self.items[at].audio_ms = sent_ms;
                    }
                    if let Some(record) = self.record.responses.iter_mut().find(|r| r.id == id) {
                        record.audio_ms = sent_ms;
                    }
                }
                Progress::ItemClosed { item } if in_conversation => {
                    let id = item["id"].as_str().unwrap_or_default();
                    if let Some(at) = self.position(id) {
                        self.items[at].body = item;
                    }
                }
                Progress::ItemOpened { .. } | Progress::ItemClosed { .. } => {}
                Progress::Ended => self.note_end(now_us, n, &id),
            }
        }
    }

    /// A generation does not know the conversation: its items are given their neighbour here.
    fn place_items(&mut self) {
        for event in &mut self.events {
            let is_item = matches!(event["type"].as_str(), Some("conversation.item.added" | "conversation.item.done"));
            if !is_item || !event["previous_item_id"].is_null() {
                continue;
            }
            let id = event["item"]["id"].as_str().unwrap_or_default();
            let before = match self.items.iter().position(|i| i.id == id) {
                Some(at) => at.checked_sub(1).map(|n| &self.items[n]),
                None => self.items.last(),
            };
            event["previous_item_id"] = before.map(|item| item.id.as_str()).into();
        }
    }

    fn note_end(&mut self, now_us: u64, n: usize, id: &str) {
        let generation = self.generations.remove(n);
        self.ended += 1;
        let status =
            self.events.iter().rev().find(|e| e["type"] == "response.done").map(|e| e["response"]["status"].clone());
        if let Some(record) = self.record.responses.iter_mut().find(|r| r.id == id) {
            record.done_us = Some(now_us);
            record.status = status.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
            record.texts = generation.texts();
            record.calls = generation.calls();
        }
    }

    fn id(&mut self, kind: &str) -> String {
        self.next_id += 1;
        format!("{kind}_{}_{}", self.name, self.next_id)
    }
}

fn kind_of(item: &Value) -> &str {
    item["type"].as_str().unwrap_or_default()
}

fn missing(code: &'static str, id: &str) -> Refusal {
    Refusal::new(code, format!("Item with item_id '{id}' not found.")).about("item_id")
}
