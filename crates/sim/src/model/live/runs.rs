//! Runs of the backend: the nested stream of the Responses interface, and which calls wait for their outputs.

use super::super::record::CallRecord;
use super::super::script::Rule;
use serde_json::{Value, json};

/// Between one nested event and the next.
const STEP_US: u64 = 5_000;

/// A nested stream, as `(time, event)`, and what it holds.
pub(super) struct Stream {
    pub(super) events: Vec<(u64, Value)>,
    pub(super) calls: Vec<CallRecord>,
    pub(super) ends_us: u64,
    pub(super) status: &'static str,
}

pub(super) struct Begin<'a> {
    pub(super) id: &'a str,
    pub(super) delegation: Option<&'a str>,
    pub(super) model: &'a Value,
    pub(super) rule: Option<&'a Rule>,
    pub(super) at_us: u64,
    pub(super) thinks_us: u64,
    /// A fault: it fails before it has made anything of the rule's.
    pub(super) fails: bool,
    /// It writes what the rule says, which the voice will speak.
    pub(super) answers: bool,
}

impl Stream {
    /// Reasoning comes first, as reasoning models have it; then the rule's calls, or its words.
    pub(super) fn of(begin: &Begin<'_>) -> Self {
        let mut writer = Writer { begin, at_us: begin.at_us, sequence: 0, events: Vec::new(), items: 0 };
        let mut calls = Vec::new();
        writer.lifecycle("response.created", "in_progress", &Value::Null);
        writer.lifecycle("response.in_progress", "in_progress", &Value::Null);
        writer.at_us += begin.thinks_us;
        writer.item(|status, id| {
            let id = id.replace("item", "rs");
            json!({ "type": "reasoning", "id": id, "summary": [], "status": status })
        });
        let fail = if begin.fails { Some("server_error") } else { begin.rule.and_then(|rule| rule.fail.as_deref()) };
        if let Some(rule) = begin.rule.filter(|_| !begin.fails) {
            for call in rule.call.iter().chain(&rule.more_calls) {
                let call_id = format!("call_{}_{}", begin.id, writer.items);
                let arguments = call.arguments_text();
                writer.item(|status, id| {
                    let shown = if status == "completed" { arguments.as_str() } else { "" };
                    json!({
                        "type": "function_call", "id": id.replace("item", "fc"), "call_id": call_id, "name": call.name,
                        "arguments": shown, "status": status
                    })
                });
                calls.push(CallRecord { call_id, name: call.name.clone(), arguments, completed: true });
            }
            if let (Some(say), true) = (&rule.say, begin.answers && fail.is_none()) {
                writer.message(&say.text);
            }
        }
        let status = match fail {
            Some(code) => {
                let error = json!({ "code": code, "message": format!("The model failed with {code}.") });
                writer.lifecycle("response.failed", "failed", &error);
                "failed"
            }
            None => {
                writer.lifecycle("response.completed", "completed", &Value::Null);
                "completed"
            }
        };
        Self { calls, status, ends_us: writer.at_us, events: writer.events }
    }
}

struct Writer<'a> {
    begin: &'a Begin<'a>,
    at_us: u64,
    sequence: u64,
    events: Vec<(u64, Value)>,
    items: usize,
}

impl Writer<'_> {
    fn event(&mut self, mut event: Value) {
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.at_us += STEP_US;
        let nested = json!({ "type": "response.event", "delegation_id": self.begin.delegation, "event": event });
        self.events.push((self.at_us, nested));
    }

    /// Snapshots leave out what makes them long: the output is in the items' events.
    fn lifecycle(&mut self, kind: &str, status: &str, error: &Value) {
        let ended = status != "in_progress";
        let usage = json!({
            "input_tokens": 120, "input_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
            "output_tokens": 40, "output_tokens_details": { "reasoning_tokens": 16 }, "total_tokens": 160
        });
        let response = json!({
            "id": self.begin.id, "object": "response", "created_at": 1_900_000_000, "status": status, "error": error,
            "incomplete_details": null, "instructions": null, "metadata": {}, "model": self.begin.model, "output": [],
            "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "usage": if ended { usage } else { Value::Null }
        });
        self.event(json!({ "type": kind, "response": response }));
    }

    fn item(&mut self, make: impl Fn(&str, &str) -> Value) {
        let (index, id) = (self.items, format!("item_{}_{}", self.begin.id, self.items));
        self.items += 1;
        let done = make("completed", &id);
        self.event(
            json!({ "type": "response.output_item.added", "output_index": index, "item": make("in_progress", &id) }),
        );
        if let Some(arguments) = done["arguments"].as_str() {
            let item_id = done["id"].clone();
            self.event(json!({
                "type": "response.function_call_arguments.delta", "item_id": item_id, "output_index": index,
                "delta": arguments
            }));
            self.event(json!({
                "type": "response.function_call_arguments.done", "item_id": item_id, "output_index": index,
                "arguments": arguments
            }));
        }
        self.event(json!({ "type": "response.output_item.done", "output_index": index, "item": done }));
    }

    fn message(&mut self, text: &str) {
        let (index, id) = (self.items, format!("msg_{}_{}", self.begin.id, self.items));
        self.items += 1;
        let item = |status: &str, content: Value| json!({ "type": "message", "id": id, "role": "assistant", "status": status, "content": content });
        let part = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
        let at = |kind: &str| json!({ "type": kind, "item_id": id, "output_index": index, "content_index": 0 });
        let with = |kind: &str, field: &str, value: Value| {
            let mut event = at(kind);
            event[field] = value;
            event
        };
        self.event(json!({
            "type": "response.output_item.added", "output_index": index, "item": item("in_progress", json!([]))
        }));
        self.event(with("response.content_part.added", "part", part("")));
        for (kind, field) in [("response.output_text.delta", "delta"), ("response.output_text.done", "text")] {
            let mut event = with(kind, field, text.into());
            event["logprobs"] = json!([]);
            self.event(event);
        }
        self.event(with("response.content_part.done", "part", part(text)));
        self.event(json!({
            "type": "response.output_item.done", "output_index": index, "item": item("completed", json!([part(text)]))
        }));
    }
}

/// A call that the backend has made.
#[derive(Debug)]
struct Call {
    id: String,
    run: String,
    answered: bool,
}

/// Which calls wait. The rule of the service: all outputs, then one `response.create`.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Vec<Call>,
    /// Calls of failed runs: their outputs are refused.
    thrown_away: Vec<String>,
    /// Outputs that no run has taken up.
    submitted: bool,
}

/// Why an output or a create is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    NoSuchCall,
    Answered,
    Missing { call: String },
}

impl Calls {
    pub(super) fn made(&mut self, run: &str, calls: &[CallRecord]) {
        let calls = calls.iter().map(|call| Call { id: call.call_id.clone(), run: run.to_owned(), answered: false });
        self.open.extend(calls);
    }

    pub(super) fn thrown_away(&mut self, run: &str) {
        let (gone, open) = std::mem::take(&mut self.open).into_iter().partition(|call| call.run == run);
        self.open = open;
        let gone: Vec<Call> = gone;
        self.thrown_away.extend(gone.into_iter().map(|call| call.id));
    }

    pub(super) fn answer(&mut self, call: &str) -> Result<(), NotTaken> {
        match self.open.iter_mut().find(|open| open.id == call) {
            Some(open) if open.answered => Err(NotTaken::Answered),
            Some(open) => {
                open.answered = true;
                self.submitted = true;
                Ok(())
            }
            None => Err(NotTaken::NoSuchCall),
        }
    }

    pub(super) fn was_thrown_away(&self, call: &str) -> bool {
        self.thrown_away.iter().any(|gone| gone == call)
    }

    /// Whether outputs wait and none is missing.
    pub(super) fn are_ready(&self) -> bool {
        self.submitted && self.missing().is_none()
    }

    fn missing(&self) -> Option<&str> {
        self.open.iter().find(|call| !call.answered).map(|call| call.id.as_str())
    }

    /// A run takes up what was submitted. Returns the run that made the last of the calls.
    pub(super) fn continue_all(&mut self) -> Result<Option<String>, NotTaken> {
        if let Some(call) = self.missing() {
            return Err(NotTaken::Missing { call: call.to_owned() });
        }
        self.submitted = false;
        Ok(self.open.drain(..).next_back().map(|call| call.run))
    }
}
