//! One GPT-Live session: client events in, server events out, at given times. Reads no clock and no socket.
//!
//! Sources of the event shapes and rules: the types of the vendor's Python SDK and its guides to Live conversations and
//! delegation. Two error codes of it are documented, `unknown_parameter` and `immutable_field_update`; the others are those of
//! its other interfaces.

mod commands;
mod record;
mod runs;
mod speech;
mod start;

pub use record::{AppendRecord, CreateRecord, LiveSessionRecord, RunRecord, SaidRecord};

use super::events::Refusal;
use super::formats::{Decoder, Encoder, OutputFormat};
use super::record::{ErrorRecord, TurnRecord};
use super::script::{After, Asked, LoadedScript, Rule, ScriptProgress};
use super::turn_detection::{TurnDetector, TurnSignal};
use super::{ModelFaults, locked};
use crate::voices;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use runs::{Begin, Calls, Stream};
use serde_json::{Value, json};
use speech::{CHUNK_MS, Speech};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// How many of the newest texts a rule's `context_contains` looks at.
const CONTEXT_TEXTS: usize = 6;
/// Silence that ends a caller's turn for the model, which judges by meaning: a fixed wait stands for it.
const TURN_SILENCE_MS: u64 = 500;
/// The model falls silent so long after it has noticed that the caller speaks.
const YIELD_MS: u64 = 200;
/// From an append that is in the context, or a run that has answered, to the first word.
const TAKES_UP_US: u64 = 300_000;
/// A backend reasons before it calls or answers, be it ever so short.
const BACKEND_THINKS_US: u64 = 400_000;
/// Input that came within this long is flowing.
const INPUT_FLOWS_US: u64 = 250_000;
/// How often usage is told.
const USAGE_EVERY_US: u64 = 15_000_000;

/// What happens at a time.
#[derive(Debug)]
enum Later {
    Event(Value),
    Say { rule: Option<usize>, file: String, text: String },
    RunEnds { run: String },
}

pub(super) struct LiveSession {
    name: String,
    expires_at: u64,
    /// As `session.started` showed it; null before.
    config: Value,
    script: LoadedScript,
    script_progress: Arc<Mutex<ScriptProgress>>,
    seen: BTreeMap<usize, u32>,
    faults: Arc<Mutex<ModelFaults>>,
    /// What was said and put in, newest last.
    context: Vec<String>,
    after: After,
    encoder: Encoder,
    decoder: Decoder,
    detector: TurnDetector,
    turn_began_us: u64,
    muted: bool,
    speech: Speech,
    calls: Calls,
    /// Directions for the next run.
    backend_directions: String,
    /// Acknowledgements, with their entry in the record; they leave while input flows.
    unacknowledged: VecDeque<(usize, Value)>,
    last_input_us: Option<u64>,
    started_us: u64,
    next_output_us: u64,
    next_usage_us: u64,
    later: Vec<(u64, Later)>,
    next_id: u64,
    /// `session.closed` is among the events: nothing follows it.
    pub(super) closed: bool,
    /// Events to send, oldest first; `event_id` is put on when they leave.
    pub(super) events: Vec<Value>,
    pub(super) record: LiveSessionRecord,
}

pub(super) struct Opening {
    pub(super) name: String,
    pub(super) expires_at: u64,
    pub(super) script: LoadedScript,
    pub(super) script_progress: Arc<Mutex<ScriptProgress>>,
    pub(super) faults: Arc<Mutex<ModelFaults>>,
    pub(super) now_us: u64,
}

impl LiveSession {
    pub(super) fn open(opening: Opening) -> Self {
        Self {
            name: opening.name,
            expires_at: opening.expires_at,
            config: Value::Null,
            script: opening.script,
            script_progress: opening.script_progress,
            seen: BTreeMap::new(),
            faults: opening.faults,
            context: Vec::new(),
            after: After::Nothing,
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            detector: TurnDetector::default(),
            turn_began_us: 0,
            muted: false,
            speech: Speech::default(),
            calls: Calls::default(),
            backend_directions: String::new(),
            unacknowledged: VecDeque::new(),
            last_input_us: None,
            started_us: 0,
            next_output_us: 0,
            next_usage_us: 0,
            later: Vec::new(),
            next_id: 0,
            closed: false,
            events: Vec::new(),
            record: LiveSessionRecord { opened_us: opening.now_us, ..LiveSessionRecord::default() },
        }
    }

    fn is_started(&self) -> bool {
        !self.config.is_null()
    }

    /// Responses that the service has given: what `drop_after_responses` counts.
    pub(super) fn ended(&self) -> u32 {
        self.record.said.iter().filter(|said| said.done).count() as u32
    }

    /// When [`Self::advance`] has something to do.
    pub(super) fn next_at_us(&self) -> Option<u64> {
        if self.closed {
            return None;
        }
        let output = self.is_started().then_some(self.next_output_us);
        self.later.iter().map(|(at_us, _)| *at_us).chain(output).min()
    }

    /// Everything that is due.
    pub(super) fn advance(&mut self, now_us: u64) {
        while let Some(at_us) = self.next_at_us().filter(|at_us| *at_us <= now_us) {
            let due = self.later.iter().position(|(later_us, _)| *later_us == at_us);
            match due.map(|n| self.later.remove(n).1) {
                Some(Later::Event(event)) => self.events.push(event),
                Some(Later::Say { rule, file, text }) => self.say(at_us, rule, &file, &text),
                Some(Later::RunEnds { run }) => self.run_ends(at_us, &run),
                None => self.put_out(at_us),
            }
        }
        if self.is_started() && !self.closed && self.is_expired(now_us) {
            self.close("expired", None);
        }
    }

    fn is_expired(&self, now_us: u64) -> bool {
        let mut faults = locked(&self.faults);
        std::mem::take(&mut faults.expires_now)
            || faults.expire_after_ms.is_some_and(|ms| now_us >= self.started_us + ms * 1_000)
    }

    // ---- the stream out -------------------------------------------------------------------------------------------------

    fn put_out(&mut self, at_us: u64) {
        self.say_unprompted(at_us);
        let begin_ms = self.timeline_ms(at_us);
        let (chunk, given_up) = self.speech.next();
        for place in given_up {
            self.record.said[place].cut = true;
        }
        self.next_output_us = at_us + CHUNK_MS * 1_000;
        let audio = self.encoder.encode(&chunk.mulaw, self.format());
        self.events.push(json!({ "type": "session.output_audio.delta", "delta": audio }));
        if let Some((place, sent_ms, done)) = chunk.of {
            let said = &mut self.record.said[place];
            if said.sent_ms == 0 {
                (said.began_us, said.began_ms) = (at_us, begin_ms);
            }
            (said.sent_ms, said.done) = (sent_ms, done);
        }
        if !chunk.words.is_empty() {
            let event = json!({
                "type": "session.output_transcript.delta", "delta": chunk.words, "start_ms": begin_ms,
                "end_ms": begin_ms + CHUNK_MS
            });
            let late_us = locked(&self.faults).words_delay_ms * 1_000;
            self.later.push((at_us + late_us, Later::Event(event)));
        }
        if at_us >= self.next_usage_us {
            self.next_usage_us = at_us + USAGE_EVERY_US;
            let usage = self.usage(at_us);
            self.events.push(json!({
                "type": "session.usage.updated", "usage": usage, "context_window": { "usage_ratio": 0.01 }
            }));
        }
    }

    fn say_unprompted(&mut self, at_us: u64) {
        let due = locked(&self.faults).unprompted;
        let script = Arc::clone(&self.script.script);
        let from = {
            let mut progress = locked(&self.script_progress);
            let from = progress.unprompted;
            progress.unprompted = from.max(due.min(script.unprompted.len()));
            from
        };
        for say in script.unprompted.iter().take(due).skip(from) {
            self.say(at_us, None, &say.file, &say.text);
        }
    }

    fn say(&mut self, at_us: u64, rule: Option<usize>, file: &str, text: &str) {
        let mulaw = match self.script.audio.get(file) {
            Some(voice) => voice.mulaw.clone(),
            None => file.strip_prefix(voices::BUILTIN).and_then(voices::builtin).unwrap_or_default().to_vec(),
        };
        self.note(text);
        self.record.said.push(SaidRecord {
            rule: rule.map(|n| n + 1),
            text: text.to_owned(),
            began_us: at_us,
            began_ms: self.timeline_ms(at_us),
            sent_ms: 0,
            whole_ms: mulaw.len() as u64 / 8,
            cut: false,
            done: mulaw.is_empty(),
        });
        if !mulaw.is_empty() {
            self.speech.say(mulaw, text.to_owned(), self.record.said.len() - 1);
        }
    }

    // ---- the stream in --------------------------------------------------------------------------------------------------

    fn hear(&mut self, now_us: u64, audio: &Value) -> Result<(), Refusal> {
        let bytes = audio
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok())
            .ok_or_else(|| Refusal::new("invalid_value", "audio is not base64.").about("audio"))?;
        self.record.appended_bytes += bytes.len() as u64;
        self.last_input_us = Some(now_us);
        self.acknowledge(now_us);
        let heard = self.decoder.decode(&bytes, self.format());
        let signals = self.detector.hear(heard.into_iter(), 0, TURN_SILENCE_MS);
        if self.muted {
            return Ok(());
        }
        for signal in signals {
            match signal {
                TurnSignal::Started { .. } => {
                    self.turn_began_us = now_us;
                    if !locked(&self.faults).never_yields {
                        self.speech.yields(YIELD_MS);
                    }
                }
                TurnSignal::Stopped { .. } => self.turn_ended(now_us),
            }
        }
        Ok(())
    }

    fn turn_ended(&mut self, now_us: u64) {
        let text = {
            let mut progress = locked(&self.script_progress);
            let text = self.script.script.transcripts.get(progress.next_transcript).cloned().unwrap_or_default();
            progress.next_transcript += 1;
            text
        };
        self.record.turns.push(TurnRecord {
            item_id: String::new(),
            started_us: Some(self.turn_began_us),
            committed_us: Some(now_us),
            transcript: text.clone(),
        });
        let late_us = locked(&self.faults).transcript_delay_ms * 1_000;
        let (begin_ms, end_ms) = (self.timeline_ms(self.turn_began_us), self.timeline_ms(now_us));
        // Two fragments: a reader that takes the first for the whole is found out.
        let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        let middle_ms = begin_ms.midpoint(end_ms);
        for (delta, start_ms, end_ms) in [(&text[..half], begin_ms, middle_ms), (&text[half..], middle_ms, end_ms)] {
            if !delta.is_empty() {
                let event = json!({
                    "type": "session.input_transcript.delta", "delta": delta, "start_ms": start_ms, "end_ms": end_ms
                });
                self.later.push((now_us + late_us, Later::Event(event)));
            }
        }
        self.note(&text);
        self.after = After::User;
        let instructions = self.config["instructions"].as_str().unwrap_or_default().to_owned();
        let chosen = self.choose(&instructions);
        self.respond(now_us, chosen);
    }

    /// What the model does by itself: it speaks, and delegates what it cannot do.
    fn respond(&mut self, now_us: u64, chosen: Option<(usize, Rule)>) {
        let Some((n, rule)) = chosen else { return };
        let at_us = now_us + (rule.delay_ms + locked(&self.faults).answer_delay_ms) * 1_000;
        if let Some(say) = &rule.say {
            self.later.push((at_us, Later::Say { rule: Some(n), file: say.file.clone(), text: say.text.clone() }));
        }
        if rule.call.is_none() && rule.fail.is_none() {
            return;
        }
        let delegation = self.id("dlg");
        self.record.delegations.push(delegation.clone());
        let owner = self.config["delegation"]["type"].as_str().unwrap_or("client").to_owned();
        let mut body = json!({ "id": delegation, "type": "delegation", "target": owner });
        let run = (owner == "responses").then(|| self.id("resp"));
        if let Some(run) = &run {
            body["response_id"] = run.as_str().into();
        }
        let event = json!({
            "type": "session.delegation.created", "delegation": body, "offset_ms": self.timeline_ms(at_us)
        });
        self.later.push((at_us, Later::Event(event)));
        if let Some(run) = run {
            self.run(at_us, &run, Some(delegation), Some((n, &rule)), false);
        }
    }

    // ---- the backend ----------------------------------------------------------------------------------------------------

    fn run(&mut self, at_us: u64, id: &str, delegation: Option<String>, rule: Option<(usize, &Rule)>, answers: bool) {
        let faults = {
            let mut faults = locked(&self.faults);
            let now = *faults;
            faults.fail_runs = faults.fail_runs.saturating_sub(1);
            now
        };
        let rule_delay_ms =
            if answers { rule.map_or(0, |(_, rule)| rule.delay_ms) + faults.answer_delay_ms } else { 0 };
        let stream = Stream::of(&Begin {
            id,
            delegation: delegation.as_deref(),
            model: &self.config["delegation"]["responses"]["model"],
            rule: rule.map(|(_, rule)| rule),
            at_us,
            thinks_us: BACKEND_THINKS_US + rule_delay_ms * 1_000,
            fails: faults.fail_runs > 0,
            answers,
        });
        self.record.runs.push(RunRecord {
            id: id.to_owned(),
            delegation_id: delegation,
            rule: rule.map(|(n, _)| n + 1),
            continues: answers,
            calls: stream.calls.clone(),
            status: "in_progress".to_owned(),
        });
        self.calls.made(id, &stream.calls);
        self.later.extend(stream.events.into_iter().map(|(at_us, event)| (at_us, Later::Event(event))));
        self.later.push((stream.ends_us, Later::RunEnds { run: id.to_owned() }));
        if let (Some((n, rule)), true, "completed") = (rule, answers, stream.status)
            && let Some(say) = &rule.say
        {
            let at_us = stream.ends_us + TAKES_UP_US;
            self.later.push((at_us, Later::Say { rule: Some(n), file: say.file.clone(), text: say.text.clone() }));
        }
        // Told when it ends; until then it is in progress.
        if stream.status == "failed"
            && let Some(record) = self.record.runs.last_mut()
        {
            record.status = "failing".to_owned();
        }
    }

    fn run_ends(&mut self, now_us: u64, id: &str) {
        let Some(record) = self.record.runs.iter_mut().find(|run| run.id == id) else { return };
        let failed = record.status == "failing";
        record.status = if failed { "failed" } else { "completed" }.to_owned();
        if failed {
            self.calls.thrown_away(id);
        }
        self.answer_by_itself(now_us);
    }

    fn is_running(&self) -> bool {
        self.record.runs.iter().any(|run| matches!(run.status.as_str(), "in_progress" | "failing"))
    }

    /// A service that goes on unasked, as a fault.
    fn answer_by_itself(&mut self, now_us: u64) {
        if locked(&self.faults).answers_by_itself && self.calls.are_ready() && !self.is_running() {
            // It cannot be refused: that is what was just asked.
            let _ = self.continue_runs(now_us);
        }
    }

    // ---- what is common -------------------------------------------------------------------------------------------------

    fn choose(&mut self, instructions: &str) -> Option<(usize, Rule)> {
        let newest = self.context.len().saturating_sub(CONTEXT_TEXTS);
        let asked = Asked { after: self.after, instructions, context: &self.context[newest..] };
        let chosen = self.script.script.choose(&asked, &mut self.seen, &mut locked(&self.script_progress));
        self.after = After::Nothing;
        chosen.map(|(n, rule)| (n, rule.clone()))
    }

    fn note(&mut self, text: &str) {
        if !text.is_empty() {
            self.context.push(text.to_owned());
        }
    }

    /// Acknowledgements are events of the stream: without input it stands still for them.
    fn acknowledge(&mut self, now_us: u64) {
        if self.last_input_us.is_none_or(|last_us| now_us > last_us + INPUT_FLOWS_US) {
            return;
        }
        while let Some((place, mut event)) = self.unacknowledged.pop_front() {
            let at_ms = self.timeline_ms(now_us);
            event["start_ms"] = at_ms.into();
            event["end_ms"] = at_ms.into();
            self.events.push(event);
            self.record.appends[place].acknowledged_us = Some(now_us);
            self.taken_up(now_us, place);
        }
    }

    fn close(&mut self, reason: &str, client_event_id: Option<&str>) {
        self.closed = true;
        self.later.clear();
        for run in &mut self.record.runs {
            if matches!(run.status.as_str(), "in_progress" | "failing") {
                run.status = "cancelled".to_owned();
            }
        }
        self.record.closed_for = Some(reason.to_owned());
        let usage = self.usage(self.next_output_us);
        let mut event = json!({ "type": "session.closed", "reason": reason, "session": self.config, "usage": usage });
        if let Some(id) = client_event_id {
            event["client_event_id"] = id.into();
        }
        self.events.push(event);
    }

    fn refuse(&mut self, now_us: u64, event_id: Option<String>, refusal: Refusal) {
        self.events.push(json!({
            "type": "error",
            "error": {
                "type": "invalid_request_error", "code": refusal.code, "message": refusal.message,
                "param": refusal.param, "client_event_id": event_id
            }
        }));
        let code = Some(refusal.code.to_owned());
        self.record.errors.push(ErrorRecord { at_us: now_us, code, message: refusal.message, event_id });
    }

    fn format(&self) -> OutputFormat {
        let format = &self.config["audio"]["format"];
        match (format["type"].as_str(), format["rate"].as_u64()) {
            (Some("audio/pcmu"), _) => OutputFormat::Pcmu,
            (Some("audio/pcma"), _) => OutputFormat::Pcma,
            (_, Some(16_000)) => OutputFormat::Pcm16,
            _ => OutputFormat::Pcm24,
        }
    }

    fn usage(&self, now_us: u64) -> Value {
        json!({ "seconds": now_us.saturating_sub(self.started_us) / 1_000_000 })
    }

    fn timeline_ms(&self, at_us: u64) -> u64 {
        at_us.saturating_sub(self.started_us) / 1_000
    }

    fn id(&mut self, kind: &str) -> String {
        self.next_id += 1;
        format!("{kind}_live{}_{}", self.name, self.next_id)
    }
}
