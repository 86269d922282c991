//! Takes the person out of a recording. Words, numbers, arguments and voices go; times, lengths, evidence and decisions
//! stay. The commands are made anew by the core from the scrubbed inputs, so the result replays without drift, and that is
//! checked against the original: no decision of the core may hang on a word.
//!
//! What stays on purpose: names of tools that the agent has, ids that we made (`op_…`, `dlv_…`) and the model's ids of its
//! calls (`call_…`), which say nothing about a person outside our store; codes of errors; the agent's name.

use crate::files::{Log, ReplayError, io_error, open, recorded_policy};
use audio::g711::MULAW;
use conversation::{Command, Conversation, Input, Policy};
use recording::{AGENT_FILE, CALLER_FILE, Header, STEPS_FILE, Tail, Writer};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use vocab::audio::{FRAME_BYTES, MULAW_SILENCE};
use vocab::model::{ModelEvent, ResponseEnd};
use vocab::work::WorkEvent;
use vocab::{CallSid, SessionId, StreamSid, WallTime};

const GONE: &str = "[scrubbed]";
/// As a result: JSON text.
const GONE_JSON: &str = r#""[scrubbed]""#;
/// Of the tone that stands for a voice. 400 Hz at 8 kHz is a whole number of samples.
const TONE_HZ: u32 = 400;
const TONE_SAMPLES: usize = (8_000 / TONE_HZ) as usize;

/// What a voice is replaced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Voice {
    #[default]
    Silence,
    /// Where there was speech there is a tone: one hears who had the floor.
    Tone,
}

/// Writes a scrubbed copy of `from` into the new directory `to`. Refuses a recording that drifts: replay it first. What fails
/// half-way leaves nothing.
pub fn scrub(from: &Path, to: &Path, voice: Voice) -> Result<(), ReplayError> {
    let log = open(from)?;
    let policy = recorded_policy(from, log.header())?;
    fs::create_dir(to).map_err(|error| io_error(to, error))?;
    let copied = copy(log, policy, from, to, voice);
    if copied.is_err() {
        // The copy's own error matters more than one of the removal.
        let _ = fs::remove_dir_all(to);
    }
    copied
}

fn copy(mut log: Log, policy: Policy, from: &Path, to: &Path, voice: Voice) -> Result<(), ReplayError> {
    let unfit = |what: String| ReplayError::Unfit { place: from.display().to_string(), what };
    let tools: Vec<String> = log.header().tools.names.iter().map(|name| name.as_str().to_owned()).collect();
    let (mut original, mut clean) = (Conversation::new(policy.clone()), Conversation::new(policy));
    let new = |file: &str| File::create_new(to.join(file)).map(BufWriter::new).map_err(|error| io_error(to, error));
    let (mut caller, mut agent) = (new(CALLER_FILE)?, new(AGENT_FILE)?);
    let write_error = |error| io_error(to, error);
    let mut steps = Writer::new(new(STEPS_FILE)?, &scrubbed_header(log.header())).map_err(write_error)?;
    let tone = tone();
    let (mut out, mut again) = (Vec::new(), Vec::new());
    for recorded in log.by_ref() {
        let step = recorded?;
        let input = scrubbed_input(step.input.clone(), &tools);
        out.clear();
        again.clear();
        original.step(step.at, step.input, &mut out);
        clean.step(step.at, input.clone(), &mut again);
        if out != step.commands {
            return Err(unfit(format!("it drifts at step {}, so its commands cannot be made anew", step.n)));
        }
        if !out.iter().map(kind).eq(again.iter().map(kind)) {
            return Err(unfit(format!("step {} decides otherwise without its words", step.n)));
        }
        if let Input::CallerAudio { samples, evidence } = &input {
            let speaks = evidence.speech && voice == Voice::Tone;
            write_voice(&mut caller, samples.0 as usize, speaks, &tone).map_err(write_error)?;
            if again.is_empty() {
                let frame = recording::Frame { samples: *samples, evidence: *evidence };
                steps.quiet_frame(step.at, step.caller_at.unwrap_or_default(), frame).map_err(write_error)?;
                continue;
            }
        }
        steps.begin_step(step.at, step.caller_at, &input).map_err(write_error)?;
        steps.end_step(step.agent_at, &again).map_err(write_error)?;
        for command in &again {
            if let Command::SendAudio { from, to, .. } = command {
                let bytes = ((*to - *from).0 as usize).div_ceil(FRAME_BYTES) * FRAME_BYTES;
                write_voice(&mut agent, bytes, voice == Voice::Tone, &tone).map_err(write_error)?;
            }
        }
    }
    let ended = match log.tail() {
        Some(Tail::Ended { .. }) => steps.end(),
        Some(Tail::Stopped { reason, .. }) => steps.stop(*reason),
        // The step in which the process died goes with it: its input may be what was to be hidden.
        Some(Tail::Open | Tail::Torn { .. }) | None => steps.flush_run(),
    };
    ended.and_then(|()| steps.into_inner().flush()).map_err(write_error)?;
    caller.flush().and_then(|()| agent.flush()).map_err(write_error)
}

fn scrubbed_header(header: &Header) -> Header {
    Header {
        session: SessionId::new(GONE),
        stream: StreamSid::new(GONE),
        call: CallSid::new(GONE),
        caller: GONE.into(),
        started: WallTime(0),
        scrubbed: true,
        ..header.clone()
    }
}

fn scrubbed_input(input: Input, tools: &[String]) -> Input {
    let gone = || GONE.to_owned();
    match input {
        Input::CallStarted { greeting } => Input::CallStarted { greeting: greeting.map(|_| gone()) },
        // A PIN is typed on the keypad.
        Input::DtmfPressed { .. } => Input::DtmfPressed { digit: '0' },
        Input::Model(event) => Input::Model(match event {
            ModelEvent::CallerTranscript { item, .. } => ModelEvent::CallerTranscript { item, text: gone() },
            ModelEvent::TranscriptReceived { response, item, .. } => {
                ModelEvent::TranscriptReceived { response, item, text: gone() }
            }
            ModelEvent::ToolCallReceived { response, provider_call, name, .. } => {
                let name = if tools.contains(&name) { name } else { gone() };
                ModelEvent::ToolCallReceived { response, provider_call, name, arguments: "{}".into() }
            }
            ModelEvent::ResponseEnded { response, request, end } => {
                let end = match end {
                    ResponseEnd::Incomplete { .. } => ResponseEnd::Incomplete { reason: gone() },
                    ResponseEnd::Completed | ResponseEnd::Cancelled | ResponseEnd::Failed { .. } => end,
                };
                ModelEvent::ResponseEnded { response, request, end }
            }
            ModelEvent::CreateRefused { request, busy, .. } => {
                ModelEvent::CreateRefused { request, busy, message: gone() }
            }
            ModelEvent::ErrorReported { code, fatal, .. } => ModelEvent::ErrorReported { code, message: gone(), fatal },
            ModelEvent::SessionLost { .. } => ModelEvent::SessionLost { reason: gone() },
            ModelEvent::SessionOpened { .. }
            | ModelEvent::SessionReady
            | ModelEvent::SessionExpires { .. }
            | ModelEvent::SpeechStarted
            | ModelEvent::SpeechStopped
            | ModelEvent::TurnCommitted { .. }
            | ModelEvent::ResponseCreated { .. }
            | ModelEvent::AudioReceived { .. } => event,
        }),
        Input::Work(event) => Input::Work(match event {
            WorkEvent::Admitted { tool_call, operation, inline_wait_ms, attached_to, result, stands } => {
                let (result, stands) = (result.map(|_| GONE_JSON.to_owned()), stands.map(|_| GONE_JSON.to_owned()));
                WorkEvent::Admitted { tool_call, operation, inline_wait_ms, attached_to, result, stands }
            }
            WorkEvent::Refused { tool_call, mut refusal } => {
                refusal.say = gone();
                WorkEvent::Refused { tool_call, refusal }
            }
            WorkEvent::Finished { operation, status, .. } => {
                WorkEvent::Finished { operation, status, result: GONE_JSON.into() }
            }
            WorkEvent::DeliveryReady(mut brief) => {
                brief.text = gone();
                WorkEvent::DeliveryReady(brief)
            }
            WorkEvent::SaveRefused { save, .. } => WorkEvent::SaveRefused { save, reason: gone() },
            WorkEvent::SaveFailed { save, .. } => WorkEvent::SaveFailed { save, reason: gone() },
            WorkEvent::Saved { .. } => event,
        }),
        Input::CallerAudio { .. }
        | Input::MarkReturned { .. }
        | Input::StreamEnded
        | Input::DrainRequested
        | Input::TimePassed => input,
    }
}

/// What a command is, without its words.
fn kind(command: &Command) -> (std::mem::Discriminant<Command>, Option<String>) {
    let inner = match command {
        Command::Model(command) => Some(format!("{:?}", std::mem::discriminant(command))),
        Command::Work(command) => Some(format!("{:?}", std::mem::discriminant(command))),
        Command::Explain(decision) => Some(format!("{:?}", std::mem::discriminant(decision))),
        // These carry no word, so they must be the same.
        Command::KeepAudio { .. }
        | Command::SendAudio { .. }
        | Command::SendMark { .. }
        | Command::ClearPlayback
        | Command::ReleaseAudio { .. }
        | Command::OpenModel
        | Command::PublishState { .. }
        | Command::Measure { .. } => Some(format!("{command:?}")),
        Command::CloseStream { .. } => None,
    };
    (std::mem::discriminant(command), inner)
}

/// One period, at a level that hurts nobody.
fn tone() -> Vec<u8> {
    let wave = (0..TONE_SAMPLES).map(|n| {
        let turn = n as f32 / TONE_SAMPLES as f32 * std::f32::consts::TAU;
        (turn.sin() * 3_000.0) as i16
    });
    let mut codes = Vec::with_capacity(TONE_SAMPLES);
    MULAW.encode(&wave.collect::<Vec<_>>(), &mut codes);
    codes
}

fn write_voice(into: &mut impl Write, bytes: usize, sounds: bool, tone: &[u8]) -> io::Result<()> {
    let silence = [MULAW_SILENCE];
    let pattern = if sounds { tone } else { &silence[..] };
    let voice: Vec<u8> = pattern.iter().copied().cycle().take(bytes).collect();
    into.write_all(&voice)
}
