//! What the conversation wants done. Imperative; carried out in order by the call's driver.

use crate::decision::Decision;
use crate::owed::AgentState;
use serde::{Deserialize, Serialize};
use vocab::model::ModelCommand;
use vocab::work::WorkCommand;
use vocab::{MarkName, PlaybackId, Samples};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Keep the audio that has just come in as `playback`, from sample `from` on. Audio without this is not wanted.
    KeepAudio {
        playback: PlaybackId,
        from: Samples,
    },
    /// Send these samples to the carrier; a last part frame is padded with silence.
    SendAudio {
        playback: PlaybackId,
        from: Samples,
        to: Samples,
    },
    SendMark {
        mark: MarkName,
    },
    /// Empty the carrier's buffer.
    ClearPlayback,
    /// No more of this playback's audio will be sent.
    ReleaseAudio {
        playback: PlaybackId,
    },
    Model(ModelCommand),
    /// Open another model session in the place of the one before, which is lost or not wanted any more.
    OpenModel,
    Work(WorkCommand),
    PublishState {
        state: AgentState,
    },
    /// A value for a histogram of behaviour.md 9.
    Measure {
        measure: Measure,
        ms: u32,
    },
    /// Close the carrier's stream.
    CloseStream {
        reason: CloseReason,
    },
    /// Why something was or was not done.
    Explain(Decision),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// End of the caller's speech to the first audio of what answers it.
    SpeechStopToAcceptanceAudio,
    /// Confirmed speech to the clear, as the core sees it: the detector's share is in the confirmation length.
    BargeInToPlaybackStop,
    DeliveryReadyToFirstAudio,
    /// Delivery ready to mark evidence that it was heard.
    CommitToAudibleAcknowledgement,
    /// Generated but not heard, at a clear.
    CancelledResponseUnheard,
    /// How far generation ran ahead of the ear when a response ended.
    GeneratedToPlayedGap,
}

impl Measure {
    /// The histogram's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpeechStopToAcceptanceAudio => "speech_stop_to_acceptance_audio_ms",
            Self::BargeInToPlaybackStop => "barge_in_to_playback_stop_ms",
            Self::DeliveryReadyToFirstAudio => "delivery_ready_to_first_audio_ms",
            Self::CommitToAudibleAcknowledgement => "commit_to_audible_acknowledgement_ms",
            Self::CancelledResponseUnheard => "cancelled_response_unheard_ms",
            Self::GeneratedToPlayedGap => "generated_to_played_gap_ms",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// Drained: nothing is left to say.
    Drained,
    /// The caller did not answer, and was told goodbye.
    CallerAway,
    /// The model is gone; the carrier's TwiML tail brings the call back to us for a new model session.
    ModelLost { reason: String },
    /// The model stands and does not answer, nor does another session of it: the caller is told so, and coming back would
    /// not help.
    ModelSilent { reason: String },
    /// The model provider will not serve us (quota, key): coming back would not help.
    ModelRefused { code: String },
}
