//! What the call asks of a Live session.

use super::encode::{self, Append, TEXT_BYTES, pieces};
use super::requests::Stage;
use super::runs::{Submitted, Unasked};
use super::session::{KnownResult, LiveSession};
use super::stretches::NotHeard;
use vocab::model::{ModelCommand, ResponseEnd, Speaker};
use vocab::{AudioMs, ModelItemId, ResponseId};

/// Commentary is something to say, so an order is put as one that is to be carried out now.
const NOW: &str = "Do this now, without waiting for the caller to speak:";
const ANSWER_NOW: &str = "Answer the caller now, without waiting for them to speak.";
/// Of an answer that is on its way without having been asked for.
const ANSWERING: &str = "For the answer that you are about to give:";
const RESULT_NOW: &str = "Tell the caller the result now, without waiting for them to speak.";

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obeyed {
    Yes,
    /// The service has no such thing, or it is over.
    NothingToDo,
    /// Longer than anything that is worth saying; it was cut.
    Shortened,
}

impl LiveSession {
    pub fn command(&mut self, now_ms: u64, command: &ModelCommand) -> Obeyed {
        self.now_ms = now_ms;
        match command {
            // The service hears for itself where a turn ends.
            ModelCommand::CommitTurn => Obeyed::NothingToDo,
            // Whether the backend may call tools cannot be said of one response.
            ModelCommand::CreateResponse { response, directions, tools: _ } => {
                self.create(*response, directions.as_deref())
            }
            ModelCommand::CancelResponse { response } => self.cancel(*response),
            ModelCommand::TruncateItem { item, audio_end } => self.not_heard(*item, *audio_end),
            ModelCommand::DeleteItem { item } => self.not_heard(*item, AudioMs(0)),
            ModelCommand::SubmitToolOutput { provider_call, output } => self.submit(provider_call.as_str(), output),
            ModelCommand::AddContext { text } => self.append(Append::Thinking, None, text, "context"),
            ModelCommand::AddHistory { speaker, text } => {
                let whose = match speaker {
                    Speaker::Caller => "Earlier in this call the caller said: ",
                    Speaker::Agent => "Earlier in this call you said: ",
                    Speaker::Application => "",
                };
                self.append(Append::Thinking, None, &format!("{whose}{text}"), "history")
            }
        }
    }

    fn create(&mut self, request: ResponseId, directions: Option<&str>) -> Obeyed {
        if let Some(unasked) = self.runs.adopt_unasked(request) {
            self.ask(
                request,
                match unasked {
                    Unasked::Running => Stage::Running,
                    Unasked::Answered => Stage::Speakable,
                },
            );
            // To be asked for it again would make it be told twice.
            return match directions {
                Some(directions) => {
                    self.append(Append::Thinking, None, &format!("{ANSWERING} {directions}"), "direction")
                }
                None => Obeyed::Yes,
            };
        }
        if self.runs.is_due() {
            if self.runs.may_continue() {
                self.continue_with(request, directions);
                return Obeyed::Yes;
            }
            // The service takes a batch whole. What is to be said beside it can be said meanwhile; a mere answer waits.
            if directions.is_none() || !self.runs.has_unanswered_calls() {
                let directions = directions.map(str::to_owned);
                self.ask(request, Stage::Deferred { directions });
                return Obeyed::Yes;
            }
        } else if directions.is_none()
            && let Some(before) = self.requests.continuing()
        {
            // It is asked again for what is being worked on.
            self.adopt(before, request);
            return Obeyed::Yes;
        }
        let delegation = match self.known_result.take() {
            Some(KnownResult::Delegation(delegation)) => Some(Some(delegation)),
            Some(KnownResult::Session) => Some(None),
            None => None,
        };
        let text = match (directions, &delegation) {
            (Some(directions), _) => format!("{NOW} {directions}"),
            (None, Some(_)) => RESULT_NOW.to_owned(),
            (None, None) => ANSWER_NOW.to_owned(),
        };
        self.ask(request, Stage::Appended);
        self.append(Append::Commentary, delegation.flatten().as_deref(), &text, &format!("create-{request}"))
    }

    /// Sends what became due, if the service would take it now.
    pub(super) fn continue_if_due(&mut self) {
        if self.runs.may_continue()
            && let Some((request, directions)) = self.requests.deferred()
        {
            self.continue_with(request, directions.as_deref());
        }
    }

    fn continue_with(&mut self, request: ResponseId, directions: Option<&str>) {
        for piece in pieces(directions.unwrap_or_default()) {
            let id = self.event_id("direction");
            self.say_to_service(encode::backend_direction(piece, &id));
        }
        let id = self.event_id(&format!("create-{request}"));
        self.say_to_service(encode::response_create(&id));
        self.runs.continued(request);
        if self.requests.is_at(request).is_some() {
            self.requests.moves(request, Stage::Continuing, self.now_ms);
        } else {
            self.ask(request, Stage::Continuing);
        }
    }

    fn adopt(&mut self, before: ResponseId, after: ResponseId) {
        let Some(stage) = self.requests.settle(before) else { return };
        self.runs.adopt(before, Some(after));
        self.tell_end_without_voice(before, ResponseEnd::Cancelled);
        self.ask(after, stage);
    }

    fn ask(&mut self, request: ResponseId, stage: Stage) {
        if let Some(forgotten) = self.requests.ask(request, stage, self.now_ms) {
            self.tell_end_without_voice(forgotten, ResponseEnd::Cancelled);
        }
    }

    /// The service has no cancel: what it says on is kept from the caller.
    fn cancel(&mut self, request: ResponseId) -> Obeyed {
        if self.requests.settle(request).is_some() {
            self.runs.adopt(request, None);
            self.tell_end_without_voice(request, ResponseEnd::Cancelled);
            return Obeyed::Yes;
        }
        let knows = self.requests.knows(request);
        let Some(stretch) = self.stretches.open() else { return Obeyed::NothingToDo };
        // A name that is not ours is the call's own for the voice that nobody asked for.
        if stretch.request != Some(request) && (knows || stretch.request.is_some()) {
            return Obeyed::NothingToDo;
        }
        self.end_stretch(ResponseEnd::Cancelled);
        self.voice.discard();
        Obeyed::Yes
    }

    fn not_heard(&mut self, item: ModelItemId, heard: AudioMs) -> Obeyed {
        match self.stretches.not_heard(item, heard) {
            NotHeard::Say(text) => self.append(Append::Thinking, None, &text, "heard"),
            NotHeard::Unknown | NotHeard::NothingNew => Obeyed::NothingToDo,
        }
    }

    fn submit(&mut self, call: &str, output: &str) -> Obeyed {
        if let Some(at) = self.delegations.iter().position(|delegation| delegation == call) {
            // Progress may be followed by more, so the delegation stays known.
            let delegation = self.delegations[at].clone();
            self.known_result = Some(KnownResult::Delegation(delegation.clone()));
            return self.append(Append::Thinking, Some(&delegation), output, "output");
        }
        match self.runs.submit(call, output) {
            Submitted::Send => {
                let id = self.event_id("output");
                self.say_to_service(encode::tool_output(call, output, &id));
                self.continue_if_due();
                Obeyed::Yes
            }
            Submitted::Kept => Obeyed::Yes,
            Submitted::NoRun { tool } => self.let_voice_know(tool.as_deref().unwrap_or("a tool"), output),
            Submitted::Repeated => Obeyed::NothingToDo,
        }
    }

    /// A result that no run takes any more is still true: the voice is to know it.
    pub(super) fn let_voice_know(&mut self, tool: &str, output: &str) -> Obeyed {
        self.known_result = Some(KnownResult::Session);
        self.append(Append::Thinking, None, &format!("The result of {tool}: {output}"), "output")
    }

    /// In as many pieces as the service wants; the last one bears `what`, so that its answer is that of the whole.
    fn append(&mut self, how: Append, delegation: Option<&str>, text: &str, what: &str) -> Obeyed {
        let pieces = pieces(text);
        let last = pieces.len().saturating_sub(1);
        for (n, piece) in pieces.into_iter().enumerate() {
            let id = self.event_id(if n == last { what } else { "piece" });
            self.say_to_service(encode::append(how, delegation, piece, &id));
        }
        if text.len() > TEXT_BYTES { Obeyed::Shortened } else { Obeyed::Yes }
    }
}
