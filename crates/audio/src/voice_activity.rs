//! Evidence of voice in caller audio. A detector says what it hears in a stretch; whether that is a turn, how long a pause
//! may be and how quiet speech may be is judged by the turn tracker, which replays exactly.

use crate::cascade::Cascade;
use crate::earshot::Earshot;
use crate::webrtc::Webrtc;
use serde::{Deserialize, Serialize};
use vocab::VoiceEvidence;

/// Listens to one call. Not shared: it learns the line.
pub trait VoiceActivity: Send {
    /// Takes the next stretch of 8 kHz linear samples, of any length (20 ms normally, none is allowed). `speech` is true
    /// when any window that ended inside this stretch was speech; a stretch too short to end a window repeats the last
    /// word. `level_dbfs` is of this stretch alone.
    fn hear(&mut self, samples: &[i16]) -> VoiceEvidence;

    /// Forgets the call: the next stretch is the first.
    fn reset(&mut self);
}

/// How willing the WebRTC detector is to reject. The library's own four modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggressiveness {
    Quality,
    LowBitrate,
    Aggressive,
    /// Least false speech; the mode that our measurements were made in.
    #[default]
    VeryAggressive,
}

/// Which detector listens, as an operator chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Detector {
    /// Gaussian mixtures over 20 ms, 1 to 2 µs a frame. Fast onset; calls hum, tones and loud noise speech.
    Webrtc {
        #[serde(default)]
        mode: Aggressiveness,
    },
    /// A small recurrent network over 16 ms, about 10 µs a frame. Ignores steady noise; tones and music still pass.
    Earshot {
        /// Scores at and above this are speech.
        #[serde(default = "network_threshold")]
        threshold: f32,
    },
    /// WebRTC's where it is quiet; where that fires, an ear for tones, and earshot's network to vouch. About 2 µs a frame of
    /// a call. No turn from tones, hum, clicks or noise below the voice; music passes.
    Cascade {
        /// Scores at and above this vouch for a voice.
        #[serde(default = "network_threshold")]
        threshold: f32,
    },
}

/// The advice of the network's author.
pub const NETWORK_THRESHOLD: f32 = 0.5;

fn network_threshold() -> f32 {
    NETWORK_THRESHOLD
}

impl Default for Detector {
    fn default() -> Self {
        Self::Cascade { threshold: NETWORK_THRESHOLD }
    }
}

impl Detector {
    /// A fresh listener for one call. Takes well under a millisecond, earshot's warming included.
    pub fn open(self) -> Box<dyn VoiceActivity> {
        match self {
            Self::Webrtc { mode } => Box::new(Webrtc::new(mode)),
            Self::Earshot { threshold } => Box::new(Earshot::new(threshold)),
            Self::Cascade { threshold } => Box::new(Cascade::new(threshold)),
        }
    }
}
