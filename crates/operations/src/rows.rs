//! What a store must be able to do inside one transaction: get and put rows. No rule lives behind this trait.

use crate::attempt::{Attempt, Fence};
use crate::audit::AuditRow;
use crate::batch::Batch;
use crate::delivery::Delivery;
use crate::operation::Operation;
use crate::session::{SessionRecord, SessionState};
use crate::store::StoreError;
use std::future::Future;
use std::pin::Pin;
use vocab::{
    BatchId, CallSid, CallerId, DeliveryId, IntentKey, OperationId, ProviderCallId, ResponseId, SessionId, ToolName,
    WallTime,
};

pub type Row<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// How many operations of each kind there are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Load {
    /// Admitted or waiting for another try.
    pub waiting: u32,
    pub running: u32,
    pub unknown: u32,
}

/// Rows of one open transaction. Lists come in a fixed order, so that every store gives the same answer.
pub trait Rows: Send {
    fn session<'a>(&'a mut self, id: &'a SessionId) -> Row<'a, Option<SessionRecord>>;
    /// The one that has not ended; there is at most one.
    fn unfinished_session<'a>(&'a mut self, call: &'a CallSid) -> Row<'a, Option<SessionRecord>>;
    /// By id: the last one is the latest.
    fn sessions_of_call<'a>(&'a mut self, call: &'a CallSid) -> Row<'a, Vec<SessionRecord>>;
    /// By id.
    fn sessions_in(&mut self, state: SessionState) -> Row<'_, Vec<SessionRecord>>;
    /// By id.
    fn sessions_of_caller<'a>(&'a mut self, caller: &'a CallerId) -> Row<'a, Vec<SessionRecord>>;
    fn put_session<'a>(&'a mut self, session: &'a SessionRecord) -> Row<'a, ()>;

    fn operation<'a>(&'a mut self, id: &'a OperationId) -> Row<'a, Option<Operation>>;
    fn operation_by_key<'a>(&'a mut self, key: &'a IntentKey) -> Row<'a, Option<Operation>>;
    /// By id.
    fn operations_of_session<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<Operation>>;
    /// By id.
    fn operations_of_batch<'a>(&'a mut self, batch: &'a BatchId) -> Row<'a, Vec<Operation>>;
    /// Admitted or retryable ones of `tool` with `next_due_at <= now`, whose resource no other operation holds
    /// ([`Operation::holds_resource`]). By due time, then id.
    fn due_operations<'a>(&'a mut self, tool: &'a ToolName, now: WallTime, limit: u32) -> Row<'a, Vec<Operation>>;
    /// Unknown ones with `next_due_at <= now`. By due time, then id.
    fn due_look_ups(&mut self, now: WallTime, limit: u32) -> Row<'_, Vec<Operation>>;
    /// The first admitted or retryable one with `deadline_at <= now`. By deadline, then id.
    fn overdue_operation(&mut self, now: WallTime) -> Row<'_, Option<Operation>>;
    /// Running and unknown ones, by id: what a restart has to look at. Ids only, since settling one may change others.
    fn unsettled_operations(&mut self) -> Row<'_, Vec<OperationId>>;
    /// The first time after `now` at which one of the lists above may grow by itself.
    fn next_due(&mut self, now: WallTime) -> Row<'_, Option<WallTime>>;
    /// Waiting and running operations of one tool, or of all.
    fn load<'a>(&'a mut self, tool: Option<&'a ToolName>) -> Row<'a, Load>;
    fn put_operation<'a>(&'a mut self, operation: &'a Operation) -> Row<'a, ()>;

    fn attempt<'a>(&'a mut self, operation: &'a OperationId, fence: Fence) -> Row<'a, Option<Attempt>>;
    /// By fence.
    fn attempts<'a>(&'a mut self, operation: &'a OperationId) -> Row<'a, Vec<Attempt>>;
    fn put_attempt<'a>(&'a mut self, attempt: &'a Attempt) -> Row<'a, ()>;

    /// Many model calls may map to one operation. The first mapping of a call stays.
    fn put_provider_call<'a>(
        &'a mut self,
        session: &'a SessionId,
        call: &'a ProviderCallId,
        operation: &'a OperationId,
    ) -> Row<'a, ()>;
    /// By id of the call.
    fn provider_calls<'a>(&'a mut self, operation: &'a OperationId) -> Row<'a, Vec<ProviderCallId>>;

    fn batch<'a>(&'a mut self, id: &'a BatchId) -> Row<'a, Option<Batch>>;
    fn batch_of_response<'a>(
        &'a mut self,
        session: &'a SessionId,
        epoch: u32,
        response: ResponseId,
    ) -> Row<'a, Option<Batch>>;
    /// By id.
    fn open_batches<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<Batch>>;
    fn put_batch<'a>(&'a mut self, batch: &'a Batch) -> Row<'a, ()>;

    fn delivery<'a>(&'a mut self, id: &'a DeliveryId) -> Row<'a, Option<Delivery>>;
    /// Made by work of this session. By the time it became ready, then id.
    fn deliveries_of_session<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<Delivery>>;
    /// In a state that is not final. By the time it became ready, then id.
    fn open_deliveries_of_caller<'a>(&'a mut self, caller: &'a CallerId) -> Row<'a, Vec<Delivery>>;
    fn put_delivery<'a>(&'a mut self, delivery: &'a Delivery) -> Row<'a, ()>;

    /// `seq` is given by the store.
    fn append_audit<'a>(&'a mut self, row: &'a AuditRow) -> Row<'a, ()>;
    /// By `seq`.
    fn audit_of_session<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<AuditRow>>;
}
