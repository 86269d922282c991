//! The one thread that writes recordings. It may block on a disk for as long as it likes; nobody waits for it.

use super::{Recorder, RecordingLimits};
use recording::{AGENT_FILE, CALLER_FILE, Header, STEPS_FILE, StopReason, Writer};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vocab::CallTime;

/// How often calls that were given up or left are looked for when nothing comes.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After a message the thread lets others gather for so long: to be woken for each would cost more than to write it.
const GATHER: Duration = Duration::from_millis(20);
/// Emptied buffers that wait for whichever call hands over next. A hundred serve a thousand calls, since a chunk is on its
/// way for some milliseconds of each second.
const SPARES: usize = 128;
/// Memory of a fresh buffer, enough for what a quiet second brings (8,000 bytes of sound).
const FRESH_BYTES: usize = 8 * 1024;
/// Memory that an emptied buffer keeps.
const KEPT_BYTES: usize = 16 * 1024;
/// Directories tried when a stream's name is taken.
const MAX_NAMESAKES: u32 = 100;

/// Bytes of one call on their way to the disk.
#[derive(Debug)]
pub(super) struct Chunk {
    pub steps: Vec<u8>,
    pub caller: Vec<u8>,
    pub agent: Vec<u8>,
}

impl Chunk {
    fn bytes(&self) -> usize {
        self.steps.len() + self.caller.len() + self.agent.len()
    }

    pub fn fresh() -> Self {
        let part = || Vec::with_capacity(FRESH_BYTES);
        Self { steps: part(), caller: part(), agent: part() }
    }

    fn empty(&mut self) {
        for part in [&mut self.steps, &mut self.caller, &mut self.agent] {
            part.clear();
            part.shrink_to(KEPT_BYTES);
        }
    }
}

enum Message {
    /// With the header line, so that a log can be read from its first moment on, whatever comes of the rest.
    Open {
        state: Arc<CallState>,
        name: String,
        header: Vec<u8>,
    },
    Append {
        call: u64,
        chunk: Chunk,
    },
}

const GIVEN_UP: u8 = 1 << 7;

/// What call and thread tell each other without a message.
#[derive(Debug)]
struct CallState {
    call: u64,
    /// The thread could not write.
    failed: AtomicBool,
    /// The call will hand over nothing more.
    closed: AtomicBool,
    /// Messages of this call that were sent, so that the thread knows when the last one has come.
    sent: AtomicU64,
    /// `GIVEN_UP` and why, with how far the call had come.
    stopped: AtomicU8,
    stopped_steps: AtomicU64,
    stopped_at: AtomicU64,
}

/// Emptied buffers, shared by all calls: a call holds one chunk and no more.
#[derive(Clone, Debug, Default)]
struct Spares(Arc<Mutex<Vec<Chunk>>>);

impl Spares {
    fn take(&self) -> Chunk {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_else(Chunk::fresh)
    }

    fn put(&self, mut chunk: Chunk) {
        chunk.empty();
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES {
            spares.push(chunk);
        }
    }
}

/// The call's end of the way to the thread.
pub(super) struct Mailbox {
    spares: Spares,
    state: Arc<CallState>,
    to_thread: SyncSender<Message>,
    waiting: Arc<AtomicUsize>,
    max_waiting: usize,
}

impl Mailbox {
    /// An empty chunk to go on with.
    pub fn spare(&self) -> Chunk {
        self.spares.take()
    }

    /// Never waits. `false`: the chunk is lost.
    pub fn send(&self, chunk: Chunk) -> bool {
        let bytes = chunk.bytes();
        if bytes == 0 {
            return true;
        }
        if self.state.failed.load(Ordering::Acquire) {
            return false;
        }
        if self.waiting.fetch_add(bytes, Ordering::AcqRel) + bytes > self.max_waiting {
            self.waiting.fetch_sub(bytes, Ordering::AcqRel);
            return false;
        }
        // Counted before it is sent: the thread must not find one more than it was told of.
        self.state.sent.fetch_add(1, Ordering::AcqRel);
        match self.to_thread.try_send(Message::Append { call: self.state.call, chunk }) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.state.sent.fetch_sub(1, Ordering::AcqRel);
                self.waiting.fetch_sub(bytes, Ordering::AcqRel);
                false
            }
        }
    }

    /// Why a chunk was lost.
    pub fn failure(&self) -> StopReason {
        match self.state.failed.load(Ordering::Acquire) {
            true => StopReason::WriteFailed,
            false => StopReason::WriterBehind,
        }
    }

    pub fn give_up(&self, reason: StopReason, steps: u64, at: CallTime) {
        self.ended(steps, at);
        self.state.stopped.store(GIVEN_UP | reason as u8, Ordering::Release);
    }

    /// How far the call came, should its last chunk not reach the disk.
    pub fn ended(&self, steps: u64, at: CallTime) {
        self.state.stopped_steps.store(steps, Ordering::Relaxed);
        self.state.stopped_at.store(at.0, Ordering::Relaxed);
    }

    pub fn close(&self) {
        self.state.closed.store(true, Ordering::Release);
    }
}

/// Starts recordings. Cheap to clone; every clone feeds the same thread.
#[derive(Clone)]
pub struct Recordings {
    to_thread: SyncSender<Message>,
    waiting: Arc<AtomicUsize>,
    spares: Spares,
    next: Arc<AtomicU64>,
    limits: Arc<RecordingLimits>,
}

/// The writer thread. It ends when every [`Recordings`] and every [`Recorder`] is gone and all is written.
pub struct RecordingThread(std::thread::JoinHandle<()>);

impl RecordingThread {
    /// Waits for the thread's end. For a process that is about to exit; never from a call's task.
    pub fn join(self) {
        // A panic of the thread has been reported by the panic hook; recordings end torn and calls were not touched.
        let _ = self.0.join();
    }
}

impl Recordings {
    /// Makes the directory and starts the thread.
    pub fn start(limits: RecordingLimits) -> io::Result<(Self, RecordingThread)> {
        fs::create_dir_all(&limits.dir)?;
        let (recordings, desk) = Self::unattended(limits);
        let thread = std::thread::Builder::new().name("recordings".into()).spawn(move || desk.attend())?;
        Ok((recordings, RecordingThread(thread)))
    }

    /// With nobody at the other end yet.
    fn unattended(limits: RecordingLimits) -> (Self, Desk) {
        let (to_thread, mail) = sync_channel(limits.max_waiting);
        let waiting = Arc::new(AtomicUsize::new(0));
        let spares = Spares::default();
        let desk = Desk {
            mail,
            waiting: waiting.clone(),
            spares: spares.clone(),
            dir: limits.dir.clone(),
            open: BTreeMap::new(),
        };
        (Self { to_thread, waiting, spares, next: Arc::default(), limits: Arc::new(limits) }, desk)
    }

    /// Starts the recording of one stream. `None` when the thread is too far behind to take one more, or gone.
    pub fn record(&self, header: &Header) -> Option<Recorder> {
        let mut steps = match Writer::new(Vec::new(), header) {
            Ok(steps) => steps,
            Err(error) => {
                tracing::error!(%error, "the header of a recording could not be written");
                return None;
            }
        };
        let header_line = std::mem::take(steps.out_mut());
        let header_bytes = header_line.len();
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(CallState {
            call,
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            stopped: AtomicU8::new(0),
            stopped_steps: AtomicU64::new(0),
            stopped_at: AtomicU64::new(0),
        });
        let name = format!("{}-{}", file_name(header.session.as_str()), file_name(header.stream.as_str()));
        let open = Message::Open { state: state.clone(), name, header: header_line };
        if self.to_thread.try_send(open).is_err() {
            count_stop(StopReason::WriterBehind);
            return None;
        }
        let mailbox = Mailbox {
            spares: self.spares.clone(),
            state,
            to_thread: self.to_thread.clone(),
            waiting: self.waiting.clone(),
            max_waiting: self.limits.max_bytes_waiting,
        };
        metrics::counter!("recordings_started_total").increment(1);
        Some(Recorder::new(steps, header_bytes, self.spares.take(), self.limits.max_bytes_each, mailbox))
    }
}

pub(super) fn count_stop(reason: StopReason) {
    metrics::counter!("recordings_stopped_total", "reason" => reason.as_str()).increment(1);
}

/// Names come from outside; a file's name is made of letters, digits, dash and underscore.
fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).take(80).collect()
}

/// The thread's end.
struct Desk {
    mail: Receiver<Message>,
    waiting: Arc<AtomicUsize>,
    spares: Spares,
    dir: PathBuf,
    open: BTreeMap<u64, Open>,
}

struct Open {
    state: Arc<CallState>,
    /// `None` when they could not be made.
    files: Option<Files>,
    taken: u64,
}

struct Files {
    steps: File,
    caller: File,
    agent: File,
    /// Bytes of whole lines in `steps`.
    steps_bytes: u64,
    /// A write failed: nothing more goes in but the last line.
    broken: bool,
}

impl Desk {
    fn attend(mut self) {
        let mut looked = Instant::now();
        loop {
            match self.mail.recv_timeout(LOOK_EVERY) {
                Ok(message) => {
                    self.take(message);
                    std::thread::sleep(GATHER);
                    // Under load the queue may never be empty.
                    for _ in 0..1_024 {
                        let Ok(message) = self.mail.try_recv() else { break };
                        self.take(message);
                    }
                    if looked.elapsed() >= LOOK_EVERY {
                        looked = Instant::now();
                        self.close_the_finished();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.close_the_finished(),
                Err(RecvTimeoutError::Disconnected) => return self.close_the_finished(),
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Open { state, name, header } => {
                let files = match make_files(&self.dir, &name, &header) {
                    Ok(files) => Some(files),
                    Err(error) => {
                        tracing::error!(%error, name, "a recording could not be opened");
                        state.failed.store(true, Ordering::Release);
                        None
                    }
                };
                self.open.insert(state.call, Open { state, files, taken: 0 });
            }
            Message::Append { call, chunk } => {
                self.waiting.fetch_sub(chunk.bytes(), Ordering::AcqRel);
                let Some(open) = self.open.get_mut(&call) else { return };
                open.taken += 1;
                if let Some(files) = &mut open.files
                    && let Err(error) = files.append(&chunk)
                {
                    tracing::error!(%error, "a recording could not be written");
                    open.state.failed.store(true, Ordering::Release);
                    files.broken = true;
                }
                self.spares.put(chunk);
            }
        }
    }

    /// Calls that hand over nothing more and whose last chunk is written.
    fn close_the_finished(&mut self) {
        self.open.retain(|_, open| {
            let stopped = open.state.stopped.load(Ordering::Acquire);
            let closed = open.state.closed.load(Ordering::Acquire);
            let all_here = open.taken >= open.state.sent.load(Ordering::Acquire);
            let gave_up = stopped & GIVEN_UP != 0;
            if !all_here || !(gave_up || closed) {
                return true;
            }
            if let Some(files) = &mut open.files
                && (gave_up || files.broken)
            {
                let steps = open.state.stopped_steps.load(Ordering::Relaxed);
                let at = CallTime(open.state.stopped_at.load(Ordering::Relaxed));
                let told = [StopReason::MaxBytes, StopReason::WriterBehind, StopReason::WriteFailed]
                    .into_iter()
                    .find(|reason| gave_up && *reason as u8 == stopped & !GIVEN_UP);
                let reason = told.unwrap_or(StopReason::WriteFailed);
                if let Err(error) = files.stop(reason, steps, at) {
                    tracing::warn!(%error, "a stopped recording has no last line");
                }
            }
            false
        });
    }
}

impl Files {
    /// Audio first: a step that is on the disk finds its sound there.
    fn append(&mut self, chunk: &Chunk) -> io::Result<()> {
        if self.broken {
            return Ok(());
        }
        self.caller.write_all(&chunk.caller)?;
        self.agent.write_all(&chunk.agent)?;
        self.steps.write_all(&chunk.steps)?;
        self.steps_bytes += chunk.steps.len() as u64;
        Ok(())
    }

    /// The last line, after the last whole one. A full disk mostly has room for it: in the block that the log already has.
    fn stop(&mut self, reason: StopReason, steps: u64, at: CallTime) -> io::Result<()> {
        if self.broken {
            self.steps.set_len(self.steps_bytes)?;
            self.steps.seek(io::SeekFrom::Start(self.steps_bytes))?;
        }
        // In one piece: half a line would be worse than none.
        let mut line = Vec::with_capacity(128);
        Writer::write_stopped(&mut line, reason, steps, at)?;
        self.steps.write_all(&line)
    }
}

/// A new directory for the stream: never one that is there already.
fn make_files(dir: &Path, name: &str, header: &[u8]) -> io::Result<Files> {
    let mut place = dir.join(name);
    for namesake in 2..=MAX_NAMESAKES {
        match fs::create_dir(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                place = dir.join(format!("{name}.{namesake}"))
            }
            made => {
                made?;
                break;
            }
        }
    }
    let new = |file: &str| File::create_new(place.join(file));
    let (caller, agent, mut steps) = (new(CALLER_FILE)?, new(AGENT_FILE)?, new(STEPS_FILE)?);
    steps.write_all(header)?;
    Ok(Files { steps, caller, agent, steps_bytes: header.len() as u64, broken: false })
}

#[cfg(test)]
mod tests;
