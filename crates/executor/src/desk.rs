//! Where one session's commands are taken and its events handed out. One task a session, so that a session hears of an
//! admission before it hears of the outcome.

use crate::sessions::{Mailbox, Note};
use crate::{Shared, crash_point, measure, persist};
use operations::admission::RefusalReason;
use operations::batch::can_be_told;
use operations::delivery::{outcome, tellable_outcome};
use operations::intent::standing_details;
use operations::store::{
    Admission, Admit, CloseSession, OpenSession, SaveDelivery, SavedDelivery, SealBatch, StoreError,
};
use operations::{Delivery, Operation, SessionEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll};
use thiserror::Error;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};
use vocab::delivery::DeliveryChange;
use vocab::effect::OperationStatus;
use vocab::work::{Proposal, WorkCommand, WorkEvent};
use vocab::{
    AgentId, BatchId, CallSid, CallerId, DeliveryId, OperationId, SaveId, SessionId, StreamSid, ToolName, WallTime,
};

/// Writes of a desk are tried this often (20 ms doubling: about 2.5 s in all) before the session is told that it failed.
pub(crate) const DESK_TRIES: Option<u32> = Some(8);

/// A stream of a call, as the door knows it.
#[derive(Clone, Debug)]
pub struct SessionOpening {
    pub call_sid: CallSid,
    pub stream_sid: StreamSid,
    pub caller: CallerId,
    pub caller_verified: bool,
    pub agent: AgentId,
    /// What the agent may use.
    pub tools: Vec<ToolName>,
}

/// A command that was not taken. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeskFull {
    #[error("too many commands of this session are waiting")]
    Full,
    /// Another stream has taken the session over, or the desk is closed.
    #[error("the desk is closed")]
    Closed,
}

enum Command {
    Work { command: WorkCommand, at: WallTime },
    Close { end: SessionEnd, done: oneshot::Sender<()> },
}

/// One session's side of the executor. Dropping it counts as a lost stream.
pub struct SessionDesk {
    pub session: SessionId,
    /// The call had an unfinished session and this is it.
    pub resumed: bool,
    /// Which stream of the session this is, from 1.
    pub epoch: u32,
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<WorkEvent>,
    shared: Arc<Shared>,
}

impl SessionDesk {
    /// Never waits. Each `Propose` is answered by exactly one `Admitted` or `Refused`, each `SaveDelivery` by exactly
    /// one `Saved`, `SaveRefused` or `SaveFailed`, in the order of the commands.
    pub fn send(&self, command: WorkCommand) -> Result<(), DeskFull> {
        let at = self.shared.config.clock.now();
        self.commands.try_send(Command::Work { command, at }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => DeskFull::Full,
            mpsc::error::TrySendError::Closed(_) => DeskFull::Closed,
        })
    }

    /// The next event; `None` once another stream has taken the session over. May be dropped and called again without
    /// losing one. An event about the same operation or delivery may come again with the same content.
    pub async fn next(&mut self) -> Option<WorkEvent> {
        self.events.recv().await
    }

    /// As [`SessionDesk::next`], for an owner that polls by itself.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WorkEvent>> {
        self.events.poll_recv(cx)
    }

    /// Everything sent before is carried out first. What is still on offer then becomes uncertain; operations go on.
    pub async fn close(self, end: SessionEnd) {
        let Self { commands, mut events, .. } = self;
        let (done, closed) = oneshot::channel();
        // Events that nobody reads any more must not hold the desk up.
        events.close();
        if commands.send(Command::Close { end, done }).await.is_ok() {
            let _ = closed.await;
        }
    }
}

pub(crate) async fn open(shared: Arc<Shared>, opening: SessionOpening) -> Result<SessionDesk, StoreError> {
    let verb = OpenSession {
        fresh: SessionId(shared.config.entropy.id("ses")),
        call_sid: opening.call_sid,
        stream_sid: opening.stream_sid,
        caller: opening.caller,
        caller_verified: opening.caller_verified,
        agent: opening.agent.clone(),
        now: shared.config.clock.now(),
    };
    let opened = persist(DESK_TRIES, || shared.store.open_session(verb.clone())).await?;
    let (commands, inbox) = mpsc::channel(shared.config.desk_commands.max(1));
    let (events_out, events) = mpsc::channel(shared.config.desk_events.max(1));
    let (notes_out, notes) = mpsc::channel(shared.config.desk_events.max(1));
    let missed = Arc::new(Notify::new());
    let superseded = CancellationToken::new();
    let session = opened.session.id.clone();
    let mailbox = Mailbox {
        epoch: opened.session.epoch,
        notes: notes_out,
        missed: missed.clone(),
        superseded: superseded.clone(),
    };
    if !shared.sessions.register(session.clone(), mailbox) {
        superseded.cancel();
    }
    // What became ready between the opening and the registration has no mailbox to come through.
    let late = match persist(DESK_TRIES, || shared.store.missed(session.clone())).await {
        Ok(missed) => missed.deliveries,
        Err(error) => {
            warn!(%error, %session, "the deliveries of the session cannot be read again");
            opened.deliveries
        }
    };
    info!(session = %session, agent = %opening.agent, resumed = opened.resumed, waiting = late.len(), "session opened");
    let desk = Desk {
        session: session.clone(),
        epoch: opened.session.epoch,
        caller: opened.session.caller,
        agent: opening.agent,
        tools: opening.tools,
        events: events_out,
        superseded,
        told_ready: BTreeSet::new(),
        told_status: BTreeMap::new(),
        shared: shared.clone(),
    };
    let span = info_span!("desk", session = %session);
    tokio::spawn(desk.run(late, inbox, notes, missed).instrument(span));
    Ok(SessionDesk { session, resumed: opened.resumed, epoch: opened.session.epoch, commands, events, shared })
}

struct Desk {
    session: SessionId,
    epoch: u32,
    caller: CallerId,
    agent: AgentId,
    tools: Vec<ToolName>,
    events: mpsc::Sender<WorkEvent>,
    superseded: CancellationToken,
    /// Deliveries that this stream knows of; its core follows them from there.
    told_ready: BTreeSet<DeliveryId>,
    told_status: BTreeMap<OperationId, OperationStatus>,
    shared: Arc<Shared>,
}

impl Desk {
    async fn run(
        mut self,
        waiting: Vec<Delivery>,
        mut commands: mpsc::Receiver<Command>,
        mut notes: mpsc::Receiver<Note>,
        missed: Arc<Notify>,
    ) {
        for delivery in waiting {
            self.ready(&delivery).await;
        }
        let superseded = self.superseded.clone();
        let mut done = None;
        let end = loop {
            tokio::select! {
                () = superseded.cancelled() => {
                    info!("another stream has taken the session over");
                    break None;
                }
                Some(note) = notes.recv() => self.note(note).await,
                () = missed.notified() => self.catch_up().await,
                command = commands.recv() => match command {
                    Some(Command::Work { command, at }) => self.work(command, at).await,
                    Some(Command::Close { end, done: told }) => {
                        done = Some(told);
                        break Some(end);
                    }
                    // The call's task is gone without a word.
                    None => break Some(SessionEnd::StreamLost),
                },
            }
        };
        if let Some(end) = end {
            self.close(end).await;
        }
        self.shared.sessions.remove(&self.session, self.epoch);
        if let Some(done) = done {
            let _ = done.send(());
        }
    }

    /// Waits for room. A reader that is gone or superseded has nobody to tell.
    async fn tell(&self, event: WorkEvent) {
        tokio::select! {
            _ = self.events.send(event) => {}
            () = self.superseded.cancelled() => {}
        }
    }

    async fn note(&mut self, note: Note) {
        match note {
            Note::Finished(operation) => self.finished(&operation).await,
            Note::Ready(delivery) => self.ready(&delivery).await,
        }
    }

    async fn finished(&mut self, operation: &Operation) {
        if !can_be_told(operation.status)
            || self.told_status.insert(operation.id.clone(), operation.status) == Some(operation.status)
        {
            return;
        }
        self.tell(WorkEvent::Finished {
            operation: operation.id.clone(),
            status: operation.status,
            result: outcome(operation),
        })
        .await;
    }

    async fn ready(&mut self, delivery: &Delivery) {
        if self.told_ready.insert(delivery.id.clone()) {
            let brief = delivery.brief(&self.session, self.shared.config.clock.now());
            self.tell(WorkEvent::DeliveryReady(brief)).await;
        }
    }

    /// The mailbox was full: the store says again what there is.
    async fn catch_up(&mut self) {
        match persist(DESK_TRIES, || self.shared.store.missed(self.session.clone())).await {
            Ok(missed) => {
                for operation in &missed.operations {
                    self.finished(operation).await;
                }
                for delivery in &missed.deliveries {
                    self.ready(delivery).await;
                }
            }
            Err(error) => warn!(%error, "what the session missed cannot be read; deliveries stay ready"),
        }
    }

    async fn work(&mut self, command: WorkCommand, at: WallTime) {
        match command {
            WorkCommand::Propose(proposal) => self.propose(proposal, at).await,
            WorkCommand::SealBatch { response } => {
                let verb = SealBatch {
                    session: self.session.clone(),
                    epoch: self.epoch,
                    response,
                    now: self.shared.config.clock.now(),
                };
                match persist(DESK_TRIES, || self.shared.store.seal_batch(verb.clone())).await {
                    Ok(Some(delivery)) => {
                        crash_point("after_batch_drained");
                        self.ready(&delivery).await;
                    }
                    Ok(None) => {}
                    // Letting go of the session seals it too, so the delivery is late, not lost.
                    Err(error) => warn!(%error, %response, "a batch could not be sealed"),
                }
            }
            WorkCommand::SaveDelivery { save, delivery, change } => self.save(save, delivery, change).await,
        }
    }

    async fn propose(&mut self, proposal: Proposal, requested_at: WallTime) {
        let tool_call = proposal.tool_call;
        match self.admit(proposal, requested_at).await {
            Ok((event, started)) => {
                self.tell(event).await;
                if started {
                    self.shared.wake.notify_one();
                }
            }
            Err(reason) => {
                info!(tool_call = %tool_call, code = reason.code(), "proposal refused");
                self.tell(WorkEvent::Refused { tool_call, refusal: reason.refusal() }).await;
            }
        }
    }

    async fn admit(&self, proposal: Proposal, requested_at: WallTime) -> Result<(WorkEvent, bool), RefusalReason> {
        let shared = &self.shared;
        if shared.stop.is_cancelled() {
            return Err(RefusalReason::Stopping);
        }
        let now = shared.config.clock.now();
        let checked = shared.catalog.check(&self.tools, &proposal, &self.caller, &self.session, requested_at, now)?;
        let inline_wait_ms = checked.contract.inline_wait_ms;
        let asked = checked.arguments.clone();
        let verb = Admit {
            session: self.session.clone(),
            epoch: self.epoch,
            caller: self.caller.clone(),
            agent: self.agent.clone(),
            provider_call: proposal.provider_call,
            turn: proposal.turn,
            response: proposal.response,
            checked,
            operation: OperationId(shared.config.entropy.id("op")),
            batch: BatchId(shared.config.entropy.id("bat")),
            requested_at,
            now,
        };
        // Tried once: the caller is waiting, and asking again is cheap.
        let admission = shared.store.admit(verb).await.map_err(|error| {
            warn!(%error, "an operation could not be admitted");
            RefusalReason::StoreUnavailable
        })?;
        let tool_call = proposal.tool_call;
        match admission {
            Admission::Created(operation) => {
                crash_point("after_admit");
                info!(operation = %operation.id, tool = %operation.tool, "operation admitted");
                measure::admitted(&operation, false);
                let event = WorkEvent::Admitted {
                    tool_call,
                    operation: operation.id,
                    inline_wait_ms,
                    attached_to: None,
                    result: None,
                    stands: None,
                };
                Ok((event, true))
            }
            Admission::Attached(operation) => {
                info!(operation = %operation.id, tool = %operation.tool, status = operation.status.as_str(),
                    "proposal attached to the operation of the same intent");
                measure::admitted(&operation, true);
                let result = tellable_outcome(&operation);
                let event = WorkEvent::Admitted {
                    tool_call,
                    operation: operation.id,
                    // A result that is there needs no waiting.
                    inline_wait_ms: if result.is_some() { 0 } else { inline_wait_ms },
                    attached_to: Some(operation.status),
                    result,
                    stands: standing_details(&operation.arguments, &asked).map(|details| details.to_string()),
                };
                Ok((event, false))
            }
            Admission::Refused(reason) => Err(reason),
        }
    }

    async fn save(&mut self, save: SaveId, delivery: DeliveryId, change: DeliveryChange) {
        let point = match &change {
            DeliveryChange::Offered { .. } => Some("after_offered"),
            DeliveryChange::Heard { .. } => Some("after_heard"),
            DeliveryChange::Interrupted { .. }
            | DeliveryChange::Unproven { .. }
            | DeliveryChange::Withdrawn { .. }
            | DeliveryChange::Suppressed { .. }
            | DeliveryChange::Superseded { .. }
            | DeliveryChange::Expired => None,
        };
        debug!(%delivery, ?change, "saving a delivery");
        let verb = SaveDelivery {
            session: self.session.clone(),
            epoch: self.epoch,
            delivery,
            change,
            now: self.shared.config.clock.now(),
        };
        let event = match persist(DESK_TRIES, || self.shared.store.save_delivery(verb.clone())).await {
            Ok(SavedDelivery::Saved) => {
                if let Some(point) = point {
                    crash_point(point);
                }
                WorkEvent::Saved { save }
            }
            Ok(SavedDelivery::Refused { reason }) => WorkEvent::SaveRefused { save, reason },
            Err(error) => {
                warn!(%error, delivery = %verb.delivery, "a delivery could not be saved");
                let reason = error.to_string();
                match error {
                    StoreError::Illegal(_) | StoreError::Corrupt(_) => WorkEvent::SaveRefused { save, reason },
                    StoreError::Overloaded | StoreError::Unavailable(_) | StoreError::Closed => {
                        WorkEvent::SaveFailed { save, reason }
                    }
                }
            }
        };
        self.tell(event).await;
    }

    async fn close(&self, end: SessionEnd) {
        let verb =
            CloseSession { session: self.session.clone(), epoch: self.epoch, end, now: self.shared.config.clock.now() };
        match persist(DESK_TRIES, || self.shared.store.close_session(verb.clone())).await {
            Ok(created) => {
                for delivery in created {
                    self.shared.sessions.tell_ready(delivery);
                }
                info!(end = end.in_words(), "session closed");
            }
            // The next start treats it as lost, which loses nothing.
            Err(error) => warn!(%error, "a session could not be closed"),
        }
    }
}
