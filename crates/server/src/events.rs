//! Live call events: a bounded broadcast that nobody waits for. Who is too slow is told to read everything again.

use futures_util::Stream;
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use vocab::{AgentId, CallSid, StreamSid, WallTime};

/// Events kept for a subscriber that lags before it is told to resync.
const KEPT_EVENTS: usize = 1_024;

/// One thing that happened in a live call. Holds no caller number and no speech unless a [`LiveEvent::Note`] puts it there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallEvent {
    /// Counts up from 1 in this process; the `id:` of the server-sent event.
    pub number: u64,
    /// Unix milliseconds.
    pub at: WallTime,
    pub call_sid: CallSid,
    #[serde(flatten)]
    pub event: LiveEvent,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LiveEvent {
    /// A stream passed its checks and its call runs.
    CallStarted { stream_sid: StreamSid, agent: AgentId },
    /// A second socket of the same call took over.
    StreamRetired { stream_sid: StreamSid },
    /// The call's task is over.
    CallEnded { stream_sid: StreamSid, end: &'static str, lived_ms: u64 },
    /// A socket for this call was closed before a call could run.
    StreamRefused { reason: &'static str },
    /// The carrier reported a failed stream (Twilio's `StreamError`).
    CarrierError { code: String },
    /// Anything the call's driver wants seen live: `name` is a short fixed word, `fields` its content.
    Note { name: &'static str, fields: serde_json::Value },
}

impl LiveEvent {
    /// The `event:` of the server-sent event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CallStarted { .. } => "call_started",
            Self::StreamRetired { .. } => "stream_retired",
            Self::CallEnded { .. } => "call_ended",
            Self::StreamRefused { .. } => "stream_refused",
            Self::CarrierError { .. } => "carrier_error",
            Self::Note { .. } => "note",
        }
    }
}

/// The broadcast. Cheap to clone; publishing never blocks and costs almost nothing when nobody listens.
#[derive(Clone, Debug)]
pub struct LiveEvents {
    sender: broadcast::Sender<Arc<CallEvent>>,
    published: Arc<AtomicU64>,
    /// Subscribers now. The channel knows too, but asks a lock, and every call asks several times a frame.
    watchers: Arc<AtomicUsize>,
}

impl Default for LiveEvents {
    fn default() -> Self {
        Self::with_capacity(KEPT_EVENTS)
    }
}

impl LiveEvents {
    /// Keeps `events` for a slow subscriber. At least 1 is kept.
    pub fn with_capacity(events: usize) -> Self {
        let (sender, _) = broadcast::channel(events.max(1));
        Self { sender, published: Arc::default(), watchers: Arc::default() }
    }

    /// Tells all subscribers.
    pub fn publish(&self, call_sid: &CallSid, event: LiveEvent) {
        let number = self.published.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_watched() {
            // No receiver between the check and the send is no loss: there is nobody to tell.
            let _ = self.sender.send(Arc::new(CallEvent { number, at: wall_now(), call_sid: call_sid.clone(), event }));
        }
    }

    /// Whether anybody would see an event: what is costly to describe need not be.
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Everything from now on.
    pub fn subscribe(&self) -> Subscription {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Subscription { events: BroadcastStream::new(self.sender.subscribe()), watchers: Arc::clone(&self.watchers) }
    }
}

/// One subscriber's events, until it is dropped.
#[derive(Debug)]
pub struct Subscription {
    events: BroadcastStream<Arc<CallEvent>>,
    watchers: Arc<AtomicUsize>,
}

impl Stream for Subscription {
    type Item = Result<Arc<CallEvent>, BroadcastStreamRecvError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.events).poll_next(cx)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Unix milliseconds now; 0 if the machine's clock stands before 1970.
pub(crate) fn wall_now() -> WallTime {
    WallTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64))
}
