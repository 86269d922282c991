//! Every tunable of the conversation, with its unit and the reason for its default. An operator sets them in an agent's
//! `[policy.*]` tables; a recording carries the policy that it was made under.

use serde::{Deserialize, Serialize};
use std::fmt;

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

/// What a policy may not be: a number outside its range, or numbers that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault {
    /// What it is about, in the spelling of a config: `playback.lead_ms`. Never empty.
    pub keys: Vec<&'static str>,
    pub what: String,
    /// What would come of it.
    pub why: Option<&'static str>,
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.keys.join("`, `"), self.what)?;
        self.why.map_or(Ok(()), |why| write!(f, ", {why}"))
    }
}

impl std::error::Error for PolicyFault {}

impl Policy {
    /// What the conversation cannot work with, wherever the policy came from: a config, a recording, a wish of the moment.
    /// The defaults have no fault.
    pub fn faults(&self) -> Vec<PolicyFault> {
        let Self { turn, playback, gate, response, session, idle, claims: _ } = self;
        let mut faults = Vec::new();
        for (key, value, low, high) in [
            // behaviour.md 3: 400 by default, never under 200; above 2 s a caller waits for nothing.
            ("playback.lead_ms", playback.lead_ms, 200, 2_000),
            // One frame at least.
            ("playback.chunk_ms", playback.chunk_ms, 20, 1_000),
            ("playback.mark_every_ms", playback.mark_every_ms, 20, 5_000),
            ("playback.mark_grace_ms", playback.mark_grace_ms, 100, 60_000),
            // behaviour.md 5: 650 by default. Shorter is a breath, not a silence; longer is never reached.
            ("gate.quiet_ms", gate.quiet_ms, 200, 10_000),
            ("gate.heard_slack_ms", gate.heard_slack_ms, 0, 2_000),
            ("gate.max_offers", gate.max_offers, 1, 100),
            ("turn.confirm_ms", turn.confirm_ms, 20, 2_000),
            ("turn.confirm_over_voice_ms", turn.confirm_over_voice_ms, 20, 5_000),
            ("turn.retract_ms", turn.retract_ms, 20, 2_000),
            ("turn.hangover_ms", turn.hangover_ms, 20, 5_000),
            ("turn.model_end_timeout_ms", turn.model_end_timeout_ms, 500, 60_000),
            ("response.create_timeout_ms", response.create_timeout_ms, 500, 60_000),
            ("response.cancel_timeout_ms", response.cancel_timeout_ms, 100, 60_000),
            ("response.stall_timeout_ms", response.stall_timeout_ms, 1_000, 120_000),
            ("response.max_attempts", response.max_attempts, 1, 100),
            ("response.retry_base_ms", response.retry_base_ms, 10, 60_000),
            ("response.own_answer_ms", response.own_answer_ms, 1_000, 60_000),
            ("idle.check_in_after_ms", idle.check_in_after_ms, 0, 600_000),
            ("idle.check_ins", idle.check_ins, 0, 100),
            ("session.max_openings", session.max_openings, 0, 100),
            // A provider's session lasts an hour at most.
            ("session.renew_before_ms", session.renew_before_ms, 1_000, 1_800_000),
        ] {
            if !(low..=high).contains(&value) {
                let what = format!("must be from {low} to {high}, not {value}");
                faults.push(PolicyFault { keys: vec![key], what, why: None });
            }
        }
        for (key, floor) in
            [("turn.floor_dbfs", turn.floor_dbfs), ("turn.floor_over_voice_dbfs", turn.floor_over_voice_dbfs)]
        {
            if !(-96..=0).contains(&floor) {
                let what = format!("must be from -96 to 0, not {floor}");
                faults.push(PolicyFault { keys: vec![key], what, why: None });
            }
        }
        if turn.confirm_ms >= playback.lead_ms {
            faults.push(PolicyFault {
                keys: vec!["turn.confirm_ms", "playback.lead_ms"],
                what: format!("confirm_ms ({}) must stay under lead_ms ({})", turn.confirm_ms, playback.lead_ms),
                why: Some("or a false start is heard as a hole in the agent's speech"),
            });
        }
        if playback.chunk_ms > playback.lead_ms {
            faults.push(PolicyFault {
                keys: vec!["playback.chunk_ms", "playback.lead_ms"],
                what: format!("chunk_ms ({}) must not be above lead_ms ({})", playback.chunk_ms, playback.lead_ms),
                why: None,
            });
        }
        faults
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_have_no_fault() {
        assert_eq!(Policy::default().faults(), []);
    }

    #[test]
    fn a_number_outside_its_range_is_named_with_the_range() {
        let mut policy = Policy::default();
        policy.playback.chunk_ms = 0;
        policy.turn.floor_dbfs = 1;
        let told: Vec<String> = policy.faults().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            ["`playback.chunk_ms`: must be from 20 to 1000, not 0", "`turn.floor_dbfs`: must be from -96 to 0, not 1"]
        );
    }

    #[test]
    fn numbers_that_do_not_fit_together_are_named_both() {
        let mut policy = Policy::default();
        policy.turn.confirm_ms = 400;
        policy.playback.chunk_ms = 500;
        let faults = policy.faults();
        assert_eq!(faults[0].keys, ["turn.confirm_ms", "playback.lead_ms"]);
        assert_eq!(faults[1].keys, ["playback.chunk_ms", "playback.lead_ms"]);
        assert!(faults[0].to_string().contains("false start"), "{}", faults[0]);
        assert_eq!(faults.len(), 2);
    }

    #[test]
    fn every_number_of_the_policy_has_a_range() {
        let Ok(serde_json::Value::Object(parts)) = serde_json::to_value(Policy::default()) else { panic!("no object") };
        for (part, fields) in &parts {
            for (field, value) in fields.as_object().unwrap() {
                let Some(number) = value.as_i64() else { continue };
                // The far end of what the field can hold is in no range.
                let far = if number < 0 { -128_i64 } else { i64::from(u32::MAX) };
                let mut bent = serde_json::to_value(Policy::default()).unwrap();
                bent[part][field] = far.into();
                let policy: Policy = serde_json::from_value(bent).unwrap();
                let key = format!("{part}.{field}");
                assert!(policy.faults().iter().any(|fault| fault.keys == [key.as_str()]), "{key} may be {far}");
            }
        }
    }
}
