//! One session's desk: takes the core's commands one after another, each write waited for, and hands out events.

use super::engine::World;
use super::process::{Note, Reply, Verb, Who};
use super::queue::{Event, MS, Micros};
use operations::admission::RefusalReason;
use operations::batch::can_be_told;
use operations::delivery::{outcome, tellable_outcome};
use operations::intent::standing_details;
use operations::store::*;
use operations::{Delivery, Operation, SessionEnd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vocab::effect::OperationStatus;
use vocab::work::{Proposal, WorkCommand, WorkEvent};
use vocab::{AgentId, BatchId, CallerId, DeliveryId, OperationId, SaveId, SessionId, ToolCallId, ToolName, WallTime};

/// As `executor::desk::DESK_TRIES`.
pub const DESK_TRIES: Option<u32> = Some(8);

#[derive(Debug)]
enum Todo {
    Work(WorkCommand, WallTime),
    Close(SessionEnd),
}

/// What the desk waits for.
#[derive(Debug)]
enum Waiting {
    Admission { tool_call: ToolCallId, inline_wait_ms: u32, asked: serde_json::Value },
    Seal,
    Save(SaveId),
    Missed,
    Close,
}

#[derive(Debug)]
pub struct Desk {
    pub stream: usize,
    pub session: SessionId,
    pub epoch: u32,
    caller: CallerId,
    commands: VecDeque<Todo>,
    pub notes: VecDeque<Note>,
    /// Notes that fit.
    pub room: usize,
    pub missed: bool,
    waiting: Option<Waiting>,
    pub superseded: bool,
    ended: bool,
    told_ready: BTreeSet<DeliveryId>,
    told_status: BTreeMap<OperationId, OperationStatus>,
    last_told: Micros,
}

impl World {
    /// The store has opened the session; what it missed meanwhile is read once more.
    pub fn open_desk(&mut self, stream: usize, opened: &OpenedSession) -> usize {
        let session = opened.session.id.clone();
        let place = self.process.desks.len();
        let small = self.faults.has(super::plan::Fault::SmallMailboxes);
        let mut desk = Desk {
            stream,
            session: session.clone(),
            epoch: opened.session.epoch,
            caller: opened.session.caller.clone(),
            commands: VecDeque::new(),
            notes: VecDeque::new(),
            room: if small { self.chance.between(0, 2) as usize } else { 256 },
            missed: false,
            waiting: Some(Waiting::Missed),
            superseded: false,
            ended: false,
            told_ready: BTreeSet::new(),
            told_status: BTreeMap::new(),
            last_told: self.now,
        };
        let other = self.process.mailboxes.get(&session).copied();
        desk.superseded = other.is_some_and(|other| self.process.desks[other].epoch > desk.epoch);
        let shut_out = other.filter(|_| !desk.superseded);
        if !desk.superseded {
            self.process.mailboxes.insert(session.clone(), place);
        }
        self.process.desks.push(desk);
        if let Some(other) = shut_out {
            self.process.desks[other].superseded = true;
            self.desk_goes_on(other);
        }
        self.ask_store(Who::Desk(place), Verb::Missed(session), DESK_TRIES);
        place
    }

    pub fn desk_gets(&mut self, place: usize, command: WorkCommand) {
        let at = self.wall();
        self.process.desks[place].commands.push_back(Todo::Work(command, at));
        self.desk_goes_on(place);
    }

    pub fn close_desk(&mut self, place: usize, end: SessionEnd) {
        self.process.desks[place].commands.push_back(Todo::Close(end));
        self.desk_goes_on(place);
    }

    /// Takes the next thing to do, if nothing is waited for.
    pub fn desk_goes_on(&mut self, place: usize) {
        loop {
            let desk = &mut self.process.desks[place];
            if desk.waiting.is_some() || desk.ended {
                return;
            }
            if desk.superseded {
                return self.desk_ends(place);
            }
            // Whatever is there may come first, as with a select over channels.
            let choices = [!desk.notes.is_empty(), desk.missed, !desk.commands.is_empty()];
            let there: Vec<usize> = (0..3).filter(|n| choices[*n]).collect();
            if there.is_empty() {
                return;
            }
            let chosen = if there.len() == 1 { there[0] } else { self.chance.pick(&there) };
            let desk = &mut self.process.desks[place];
            match chosen {
                0 => match desk.notes.pop_front() {
                    Some(Note::Finished(operation)) => self.tell_finished(place, &operation),
                    Some(Note::Ready(delivery)) => self.tell_delivery(place, &delivery),
                    None => {}
                },
                1 => {
                    desk.missed = false;
                    desk.waiting = Some(Waiting::Missed);
                    let session = desk.session.clone();
                    self.ask_store(Who::Desk(place), Verb::Missed(session), DESK_TRIES);
                }
                _ => match desk.commands.pop_front() {
                    Some(Todo::Work(command, at)) => self.desk_works(place, command, at),
                    Some(Todo::Close(end)) => {
                        desk.waiting = Some(Waiting::Close);
                        let (session, epoch) = (desk.session.clone(), desk.epoch);
                        let close = CloseSession { session, epoch, end, now: self.wall() };
                        self.ask_store(Who::Desk(place), Verb::Close(close), DESK_TRIES);
                    }
                    None => {}
                },
            }
        }
    }

    fn desk_ends(&mut self, place: usize) {
        let desk = &mut self.process.desks[place];
        desk.ended = true;
        let session = desk.session.clone();
        if self.process.mailboxes.get(&session) == Some(&place) {
            self.process.mailboxes.remove(&session);
        }
        // The stream of a superseded desk hears that nobody listens any more.
        if self.process.desks[place].superseded {
            let stream = self.process.desks[place].stream;
            self.queue.at(self.now, Event::SocketBreaks { stream });
        }
    }

    fn desk_works(&mut self, place: usize, command: WorkCommand, at: WallTime) {
        let now = self.wall();
        let desk = &mut self.process.desks[place];
        let (session, epoch) = (desk.session.clone(), desk.epoch);
        match command {
            WorkCommand::Propose(proposal) => self.desk_admits(place, proposal, at),
            WorkCommand::SealBatch { response } => {
                desk.waiting = Some(Waiting::Seal);
                let seal = SealBatch { session, epoch, response, now };
                self.ask_store(Who::Desk(place), Verb::Seal(seal), DESK_TRIES);
            }
            WorkCommand::SaveDelivery { save, delivery, change } => {
                desk.waiting = Some(Waiting::Save(save));
                let save = SaveDelivery { session, epoch, delivery, change, now };
                self.ask_store(Who::Desk(place), Verb::Save(save), DESK_TRIES);
            }
        }
    }

    fn desk_admits(&mut self, place: usize, proposal: Proposal, requested_at: WallTime) {
        let now = self.wall();
        let tool_call = proposal.tool_call;
        let desk = &self.process.desks[place];
        let tools: Vec<ToolName> = self.catalog.contracts().map(|contract| contract.name.clone()).collect();
        match self.catalog.check(&tools, &proposal, &desk.caller, &desk.session, requested_at, now) {
            Err(reason) => self.tell_refused(place, tool_call, &reason),
            Ok(checked) => {
                let (inline_wait_ms, asked) = (checked.contract.inline_wait_ms, checked.arguments.clone());
                self.last_id += 2;
                let admit = Admit {
                    session: desk.session.clone(),
                    epoch: desk.epoch,
                    caller: desk.caller.clone(),
                    agent: AgentId::new("agent"),
                    provider_call: proposal.provider_call,
                    turn: proposal.turn,
                    response: proposal.response,
                    checked,
                    operation: OperationId(format!("op_{:04}", self.last_id)),
                    batch: BatchId(format!("bat_{:04}", self.last_id + 1)),
                    requested_at,
                    now,
                };
                self.process.desks[place].waiting = Some(Waiting::Admission { tool_call, inline_wait_ms, asked });
                // Tried once: the caller is waiting.
                self.ask_store(Who::Desk(place), Verb::Admit(Box::new(admit)), Some(1));
            }
        }
    }

    fn tell_refused(&mut self, place: usize, tool_call: ToolCallId, reason: &RefusalReason) {
        self.tell(place, WorkEvent::Refused { tool_call, refusal: reason.refusal() });
    }

    pub fn desk_replied(&mut self, place: usize, reply: Reply) {
        let Some(waiting) = self.process.desks[place].waiting.take() else { return };
        match (waiting, reply) {
            (Waiting::Admission { tool_call, inline_wait_ms, asked }, Reply::Admission(admission)) => {
                let (operation, attached) = match admission {
                    Admission::Refused(reason) => return self.refuse_and_go_on(place, tool_call, &reason),
                    Admission::Created(operation) => (operation, false),
                    Admission::Attached(operation) => (operation, true),
                };
                let result = tellable_outcome(&operation).filter(|_| attached);
                let stands = standing_details(&operation.arguments, &asked).filter(|_| attached);
                let event = WorkEvent::Admitted {
                    tool_call,
                    operation: operation.id,
                    inline_wait_ms: if result.is_some() { 0 } else { inline_wait_ms },
                    attached_to: attached.then_some(operation.status),
                    result,
                    stands: stands.map(|details| details.to_string()),
                };
                self.tell(place, event);
                if !attached {
                    self.wake();
                }
            }
            (Waiting::Admission { tool_call, .. }, _) => {
                return self.refuse_and_go_on(place, tool_call, &RefusalReason::StoreUnavailable);
            }
            (Waiting::Seal, Reply::Sealed(Some(delivery))) => self.tell_delivery(place, &delivery),
            (Waiting::Save(save), Reply::Saved(SavedDelivery::Saved)) => self.tell(place, WorkEvent::Saved { save }),
            (Waiting::Save(save), Reply::Saved(SavedDelivery::Refused { reason })) => {
                self.tell(place, WorkEvent::SaveRefused { save, reason });
            }
            (Waiting::Save(save), Reply::Failed(error)) => {
                let reason = error.to_string();
                let told = match error {
                    StoreError::Illegal(_) | StoreError::Corrupt(_) => WorkEvent::SaveRefused { save, reason },
                    StoreError::Overloaded | StoreError::Unavailable(_) | StoreError::Closed => {
                        WorkEvent::SaveFailed { save, reason }
                    }
                };
                self.tell(place, told);
            }
            (Waiting::Missed, Reply::Missed(missed)) => {
                let stream = self.process.desks[place].stream;
                // At the opening only the deliveries are told: nothing was asked on this stream yet.
                let opening = !self.streams[stream].has_begun();
                if !opening {
                    for operation in &missed.operations {
                        self.tell_finished(place, operation);
                    }
                }
                for delivery in &missed.deliveries {
                    self.tell_delivery(place, delivery);
                }
                if opening {
                    self.stream_runs(stream);
                }
            }
            (Waiting::Missed, _) => {
                let stream = self.process.desks[place].stream;
                if !self.streams[stream].has_begun() {
                    for delivery in std::mem::take(&mut self.streams[stream].waiting) {
                        self.tell_delivery(place, &delivery);
                    }
                    self.stream_runs(stream);
                }
            }
            (Waiting::Close, reply) => {
                if let Reply::Closed(created) = reply {
                    for delivery in created {
                        self.tell_ready(delivery);
                    }
                }
                return self.desk_ends(place);
            }
            (Waiting::Seal | Waiting::Save(_), _) => {}
        }
        self.desk_goes_on(place);
    }

    fn refuse_and_go_on(&mut self, place: usize, tool_call: ToolCallId, reason: &RefusalReason) {
        self.tell_refused(place, tool_call, reason);
        self.desk_goes_on(place);
    }

    fn tell_finished(&mut self, place: usize, operation: &Operation) {
        if !can_be_told(operation.status) {
            return;
        }
        let desk = &mut self.process.desks[place];
        if desk.told_status.insert(operation.id.clone(), operation.status) != Some(operation.status) {
            let (operation, status, result) = (operation.id.clone(), operation.status, outcome(operation));
            self.tell(place, WorkEvent::Finished { operation, status, result });
        }
    }

    fn tell_delivery(&mut self, place: usize, delivery: &Delivery) {
        let now = self.wall();
        let desk = &mut self.process.desks[place];
        if desk.told_ready.insert(delivery.id.clone()) {
            let brief = delivery.brief(&desk.session, now);
            self.tell(place, WorkEvent::DeliveryReady(brief));
        }
    }

    fn tell(&mut self, place: usize, event: WorkEvent) {
        let hop = self.chance.between(0, 2 * MS);
        let desk = &mut self.process.desks[place];
        desk.last_told = desk.last_told.max(self.now + hop);
        let (at, stream) = (desk.last_told, desk.stream);
        self.queue.at(at, Event::Told { stream, event });
    }
}
