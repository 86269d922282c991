//! What happened on a simulated call, as the caller and the carrier saw it. Times are µs since the call was dialled.

use super::playout::HeardSpan;
use serde::Serialize;

/// Everything that a verdict may ask of the caller's side.
#[derive(Clone, Debug, Serialize)]
pub struct CallResult {
    pub call_sid: String,
    pub end: CallEnd,
    pub ended_us: u64,
    pub streams: Vec<StreamRecord>,
    /// What sounded in the caller's ear, in unbroken spans.
    pub heard: Vec<HeardSpan>,
    pub marks: Vec<MarkRecord>,
    pub clears: Vec<ClearRecord>,
    /// Audio that came while a sound was still being made but its queue had run dry.
    pub underruns: Vec<Underrun>,
    pub violations: Vec<Violation>,
    pub timeline: Vec<TimelineEvent>,
    /// Steps (from 1) whose wait ran out.
    pub timed_out_steps: Vec<usize>,
    /// Audio that the server sent, in bytes of μ-law.
    pub received_bytes: u64,
    /// Frames of caller audio that went out.
    pub sent_frames: u64,
    /// What the caller said, with its place on the time axis.
    pub said: Vec<SaidSpan>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// The script hung up, or was at its end.
    CallerHungUp,
    /// The caller's connection broke.
    CallerDropped,
    /// The server's document said `<Hangup/>` or `<Reject/>`.
    ServerHungUp,
    /// The server's document had nothing further, which hangs up.
    DocumentEnded,
    /// A webhook could not be fetched or understood (11200, 12100): the call ends.
    WebhookFailed { reason: String },
    /// The call reached its longest time.
    TooLong,
}

#[derive(Clone, Debug, Serialize)]
pub struct StreamRecord {
    pub stream_sid: String,
    pub url: String,
    pub parameters: Vec<(String, String)>,
    pub opened_us: u64,
    pub closed_us: Option<u64>,
    /// The close code, when the server closed with one.
    pub close_code: Option<u16>,
    /// Twilio's error of this stream: 31902, 31920 …
    pub error: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub struct MarkRecord {
    pub name: String,
    pub received_us: u64,
    /// When the echo went out; `None` when it never did.
    pub returned_us: Option<u64>,
    /// Its audio was thrown away by `clear`. The echo does not say so; the record does.
    pub cleared: bool,
    /// Swallowed by a fault.
    pub swallowed: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct ClearRecord {
    pub at_us: u64,
    /// Queued audio that was thrown away.
    pub dropped_ms: u64,
    /// Marks that it returned.
    pub marks: usize,
    /// How long the caller had been speaking, when they were.
    pub caller_spoke_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Underrun {
    pub at_us: u64,
    pub gap_ms: u64,
}

/// A message that Twilio would complain of, with the code of its debugger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub at_us: u64,
    pub code: u32,
    pub detail: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct SaidSpan {
    pub at_us: u64,
    pub file: String,
    #[serde(skip)]
    pub mulaw: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineEvent {
    pub at_us: u64,
    pub what: Happened,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    Dialled,
    DocumentReceived {
        url: String,
        verbs: usize,
    },
    FetchFailed {
        url: String,
        reason: String,
    },
    StreamOpened {
        stream_sid: String,
    },
    StreamFailed {
        code: u32,
        reason: String,
    },
    StreamClosed {
        code: Option<u16>,
    },
    StepStarted {
        step: usize,
        what: String,
    },
    StepDone {
        step: usize,
        timed_out: bool,
    },
    CallerSpeaks {
        file: String,
    },
    CallerSilent,
    /// The caller hears the agent, after silence.
    AgentAudible,
    AgentSilent,
    MarkReceived {
        name: String,
    },
    MarkReturned {
        name: String,
        cleared: bool,
    },
    MarkSwallowed {
        name: String,
    },
    ClearReceived {
        dropped_ms: u64,
        marks: usize,
    },
    DigitSent {
        digit: char,
    },
    /// Words or sound that Twilio itself would play.
    CarrierSpeaks {
        text: String,
    },
    ViolationSeen {
        code: u32,
    },
    CallEnded,
}

impl CallResult {
    /// Audio that the caller heard, in milliseconds.
    pub fn heard_ms(&self) -> u64 {
        self.heard.iter().map(|span| span.mulaw.len() as u64 / 8).sum()
    }

    /// What the caller heard on one time axis from the dialling on, silence included: 8 kHz μ-law.
    pub fn heard_track(&self) -> Vec<u8> {
        track(self.ended_us, self.heard.iter().map(|span| (span.at_us, span.mulaw.as_slice())))
    }

    /// What the caller said, on the same axis.
    pub fn said_track(&self) -> Vec<u8> {
        track(self.ended_us, self.said.iter().map(|span| (span.at_us, span.mulaw.as_slice())))
    }
}

fn track<'a>(ended_us: u64, spans: impl Iterator<Item = (u64, &'a [u8])>) -> Vec<u8> {
    let mut track = vec![0xff; (ended_us / 125) as usize];
    for (at_us, mulaw) in spans {
        let from = (at_us / 125) as usize;
        let upto = (from + mulaw.len()).min(track.len());
        if from < upto {
            track[from..upto].copy_from_slice(&mulaw[..upto - from]);
        }
    }
    track
}
