//! A store on the bench: verbs with short names, a clock that is a field, and a directory that goes away.

use operations::admission::CheckedProposal;
use operations::contract::{DeliveryRule, RetryRule, ToolContract};
use operations::history::{Scope, SessionHistory};
use operations::intent::Intent;
use operations::retry::ReconcileRule;
use operations::store::*;
use operations::{AttemptAnswer, Delivery, LookUpAnswer, Operation, SessionEnd, SessionRecord};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::{MemoryStore, SqliteStore};
use vocab::delivery::DeliveryChange;
use vocab::effect::{EffectClass, Priority};
use vocab::{
    AgentId, BatchId, CallSid, CallerId, DeliveryId, OperationId, ProviderCallId, ResponseId, SessionId, StreamSid,
    ToolName, WallTime,
};

pub const RULE: ReconcileRule = ReconcileRule { settle_ms: 5_000, base_ms: 500, cap_ms: 10_000, max_look_ups: 10 };

pub struct TestDir(pub PathBuf);

impl TestDir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("answerback-store-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct Bench {
    pub store: Arc<dyn Store>,
    pub now: WallTime,
    pub intent_fields: Vec<String>,
    pub resource: Option<String>,
    pub stale_after_ms: Option<u64>,
    serial: u32,
    _dir: Option<TestDir>,
}

pub fn offered() -> DeliveryChange {
    DeliveryChange::Offered { attached: false }
}
pub fn committed() -> AttemptAnswer {
    AttemptAnswer::Committed { result: json!({"reference": "B-7"}), provider_ref: Some("B-7".into()) }
}
pub fn unclear() -> AttemptAnswer {
    AttemptAnswer::Unclear { reason: "timeout".into() }
}
pub fn found() -> LookUpAnswer {
    LookUpAnswer::Found { result: json!({"reference": "B-7"}), provider_ref: None }
}

pub fn contract(effect: EffectClass, stale_after_ms: Option<u64>) -> ToolContract {
    ToolContract {
        name: ToolName::new("book"),
        description: String::new(),
        parameters: json!({}),
        effect,
        intent_fields: vec![],
        resource: None,
        deadline_ms: 60_000,
        attempt_timeout_ms: 2_000,
        retry: RetryRule { max_attempts: 3, base_ms: 100, cap_ms: 1_000 },
        inline_wait_ms: 700,
        max_running: 2,
        max_queued: 2,
        delivery: DeliveryRule { priority: Priority::Normal, quiet_ms: None, stale_after_ms },
    }
}

impl Bench {
    fn new(store: Arc<dyn Store>, dir: Option<TestDir>) -> Self {
        Self {
            store,
            now: WallTime(1_000_000),
            intent_fields: vec![],
            resource: None,
            stale_after_ms: None,
            serial: 0,
            _dir: dir,
        }
    }

    pub fn memory() -> Self {
        Self::new(Arc::new(MemoryStore::new()), None)
    }

    pub async fn sqlite() -> Self {
        let dir = TestDir::new();
        Self::new(Arc::new(SqliteStore::open(&dir.0).await.unwrap()), Some(dir))
    }

    pub fn pass(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    fn next(&mut self) -> u32 {
        self.serial += 1;
        self.serial
    }

    pub async fn open(&mut self, call: &str, caller: &str, verified: bool) -> OpenedSession {
        let n = self.next();
        let verb = OpenSession {
            fresh: SessionId(format!("ses_{n:04}")),
            call_sid: CallSid::new(call),
            stream_sid: StreamSid(format!("MZ{n}")),
            caller: CallerId::new(caller),
            caller_verified: verified,
            agent: AgentId::new("host"),
            now: self.now,
        };
        self.store.open_session(verb).await.unwrap()
    }

    pub async fn close(&mut self, s: &SessionRecord, end: SessionEnd) -> Vec<Delivery> {
        let verb = CloseSession { session: s.id.clone(), epoch: s.epoch, end, now: self.now };
        self.store.close_session(verb).await.unwrap()
    }

    pub async fn end_call(&mut self, call: &str, unless_after: Option<u32>) -> Vec<Delivery> {
        let verb = EndCall { call_sid: CallSid(call.into()), unless_after, now: self.now };
        self.store.end_call(verb).await.unwrap()
    }

    pub fn admit(&mut self, s: &SessionRecord, response: u32, effect: EffectClass, arguments: Value) -> Admit {
        let n = self.next();
        let contract = contract(effect, self.stale_after_ms);
        Admit {
            session: s.id.clone(),
            epoch: s.epoch,
            caller: s.caller.clone(),
            agent: s.agent.clone(),
            provider_call: ProviderCallId(format!("call_{n:04}")),
            turn: None,
            response: ResponseId(response),
            checked: CheckedProposal {
                intent: Intent::new(&contract.name, &s.caller, &s.id, &arguments, &self.intent_fields),
                contract,
                arguments,
                resource: self.resource.clone(),
                deadline_at: self.now.plus_ms(60_000),
            },
            operation: OperationId(format!("op_{n:04}")),
            batch: BatchId(format!("bat_{n:04}")),
            requested_at: self.now,
            now: self.now,
        }
    }

    pub async fn propose(&mut self, s: &SessionRecord, response: u32, effect: EffectClass, args: Value) -> Admission {
        let verb = self.admit(s, response, effect, args);
        self.store.admit(verb).await.unwrap()
    }

    pub async fn created(&mut self, s: &SessionRecord, response: u32, effect: EffectClass, args: Value) -> Operation {
        match self.propose(s, response, effect, args).await {
            Admission::Created(operation) => operation,
            other => panic!("{other:?}"),
        }
    }

    pub async fn seal(&mut self, s: &SessionRecord, response: u32) -> Option<Delivery> {
        let verb = SealBatch { session: s.id.clone(), epoch: s.epoch, response: ResponseId(response), now: self.now };
        self.store.seal_batch(verb).await.unwrap()
    }

    pub async fn claim(&mut self) -> Claimed {
        let verb = Claim { free: vec![(ToolName::new("book"), 8)], limit: 8, look_ups: 8, now: self.now };
        self.store.claim(verb).await.unwrap()
    }

    pub async fn claim_requests_only(&mut self) -> Vec<Operation> {
        let verb = Claim { free: vec![(ToolName::new("book"), 8)], limit: 8, look_ups: 0, now: self.now };
        self.store.claim(verb).await.unwrap().requests
    }

    /// Claims one at a time until it is this one, and marks it sent. Others stay running.
    pub async fn claimed(&mut self, id: &OperationId) -> Operation {
        loop {
            let verb = Claim { free: vec![(ToolName::new("book"), 1)], limit: 1, look_ups: 0, now: self.now };
            let operation = self.store.claim(verb).await.unwrap().requests.pop().expect("it can be claimed");
            assert!(matches!(self.mark_sent(&operation).await, MarkedSent::Send(_)));
            if operation.id == *id {
                return operation;
            }
        }
    }

    pub async fn mark_sent(&mut self, operation: &Operation) -> MarkedSent {
        let verb = MarkSent { operation: operation.id.clone(), fence: operation.fence, now: self.now };
        self.store.mark_sent(verb).await.unwrap()
    }

    pub async fn try_finish(&mut self, operation: &Operation, answer: AttemptAnswer) -> Finished {
        let verb = FinishAttempt {
            operation: operation.id.clone(),
            fence: operation.fence,
            answer,
            answered_at: self.now,
            now: self.now,
            random: u32::MAX,
        };
        self.store.finish_attempt(verb).await.unwrap()
    }

    pub async fn finish(&mut self, operation: &Operation, answer: AttemptAnswer) -> Settled {
        match self.try_finish(operation, answer).await {
            Finished::Recorded(settled) => *settled,
            Finished::Stale => panic!("stale"),
        }
    }

    pub async fn answer(&mut self, operation: &Operation, answer: AttemptAnswer) -> Settled {
        let claimed = self.claimed(&operation.id).await;
        self.finish(&claimed, answer).await
    }

    pub async fn commit(&mut self, operation: &Operation) -> Settled {
        self.answer(operation, committed()).await
    }

    /// Takes the one look-up that is due.
    pub async fn look_up(&mut self) -> Operation {
        let verb = Claim { free: vec![], limit: 0, look_ups: 1, now: self.now };
        self.store.claim(verb).await.unwrap().look_ups.pop().expect("a look-up is due")
    }

    pub async fn finish_look_up(&mut self, operation: &Operation, answer: LookUpAnswer) -> Settled {
        let verb = FinishLookUp {
            operation: operation.id.clone(),
            fence: operation.fence,
            answer,
            rule: RULE,
            now: self.now,
            random: 0,
        };
        match self.store.finish_look_up(verb).await.unwrap() {
            Finished::Recorded(settled) => *settled,
            Finished::Stale => panic!("stale"),
        }
    }

    /// A committed operation whose batch has drained.
    pub async fn delivered(&mut self, s: &SessionRecord, response: u32, args: Value) -> Delivery {
        let operation = self.created(s, response, EffectClass::Keyed, args).await;
        assert!(self.seal(s, response).await.is_none());
        self.commit(&operation).await.delivery.unwrap()
    }

    pub async fn save(&mut self, s: &SessionRecord, delivery: &DeliveryId, change: DeliveryChange) -> SavedDelivery {
        let verb =
            SaveDelivery { session: s.id.clone(), epoch: s.epoch, delivery: delivery.clone(), change, now: self.now };
        self.store.save_delivery(verb).await.unwrap()
    }

    pub async fn history(&self, s: &SessionRecord) -> SessionHistory {
        self.store.history(Scope::Session(s.id.clone())).await.unwrap().sessions.pop().unwrap()
    }

    pub async fn operation(&self, s: &SessionRecord, id: &OperationId) -> Operation {
        let history = self.history(s).await;
        history.operations.into_iter().map(|o| o.operation).find(|o| o.id == *id).unwrap()
    }
}
