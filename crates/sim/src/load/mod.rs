//! Many simulated callers against any Media Streams server, and what that server makes of them: CPU and memory of its
//! process, how soon a barge-in is answered with `clear`, how late its sound comes.
//!
//! The callers share one timer and a task each; 300 of them take well under a core. Run them on another core than the
//! server's, and watch `generator_late` in the report: when it is not small, the generator measured itself.

mod caller;
mod ear;
mod process;
mod report;

pub use process::{ProcessError, ProcessUse};
pub use report::{Histogram, LoadReport, Spread};

use crate::phone::{Socket, Web, sid, twiml::Verb};
use crate::ticker::Ticker;
use caller::{Caller, Voice};
use report::Measured;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_util::sync::CancellationToken;

/// Where the calls go.
#[derive(Clone, Debug)]
pub enum Target {
    /// Straight to a Media Streams socket, unsigned: `ws://127.0.0.1:9000/`.
    Stream { url: String },
    /// Through the signed webhook and the TwiML it answers, as real calls come.
    Webhook { voice_url: String, auth_token: String, connect_addr: Option<SocketAddr> },
}

#[derive(Clone, Debug)]
pub struct LoadPlan {
    pub target: Target,
    pub calls: usize,
    /// How long is measured, after everybody is connected and the warm-up.
    pub seconds: u64,
    pub warm_up_seconds: u64,
    /// Between one call's start and the next.
    pub ramp_ms: u64,
    /// The server's process, whose CPU and memory are measured.
    pub pid: Option<u32>,
    /// Each caller speaks this often, over the agent if it speaks.
    pub speak_every_ms: u64,
    /// For so long.
    pub speech_ms: u64,
    /// The barge-in is measured from the n-th speech frame (from 1), the one that confirms it. `None`: from the earliest
    /// frame that any `clear` of the run followed, which all bursts share, since all callers say the same.
    pub confirming_frame: Option<usize>,
    /// Each caller listens to itself with the server's default detector and turn rules, and the barge-in is measured from the very
    /// frame that they confirm. For a server that judges by them.
    pub has_ears: bool,
    pub account_sid: String,
}

impl LoadPlan {
    pub fn new(target: Target, calls: usize, seconds: u64) -> Self {
        Self {
            target,
            calls,
            seconds,
            warm_up_seconds: 3,
            ramp_ms: 5,
            pid: None,
            speak_every_ms: 8_000,
            speech_ms: 1_200,
            confirming_frame: None,
            has_ears: false,
            account_sid: "AC00000000000000000000000000000001".to_owned(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("there is nothing to measure: calls and seconds must be at least 1")]
    EmptyPlan,
    #[error("speech of {speech_ms} ms every {every_ms} ms leaves no silence")]
    NoSilence { speech_ms: u64, every_ms: u64 },
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
    #[error("no call could be connected; the first said: {0}")]
    NoCall(String),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Make the calls, measure, hang up.
pub async fn run(plan: LoadPlan) -> Result<LoadReport, LoadError> {
    if plan.calls == 0 || plan.seconds == 0 {
        return Err(LoadError::EmptyPlan);
    }
    if plan.speech_ms + 1_000 > plan.speak_every_ms {
        return Err(LoadError::NoSilence { speech_ms: plan.speech_ms, every_ms: plan.speak_every_ms });
    }
    let idle = plan.pid.map(ProcessUse::of).transpose()?;
    let (auth_token, connect_addr) = match &plan.target {
        Target::Stream { .. } => ("", None),
        Target::Webhook { auth_token, connect_addr, .. } => (auth_token.as_str(), *connect_addr),
    };
    let web = Web::new(auth_token, connect_addr).map_err(LoadError::Client)?;
    let voice = Arc::new(Voice::new(plan.speech_ms));
    let measured = Arc::new(Mutex::new(Measured::default()));
    let (ticker, stop) = (Ticker::start(), CancellationToken::new());
    let mut callers = tokio::task::JoinSet::new();
    let mut first_failure = None;
    for n in 0..plan.calls {
        match connect(&plan, &web).await {
            Ok(connected) => {
                let caller = Caller::new(&plan, n, connected, Arc::clone(&voice), Arc::clone(&measured));
                callers.spawn(caller.talk(ticker.slot(n), stop.clone()));
            }
            Err(reason) => {
                caller::locked(&measured).failed_connects += 1;
                first_failure.get_or_insert(reason);
            }
        }
        tokio::time::sleep(Duration::from_millis(plan.ramp_ms)).await;
    }
    if callers.is_empty() {
        return Err(LoadError::NoCall(first_failure.unwrap_or_default()));
    }
    tokio::time::sleep(Duration::from_secs(plan.warm_up_seconds)).await;
    let connected = callers.len();
    caller::locked(&measured).measuring = true;
    let began = std::time::Instant::now();
    let before = plan.pid.map(ProcessUse::of).transpose()?;
    let own_before = ProcessUse::of(std::process::id())?;
    tokio::time::sleep(Duration::from_secs(plan.seconds)).await;
    let took = began.elapsed();
    let after = plan.pid.map(ProcessUse::of).transpose()?;
    let own_after = ProcessUse::of(std::process::id())?;
    caller::locked(&measured).measuring = false;
    stop.cancel();
    while callers.join_next().await.is_some() {}
    let measured = std::mem::take(&mut *caller::locked(&measured));
    Ok(LoadReport::new(&plan, connected, took, measured, [idle, before, after], [own_before, own_after], first_failure))
}

async fn connect(plan: &LoadPlan, web: &Web) -> Result<Connected, String> {
    let limits = WebSocketConfig::default().read_buffer_size(4 * 1024).write_buffer_size(4 * 1024);
    let call_sid = sid("CA");
    let (url, parameters) = match &plan.target {
        Target::Stream { url } => (url.clone(), Vec::new()),
        Target::Webhook { voice_url, .. } => {
            let fields = [
                ("AccountSid", plan.account_sid.as_str()),
                ("CallSid", &call_sid),
                ("CallStatus", "ringing"),
                ("Direction", "inbound"),
                ("From", "+15005550006"),
                ("To", "+15005550001"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
            let verbs = web.document(voice_url, true, &fields).await?;
            let stream = verbs.into_iter().find_map(|verb| match verb {
                Verb::Connect(stream) => Some(stream),
                Verb::Pause { .. }
                | Verb::Redirect { .. }
                | Verb::Hangup
                | Verb::Reject
                | Verb::Say { .. }
                | Verb::Play { .. } => None,
            });
            let stream = stream.ok_or("the webhook answered without <Connect><Stream>")?;
            (stream.url, stream.parameters)
        }
    };
    let socket = web.upgrade(&url, limits).await.map_err(|failed| failed.to_string())?;
    Ok(Connected { socket, call_sid, parameters })
}

/// A call whose stream is open and has said nothing yet.
struct Connected {
    socket: Socket,
    call_sid: String,
    parameters: Vec<(String, String)>,
}
