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
/// Parts that a new session is told, the newest; and how long one may be in bytes.
const MAX_PARTS: usize = 60;
const MAX_PART_BYTES: usize = 2_000;

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
    /// Openings that were asked for since a session last brought the caller a sound: one that opens and dies is no help.
    openings: u32,
    /// Another one was asked for and is not ready.
    reopening: bool,
    /// When to look for a quiet moment to open the next one.
    renew_at: Option<CallTime>,
    /// The quiet moment did not come: it is opened now.
    renew_by: Option<CallTime>,
    /// What the model was told beside what was spoken, with the number of history entries before it.
    facts: VecDeque<(u64, String)>,
}

impl Session {
    fn keep_fact(&mut self, after: u64, text: &str) {
        if self.facts.len() == MAX_FACTS {
            self.facts.pop_front();
        }
        self.facts.push_back((after, cut(text, MAX_FACT_BYTES)));
    }

    /// The provider said when it will end.
    fn expires(&mut self, now: CallTime, after_ms: u64, policy: &SessionPolicy) {
        let left = |margin_ms: u32| now.plus_ms(after_ms.saturating_sub(u64::from(margin_ms)));
        self.renew_at = Some(left(policy.renew_before_ms));
        self.renew_by = Some(left(policy.renew_before_ms / 4));
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
        self.session.openings += 1;
        self.session.renew_at = None;
        self.session.renew_by = None;
        out.push(Command::Explain(Decision::SessionLost { reason }));
        self.work.session_lost();
        self.playback.forget_items();
        self.history.await_nothing();
        if self.turn.open_turn().is_some() && !self.turn.caller_is_speaking() {
            // Nobody will say that it has ended, and whoever heard it is gone: an answer is owed, if only a question.
            self.close_turn(TurnEndedBy::Timeout, out);
        }
        let unfinished: Vec<ResponseId> = self.responses.session_lost();
        for response in unfinished {
            self.response_lost(response, out);
        }
        out.push(Command::OpenModel);
    }

    /// Tells the model a fact now, or with the history of the session that is being opened.
    pub(crate) fn add_context(&mut self, text: String, out: &mut Vec<Command>) {
        self.session.keep_fact(self.history.count(), &text);
        if !self.session.reopening {
            out.push(Command::Model(ModelCommand::AddContext { text }));
        }
    }

    /// An output for the model's tool call was given: a session after this one knows neither.
    pub(crate) fn remember_output(&mut self, tool: &str, output: &str) {
        self.session.keep_fact(self.history.count(), &format!("The tool {tool} was called. Its output: {output}"));
    }

    /// What was said and done, as a new session is told it.
    fn restore_history(&self, out: &mut Vec<Command>) {
        let mut facts = self.session.facts.iter().peekable();
        let mut parts: Vec<(Speaker, &str)> = Vec::new();
        for (place, entry) in (self.history.first_kept()..).zip(self.history.entries()) {
            while let Some((_, text)) = facts.next_if(|(after, _)| *after <= place) {
                parts.push((Speaker::Application, text));
            }
            match entry {
                Entry::Caller { text: Some(text), .. } => parts.push((Speaker::Caller, text)),
                Entry::Agent { heard, .. } if !heard.is_empty() => parts.push((Speaker::Agent, heard)),
                Entry::Caller { text: None, .. } | Entry::Agent { .. } => {}
            }
        }
        parts.extend(facts.map(|(_, text)| (Speaker::Application, text.as_str())));
        parts.drain(..parts.len().saturating_sub(MAX_PARTS));
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
