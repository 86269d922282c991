//! What happened, in words that a scenario can name: derived from the steps of the core (which both runners see), the
//! caller's side and the backend's.

use conversation::{AgentState, CloseReason, Command, Decision, Input, PlaybackEndedBy};
use std::collections::BTreeMap;
use std::fmt;
use vocab::delivery::DeliveryChange;
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::work::{WorkCommand, WorkEvent};
use vocab::{PlaybackId, ResponseId};

/// Every name, and what its text is. The public list: docs/scenarios.md is checked against it.
pub const NAMES: &[(&str, &str)] = &[
    ("call_started", "a stream of a call was answered"),
    ("stream_ended", "the stream is over"),
    ("caller_says", "the caller begins a sound: its text or file"),
    ("caller_done", "the caller's sound has ended: its text or file"),
    ("key", "a key was pressed: the digit"),
    ("hung_up", "the caller hung up"),
    ("speech_tentative", "our detector heard a sound"),
    ("speech_retracted", "it was none"),
    ("speech_confirmed", "it is speech"),
    ("speech_ended", "the caller is quiet"),
    ("turn_opened", "the caller holds the floor"),
    ("turn_closed", "the caller's turn is over: by what"),
    ("caller_said", "the transcript came: the words"),
    ("barged_in", "the caller cut in"),
    ("response_planned", "a response was asked for: its purpose"),
    ("response_asked", "the same: the directions for the model"),
    ("response_refused", "the provider would not start it"),
    ("response_ended", "the model's generation ended: how"),
    ("response_cancelled", "we cancelled a generation"),
    ("answer_abandoned", "an owed answer could not be had"),
    ("agent_starts", "the agent's voice begins: its words"),
    ("agent_stops", "it has ended: `played`, `cleared` …, and its words"),
    ("clear", "the carrier's buffer was cleared"),
    ("truncated", "the model's item was cut to what was heard: milliseconds"),
    ("deleted", "the model's item was removed: nothing of it was heard"),
    ("tool_called", "the model called a tool: name and arguments"),
    ("tool_dropped", "a tool call was not even proposed: why"),
    ("proposed", "it was proposed to the executor: name and arguments"),
    ("admitted", "an operation was created"),
    ("attached", "a proposal joined an operation that was there: its status"),
    ("refused", "a proposal was refused: the code"),
    ("tool_output", "the model was given the output of its call: the text"),
    ("context", "the model was told a fact: the text"),
    ("finished", "the call heard of an outcome: the status"),
    ("delivery_ready", "news wait to be told: the text"),
    ("gate", "the gate judged: decision and reason"),
    ("offered", "a delivery goes on offer: `alone` or `attached`"),
    ("offer_withdrawn", "the moment passed before it was said: why"),
    ("heard", "a delivery was heard: milliseconds"),
    ("interrupted", "a delivery was cut: milliseconds heard"),
    ("unproven", "nothing proves what was heard of a delivery"),
    ("suppressed", "a delivery is not to be said: why"),
    ("superseded", "a newer delivery says it better"),
    ("expired", "a delivery's time has passed"),
    ("save_refused", "the store refused a change of a delivery: why"),
    ("state", "the public state: listening, thinking, speaking"),
    ("model_ready", "the model's session is open"),
    ("claim_unfounded", "the caller heard of success in a call in which nothing is committed: the words"),
    ("model_lost", "it is gone"),
    ("model_reopened", "another session is opened on the same call"),
    ("history", "a new session is told what was said or done before: the words"),
    ("model_error", "the provider complained: the code"),
    ("close_stream", "the core closes the stream: why"),
    ("backend_request", "a request reached the booking system: its arguments"),
    ("backend_committed", "a booking was made: its reference"),
    ("killed", "the server died"),
    ("restarted", "it is back"),
];

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Microseconds since the first call was dialled.
    pub at_us: u64,
    pub name: &'static str,
    pub text: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7} ms  {}", self.at_us / 1_000, self.name)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ": {}", self.text) }
    }
}

/// Whether a pattern's name is one of ours.
pub fn is_known(pattern: &str) -> bool {
    let (name, _) = parts(pattern);
    NAMES.iter().any(|(known, _)| *known == name)
}

fn parts(pattern: &str) -> (&str, &str) {
    match pattern.split_once(':') {
        Some((name, text)) => (name.trim(), text.trim()),
        None => (pattern.trim(), ""),
    }
}

/// `name`, or `name: part of the text` in any case.
pub fn matches(pattern: &str, event: &Event) -> bool {
    let (name, text) = parts(pattern);
    event.name == name && (text.is_empty() || event.text.to_lowercase().contains(&text.to_lowercase()))
}

/// Turns the steps of one stream's core into events.
#[derive(Debug, Default)]
pub struct Steps {
    sounding: Option<ResponseId>,
    /// What each response says, from its first sound on.
    said: BTreeMap<ResponseId, String>,
    playing: BTreeMap<PlaybackId, String>,
}

/// What the model says in a response, by the model's own record.
#[derive(Clone, Copy)]
pub enum WordsOf<'a> {
    /// It knows our responses.
    Response(&'a dyn Fn(ResponseId) -> Option<String>),
    /// It knows none, only what it is saying now.
    Now(&'a dyn Fn() -> Option<String>),
}

impl Steps {
    pub fn input(&mut self, at_us: u64, input: &Input, out: &mut Vec<Event>) {
        let mut say = |name, text: String| out.push(Event { at_us, name, text });
        match input {
            Input::CallStarted { .. } => say("call_started", String::new()),
            Input::StreamEnded => say("stream_ended", String::new()),
            Input::DtmfPressed { digit } => say("key", digit.to_string()),
            Input::Model(ModelEvent::SessionReady) => say("model_ready", String::new()),
            Input::Model(ModelEvent::SessionLost { reason }) => say("model_lost", reason.clone()),
            Input::Model(ModelEvent::ErrorReported { code, .. }) => say("model_error", code.clone()),
            Input::Model(ModelEvent::ToolCallReceived { name, arguments, .. }) => {
                say("tool_called", format!("{name} {arguments}"));
            }
            Input::Work(WorkEvent::Admitted { attached_to: None, .. }) => say("admitted", String::new()),
            Input::Work(WorkEvent::Admitted { attached_to: Some(status), .. }) => {
                say("attached", status.as_str().to_owned());
            }
            Input::Work(WorkEvent::Refused { refusal, .. }) => say("refused", refusal.code.clone()),
            Input::Work(WorkEvent::Finished { status, result, .. }) => {
                say("finished", format!("{} {result}", status.as_str()));
            }
            Input::Work(WorkEvent::DeliveryReady(brief)) => {
                say(
                    "delivery_ready",
                    format!("{}{}", if brief.from_earlier_call { "earlier call, " } else { "" }, brief.text),
                );
            }
            Input::Work(WorkEvent::SaveRefused { reason, .. }) => say("save_refused", reason.clone()),
            Input::Work(WorkEvent::SaveFailed { reason, .. }) => say("save_failed", reason.clone()),
            Input::Work(WorkEvent::Saved { .. })
            | Input::Model(_)
            | Input::CallerAudio { .. }
            | Input::MarkReturned { .. }
            | Input::DrainRequested
            | Input::TimePassed => {}
        }
    }

    pub fn command(&mut self, at_us: u64, command: &Command, words_of: WordsOf<'_>, out: &mut Vec<Event>) {
        let mut say = |name, text: String| out.push(Event { at_us, name, text });
        match command {
            Command::SendAudio { playback, .. } => {
                if !self.playing.contains_key(playback) {
                    let said = self.sounding.and_then(|response| self.words(response, words_of));
                    let words = said.unwrap_or_default();
                    say("agent_starts", words.clone());
                    self.playing.insert(*playback, words);
                }
            }
            Command::ClearPlayback => say("clear", String::new()),
            Command::Model(command) => model_command(command, &mut say),
            Command::Work(WorkCommand::Propose(proposal)) => {
                say("proposed", format!("{} {}", proposal.tool, proposal.arguments));
            }
            Command::Work(WorkCommand::SaveDelivery { change, .. }) => {
                let (name, text) = delivery_change(change);
                say(name, text);
            }
            Command::Work(WorkCommand::SealBatch { .. }) => {}
            Command::OpenModel => say("model_reopened", String::new()),
            Command::PublishState { state } => say("state", state_name(*state).to_owned()),
            Command::CloseStream { reason } => say(
                "close_stream",
                match reason {
                    CloseReason::Drained => "drained".to_owned(),
                    CloseReason::CallerAway => "caller away".to_owned(),
                    CloseReason::ModelLost { reason } => format!("model lost, {reason}"),
                    CloseReason::ModelSilent { reason } => format!("model silent, {reason}"),
                    CloseReason::ModelRefused { code } => format!("model refused, {code}"),
                },
            ),
            Command::Explain(decision) => self.decision(at_us, decision, words_of, out),
            Command::KeepAudio { .. }
            | Command::SendMark { .. }
            | Command::ReleaseAudio { .. }
            | Command::Measure { .. } => {}
        }
    }

    fn words(&self, response: ResponseId, words_of: WordsOf<'_>) -> Option<String> {
        match (self.said.get(&response), words_of) {
            (Some(words), _) => Some(words.clone()),
            (None, WordsOf::Response(words_of)) => words_of(response),
            (None, WordsOf::Now(_)) => None,
        }
    }

    fn decision(&mut self, at_us: u64, decision: &Decision, words_of: WordsOf<'_>, out: &mut Vec<Event>) {
        let mut say = |name, text: String| out.push(Event { at_us, name, text });
        match decision {
            Decision::SpeechTentative { .. } => say("speech_tentative", String::new()),
            Decision::SpeechRetracted { .. } => say("speech_retracted", String::new()),
            Decision::SpeechConfirmed => say("speech_confirmed", String::new()),
            Decision::SpeechEnded => say("speech_ended", String::new()),
            Decision::TurnOpened { .. } => say("turn_opened", String::new()),
            Decision::TurnClosed { by, .. } => say("turn_closed", word(by)),
            Decision::CallerSaid { text, .. } => say("caller_said", text.clone()),
            Decision::BargedIn { .. } => say("barged_in", String::new()),
            Decision::PlaybackEnded(end) => {
                let how = match end.how {
                    PlaybackEndedBy::Played => "played",
                    PlaybackEndedBy::Cleared => "cleared",
                    PlaybackEndedBy::MarksLost => "marks_lost",
                    PlaybackEndedBy::StreamEnded => "stream_ended",
                };
                // One that was cut before anything of it was sent never began.
                if let Some(words) = self.playing.get(&end.playback) {
                    say("agent_stops", format!("{how}: {words}"));
                }
            }
            Decision::ResponsePlanned { purpose, .. } => say("response_planned", word(purpose)),
            Decision::ResponseSounds { response } => {
                self.sounding = Some(*response);
                let words = match words_of {
                    WordsOf::Response(words_of) => words_of(*response),
                    WordsOf::Now(words) => words(),
                };
                if let Some(words) = words {
                    self.said.insert(*response, words);
                }
            }
            Decision::ResponseEnded { response, end } => {
                let words = self.words(*response, words_of).unwrap_or_default();
                let how = match end {
                    ResponseEnd::Completed => "completed".to_owned(),
                    ResponseEnd::Cancelled => "cancelled".to_owned(),
                    ResponseEnd::Incomplete { reason } => format!("incomplete, {reason}"),
                    ResponseEnd::Failed { code } => format!("failed, {code}"),
                };
                say("response_ended", format!("{how}: {words}"));
            }
            Decision::ResponseRefused { .. } => say("response_refused", String::new()),
            Decision::AnswerAbandoned { .. } => say("answer_abandoned", String::new()),
            Decision::ToolCallDropped { tool, reason } => say("tool_dropped", format!("{tool} {}", word(reason))),
            Decision::GateJudged { decision, reason, .. } => {
                say("gate", format!("{} {}", word(decision), word(reason)));
            }
            Decision::OfferWithdrawn { reason, .. } => say("offer_withdrawn", word(reason)),
            Decision::ClaimUnfounded { claim, .. } => say("claim_unfounded", claim.clone()),
            Decision::MarkJudged { .. }
            | Decision::LateForResponse { .. }
            | Decision::ToolCallProposed { .. }
            | Decision::DeliveryChanged { .. }
            | Decision::DeliveryTakenOver { .. }
            | Decision::SaveFailed { .. }
            | Decision::SessionLost { .. }
            | Decision::SessionRestored { .. }
            | Decision::ModelComplained { .. } => {}
        }
    }
}

fn model_command(command: &ModelCommand, say: &mut impl FnMut(&'static str, String)) {
    match command {
        ModelCommand::CreateResponse { directions, .. } => {
            say("response_asked", directions.clone().unwrap_or_default());
        }
        ModelCommand::CancelResponse { .. } => say("response_cancelled", String::new()),
        ModelCommand::TruncateItem { audio_end, .. } => say("truncated", audio_end.0.to_string()),
        ModelCommand::DeleteItem { .. } => say("deleted", String::new()),
        ModelCommand::SubmitToolOutput { output, .. } => say("tool_output", output.clone()),
        ModelCommand::AddContext { text } => say("context", text.clone()),
        ModelCommand::AddHistory { text, .. } => say("history", text.clone()),
        ModelCommand::CommitTurn => {}
    }
}

fn delivery_change(change: &DeliveryChange) -> (&'static str, String) {
    match change {
        DeliveryChange::Offered { attached } => ("offered", if *attached { "attached" } else { "alone" }.to_owned()),
        DeliveryChange::Heard { heard } => ("heard", heard.0.to_string()),
        DeliveryChange::Interrupted { heard } => ("interrupted", heard.0.to_string()),
        DeliveryChange::Unproven { possible } => ("unproven", possible.0.to_string()),
        // Told by the decision that goes with it.
        DeliveryChange::Withdrawn { .. } => ("offer_withdrawn", "saved".to_owned()),
        DeliveryChange::Suppressed { reason } => ("suppressed", reason.clone()),
        DeliveryChange::Superseded { .. } => ("superseded", String::new()),
        DeliveryChange::Expired => ("expired", String::new()),
    }
}

pub fn state_name(state: AgentState) -> &'static str {
    match state {
        AgentState::Listening => "listening",
        AgentState::Thinking => "thinking",
        AgentState::Speaking => "speaking",
    }
}

/// An enum of ours as its recording writes it.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_an_event_and_a_part_of_its_text() {
        let event = Event { at_us: 0, name: "agent_starts", text: "Your table is booked.".into() };
        assert!(matches("agent_starts", &event));
        assert!(matches("agent_starts: is Booked", &event));
        assert!(!matches("agent_starts: free", &event));
        assert!(!matches("agent_stops", &event));
        assert!(is_known("state: listening") && !is_known("stat"));
    }
}
