//! The router: takes an input, hands it to the clock that owns it, and lets the consequences settle (`speak.rs`).

use crate::command::{CloseReason, Command, Measure};
use crate::deadline::{Deadline, Deadlines};
use crate::decision::{Decision, DropReason, LatePart};
use crate::gate::GateReason;
use crate::history::History;
use crate::idle::Idle;
use crate::input::Input;
use crate::owed::{AgentState, Owed};
use crate::pending::PendingDeliveries;
use crate::playback::{EndedPlayback, PlaybackClock};
use crate::policy::Policy;
use crate::response::{Ended, Fruitless, Purpose, Response, ResponseClock};
use crate::session::Session;
use crate::turn::TurnTracker;
use crate::work::{Output, SoFar, Telling, WorkClock};
use vocab::delivery::DeliveryChange;
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::work::{Proposal, WorkCommand, WorkEvent};
use vocab::{CallTime, MarkName, ModelItemId, ModelResponseId, ResponseId, Samples};

/// Tool calls that one response may propose; a model in a loop must end (cases 3.7 of models.md).
const MAX_CALLS_A_RESPONSE: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Closes at the next silent moment with nothing owed.
    Draining,
    Closed,
}

pub struct Conversation {
    pub(crate) policy: Policy,
    pub(crate) now: CallTime,
    pub(crate) phase: Phase,
    pub(crate) session: Session,
    pub(crate) idle: Idle,
    pub(crate) turn: TurnTracker,
    pub(crate) responses: ResponseClock,
    pub(crate) playback: PlaybackClock,
    pub(crate) work: WorkClock,
    pub(crate) owed: Owed,
    pub(crate) pending: PendingDeliveries,
    pub(crate) history: History,
    pub(crate) deadlines: Deadlines,
    pub(crate) published: AgentState,
    /// The open turn cut our voice: somebody waits for us to go on.
    pub(crate) cut_by_turn: bool,
}

impl Conversation {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: CallTime(0),
            phase: Phase::Open,
            session: Session::default(),
            idle: Idle::default(),
            turn: TurnTracker::new(),
            responses: ResponseClock::default(),
            playback: PlaybackClock::default(),
            work: WorkClock::default(),
            owed: Owed::default(),
            pending: PendingDeliveries::default(),
            history: History::default(),
            deadlines: Deadlines::default(),
            published: AgentState::Listening,
            cut_by_turn: false,
        }
    }

    /// When the driver must step again if nothing else happens.
    pub fn next_deadline(&self) -> Option<CallTime> {
        self.deadlines.next()
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    pub fn agent_state(&self) -> AgentState {
        self.published
    }

    /// Tentative speech counts.
    pub fn caller_is_speaking(&self) -> bool {
        self.turn.caller_is_speaking()
    }

    /// Speaking, tentatively too, or a turn of theirs is open: what the line carries now must not wait.
    pub fn caller_has_the_floor(&self) -> bool {
        self.turn.caller_is_speaking() || self.turn.open_turn().is_some()
    }

    /// The stream is over; nothing more will be commanded.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Takes one input at its time. `at` never runs backwards; an earlier one is taken as now.
    pub fn step(&mut self, at: CallTime, input: Input, out: &mut Vec<Command>) {
        self.now = self.now.max(at);
        if self.phase == Phase::Closed {
            return self.step_closed(input);
        }
        let mut moved = self.fire_deadlines(out);
        if self.phase == Phase::Closed {
            return self.step_closed(input);
        }
        moved |= match input {
            Input::CallerAudio { samples, evidence } => self.caller_audio(samples, evidence, out),
            Input::CallStarted { greeting } => {
                self.owed.greeting = greeting;
                true
            }
            Input::MarkReturned { mark } => self.mark_returned(mark, out),
            Input::DtmfPressed { digit } => {
                self.caller_is_back();
                self.key_pressed(digit, out);
                true
            }
            Input::StreamEnded => {
                self.stream_ended(out);
                false
            }
            Input::Model(event) => self.model_event(event, out),
            Input::Work(event) => self.work_event(event, out),
            Input::DrainRequested => {
                self.phase = Phase::Draining;
                true
            }
            Input::TimePassed => false,
        };
        if moved && self.phase != Phase::Closed {
            self.settle(out);
        }
    }

    /// After the stream only the executor's word can still matter: nothing to say it to.
    fn step_closed(&mut self, input: Input) {
        if let Input::Work(WorkEvent::Saved { save }) = input {
            self.pending.saved(save);
        }
    }

    fn fire_deadlines(&mut self, out: &mut Vec<Command>) -> bool {
        let mut moved = false;
        while let Some(deadline) = self.deadlines.take_due(self.now) {
            moved = true;
            match deadline {
                // The pump runs, and the gate judges, when the step settles.
                Deadline::SendDue
                | Deadline::QuietOver
                | Deadline::OutputWait
                | Deadline::RenewalDue
                | Deadline::OwnAnswer
                | Deadline::IdleOver
                | Deadline::AnswerWait
                | Deadline::DeliveryStale
                | Deadline::SaveOverdue => {}
                Deadline::MarkLost => self.playback.give_up_marks(self.now, &self.policy.playback),
                Deadline::FenceLost => self.playback.give_up_fence(),
                Deadline::ModelTurnEnd => self.turn_timed_out(out),
                Deadline::CreateTimeout => self.session_gives_no_answer("the model does not begin a response", out),
                Deadline::CancelTimeout => {
                    if let Some(ended) = self.responses.close_cancelled() {
                        self.response_ended(ended, out);
                    }
                }
                Deadline::GenerationStalled => self.session_gives_no_answer("the model fell silent in a response", out),
                Deadline::SaveRetry => out.extend(self.pending.save_again(self.now).into_iter().map(Command::Work)),
                Deadline::RetryDue => self.responses.retry_now(),
                Deadline::InlineWait => {
                    let outputs = self.work.accept_overdue(self.now);
                    self.submit(outputs, out);
                }
            }
        }
        moved
    }

    // ---- the response clock ---------------------------------------------------------------------------------------------

    fn model_event(&mut self, event: ModelEvent, out: &mut Vec<Command>) -> bool {
        match event {
            ModelEvent::SessionOpened { capabilities } => {
                self.session_opened(capabilities);
                return false;
            }
            ModelEvent::SessionReady => self.session_ready(out),
            ModelEvent::SessionExpires { after_ms } => self.session_expires(after_ms),
            // The local detector is faster and is the one that is judged.
            ModelEvent::SpeechStarted | ModelEvent::SpeechStopped => return false,
            ModelEvent::TurnCommitted { item } => self.model_committed(item, out),
            ModelEvent::CallerTranscript { item, text } => {
                if let Some(turn) = self.history.caller_transcript(item, &text) {
                    out.push(Command::Explain(Decision::CallerSaid { turn, text }));
                }
                return false;
            }
            ModelEvent::ResponseCreated { response, request: None } if self.model_speaks_by_itself() => {
                self.responses.began_of_itself(self.now, response);
            }
            ModelEvent::ResponseCreated { response, request } => {
                self.responses.created(self.now, response, request);
            }
            ModelEvent::AudioReceived { response, item, samples } => self.audio_received(response, item, samples, out),
            ModelEvent::TranscriptReceived { response, text, .. } => {
                if let Some(id) = self.responses.by_model(response).filter(|id| self.responses.is_wanted(*id)) {
                    self.history.agent_text(id, &text);
                }
                return false;
            }
            ModelEvent::ToolCallReceived { response, provider_call, name, arguments } => {
                self.tool_call_received(response, Proposed { provider_call, name, arguments }, out);
            }
            ModelEvent::ResponseEnded { response, request, end } => {
                if let Some(ended) = self.responses.ended(response, request, end) {
                    self.response_ended(ended, out);
                }
                // Whoever was refused because of this one may try again.
                self.responses.retry_if_busy();
            }
            ModelEvent::CreateRefused { request, busy, .. } => self.create_refused(request, busy, out),
            ModelEvent::ErrorReported { code, message, fatal } => {
                out.push(Command::Explain(Decision::ModelComplained { code: code.clone(), message }));
                if fatal {
                    self.close_stream(CloseReason::ModelRefused { code }, out);
                }
                return fatal;
            }
            ModelEvent::SessionLost { reason } => self.session_lost(reason, out),
        }
        true
    }

    fn audio_received(&mut self, model: ModelResponseId, item: ModelItemId, samples: Samples, out: &mut Vec<Command>) {
        // Only a response that was announced is heard: what comes for a forgotten one belongs to nobody.
        let Some(id) = self.responses.by_model(model) else { return };
        let Some(response) = self.responses.get_mut(id) else { return };
        let new_item = !response.items.contains(&item);
        if new_item {
            response.items.push(item);
        }
        if response.cancelled_at.is_some() {
            if !std::mem::replace(&mut response.late, true) {
                out.push(Command::Explain(Decision::LateForResponse { response: Some(id), what: LatePart::Audio }));
            }
            if new_item {
                // Nothing of it was heard, so the model must not remember it (R6).
                out.push(Command::Model(ModelCommand::DeleteItem { item }));
            }
            return;
        }
        response.last_word = self.now;
        let first = !std::mem::replace(&mut response.sounded, true);
        response.silent = false;
        let of_itself = response.purpose == Purpose::OfItself;
        let (playback, from) = self.playback.receive(id, item, samples);
        out.push(Command::KeepAudio { playback, from });
        if first {
            self.first_audio(id, out);
            // While the caller has the floor it is no answer to what they have not said yet.
            if of_itself && self.turn.open_turn().is_none() {
                self.answered_of_itself();
            }
            self.session.bears_fruit();
        }
    }

    fn first_audio(&mut self, id: ResponseId, out: &mut Vec<Command>) {
        out.push(Command::Explain(Decision::ResponseSounds { response: id }));
        let Some(response) = self.responses.get(id) else { return };
        if matches!(response.purpose, Purpose::Reply | Purpose::Acknowledge | Purpose::Prod | Purpose::OfItself)
            && let Some(ended_at) = self.owed.turn_ended_at.take()
        {
            out.push(measure(Measure::SpeechStopToAcceptanceAudio, self.now.ms_since(ended_at)));
        }
        for delivery in &response.deliveries {
            if let Some(pending) = self.pending.get(delivery) {
                out.push(measure(Measure::DeliveryReadyToFirstAudio, self.now.ms_since(pending.ready_at)));
            }
        }
    }

    fn tool_call_received(&mut self, model: ModelResponseId, call: Proposed, out: &mut Vec<Command>) {
        let id = self.responses.by_model(model);
        let refusal = match id.and_then(|id| self.responses.get_mut(id)) {
            Some(response) if response.cancelled_at.is_none() => {
                response.proposed_calls += 1;
                response.last_word = self.now;
                (response.proposed_calls > MAX_CALLS_A_RESPONSE).then_some(DropReason::TooManyCalls)
            }
            Some(_) | None => Some(DropReason::ResponseCancelled),
        };
        match (id, refusal) {
            (Some(id), None) => self.propose(id, call, out),
            (_, reason) => {
                let reason = reason.unwrap_or(DropReason::ResponseCancelled);
                let why = match reason {
                    DropReason::ResponseCancelled => "the caller went on speaking before this was said",
                    DropReason::TooManyCalls => "too many tool calls at once",
                };
                // Every call gets exactly one output, also one that is not taken.
                let output = format!(r#"{{"status":"not_run","reason":"{why}","effect":"nothing was done"}}"#);
                let provider_call = call.provider_call;
                out.push(Command::Model(ModelCommand::SubmitToolOutput { provider_call, output }));
                out.push(Command::Explain(Decision::ToolCallDropped { tool: call.name, reason }));
            }
        }
    }

    fn propose(&mut self, response: ResponseId, call: Proposed, out: &mut Vec<Command>) {
        let turn = self.responses.get(response).and_then(|response| response.turn).or(self.turn.latest_turn());
        if self.responses.get(response).is_some_and(|response| response.purpose == Purpose::OfItself) {
            self.answered_of_itself();
        }
        let tool_call = self.work.propose(self.now, response, call.provider_call.clone(), call.name.clone());
        out.push(Command::Explain(Decision::ToolCallProposed { tool_call, tool: call.name.clone() }));
        out.push(Command::Work(WorkCommand::Propose(Proposal {
            tool_call,
            provider_call: call.provider_call,
            tool: call.name,
            arguments: call.arguments,
            turn,
            response,
        })));
    }

    fn response_ended(&mut self, ended: Ended, out: &mut Vec<Command>) {
        let id = ended.response;
        let whole = ended.end == ResponseEnd::Completed;
        let Some(response) = self.close_books(ended, out) else { return };
        let fruitless = !response.sounded && response.proposed_calls == 0;
        if response.cancelled_at.is_none() && fruitless {
            match response.purpose {
                // They answered nobody.
                Purpose::OfItself | Purpose::CheckIn | Purpose::Farewell => {}
                Purpose::Reply if self.model_speaks_by_itself() && response.turn.is_none() => {
                    out.push(Command::Explain(Decision::AnswerAbandoned { response: id }));
                    self.results_met_silence(&response.deliveries);
                }
                _ if whole => self.owe_again(id, &response, Fruitless::Silent, out),
                _ => self.owe_again(id, &response, Fruitless::Failed, out),
            }
        } else if response.cancelled_at.is_none() {
            self.responses.succeeded();
        }
        self.responses.forget_if_over(id);
    }

    /// Its batch is sealed, its sound is all there is, and what it was to tell without a sound is untold. Returns it as it was.
    fn close_books(&mut self, ended: Ended, out: &mut Vec<Command>) -> Option<Response> {
        let Ended { response: id, end } = ended;
        let whole = end == ResponseEnd::Completed;
        out.push(Command::Explain(Decision::ResponseEnded { response: id, end }));
        if self.work.seal(id) {
            out.push(Command::Work(WorkCommand::SealBatch { response: id }));
        }
        if let Some(behind) = self.playback.complete(self.now, id, whole) {
            out.push(measure(Measure::GeneratedToPlayedGap, u64::from(behind.ms().0)));
        }
        let response = self.responses.get(id).cloned()?;
        if !response.sounded {
            self.history.never_sounded(id);
            let why =
                if response.cancelled_at.is_none() { GateReason::NothingCame } else { GateReason::CallerSpeaking };
            for delivery in &response.deliveries {
                self.withdraw(delivery, why, out);
            }
        }
        Some(response)
    }

    fn create_refused(&mut self, request: ResponseId, busy: bool, out: &mut Vec<Command>) {
        let Some(Ended { response: id, .. }) = self.responses.refused(self.now, request) else { return };
        out.push(Command::Explain(Decision::ResponseRefused { response: id, busy }));
        let Some(response) = self.responses.get(id).cloned() else { return };
        for delivery in &response.deliveries {
            self.withdraw(delivery, GateReason::ResponseDue, out);
        }
        if response.cancelled_at.is_none() {
            let why = if busy { Fruitless::Busy } else { Fruitless::Failed };
            self.owe_again(id, &response, why, out);
        }
        self.responses.forget_if_over(id);
    }

    // ---- the playback clock ---------------------------------------------------------------------------------------------

    fn mark_returned(&mut self, mark: MarkName, out: &mut Vec<Command>) -> bool {
        let verdict = self.playback.mark_returned(self.now, mark);
        out.push(Command::Explain(Decision::MarkJudged { mark, verdict }));
        true
    }

    /// Stories of sound that have ended: the history and the deliveries learn what was heard.
    pub(crate) fn playbacks_ended(&mut self, out: &mut Vec<Command>) {
        while let Some(EndedPlayback { end, at_most }) = self.playback.take_ended() {
            let heard = self.history.playback_ended(&end);
            self.tell_next_session(end.response, &heard, out);
            out.push(Command::ReleaseAudio { playback: end.playback });
            let id = end.response;
            let (purpose, deliveries) = match self.responses.get_mut(id) {
                Some(response) => {
                    response.silent = true;
                    (Some(response.purpose), response.deliveries.clone())
                }
                None => (None, Vec::new()),
            };
            out.push(Command::Explain(Decision::PlaybackEnded(end.clone())));
            for delivery in deliveries {
                let Some(verdict) = self.pending.evidence(&delivery, &end, at_most, &self.policy.gate) else {
                    continue;
                };
                if let DeliveryChange::Heard { .. } = verdict.change {
                    let waited = self.now.ms_since(verdict.ready_at);
                    out.push(measure(Measure::CommitToAudibleAcknowledgement, waited));
                }
                out.push(Command::Work(verdict.command));
                out.push(Command::Explain(Decision::DeliveryChanged { delivery, change: verdict.change }));
            }
            self.responses.forget_if_over(id);
            if self.phase != Phase::Closed {
                self.judge_claim(id, &heard, out);
            }
            if let Some(purpose) = purpose {
                self.farewell_ended(purpose, &end, out);
            }
        }
    }

    // ---- the operation clock --------------------------------------------------------------------------------------------

    fn work_event(&mut self, event: WorkEvent, out: &mut Vec<Command>) -> bool {
        match event {
            WorkEvent::Admitted { tool_call, operation, inline_wait_ms, attached_to, result, stands } => {
                match attached_to {
                    Some(status) => {
                        let so_far = SoFar { status, result: result.as_deref(), stands: stands.as_deref() };
                        let output = self.work.attached(tool_call, operation, so_far);
                        self.submit(output, out);
                    }
                    None => self.work.admitted(self.now, tool_call, operation, inline_wait_ms),
                }
            }
            WorkEvent::Refused { tool_call, refusal } => {
                let output = self.work.refused(tool_call, &refusal.code, &refusal.say);
                self.submit(output, out);
            }
            WorkEvent::Finished { operation, status, result } => {
                for telling in self.work.finished(&operation, status, &result) {
                    match telling {
                        Telling::Output(output) => self.submit([output], out),
                        Telling::Context(text) => self.add_context(text, out),
                    }
                }
            }
            WorkEvent::DeliveryReady(brief) => {
                self.work.delivery_ready(&brief.operations);
                let news = if brief.from_earlier_call {
                    Some(format!("From an earlier call: {}", brief.text))
                } else if self.work.has_told(&brief.operations) {
                    None
                } else {
                    // Asked for on a stream before this one, or its outcomes are still on their way to us.
                    Some(format!(
                        "From earlier in this call: {}. Do not mention it until you are asked to, or the caller asks.",
                        brief.text
                    ))
                };
                if self.pending.ready(self.now, brief) {
                    // The model knows of it before its next inference, spoken or not (R11).
                    if let Some(text) = news {
                        self.add_context(text, out);
                    }
                }
            }
            WorkEvent::Saved { save } => {
                self.pending.saved(save);
            }
            WorkEvent::SaveRefused { save, reason } => {
                if let Some(delivery) = self.pending.save_refused(save) {
                    out.push(Command::Explain(Decision::DeliveryTakenOver { delivery, reason }));
                }
            }
            WorkEvent::SaveFailed { save, reason } => {
                if let Some(delivery) = self.pending.save_failed(self.now, save) {
                    out.push(Command::Explain(Decision::SaveFailed { delivery, reason }));
                }
            }
        }
        true
    }

    fn submit(&mut self, outputs: impl IntoIterator<Item = Output>, out: &mut Vec<Command>) {
        for Output { provider_call, tool, text } in outputs {
            match provider_call {
                Some(provider_call) => {
                    self.remember_output(&tool, &text);
                    out.push(Command::Model(ModelCommand::SubmitToolOutput { provider_call, output: text }));
                }
                None => self.add_context(format!("The tool {tool} was called before. Its output: {text}"), out),
            }
        }
    }

    /// The provider will never end it, and what of it was still to come will not.
    pub(crate) fn response_lost(&mut self, id: ResponseId, out: &mut Vec<Command>) {
        let end = ResponseEnd::Failed { code: "session_lost".into() };
        // A connection uses up no attempt: how often one is opened anew has a bound of its own.
        let Some(response) = self.close_books(Ended { response: id, end }, out) else { return };
        self.responses.forget_if_over(id);
        if response.cancelled_at.is_none() {
            self.restore_debt(&response);
            if response.purpose == Purpose::OfItself && response.sounded {
                self.owe_latest_turn();
            }
        }
    }

    // ---- ends -----------------------------------------------------------------------------------------------------------

    pub(crate) fn close_stream(&mut self, reason: CloseReason, out: &mut Vec<Command>) {
        self.stream_ended(out);
        out.push(Command::CloseStream { reason });
    }

    /// What is proven by now is all that ever will be; everything else stays pending in the store.
    fn stream_ended(&mut self, out: &mut Vec<Command>) {
        if let Some(response) = self.responses.in_slot()
            && self.responses.cancel(self.now, response)
        {
            out.push(Command::Model(ModelCommand::CancelResponse { response }));
        }
        self.playback.stream_ended(self.now);
        self.playbacks_ended(out);
        self.withdraw_unsaid(GateReason::NobodyThere, out);
        let silent = self.responses.in_slot().and_then(|id| self.responses.get(id)).filter(|asked| !asked.sounded);
        for delivery in silent.map(|asked| asked.deliveries.clone()).unwrap_or_default() {
            self.withdraw(&delivery, GateReason::NobodyThere, out);
        }
        self.phase = Phase::Closed;
        self.deadlines = Deadlines::default();
    }
}

/// A tool call as it came from the model.
struct Proposed {
    provider_call: vocab::ProviderCallId,
    name: String,
    arguments: String,
}

pub(crate) fn measure(measure: Measure, ms: u64) -> Command {
    Command::Measure { measure, ms: u32::try_from(ms).unwrap_or(u32::MAX) }
}
