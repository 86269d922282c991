//! One thing to be shown on the time axis, in the lane of its clock.

use serde::Serialize;

/// The clocks of a call, and who keeps each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lane {
    /// The caller's voice.
    Caller,
    /// What the model generates.
    Model,
    /// What the server sends to the carrier.
    Sent,
    /// What sounds in the caller's ear.
    Heard,
    /// The durable operation and the system of record.
    Work,
    /// The gate: may the news be told?
    Gate,
}

impl Lane {
    pub const ALL: [Self; 6] = [Self::Caller, Self::Model, Self::Sent, Self::Heard, Self::Work, Self::Gate];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Model => "model",
            Self::Sent => "sent",
            Self::Heard => "heard",
            Self::Work => "work",
            Self::Gate => "gate",
        }
    }

    /// SGR colour.
    pub const fn colour(self) -> &'static str {
        match self {
            Self::Caller => "36",
            Self::Model => "35",
            Self::Sent => "34",
            Self::Heard => "32",
            Self::Work => "33",
            Self::Gate => "95",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tone {
    Plain,
    Good,
    /// Something was cut or hurt, on purpose or not.
    Cut,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Moment {
    /// Since the first call was dialled.
    pub at_us: u64,
    pub lane: Lane,
    /// The lane's clock starts or stops running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    pub tone: Tone,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Moment {
    pub fn says(at_us: u64, lane: Lane, text: impl Into<String>) -> Self {
        Self { at_us, lane, active: None, tone: Tone::Plain, text: Some(text.into()) }
    }

    pub fn turns(at_us: u64, lane: Lane, active: bool) -> Self {
        Self { at_us, lane, active: Some(active), tone: Tone::Plain, text: None }
    }

    #[must_use]
    pub fn turning(mut self, active: bool) -> Self {
        self.active = Some(active);
        self
    }

    #[must_use]
    pub fn in_tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }
}
