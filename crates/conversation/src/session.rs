//! The model session under the call. One that is lost, or about to expire, is followed by another one on the same call: the caller
//! hears a pause, the new session is told what was said and done, and everything that was owed is still owed (B12).

use crate::command::{CloseReason, Command};
use crate::conversation::{Conversation, Phase};
use crate::decision::Decision;
use crate::history::Entry;
use crate::owed::AgentState;
use crate::policy::SessionPolicy;
use crate::turn::TurnEndedBy;
use std::collections::VecDeque;
use vocab::model::{Capabilities, ModelCommand, Speaker};
use vocab::{CallTime, ResponseId};

/// Facts kept for a session to come, and how long one may be in bytes.
const MAX_FACTS: usize = 64;
const MAX_FACT_BYTES: usize = 4_096;
/// Spoken parts that a new session is told; and how long one part may be in bytes.
const MAX_SPOKEN: u64 = 60;
const MAX_PART_BYTES: usize = 2_000;

/// A session that lives for less than this is not renewed.
const WORTH_RENEWING_MS: u64 = 60_000;
/// No call is longer than this.
const FAR_AWAY_MS: u64 = 7 * 24 * 3_600_000;
/// From then on a call that never had a session is told so, and not made to wait for one more.
const FIRST_SESSION_BY: CallTime = CallTime::from_ms(3_000);
const RENEWED: &str = "Your connection to this call was renewed; the above is what was said and done before. If the caller \
    seems to have said something that is missing, ask them to repeat it.";

#[derive(Clone, Debug, Default)]
pub struct Session {
    /// It holds our configuration and what came before it; responses may be asked for.
    pub ready: bool,
    pub capabilities: Capabilities,
    /// Sessions that this call has had; each numbers what belongs to it.
    pub number: u32,
    /// Openings that a failure asked for since a session last brought the caller a sound: one that opens and dies is no help.
    openings: u32,
    /// Another one was asked for and is not ready.
    reopening: bool,
    /// When to look for a quiet moment to open the next one.
    renew_at: Option<CallTime>,
    /// The quiet moment did not come: it is opened now.
    renew_by: Option<CallTime>,
    /// What the model was told beside what was spoken.
    facts: VecDeque<Fact>,
}

#[derive(Clone, Debug)]
struct Fact {
    /// History entries before it.
    after: u64,
    /// The first to be forgotten: there may be many.
    is_key: bool,
    text: String,
}

impl Session {
    fn keep_fact(&mut self, after: u64, is_key: bool, text: &str) {
        if self.facts.len() == MAX_FACTS {
            let key = self.facts.iter().position(|fact| fact.is_key);
            self.facts.remove(key.unwrap_or(0));
        }
        self.facts.push_back(Fact { after, is_key, text: cut(text, MAX_FACT_BYTES) });
    }

    /// The provider said when it will end.
    fn expires(&mut self, now: CallTime, after_ms: u64, policy: &SessionPolicy) {
        if after_ms < WORTH_RENEWING_MS {
            // Another one would be as short: it is opened when this one ends.
            return;
        }
        // Half of its time at most, or one would be renewed as soon as it is there.
        let after_ms = after_ms.min(FAR_AWAY_MS);
        let margin_ms = u64::from(policy.renew_before_ms).min(after_ms / 2);
        self.renew_at = Some(now.plus_ms(after_ms - margin_ms));
        self.renew_by = Some(now.plus_ms(after_ms - margin_ms / 4));
    }

    pub fn bears_fruit(&mut self) {
        self.openings = 0;
    }

    /// When a renewal is next to be thought of.
    pub fn renewal_due(&self, now: CallTime) -> Option<CallTime> {
        [self.renew_at, self.renew_by].into_iter().flatten().filter(|at| *at > now).min()
    }
}

impl Conversation {
    pub(crate) fn session_opened(&mut self, capabilities: Capabilities) {
        self.session.capabilities = capabilities;
        self.session.ready = false;
        self.session.number += 1;
        self.responses.session = self.session.number;
        self.session.renew_at = None;
        self.session.renew_by = None;
    }

    pub(crate) fn session_ready(&mut self, out: &mut Vec<Command>) {
        self.session.ready = true;
        if std::mem::take(&mut self.session.reopening) {
            out.push(Command::Explain(Decision::SessionRestored { number: self.session.number }));
            self.restore_history(out);
        }
    }

    pub(crate) fn session_expires(&mut self, after_ms: u64) {
        self.session.expires(self.now, after_ms, &self.policy.session);
    }

    /// The connection is gone, or never stood.
    pub(crate) fn session_lost(&mut self, reason: String, out: &mut Vec<Command>) {
        // A first session that cannot be opened has been tried before we heard of it. One that opens and drops at once may do better
        // the next time, as long as nobody has listened to nothing for too long.
        let may_come = match (self.session.ready || self.session.reopening, self.session.number) {
            (true, _) => true,
            (false, 0) => false,
            (false, _) => self.now < FIRST_SESSION_BY,
        };
        if !may_come || self.session.openings >= self.policy.session.max_openings {
            return self.close_stream(CloseReason::ModelLost { reason }, out);
        }
        self.session.openings += 1;
        self.open_session(reason, out);
    }

    /// The session stands and gives no answer. Another one may; when that does not either, the call ends with a sentence instead of
    /// silence.
    pub(crate) fn session_gives_no_answer(&mut self, reason: &str, out: &mut Vec<Command>) {
        if self.phase == Phase::Closed {
            return;
        }
        if self.session.openings > 0 {
            return self.close_stream(CloseReason::ModelSilent { reason: reason.into() }, out);
        }
        self.session.openings += 1;
        self.open_session(reason.into(), out);
    }

    /// A session that will expire is changed for another one while nobody speaks and nothing is owed, or when time is up.
    pub(crate) fn renew_session(&mut self, out: &mut Vec<Command>) {
        if !self.session.ready || self.phase != Phase::Open {
            return;
        }
        let past = |at: Option<CallTime>| at.is_some_and(|at| at <= self.now);
        let idle = self.published == AgentState::Listening
            && self.turn.open_turn().is_none()
            && !self.turn.caller_is_speaking();
        if past(self.session.renew_by) || (past(self.session.renew_at) && idle) {
            self.open_session("the session would expire".into(), out);
        }
    }

    fn open_session(&mut self, reason: String, out: &mut Vec<Command>) {
        self.session.ready = false;
        self.session.reopening = true;
        self.session.renew_at = None;
        self.session.renew_by = None;
        out.push(Command::Explain(Decision::SessionLost { reason }));
        self.turn.session_lost();
        self.work.session_lost();
        self.playback.forget_items();
        self.history.await_nothing();
        if self.turn.open_turn().is_some() && !self.turn.caller_is_speaking() {
            // Nobody will say that it has ended, and whoever heard it is gone: an answer is owed, if only a question.
            self.close_turn(TurnEndedBy::Timeout, out);
            self.cut_by_turn = false;
        }
        let unfinished: Vec<ResponseId> = self.responses.session_lost();
        for response in unfinished {
            self.response_lost(response, out);
        }
        out.push(Command::OpenModel);
    }

    /// The voice of a session that is gone was heard so far: whoever answers next must know it. While the next one is being opened
    /// it is part of the history.
    pub(crate) fn tell_next_session(&self, response: ResponseId, heard: &str, out: &mut Vec<Command>) {
        if self.session.ready && !heard.is_empty() && self.responses.is_of_the_past(response) {
            let (speaker, text) = (Speaker::Agent, cut(heard, MAX_PART_BYTES));
            out.push(Command::Model(ModelCommand::AddHistory { speaker, text }));
        }
    }

    /// A key is known at once, and remembered as long as there is room beside what was done.
    pub(crate) fn key_pressed(&mut self, digit: char, out: &mut Vec<Command>) {
        self.tell_fact(format!("The caller pressed {digit} on the keypad."), true, out);
    }

    pub(crate) fn add_context(&mut self, text: String, out: &mut Vec<Command>) {
        self.tell_fact(text, false, out);
    }

    /// Tells the model now, or with the history of the session that is being opened.
    fn tell_fact(&mut self, text: String, is_key: bool, out: &mut Vec<Command>) {
        self.session.keep_fact(self.history.count(), is_key, &text);
        if !self.session.reopening {
            out.push(Command::Model(ModelCommand::AddContext { text }));
        }
    }

    /// An output for the model's tool call was given: a session after this one knows neither.
    pub(crate) fn remember_output(&mut self, tool: &str, output: &str) {
        self.session.keep_fact(
            self.history.count(),
            false,
            &format!("The tool {tool} was called. Its output: {output}"),
        );
    }

    /// What was said and done, as a new session is told it.
    fn restore_history(&self, out: &mut Vec<Command>) {
        let mut facts = self.session.facts.iter().peekable();
        let mut parts: Vec<(Speaker, &str)> = Vec::new();
        // What was done is told whole; of what was said, the newest.
        let oldest = self.history.count().saturating_sub(MAX_SPOKEN);
        for (place, entry) in (self.history.first_kept()..).zip(self.history.entries()) {
            while let Some(fact) = facts.next_if(|fact| fact.after <= place) {
                parts.push((Speaker::Application, &fact.text));
            }
            match entry {
                _ if place < oldest => {}
                Entry::Caller { text: Some(text), .. } => parts.push((Speaker::Caller, text)),
                Entry::Agent { heard, .. } if !heard.is_empty() => parts.push((Speaker::Agent, heard)),
                Entry::Caller { text: None, .. } | Entry::Agent { .. } => {}
            }
        }
        parts.extend(facts.map(|fact| (Speaker::Application, fact.text.as_str())));
        parts.push((Speaker::Application, RENEWED));
        out.extend(parts.into_iter().map(|(speaker, text)| {
            Command::Model(ModelCommand::AddHistory { speaker, text: cut(text, MAX_PART_BYTES) })
        }));
    }
}

/// The beginning of a text, at most so many bytes.
fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_owned()
}
