//! The realtime model of one stream: answers what it is asked, mostly, some time, somehow.

use super::engine::World;
use super::plan::{Fault, Goal};
use super::queue::{Event, MS, Micros};
use conversation::Input;
use std::collections::BTreeMap;
use vocab::model::{Capabilities, ModelCommand, ModelEvent, ResponseEnd};
use vocab::{ModelItemId, ModelResponseId, ProviderCallId, ResponseId, Samples};

/// One generation.
#[derive(Debug)]
pub struct Generation {
    /// `None`: nobody asked.
    pub request: Option<ResponseId>,
    over: bool,
}

#[derive(Debug, Default)]
pub struct Model {
    pub ready: bool,
    /// Only one generation at a time.
    active: Option<ModelResponseId>,
    pub generations: BTreeMap<ModelResponseId, Generation>,
    pub goals: Vec<Goal>,
    pub last_got: Micros,
    /// What was sent before this went to a session that is gone.
    reopened: Micros,
    last_response: ModelResponseId,
    last_item: ModelItemId,
    last_call: u32,
}

impl Model {
    pub fn next_item(&mut self) -> ModelItemId {
        self.last_item = self.last_item.next();
        self.last_item
    }

    /// Whose audio this is.
    pub fn request_of(&self, response: ModelResponseId) -> Option<ResponseId> {
        self.generations.get(&response)?.request
    }
}

const TOOLS: [&str; 6] = ["book", "find", "pay", "transfer", "alarm", "order"];

impl World {
    pub fn model_got(&mut self, n: usize, command: ModelCommand) {
        // What was asked before the session was ready waited in the driver; a session that is gone hears nothing.
        if !self.streams[n].is_running() || self.now < self.streams[n].model.reopened {
            return;
        }
        match command {
            ModelCommand::CreateResponse { response, directions, tools } => {
                self.create(n, response, directions.is_some(), tools);
            }
            ModelCommand::CancelResponse { response } => self.cancel(n, response),
            ModelCommand::CommitTurn => self.commit_turn(n),
            ModelCommand::TruncateItem { .. }
            | ModelCommand::DeleteItem { .. }
            | ModelCommand::SubmitToolOutput { .. }
            | ModelCommand::AddContext { .. }
            | ModelCommand::AddHistory { .. } => {}
        }
    }

    fn says(&mut self, n: usize, at: Micros, of: Option<ModelResponseId>, event: ModelEvent) {
        self.queue.at(at, Event::ModelSays { stream: n, of, event });
    }

    pub fn model_says(&mut self, n: usize, of: Option<ModelResponseId>, event: ModelEvent) {
        if !self.streams[n].is_running() {
            return;
        }
        if matches!(event, ModelEvent::ResponseCreated { request: None, .. }) && !self.streams[n].truth.asks_nothing() {
            // Without an echo of our metadata it could not be told from the one that we wait for (see the module's head).
            return self.forget(n, of);
        }
        let model = &mut self.streams[n].model;
        model.ready |= event == ModelEvent::SessionReady;
        if let Some(of) = of {
            match model.generations.get_mut(&of) {
                Some(generation) if !generation.over => {
                    if matches!(event, ModelEvent::ResponseEnded { .. }) {
                        generation.over = true;
                        if model.active == Some(of) {
                            model.active = None;
                        }
                    }
                }
                Some(_) | None => return,
            }
        }
        self.step(n, Input::Model(event));
        let idle = self.streams[n].model.active.is_none();
        if idle && self.faults.has(Fault::Unasked) && self.chance.percent(1) && self.streams[n].truth.asks_nothing() {
            self.generate(n, None, false);
        }
    }

    /// The driver opens another session, which mostly works.
    pub fn reopen_model(&mut self, n: usize) {
        let at = self.now + self.chance.between(80, 900) * MS;
        let fails = self.chance.percent(15);
        let model = &mut self.streams[n].model;
        model.ready = false;
        model.active = None;
        model.generations.values_mut().for_each(|generation| generation.over = true);
        model.reopened = at;
        model.last_got = at;
        self.streams[n].truth.session_lost();
        if fails {
            return self.says(n, at, None, ModelEvent::SessionLost { reason: "refused".into() });
        }
        self.says(n, at, None, ModelEvent::SessionOpened { capabilities: Capabilities::default() });
        let ready = at + self.chance.between(5, 60) * MS;
        self.says(n, ready, None, ModelEvent::SessionReady);
    }

    fn forget(&mut self, n: usize, of: Option<ModelResponseId>) {
        let model = &mut self.streams[n].model;
        model.active = None;
        if let Some(generation) = of.and_then(|of| model.generations.get_mut(&of)) {
            generation.over = true;
        }
    }

    fn create(&mut self, n: usize, response: ResponseId, directed: bool, tools: bool) {
        let soon = self.now + self.chance.between(5, 60) * MS;
        let busy_now = self.streams[n].model.active.is_some();
        let moody = self.faults.has(Fault::BusyModel) && self.chance.percent(15);
        if busy_now || moody {
            let busy = busy_now || self.chance.percent(60);
            let refused = ModelEvent::CreateRefused { request: response, busy, message: "no".into() };
            return self.says(n, soon, None, refused);
        }
        if self.faults.has(Fault::LostCreate) && self.chance.percent(5) {
            return;
        }
        let talks_only = directed && self.chance.percent(20);
        self.generate(n, Some(response), tools && !talks_only);
    }

    fn generate(&mut self, n: usize, request: Option<ResponseId>, tools: bool) {
        let faults = self.faults;
        let mut at = self.now + self.chance.between(30, 900) * MS;
        let model = &mut self.streams[n].model;
        model.last_response = model.last_response.next();
        let response = model.last_response;
        model.generations.insert(response, Generation { request, over: false });
        model.active = Some(response);
        let item = model.next_item();
        let of = Some(response);
        if !(faults.has(Fault::Unannounced) && request.is_some() && self.chance.percent(15)) {
            self.says(n, at, of, ModelEvent::ResponseCreated { response, request });
        }
        if faults.has(Fault::ErrorAfterCreated) && self.chance.percent(8) {
            at += self.chance.between(1, 100) * MS;
            let (code, message) = ("server_error".to_owned(), String::new());
            self.says(n, at, of, ModelEvent::ErrorReported { code: code.clone(), message, fatal: false });
            let end = ResponseEnd::Failed { code };
            return self.says(n, at + MS, of, ModelEvent::ResponseEnded { response, request, end });
        }
        let fails = faults.has(Fault::FailingModel) && self.chance.percent(20);
        let silent = faults.has(Fault::SilentModel) && self.chance.percent(12);
        let calls = tools && !self.streams[n].model.goals.is_empty();
        let cut_short = fails && self.chance.percent(50);
        let speaks = !silent && !cut_short && (!calls || self.chance.percent(30));
        if speaks {
            at = self.speaks(n, response, item, at);
        }
        if calls && !silent && !fails {
            at = self.calls_tools(n, response, at);
        }
        at += self.chance.between(1, 60) * MS;
        if faults.has(Fault::Stuck) && request.is_some() && self.chance.percent(5) {
            return;
        }
        let end = if fails {
            ResponseEnd::Failed { code: "server_error".into() }
        } else if faults.has(Fault::IncompleteModel) && self.chance.percent(12) {
            ResponseEnd::Incomplete { reason: "max_output_tokens".into() }
        } else {
            ResponseEnd::Completed
        };
        self.says(n, at, of, ModelEvent::ResponseEnded { response, request, end });
    }

    /// Audio in odd pieces, faster than real time, and a transcript that comes when it comes. Returns when it is done.
    fn speaks(&mut self, n: usize, response: ModelResponseId, item: ModelItemId, begins: Micros) -> Micros {
        let mut at = begins + self.chance.between(20, 400) * MS;
        let mut left = self.chance.pick(&[300, 700, 1_500, 2_500, 4_500]) * 8 + self.chance.below(2_000);
        let mut item = item;
        let of = Some(response);
        while left > 0 {
            let piece = (self.chance.below(5_000) + 333).min(left);
            left -= piece;
            let samples = Samples(piece as u32);
            self.says(n, at, of, ModelEvent::AudioReceived { response, item, samples });
            let text = "some words ".to_owned();
            let late = if self.faults.has(Fault::LateTranscripts) { self.chance.between(0, 3_000) * MS } else { 0 };
            self.says(n, at + late, None, ModelEvent::TranscriptReceived { response, item, text });
            if self.chance.percent(4) {
                item = self.streams[n].model.next_item();
            }
            at += self.chance.between(2, 120) * MS;
        }
        at
    }

    fn calls_tools(&mut self, n: usize, response: ModelResponseId, begins: Micros) -> Micros {
        let mut at = begins + self.chance.between(20, 300) * MS;
        let nonsense = self.faults.has(Fault::ToolNonsense);
        let goals = std::mem::take(&mut self.streams[n].model.goals);
        let mut calls: Vec<(String, String)> = Vec::new();
        for goal in goals {
            let Goal::Ask { tool, n: number } = goal else { continue };
            let name = TOOLS[tool];
            let arguments = match self.chance.below(20) {
                0 => format!(r#"{{"n": {number}.0 }}"#),
                1 => format!(r#"{{"n":{number},"note":"  none "}}"#),
                2 => format!(r#"{{"n":{number},"note":"urgent"}}"#),
                _ => format!(r#"{{"n":{number}}}"#),
            };
            calls.push((name.to_owned(), arguments.clone()));
            if nonsense {
                match self.chance.below(8) {
                    0 => calls.push((name.to_owned(), arguments)),
                    1 => calls.push((name.to_owned(), "{".to_owned())),
                    2 => calls.push(("fly".to_owned(), "{}".to_owned())),
                    3 => calls.push((name.to_owned(), r#"{"n":"many"}"#.to_owned())),
                    4 => calls.extend(std::iter::repeat_n((name.to_owned(), arguments), 9)),
                    _ => {}
                }
            }
            if self.chance.percent(15) {
                let other = self.chance.pick(&TOOLS).to_owned();
                calls.push((other, format!(r#"{{"n":{}}}"#, self.chance.below(3))));
            }
        }
        for (name, arguments) in calls {
            let model = &mut self.streams[n].model;
            model.last_call += 1;
            let provider_call = ProviderCallId(format!("call_{n}_{}", model.last_call));
            let call = ModelEvent::ToolCallReceived { response, provider_call, name, arguments };
            self.says(n, at, Some(response), call);
            at += self.chance.between(0, 200) * MS;
        }
        at
    }

    fn cancel(&mut self, n: usize, request: ResponseId) {
        let model = &mut self.streams[n].model;
        let found = model.generations.iter().rev().find(|(_, made)| made.request == Some(request) && !made.over);
        let Some((response, _)) = found.map(|(id, made)| (*id, made)) else { return };
        if self.faults.has(Fault::LostCancel) && self.chance.percent(25) {
            // It stops, and never says so.
            if let Some(generation) = model.generations.get_mut(&response) {
                generation.over = true;
            }
            model.active = None;
            return;
        }
        let late = self.faults.has(Fault::LateCancel) && self.chance.percent(40);
        let wait = if late { self.chance.between(800, 4_000) } else { self.chance.between(5, 120) } * MS;
        let (request, end) = (Some(request), ResponseEnd::Cancelled);
        self.says(n, self.now + wait, Some(response), ModelEvent::ResponseEnded { response, request, end });
    }
}
