//! The house's recordings: the writer thread, and the sweep that keeps them within their days and bytes.

use crate::config::Config;
use crate::serve::ServeError;
use call::recorder::{RecordingLimits, RecordingThread, Recordings as CallRecordings, sweep};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;

/// How often old recordings are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
/// A call that outlived the grace keeps the writer thread alive; we do not wait for that.
const CLOSING_CAP: Duration = Duration::from_secs(5);

pub(crate) struct Recordings {
    recordings: CallRecordings,
    thread: RecordingThread,
    sweeper: JoinHandle<()>,
}

impl Recordings {
    pub fn open(config: &Config) -> Result<Self, ServeError> {
        let dir = config.server.data_dir.join("recordings");
        let (recordings, thread) = CallRecordings::start(RecordingLimits::new(&dir))
            .map_err(|source| ServeError::Recordings { dir: dir.clone(), source })?;
        let sweeper = tokio::spawn(sweep_for_ever(dir, config.recording.keep, config.recording.max_bytes));
        Ok(Self { recordings, thread, sweeper })
    }

    /// For calls to record with.
    pub fn handle(&self) -> CallRecordings {
        self.recordings.clone()
    }

    /// Waits until all is written. Every other handle must be gone.
    pub async fn close(self) {
        self.sweeper.abort();
        let Self { recordings, thread, .. } = self;
        drop(recordings);
        let joined = tokio::task::spawn_blocking(|| thread.join());
        if tokio::time::timeout(CLOSING_CAP, joined).await.is_err() {
            tracing::warn!("the last recordings were not written in time");
        }
    }
}

async fn sweep_for_ever(dir: PathBuf, keep: Duration, max_bytes: u64) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        let dir = dir.clone();
        let swept = tokio::task::spawn_blocking(move || sweep(&dir, keep, max_bytes, SystemTime::now())).await;
        match swept {
            Ok(Ok(swept)) => tracing::debug!(?swept, "old recordings swept"),
            Ok(Err(error)) => tracing::warn!(%error, "old recordings cannot be swept"),
            Err(_) => return,
        }
    }
}
