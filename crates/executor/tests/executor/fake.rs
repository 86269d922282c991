//! A system of record that plays a script and remembers what it was asked.

use executor::{RegisteredTool, SessionOpening};
use operations::contract::{DeliveryRule, RetryRule, ToolContract};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tools::{BoxFuture, LookUp, Tool, ToolOutcome, ToolRequest};
use vocab::delivery::{DeliveryBrief, DeliveryChange};
use vocab::effect::{EffectClass, Priority};
use vocab::work::{Proposal, WorkCommand};
use vocab::{AgentId, CallSid, CallerId, ProviderCallId, ResponseId, SaveId, StreamSid, ToolCallId, ToolName};

pub enum Script {
    Answer { after_ms: u64, outcome: ToolOutcome },
    Hang,
    Panic,
}

pub fn commits(reference: &str) -> Script {
    let outcome = ToolOutcome::Committed { result: json!({ "reference": reference }), provider_ref: None };
    Script::Answer { after_ms: 0, outcome }
}
pub fn unclear() -> Script {
    Script::Answer { after_ms: 0, outcome: ToolOutcome::Unclear { reason: "reset".into() } }
}
pub fn retryable() -> Script {
    Script::Answer { after_ms: 0, outcome: ToolOutcome::Retryable { reason: "503".into() } }
}
pub fn after(after_ms: u64, script: Script) -> Script {
    match script {
        Script::Answer { outcome, .. } => Script::Answer { after_ms, outcome },
        other => other,
    }
}
pub fn found(reference: &str) -> LookUp {
    LookUp::Found { result: json!({ "reference": reference }), provider_ref: None }
}

#[derive(Default)]
struct Record {
    script: VecDeque<Script>,
    look_ups: VecDeque<LookUp>,
    asked: usize,
    requests: Vec<ToolRequest>,
    now: u32,
    most: u32,
}

#[derive(Clone, Default)]
pub struct FakeTool {
    record: Arc<Mutex<Record>>,
}

impl FakeTool {
    pub fn answering(script: impl IntoIterator<Item = Script>) -> Self {
        let tool = Self::default();
        tool.record.lock().unwrap().script.extend(script);
        tool
    }
    pub fn looking_up(self, answers: impl IntoIterator<Item = LookUp>) -> Self {
        self.record.lock().unwrap().look_ups.extend(answers);
        self
    }
    pub fn calls(&self) -> usize {
        self.record.lock().unwrap().requests.len()
    }
    pub fn look_ups(&self) -> usize {
        self.record.lock().unwrap().asked
    }
    pub fn most_at_once(&self) -> u32 {
        self.record.lock().unwrap().most
    }
    pub fn requests(&self) -> Vec<ToolRequest> {
        self.record.lock().unwrap().requests.clone()
    }
    pub fn registered(&self, name: &str, effect: EffectClass) -> RegisteredTool {
        let contract = ToolContract {
            name: ToolName::new(name),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
            effect,
            intent_fields: vec![],
            resource: None,
            deadline_ms: 30_000,
            attempt_timeout_ms: 2_000,
            retry: RetryRule { max_attempts: 4, base_ms: 100, cap_ms: 1_000 },
            inline_wait_ms: 700,
            max_running: 4,
            max_queued: 8,
            delivery: DeliveryRule { priority: Priority::Normal, quiet_ms: None, stale_after_ms: None },
        };
        RegisteredTool { contract, tool: Arc::new(self.clone()) }
    }
}

impl Tool for FakeTool {
    fn run(&self, request: ToolRequest) -> BoxFuture<'_, ToolOutcome> {
        let step = {
            let mut record = self.record.lock().unwrap();
            record.requests.push(request);
            record.now += 1;
            record.most = record.most.max(record.now);
            record.script.pop_front()
        };
        Box::pin(async move {
            let outcome = match step {
                Some(Script::Answer { after_ms, outcome }) => {
                    if after_ms > 0 {
                        // Virtual time: how long the system of record takes.
                        tokio::time::sleep(Duration::from_millis(after_ms)).await;
                    }
                    outcome
                }
                Some(Script::Hang) => std::future::pending().await,
                Some(Script::Panic) => panic!("as the script says"),
                None => ToolOutcome::Unclear { reason: "asked more often than the script says".into() },
            };
            self.record.lock().unwrap().now -= 1;
            outcome
        })
    }

    fn look_up(&self, _: ToolRequest) -> Option<BoxFuture<'_, LookUp>> {
        let mut record = self.record.lock().unwrap();
        record.asked += 1;
        let answer = record.look_ups.pop_front()?;
        Some(Box::pin(async move { answer }))
    }
}

pub fn opening(call: &str, caller: &str, verified: bool) -> SessionOpening {
    SessionOpening {
        call_sid: CallSid::new(call),
        stream_sid: StreamSid::new("MZ1"),
        caller: CallerId::new(caller),
        caller_verified: verified,
        agent: AgentId::new("host"),
        tools: ["book", "pay", "slow", "quick"].map(ToolName::new).to_vec(),
    }
}

pub fn propose(call: u32, response: u32, tool: &str, arguments: Value) -> WorkCommand {
    WorkCommand::Propose(Proposal {
        tool_call: ToolCallId(call),
        provider_call: ProviderCallId(format!("call_{call}_{response}")),
        tool: tool.into(),
        arguments: arguments.to_string(),
        turn: None,
        response: ResponseId(response),
    })
}

pub fn save(save: u32, brief: &DeliveryBrief, change: DeliveryChange) -> WorkCommand {
    WorkCommand::SaveDelivery { save: SaveId(save), delivery: brief.delivery.clone(), change }
}
