//! The same model service without a socket and without a clock: whoever holds it says what time it is. For rehearsals in
//! virtual time, so that one script speaks in both worlds.

use super::generation::Pace;
use super::record::SessionRecord;
use super::script::{LoadedScript, ScriptProgress};
use super::session::{Opening, Session};
use super::{ModelFaults, locked};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// The service: what outlives its sessions.
#[derive(Debug)]
pub struct OfflineModel {
    script: LoadedScript,
    pace: Pace,
    faults: Arc<Mutex<ModelFaults>>,
    progress: Arc<Mutex<ScriptProgress>>,
    opened: usize,
}

impl OfflineModel {
    pub fn new(script: LoadedScript, pace: Pace) -> Self {
        Self { script, pace, faults: Arc::default(), progress: Arc::default(), opened: 0 }
    }

    pub fn set_faults(&self, change: impl FnOnce(&mut ModelFaults)) {
        change(&mut locked(&self.faults));
    }

    pub fn open(&mut self, now_us: u64) -> OfflineSession {
        self.opened += 1;
        let session = Session::open(Opening {
            name: self.opened.to_string(),
            model: "offline".to_owned(),
            // Virtual time does not reach it.
            expires_at: u64::from(u32::MAX),
            script: self.script.clone(),
            script_progress: Arc::clone(&self.progress),
            pace: self.pace,
            faults: Arc::clone(&self.faults),
            now_us,
        });
        OfflineSession { session }
    }
}

/// One session of it. Times are microseconds on the holder's clock.
pub struct OfflineSession {
    session: Session,
}

impl OfflineSession {
    /// A client event, as JSON text.
    pub fn receive(&mut self, now_us: u64, text: &str) {
        self.session.receive(now_us, text);
    }

    /// Every server event that is due, oldest first.
    pub fn advance(&mut self, now_us: u64) -> Vec<Value> {
        self.session.advance(now_us);
        std::mem::take(&mut self.session.events)
    }

    /// When [`Self::advance`] has something to say.
    pub fn next_at_us(&self) -> Option<u64> {
        if self.session.events.is_empty() { self.session.next_at_us() } else { Some(0) }
    }

    pub fn record(&self) -> &SessionRecord {
        &self.session.record
    }
}
