//! The server, in a process of its own that can be killed.

use super::world::World;
use crate::serve::READY;
use anyhow::{Context, bail};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

/// A server that takes longer to start hangs.
const START_CAP: Duration = Duration::from_secs(20);
const READY_EVERY: Duration = Duration::from_millis(50);
/// Beyond the drain grace that the demo gives it.
const STOP_CAP: Duration = Duration::from_secs(8);

/// Killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub addr: SocketAddr,
    child: Child,
    /// Open as long as we live: the server stops when it closes, however we ended.
    stdin: Option<ChildStdin>,
    log: PathBuf,
}

impl Running {
    /// Starts `serve` from this same executable and waits until it is ready for calls.
    pub async fn start(world: &World, log: &Path, client: &reqwest::Client) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let log_file = std::fs::OpenOptions::new().create(true).append(true).open(log);
        let log_file = log_file.with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(program);
        // Only our own settings reach it: a config in the user's environment is for another server.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("ANSWERBACK__") || name == "OPENAI_API_KEY") {
                command.env_remove(name);
            }
        }
        command
            .args(["serve", "--while-stdin-open", "--log-format", "json", "--config"])
            .arg(&world.config)
            .envs(world.env.iter().map(|(name, value)| (name, value)))
            // All its peers are on loopback; a proxy would only be in the way.
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .kill_on_drop(true);
        // Ctrl-C at the terminal is for us; we end the server ourselves.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().context("the server cannot be started")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the server's output is not ours")?;
        let mut lines = BufReader::new(stdout).lines();
        let address = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(url) = line.strip_prefix(READY) {
                    return url.trim_start_matches("http://").parse().context("the server's own address");
                }
            }
            bail!("the server ended before it was ready");
        };
        let addr = match tokio::time::timeout(START_CAP, address).await {
            Ok(Ok(addr)) => addr,
            Ok(Err(error)) => return Err(error.context(tail(log))),
            Err(_) => bail!("the server was not ready within {} s\n{}", START_CAP.as_secs(), tail(log)),
        };
        let mut running = Self { addr, child, stdin, log: log.to_owned() };
        running.wait_ready(client).await?;
        Ok(running)
    }

    async fn wait_ready(&mut self, client: &reqwest::Client) -> anyhow::Result<()> {
        let url = format!("http://{}/readyz", self.addr);
        let ready = async {
            loop {
                if client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                    return;
                }
                tokio::time::sleep(READY_EVERY).await;
            }
        };
        tokio::select! {
            waited = tokio::time::timeout(START_CAP, ready) => {
                waited.map_err(|_| anyhow::anyhow!("the server does not get ready\n{}", tail(&self.log)))
            }
            ended = self.child.wait() => bail!("the server ended ({})\n{}", ended?, tail(&self.log)),
        }
    }

    /// The last lines of its log, for an error.
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// SIGKILL, and gone when this returns.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("the server cannot be killed")
    }

    /// A graceful stop. Whether it ended well.
    pub async fn stop(mut self) -> bool {
        drop(self.stdin.take());
        match tokio::time::timeout(STOP_CAP, self.child.wait()).await {
            Ok(Ok(status)) => status.success(),
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

/// The end of a log is where the reason stands.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(12)..];
    format!("the server's last words ({}):\n{}", log.display(), last.join("\n"))
}
