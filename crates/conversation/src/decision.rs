//! Why something was or was not done: for the log, the live view and the recording. Nothing is decided here.

use crate::gate::{GateDecision, GateReason};
use crate::playback::{MarkVerdict, PlaybackEnd};
use crate::response::Purpose;
use crate::snapshot::Snapshot;
use crate::turn::TurnEndedBy;
use serde::{Deserialize, Serialize};
use vocab::delivery::DeliveryChange;
use vocab::model::ResponseEnd;
use vocab::{AudioMs, DeliveryId, MarkName, ResponseId, ToolCallId, TurnId};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The caller began to make a sound; our voice is held while it may be speech.
    SpeechTentative {
        held: bool,
    },
    /// It was none.
    SpeechRetracted {
        resumed: bool,
    },
    SpeechConfirmed,
    SpeechEnded,
    TurnOpened {
        turn: TurnId,
    },
    TurnClosed {
        turn: TurnId,
        by: TurnEndedBy,
    },
    CallerSaid {
        turn: TurnId,
        text: String,
    },
    /// The caller cut in: the voice stops, no operation does (R5).
    BargedIn {
        responses: Vec<ResponseId>,
        unheard: AudioMs,
    },
    MarkJudged {
        mark: MarkName,
        verdict: MarkVerdict,
    },
    PlaybackEnded(PlaybackEnd),
    ResponsePlanned {
        response: ResponseId,
        purpose: Purpose,
        turn: Option<TurnId>,
        deliveries: Vec<DeliveryId>,
    },
    ResponseSounds {
        response: ResponseId,
    },
    ResponseEnded {
        response: ResponseId,
        end: ResponseEnd,
    },
    /// The provider would not start it; the debt stays.
    ResponseRefused {
        response: ResponseId,
        busy: bool,
    },
    /// An owed answer could not be had within its attempts.
    AnswerAbandoned {
        response: ResponseId,
    },
    /// Audio or a tool call came for a response that is no longer wanted.
    LateForResponse {
        response: Option<ResponseId>,
        what: LatePart,
    },
    ToolCallDropped {
        tool: String,
        reason: DropReason,
    },
    ToolCallProposed {
        tool_call: ToolCallId,
        tool: String,
    },
    GateJudged {
        delivery: DeliveryId,
        decision: GateDecision,
        reason: GateReason,
        snapshot: Snapshot,
    },
    /// Between the durable offer and the voice the moment passed.
    OfferWithdrawn {
        delivery: DeliveryId,
        reason: GateReason,
    },
    DeliveryChanged {
        delivery: DeliveryId,
        change: DeliveryChange,
    },
    DeliveryTakenOver {
        delivery: DeliveryId,
        reason: String,
    },
    /// It is asked for again in a while.
    SaveFailed {
        delivery: DeliveryId,
        reason: String,
    },
    /// The caller heard of success in a call in which nothing is committed.
    ClaimUnfounded {
        response: ResponseId,
        claim: String,
    },
    /// Another model session is opened.
    SessionLost {
        reason: String,
    },
    /// The call's so-manieth model session was told what came before.
    SessionRestored {
        number: u32,
    },
    ModelComplained {
        code: String,
        message: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatePart {
    Audio,
    ToolCall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The response was cut by the caller before it could propose.
    ResponseCancelled,
    /// One response proposed more calls than are allowed.
    TooManyCalls,
}
