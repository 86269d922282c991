//! The server's process.

use super::LiveError;
use super::watch::{Live, watch};
use crate::setup::{PUBLIC_URL, Setup};
use operations::history::History;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::mpsc;

pub const AUTH_TOKEN: &str = "a scenario's auth token";
const ADMIN_TOKEN: &str = "a scenario's admin token";
const MODEL_KEY: &str = "a scenario's model key";
const READY_EVERY: Duration = Duration::from_millis(20);
/// A server that takes longer to start hangs.
const START_CAP: Duration = Duration::from_secs(30);

/// How the server is started: the command that serves the config folder it is given. Address, tokens and the model's
/// address come in the environment.
#[derive(Clone)]
pub struct Launch(pub Arc<dyn Fn(&Path) -> std::process::Command + Send + Sync>);

/// Killed when dropped.
pub struct Running {
    pub address: SocketAddr,
    child: Child,
    client: reqwest::Client,
}

impl Running {
    pub async fn start(
        launch: &Launch,
        setup: &Setup,
        model_url: &str,
        crash_at: Option<&str>,
    ) -> Result<(Self, mpsc::Receiver<Live>), LiveError> {
        // The port must be the same after a crash: the carrier comes back to the public URL.
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|source| LiveError::Io { what: "a free port", source })?;
        Self::spawn(launch, setup, model_url, address, crash_at).await
    }

    /// After a death, on the same data and port, without a crash point.
    pub async fn again(
        launch: &Launch,
        setup: &Setup,
        model_url: &str,
        address: SocketAddr,
    ) -> Result<(Self, mpsc::Receiver<Live>), LiveError> {
        Self::spawn(launch, setup, model_url, address, None).await
    }

    async fn spawn(
        launch: &Launch,
        setup: &Setup,
        model_url: &str,
        address: SocketAddr,
        crash_at: Option<&str>,
    ) -> Result<(Self, mpsc::Receiver<Live>), LiveError> {
        let log_path = setup.folder.join("server.log");
        let io = |what| move |source| LiveError::Io { what, source };
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&log_path);
        let mut command = (launch.0)(&setup.config_folder());
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_for_another_server) {
                command.env_remove(name);
            }
        }
        command
            .env("ANSWERBACK__SERVER__BIND", address.to_string())
            .env("ANSWERBACK__SERVER__PUBLIC_URL", PUBLIC_URL)
            .env("ANSWERBACK__SERVER__DATA_DIR", setup.folder.join("data"))
            .env("ANSWERBACK__SERVER__ADMIN_TOKEN", ADMIN_TOKEN)
            .env("ANSWERBACK__TWILIO__AUTH_TOKEN", AUTH_TOKEN)
            .env("ANSWERBACK__MODEL__BASE_URL", model_url)
            .env("ANSWERBACK__MODEL__API_KEY", MODEL_KEY)
            // All its peers are on loopback; a proxy would only be in the way.
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_err(io("the server's log"))?);
        match crash_at {
            Some(point) => command.env(executor::CRASH_AT, point),
            None => command.env_remove(executor::CRASH_AT),
        };
        let mut command = tokio::process::Command::from(command);
        let child = command.kill_on_drop(true).spawn().map_err(io("the server cannot be started"))?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .build()
            .map_err(|source| LiveError::Http { what: "an HTTP client", source })?;
        let mut running = Self { address, child, client };
        let deadline = tokio::time::Instant::now() + START_CAP;
        let url = format!("http://{address}/readyz");
        while !running.client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
            if running.is_dead()? || tokio::time::Instant::now() > deadline {
                let log = std::fs::read_to_string(&log_path).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(8)..].join("\n");
                return Err(LiveError::Server(format!("does not become ready\n{last}")));
            }
            // A child process tells nobody that it listens; asking again is all there is.
            tokio::time::sleep(READY_EVERY).await;
        }
        let seen = running.subscribe().await?;
        Ok((running, seen))
    }

    /// What is received is complete from now on; it ends when the server does.
    async fn subscribe(&self) -> Result<mpsc::Receiver<Live>, LiveError> {
        let answer = self.get("/api/v1/events", "the server's live events").await?;
        Ok(watch(answer))
    }

    async fn get(&self, path: &str, what: &'static str) -> Result<reqwest::Response, LiveError> {
        let http = |source| LiveError::Http { what, source };
        let url = format!("http://{}{path}", self.address);
        let answer = self.client.get(url).bearer_auth(ADMIN_TOKEN).send().await.map_err(http)?;
        answer.error_for_status().map_err(http)
    }

    pub async fn history(&self, call_sid: &str) -> Result<History, LiveError> {
        let what = "the call's history";
        let answer = self.get(&format!("/api/v1/calls/{call_sid}/history"), what).await?;
        answer.json().await.map_err(|source| LiveError::Http { what, source })
    }

    pub fn is_dead(&mut self) -> Result<bool, LiveError> {
        let waited = self.child.try_wait().map_err(|source| LiveError::Io { what: "the server's process", source })?;
        Ok(waited.is_some())
    }

    /// SIGKILL, and gone when this returns.
    pub async fn kill(&mut self) -> Result<(), LiveError> {
        self.child.kill().await.map_err(|source| LiveError::Io { what: "the server cannot be killed", source })
    }
}

/// A config in the user's environment.
fn is_for_another_server(name: &str) -> bool {
    name.starts_with("ANSWERBACK__") || name == "OPENAI_API_KEY"
}

/// What a server of ours finds in its environment, beside what it is told.
pub fn environment() -> Vec<(String, String)> {
    let named =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    named.filter(|(name, _)| !is_for_another_server(name)).collect()
}
