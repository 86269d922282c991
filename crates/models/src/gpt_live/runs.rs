//! The backend's runs and their open calls, under the rule of the service: every call of the conversation is answered, then one
//! `response.create` runs the continuation; a part of a batch is refused (realtime-models.md, B6).
//!
//! Runs of several delegations interleave, and their events bear no name of their own: a run is found by its delegation.

use std::collections::VecDeque;
use vocab::model::ResponseEnd;
use vocab::{ModelResponseId, ResponseId};

/// Runs remembered; the oldest is forgotten first. One a turn and one for each batch of results is usual.
pub const RUNS_KEPT: usize = 32;
/// Calls of one run that are taken; a model that makes more is broken.
pub const CALLS_KEPT: usize = 64;
/// A run of which nothing was said for so long will not end any more, and must not hold back the others.
pub const RUN_PATIENCE_MS: u64 = 120_000;
/// Longest output that is kept for a run that has not ended.
const OUTPUT_BYTES: usize = crate::link::COMMAND_BYTES;
/// Outputs that are kept until a run has answered with them; the oldest is forgotten first.
pub const GIVEN_KEPT: usize = 16;
/// As much of each as the voice would be told.
const GIVEN_BYTES: usize = super::encode::TEXT_BYTES;
/// A create that is refused while nothing runs may have met a run of which we had not heard. Refused again, there is nothing that the
/// service would continue.
const REFUSALS: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Its calls are part of the conversation.
    Completed,
    /// Its calls were thrown away by the service, and outputs for them are refused.
    Void,
}

#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    /// Given before the run ended.
    early: Option<String>,
    is_answered: bool,
}

#[derive(Debug)]
struct Run {
    delegation: Option<String>,
    state: State,
    /// The response under which its calls were told.
    told_as: Option<ModelResponseId>,
    /// The request of ours that it continues.
    request: Option<ResponseId>,
    /// It took our results up before we asked, and no request of ours is tied to it.
    unasked: bool,
    /// Its answer has begun to exist.
    has_said: bool,
    calls: Vec<Call>,
    last_word_ms: u64,
}

/// What becomes of a tool output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It goes to the backend.
    Send,
    /// It goes when the run has ended, or another way.
    Kept,
    /// No run waits for it: it goes to the voice, as something to know.
    NoRun { tool: Option<String> },
    /// It was given already.
    Repeated,
}

/// A run that ended.
#[derive(Debug, Default)]
pub struct Ended {
    pub told_as: Option<ModelResponseId>,
    pub request: Option<ResponseId>,
    pub had_calls: bool,
    /// Outputs that were waiting for its end: call, tool, output.
    pub outputs: Vec<(String, String, String)>,
}

/// A call as it is told.
#[derive(Debug, PartialEq, Eq)]
pub struct NewCall {
    /// Whether the response of the run is new to the call.
    pub is_first: bool,
    pub response: ModelResponseId,
    pub request: Option<ResponseId>,
}

#[derive(Debug, Default)]
pub struct Runs {
    kept: VecDeque<Run>,
    /// Outputs went to the backend which no continuation has taken up.
    is_due: bool,
    /// `response.create` was sent for this request, and its run has not begun.
    awaited: Option<ResponseId>,
    /// In a row, with no run in between.
    refusals: u32,
    /// Tool and output of what the backend was given and has not answered with.
    given: VecDeque<(String, String)>,
    /// A run that nobody asked for has answered, and the voice has not begun to tell it.
    unasked_answer: bool,
}

/// How far the run has come that took our results up unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    Running,
    Answered,
}

impl Runs {
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether a run of this delegation is under way. Runs of one delegation follow one another.
    pub fn is_running_for(&mut self, delegation: Option<&str>) -> bool {
        self.running(delegation).is_some()
    }

    /// A run began. Returns the request that it continues.
    pub fn created(&mut self, delegation: Option<&str>, now_ms: u64) -> Option<ResponseId> {
        let continues = delegation.is_none()
            || self.kept.iter().any(|run| run.delegation.as_deref() == delegation && !run.calls.is_empty());
        let request = if continues { self.awaited.take() } else { None };
        self.refusals = 0;
        let unasked = continues && request.is_none() && self.is_due && !self.has_unanswered_calls();
        self.open(delegation, request, now_ms);
        if unasked && let Some(run) = self.kept.back_mut() {
            run.unasked = true;
            self.is_due = false;
        }
        request
    }

    /// The run that took our results up unasked is from now on the continuation that this request asks for.
    pub fn adopt_unasked(&mut self, request: ResponseId) -> Option<Unasked> {
        if let Some(run) = self.kept.iter_mut().find(|run| run.unasked && run.state == State::Running) {
            run.unasked = false;
            run.request = Some(request);
            return Some(if run.has_said { Unasked::Answered } else { Unasked::Running });
        }
        std::mem::take(&mut self.unasked_answer).then_some(Unasked::Answered)
    }

    /// A voice began: whatever was answered unasked is being told.
    pub fn voice_began(&mut self) {
        self.unasked_answer = false;
        for run in self.kept.iter_mut().filter(|run| run.has_said) {
            run.unasked = false;
        }
    }

    /// A complete call; `None` if it was told before or there are too many. `next` makes the response of a run.
    pub fn called(
        &mut self,
        delegation: Option<&str>,
        call: &str,
        name: &str,
        now_ms: u64,
        next: impl FnOnce() -> ModelResponseId,
    ) -> Option<NewCall> {
        if self.kept.iter().any(|run| run.calls.iter().any(|known| known.id == call)) {
            return None;
        }
        if self.running(delegation).is_none() {
            // Its beginning was lost.
            self.open(delegation, None, now_ms);
        }
        let run = self.running(delegation).filter(|run| run.calls.len() < CALLS_KEPT)?;
        run.last_word_ms = now_ms;
        run.calls.push(Call { id: call.to_owned(), name: name.to_owned(), early: None, is_answered: false });
        let is_first = run.told_as.is_none();
        let response = *run.told_as.get_or_insert_with(next);
        Some(NewCall { is_first, response, request: run.request })
    }

    /// The run said something else; returns the request that it continues.
    pub fn said(&mut self, delegation: Option<&str>, now_ms: u64) -> Option<ResponseId> {
        let run = self.running(delegation)?;
        run.last_word_ms = now_ms;
        run.has_said = true;
        run.request
    }

    /// The run ended. An end without a run is nothing.
    pub fn ended(&mut self, delegation: Option<&str>, end: &ResponseEnd) -> Option<Ended> {
        let run = self.running(delegation)?;
        let whole = *end == ResponseEnd::Completed;
        run.state = if whole { State::Completed } else { State::Void };
        let mut outputs = Vec::new();
        for call in &mut run.calls {
            if let Some(output) = call.early.take() {
                call.is_answered = true;
                outputs.push((call.id.clone(), call.name.clone(), output));
            }
        }
        let ended = Ended { told_as: run.told_as, request: run.request, had_calls: !run.calls.is_empty(), outputs };
        let unasked = std::mem::take(&mut run.unasked);
        let continued = ended.request.is_some() || unasked;
        if whole && continued {
            self.given.clear();
        }
        self.unasked_answer = whole && unasked && !ended.had_calls;
        if whole {
            for (_, tool, output) in &ended.outputs {
                self.give(tool, output);
            }
        }
        // What the continuation was given is in the conversation still: it can be run again.
        self.is_due |= (whole && !ended.outputs.is_empty()) || (!whole && continued);
        Some(ended)
    }

    fn give(&mut self, tool: &str, output: &str) {
        if self.given.len() >= GIVEN_KEPT {
            self.given.pop_front();
        }
        let end = super::encode::floor_char(output, GIVEN_BYTES);
        self.given.push_back((tool.to_owned(), output[..end].to_owned()));
    }

    /// Delegations of runs that will not end any more.
    pub fn given_up(&self, now_ms: u64) -> Option<Option<String>> {
        let stale = |run: &&Run| run.state == State::Running && now_ms >= run.last_word_ms + RUN_PATIENCE_MS;
        self.kept.iter().find(stale).map(|run| run.delegation.clone())
    }

    pub fn next_give_up_ms(&self) -> Option<u64> {
        let running = self.kept.iter().filter(|run| run.state == State::Running);
        running.map(|run| run.last_word_ms + RUN_PATIENCE_MS).min()
    }

    pub fn submit(&mut self, call: &str, output: &str) -> Submitted {
        let found = self.kept.iter_mut().rev().find_map(|run| {
            let state = run.state;
            run.calls.iter_mut().find(|known| known.id == call).map(|known| (state, known))
        });
        let Some((state, known)) = found else { return Submitted::NoRun { tool: None } };
        if known.is_answered || known.early.is_some() {
            return Submitted::Repeated;
        }
        match state {
            State::Running => {
                let end = super::encode::floor_char(output, OUTPUT_BYTES);
                known.early = Some(output[..end].to_owned());
                Submitted::Kept
            }
            State::Completed => {
                known.is_answered = true;
                let tool = known.name.clone();
                self.give(&tool, output);
                self.is_due = true;
                Submitted::Send
            }
            State::Void => {
                known.is_answered = true;
                Submitted::NoRun { tool: Some(known.name.clone()) }
            }
        }
    }

    /// Results wait for a continuation, and may be whole or not.
    pub const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether `response.create` would be taken now.
    pub fn may_continue(&self) -> bool {
        self.is_due
            && self.awaited.is_none()
            && self.kept.iter().all(|run| match run.state {
                State::Running => false,
                State::Completed => run.calls.iter().all(|call| call.is_answered),
                State::Void => true,
            })
    }

    /// Results of an open batch are missing which the backend has not to wait for itself.
    pub fn has_unanswered_calls(&self) -> bool {
        self.kept.iter().any(|run| {
            run.state != State::Void && run.calls.iter().any(|call| !call.is_answered && call.early.is_none())
        })
    }

    pub fn is_running(&self) -> bool {
        self.awaited.is_some() || self.kept.iter().any(|run| run.state == State::Running)
    }

    /// `response.create` was sent.
    pub const fn continued(&mut self, request: ResponseId) {
        self.is_due = false;
        self.awaited = Some(request);
    }

    /// `response.create` was refused: what waited waits on.
    pub fn refused(&mut self, request: ResponseId) {
        if self.awaited == Some(request) {
            self.awaited = None;
            self.is_due = true;
        }
        // A run that began while the create was on its way was not ours, though it takes up the same.
        if let Some(run) = self.kept.iter_mut().rev().find(|run| run.request == Some(request)) {
            run.request = None;
            match run.state {
                State::Running => run.unasked = true,
                State::Completed if run.calls.is_empty() => self.unasked_answer = true,
                State::Completed | State::Void => {}
            }
        }
    }

    /// A create was refused and nothing runs. When it is clear that nothing will be continued, what the backend was given is to be told
    /// another way.
    pub fn refused_for_nothing(&mut self) -> Vec<(String, String)> {
        self.refusals += 1;
        if self.refusals < REFUSALS {
            return Vec::new();
        }
        self.refusals = 0;
        self.is_due = false;
        self.given.drain(..).collect()
    }

    /// The continuation of one request is now that of another, which asked for the same.
    pub fn adopt(&mut self, before: ResponseId, after: Option<ResponseId>) {
        if self.awaited == Some(before) && after.is_some() {
            self.awaited = after;
        }
        for run in self.kept.iter_mut().filter(|run| run.request == Some(before)) {
            run.request = after;
        }
    }

    fn open(&mut self, delegation: Option<&str>, request: Option<ResponseId>, now_ms: u64) {
        if self.kept.len() >= RUNS_KEPT {
            // One whose calls are all answered is not missed.
            let done = self.kept.iter().position(|run| run.calls.iter().all(|call| call.is_answered));
            self.kept.remove(done.unwrap_or(0));
        }
        self.kept.push_back(Run {
            delegation: delegation.map(str::to_owned),
            state: State::Running,
            told_as: None,
            request,
            unasked: false,
            has_said: false,
            calls: Vec::new(),
            last_word_ms: now_ms,
        });
    }

    fn running(&mut self, delegation: Option<&str>) -> Option<&mut Run> {
        let is_it = |run: &&mut Run| run.state == State::Running && run.delegation.as_deref() == delegation;
        self.kept.iter_mut().rev().find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: ResponseEnd = ResponseEnd::Completed;

    fn failed() -> ResponseEnd {
        ResponseEnd::Failed { code: "server_error".into() }
    }

    fn with_calls(delegation: Option<&str>, calls: &[&str]) -> Runs {
        let mut runs = Runs::default();
        runs.created(delegation, 0);
        for call in calls {
            runs.called(delegation, call, "book", 0, || ModelResponseId(0)).expect("new");
        }
        runs
    }

    #[test]
    fn a_batch_is_continued_once_and_only_when_it_is_whole() {
        let mut runs = with_calls(Some("d1"), &["c1", "c2"]);
        assert_eq!(runs.submit("c1", "{}"), Submitted::Kept);
        assert!(!runs.may_continue());
        let ended = runs.ended(Some("d1"), &DONE).expect("it ran");
        assert_eq!(ended.outputs, [("c1".to_owned(), "book".to_owned(), "{}".to_owned())]);
        assert!(runs.is_due() && !runs.may_continue(), "c2 is open");
        assert_eq!(runs.submit("c2", "{}"), Submitted::Send);
        assert_eq!(runs.submit("c2", "{}"), Submitted::Repeated);
        assert!(runs.may_continue());
        runs.continued(ResponseId(5));
        assert!(!runs.may_continue() && !runs.is_due());
        assert_eq!(runs.created(Some("d1"), 0), Some(ResponseId(5)));
    }

    #[test]
    fn a_call_of_another_delegation_holds_the_batch_and_its_run_is_not_taken_for_the_continuation() {
        let mut runs = with_calls(Some("d1"), &["c1"]);
        runs.ended(Some("d1"), &DONE);
        runs.created(None, 0);
        assert_eq!(runs.submit("c1", "{}"), Submitted::Send);
        assert!(!runs.may_continue(), "a run without a delegation is under way");
        runs.ended(None, &DONE);
        runs.continued(ResponseId(5));
        assert_eq!(runs.created(Some("d2"), 0), None);
        assert_eq!(runs.created(Some("d1"), 0), Some(ResponseId(5)));
    }

    #[test]
    fn calls_of_a_failed_run_hold_nothing_and_their_outputs_go_another_way() {
        let mut runs = with_calls(None, &["c1"]);
        runs.ended(None, &failed());
        assert!(!runs.is_due());
        assert_eq!(runs.submit("c1", "{}"), Submitted::NoRun { tool: Some("book".into()) });
        assert_eq!(runs.submit("c9", "{}"), Submitted::NoRun { tool: None });
    }

    #[test]
    fn a_failed_continuation_can_be_run_again() {
        let mut runs = with_calls(None, &["c1"]);
        runs.ended(None, &DONE);
        runs.submit("c1", "{}");
        runs.continued(ResponseId(5));
        runs.created(None, 0);
        assert_eq!(runs.ended(None, &failed()).expect("it ran").request, Some(ResponseId(5)));
        assert!(runs.may_continue());
        runs.continued(ResponseId(6));
        runs.refused(ResponseId(6));
        assert!(runs.may_continue());
    }

    #[test]
    fn results_that_the_service_will_not_continue_with_are_told_another_way() {
        let mut runs = with_calls(None, &["c1"]);
        runs.ended(None, &DONE);
        runs.submit("c1", "{}");
        runs.continued(ResponseId(5));
        runs.created(None, 0);
        runs.ended(None, &failed());
        runs.continued(ResponseId(6));
        runs.refused(ResponseId(6));
        assert!(!runs.is_running() && runs.refused_for_nothing().is_empty() && runs.is_due());
        runs.continued(ResponseId(7));
        runs.refused(ResponseId(7));
        assert_eq!(runs.refused_for_nothing(), [("book".to_owned(), "{}".to_owned())]);
        assert!(!runs.is_due());
    }

    #[test]
    fn a_run_that_takes_results_up_unasked_is_the_one_that_is_asked_for_afterwards() {
        let mut runs = with_calls(Some("d1"), &["c1"]);
        runs.ended(Some("d1"), &DONE);
        assert_eq!(runs.adopt_unasked(ResponseId(5)), None);
        runs.submit("c1", "{}");
        runs.created(Some("d1"), 0);
        assert!(!runs.is_due(), "the service has them");
        assert_eq!(runs.adopt_unasked(ResponseId(5)), Some(Unasked::Running));
        assert_eq!(runs.ended(Some("d1"), &DONE).expect("it ran").request, Some(ResponseId(5)));
        assert_eq!(runs.adopt_unasked(ResponseId(6)), None);
    }

    #[test]
    fn an_unasked_answer_can_be_asked_for_until_the_voice_tells_it() {
        for begins in [false, true] {
            let mut runs = with_calls(None, &["c1"]);
            runs.ended(None, &DONE);
            runs.submit("c1", "{}");
            runs.created(None, 0);
            runs.ended(None, &DONE);
            if begins {
                runs.voice_began();
            }
            assert_eq!(runs.adopt_unasked(ResponseId(5)), (!begins).then_some(Unasked::Answered));
        }
    }

    #[test]
    fn a_run_that_is_never_ended_is_given_up() {
        let runs = with_calls(Some("d1"), &["c1"]);
        assert_eq!(runs.given_up(RUN_PATIENCE_MS - 1), None);
        assert_eq!(runs.given_up(RUN_PATIENCE_MS), Some(Some("d1".into())));
        assert_eq!(runs.next_give_up_ms(), Some(RUN_PATIENCE_MS));
    }
}
