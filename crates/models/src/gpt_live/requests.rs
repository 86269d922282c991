//! Our requests for speech, from the command to the voice that answers it. The service ties nothing it says to anything it was
//! asked: what answers a request is the next stretch that *can* be about it, and a stretch that began before the
//! service had taken the request up cannot (behaviour.md, B11).

use std::collections::VecDeque;
use vocab::ResponseId;

/// Requests under way; the oldest is forgotten first. One at a time is the rule of the house.
pub const REQUESTS_KEPT: usize = 16;
/// Requests remembered by name after they are over.
const NAMES_KEPT: usize = 64;
/// No voice for so long after it could have come, and none will (behaviour.md, B10). Commentary is spoken about 850 ms after its
/// append; callers give up on a silent line after ten seconds.
pub const VOICE_WAIT_MS: u64 = 8_000;
/// After somebody else's stretch has ended, the answer gets this long at least.
pub const AFTER_OTHERS_MS: u64 = 4_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `response.create` is due as soon as the service would take it.
    Deferred { directions: Option<String> },
    /// The text is on its way into the context.
    Appended,
    /// `response.create` was sent.
    Continuing,
    /// The backend works on it; how long that may take is the run's own limit.
    Running,
    /// The next stretch that begins is the answer.
    Speakable,
}

#[derive(Debug)]
struct Request {
    response: ResponseId,
    stage: Stage,
    due_ms: u64,
}

#[derive(Debug, Default)]
pub struct Requests {
    open: VecDeque<Request>,
    names: VecDeque<ResponseId>,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether we ever asked for it, as far as is remembered.
    pub fn knows(&self, response: ResponseId) -> bool {
        self.names.contains(&response)
    }

    /// Returns the oldest if there was no room for it any more.
    pub fn ask(&mut self, response: ResponseId, stage: Stage, now_ms: u64) -> Option<ResponseId> {
        if self.names.len() >= NAMES_KEPT {
            self.names.pop_front();
        }
        self.names.push_back(response);
        let forgotten = if self.open.len() >= REQUESTS_KEPT { self.open.pop_front() } else { None };
        self.open.push_back(Request { response, stage, due_ms: now_ms + VOICE_WAIT_MS });
        forgotten.map(|request| request.response)
    }

    pub fn is_at(&self, response: ResponseId) -> Option<&Stage> {
        self.open.iter().find(|request| request.response == response).map(|request| &request.stage)
    }

    /// The request came further, and gets its time anew.
    pub fn moves(&mut self, response: ResponseId, stage: Stage, now_ms: u64) {
        if let Some(request) = self.open.iter_mut().find(|request| request.response == response)
            && request.stage != stage
        {
            request.stage = stage;
            request.due_ms = now_ms + VOICE_WAIT_MS;
        }
    }

    /// It is over; whether it was under way.
    pub fn settle(&mut self, response: ResponseId) -> Option<Stage> {
        let at = self.open.iter().position(|request| request.response == response)?;
        self.open.remove(at).map(|request| request.stage)
    }

    /// The one that the voice which begins now answers.
    pub fn answered_by_voice(&mut self) -> Option<ResponseId> {
        let at = self.open.iter().position(|request| request.stage == Stage::Speakable)?;
        self.open.remove(at).map(|request| request.response)
    }

    /// The one whose `response.create` is due, and what is to be said with it.
    pub fn deferred(&self) -> Option<(ResponseId, Option<String>)> {
        self.open.iter().find_map(|request| match &request.stage {
            Stage::Deferred { directions } => Some((request.response, directions.clone())),
            Stage::Appended | Stage::Continuing | Stage::Running | Stage::Speakable => None,
        })
    }

    /// The one whose continuation is under way.
    pub fn continuing(&self) -> Option<ResponseId> {
        let under_way = |request: &&Request| matches!(request.stage, Stage::Continuing | Stage::Running);
        self.open.iter().find(under_way).map(|request| request.response)
    }

    /// Another stretch has ended: only now can the answer come.
    pub fn others_are_done(&mut self, now_ms: u64) {
        for request in self.open.iter_mut().filter(|request| request.stage == Stage::Speakable) {
            request.due_ms = request.due_ms.max(now_ms + AFTER_OTHERS_MS);
        }
    }

    /// One of which no voice came in time; it is over.
    pub fn in_vain(&mut self, now_ms: u64) -> Option<(ResponseId, Stage)> {
        let at = self.open.iter().position(|request| request.waits_for_voice() && request.due_ms <= now_ms)?;
        self.open.remove(at).map(|request| (request.response, request.stage))
    }

    pub fn next_due_ms(&self) -> Option<u64> {
        self.open.iter().filter(|request| request.waits_for_voice()).map(|request| request.due_ms).min()
    }
}

impl Request {
    fn waits_for_voice(&self) -> bool {
        self.stage != Stage::Running
    }
}
