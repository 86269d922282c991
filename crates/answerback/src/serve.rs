//! `serve`: config, logs, the service, and a graceful end.

use crate::args::ServeArgs;
use crate::{FAILED, FINE, config, logs};
use anyhow::Context;
use std::process::ExitCode;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;

/// Before the address, in the one line that says on standard output that calls are taken.
pub(crate) const READY: &str = "ready at ";

pub(crate) async fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let config = match config::load(&args.config.config) {
        Ok(config) => config,
        Err(mistakes) => return Ok(config::show(mistakes)),
    };
    if let Err(missing) = config.ready_to_serve() {
        return Ok(config::show(missing));
    }
    logs::start(args.log_format, LevelFilter::INFO);
    let service = server::serve::Service::open(config).await.context("the server cannot start")?;
    let until = CancellationToken::new();
    let mut stops = Stops::listen().context("signals cannot be listened to")?;
    outln!("{READY}http://{}", service.local_addr());
    let serving = service.run(until.clone());
    tokio::pin!(serving);
    tokio::select! {
        stopped = &mut serving => return Ok(told(stopped)),
        () = orphaned(args.while_stdin_open) => {}
        () = stops.first() => {}
    }
    tracing::info!("stopping: running calls may finish; Ctrl-C again ends at once");
    until.cancel();
    tokio::select! {
        stopped = &mut serving => Ok(told(stopped)),
        () = stops.second() => {
            tracing::warn!("ended at once; what was under way is taken up at the next start");
            Ok(FAILED)
        }
    }
}

fn told(stopped: server::Stopped) -> ExitCode {
    if stopped.calls_closed > 0 {
        tracing::warn!(calls = stopped.calls_closed, "calls were closed that did not end within the grace");
    }
    FINE
}

/// Completes when standard input ends, if that is to be watched.
async fn orphaned(watched: bool) {
    if !watched {
        return std::future::pending().await;
    }
    let mut stdin = tokio::io::stdin();
    let mut byte = [0u8; 64];
    while !matches!(stdin.read(&mut byte).await, Ok(0) | Err(_)) {}
}

/// Ctrl-C and SIGTERM ask for a graceful stop; Ctrl-C once more ends it. A second SIGTERM is ignored: supervisors repeat it.
#[cfg(unix)]
struct Stops {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Stops {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn first(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    async fn second(&mut self) {
        self.interrupt.recv().await;
    }
}

#[cfg(not(unix))]
struct Stops;

#[cfg(not(unix))]
impl Stops {
    fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn first(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }

    async fn second(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
