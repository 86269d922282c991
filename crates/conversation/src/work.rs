//! The operation clock as the call sees it: what the model proposed, what was admitted, and what the model was told.
//! The durable truth is the executor's; this file only makes sure that every tool call gets exactly one output, and knows
//! when the calls of one response have all been answered. (behaviour.md 4)

use std::collections::BTreeMap;
use vocab::effect::OperationStatus;
use vocab::{CallTime, OperationId, ProviderCallId, ResponseId, ToolCallId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// The model waits for an output.
    Nothing,
    /// `accepted`, with the result to follow.
    Accepted,
    /// The outcome, or a refusal.
    Outcome,
}

#[derive(Clone, Debug)]
struct ToolCall {
    provider_call: ProviderCallId,
    tool: String,
    response: ResponseId,
    proposed_at: CallTime,
    /// Once admitted.
    operation: Option<OperationId>,
    /// It joined an operation that was there before: that one's batch will tell the outcome.
    attached: bool,
    inline_until: Option<CallTime>,
    told: Told,
    committed: bool,
    /// The session that proposed it is gone: an output would be refused, so the outcome is told as a fact.
    orphaned: bool,
    finished: bool,
    /// The delivery that tells its outcome has come.
    delivered: bool,
}

impl ToolCall {
    fn output(&self, text: String) -> Output {
        Output { provider_call: (!self.orphaned).then(|| self.provider_call.clone()), tool: self.tool.clone(), text }
    }

    fn output_by(&self) -> CallTime {
        self.inline_until.unwrap_or(self.proposed_at.plus_ms(ADMISSION_WAIT_MS))
    }
}

/// The calls of one response.
#[derive(Clone, Debug, Default)]
struct Group {
    calls: Vec<ToolCallId>,
    /// The response has ended: no more calls will join.
    sealed: bool,
    /// The delivery of its batch has come.
    delivered: bool,
    /// Until when the delivery is waited for before the answer is asked for without it.
    answer_by: Option<CallTime>,
}

/// An output for the model's tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// `None`: the session that made the call is gone.
    pub provider_call: Option<ProviderCallId>,
    pub tool: String,
    pub text: String,
}

/// The state of an operation that a call joined.
#[derive(Clone, Copy, Debug)]
pub struct SoFar<'a> {
    pub status: OperationStatus,
    pub result: Option<&'a str>,
    /// Details that stand though the call gave others, as JSON.
    pub stands: Option<&'a str>,
}

/// What a finished operation means for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Telling {
    /// The model still waits: this is the output.
    Output(Output),
    /// It was told `accepted`: this is a fact to add.
    Context(String),
}

/// A group whose calls all have an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answerable {
    pub response: ResponseId,
    /// Some call was accepted and its outcome is still to come.
    pub awaits_outcome: bool,
}

/// A drained batch's delivery comes in the same breath as the last result; this is for a disk that stalls.
const ANSWER_WAIT_MS: u64 = 2_000;
/// An admission takes milliseconds; after this long nothing waits for its word any more.
const ADMISSION_WAIT_MS: u64 = 2_000;
/// Tool calls remembered; a call of an hour has some dozens.
const KEPT_CALLS: usize = 256;

#[derive(Clone, Debug, Default)]
pub struct WorkClock {
    last: ToolCallId,
    calls: BTreeMap<ToolCallId, ToolCall>,
    groups: BTreeMap<ResponseId, Group>,
}

impl WorkClock {
    /// The model proposed a call.
    pub fn propose(
        &mut self,
        at: CallTime,
        response: ResponseId,
        provider_call: ProviderCallId,
        tool: String,
    ) -> ToolCallId {
        self.forget_the_oldest();
        self.last = self.last.next();
        let id = self.last;
        self.groups.entry(response).or_default().calls.push(id);
        self.calls.insert(
            id,
            ToolCall {
                provider_call,
                tool,
                response,
                proposed_at: at,
                operation: None,
                attached: false,
                inline_until: None,
                told: Told::Nothing,
                committed: false,
                orphaned: false,
                finished: false,
                delivered: false,
            },
        );
        id
    }

    /// A long call keeps only as many told calls as a late word about them can still matter for.
    fn forget_the_oldest(&mut self) {
        while self.calls.len() >= KEPT_CALLS {
            let told = |call: &ToolCall| {
                call.finished && call.told == Told::Outcome && !self.groups.contains_key(&call.response)
            };
            let Some(oldest) = self.calls.iter().find(|(_, call)| told(call)).map(|(id, _)| *id) else { return };
            self.calls.remove(&oldest);
        }
    }

    /// The model session is gone: no output can be given to its calls any more.
    pub fn session_lost(&mut self) {
        for call in self.calls.values_mut() {
            call.orphaned = true;
        }
    }

    /// The response that proposed calls has ended. Returns whether it had any.
    pub fn seal(&mut self, response: ResponseId) -> bool {
        match self.groups.get_mut(&response) {
            Some(group) => {
                group.sealed = true;
                true
            }
            None => false,
        }
    }

    pub fn admitted(&mut self, at: CallTime, call: ToolCallId, operation: OperationId, inline_wait_ms: u32) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.operation = Some(operation);
            call.inline_until = Some(at.plus_ms(u64::from(inline_wait_ms)));
        }
    }

    /// The call joined an operation that exists: its state is the answer.
    pub fn attached(
        &mut self,
        call: ToolCallId,
        operation: OperationId,
        SoFar { status, result, stands }: SoFar<'_>,
    ) -> Option<Output> {
        let call = self.calls.get_mut(&call)?;
        call.attached = true;
        // What can be told has been told, unknown too: nothing more need come of it.
        call.finished = status.is_terminal() || result.is_some();
        call.committed = status == OperationStatus::Committed;
        call.told = if call.finished { Told::Outcome } else { Told::Accepted };
        let again = match stands {
            None => "This request was already made; nothing was started again.".to_owned(),
            Some(stands) => format!(
                "This request was already made; nothing was started again. It stands with {stands}, and what this call gave \
                 instead was not taken: say so if it matters to the caller."
            ),
        };
        let text = outcome_text(&operation, status, result.unwrap_or_default(), Some(&again));
        call.operation = Some(operation);
        Some(call.output(text))
    }

    pub fn refused(&mut self, call: ToolCallId, code: &str, say: &str) -> Option<Output> {
        let call = self.calls.get_mut(&call)?;
        call.told = Told::Outcome;
        call.finished = true;
        let text = format!(
            r#"{{"status":"refused","code":{},"reason":{},"effect":"nothing was done"}}"#,
            serde_json::Value::from(code),
            serde_json::Value::from(say)
        );
        Some(call.output(text))
    }

    /// The operation can be told. One output for each call that still waits; one fact for all that were told `accepted`.
    pub fn finished(&mut self, operation: &OperationId, status: OperationStatus, result: &str) -> Vec<Telling> {
        let mut tellings = Vec::new();
        let mut context = None;
        for call in self.calls.values_mut().filter(|call| call.operation.as_ref() == Some(operation)) {
            call.finished = true;
            call.committed = status == OperationStatus::Committed;
            match call.told {
                Told::Nothing => {
                    call.told = Told::Outcome;
                    let text = outcome_text(operation, status, result, None);
                    tellings.push(Telling::Output(call.output(text)));
                }
                Told::Accepted => {
                    context = Some(format!(
                        "The operation {operation} ({}) that was accepted earlier is now {}: {result}. \
                         Do not mention it until you are asked to, or the caller asks.",
                        call.tool,
                        status.as_str()
                    ));
                }
                // Told again only when an unknown one was settled later.
                Told::Outcome => {
                    context = Some(format!(
                        "The operation {operation} ({}) turned out to be {}: {result}.",
                        call.tool,
                        status.as_str()
                    ));
                }
            }
        }
        tellings.extend(context.map(Telling::Context));
        tellings
    }

    pub fn inline_wait_ends(&self) -> Option<CallTime> {
        self.calls.values().filter(|call| call.told == Told::Nothing).filter_map(|call| call.inline_until).min()
    }

    /// Until when the output of some call is about to come, and an answer with it: news waits for that one. Bounded, since
    /// an admission that never speaks must not silence everything else.
    pub fn output_awaited_until(&self) -> Option<CallTime> {
        self.calls.values().filter(|call| call.told == Told::Nothing).map(ToolCall::output_by).max()
    }

    /// The next moment at which one call less is waited for.
    pub fn output_wait_ends(&self, now: CallTime) -> Option<CallTime> {
        let waiting = self.calls.values().filter(|call| call.told == Told::Nothing);
        waiting.map(ToolCall::output_by).filter(|by| *by > now).min()
    }

    /// Those whose wait for a direct answer is over are told `accepted`.
    pub fn accept_overdue(&mut self, at: CallTime) -> Vec<Output> {
        let mut outputs = Vec::new();
        for call in self.calls.values_mut() {
            let overdue = call.inline_until.is_some_and(|until| until <= at);
            if call.told != Told::Nothing || !overdue {
                continue;
            }
            let Some(operation) = &call.operation else { continue };
            call.told = Told::Accepted;
            let text = format!(
                r#"{{"status":"accepted","operation_id":"{operation}","note":"It is under way and not confirmed. Acknowledge in one short sentence without claiming success; the result will follow."}}"#
            );
            outputs.push(call.output(text));
        }
        outputs
    }

    /// The model has been given the outcome of all of them in this model session.
    pub fn has_told(&self, operations: &[OperationId]) -> bool {
        operations.iter().all(|operation| {
            let mut calls = self.calls.values().filter(|call| call.operation.as_ref() == Some(operation));
            calls.any(|call| call.finished)
        })
    }

    /// The delivery of a batch came: the answer to its calls may carry it.
    pub fn delivery_ready(&mut self, operations: &[OperationId]) {
        let told = |call: &&mut ToolCall| call.operation.as_ref().is_some_and(|known| operations.contains(known));
        for call in self.calls.values_mut().filter(told) {
            call.delivered = true;
            if let Some(group) = self.groups.get_mut(&call.response) {
                group.delivered = true;
            }
        }
    }

    /// The groups that an answer is owed for now. Starts the bounded wait for a delivery where one must be on its way.
    pub fn answerable(&mut self, at: CallTime) -> Vec<Answerable> {
        let (mut ready, mut overdue) = (Vec::new(), Vec::new());
        for (response, group) in &mut self.groups {
            let calls = || group.calls.iter().filter_map(|id| self.calls.get(id));
            if !group.sealed || calls().any(|call| call.told == Told::Nothing) {
                continue;
            }
            let awaits_outcome = calls().any(|call| call.told == Told::Accepted && !call.finished);
            let outcome_to_come = calls().any(|call| call.operation.is_some() && !call.attached);
            if outcome_to_come && !awaits_outcome && !group.delivered {
                let by = *group.answer_by.get_or_insert(at.plus_ms(ANSWER_WAIT_MS));
                if at < by {
                    continue;
                }
                // It will tell itself in another call; this one does not wait for it any longer.
                overdue.extend(&group.calls);
            }
            ready.push(Answerable { response: *response, awaits_outcome });
        }
        for call in overdue {
            if let Some(call) = self.calls.get_mut(&call) {
                call.delivered = true;
            }
        }
        ready
    }

    pub fn answer_wait_ends(&self) -> Option<CallTime> {
        self.groups.values().filter(|group| !group.delivered).filter_map(|group| group.answer_by).min()
    }

    /// A response answers these groups.
    pub fn answered(&mut self, response: ResponseId) -> bool {
        self.groups.remove(&response).is_some()
    }

    /// The response that was to answer the group failed: it is owed again.
    pub fn owe_again(&mut self, response: ResponseId) {
        let calls: Vec<_> =
            self.calls.iter().filter(|(_, call)| call.response == response).map(|(id, _)| *id).collect();
        if !calls.is_empty() {
            self.groups.insert(response, Group { calls, sealed: true, delivered: true, answer_by: None });
        }
    }

    /// Something that was asked for in this call is done.
    pub fn any_committed(&self) -> bool {
        self.calls.values().any(|call| call.committed)
    }

    /// Some operation of this call has not been told to its end.
    pub fn is_running(&self) -> bool {
        self.calls
            .values()
            .any(|call| !call.finished || (call.operation.is_some() && !call.attached && !call.delivered))
    }

    /// Some group waits for its outputs or its answer.
    pub fn owes_answer(&self) -> bool {
        !self.groups.is_empty()
    }
}

/// `again`: the call joined an operation that was there, in words.
fn outcome_text(operation: &OperationId, status: OperationStatus, result: &str, again: Option<&str>) -> String {
    let mut notes = Vec::from_iter(again);
    if status == OperationStatus::Unknown {
        notes.push("Not confirmed yet; say so and promise nothing.");
    }
    let note = match notes.is_empty() {
        true => String::new(),
        false => format!(r#","note":{}"#, serde_json::Value::from(notes.join(" "))),
    };
    // The executor's words, in quotes: an output that is no JSON would reach the model as noise.
    let result = serde_json::Value::from(result);
    format!(r#"{{"status":"{}","operation_id":"{operation}","result":{result}{note}}}"#, status.as_str())
}
