//! The systems of record behind the tools, outside of every process of ours: they keep what took effect under which key,
//! lose answers, refuse, and answer questions.

use super::chance::Chance;
use super::plan::{Fault, Faults};
use operations::contract::{DeliveryRule, RetryRule, ToolContract};
use operations::{AttemptAnswer, LookUpAnswer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use vocab::effect::{EffectClass, Priority};
use vocab::{IntentKey, OperationId, ToolName};

/// One of each effect class, an urgent one, and one whose news grows old.
pub fn contracts() -> Vec<ToolContract> {
    let tool = |name: &str, effect| ToolContract {
        name: ToolName::new(name),
        description: String::new(),
        parameters: json!({
            "type": "object",
            "properties": { "n": { "type": "integer" }, "note": { "type": "string", "default": "none" } },
            "required": ["n"],
            "additionalProperties": false,
        }),
        effect,
        intent_fields: Vec::new(),
        resource: None,
        deadline_ms: 12_000,
        attempt_timeout_ms: 2_500,
        retry: RetryRule { max_attempts: 3, base_ms: 150, cap_ms: 1_500 },
        inline_wait_ms: 700,
        max_running: 2,
        max_queued: 3,
        delivery: DeliveryRule { priority: Priority::Normal, quiet_ms: None, stale_after_ms: None },
    };
    let mut find = tool("find", EffectClass::Read);
    find.delivery.stale_after_ms = Some(9_000);
    let mut transfer = tool("transfer", EffectClass::Lookup);
    transfer.resource = Some("account:{/n}".into());
    transfer.inline_wait_ms = 100;
    let mut alarm = tool("alarm", EffectClass::Keyed);
    alarm.delivery = DeliveryRule { priority: Priority::Urgent, quiet_ms: Some(200), stale_after_ms: Some(30_000) };
    alarm.max_running = 1;
    // The note is no part of its intent: the same with another note joins the first.
    let mut order = tool("order", EffectClass::Lookup);
    order.intent_fields = vec!["n".into()];
    order.deadline_ms = 5_000;
    vec![tool("book", EffectClass::Keyed), find, tool("pay", EffectClass::Opaque), transfer, alarm, order]
}

/// A request or a question that has left our process.
#[derive(Clone, Debug)]
pub struct Request {
    pub life: u32,
    pub worker: u64,
    pub operation: OperationId,
    pub key: IntentKey,
    pub effect: EffectClass,
    pub look_up: bool,
    /// The answer is sent after the effect; otherwise it is lost.
    pub answers: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ToolAnswer {
    Request(AttemptAnswer),
    LookUp(LookUpAnswer),
}

/// What the backend makes of a request when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Acts { after_ms: u64, answers: bool },
    Refuses,
    FailsCleanly,
    FailsUnclearly { acts: bool },
    IsLost,
}

#[derive(Default)]
pub struct Backend {
    effects: BTreeMap<IntentKey, u32>,
    refused: BTreeMap<IntentKey, ()>,
}

impl Backend {
    pub fn effects(&self, key: &IntentKey) -> u32 {
        self.effects.get(key).copied().unwrap_or_default()
    }

    pub fn fate(&self, faults: Faults, chance: &mut Chance) -> Fate {
        let slow = if faults.has(Fault::SlowBackend) && chance.percent(40) { 3_000 } else { 400 };
        let after_ms = chance.between(5, slow);
        match chance.below(100) {
            0..=14 if faults.has(Fault::LostAnswers) => Fate::Acts { after_ms, answers: false },
            15..=24 if faults.has(Fault::LostAnswers) => Fate::IsLost,
            25..=39 if faults.has(Fault::LateEffects) => {
                Fate::Acts { after_ms: chance.between(2_400, 3_400), answers: chance.percent(50) }
            }
            40..=54 if faults.has(Fault::BackendErrors) => Fate::FailsCleanly,
            55..=64 if faults.has(Fault::BackendErrors) => Fate::FailsUnclearly { acts: chance.percent(50) },
            65..=79 if faults.has(Fault::Refusals) => Fate::Refuses,
            _ => Fate::Acts { after_ms, answers: true },
        }
    }

    /// Takes effect, as far as its own keys allow, and says so.
    pub fn act(&mut self, request: &Request) -> AttemptAnswer {
        if request.effect == EffectClass::Keyed && self.refused.contains_key(&request.key) {
            return AttemptAnswer::Refused { result: json!({ "reason": "full" }) };
        }
        let count = self.effects.entry(request.key.clone()).or_default();
        if request.effect != EffectClass::Keyed || *count == 0 {
            *count += 1;
        }
        AttemptAnswer::Committed { result: self.record(&request.key), provider_ref: None }
    }

    /// Refuses, unless it has happened already under this key.
    pub fn refuse(&mut self, request: &Request) -> AttemptAnswer {
        if request.effect == EffectClass::Keyed && self.effects(&request.key) > 0 {
            return self.act(request);
        }
        if request.effect == EffectClass::Keyed {
            self.refused.insert(request.key.clone(), ());
        }
        AttemptAnswer::Refused { result: json!({ "reason": "full" }) }
    }

    pub fn look_up(&self, request: &Request) -> LookUpAnswer {
        match (request.effect, self.effects(&request.key)) {
            (EffectClass::Read | EffectClass::Opaque, _) => LookUpAnswer::CannotAsk,
            (EffectClass::Keyed | EffectClass::Lookup, 0) => LookUpAnswer::Absent,
            (EffectClass::Keyed | EffectClass::Lookup, _) => {
                LookUpAnswer::Found { result: self.record(&request.key), provider_ref: None }
            }
        }
    }

    fn record(&self, key: &IntentKey) -> Value {
        // The key makes the words of each outcome its own.
        json!({ "reference": &key.as_str()[key.as_str().len().saturating_sub(12)..] })
    }
}
