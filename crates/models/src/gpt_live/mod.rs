//! OpenAI's Live interface (GPT-Live): one continuous stream each way, and a model that decides by itself when it speaks.
//!
//! `wire` and `encode` are the messages, `session` and `commands` what they mean, on `voice`, `stretches`, `callers`, `requests`
//! and `runs`, one book each; all of that is pure. `socket` alone awaits and knows a clock.
//!
//! # What a response is here
//!
//! The service has no responses, no turn ends and no item ids. What the call is told instead:
//!
//! - A **response** is a stretch of the model's voice: [`ResponseCreated`] at its onset, [`AudioReceived`] for its sound with
//!   a little of what was before the onset, [`TranscriptReceived`], and [`ResponseEnded`] `Completed` when the voice has
//!   been still for 0.8 s (`voice::GAP_MS`). It has one item, and comes at the speed of speech: about 100 ms of
//!   lead at its beginning, none after. Silence between stretches is dropped, and of a pause within one all that is longer
//!   than 0.2 s: it has passed in the stream's own time.
//! - `request` is the request of ours that it answers. That is the next stretch that *begins* after the service has taken
//!   the request up: after the acknowledgement of its text, or after the backend has begun to answer. A stretch that
//!   nobody asked for, an answer to the caller among them, has `None`. A voice that goes on without a gap from the
//!   one into the other stays the first one's.
//! - A **run of the backend that calls tools** is a response as well: [`ResponseCreated`], its complete calls, and
//!   [`ResponseEnded`] when the run ends, with `request` where it continues a request of ours. It has no sound, and may lie
//!   across a stretch. A run without calls is not told.
//! - A request of which **no voice came** ends too: [`ResponseEnded`] `Completed` without audio, 8 s after it could have been
//!   spoken (`requests::VOICE_WAIT_MS`), never earlier than the end of a stretch that was in its way; `Failed` or `Incomplete` at
//!   once when its run ended so. Every request has exactly one end: a stretch's, a run's, this one, or [`CreateRefused`].
//! - The **caller's words** come as [`TurnCommitted`] and [`CallerTranscript`] together, once they are known to be whole (a gap
//!   of 0.8 s, or 1.2 s without a fragment). That is where text belongs, not where a turn ends: `turn_events` is off.
//! - A transcript that comes late goes to the stretch of its times. Words alone make no response.
//!
//! # What the call may ask
//!
//! - `CreateResponse`: when tool outputs wait for their continuation and every call of the conversation is answered, one
//!   `response.create`; directions go before it as an item for the backend, which writes what will be said. While a call
//!   is unanswered or a run is under way the service would refuse, so the create waits; directions that come then are
//!   said beside it. A run that the service began with the results before it was asked to is the one that is asked for: its answer is
//!   the request's, and the directions go as *thinking*. A create that is refused twice while nothing runs has nothing to
//!   continue: the results become *thinking*, and the next create asks the voice. Otherwise the directions go as *commentary*, put as something to be done now. Not as *instructions*: those
//!   stay for the whole session, may cut speech, and give no reason to speak. Texts are cut into pieces of 1,000 bytes,
//!   8,000 at most. `tools: false` cannot be said of one response and is passed over.
//! - `CancelResponse`: nothing is sent. The stretch ends at once, and what the model says on is thrown away until it pauses for
//!   0.3 s, or for 5 s. A name that we never heard is the call's own for the stretch that nobody asked for. A
//!   request that has no voice yet is over; should one come of it after all, nobody asked for it.
//! - `TruncateItem`, `DeleteItem`: the model is told what was heard, in words, as *thinking*: a quotation where the transcript
//!   is known, seconds where it is not.
//! - `AddContext`: *thinking*. `CommitTurn`: nothing.
//! - `SubmitToolOutput`: to the backend, once the run that called has ended well. Of a run that did not end well
//!   the service refuses outputs; those, and outputs for calls of another session, become *thinking*, and a create that
//!   follows asks the voice to tell the result. A result cannot be given silently: what follows the create will be said.
//!
//! # Who does the work
//!
//! With [`Delegation::Responses`] a backend model has the agent's tools. With [`Delegation::Client`] the model only says that
//! it wants something done. That becomes a call of the one tool that the configuration names, with the caller's words since
//! the last time as its argument `request`; its output is *thinking* and, once the call asks for speech, *commentary* of that
//! delegation. Without a tool the model is told that nothing can be done.
//!
//! [`ResponseCreated`]: vocab::model::ModelEvent::ResponseCreated
//! [`AudioReceived`]: vocab::model::ModelEvent::AudioReceived
//! [`TranscriptReceived`]: vocab::model::ModelEvent::TranscriptReceived
//! [`ResponseEnded`]: vocab::model::ModelEvent::ResponseEnded
//! [`CreateRefused`]: vocab::model::ModelEvent::CreateRefused
//! [`TurnCommitted`]: vocab::model::ModelEvent::TurnCommitted
//! [`CallerTranscript`]: vocab::model::ModelEvent::CallerTranscript

mod callers;
pub mod commands;
pub mod encode;
pub mod requests;
pub mod runs;
pub mod session;
pub mod socket;
pub mod stretches;
pub mod voice;
pub mod wire;

use vocab::model::{Capabilities, Speaks};

/// The model speaks by itself, and nothing that it says can be taken back.
pub const CAPABILITIES: Capabilities =
    Capabilities { speaks: Speaks::ByItself, cancel: false, truncate: false, silent_output: false, turn_events: false };

/// The one argument of the tool that a delegation to us becomes a call of.
pub const REQUEST_ARGUMENT: &str = "request";
/// An account that may not use the model: no retry helps.
const FORBIDDEN: &str = "forbidden";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GptLiveSettings {
    pub delegation: Delegation,
}

/// Who does what the model wants done. Fixed for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delegation {
    /// We do, with this one tool.
    Client { tool: Option<String> },
    /// A backend model with all tools of the agent.
    Responses {
        model: String,
        /// The backend's own; `None` gives it the agent's.
        instructions: Option<String>,
    },
}
