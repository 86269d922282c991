//! The calls that run now: who may start one, which socket owns it, and how each ended. The call itself is run elsewhere,
//! behind [`CallStarter`]; here it is only registered, counted and dropped.

use crate::events::{LiveEvent, LiveEvents, wall_now};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use phone::twilio::{Start, TwilioSocket};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use vocab::{AgentId, CallSid, CallerId, StreamSid, WallTime};

/// A sentence that is being said when the grace is over may end, within this and within as long as the grace was.
const HAND_OVER_CAP: Duration = Duration::from_secs(5);
/// How a stream is called that ended for want of a model.
const NO_MODEL: &str = "no_model";
/// Ended streams that `/api/v1/calls` still shows.
const KEPT_ENDED: usize = 256;

/// A socket whose signature, `start`, token, account and call were all checked.
pub struct AcceptedStream {
    /// The plain TCP socket under a WebSocket whose `connected` and `start` have been read.
    pub socket: TwilioSocket<TcpStream>,
    pub start: Start,
    /// From the signed webhook, never from the stream's own parameters.
    pub caller: CallerId,
    /// `false`: the number was withheld or is no number, and `caller` is `anonymous:<CallSid>`.
    pub caller_verified: bool,
    pub agent: AgentId,
    /// The grace of a stopping server is over: finish what is being said, then let go.
    pub drain: CancellationToken,
    /// Close the socket and return. The *call* is not over by that: its next stream may already be here.
    pub let_go: CancellationToken,
}

/// How one stream of a call ended, as its driver saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReport {
    pub end: CallEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// We ended the call: farewell heard, hang-up decided, and on record. `/twilio/resume` answers with a hang-up.
    EndedOnPurpose,
    /// The carrier's `stop`: the caller went, or the call was redirected.
    Stopped,
    /// The socket died or fell silent.
    StreamLost,
    /// [`AcceptedStream::let_go`] was obeyed.
    LetGo,
    /// No model session could be opened for it: we give the call up. `/twilio/resume` answers with an apology.
    NoModel(String),
    /// The call could not go on; the text goes to the log.
    Failed(String),
}

/// Runs a call on an accepted stream until that stream is over. Any `Fn(AcceptedStream) -> Future<Output = CallReport>` is one.
pub trait CallStarter: Send + Sync + 'static {
    fn start(&self, stream: AcceptedStream) -> BoxFuture<'static, CallReport>;
}

impl<F, Fut> CallStarter for F
where
    F: Fn(AcceptedStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = CallReport> + Send + 'static,
{
    fn start(&self, stream: AcceptedStream) -> BoxFuture<'static, CallReport> {
        Box::pin(self(stream))
    }
}

/// Why the doors ended a stream that its driver would have kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutsideEnd {
    /// A second socket of the same call.
    Retired,
    /// The carrier's status callback: the call is over.
    CarrierEnded,
    /// The server stops and the grace is over.
    ServerStopped,
}

/// Why a checked stream gets no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAdmitted {
    #[error("the server is draining")]
    Draining,
    #[error("all calls are taken")]
    AtLimit,
}

struct Live {
    serial: u64,
    stream_sid: StreamSid,
    agent: AgentId,
    caller: String,
    started: Instant,
    started_at: WallTime,
    let_go: CancellationToken,
    /// Cancelled when the call's task is over.
    over: CancellationToken,
    task: Option<AbortHandle>,
    outside: Option<OutsideEnd>,
}

/// One stream of a call, as the admin API shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CallView {
    pub call_sid: CallSid,
    pub stream_sid: StreamSid,
    pub agent: AgentId,
    /// Masked: the last four digits at most.
    pub caller: String,
    pub started_at: WallTime,
    pub lived_ms: u64,
    /// `None` while it runs.
    pub end: Option<&'static str>,
}

#[derive(Default)]
struct Roll {
    live: BTreeMap<CallSid, Live>,
    ended: VecDeque<CallView>,
    serials: u64,
}

/// The roll of calls. One lock, held for map operations only and never on the media path.
pub(crate) struct Calls {
    max_calls: usize,
    close_cap: Duration,
    events: LiveEvents,
    tasks: TaskTracker,
    draining: CancellationToken,
    /// Calls that outlived the grace are handed over, each at its next silent moment.
    handing_over: CancellationToken,
    roll: Mutex<Roll>,
}

impl Calls {
    pub fn new(max_calls: usize, close_cap: Duration, events: LiveEvents) -> Self {
        Self {
            max_calls,
            close_cap,
            events,
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            handing_over: CancellationToken::new(),
            roll: Mutex::default(),
        }
    }

    /// Calls that run now.
    pub fn count(&self) -> usize {
        self.roll().live.len()
    }

    pub fn max_calls(&self) -> usize {
        self.max_calls
    }

    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// No new call is taken any more.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Told to the calls when the grace is over.
    pub fn handing_over(&self) -> &CancellationToken {
        &self.handing_over
    }

    /// From now on no call starts.
    pub fn start_draining(&self) {
        self.draining.cancel();
        self.tasks.close();
    }

    /// Runs the way from an upgraded socket to its call; [`Calls::drain`] waits for it as for a call.
    pub fn spawn_arrival(&self, arrival: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(arrival);
    }

    /// May this call have a stream, when the `promised` calls wait for theirs?
    pub fn room_for(&self, call_sid: &CallSid, promised: &BTreeSet<CallSid>) -> Result<(), NotAdmitted> {
        self.room_in(&self.roll(), call_sid, promised)
    }

    /// Registers the call and runs it in its own task, so that a panic in it ends it alone. An earlier stream of the same
    /// call is retired first and has [`Limits::close_cap`](crate::settings::Limits::close_cap) to let go.
    pub async fn run(
        self: &Arc<Self>,
        starter: Arc<dyn CallStarter>,
        mut stream: AcceptedStream,
    ) -> Result<(), Refused> {
        let call_sid = stream.start.call.clone();
        let let_go = CancellationToken::new();
        stream.let_go = let_go.clone();
        let (entry, earlier) = match self.register(&stream, let_go) {
            Ok(registered) => registered,
            Err(why) => return Err(Refused { why, socket: Box::new(stream.socket) }),
        };
        if let Some(Earlier { over, task }) = earlier
            && tokio::time::timeout(self.close_cap, over.cancelled()).await.is_err()
        {
            tracing::warn!(%call_sid, "an earlier stream of this call did not let go in time; its task is ended");
            if let Some(task) = task {
                task.abort();
            }
        }
        if stream.let_go.is_cancelled() {
            // Retired or closed while it waited for its turn: two streams of one call must never run together.
            entry.ended(Some(CallReport { end: CallEnd::LetGo }));
            return Ok(());
        }
        let serial = entry.serial;
        let running = self.tasks.spawn(async move {
            let outcome = AssertUnwindSafe(async { starter.start(stream).await }).catch_unwind().await;
            entry.ended(outcome.ok());
        });
        if let Some(live) = self.roll().live.get_mut(&call_sid)
            && live.serial == serial
        {
            live.task = Some(running.abort_handle());
        }
        Ok(())
    }

    /// The carrier says that the call is over: its stream has nothing to wait for. Returns when it has let go, or has had
    /// its time for it.
    pub async fn carrier_ended(&self, call_sid: &CallSid) {
        let over = self.roll().live.get_mut(call_sid).map(|live| {
            live.outside.get_or_insert(OutsideEnd::CarrierEnded);
            live.let_go.cancel();
            live.over.clone()
        });
        if let Some(over) = over
            && tokio::time::timeout(self.close_cap, over.cancelled()).await.is_err()
        {
            tracing::warn!(%call_sid, "the stream of an ended call did not let go in time");
        }
    }

    /// Waits until the stream that runs for this call is over, if there is one, as long as a stream may take to close.
    pub async fn let_go(&self, call_sid: &CallSid) {
        let over = self.roll().live.get(call_sid).map(|live| live.over.clone());
        if let Some(over) = over {
            let _ = tokio::time::timeout(self.close_cap, over.cancelled()).await;
        }
    }

    /// Does a stream of this call run here?
    pub fn is_live(&self, call_sid: &CallSid) -> bool {
        self.roll().live.contains_key(call_sid)
    }

    /// How long the call's newest stream has lived, or lived.
    pub fn newest_stream_lived(&self, call_sid: &CallSid) -> Option<Duration> {
        let roll = self.roll();
        if let Some(live) = roll.live.get(call_sid) {
            return Some(live.started.elapsed());
        }
        let ended = roll.ended.iter().rev().find(|ended| ended.call_sid == *call_sid)?;
        Some(Duration::from_millis(ended.lived_ms))
    }

    /// Did this process see the call end on purpose?
    pub fn ended_on_purpose(&self, call_sid: &CallSid) -> bool {
        self.newest_end(call_sid) == Some(CallEnd::EndedOnPurpose.name())
    }

    /// Did the call's newest stream end here for want of a model?
    pub fn ended_without_model(&self, call_sid: &CallSid) -> bool {
        self.newest_end(call_sid) == Some(NO_MODEL)
    }

    /// How the newest stream ended; `None` while one runs.
    fn newest_end(&self, call_sid: &CallSid) -> Option<&'static str> {
        let roll = self.roll();
        if roll.live.contains_key(call_sid) {
            return None;
        }
        roll.ended.iter().rev().find(|ended| ended.call_sid == *call_sid).and_then(|ended| ended.end)
    }

    /// The calls that run now, then the streams that ended lately, newest first.
    pub fn views(&self) -> (Vec<CallView>, Vec<CallView>) {
        let roll = self.roll();
        (roll.live.iter().map(|(sid, live)| live.view(sid)).collect(), roll.ended.iter().rev().cloned().collect())
    }

    /// Every stream of one call that is remembered, newest first.
    pub fn views_of(&self, call_sid: &CallSid) -> Vec<CallView> {
        let roll = self.roll();
        let live = roll.live.get(call_sid).map(|live| live.view(call_sid));
        live.into_iter().chain(roll.ended.iter().rev().filter(|ended| ended.call_sid == *call_sid).cloned()).collect()
    }

    /// Waits for the running calls up to `grace`, then asks what is left to let go at a silent moment (the carrier's tail of
    /// TwiML leads them to another process), then cancels, then ends what does not obey. No call may start any more. Returns
    /// how many calls had to be cancelled.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.start_draining();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_ok() {
            return 0;
        }
        self.handing_over.cancel();
        if tokio::time::timeout(HAND_OVER_CAP.min(grace), self.tasks.wait()).await.is_ok() {
            return 0;
        }
        let cut = self.close_all();
        if tokio::time::timeout(self.close_cap, self.tasks.wait()).await.is_err() {
            let stuck: Vec<AbortHandle> = self.roll().live.values().filter_map(|live| live.task.clone()).collect();
            tracing::warn!(stuck = stuck.len(), "calls did not close in time; their tasks are ended");
            for task in stuck {
                task.abort();
            }
            // Aborted tasks need a turn of the runtime to drop what they own.
            let _ = tokio::time::timeout(self.close_cap, self.tasks.wait()).await;
        }
        cut
    }

    /// Cancels every call that runs; returns how many.
    pub fn close_all(&self) -> usize {
        let mut roll = self.roll();
        for live in roll.live.values_mut() {
            live.outside.get_or_insert(OutsideEnd::ServerStopped);
            live.let_go.cancel();
        }
        roll.live.len()
    }

    fn register(
        self: &Arc<Self>,
        stream: &AcceptedStream,
        let_go: CancellationToken,
    ) -> Result<(Entry, Option<Earlier>), NotAdmitted> {
        let call_sid = stream.start.call.clone();
        let mut roll = self.roll();
        // The promise of this call was just redeemed; the others' promises were counted when they were made.
        self.room_in(&roll, &call_sid, &BTreeSet::new())?;
        roll.serials += 1;
        let live = Live {
            serial: roll.serials,
            stream_sid: stream.start.stream.clone(),
            agent: stream.agent.clone(),
            caller: masked(&stream.caller),
            started: Instant::now(),
            started_at: wall_now(),
            let_go,
            over: CancellationToken::new(),
            task: None,
            outside: None,
        };
        let entry = Entry {
            calls: Arc::clone(self),
            call_sid: call_sid.clone(),
            serial: live.serial,
            over: live.over.clone(),
            done: false,
        };
        let (stream_sid, agent) = (live.stream_sid.clone(), live.agent.clone());
        let earlier = roll.live.insert(call_sid.clone(), live);
        metrics::gauge!("calls_active").set(roll.live.len() as f64);
        let earlier = earlier.map(|mut earlier| {
            earlier.outside.get_or_insert(OutsideEnd::Retired);
            earlier.let_go.cancel();
            let view = earlier.ended_view(&call_sid, "retired");
            self.events.publish(&call_sid, LiveEvent::StreamRetired { stream_sid: view.stream_sid.clone() });
            metrics::counter!("streams_ended_total", "end" => "retired").increment(1);
            tracing::info!(%call_sid, stream_sid = %view.stream_sid, "a second socket of the call retires this stream");
            roll.remember(view);
            Earlier { over: earlier.over, task: earlier.task }
        });
        drop(roll);
        tracing::info!(%call_sid, %stream_sid, %agent, "stream accepted");
        self.events.publish(&call_sid, LiveEvent::CallStarted { stream_sid, agent });
        Ok((entry, earlier))
    }

    fn room_in(&self, roll: &Roll, call_sid: &CallSid, promised: &BTreeSet<CallSid>) -> Result<(), NotAdmitted> {
        if self.is_draining() {
            return Err(NotAdmitted::Draining);
        }
        // A call's own earlier stream gives its place to the new one, and a running call may be promised its next stream.
        let promised = promised.iter().filter(|promised| !roll.live.contains_key(*promised));
        let others = roll.live.keys().chain(promised).filter(|other| *other != call_sid).count();
        if others >= self.max_calls { Err(NotAdmitted::AtLimit) } else { Ok(()) }
    }

    fn roll(&self) -> MutexGuard<'_, Roll> {
        self.roll.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A checked stream that found no place; the socket comes back to be closed politely.
pub(crate) struct Refused {
    pub why: NotAdmitted,
    pub socket: Box<TwilioSocket<TcpStream>>,
}

/// A stream that has just been retired.
struct Earlier {
    over: CancellationToken,
    task: Option<AbortHandle>,
}

/// A call's line in the roll. Dropping it (an aborted task) strikes the line too.
struct Entry {
    calls: Arc<Calls>,
    call_sid: CallSid,
    serial: u64,
    over: CancellationToken,
    done: bool,
}

impl Entry {
    /// `None`: the call panicked.
    fn ended(mut self, report: Option<CallReport>) {
        self.done = true;
        match report {
            Some(report) => {
                if let CallEnd::Failed(why) | CallEnd::NoModel(why) = &report.end {
                    tracing::warn!(call_sid = %self.call_sid, why, "call failed");
                }
                self.strike(report.end.name());
            }
            None => {
                metrics::counter!("call_panics_total").increment(1);
                tracing::error!(call_sid = %self.call_sid, "the call's task panicked; other calls go on");
                self.strike("panicked");
            }
        }
    }

    fn strike(&self, end: &'static str) {
        let calls = &self.calls;
        let mut roll = calls.roll();
        // A retired stream was struck when the second socket came: its late end must not touch the second's line.
        if roll.live.get(&self.call_sid).is_some_and(|live| live.serial == self.serial)
            && let Some(live) = roll.live.remove(&self.call_sid)
        {
            let end = match live.outside {
                Some(outside) if end == CallEnd::LetGo.name() || end == "aborted" => outside.name(),
                Some(_) | None => end,
            };
            let view = live.ended_view(&self.call_sid, end);
            metrics::gauge!("calls_active").set(roll.live.len() as f64);
            metrics::counter!("streams_ended_total", "end" => end).increment(1);
            tracing::info!(call_sid = %self.call_sid, stream_sid = %view.stream_sid, end, lived_ms = view.lived_ms, "stream ended");
            calls.events.publish(
                &self.call_sid,
                LiveEvent::CallEnded { stream_sid: view.stream_sid.clone(), end, lived_ms: view.lived_ms },
            );
            roll.remember(view);
        }
        drop(roll);
        self.over.cancel();
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.done {
            self.strike("aborted");
        }
    }
}

impl Roll {
    fn remember(&mut self, ended: CallView) {
        if self.ended.len() == KEPT_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }
}

impl Live {
    fn view(&self, call_sid: &CallSid) -> CallView {
        CallView {
            call_sid: call_sid.clone(),
            stream_sid: self.stream_sid.clone(),
            agent: self.agent.clone(),
            caller: self.caller.clone(),
            started_at: self.started_at,
            lived_ms: self.started.elapsed().as_millis() as u64,
            end: None,
        }
    }

    fn ended_view(&self, call_sid: &CallSid, end: &'static str) -> CallView {
        CallView { end: Some(end), ..self.view(call_sid) }
    }
}

impl CallEnd {
    /// A metric label and an API word.
    fn name(&self) -> &'static str {
        match self {
            Self::EndedOnPurpose => "ended_on_purpose",
            Self::Stopped => "stopped",
            Self::StreamLost => "stream_lost",
            Self::LetGo => "let_go",
            Self::NoModel(_) => NO_MODEL,
            Self::Failed(_) => "failed",
        }
    }
}

impl OutsideEnd {
    fn name(self) -> &'static str {
        match self {
            Self::Retired => "retired",
            Self::CarrierEnded => "carrier_ended",
            Self::ServerStopped => "server_stopped",
        }
    }
}

/// `+14155550123` as `…0123`; an anonymous caller as `anonymous`.
fn masked(caller: &CallerId) -> String {
    let digits: Vec<char> = caller.as_str().chars().collect();
    if caller.as_str().starts_with("anonymous:") {
        "anonymous".to_owned()
    } else {
        // Never more than half of a short number.
        let shown = (digits.len() / 2).min(4);
        std::iter::once('…').chain(digits[digits.len() - shown..].iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_takes_a_place_and_a_calls_own_does_not() {
        let calls = Calls::new(2, Duration::ZERO, LiveEvents::default());
        let sids = |sids: &[&str]| sids.iter().map(|sid| CallSid::new(*sid)).collect::<BTreeSet<_>>();
        let new = CallSid::new("CA3");
        assert_eq!(calls.room_for(&new, &sids(&["CA1"])), Ok(()));
        assert_eq!(calls.room_for(&new, &sids(&["CA1", "CA2"])), Err(NotAdmitted::AtLimit));
        assert_eq!(calls.room_for(&new, &sids(&["CA1", "CA3"])), Ok(()));
        calls.start_draining();
        assert_eq!(calls.room_for(&new, &sids(&[])), Err(NotAdmitted::Draining));
    }

    #[test]
    fn a_masked_number_shows_four_digits_at_most() {
        assert_eq!(masked(&CallerId::new("+14155550123")), "…0123");
        assert_eq!(masked(&CallerId::new("+12")), "…2");
        assert_eq!(masked(&CallerId::new("anonymous:CA1")), "anonymous");
        assert_eq!(masked(&CallerId::new("")), "…");
    }
}
