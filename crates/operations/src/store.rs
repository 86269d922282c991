//! The store as the executor sees it: one verb is one transaction, and the reply comes after the commit.
//!
//! A verb whose future is dropped is still carried out or not at all, never half. Every verb takes its time and ids as
//! arguments. A store that cannot answer says whether trying again may help; it never guesses.

use crate::admission::{CheckedProposal, RefusalReason};
use crate::attempt::{Attempt, AttemptAnswer, Fence, LookUpAnswer};
use crate::delivery::Delivery;
use crate::history::{History, Scope};
use crate::operation::{IllegalTransition, Operation};
use crate::retry::ReconcileRule;
use crate::rows::Load;
use crate::session::{SessionEnd, SessionRecord};
use std::future::Future;
use std::pin::Pin;
use thiserror::Error;
use vocab::delivery::DeliveryChange;
use vocab::{
    AgentId, BatchId, CallSid, CallerId, DeliveryId, OperationId, ProviderCallId, ResponseId, SessionId, StreamSid,
    ToolName, TurnId, WallTime,
};

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Its queue stayed full for too long; nothing was done. Trying again may help.
    #[error("the store is overloaded")]
    Overloaded,
    /// The disk or database did not do it. For a write: it may help to try again, since every verb is safe to repeat
    /// under the same fence and ids.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A row does not say what it must say. Trying again does not help.
    #[error("a stored row makes no sense: {0}")]
    Corrupt(String),
    /// A rule of ours was about to be broken; nothing was done.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// It has been closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Overloaded | Self::Unavailable(_) => true,
            Self::Corrupt(_) | Self::Illegal(_) | Self::Closed => false,
        }
    }
}

/// A stream starts: take up the unfinished session of its call, or begin `fresh`.
#[derive(Clone, Debug)]
pub struct OpenSession {
    pub fresh: SessionId,
    pub call_sid: CallSid,
    pub stream_sid: StreamSid,
    pub caller: CallerId,
    pub caller_verified: bool,
    pub agent: AgentId,
    pub now: WallTime,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OpenedSession {
    pub session: SessionRecord,
    pub resumed: bool,
    /// Ready or uncertain, now held by this session; oldest first.
    pub deliveries: Vec<Delivery>,
}

/// A stream lets go. Batches that it left open are sealed; what it left on offer becomes uncertain.
#[derive(Clone, Debug)]
pub struct CloseSession {
    pub session: SessionId,
    pub epoch: u32,
    pub end: SessionEnd,
    pub now: WallTime,
}

/// The carrier says that the call is over: no stream will take its session up again. What a stream of it still writes is
/// refused, so its stream should have let go before.
#[derive(Clone, Debug)]
pub struct EndCall {
    pub call_sid: CallSid,
    /// Only if no stream came after the one that had this epoch.
    pub unless_after: Option<u32>,
    pub now: WallTime,
}

#[derive(Clone, Debug)]
pub struct Admit {
    pub session: SessionId,
    pub epoch: u32,
    pub caller: CallerId,
    pub agent: AgentId,
    pub provider_call: ProviderCallId,
    pub turn: Option<TurnId>,
    pub response: ResponseId,
    pub checked: CheckedProposal,
    /// Used if it is a new intent.
    pub operation: OperationId,
    /// Used if it is the first of its response.
    pub batch: BatchId,
    pub requested_at: WallTime,
    pub now: WallTime,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    Created(Operation),
    /// The same intent was there; no second effect was started. Details that do not define it may differ: see
    /// [`crate::intent::standing_details`].
    Attached(Operation),
    Refused(RefusalReason),
}

#[derive(Clone, Debug)]
pub struct SealBatch {
    pub session: SessionId,
    pub epoch: u32,
    pub response: ResponseId,
    pub now: WallTime,
}

#[derive(Clone, Debug)]
pub struct SaveDelivery {
    pub session: SessionId,
    pub epoch: u32,
    pub delivery: DeliveryId,
    pub change: DeliveryChange,
    pub now: WallTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SavedDelivery {
    Saved,
    /// Nothing was changed.
    Refused {
        reason: String,
    },
}

/// Take work: up to `free` requests of each tool, `limit` of all tools, and `look_ups` questions.
#[derive(Clone, Debug)]
pub struct Claim {
    pub free: Vec<(ToolName, u32)>,
    pub limit: u32,
    pub look_ups: u32,
    pub now: WallTime,
}

#[derive(Clone, Debug, PartialEq, Default)]
pub struct Claimed {
    /// Running now, each under its own new fence.
    pub requests: Vec<Operation>,
    /// Still unknown, each under its own new fence.
    pub look_ups: Vec<Operation>,
    /// Closed because their deadline passed while they waited.
    pub expired: Vec<Settled>,
    /// When to claim again, if nothing else happens before.
    pub next_due: Option<WallTime>,
    pub load: Load,
}

#[derive(Clone, Debug)]
pub struct MarkSent {
    pub operation: OperationId,
    pub fence: Fence,
    pub now: WallTime,
}

#[derive(Clone, Debug, PartialEq)]
pub enum MarkedSent {
    /// Durable: the request may leave. Its number, from 1.
    Send(u32),
    /// Too late; the operation was closed instead.
    TooLate(Box<Settled>),
    /// Somebody else holds the operation.
    Stale,
}

#[derive(Clone, Debug)]
pub struct FinishAttempt {
    pub operation: OperationId,
    pub fence: Fence,
    pub answer: AttemptAnswer,
    /// When the answer reached us.
    pub answered_at: WallTime,
    pub now: WallTime,
    /// Uniform over all of `u32`, for the backoff.
    pub random: u32,
}

#[derive(Clone, Debug)]
pub struct FinishLookUp {
    pub operation: OperationId,
    pub fence: Fence,
    pub answer: LookUpAnswer,
    pub rule: ReconcileRule,
    pub now: WallTime,
    pub random: u32,
}

/// An operation after a write, and what its batch made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    pub operation: Operation,
    /// Created in the same transaction.
    pub delivery: Option<Delivery>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Finished {
    Recorded(Box<Settled>),
    /// A late write of an old fence: nothing was changed.
    Stale,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// Sessions that were live in the dead process; the same call may resume them.
    pub sessions_lost: u32,
    /// Running, but nothing had left: waiting again.
    pub readmitted: u32,
    /// A request had left and may be repeated.
    pub to_retry: u32,
    /// A request had left and nobody knows; look-ups are scheduled where the backend can be asked.
    pub unknown: u32,
    /// On offer when the process ended.
    pub deliveries_uncertain: u32,
    /// Created because sealing the dead sessions' batches drained them.
    pub deliveries_created: u32,
}

/// What a session may have missed.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Missed {
    /// Every operation of the session that can be told.
    pub operations: Vec<Operation>,
    /// Every ready or uncertain delivery that it holds.
    pub deliveries: Vec<Delivery>,
}

pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

pub trait Store: Send + Sync {
    fn open_session(&self, verb: OpenSession) -> StoreFuture<'_, OpenedSession>;
    /// The deliveries that sealing created. Nothing happens under a stale epoch.
    fn close_session(&self, verb: CloseSession) -> StoreFuture<'_, Vec<Delivery>>;
    /// Closes the session of a call that its streams have left. The deliveries that sealing created; nothing happens when
    /// there is no unfinished session.
    fn end_call(&self, verb: EndCall) -> StoreFuture<'_, Vec<Delivery>>;
    fn admit(&self, verb: Admit) -> StoreFuture<'_, Admission>;
    /// The delivery, if this drained the batch.
    fn seal_batch(&self, verb: SealBatch) -> StoreFuture<'_, Option<Delivery>>;
    fn save_delivery(&self, verb: SaveDelivery) -> StoreFuture<'_, SavedDelivery>;
    fn claim(&self, verb: Claim) -> StoreFuture<'_, Claimed>;
    fn mark_sent(&self, verb: MarkSent) -> StoreFuture<'_, MarkedSent>;
    /// Outcome, attempt, batch, delivery and audit rows in one transaction.
    fn finish_attempt(&self, verb: FinishAttempt) -> StoreFuture<'_, Finished>;
    fn finish_look_up(&self, verb: FinishLookUp) -> StoreFuture<'_, Finished>;
    /// Once, before anything else, by the only process that uses the store.
    fn recover(&self, now: WallTime) -> StoreFuture<'_, RecoveryReport>;

    fn history(&self, scope: Scope) -> StoreFuture<'_, History>;
    fn missed(&self, session: SessionId) -> StoreFuture<'_, Missed>;
    fn attempts(&self, operation: OperationId) -> StoreFuture<'_, Vec<Attempt>>;
    fn load(&self) -> StoreFuture<'_, Load>;
}
