//! Carries the core's commands out, in order, without waiting: sockets and desk only queue.

use crate::actor::{Actor, ModelSlot, Seen};
use crate::desk::Desk;
use crate::report::CallEnd;
use conversation::{CloseReason, Command, Decision, Input};
use phone::twilio::PhoneError;
use tokio::io::{AsyncRead, AsyncWrite};
use vocab::CallTime;
use vocab::model::ModelCommand;
use vocab::work::{Refusal, WorkCommand, WorkEvent};

/// Commands that may wait for a model session that is still being opened, or for a full desk.
const MAX_WAITING: usize = 256;

impl<S: AsyncRead + AsyncWrite + Unpin + Send, D: Desk> Actor<S, D> {
    /// One step of the core and everything that follows from it.
    pub(crate) fn step(&mut self, at: CallTime, input: Input) {
        let quiet = matches!(input, Input::CallerAudio { .. } | Input::TimePassed)
            || matches!(&input, Input::Model(vocab::model::ModelEvent::AudioReceived { .. }));
        if let (false, Some(watch)) = (quiet, &mut self.watch) {
            watch(at, Seen::Input(&input));
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.input(at, &input);
        }
        let mut commands = std::mem::take(&mut self.commands);
        self.conversation.step(at, input, &mut commands);
        if let Some(recorder) = &mut self.recorder {
            recorder.commands(&commands);
        }
        for command in commands.drain(..) {
            self.perform(at, command);
        }
        self.commands = commands;
        // What could not be asked of the desk comes back as its answer; bounded, since each answer asks for less.
        while let Some(event) = self.desk_answers.pop_front() {
            self.step(at, Input::Work(event));
        }
        if self.end.is_none()
            && let Some(error) = self.unsendable.take()
        {
            self.over(at, CallEnd::StreamLost { reason: error.to_string() });
        }
    }

    fn perform(&mut self, at: CallTime, command: Command) {
        if let Some(watch) = &mut self.watch {
            watch(at, Seen::Command(&command));
        }
        match command {
            Command::KeepAudio { playback, from } => self.playout.keep(playback, from, &self.model_audio),
            Command::SendAudio { playback, from, to } => {
                self.playout.take(playback, from, to, &mut self.frame);
                if let Some(recorder) = &mut self.recorder {
                    recorder.agent_audio(&self.frame);
                }
                let sent = self.phone.send_media(&self.frame);
                self.said(sent);
            }
            Command::SendMark { mark } => {
                let sent = self.phone.send_mark(mark);
                self.said(sent);
            }
            Command::ClearPlayback => {
                let sent = self.phone.send_clear();
                self.said(sent);
            }
            Command::ReleaseAudio { playback } => self.playout.release(playback),
            Command::Model(command) => self.tell_model(command),
            Command::OpenModel => self.reopen_model(),
            Command::Work(command) => self.ask_desk(command),
            Command::PublishState { state } => tracing::debug!(?state, "agent state"),
            Command::Measure { measure, ms } => metrics::histogram!(measure.name()).record(f64::from(ms)),
            Command::CloseStream { reason } => {
                self.end.get_or_insert(match reason {
                    CloseReason::Drained if self.too_long => {
                        CallEnd::Finished { reason: "the call reached its longest length".into() }
                    }
                    CloseReason::Drained => CallEnd::LetGo,
                    CloseReason::CallerAway => {
                        CallEnd::Finished { reason: "the caller did not answer any more".into() }
                    }
                    CloseReason::ModelLost { reason } if self.model_was_ready => CallEnd::ModelLost { reason },
                    CloseReason::ModelLost { reason } => CallEnd::NoModel { reason },
                    CloseReason::ModelSilent { reason } => CallEnd::NoModel { reason },
                    CloseReason::ModelRefused { code } => {
                        CallEnd::NoModel { reason: format!("the model provider refuses to serve us: {code}") }
                    }
                });
            }
            Command::Explain(decision) => explain(&decision),
        }
    }

    /// A carrier that does not read what we send is as good as gone.
    fn said(&mut self, sent: Result<(), PhoneError>) {
        if let Err(error) = sent {
            self.unsendable.get_or_insert(error);
        }
    }

    fn tell_model(&mut self, command: ModelCommand) {
        // What was heard before it was said before.
        self.append_unsent();
        match &mut self.model {
            ModelSlot::Open(socket) => socket.send(&command),
            ModelSlot::Opening(_) if self.model_waiting.len() < MAX_WAITING => self.model_waiting.push(command),
            ModelSlot::Opening(_) | ModelSlot::Gone => {}
        }
    }

    fn ask_desk(&mut self, command: WorkCommand) {
        if self.desk_waiting.is_empty() {
            if self.desk.send(command.clone()).is_ok() {
                return;
            }
            tracing::warn!("the executor's desk is full; commands wait");
        }
        if self.desk_waiting.len() < MAX_WAITING {
            self.desk_waiting.push_back(command);
            return;
        }
        match command {
            WorkCommand::Propose(proposal) => self.desk_answers.push_back(WorkEvent::Refused {
                tool_call: proposal.tool_call,
                refusal: Refusal { code: "overloaded".into(), say: "Too much is going on right now.".into() },
            }),
            WorkCommand::SaveDelivery { save, .. } => {
                self.desk_answers
                    .push_back(WorkEvent::SaveFailed { save, reason: "the executor is overloaded".into() });
            }
            // A batch that is never sealed says nothing; its operations are in the store and tell themselves next call.
            WorkCommand::SealBatch { response } => tracing::error!(%response, "a batch could not be sealed: desk full"),
        }
    }

    /// Asks again what the desk had no room for.
    pub(crate) fn retry_desk(&mut self) {
        while let Some(command) = self.desk_waiting.front() {
            if self.desk.send(command.clone()).is_err() {
                return;
            }
            self.desk_waiting.pop_front();
        }
    }
}

/// What an operator wants to know of the core's decisions; the recording has all of them.
fn explain(decision: &Decision) {
    match decision {
        Decision::SessionLost { reason } => {
            tracing::warn!(reason, "another model session is opened for this call");
            metrics::counter!("model_sessions_reopened_total").increment(1);
        }
        Decision::ClaimUnfounded { response, claim } => {
            tracing::warn!(%response, claim, "the caller heard of success in a call in which nothing is committed");
            metrics::counter!("unfounded_claims_total").increment(1);
        }
        Decision::AnswerAbandoned { response } => {
            tracing::warn!(%response, "the model gave no answer that the caller could hear");
            metrics::counter!("answers_abandoned_total").increment(1);
        }
        Decision::ModelComplained { code, message } => {
            tracing::warn!(code, message, "the model's provider reports an error");
        }
        decision => tracing::trace!(?decision),
    }
}
