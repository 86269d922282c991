//! A caller on a Twilio-like carrier, over real sockets: the signed webhook, the TwiML answer, the signed WebSocket, a line
//! that speaks recorded voices in real time, and a playout queue that is drained in real time with marks in it.
//!
//! ```no_run
//! # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
//! use sim::phone::{CallScript, PhoneCall, PhoneConfig};
//! let mut config = PhoneConfig::new("https://voice.example.com/twilio/voice", "auth token");
//! config.connect_addr = Some("127.0.0.1:8080".parse()?);
//! let script = CallScript::parse("[[steps]]\nsay = { file = \"builtin:caller_request\" }")?;
//! let result = PhoneCall::dial(config, &script).await?;
//! println!("heard {} ms, ended with {:?}", result.heard_ms(), result.end);
//! # Ok(()) }
//! ```

mod call;
mod http;
mod line;
mod playout;
mod record;
mod script;
mod signature;
mod stream;
pub mod twiml;
mod wire;

pub(crate) use http::{Socket, Web};
pub use playout::{HeardSpan, MAX_QUEUED_BYTES};
pub use record::{
    CallEnd, CallResult, ClearRecord, Happened, MarkRecord, SaidSpan, StreamRecord, TimelineEvent, Underrun, Violation,
};
pub use script::{CallScript, CallScriptError, DEFAULT_TIMEOUT_MS, Step, WaitForAgent};
pub use signature::sign;
pub(crate) use wire::{CONNECTED, Carrier};

use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// One call to be made.
#[derive(Clone, Debug)]
pub struct PhoneConfig {
    /// The webhook as it is configured at the carrier: the public URL, which is what is signed.
    pub voice_url: String,
    /// Where requests and streams really go, in plain HTTP and WebSocket, whatever the public URLs say.
    pub connect_addr: Option<SocketAddr>,
    pub auth_token: String,
    /// `AC` and 32 hex digits.
    pub account_sid: String,
    /// E.164.
    pub from: String,
    pub to: String,
    /// `CA` and 32 hex digits; drawn when absent.
    pub call_sid: Option<String>,
    /// Posted to, signed, when the call is over (`CallStatus=completed`).
    pub status_url: Option<String>,
    /// Where the script's relative audio paths start.
    pub audio_base: PathBuf,
    /// The call ends by itself after so long.
    pub max_seconds: u32,
    /// How often a failed `<Redirect>` is tried. Twilio itself gives up at once (11200) unless the number has a fallback
    /// URL; more than one stands for a fallback document that pauses and comes back.
    pub redirect_attempts: u32,
    /// Between these attempts.
    pub redirect_retry_ms: u64,
    /// Follow `ws://` in TwiML, which Twilio refuses with 31922.
    pub allow_plain_ws: bool,
    /// Decides what is random on the line: the first timestamp, its wobble, the pattern of silence.
    pub seed: u64,
    pub faults: PhoneFaults,
    /// Gets every event as it happens; events that find it full are only in the result.
    pub observer: Option<mpsc::Sender<TimelineEvent>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhoneFaults {
    /// Marks are swallowed.
    pub drop_marks: bool,
    /// Marks return this late.
    pub delay_marks_ms: u32,
    /// Nothing is sent while the caller is silent: timestamps jump, chunk numbers do not. Some calls are like that.
    pub gaps_in_silence: bool,
    /// Frames come this many at a time, as after a stall of the network; 0 and 1 send each at its time.
    pub burst_frames: u32,
}

impl PhoneConfig {
    pub fn new(voice_url: impl Into<String>, auth_token: impl Into<String>) -> Self {
        Self {
            voice_url: voice_url.into(),
            connect_addr: None,
            auth_token: auth_token.into(),
            account_sid: "AC00000000000000000000000000000001".to_owned(),
            from: "+15005550006".to_owned(),
            to: "+15005550001".to_owned(),
            call_sid: None,
            status_url: None,
            audio_base: PathBuf::from("."),
            max_seconds: 600,
            redirect_attempts: 3,
            redirect_retry_ms: 1_000,
            allow_plain_ws: false,
            seed: 1,
            faults: PhoneFaults::default(),
            observer: None,
        }
    }
}

/// A call under way. Dropping it ends the call as if its connection broke.
#[derive(Debug)]
pub struct PhoneCall {
    pub call_sid: String,
    base: PathBuf,
    steps: mpsc::Sender<script::Ready>,
    task: Option<JoinHandle<CallResult>>,
}

/// Steps asked for by hand and not yet done; a person presses few buttons.
const STEPS_BY_HAND: usize = 16;

impl PhoneCall {
    /// Make the call and wait for its end.
    pub async fn dial(config: PhoneConfig, script: &CallScript) -> Result<CallResult, CallScriptError> {
        Ok(Self::start(config, script)?.wait().await)
    }

    /// Make the call in the background. The script's audio is read first, so that a bad script makes no call.
    pub fn start(mut config: PhoneConfig, script: &CallScript) -> Result<Self, CallScriptError> {
        let steps = script.ready(&config.audio_base)?;
        let call_sid = config.call_sid.get_or_insert_with(|| sid("CA")).clone();
        let base = config.audio_base.clone();
        let (by_hand, asked) = mpsc::channel(STEPS_BY_HAND);
        let task = tokio::spawn(call::run(config, steps, asked));
        Ok(Self { call_sid, base, steps: by_hand, task: Some(task) })
    }

    /// Do this now, beside what the script is doing: speak over the agent, press a key, break the line. Waits are ignored.
    /// `false`: the call is over, or too many are waiting.
    pub fn step_now(&self, step: &Step) -> Result<bool, CallScriptError> {
        let ready = step.ready(0, &self.base)?;
        Ok(self.steps.try_send(ready).is_ok())
    }

    pub fn is_over(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub async fn wait(mut self) -> CallResult {
        match self.task.take() {
            Some(task) => match task.await {
                Ok(result) => result,
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            },
            // Only `wait` takes the task, and it takes the call with it.
            None => unreachable!("a call is waited for once"),
        }
    }
}

impl Drop for PhoneCall {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// A Twilio identifier: two letters and 32 hex digits.
pub(crate) fn sid(prefix: &str) -> String {
    let mut bytes = [0u8; 16];
    // Without entropy the identifiers repeat, which a simulator survives.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().fold(prefix.to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
