//! Every tunable of the conversation, with its unit and the reason for its default. An operator sets them in an agent's
//! `[policy.*]` tables; a recording carries the policy that it was made under.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    pub turn: TurnPolicy,
    pub playback: PlaybackPolicy,
    pub gate: GatePolicy,
    pub response: ResponsePolicy,
    pub session: SessionPolicy,
    pub idle: IdlePolicy,
    pub claims: ClaimPolicy,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimPolicy {
    /// Words, in lower case, that claim success. Heard in a call in which nothing is committed, they are corrected. Set them in the
    /// agent's language; none turns it off.
    pub words: Vec<String>,
}

impl Default for ClaimPolicy {
    fn default() -> Self {
        let words = [
            "i've booked",
            "i have booked",
            "is booked",
            "has been booked",
            "i've confirmed",
            "i have confirmed",
            "is confirmed",
            "has been confirmed",
            "has been cancelled",
            "has been transferred",
            "has been sent",
            "you're all set",
        ];
        Self { words: words.map(str::to_owned).into() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdlePolicy {
    /// The caller has been silent for so long after our last sound, and nothing is owed: they are asked whether they are there.
    /// 0: never, and no call ends for it.
    pub check_in_after_ms: u32,
    /// So often, each after as long a silence; after one more the agent says goodbye and the call ends.
    pub check_ins: u32,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        // People look for a card or ask somebody in the room for that long.
        Self { check_in_after_ms: 20_000, check_ins: 2 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionPolicy {
    /// Openings in a row before a lost model session is given up and the call with it.
    pub max_openings: u32,
    /// So long before a session expires, the first idle moment is used to change it for another; in the last quarter of it, any.
    pub renew_before_ms: u32,
}

impl Default for SessionPolicy {
    fn default() -> Self {
        Self { max_openings: 2, renew_before_ms: 120_000 }
    }
}

/// Who decides that the caller's turn has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The model's semantic turn detection, as events only.
    #[default]
    Model,
    /// The local voice activity detector and `hangover_ms`; we commit the caller's audio ourselves.
    Local,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TurnPolicy {
    pub end: TurnEnd,
    /// Speech this long is confirmed: shorter is a false start. Must stay under `playback.lead_ms`, or a false start
    /// is audible as a hole.
    pub confirm_ms: u32,
    /// A gap this long inside tentative speech retracts it.
    pub retract_ms: u32,
    /// Silence this long after confirmed speech makes the caller quiet. Shorter gaps are the same utterance.
    pub hangover_ms: u32,
    /// Quieter than this is not speech, whatever the detector says.
    pub floor_dbfs: i8,
    /// The same while our own voice is out: its echo is quieter than a caller, and must not cut it.
    pub floor_over_voice_dbfs: i8,
    /// Speech over our voice is confirmed when it is this long. More than `confirm_ms` lets words of assent ("mm-hm") pass: the
    /// voice pauses for them, for as long as they are longer than the lead, and goes on.
    pub confirm_over_voice_ms: u32,
    /// With `end = "model"`: quiet this long without a word from the model's turn detection closes the turn anyway.
    pub model_end_timeout_ms: u32,
}

impl Default for TurnPolicy {
    fn default() -> Self {
        Self {
            end: TurnEnd::Model,
            confirm_ms: 200,
            retract_ms: 100,
            hangover_ms: 300,
            floor_dbfs: -50,
            // A network gives an echo back at least 25 dB under what was sent, which is about -20.
            floor_over_voice_dbfs: -45,
            confirm_over_voice_ms: 200,
            // Above the slowest semantic detection: about 8 s with eagerness low, 4 s with auto.
            model_end_timeout_ms: 9_000,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlaybackPolicy {
    /// Audio in the carrier's buffer ahead of real time (behaviour.md 3: 400, never under 200).
    pub lead_ms: u32,
    /// Audio in one carrier message: fewer messages against a finer hold.
    pub chunk_ms: u32,
    /// A mark at least this often (behaviour.md 3).
    pub mark_every_ms: u32,
    /// A mark that has not returned this long after its audio must have ended is taken as lost.
    pub mark_grace_ms: u32,
}

impl Default for PlaybackPolicy {
    fn default() -> Self {
        Self { lead_ms: 400, chunk_ms: 100, mark_every_ms: 200, mark_grace_ms: 2_000 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatePolicy {
    /// Silence of both sides before an unasked delivery may start (behaviour.md 5).
    pub quiet_ms: u32,
    /// A delivery is heard when all but this much of its audio is proven (behaviour.md 5).
    pub heard_slack_ms: u32,
    /// Offers of its own accord before a delivery only joins the caller's turns.
    pub max_offers: u32,
}

impl Default for GatePolicy {
    fn default() -> Self {
        Self { quiet_ms: 650, heard_slack_ms: 300, max_offers: 3 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResponsePolicy {
    /// A session that does not even start a response in this time is changed for another.
    pub create_timeout_ms: u32,
    /// A session in which nothing comes of a response for so long is changed for another; so is one that is busy for so long.
    pub stall_timeout_ms: u32,
    /// After a cancel we close our own record this long later, whatever the provider says.
    pub cancel_timeout_ms: u32,
    /// Attempts at one owed answer, the first included.
    pub max_attempts: u32,
    /// Wait before the next attempt; doubles each time.
    pub retry_base_ms: u32,
    /// A model that speaks by itself has this long to answer a turn before it is reminded.
    pub own_answer_ms: u32,
}

impl Default for ResponsePolicy {
    fn default() -> Self {
        Self {
            // A provider says within a fraction of a second that it has begun.
            create_timeout_ms: 5_000,
            stall_timeout_ms: 15_000,
            cancel_timeout_ms: 1_000,
            max_attempts: 3,
            retry_base_ms: 300,
            // Slow answers begin after three seconds, and a backend that thinks first takes longer.
            own_answer_ms: 6_000,
        }
    }
}
