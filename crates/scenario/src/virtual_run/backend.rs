//! The booking system in virtual time. It is no part of the server's process: what it has begun it finishes, whoever died.

use crate::events::Event;
use crate::file::{BackendRule, Scenario};
use crate::setup::BackendRules;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tools::{BoxFuture, LookUp, Tool, ToolOutcome, ToolRequest};
use vocab::effect::EffectClass;

/// As `sim::booking`: the recorded confirmation says "B seven".
const FIRST_NUMBER: usize = 7;

#[derive(Clone, Debug)]
struct Booking {
    key: String,
    arguments: Value,
}

impl Booking {
    fn result(&self, number: usize) -> Value {
        json!({ "reference": reference(number), "key": self.key, "details": self.arguments })
    }
}

fn reference(number: usize) -> String {
    format!("B-{}", number + FIRST_NUMBER)
}

#[derive(Debug)]
struct State {
    zero: Instant,
    rules: BackendRules,
    bookings: Vec<Booking>,
    /// To be made then.
    begun: Vec<(Instant, Booking, bool)>,
    events: Vec<Event>,
    /// So many look-ups are still to be turned away.
    refused_look_ups: u32,
}

impl State {
    /// Makes what is due by now.
    fn advance(&mut self) {
        let now = Instant::now();
        self.begun.sort_by_key(|(at, _, _)| *at);
        while self.begun.first().is_some_and(|(at, _, _)| *at <= now) {
            let (at, booking, ignore_keys) = self.begun.remove(0);
            if ignore_keys || self.find(&booking.key).is_none() {
                let at_us = at.duration_since(self.zero).as_micros() as u64;
                self.events.push(Event { at_us, name: "backend_committed", text: reference(self.bookings.len()) });
                self.bookings.push(booking);
            }
        }
    }

    fn find(&self, key: &str) -> Option<usize> {
        // The newest: without keys, each request made its own.
        self.bookings.iter().rposition(|booking| booking.key == key)
    }
}

/// Shared by every life of the server.
#[derive(Clone, Debug)]
pub struct Backend {
    state: Arc<Mutex<State>>,
}

impl Backend {
    pub fn new(scenario: &Scenario, zero: Instant) -> Self {
        let rules = BackendRules::new(scenario);
        let state =
            State { zero, rules, bookings: Vec::new(), begun: Vec::new(), events: Vec::new(), refused_look_ups: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain values, whole between statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happened since the last time.
    pub fn news(&self) -> Vec<Event> {
        let mut state = self.state();
        state.advance();
        std::mem::take(&mut state.events)
    }

    pub fn refuse_look_ups(&self, count: u32) {
        self.state().refused_look_ups = count;
    }

    /// Whether this one is turned away.
    fn refuses_look_up(&self) -> bool {
        let mut state = self.state();
        let left = state.refused_look_ups.checked_sub(1);
        state.refused_look_ups = left.unwrap_or_default();
        left.is_some()
    }

    pub fn next(&self) -> Option<Instant> {
        self.state().begun.iter().map(|(at, _, _)| *at).min()
    }

    pub fn keys(&self) -> Vec<Option<String>> {
        self.state().bookings.iter().map(|booking| Some(booking.key.clone())).collect()
    }

    pub fn tool(&self, effect: EffectClass, can_be_asked: bool) -> VirtualTool {
        VirtualTool { backend: self.clone(), effect, can_be_asked }
    }

    fn arrives(&self, request: &ToolRequest) -> BackendRule {
        let mut state = self.state();
        state.advance();
        let at_us = Instant::now().duration_since(state.zero).as_micros() as u64;
        state.events.push(Event { at_us, name: "backend_request", text: request.arguments.to_string() });
        state.rules.take(&request.arguments)
    }

    async fn book(&self, request: ToolRequest) -> ToolOutcome {
        let rule = self.arrives(&request);
        if rule.error {
            return ToolOutcome::Unclear { reason: "500: the booking system stumbled".into() };
        }
        let commits_at = Instant::now() + Duration::from_millis(rule.commit_ms);
        let key = request.key.0.clone();
        if rule.refuse {
            sleep_until(commits_at).await;
            let result = json!({"error": "no_table", "message": "no table is free at that time"});
            return ToolOutcome::Refused { result };
        }
        let booking = Booking { key: key.clone(), arguments: request.arguments };
        self.state().begun.push((commits_at, booking, rule.ignore_keys));
        sleep_until(commits_at).await;
        self.state().advance();
        if rule.lose_answer {
            return ToolOutcome::Unclear { reason: "the connection was lost before the answer".into() };
        }
        tokio::time::sleep(Duration::from_millis(rule.answer_ms)).await;
        match self.found(&key) {
            Some((result, provider_ref)) => ToolOutcome::Committed { result, provider_ref: Some(provider_ref) },
            None => ToolOutcome::Unclear { reason: "the booking is not in the books".into() },
        }
    }

    fn found(&self, key: &str) -> Option<(Value, String)> {
        let mut state = self.state();
        state.advance();
        let number = state.find(key)?;
        Some((state.bookings[number].result(number), reference(number)))
    }

    async fn question(&self, request: ToolRequest) -> ToolOutcome {
        let rule = self.arrives(&request);
        tokio::time::sleep(Duration::from_millis(rule.commit_ms)).await;
        let state = self.state();
        let bookings: Vec<_> = state.bookings.iter().enumerate().map(|(n, booking)| booking.result(n)).collect();
        ToolOutcome::Committed { result: json!({ "bookings": bookings }), provider_ref: None }
    }
}

pub struct VirtualTool {
    backend: Backend,
    effect: EffectClass,
    can_be_asked: bool,
}

impl Tool for VirtualTool {
    fn run(&self, request: ToolRequest) -> BoxFuture<'_, ToolOutcome> {
        let limit = request.timeout;
        Box::pin(async move {
            let outcome = match self.effect {
                EffectClass::Read => timeout(limit, self.backend.question(request)).await,
                EffectClass::Keyed | EffectClass::Lookup | EffectClass::Opaque => {
                    timeout(limit, self.backend.book(request)).await
                }
            };
            match (outcome, self.effect) {
                (Ok(outcome), _) => outcome,
                (Err(_), EffectClass::Read) => ToolOutcome::Retryable { reason: "no answer in time".into() },
                (Err(_), EffectClass::Keyed | EffectClass::Lookup | EffectClass::Opaque) => {
                    ToolOutcome::Unclear { reason: "no answer in time".into() }
                }
            }
        })
    }

    fn look_up(&self, request: ToolRequest) -> Option<BoxFuture<'_, LookUp>> {
        self.can_be_asked.then(|| -> BoxFuture<'_, LookUp> {
            Box::pin(async move {
                if self.backend.refuses_look_up() {
                    return LookUp::Unanswered { reason: "401: this caller may not ask".into() };
                }
                match self.backend.found(&request.key.0) {
                    Some((result, provider_ref)) => LookUp::Found { result, provider_ref: Some(provider_ref) },
                    None => LookUp::Absent,
                }
            })
        })
    }
}
