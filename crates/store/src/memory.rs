//! Everything in maps: the model that the SQL stores are measured against, and the store of tests and simulations.
//! Survives nothing.

use crate::verb::{Verb, store_by_verbs};
use operations::attempt::{Attempt, Fence};
use operations::audit::AuditRow;
use operations::rows::{Load, Row, Rows};
use operations::store::*;
use operations::{Batch, BatchState, Delivery, Operation, SessionRecord, SessionState};
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use vocab::effect::OperationStatus;
use vocab::{
    BatchId, CallSid, CallerId, DeliveryId, IntentKey, OperationId, ProviderCallId, ResponseId, SessionId, ToolName,
    WallTime,
};

/// Every row as it is now; to be looked at by simulations.
#[derive(Default)]
pub struct Tables {
    pub sessions: BTreeMap<SessionId, SessionRecord>,
    pub operations: BTreeMap<OperationId, Operation>,
    pub keys: BTreeMap<IntentKey, OperationId>,
    pub attempts: BTreeMap<(OperationId, Fence), Attempt>,
    pub provider_calls: BTreeMap<(SessionId, ProviderCallId), OperationId>,
    pub batches: BTreeMap<BatchId, Batch>,
    pub deliveries: BTreeMap<DeliveryId, Delivery>,
    pub audit: Vec<AuditRow>,
}

#[derive(Default)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at all rows between two verbs, without copying them.
    pub fn look<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<V: Verb>(&self, verb: V) -> StoreFuture<'_, V::Reply> {
        Box::pin(ready(self.run(&verb)))
    }

    fn read<V: Verb>(&self, verb: V) -> StoreFuture<'_, V::Reply> {
        self.write(verb)
    }

    /// Runs the verb to its end under the lock. Its rows are always there, so it never has to wait.
    fn run<V: Verb>(&self, verb: &V) -> Result<V::Reply, StoreError> {
        // Verbs do not panic; should one ever, the tables stay readable for whoever looks for the cause.
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows = MemoryRows { tables: &mut tables, undo: Vec::new() };
        let polled = verb.run(&mut rows).as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let reply = match polled {
            Poll::Ready(reply) => reply,
            Poll::Pending => Err(StoreError::Unavailable("a verb waited for something else than its rows".into())),
        };
        if reply.is_err() {
            let MemoryRows { tables, undo } = rows;
            for step in undo.into_iter().rev() {
                step(tables);
            }
        }
        reply
    }
}

store_by_verbs!(MemoryStore);

type Undo = Box<dyn FnOnce(&mut Tables) + Send>;

struct MemoryRows<'t> {
    tables: &'t mut Tables,
    undo: Vec<Undo>,
}

/// Puts a row and remembers what was there.
macro_rules! put {
    ($rows:ident, $table:ident, $key:expr, $row:expr) => {{
        let key = $key;
        let old = $rows.tables.$table.insert(key.clone(), $row);
        $rows.undo.push(Box::new(move |tables: &mut Tables| {
            match old {
                Some(old) => tables.$table.insert(key, old),
                None => tables.$table.remove(&key),
            };
        }));
    }};
}

fn done<'a, T: Send + 'a>(value: T) -> Row<'a, T> {
    Box::pin(ready(Ok(value)))
}

impl MemoryRows<'_> {
    fn operations_where(&self, keep: impl Fn(&Operation) -> bool) -> Vec<Operation> {
        self.tables.operations.values().filter(|operation| keep(operation)).cloned().collect()
    }

    fn deliveries_where(&self, keep: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let mut found: Vec<Delivery> = self.tables.deliveries.values().filter(|d| keep(d)).cloned().collect();
        found.sort_by(|a, b| (a.became_ready_at, &a.id).cmp(&(b.became_ready_at, &b.id)));
        found
    }
}

fn first_due(mut found: Vec<Operation>, limit: u32) -> Vec<Operation> {
    found.sort_by(|a, b| (a.next_due_at, &a.id).cmp(&(b.next_due_at, &b.id)));
    found.truncate(limit as usize);
    found
}

impl Rows for MemoryRows<'_> {
    fn session<'a>(&'a mut self, id: &'a SessionId) -> Row<'a, Option<SessionRecord>> {
        done(self.tables.sessions.get(id).cloned())
    }
    fn unfinished_session<'a>(&'a mut self, call: &'a CallSid) -> Row<'a, Option<SessionRecord>> {
        let found = self.tables.sessions.values().find(|s| s.call_sid == *call && s.state != SessionState::Ended);
        done(found.cloned())
    }
    fn sessions_of_call<'a>(&'a mut self, call: &'a CallSid) -> Row<'a, Vec<SessionRecord>> {
        done(self.tables.sessions.values().filter(|s| s.call_sid == *call).cloned().collect())
    }
    fn sessions_in(&mut self, state: SessionState) -> Row<'_, Vec<SessionRecord>> {
        done(self.tables.sessions.values().filter(|s| s.state == state).cloned().collect())
    }
    fn sessions_of_caller<'a>(&'a mut self, caller: &'a CallerId) -> Row<'a, Vec<SessionRecord>> {
        done(self.tables.sessions.values().filter(|s| s.caller == *caller).cloned().collect())
    }
    fn put_session<'a>(&'a mut self, session: &'a SessionRecord) -> Row<'a, ()> {
        put!(self, sessions, session.id.clone(), session.clone());
        done(())
    }

    fn operation<'a>(&'a mut self, id: &'a OperationId) -> Row<'a, Option<Operation>> {
        done(self.tables.operations.get(id).cloned())
    }
    fn operation_by_key<'a>(&'a mut self, key: &'a IntentKey) -> Row<'a, Option<Operation>> {
        let id = self.tables.keys.get(key);
        done(id.and_then(|id| self.tables.operations.get(id)).cloned())
    }
    fn operations_of_session<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<Operation>> {
        done(self.operations_where(|operation| operation.session == *session))
    }
    fn operations_of_batch<'a>(&'a mut self, batch: &'a BatchId) -> Row<'a, Vec<Operation>> {
        done(self.operations_where(|operation| operation.batch == *batch))
    }
    fn due_operations<'a>(&'a mut self, tool: &'a ToolName, now: WallTime, limit: u32) -> Row<'a, Vec<Operation>> {
        let held = |one: &Operation| {
            one.resource.is_some()
                && self
                    .tables
                    .operations
                    .values()
                    .any(|other| other.id != one.id && other.resource == one.resource && other.holds_resource())
        };
        let found = self.operations_where(|operation| {
            operation.tool == *tool
                && operation.is_waiting()
                && operation.next_due_at.is_some_and(|due| due <= now)
                && !held(operation)
        });
        done(first_due(found, limit))
    }
    fn due_look_ups(&mut self, now: WallTime, limit: u32) -> Row<'_, Vec<Operation>> {
        let found = self.operations_where(|operation| {
            operation.status == OperationStatus::Unknown && operation.next_due_at.is_some_and(|due| due <= now)
        });
        done(first_due(found, limit))
    }
    fn overdue_operation(&mut self, now: WallTime) -> Row<'_, Option<Operation>> {
        let overdue = |operation: &&Operation| operation.is_waiting() && operation.deadline_at <= now;
        let found = self.tables.operations.values().filter(overdue);
        done(found.min_by(|a, b| (a.deadline_at, &a.id).cmp(&(b.deadline_at, &b.id))).cloned())
    }
    fn unsettled_operations(&mut self) -> Row<'_, Vec<OperationId>> {
        let unsettled =
            |operation: &&Operation| matches!(operation.status, OperationStatus::Running | OperationStatus::Unknown);
        done(self.tables.operations.values().filter(unsettled).map(|operation| operation.id.clone()).collect())
    }
    fn next_due(&mut self, now: WallTime) -> Row<'_, Option<WallTime>> {
        let mut next: Option<WallTime> = None;
        for operation in self.tables.operations.values() {
            let due = match operation.status {
                OperationStatus::Unknown => [operation.next_due_at, None],
                OperationStatus::Admitted | OperationStatus::FailedRetryable => {
                    [operation.next_due_at, Some(operation.deadline_at)]
                }
                OperationStatus::Running
                | OperationStatus::Committed
                | OperationStatus::FailedFinal
                | OperationStatus::Cancelled => [None, None],
            };
            for at in due.into_iter().flatten().filter(|at| *at > now) {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        done(next)
    }
    fn load<'a>(&'a mut self, tool: Option<&'a ToolName>) -> Row<'a, Load> {
        let mut load = Load::default();
        for operation in self.tables.operations.values().filter(|o| tool.is_none_or(|tool| o.tool == *tool)) {
            match operation.status {
                OperationStatus::Admitted | OperationStatus::FailedRetryable => load.waiting += 1,
                OperationStatus::Running => load.running += 1,
                OperationStatus::Unknown => load.unknown += 1,
                OperationStatus::Committed | OperationStatus::FailedFinal | OperationStatus::Cancelled => {}
            }
        }
        done(load)
    }
    fn put_operation<'a>(&'a mut self, operation: &'a Operation) -> Row<'a, ()> {
        if self.tables.operations.get(&operation.id).is_some_and(|there| there.key != operation.key) {
            let taken = StoreError::Corrupt(format!("{} is the id of another intent", operation.id));
            return Box::pin(ready(Err(taken)));
        }
        put!(self, keys, operation.key.clone(), operation.id.clone());
        put!(self, operations, operation.id.clone(), operation.clone());
        done(())
    }

    fn attempt<'a>(&'a mut self, operation: &'a OperationId, fence: Fence) -> Row<'a, Option<Attempt>> {
        done(self.tables.attempts.get(&(operation.clone(), fence)).cloned())
    }
    fn attempts<'a>(&'a mut self, operation: &'a OperationId) -> Row<'a, Vec<Attempt>> {
        done(self.tables.attempts.values().filter(|attempt| attempt.operation == *operation).cloned().collect())
    }
    fn put_attempt<'a>(&'a mut self, attempt: &'a Attempt) -> Row<'a, ()> {
        put!(self, attempts, (attempt.operation.clone(), attempt.fence), attempt.clone());
        done(())
    }

    fn put_provider_call<'a>(
        &'a mut self,
        session: &'a SessionId,
        call: &'a ProviderCallId,
        operation: &'a OperationId,
    ) -> Row<'a, ()> {
        let key = (session.clone(), call.clone());
        if !self.tables.provider_calls.contains_key(&key) {
            put!(self, provider_calls, key, operation.clone());
        }
        done(())
    }
    fn provider_calls<'a>(&'a mut self, operation: &'a OperationId) -> Row<'a, Vec<ProviderCallId>> {
        let mut calls: Vec<ProviderCallId> = self
            .tables
            .provider_calls
            .iter()
            .filter(|(_, of)| *of == operation)
            .map(|((_, call), _)| call.clone())
            .collect();
        calls.sort();
        done(calls)
    }

    fn batch<'a>(&'a mut self, id: &'a BatchId) -> Row<'a, Option<Batch>> {
        done(self.tables.batches.get(id).cloned())
    }
    fn batch_of_response<'a>(
        &'a mut self,
        session: &'a SessionId,
        epoch: u32,
        response: ResponseId,
    ) -> Row<'a, Option<Batch>> {
        let found = self
            .tables
            .batches
            .values()
            .find(|b| b.session == *session && b.session_epoch == epoch && b.response == response);
        done(found.cloned())
    }
    fn open_batches<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<Batch>> {
        let found = self.tables.batches.values().filter(|b| b.session == *session && b.state == BatchState::Open);
        done(found.cloned().collect())
    }
    fn put_batch<'a>(&'a mut self, batch: &'a Batch) -> Row<'a, ()> {
        put!(self, batches, batch.id.clone(), batch.clone());
        done(())
    }

    fn delivery<'a>(&'a mut self, id: &'a DeliveryId) -> Row<'a, Option<Delivery>> {
        done(self.tables.deliveries.get(id).cloned())
    }
    fn deliveries_of_session<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<Delivery>> {
        done(self.deliveries_where(|delivery| delivery.session == *session))
    }
    fn open_deliveries_of_caller<'a>(&'a mut self, caller: &'a CallerId) -> Row<'a, Vec<Delivery>> {
        done(self.deliveries_where(|delivery| delivery.caller == *caller && !delivery.state.is_final()))
    }
    fn put_delivery<'a>(&'a mut self, delivery: &'a Delivery) -> Row<'a, ()> {
        put!(self, deliveries, delivery.id.clone(), delivery.clone());
        done(())
    }

    fn append_audit<'a>(&'a mut self, row: &'a AuditRow) -> Row<'a, ()> {
        let seq = self.tables.audit.len() as i64 + 1;
        self.tables.audit.push(AuditRow { seq, ..row.clone() });
        self.undo.push(Box::new(|tables: &mut Tables| {
            tables.audit.pop();
        }));
        done(())
    }
    fn audit_of_session<'a>(&'a mut self, session: &'a SessionId) -> Row<'a, Vec<AuditRow>> {
        done(self.tables.audit.iter().filter(|row| row.session.as_ref() == Some(session)).cloned().collect())
    }
}
