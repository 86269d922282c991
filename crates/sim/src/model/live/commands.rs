//! What a client may ask of a Live session.

use super::super::events::{Refusal, item_text};
use super::super::script::After;
use super::runs::NotTaken;
use super::{AppendRecord, CreateRecord, Later, LiveSession, TAKES_UP_US, locked, start};
use crate::voices::BUILTIN;
use serde_json::{Value, json};

/// The service takes 500 tokens; four bytes each is usual, and nothing here counts better.
const APPEND_BYTES: usize = 2_000;

impl LiveSession {
    pub(in super::super) fn receive(&mut self, now_us: u64, text: &str) {
        if self.closed {
            return;
        }
        let event: Value = match serde_json::from_str(text) {
            Ok(event @ Value::Object(_)) => event,
            Ok(_) | Err(_) => {
                return self.refuse(now_us, None, Refusal::new("invalid_event", "The event is not a JSON object."));
            }
        };
        let event_id = event["event_id"].as_str().map(str::to_owned);
        if let Err(refusal) = self.obey(now_us, &event) {
            self.refuse(now_us, event_id, refusal);
        }
    }

    fn obey(&mut self, now_us: u64, event: &Value) -> Result<(), Refusal> {
        let kind = event["type"].as_str().unwrap_or_default();
        if !self.is_started() && kind != "session.start" {
            let first = "The first event must be 'session.start', and the next wait for 'session.started'.";
            return Err(Refusal::new("invalid_event", first).about("type"));
        }
        match kind {
            "session.start" => self.start(now_us, event),
            "session.update" => {
                start::check_event(event, &["session"])?;
                start::update(&mut self.config, &event["session"])?;
                self.record.updates.push(event["session"].clone());
                self.answer(event, json!({ "type": "session.updated", "session": self.config }));
                Ok(())
            }
            "session.close" => {
                start::check_event(event, &[])?;
                self.close("close_requested", event["event_id"].as_str());
                Ok(())
            }
            "session.input_audio.append" => {
                start::check_event(event, &["audio"])?;
                self.hear(now_us, &event["audio"])
            }
            "session.input_audio.mute" | "session.input_audio.unmute" => {
                self.muted = kind.ends_with(".mute");
                self.answer(event, json!({ "type": format!("{kind}d") }));
                Ok(())
            }
            "session.commentary.append" => self.append(now_us, event, "commentary"),
            "session.thinking.append" => self.append(now_us, event, "thinking"),
            "session.instructions.append" => self.append(now_us, event, "instructions"),
            "response.item.create" => self.create_item(now_us, event),
            "response.create" => {
                let accepted = start::check_event(event, &[]).and_then(|()| self.create_response(now_us));
                self.record.creates.push(CreateRecord { at_us: now_us, accepted: accepted.is_ok() });
                accepted
            }
            "session.output_audio.fixture.play"
            | "decision.create"
            | "decision.item.create"
            | "decision.item.delete" => {
                Err(Refusal::new("invalid_event", format!("'{kind}' is not served here.")).about("type"))
            }
            other => {
                let message = format!("Invalid value: '{other}' is no client event.");
                Err(Refusal::new("invalid_event", message).about("type"))
            }
        }
    }

    fn start(&mut self, now_us: u64, event: &Value) -> Result<(), Refusal> {
        if self.is_started() {
            return Err(Refusal::new("invalid_event", "The session has started already.").about("type"));
        }
        start::check_event(event, &["session"])?;
        let id = format!("live_{}", self.name);
        self.config = start::session(&id, self.expires_at, &event["session"])?;
        self.record.start = event["session"].clone();
        self.record.started_us = Some(now_us);
        self.started_us = now_us;
        self.next_output_us = now_us;
        self.next_usage_us = now_us + super::USAGE_EVERY_US;
        for item in event["session"]["input"].as_array().into_iter().flatten() {
            self.note(&item_text(item));
        }
        self.answer(event, json!({ "type": "session.started", "session": self.config }));
        Ok(())
    }

    fn append(&mut self, now_us: u64, event: &Value, kind: &str) -> Result<(), Refusal> {
        start::check_event(event, &["content", "delegation_id"])?;
        let content = event["content"].as_str().filter(|content| !content.is_empty());
        let content = content.ok_or_else(|| {
            Refusal::new("missing_required_parameter", "Missing required parameter: 'content'.").about("content")
        })?;
        if content.len() > APPEND_BYTES {
            return Err(Refusal::new("invalid_value", "content is limited to 500 tokens.").about("content"));
        }
        let delegation = event["delegation_id"].as_str();
        if let Some(delegation) = delegation {
            let is_ours = self.config["delegation"]["type"] == "client";
            if !is_ours || !self.record.delegations.iter().any(|known| known == delegation) {
                let message = format!("'{delegation}' is no client delegation of this session.");
                return Err(Refusal::new("invalid_value", message).about("delegation_id"));
            }
        }
        let place = self.record.appends.len();
        self.record.appends.push(AppendRecord {
            at_us: now_us,
            kind: kind.to_owned(),
            content: content.to_owned(),
            delegation_id: delegation.map(str::to_owned),
            acknowledged_us: None,
        });
        let mut answer = json!({ "type": format!("session.{kind}.appended") });
        if let Some(id) = event["event_id"].as_str() {
            answer["client_event_id"] = id.into();
        }
        self.unacknowledged.push_back((place, answer));
        self.acknowledge(now_us);
        Ok(())
    }

    /// An append has come into the context: commentary is spoken of soon, the others are known.
    pub(super) fn taken_up(&mut self, now_us: u64, place: usize) {
        let append = self.record.appends[place].clone();
        self.note(&append.content);
        if append.kind != "commentary" || locked(&self.faults).silent_commentary {
            return;
        }
        if append.delegation_id.is_some() {
            self.after = After::ToolOutput;
        }
        let chosen = self.choose(&append.content);
        self.respond(now_us + TAKES_UP_US, chosen);
    }

    fn needs_backend(&self) -> Result<(), Refusal> {
        if self.config["delegation"]["type"] == "responses" {
            return Ok(());
        }
        Err(Refusal::new("invalid_event", "This requires Responses delegation.").about("type"))
    }

    fn create_item(&mut self, now_us: u64, event: &Value) -> Result<(), Refusal> {
        start::check_event(event, &["item"])?;
        self.needs_backend()?;
        let item = &event["item"];
        match item["type"].as_str().unwrap_or("message") {
            "function_call_output" => {
                let call = item["call_id"].as_str().unwrap_or_default();
                if !item["output"].is_string() && !item["output"].is_array() {
                    let missing = "Missing required parameter: 'item.output'.";
                    return Err(Refusal::new("missing_required_parameter", missing).about("item.output"));
                }
                self.calls.answer(call).map_err(|why| {
                    let message = match why {
                        NotTaken::Answered => format!("Function call {call} has an output already."),
                        _ if self.calls.was_thrown_away(call) => {
                            format!("Function call {call} belongs to a response that did not complete.")
                        }
                        NotTaken::NoSuchCall | NotTaken::Missing { .. } => {
                            format!("No function call {call} waits for an output.")
                        }
                    };
                    Refusal::new("invalid_value", message).about("item.call_id")
                })?;
                self.after = After::ToolOutput;
                self.note(&item_text(item));
            }
            "message" if item["role"].is_string() => {
                let text = item["content"].as_str().map_or_else(|| item_text(item), str::to_owned);
                if matches!(item["role"].as_str(), Some("developer" | "system")) {
                    self.backend_directions.push_str(&text);
                    self.backend_directions.push('\n');
                } else {
                    self.after = After::User;
                }
                self.note(&text);
            }
            _ => return Err(Refusal::new("invalid_value", "The item has no known type.").about("item.type")),
        }
        self.record.items.push(item.clone());
        self.answer_by_itself(now_us);
        Ok(())
    }

    fn create_response(&mut self, now_us: u64) -> Result<(), Refusal> {
        self.needs_backend()?;
        let refused = {
            let mut faults = locked(&self.faults);
            let refused = faults.refuse_creates > 0;
            faults.refuse_creates = faults.refuse_creates.saturating_sub(1);
            refused
        };
        if refused || self.is_running() {
            return Err(Refusal::new("invalid_value", "A response of the backend is in progress."));
        }
        self.continue_runs(now_us)
    }

    /// One run takes up everything that was submitted.
    pub(super) fn continue_runs(&mut self, now_us: u64) -> Result<(), Refusal> {
        let before = self.calls.continue_all().map_err(|why| {
            let message = match why {
                NotTaken::Missing { call } => format!("No tool output found for function call {call}."),
                NotTaken::NoSuchCall | NotTaken::Answered => "Nothing to continue with.".to_owned(),
            };
            Refusal::new("invalid_value", message)
        })?;
        let delegation = before
            .and_then(|id| self.record.runs.iter().find(|run| run.id == id))
            .and_then(|run| run.delegation_id.clone());
        let own = std::mem::take(&mut self.backend_directions);
        let standing = self.config["delegation"]["responses"]["instructions"].as_str().unwrap_or_default();
        let instructions = if own.is_empty() { standing.to_owned() } else { own };
        let chosen = self.choose(&instructions);
        if let Some(voice) = locked(&self.faults).filler {
            let (file, text) = (format!("{BUILTIN}{voice}"), "Just a moment.".to_owned());
            self.later.push((now_us, Later::Say { rule: None, file, text }));
        }
        let id = self.id("resp");
        self.run(now_us, &id, delegation, chosen.as_ref().map(|(n, rule)| (*n, rule)), true);
        Ok(())
    }

    fn answer(&mut self, event: &Value, mut answer: Value) {
        if let Some(id) = event["event_id"].as_str() {
            answer["client_event_id"] = id.into();
        }
        self.events.push(answer);
    }
}
