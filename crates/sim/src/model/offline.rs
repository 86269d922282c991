//! The same model service without a socket and without a clock: whoever holds it says what time it is. For rehearsals in
//! virtual time, so that one script speaks in both worlds.

use super::generation::Pace;
use super::live::{self, LiveSession};
use super::record::SessionRecord;
use super::script::{LoadedScript, ScriptProgress};
use super::session::{Opening, Session};
use super::{AnySession, LiveSessionRecord, ModelFaults, locked};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// Virtual time does not reach it.
const NEVER_EXPIRES: u64 = u32::MAX as u64;

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

    /// A session of the Realtime interface.
    pub fn open(&mut self, now_us: u64) -> OfflineSession {
        self.opened += 1;
        let session = Session::open(Opening {
            name: self.opened.to_string(),
            model: "offline".to_owned(),
            expires_at: NEVER_EXPIRES,
            script: self.script.clone(),
            script_progress: Arc::clone(&self.progress),
            pace: self.pace,
            faults: Arc::clone(&self.faults),
            now_us,
        });
        OfflineSession { session: AnySession::Realtime(Box::new(session)) }
    }

    /// A session of the Live interface.
    pub fn open_live(&mut self, now_us: u64) -> OfflineSession {
        self.opened += 1;
        let session = LiveSession::open(live::Opening {
            name: self.opened.to_string(),
            expires_at: NEVER_EXPIRES,
            script: self.script.clone(),
            script_progress: Arc::clone(&self.progress),
            faults: Arc::clone(&self.faults),
            now_us,
        });
        OfflineSession { session: AnySession::Live(Box::new(session)) }
    }
}

/// One session of it. Times are microseconds on the holder's clock.
pub struct OfflineSession {
    session: AnySession,
}

/// What a session was told and did.
pub enum OfflineRecord<'a> {
    Realtime(&'a SessionRecord),
    Live(&'a LiveSessionRecord),
}

impl OfflineSession {
    /// A client event, as JSON text.
    pub fn receive(&mut self, now_us: u64, text: &str) {
        self.session.receive(now_us, text);
    }

    /// Every server event that is due, oldest first.
    pub fn advance(&mut self, now_us: u64) -> Vec<Value> {
        self.session.advance(now_us)
    }

    /// When [`Self::advance`] has something to say.
    pub fn next_at_us(&self) -> Option<u64> {
        if self.session.has_events() { Some(0) } else { self.session.next_at_us() }
    }

    pub fn record(&self) -> OfflineRecord<'_> {
        match &self.session {
            AnySession::Realtime(session) => OfflineRecord::Realtime(&session.record),
            AnySession::Live(session) => OfflineRecord::Live(&session.record),
        }
    }
}
