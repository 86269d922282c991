//! What can happen to a conversation. Past tense: it has happened.

use serde::{Deserialize, Serialize};
use vocab::model::ModelEvent;
use vocab::work::WorkEvent;
use vocab::{MarkName, Samples, VoiceEvidence};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    CallStarted {
        /// Directions for the first response; `None`: the caller speaks first.
        greeting: Option<String>,
    },
    CallerAudio {
        samples: Samples,
        evidence: VoiceEvidence,
    },
    MarkReturned {
        mark: MarkName,
    },
    DtmfPressed {
        digit: char,
    },
    /// The carrier ended the stream, or its socket is gone.
    StreamEnded,
    Model(ModelEvent),
    Work(WorkEvent),
    /// The server wants the call to end: nothing new is started, and the stream closes when the voice is silent.
    DrainRequested,
    /// Nothing but time.
    TimePassed,
}
