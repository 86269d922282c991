//! The server process: what the executor does, as a synchronous loop over the same verbs and the memory store. No rule is
//! written here; the loop mirrors `executor/src/desk.rs`, `workers.rs`, `reconcile.rs` and `sessions.rs`, each step an event
//! of the world, with the disk between asking and knowing. All of it is gone at a crash; only the store stays.

use super::backend::{Request, ToolAnswer};
use super::desk::Desk;
use super::engine::World;
use super::plan::Fault;
use super::queue::{Event, MS};
use operations::rows::Load;
use operations::store::*;
use operations::{AttemptAnswer, Delivery, LookUpAnswer, Operation};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use vocab::effect::EffectClass;
use vocab::{SessionId, ToolName, WallTime};

/// Who waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Start,
    Opening {
        stream: usize,
    },
    Desk(usize),
    Dispatcher,
    Worker(u64),
    /// Nobody: an answer reported a second time.
    Echo,
}

#[derive(Clone, Debug)]
pub enum Verb {
    Recover,
    Open(OpenSession),
    Close(CloseSession),
    Admit(Box<Admit>),
    Seal(SealBatch),
    Save(SaveDelivery),
    Claim(Claim),
    MarkSent(MarkSent),
    Finish(FinishAttempt),
    FinishLookUp(FinishLookUp),
    Missed(SessionId),
}

#[derive(Debug)]
pub struct Write {
    pub who: Who,
    pub verb: Verb,
    /// How often it is tried; `None` until it is done.
    pub tries: Option<u32>,
    pub failures: u32,
}

/// Lives for one event; boxing would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Reply {
    Recovered,
    Opened(OpenedSession),
    Closed(Vec<Delivery>),
    Admission(Admission),
    Sealed(Option<Delivery>),
    Saved(SavedDelivery),
    Claimed(Claimed),
    MarkedSent(MarkedSent),
    Finished(Finished),
    Missed(Missed),
    Failed(StoreError),
}

/// News for one session.
#[derive(Debug)]
pub enum Note {
    Finished(Box<Operation>),
    Ready(Box<Delivery>),
}

#[derive(Debug)]
struct Worker {
    operation: Operation,
    look_up: bool,
    answer: Option<ToolAnswer>,
    answered_at: WallTime,
}

/// What one process remembers.
#[derive(Default)]
pub struct Process {
    pub desks: Vec<Desk>,
    /// Session to its desk's place.
    pub mailboxes: BTreeMap<SessionId, usize>,
    workers: BTreeMap<u64, Worker>,
    last_worker: u64,
    /// Claims so far: each tool is first in its turn.
    turn: usize,
    claiming: bool,
    woken: bool,
    ticket: u64,
}

const MAX_RUNNING: u32 = 4;
const MAX_LOOK_UPS: u32 = 2;
/// As `executor::ExecutorConfig::overrun_ms`.
const OVERRUN_MS: u64 = 500;

/// The memory store never waits.
fn done<T>(future: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => reply,
        Poll::Pending => Err(StoreError::Corrupt("the memory store waited".into())),
    }
}

impl World {
    pub fn ask_store(&mut self, who: Who, verb: Verb, tries: Option<u32>) {
        let delay = self.disk_delay();
        let write = Box::new(Write { who, verb, tries, failures: 0 });
        self.queue.at(self.now + delay, Event::Apply { life: self.life, write });
    }

    fn disk_delay(&mut self) -> u64 {
        let slow = self.faults.has(Fault::SlowDisk) && self.chance.percent(15);
        if slow { self.chance.between(20 * MS, 2_500 * MS) } else { self.chance.between(100, 4 * MS) }
    }

    /// The disk's turn: refuse, or carry the verb out; the asker knows a little later.
    pub fn apply(&mut self, mut write: Box<Write>) {
        let refused = self.faults.has(Fault::RefusingDisk) && self.chance.percent(12);
        let reply = if refused { Err(StoreError::Unavailable("disk".into())) } else { self.run(&write.verb) };
        let reply = match reply {
            Err(error) if error.may_pass() && write.tries.is_none_or(|tries| write.failures + 1 < tries) => {
                // As `executor::persist`.
                let wait = (20 << write.failures.min(6)) * MS;
                write.failures += 1;
                self.refresh(&mut write.verb);
                self.queue.at(self.now + wait, Event::Apply { life: self.life, write });
                return;
            }
            Err(error) => {
                if !error.may_pass() {
                    self.violated("ledger", format!("a verb failed for good: {error}"));
                }
                Reply::Failed(error)
            }
            Ok(reply) => reply,
        };
        let who = write.who;
        let heard = self.now + self.chance.between(0, 2 * MS);
        self.queue.at(heard, Event::Replied { life: self.life, who, reply: Box::new(reply) });
    }

    /// Workers stamp each try of a write anew.
    fn refresh(&self, verb: &mut Verb) {
        let now = self.wall();
        match verb {
            Verb::MarkSent(ask) => ask.now = now,
            Verb::Finish(ask) => ask.now = now,
            Verb::FinishLookUp(ask) => ask.now = now,
            Verb::Recover
            | Verb::Open(_)
            | Verb::Close(_)
            | Verb::Admit(_)
            | Verb::Seal(_)
            | Verb::Save(_)
            | Verb::Claim(_)
            | Verb::Missed(_) => {}
        }
    }

    fn run(&mut self, verb: &Verb) -> Result<Reply, StoreError> {
        let now = self.wall();
        let before = self.checks.revision(&self.store);
        let store = &self.store;
        let reply = match verb.clone() {
            Verb::Recover => done(store.recover(now)).map(|_| Reply::Recovered),
            Verb::Open(ask) => done(store.open_session(ask)).map(Reply::Opened),
            Verb::Close(ask) => done(store.close_session(ask)).map(Reply::Closed),
            Verb::Admit(ask) => done(store.admit(*ask)).map(Reply::Admission),
            Verb::Seal(ask) => done(store.seal_batch(ask)).map(Reply::Sealed),
            Verb::Save(ask) => done(store.save_delivery(ask)).map(Reply::Saved),
            Verb::Claim(ask) => done(store.claim(ask)).map(Reply::Claimed),
            Verb::MarkSent(ask) => done(store.mark_sent(ask)).map(Reply::MarkedSent),
            Verb::Finish(ask) => done(store.finish_attempt(ask)).map(Reply::Finished),
            Verb::FinishLookUp(ask) => done(store.finish_look_up(ask)).map(Reply::Finished),
            Verb::Missed(session) => done(store.missed(session)).map(Reply::Missed),
        };
        if let Ok(reply) = &reply
            && self.trace.is_some()
        {
            self.log(format!("  store: {}", short(verb, reply)));
        }
        if let Some((rule, broken)) = self.checks.after_verb(&self.store, &self.backend, verb, &reply, before, self.now)
        {
            self.violated(rule, broken);
        }
        reply
    }

    pub fn replied(&mut self, who: Who, reply: Reply) {
        match who {
            Who::Start => match reply {
                Reply::Failed(_) => self.not_recovered(),
                _ => self.start(),
            },
            Who::Opening { stream } => self.session_opened(stream, reply),
            Who::Desk(desk) => self.desk_replied(desk, reply),
            Who::Dispatcher => self.claimed(reply),
            Who::Worker(worker) => self.worker_replied(worker, reply),
            // It came first: then it is the one that counts and that is told.
            Who::Echo => {
                if let Reply::Finished(Finished::Recorded(settled)) = reply {
                    self.tell_settled(*settled);
                }
            }
        }
    }

    fn start(&mut self) {
        self.ready = true;
        self.wake();
    }

    // ---- dispatcher -----------------------------------------------------------------------------------------------------

    /// Something may have become claimable.
    pub fn wake(&mut self) {
        if !self.ready {
            return;
        }
        if self.process.claiming {
            self.process.woken = true;
            return;
        }
        let now = self.wall();
        let process = &mut self.process;
        process.claiming = true;
        let busy = |name: &ToolName| {
            process.workers.values().filter(|worker| !worker.look_up && worker.operation.tool == *name).count() as u32
        };
        let mut free: Vec<(ToolName, u32)> = self
            .catalog
            .contracts()
            .map(|contract| (contract.name.clone(), contract.max_running.saturating_sub(busy(&contract.name))))
            .collect();
        let first = process.turn % free.len().max(1);
        free.rotate_left(first);
        process.turn += 1;
        let look_ups = process.workers.values().filter(|worker| worker.look_up).count() as u32;
        let running = process.workers.len() as u32 - look_ups;
        let claim = Claim {
            free,
            limit: MAX_RUNNING.saturating_sub(running),
            look_ups: MAX_LOOK_UPS.saturating_sub(look_ups),
            now,
        };
        // Tried once; a failure is looked at again soon.
        self.ask_store(Who::Dispatcher, Verb::Claim(claim), Some(1));
    }

    pub fn dispatch(&mut self, ticket: u64) {
        if ticket == self.process.ticket {
            self.wake();
        }
    }

    fn claimed(&mut self, reply: Reply) {
        self.process.claiming = false;
        let wait_ms = match reply {
            Reply::Claimed(claimed) => {
                let Claimed { requests, look_ups, expired, next_due, load: Load { .. } } = claimed;
                for settled in expired {
                    self.tell_settled(settled);
                }
                for operation in requests {
                    self.work_on(operation, false);
                }
                for operation in look_ups {
                    self.work_on(operation, true);
                }
                next_due.map_or(60_000, |due| due.ms_since(self.wall()).min(60_000))
            }
            _ => 250,
        };
        self.process.ticket += 1;
        let ticket = self.process.ticket;
        if std::mem::take(&mut self.process.woken) {
            self.wake();
        } else {
            // A timer of the runtime has a grain of a millisecond.
            self.queue.at(self.now + wait_ms.max(1) * MS, Event::Dispatch { life: self.life, ticket });
        }
    }

    // ---- workers --------------------------------------------------------------------------------------------------------

    fn work_on(&mut self, operation: Operation, look_up: bool) {
        self.process.last_worker += 1;
        let worker = self.process.last_worker;
        let (id, fence) = (operation.id.clone(), operation.fence);
        self.process.workers.insert(worker, Worker { operation, look_up, answer: None, answered_at: WallTime(0) });
        if look_up {
            self.send_out(worker);
        } else {
            let mark = MarkSent { operation: id, fence, now: self.wall() };
            self.ask_store(Who::Worker(worker), Verb::MarkSent(mark), None);
        }
    }

    fn send_out(&mut self, worker: u64) {
        let Some(Worker { operation, look_up, .. }) = self.process.workers.get(&worker) else { return };
        let look_up = *look_up;
        let timeout = self.catalog.contract(&operation.tool).map_or(0, |contract| contract.attempt_timeout_ms);
        let left = if look_up { timeout } else { timeout.min(operation.deadline_at.ms_since(self.wall())) };
        let request = Request {
            life: self.life,
            worker,
            operation: operation.id.clone(),
            key: operation.key.clone(),
            effect: operation.effect,
            look_up,
            answers: true,
        };
        if !look_up && let Some(broken) = self.checks.request_leaves(&self.store, operation) {
            self.violated("6e.2", broken);
        }
        let way = self.chance.between(1, 60) * MS;
        self.queue.at(self.now + way, Event::BackendGot(Box::new(request)));
        let limit = (left + OVERRUN_MS) * MS;
        self.queue.at(self.now + limit, Event::ToolTimesOut { life: self.life, worker });
    }

    pub fn tool_answers(&mut self, worker: u64, answer: ToolAnswer) {
        let now = self.wall();
        let random = self.chance.draw() as u32;
        let Some(known) = self.process.workers.get_mut(&worker) else { return };
        if known.answer.is_some() {
            return;
        }
        known.answer = Some(answer.clone());
        known.answered_at = now;
        let (operation, fence) = (known.operation.id.clone(), known.operation.fence);
        let verb = match answer {
            ToolAnswer::Request(answer) => {
                Verb::Finish(FinishAttempt { operation, fence, answer, answered_at: now, now, random })
            }
            ToolAnswer::LookUp(answer) => {
                Verb::FinishLookUp(FinishLookUp { operation, fence, answer, rule: super::RECONCILE, now, random })
            }
        };
        if self.faults.has(Fault::DoubleAnswers) && self.chance.percent(30) {
            // The same callback once more, from somewhere else, sooner or later.
            self.ask_store(Who::Echo, verb.clone(), Some(1));
        }
        self.ask_store(Who::Worker(worker), verb, None);
    }

    pub fn tool_times_out(&mut self, worker: u64) {
        let Some(known) = self.process.workers.get(&worker) else { return };
        let reason = "no answer in time".to_owned();
        let answer = if known.look_up {
            ToolAnswer::LookUp(LookUpAnswer::Unanswered { reason })
        } else {
            ToolAnswer::Request(AttemptAnswer::Unclear { reason })
        };
        self.tool_answers(worker, answer);
    }

    fn worker_replied(&mut self, worker: u64, reply: Reply) {
        let ended = match reply {
            Reply::MarkedSent(MarkedSent::Send(_)) => {
                self.send_out(worker);
                false
            }
            Reply::MarkedSent(MarkedSent::TooLate(settled)) => {
                self.tell_settled(*settled);
                true
            }
            Reply::Finished(Finished::Recorded(settled)) => {
                let look_up = self.process.workers.get(&worker).is_some_and(|worker| worker.look_up);
                // A look-up that settled nothing is no news.
                if !look_up || settled.operation.status.is_terminal() {
                    self.tell_settled(*settled);
                }
                true
            }
            _ => true,
        };
        if ended {
            self.process.workers.remove(&worker);
            self.wake();
        }
    }

    /// The outcome to the session that asked, the delivery to the one that holds it.
    pub fn tell_settled(&mut self, settled: Settled) {
        let Settled { operation, delivery } = settled;
        if operations::batch::can_be_told(operation.status) {
            self.post(&operation.session.clone(), Note::Finished(Box::new(operation)));
        }
        if let Some(delivery) = delivery {
            self.tell_ready(delivery);
        }
    }

    pub fn tell_ready(&mut self, delivery: Delivery) {
        if let Some(holder) = delivery.holder.clone() {
            self.post(&holder, Note::Ready(Box::new(delivery)));
        }
    }

    fn post(&mut self, session: &SessionId, note: Note) {
        let Some(place) = self.process.mailboxes.get(session).copied() else { return };
        let desk = &mut self.process.desks[place];
        if desk.notes.len() < desk.room {
            desk.notes.push_back(note);
        } else {
            desk.missed = true;
        }
        self.desk_goes_on(place);
    }

    // ---- the backend's side of the wire ---------------------------------------------------------------------------------

    pub fn backend_got(&mut self, mut request: Box<Request>) {
        use super::backend::Fate;
        if request.look_up {
            let deaf = self.faults.has(Fault::DeafLookUps) && self.chance.percent(40);
            if !deaf {
                let answer = ToolAnswer::LookUp(self.backend.look_up(&request));
                self.answer(&request, answer);
            }
            return;
        }
        let fate = self.backend.fate(self.faults, &mut self.chance);
        if self.trace.is_some() {
            self.log(format!("  backend: {} {fate:?}", request.operation));
        }
        match fate {
            Fate::Acts { after_ms, answers } => {
                request.answers = answers;
                self.queue.at(self.now + after_ms * MS, Event::BackendActs(request));
            }
            Fate::Refuses => {
                let answer = self.backend.refuse(&request);
                self.answer(&request, ToolAnswer::Request(answer));
            }
            Fate::FailsCleanly => {
                let answer = AttemptAnswer::Retryable { reason: "try later".into() };
                self.answer(&request, ToolAnswer::Request(answer));
            }
            Fate::FailsUnclearly { acts } => {
                if acts {
                    self.backend_takes_effect(&request);
                }
                let answer = AttemptAnswer::Unclear { reason: "internal error".into() };
                self.answer(&request, ToolAnswer::Request(answer));
            }
            Fate::IsLost => {}
        }
    }

    pub fn backend_acts(&mut self, request: &Request) {
        let answer = self.backend_takes_effect(request);
        if request.answers {
            self.answer(request, ToolAnswer::Request(answer));
        }
    }

    fn backend_takes_effect(&mut self, request: &Request) -> AttemptAnswer {
        let answer = self.backend.act(request);
        if request.effect != EffectClass::Read && self.backend.effects(&request.key) > 1 {
            self.violated("R2", format!("{} took effect twice under {}", request.operation, request.key));
        }
        answer
    }

    fn answer(&mut self, request: &Request, answer: ToolAnswer) {
        let way = self.chance.between(1, 60) * MS;
        let (life, worker) = (request.life, request.worker);
        self.queue.at(self.now + way, Event::ToolAnswers { life, worker, answer: Box::new(answer) });
    }
}

/// A verb and its reply in one line, for the timeline.
fn short(verb: &Verb, reply: &Reply) -> String {
    let delivery =
        |delivery: &Option<Delivery>| delivery.as_ref().map_or(String::new(), |d| format!(" → {} ready", d.id));
    match (verb, reply) {
        (_, Reply::Opened(opened)) => format!(
            "session {} epoch {} opened{}, {} deliveries",
            opened.session.id,
            opened.session.epoch,
            if opened.resumed { " again" } else { "" },
            opened.deliveries.len()
        ),
        (Verb::Save(ask), reply) => format!("save {} {:?}: {reply:?}", ask.delivery, ask.change),
        (_, Reply::Admission(Admission::Created(o))) => format!("{} admitted: {} {}", o.id, o.tool, o.arguments),
        (_, Reply::Admission(Admission::Attached(o))) => format!("attached to {} ({})", o.id, o.status.as_str()),
        (_, Reply::Claimed(claimed)) => format!(
            "claimed {:?}, look-ups {:?}, expired {:?}",
            claimed.requests.iter().map(|o| o.id.as_str()).collect::<Vec<_>>(),
            claimed.look_ups.iter().map(|o| o.id.as_str()).collect::<Vec<_>>(),
            claimed.expired.iter().map(|s| s.operation.id.as_str()).collect::<Vec<_>>()
        ),
        (_, Reply::Finished(Finished::Recorded(settled))) => {
            format!("{} is {}{}", settled.operation.id, settled.operation.status.as_str(), delivery(&settled.delivery))
        }
        (_, Reply::Sealed(sealed)) => format!("batch sealed{}", delivery(sealed)),
        (Verb::Close(ask), Reply::Closed(created)) => format!("{} closed, {} deliveries", ask.session, created.len()),
        (Verb::MarkSent(ask), Reply::MarkedSent(MarkedSent::Send(n))) => {
            format!("{} request {n} leaves", ask.operation)
        }
        (_, reply) => format!("{reply:?}").chars().take(160).collect(),
    }
}
