//! One admitted business intent: its record and its legal transitions.

use crate::attempt::{AttemptAnswer, Fence, LookUpAnswer};
use crate::contract::{DeliveryRule, RetryRule};
use crate::recovery::{AfterCrash, LostAnswer, after_crash, can_be_asked, lost_answer, may_change};
use crate::retry::{ReconcileRule, full_jitter_ms, next_attempt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use vocab::effect::{EffectClass, OperationStatus};
use vocab::{
    AgentId, BatchId, CallerId, IntentKey, OperationId, ProviderCallId, SessionId, ToolName, TurnId, WallTime,
};

/// Reasons of our own for an end without effect; any other is the last attempt's, in the words of its library.
pub(crate) const DEADLINE_PASSED: &str = "deadline passed";
pub(crate) const PROVEN_ABSENT: &str = "proven absent, and neither time nor budget is left";

/// What was promised at admission is kept here, so that a change of the configuration changes no promise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    pub id: OperationId,
    pub session: SessionId,
    pub caller: CallerId,
    /// Who proposed it.
    pub agent: AgentId,
    pub tool: ToolName,
    pub effect: EffectClass,
    pub batch: BatchId,
    pub turn: Option<TurnId>,
    /// The first model call that asked for it.
    pub provider_call: ProviderCallId,
    /// Unique over all operations; goes to the backend as the idempotency key.
    pub key: IntentKey,
    /// Hash over *all* arguments.
    pub fingerprint: String,
    /// Validated and normalised.
    pub arguments: Value,
    /// What it changes, if named: one mutation at a time.
    pub resource: Option<String>,
    pub status: OperationStatus,
    /// Why it stands where it stands, for people.
    pub reason: Option<String>,
    /// Rises with every change of the row.
    pub version: u32,
    pub fence: Fence,
    /// Requests that left.
    pub attempts: u32,
    pub retry: RetryRule,
    /// Some request's answer was lost and it may have taken effect. A later refusal or exhausted budget is then no
    /// proof that nothing happened (cases/tools.md, 65).
    pub may_have_acted: bool,
    /// Waiting: when it may be claimed. Unknown: when to ask next; `None` waits for a person.
    pub next_due_at: Option<WallTime>,
    /// No request leaves after it.
    pub deadline_at: WallTime,
    pub unknown_since: Option<WallTime>,
    /// Look-ups without an answer.
    pub look_ups: u32,
    /// The status that a delivery last told; `None` before the batch drained.
    pub told: Option<OperationStatus>,
    pub delivery: DeliveryRule,
    pub result: Option<Value>,
    pub provider_ref: Option<String>,
    /// The model's call reached us.
    pub tool_requested_at: WallTime,
    /// Durable from here on.
    pub action_admitted_at: WallTime,
    /// The system of record's word that it happened reached us. The effect itself is older by the way back.
    pub effect_committed_at: Option<WallTime>,
    /// A result that can be told was first recorded.
    pub result_observed_at: Option<WallTime>,
}

/// `from` may not become `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an operation that is {} cannot become {}", from.as_str(), to.as_str())]
pub struct IllegalTransition {
    pub from: OperationStatus,
    pub to: OperationStatus,
}

/// Why a write to an operation was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Dropped {
    /// It carries another fence than the row's, or the row is no longer in the state that the write belongs to.
    #[error("written under a stale fence")]
    Stale,
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
}

/// The transition table. Terminal states are absorbing; `Unknown` leaves only on evidence.
pub const fn may_become(from: OperationStatus, to: OperationStatus) -> bool {
    use OperationStatus as S;
    match from {
        S::Admitted => matches!(to, S::Running | S::FailedFinal | S::Cancelled),
        // Back to admitted only when the crash fell before the request left.
        S::Running => {
            matches!(to, S::Committed | S::FailedRetryable | S::FailedFinal | S::Unknown | S::Admitted | S::Cancelled)
        }
        S::FailedRetryable => matches!(to, S::Running | S::FailedFinal | S::Unknown | S::Cancelled),
        S::Unknown => matches!(to, S::Committed | S::FailedRetryable | S::FailedFinal),
        S::Committed | S::FailedFinal | S::Cancelled => false,
    }
}

/// What may be done when the *sent* mark is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendVerdict {
    /// The request may leave; its number, from 1.
    Send(u32),
    /// The deadline passed while it waited for a worker; the operation has been closed.
    TooLate,
}

impl Operation {
    fn become_status(&mut self, to: OperationStatus, reason: Option<String>) -> Result<(), IllegalTransition> {
        if !may_become(self.status, to) {
            return Err(IllegalTransition { from: self.status, to });
        }
        self.status = to;
        self.reason = reason;
        self.version += 1;
        Ok(())
    }

    /// Takes it for one request. The new fence shuts out whoever held it before.
    pub fn claim(&mut self) -> Result<Fence, IllegalTransition> {
        self.become_status(OperationStatus::Running, None)?;
        self.fence = self.fence.next();
        self.next_due_at = None;
        Ok(self.fence)
    }

    /// Takes an unknown one for a look-up. It stays unknown.
    pub fn claim_look_up(&mut self) -> Fence {
        self.fence = self.fence.next();
        self.next_due_at = None;
        self.version += 1;
        self.fence
    }

    /// The request is about to leave.
    pub fn mark_sent(&mut self, fence: Fence, now: WallTime) -> Result<SendVerdict, Dropped> {
        if fence != self.fence || self.status != OperationStatus::Running {
            return Err(Dropped::Stale);
        }
        if now >= self.deadline_at {
            self.give_up("deadline passed before the request left", now)?;
            return Ok(SendVerdict::TooLate);
        }
        self.attempts += 1;
        self.version += 1;
        Ok(SendVerdict::Send(self.attempts))
    }

    /// Records the answer to the request of this fence. `answered_at` is when it reached us, `random` is for the
    /// backoff.
    pub fn conclude(
        &mut self,
        fence: Fence,
        answer: &AttemptAnswer,
        answered_at: WallTime,
        now: WallTime,
        random: u32,
    ) -> Result<(), Dropped> {
        if fence != self.fence || self.status != OperationStatus::Running {
            return Err(Dropped::Stale);
        }
        match answer {
            AttemptAnswer::Committed { result, provider_ref } => {
                self.commit(result, provider_ref.as_ref(), answered_at, now)?
            }
            AttemptAnswer::Refused { result } => {
                if self.may_have_acted {
                    self.leave_unknown("refused after a lost answer", now)?;
                } else {
                    self.result = Some(result.clone());
                    self.fail("refused", now)?;
                }
            }
            AttemptAnswer::Retryable { reason } => self.try_again(reason, now, random)?,
            AttemptAnswer::Unclear { reason } => self.lose_answer(reason, now, random)?,
        }
        Ok(())
    }

    /// Records the system of record's answer to the look-up of this fence.
    pub fn conclude_look_up(
        &mut self,
        fence: Fence,
        answer: &LookUpAnswer,
        rule: &ReconcileRule,
        now: WallTime,
        random: u32,
    ) -> Result<(), Dropped> {
        if fence != self.fence || self.status != OperationStatus::Unknown {
            return Err(Dropped::Stale);
        }
        self.version += 1;
        match answer {
            LookUpAnswer::Found { result, provider_ref } => self.commit(result, provider_ref.as_ref(), now, now)?,
            LookUpAnswer::Absent => {
                let settled_at = self.unknown_since.unwrap_or(now).plus_ms(rule.settle_ms);
                if now < settled_at {
                    self.next_due_at = Some(settled_at);
                } else {
                    self.may_have_acted = false;
                    self.unknown_since = None;
                    if self.attempts < self.retry.max_attempts && now < self.deadline_at {
                        self.become_status(OperationStatus::FailedRetryable, Some("proven absent".into()))?;
                        self.next_due_at = Some(now);
                    } else {
                        self.fail(PROVEN_ABSENT, now)?;
                    }
                }
            }
            LookUpAnswer::Unanswered { .. } => {
                self.look_ups += 1;
                self.next_due_at = (self.look_ups < rule.max_look_ups).then(|| {
                    // At least the base: full jitter alone could ask in a tight circle.
                    now.plus_ms(rule.base_ms.max(full_jitter_ms(rule.base_ms, rule.cap_ms, self.look_ups, random)))
                });
            }
            LookUpAnswer::CannotAsk => self.next_due_at = None,
        }
        Ok(())
    }

    /// The process that ran it is gone. `sent`: the sent mark of the current fence is durable.
    pub fn recover(&mut self, sent: bool, now: WallTime) -> Result<(), Dropped> {
        match self.status {
            OperationStatus::Running => match after_crash(self.effect, sent) {
                AfterCrash::Admitted => {
                    if self.may_have_acted || self.attempts > 0 {
                        // An earlier request left; only this one did not. Back to where the claim found it.
                        self.become_status(OperationStatus::FailedRetryable, Some("process ended".into()))?;
                    } else {
                        self.become_status(OperationStatus::Admitted, Some("process ended".into()))?;
                    }
                    self.next_due_at = Some(now);
                }
                AfterCrash::Lost(_) => self.lose_answer("process ended", now, 0)?,
            },
            OperationStatus::Unknown => {
                self.look_ups = 0;
                self.next_due_at = can_be_asked(self.effect).then_some(now);
                self.version += 1;
            }
            OperationStatus::Admitted
            | OperationStatus::Committed
            | OperationStatus::FailedRetryable
            | OperationStatus::FailedFinal
            | OperationStatus::Cancelled => return Err(Dropped::Stale),
        }
        Ok(())
    }

    /// The deadline has passed while it waited: nothing more will be sent.
    pub fn expire(&mut self, now: WallTime) -> Result<(), IllegalTransition> {
        self.give_up(DEADLINE_PASSED, now)
    }

    /// Waiting to be claimed.
    pub const fn is_waiting(&self) -> bool {
        matches!(self.status, OperationStatus::Admitted | OperationStatus::FailedRetryable)
    }

    /// Nobody else may change its resource now: it runs, or some request of it may have changed it already. The SQL
    /// stores say the same in their claim query and in a unique index.
    pub const fn holds_resource(&self) -> bool {
        match self.status {
            OperationStatus::Running | OperationStatus::Unknown => true,
            OperationStatus::FailedRetryable => self.may_have_acted,
            OperationStatus::Admitted
            | OperationStatus::Committed
            | OperationStatus::FailedFinal
            | OperationStatus::Cancelled => false,
        }
    }

    fn commit(
        &mut self,
        result: &Value,
        provider_ref: Option<&String>,
        answered_at: WallTime,
        now: WallTime,
    ) -> Result<(), IllegalTransition> {
        self.become_status(OperationStatus::Committed, None)?;
        self.result = Some(result.clone());
        self.provider_ref = provider_ref.cloned();
        self.effect_committed_at = Some(answered_at);
        self.result_observed_at.get_or_insert(now);
        self.unknown_since = None;
        self.next_due_at = None;
        Ok(())
    }

    fn fail(&mut self, reason: &str, now: WallTime) -> Result<(), IllegalTransition> {
        self.become_status(OperationStatus::FailedFinal, Some(reason.into()))?;
        self.result_observed_at.get_or_insert(now);
        self.next_due_at = None;
        Ok(())
    }

    fn leave_unknown(&mut self, reason: &str, now: WallTime) -> Result<(), IllegalTransition> {
        self.become_status(OperationStatus::Unknown, Some(reason.into()))?;
        self.result_observed_at.get_or_insert(now);
        self.unknown_since = Some(now);
        self.look_ups = 0;
        // Asked at once: "found" is true at any time; only "absent" has to wait for the settle time.
        self.next_due_at = can_be_asked(self.effect).then_some(now);
        Ok(())
    }

    fn lose_answer(&mut self, reason: &str, now: WallTime, random: u32) -> Result<(), IllegalTransition> {
        self.may_have_acted |= may_change(self.effect);
        match lost_answer(self.effect) {
            LostAnswer::SendAgain => self.try_again(reason, now, random),
            LostAnswer::LeaveUnknown => self.leave_unknown(reason, now),
        }
    }

    fn try_again(&mut self, reason: &str, now: WallTime, random: u32) -> Result<(), IllegalTransition> {
        match next_attempt(&self.retry, self.attempts, self.deadline_at, now, random) {
            Some(due) => {
                self.become_status(OperationStatus::FailedRetryable, Some(reason.into()))?;
                self.next_due_at = Some(due);
                Ok(())
            }
            None => self.give_up(reason, now),
        }
    }

    fn give_up(&mut self, reason: &str, now: WallTime) -> Result<(), IllegalTransition> {
        if self.may_have_acted { self.leave_unknown(reason, now) } else { self.fail(reason, now) }
    }
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
