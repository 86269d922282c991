//! Puts the rooms together: the store under the executor, the tools beside it, the doors in front, and a call for every
//! stream that passes them.

use crate::calls::{AcceptedStream, CallEnd, CallReport};
use crate::config::{AgentConfig, Config, ConfigErrors};
use crate::events::{LiveEvent, LiveEvents, wall_now};
use crate::health::ModelHealth;
use crate::recordings::Recordings;
use crate::records::{CallRecords, RecordsUnavailable};
use crate::server::{Server, ServerError, Stopped, Wiring};
use call::recorder::Recordings as CallRecordings;
use call::{CallLimits, CallSetup, Desk, DeskFull, Seen, Watch};
use conversation::{Command, Decision, Input};
use executor::{Executor, ExecutorConfig, ExecutorError, RegisteredTool, SessionDesk, SessionOpening};
use futures_util::future::BoxFuture;
use operations::history::Scope;
use operations::retry::ReconcileRule;
use operations::{SessionEnd, SessionState, Store};
use recording::{Header, ToolFacts};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use store::{OpenError, SqliteStore};
use tokio_util::sync::CancellationToken;
use tools::http::HttpClientError;
use vocab::model::ModelEvent;
use vocab::work::{WorkCommand, WorkEvent};
use vocab::{CallSid, CallTime, ToolName};

/// Said instead of the greeting when a lost stream comes back.
pub const RESUMED_GREETING: &str = "The line was cut for a moment and is back. Say sorry in a few words and ask how to go on. \
                                Do not greet again.";
/// A call whose stream was stopped and that has no new one by then is over.
const BACK_WITHIN: Duration = Duration::from_secs(60);
/// Requests to systems of record that are under way may end within this, after the calls are gone.
const EXECUTOR_GRACE: Duration = Duration::from_secs(5);

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("recordings cannot be written to {dir}: {source}")]
    Recordings { dir: PathBuf, source: std::io::Error },
    #[error("a tool cannot be called: {0}")]
    Tools(#[from] HttpClientError),
    #[error("tool `{0}` is configured but no kind of tool took it up")]
    UnknownTool(ToolName),
    #[error("there is no agent to answer a call; write one into agents/")]
    NoAgent,
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// The whole server, open but not serving yet.
pub struct Service {
    server: Server,
    executor: Arc<Executor>,
    store: Arc<SqliteStore>,
    recordings: Option<Recordings>,
}

impl Service {
    /// Opens the store, recovers what a dead process left, and binds the doors.
    pub async fn open(config: Config) -> Result<Self, ServeError> {
        config.ready_to_serve()?;
        let store = Arc::new(SqliteStore::open(&config.server.data_dir).await?);
        let tools = registered_tools(&config)?;
        let executor = Executor::start(Arc::clone(&store) as Arc<dyn Store>, tools, executor_config(&config)).await?;
        let executor = Arc::new(executor);
        let recovered = executor.recovered();
        tracing::info!(?recovered, "store opened");
        let events = LiveEvents::default();
        let agent = config.default_agent().ok_or(ServeError::NoAgent)?.id.clone();
        let settings = config.server_settings(agent);
        let recordings = if config.recording.enabled { Some(Recordings::open(&config)?) } else { None };
        let recorder = recordings.as_ref().map(Recordings::handle);
        let model = Arc::new(ModelHealth::default());
        let house = Arc::new(House {
            config,
            executor: Arc::clone(&executor),
            recorder,
            events: events.clone(),
            model: Arc::clone(&model),
        });
        let records = Arc::new(Records { store: Arc::clone(&store), executor: Arc::clone(&executor) });
        let starter = Arc::new(move |stream| {
            let house = Arc::clone(&house);
            async move { house.run_call(stream).await }
        });
        let server = Server::bind(settings, Wiring { starter, records, model, events }).await?;
        Ok(Self { server, executor, store, recordings })
    }

    /// The bound address, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until `until` is cancelled, then drains: no new call, running calls to a silent moment, then the rest.
    pub async fn run(self, until: CancellationToken) -> Stopped {
        let stopped = self.server.run(until).await;
        if let Some(recordings) = self.recordings {
            recordings.close().await;
        }
        let report = self.executor.stop(EXECUTOR_GRACE).await;
        if report.cut_off > 0 {
            tracing::warn!(cut_off = report.cut_off, "requests were cut off; the next start asks what became of them");
        }
        self.store.close().await;
        stopped
    }
}

fn registered_tools(config: &Config) -> Result<Vec<RegisteredTool>, ServeError> {
    let (contracts, settings): (Vec<_>, Vec<_>) = config.registered_tools().into_iter().unzip();
    let mut kinds = tools::http::http_tools(settings)?;
    contracts
        .into_iter()
        .map(|contract| {
            let tool = kinds.remove(&contract.name).ok_or_else(|| ServeError::UnknownTool(contract.name.clone()))?;
            Ok(RegisteredTool { contract, tool })
        })
        .collect()
}

fn executor_config(config: &Config) -> ExecutorConfig {
    let wanted = &config.executor;
    ExecutorConfig {
        max_running: u32::try_from(wanted.workers).unwrap_or(u32::MAX),
        reconcile: ReconcileRule {
            settle_ms: wanted.settle_ms,
            base_ms: wanted.look_up_base_ms,
            cap_ms: wanted.look_up_cap_ms,
            max_look_ups: wanted.max_look_ups,
        },
        ..ExecutorConfig::default()
    }
}

/// What every call of this process shares.
struct House {
    config: Config,
    executor: Arc<Executor>,
    recorder: Option<CallRecordings>,
    events: LiveEvents,
    model: Arc<ModelHealth>,
}

impl House {
    async fn run_call(&self, stream: AcceptedStream) -> CallReport {
        let Some(agent) = self.config.agent(&stream.agent) else {
            return CallReport { end: CallEnd::Failed(format!("agent `{}` is not configured", stream.agent)) };
        };
        let opening = SessionOpening {
            call_sid: stream.start.call.clone(),
            stream_sid: stream.start.stream.clone(),
            caller: stream.caller.clone(),
            caller_verified: stream.caller_verified,
            agent: agent.id.clone(),
            tools: agent.tools.clone(),
        };
        let desk = match self.executor.open_session(opening).await {
            Ok(desk) => desk,
            Err(error) => return CallReport { end: CallEnd::Failed(format!("the session cannot be opened: {error}")) },
        };
        let (session, epoch) = (desk.session.clone(), desk.epoch);
        let call_sid = stream.start.call.clone();
        tracing::info!(session = %session, call = %call_sid, resumed = desk.resumed, "call");
        let report = call::run(self.setup(agent, stream, desk)).await;
        tracing::info!(session = %session, end = %report.end, lasted_ms = report.lasted.as_millis() as u64, "call over");
        match report.end {
            call::CallEnd::Stopped => self.end_unless_back(call_sid, epoch),
            call::CallEnd::NoModel { .. } => self.model.failed(),
            call::CallEnd::Finished { .. }
            | call::CallEnd::StreamLost { .. }
            | call::CallEnd::LetGo
            | call::CallEnd::ModelLost { .. } => {}
        }
        CallReport { end: door_end(report.end) }
    }

    /// After a `stop` the caller has hung up, or somebody has led the call elsewhere and it may come back. The status callback
    /// tells which; where none is set, time does.
    fn end_unless_back(&self, call_sid: CallSid, epoch: u32) {
        let executor = Arc::clone(&self.executor);
        tokio::spawn(async move {
            tokio::time::sleep(BACK_WITHIN).await;
            if let Err(error) = executor.end_call(&call_sid, Some(epoch)).await {
                tracing::debug!(%call_sid, %error, "a call that was stopped stays unfinished on record");
            }
        });
    }

    fn setup(
        &self,
        agent: &AgentConfig,
        stream: AcceptedStream,
        desk: SessionDesk,
    ) -> CallSetup<tokio::net::TcpStream, ExecutorDesk> {
        let recorder = self.recorder.as_ref().filter(|_| agent.record);
        let recorder = recorder.and_then(|recordings| recordings.record(&self.header(agent, &stream, &desk)));
        let greeting = if desk.resumed { Some(RESUMED_GREETING.to_owned()) } else { agent.greeting.clone() };
        CallSetup {
            model: self.config.session_config(agent),
            greeting,
            policy: agent.policy.clone(),
            detector: self.config.audio.detector,
            limits: CallLimits {
                media_timeout: self.config.limits.media_timeout,
                max_call: self.config.limits.max_call,
            },
            watch: Some(self.watch(stream.start.call.clone())),
            recorder,
            phone: stream.socket,
            desk: ExecutorDesk(desk),
            drain: stream.drain,
            let_go: stream.let_go,
        }
    }

    /// The first line of a call's recording.
    fn header(&self, agent: &AgentConfig, stream: &AcceptedStream, desk: &SessionDesk) -> Header {
        let contracts = agent.tools.iter().filter_map(|name| Some((name, &self.config.tools.get(name)?.contract)));
        Header {
            format: recording::FORMAT,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            session: desk.session.clone(),
            stream: stream.start.stream.clone(),
            call: stream.start.call.clone(),
            agent: agent.id.clone(),
            caller: recording::redacted_caller(&stream.caller),
            started: wall_now(),
            // Plain structs of numbers and words cannot fail to become JSON.
            policy: serde_json::to_value(&agent.policy).unwrap_or_default(),
            detector: serde_json::to_value(self.config.audio.detector).unwrap_or_default(),
            tools: ToolFacts::of(contracts),
            scrubbed: false,
        }
    }

    /// Shows the steps of a call to whoever looks on; costs next to nothing when nobody does.
    fn watch(&self, call_sid: CallSid) -> Watch {
        let (events, model) = (self.events.clone(), Arc::clone(&self.model));
        Box::new(move |at: CallTime, seen: Seen<'_>| {
            if let Seen::Input(Input::Model(ModelEvent::SessionReady)) = seen {
                model.opened();
            }
            if !events.is_watched() {
                return;
            }
            let fields = match seen {
                Seen::Command(Command::KeepAudio { .. }) => return,
                Seen::Command(Command::Explain(Decision::MarkJudged { .. })) => return,
                Seen::Command(command) => json!({ "at_us": at, "command": command }),
                Seen::Input(input) => json!({ "at_us": at, "input": input }),
            };
            events.publish(&call_sid, LiveEvent::Note { name: "step", fields });
        })
    }
}

fn door_end(end: call::CallEnd) -> CallEnd {
    match end {
        call::CallEnd::Finished { reason } => {
            tracing::info!(reason, "call ended on purpose");
            CallEnd::EndedOnPurpose
        }
        call::CallEnd::Stopped => CallEnd::Stopped,
        call::CallEnd::StreamLost { reason } => {
            tracing::warn!(reason, "stream lost");
            CallEnd::StreamLost
        }
        call::CallEnd::LetGo => CallEnd::LetGo,
        call::CallEnd::NoModel { reason } => CallEnd::NoModel(reason),
        call::CallEnd::ModelLost { reason } => CallEnd::Failed(format!("the model is lost: {reason}")),
    }
}

/// The executor's desk as the call knows it.
struct ExecutorDesk(SessionDesk);

impl Desk for ExecutorDesk {
    fn send(&mut self, command: WorkCommand) -> Result<(), DeskFull> {
        self.0.send(command).map_err(|_| DeskFull)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WorkEvent>> {
        self.0.poll_next(cx)
    }

    async fn close(self, ends_call: bool) {
        // A `stop` alone ends no call: a redirect sends it too, and the tail of TwiML brings the call back.
        self.0.close(if ends_call { SessionEnd::CallEnded } else { SessionEnd::StreamLost }).await;
    }
}

/// The doors' questions, answered from the store.
struct Records {
    store: Arc<SqliteStore>,
    executor: Arc<Executor>,
}

impl CallRecords for Records {
    fn finished(&self, call_sid: &CallSid) -> BoxFuture<'_, Result<bool, RecordsUnavailable>> {
        let scope = Scope::Call(call_sid.clone());
        Box::pin(async move {
            let history = self.store.history(scope).await.map_err(unavailable)?;
            Ok(history.sessions.last().is_some_and(|known| known.session.state == SessionState::Ended))
        })
    }

    fn history(&self, call_sid: &CallSid) -> BoxFuture<'_, Result<Option<serde_json::Value>, RecordsUnavailable>> {
        let scope = Scope::Call(call_sid.clone());
        Box::pin(async move {
            let history = self.store.history(scope).await.map_err(unavailable)?;
            if history.sessions.is_empty() {
                return Ok(None);
            }
            serde_json::to_value(history).map(Some).map_err(|error| RecordsUnavailable(error.to_string()))
        })
    }

    fn end_call(&self, call_sid: &CallSid) -> BoxFuture<'_, Result<(), RecordsUnavailable>> {
        let call_sid = call_sid.clone();
        Box::pin(async move { self.executor.end_call(&call_sid, None).await.map_err(unavailable) })
    }

    fn usable(&self) -> BoxFuture<'_, Result<(), RecordsUnavailable>> {
        Box::pin(async move {
            self.store.load().await.map_err(unavailable)?;
            self.store.can_write().await.map_err(unavailable)
        })
    }
}

fn unavailable(error: store::StoreError) -> RecordsUnavailable {
    RecordsUnavailable(error.to_string())
}
