//! What must be true of the store and the backend after every write, whoever wrote: durability.md 6(e), and that everything
//! comes to an end.

use super::backend::Backend;
use super::process::{Reply, Verb};
use super::queue::Micros;
use operations::admission::CheckedProposal;
use operations::attempt::{AttemptEnd, AttemptKind};
use operations::audit::AuditKind;
use operations::batch::can_be_told;
use operations::delivery::DeliveryKind;
use operations::operation::may_become;
use operations::store::{Admission, Admit, Finished, MarkedSent, SavedDelivery, StoreError};
use operations::{BatchState, Operation};
use std::collections::{BTreeMap, BTreeSet};
use store::MemoryStore;
use store::memory::Tables;
use vocab::delivery::DeliveryState;
use vocab::effect::{EffectClass, OperationStatus};
use vocab::{DeliveryId, OperationId, SessionId};

type Broken = Option<(&'static str, String)>;

#[derive(Default)]
pub struct Checks {
    operations: BTreeMap<OperationId, Operation>,
    /// State by the audit rows alone.
    audited: BTreeMap<OperationId, OperationStatus>,
    audited_deliveries: BTreeMap<DeliveryId, String>,
    deliveries: BTreeMap<DeliveryId, (DeliveryState, u32, Micros)>,
    audit_seen: usize,
    /// Outcomes that were truly heard from their first to their last sample, as news.
    told: BTreeSet<(OperationId, String)>,
}

impl Checks {
    /// Changes with every change of any row that a verb may write.
    pub fn revision(&self, store: &MemoryStore) -> u64 {
        store.look(revision)
    }

    /// When it became ready, by the world's clock.
    pub fn ready_at(&self, delivery: &DeliveryId) -> Micros {
        self.deliveries.get(delivery).map_or(0, |known| known.2)
    }

    pub fn after_verb(
        &mut self,
        store: &MemoryStore,
        backend: &Backend,
        verb: &Verb,
        reply: &Result<Reply, StoreError>,
        before: u64,
        now: Micros,
    ) -> Broken {
        store.look(|tables| {
            let refused = match reply {
                Err(_)
                | Ok(Reply::MarkedSent(MarkedSent::Stale))
                | Ok(Reply::Finished(Finished::Stale))
                | Ok(Reply::Saved(SavedDelivery::Refused { .. }))
                | Ok(Reply::Admission(Admission::Refused(_))) => true,
                Ok(_) => false,
            };
            let after = revision(tables);
            if after == before {
                return None;
            }
            if refused {
                return Some(("6e.6", format!("a write that was refused changed rows: {verb:?}")));
            }
            if let (Verb::Admit(ask), Ok(Reply::Admission(Admission::Attached(there)))) = (verb, reply)
                && !same_intent(there, ask)
            {
                return Some(("6e.5", format!("attached to {}, another intent", there.id)));
            }
            self.audit(tables)
                .or_else(|| queue(tables, reply))
                .or_else(|| self.operations(tables, backend, verb))
                .or_else(|| self.deliveries(tables, now))
                .or_else(|| batches(tables))
        })
    }

    /// Only legal moves, each from where the one before ended; unknown leaves on evidence only.
    fn audit(&mut self, tables: &Tables) -> Broken {
        for row in &tables.audit[self.audit_seen..] {
            if let (AuditKind::OperationMoved, Some(id)) = (row.kind, &row.operation) {
                let before = self.audited.get(id).copied();
                let to = tables.operations.get(id).map(|_| row.to.as_deref().unwrap_or_default())?;
                let Some(to) = status_of(to) else { return Some(("6e.3", format!("{id}: audit names no status"))) };
                if row.from.as_deref() != before.map(OperationStatus::as_str) {
                    return Some(("6e.3", format!("{id}: audit says from {:?}, it was {before:?}", row.from)));
                }
                if let Some(before) = before
                    && !may_become(before, to)
                {
                    return Some(("6e.3", format!("{id} went from {} to {}", before.as_str(), to.as_str())));
                }
                if before == Some(OperationStatus::Unknown) && to != OperationStatus::Committed {
                    let proven = tables.attempts.iter().any(|((of, _), attempt)| {
                        of == id && attempt.kind == AttemptKind::Reconcile && attempt.end == Some(AttemptEnd::Rejected)
                    });
                    if !proven {
                        return Some(("6e.4", format!("{id} left unknown for {} without proof", to.as_str())));
                    }
                }
                self.audited.insert(id.clone(), to);
            }
            if let (AuditKind::DeliveryMoved, Some(id), Some(to)) = (row.kind, &row.delivery, &row.to) {
                let before = self.audited_deliveries.insert(id.clone(), to.clone());
                if before != row.from {
                    return Some(("6e.3", format!("{id}: audit says from {:?}, it was {before:?}", row.from)));
                }
            }
        }
        self.audit_seen = tables.audit.len();
        None
    }

    fn operations(&mut self, tables: &Tables, backend: &Backend, verb: &Verb) -> Broken {
        let mut running: BTreeMap<&str, u32> = BTreeMap::new();
        for (id, row) in &tables.operations {
            *running.entry(row.tool.as_str()).or_default() += u32::from(row.status == OperationStatus::Running);
            let known = self.operations.get(id);
            if known == Some(row) {
                continue;
            }
            if let Some(known) = known {
                if row.version <= known.version {
                    return Some(("6e.3", format!("{id} changed and its version did not rise")));
                }
                if (row.key != known.key) || (row.arguments != known.arguments) || (row.session != known.session) {
                    return Some(("6e.3", format!("{id} became another operation")));
                }
                let by_executor = matches!(
                    verb,
                    Verb::Recover | Verb::Claim(_) | Verb::MarkSent(_) | Verb::Finish(_) | Verb::FinishLookUp(_)
                );
                if row.status != known.status && !by_executor {
                    return Some(("R5", format!("{id} moved to {} by {verb:?}", row.status.as_str())));
                }
            }
            if self.audited.get(id) != Some(&row.status) {
                return Some(("6e.3", format!("{id} is {} and its audit says otherwise", row.status.as_str())));
            }
            if row.attempts > row.retry.max_attempts {
                return Some(("6e.7", format!("{id}: {} requests of {}", row.attempts, row.retry.max_attempts)));
            }
            let effects = backend.effects(&row.key);
            match row.status {
                OperationStatus::Committed if effects == 0 => {
                    return Some(("R1", format!("{id} is committed and nothing happened")));
                }
                OperationStatus::FailedFinal if effects > 0 && row.effect != EffectClass::Read => {
                    return Some(("R2", format!("{id} is told as failed, and it happened")));
                }
                OperationStatus::Cancelled => return Some(("R12", format!("{id} was cancelled; nothing can cancel"))),
                _ => {}
            }
            let twin = tables.operations.values().find(|other| {
                other.id != *id
                    && is_in_force(other)
                    && is_in_force(row)
                    && other.session == row.session
                    && other.tool == row.tool
                    && other.arguments == row.arguments
            });
            if let Some(twin) = twin {
                return Some(("R2", format!("{id} and {} are the same intent, both in force", twin.id)));
            }
            self.operations.insert(id.clone(), row.clone());
        }
        let contracts = super::catalog().contracts();
        for contract in contracts {
            if running.get(contract.name.as_str()).copied().unwrap_or(0) > contract.max_running {
                return Some(("6e.7", format!("more than {} of {} run", contract.max_running, contract.name)));
            }
        }
        if self.operations.len() > tables.operations.len() {
            return Some(("R8", "an operation is gone".into()));
        }
        None
    }

    fn deliveries(&mut self, tables: &Tables, now: Micros) -> Broken {
        for (id, row) in &tables.deliveries {
            match self.deliveries.get(id).copied() {
                None => {
                    let first = tables.batches.get(&row.batch).is_some_and(|batch| batch.deliveries == 1);
                    let at_work = tables
                        .operations
                        .values()
                        .find(|member| member.batch == row.batch && !can_be_told(member.status))
                        .filter(|_| first);
                    if let Some(member) = at_work {
                        return Some(("R3", format!("{id} is final, and {} is still at work", member.id)));
                    }
                    self.deliveries.insert(id.clone(), (row.state, row.version, now));
                }
                Some((_, version, _)) if version == row.version => {}
                Some((state, version, ready_at)) => {
                    if row.version < version {
                        return Some(("6e.3", format!("{id}: its version fell")));
                    }
                    if state.is_final() {
                        return Some(("6e.8", format!("{id} was {} and changed again", state.as_str())));
                    }
                    if row.state == DeliveryState::Heard && state != DeliveryState::Offered {
                        return Some(("R7", format!("{id} went from {} to heard", state.as_str())));
                    }
                    let may_grow_old = row.stale_after_ms.is_some();
                    if matches!(row.state, DeliveryState::Suppressed | DeliveryState::Expired) && !may_grow_old {
                        return Some(("R8", format!("{id} is {} and is news for ever", row.state.as_str())));
                    }
                    if row.was_uncertain && row.state == DeliveryState::Ready {
                        return Some(("6e.8", format!("{id} may have been heard and is news again")));
                    }
                    self.deliveries.insert(id.clone(), (row.state, row.version, ready_at));
                }
            }
            if self.audited_deliveries.get(id).map(String::as_str) != Some(row.state.as_str()) {
                return Some(("6e.3", format!("{id} is {} and its audit says otherwise", row.state.as_str())));
            }
        }
        (self.deliveries.len() > tables.deliveries.len()).then(|| ("R8", "a delivery is gone".into()))
    }

    /// A request is about to leave: the durable row of it must be there.
    pub fn request_leaves(&self, store: &MemoryStore, operation: &Operation) -> Option<String> {
        let id = &operation.id;
        store.look(|tables| {
            let attempt = tables.attempts.get(&(id.clone(), operation.fence));
            let sent_at = attempt.and_then(|attempt| attempt.sent_at);
            let row = tables.operations.get(id);
            match (row, sent_at) {
                (Some(row), Some(sent_at))
                    if row.fence == operation.fence && row.status == OperationStatus::Running =>
                {
                    (sent_at >= row.deadline_at).then(|| format!("a request of {id} leaves after its deadline"))
                }
                _ => Some(format!("a request of {id} leaves without a durable mark")),
            }
        })
    }

    /// These were heard from the first sample to the last, as news. An outcome is news once; that one was unknown, or still at
    /// work, is no outcome.
    pub fn told_to_the_end(&mut self, store: &MemoryStore, told: Vec<DeliveryId>) -> Broken {
        for id in told {
            let outcomes: Vec<(OperationId, String)> = store.look(|tables| {
                let row = tables.deliveries.get(&id);
                row.into_iter()
                    .flat_map(|row| row.operations.iter().cloned().zip(row.text.lines().map(String::from)))
                    .collect()
            });
            for (operation, outcome) in outcomes {
                let is_final = !outcome.contains("not confirmed yet") && !outcome.contains("not done yet");
                if is_final && !self.told.insert((operation, outcome.clone())) {
                    return Some(("R3", format!("{id} is heard as news, and \"{outcome}\" was heard before")));
                }
            }
        }
        None
    }

    /// The first thing in the store that has not come to its end; `live`: sessions with a caller on the line.
    pub fn unsettled(&self, store: &MemoryStore, live: &[SessionId], max_offers: u32) -> Option<String> {
        store.look(|tables| {
            for (id, row) in &tables.operations {
                let visible = row.status == OperationStatus::Unknown && row.next_due_at.is_none();
                if !row.status.is_terminal() && !visible {
                    return Some(format!("{id} ({}) is still {}", row.tool, row.status.as_str()));
                }
            }
            for (id, batch) in &tables.batches {
                if batch.state != BatchState::Drained {
                    return Some(format!("{id} of {} is still {}", batch.session, batch.state.as_str()));
                }
            }
            for (id, row) in &tables.deliveries {
                let held = row.holder.as_ref().is_some_and(|holder| live.contains(holder));
                let only_attached = row.was_uncertain || row.offers >= max_offers;
                let waits = match row.state {
                    DeliveryState::Ready => held && !only_attached,
                    DeliveryState::Offered => true,
                    DeliveryState::Uncertain
                    | DeliveryState::Heard
                    | DeliveryState::Suppressed
                    | DeliveryState::Superseded
                    | DeliveryState::Expired => false,
                };
                if waits {
                    return Some(format!("{id} is still {} with its caller on the line", row.state.as_str()));
                }
            }
            None
        })
    }
}

/// Live or committed, and a change of the world.
fn is_in_force(operation: &Operation) -> bool {
    operation.effect != EffectClass::Read
        && !matches!(operation.status, OperationStatus::FailedFinal | OperationStatus::Cancelled)
}

/// Those that wait and those that run share one bound.
fn queue(tables: &Tables, reply: &Result<Reply, StoreError>) -> Broken {
    let Ok(Reply::Admission(Admission::Created(new))) = reply else { return None };
    let contract = super::catalog().contract(&new.tool)?;
    let is_queued =
        |row: &&Operation| row.tool == new.tool && (row.is_waiting() || row.status == OperationStatus::Running);
    let queued = tables.operations.values().filter(is_queued).count() as u32;
    let room = contract.max_running + contract.max_queued;
    (queued > room).then(|| ("R14", format!("{} is admitted as number {queued} of {room}", new.id)))
}

fn batches(tables: &Tables) -> Broken {
    for (id, batch) in &tables.batches {
        let of_batch = || tables.deliveries.values().filter(|delivery| delivery.batch == *id);
        let finals = of_batch()
            .filter(|delivery| delivery.kind == DeliveryKind::Final && delivery.state != DeliveryState::Superseded)
            .count();
        match batch.state {
            BatchState::Drained if of_batch().next().is_none() => {
                return Some(("6e.8", format!("{id} is drained and has no delivery")));
            }
            BatchState::Open | BatchState::Sealed if of_batch().next().is_some() => {
                return Some(("R3", format!("{id} is not drained and has a delivery")));
            }
            BatchState::Open | BatchState::Sealed | BatchState::Drained => {}
        }
        if finals > 1 {
            return Some(("R3", format!("{id} has {finals} final deliveries")));
        }
    }
    for (id, row) in &tables.operations {
        let drained = tables.batches.get(&row.batch).is_some_and(|batch| batch.state == BatchState::Drained);
        if drained && can_be_told(row.status) && row.told != Some(row.status) {
            return Some(("6e.8", format!("{id} is {}, and what was told is {:?}", row.status.as_str(), row.told)));
        }
    }
    None
}

fn revision(tables: &Tables) -> u64 {
    let rows = tables.operations.values().map(|row| u64::from(row.version)).sum::<u64>()
        + tables.deliveries.values().map(|row| u64::from(row.version)).sum::<u64>()
        + tables.sessions.values().map(|row| u64::from(row.epoch)).sum::<u64>();
    let ended = tables.attempts.values().filter(|attempt| attempt.end.is_some()).count();
    let sent = tables.attempts.values().filter(|attempt| attempt.sent_at.is_some()).count();
    let counts = tables.attempts.len() + tables.batches.len() + tables.provider_calls.len() + ended + sent;
    rows + counts as u64 + tables.audit.len() as u64
}

pub fn status_of(text: &str) -> Option<OperationStatus> {
    use OperationStatus as S;
    [S::Admitted, S::Running, S::Committed, S::FailedRetryable, S::FailedFinal, S::Unknown, S::Cancelled]
        .into_iter()
        .find(|status| status.as_str() == text)
}

/// By what the tool declares: all arguments, or some.
fn same_intent(there: &Operation, ask: &Admit) -> bool {
    let CheckedProposal { contract, arguments, .. } = &ask.checked;
    let fields = &contract.intent_fields;
    let same_details = match fields.is_empty() {
        true => there.arguments == *arguments,
        false => fields.iter().all(|field| there.arguments.get(field) == arguments.get(field)),
    };
    there.tool == contract.name && there.session == ask.session && same_details
}
