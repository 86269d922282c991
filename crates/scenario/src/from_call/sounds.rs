//! What the caller said, cut out of the recorded sound where voice begins and ends.

use super::streams::Stream;
use conversation::{Command, Decision, Input, Policy};
use vocab::audio::FRAME_BYTES;
use vocab::model::ModelEvent;

/// Pauses up to this are inside a sound.
const PAUSE_US: u64 = 300_000;
/// Shorter is a click.
const CLICK_US: u64 = 40_000;
/// Of the recorded sound before and after the voice.
const AROUND_US: u64 = 60_000;
/// Turn detection hears a start so late.
const ONSET_US: u64 = 600_000;

/// One sound of the caller, on the axis of its stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    pub from_us: u64,
    pub to_us: u64,
    /// As it was recorded; `None` where only its time is known.
    pub mulaw: Option<Vec<u8>>,
    /// `None`: the model did not take it for speech.
    pub text: Option<String>,
}

/// A stretch in which the model, or we for it, took the caller to be speaking.
struct Turn {
    from_us: u64,
    to_us: u64,
    item: Option<vocab::ModelItemId>,
    text: String,
}

pub fn sounds(stream: &Stream, policy: &Policy) -> Vec<Sound> {
    let stretches = stretches(stream, policy);
    let turns = turns(stream);
    let mut sounds: Vec<(Option<usize>, u64, u64)> = Vec::new();
    for (from_us, to_us) in stretches {
        let turn = turns.iter().position(|turn| from_us <= turn.to_us && to_us >= turn.from_us);
        match sounds.last_mut() {
            Some((last, _, end)) if turn.is_some() && *last == turn => *end = to_us,
            Some(_) | None => sounds.push((turn, from_us, to_us)),
        }
    }
    let spoken = |(turn, from_us, to_us): (Option<usize>, u64, u64)| Sound {
        from_us: from_us.saturating_sub(AROUND_US),
        to_us: to_us + AROUND_US,
        mulaw: cut(stream, from_us.saturating_sub(AROUND_US), to_us + AROUND_US),
        text: turn.map(|turn| turns[turn].text.clone()),
    };
    sounds.into_iter().filter(|(turn, from, to)| turn.is_some() || to - from > CLICK_US).map(spoken).collect()
}

fn stretches(stream: &Stream, policy: &Policy) -> Vec<(u64, u64)> {
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    for step in &stream.steps {
        let Input::CallerAudio { samples, evidence } = &step.input else { continue };
        if !evidence.speech || evidence.level_dbfs < policy.turn.floor_dbfs {
            continue;
        }
        // A frame arrives when it has been spoken.
        let from_us = step.at.0.saturating_sub(samples.duration().as_micros() as u64);
        match stretches.last_mut() {
            Some((_, to)) if from_us <= *to + PAUSE_US => *to = step.at.0,
            Some(_) | None => stretches.push((from_us, step.at.0)),
        }
    }
    stretches
}

/// By the model's turn detection where it spoke, else by our own.
fn turns(stream: &Stream) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut open: Option<u64> = None;
    let by_model = |input: &Input| matches!(input, Input::Model(ModelEvent::SpeechStarted));
    let models = stream.steps.iter().any(|step| by_model(&step.input));
    for step in &stream.steps {
        let at_us = step.at.0;
        if by_model(&step.input) {
            open = Some(at_us.saturating_sub(ONSET_US));
        }
        if let Input::Model(ModelEvent::TurnCommitted { item }) = &step.input {
            let from_us = open.take().unwrap_or(at_us);
            turns.push(Turn { from_us, to_us: at_us, item: Some(*item), text: String::new() });
        }
        if let Input::Model(ModelEvent::CallerTranscript { item, text }) = &step.input
            && let Some(turn) = turns.iter_mut().find(|turn| turn.item == Some(*item))
        {
            turn.text.clone_from(text);
        }
        if !models {
            for command in &step.commands {
                if let Command::Explain(Decision::TurnOpened { .. }) = command {
                    open = Some(at_us.saturating_sub(ONSET_US));
                }
            }
        }
    }
    // Cut off in the middle of it.
    if let Some(from_us) = open {
        turns.push(Turn { from_us, to_us: u64::MAX, item: None, text: String::new() });
    }
    turns
}

fn cut(stream: &Stream, from_us: u64, to_us: u64) -> Option<Vec<u8>> {
    if stream.header.scrubbed || stream.caller.is_empty() {
        return None;
    }
    let inside = stream.steps.iter().filter(|step| step.at.0 >= from_us && step.at.0 <= to_us);
    let mut frames = inside.filter_map(|step| {
        let Input::CallerAudio { samples, .. } = &step.input else { return None };
        Some((step.caller_at? as usize, samples.0 as usize))
    });
    let (start, samples) = frames.next()?;
    let end = frames.next_back().map_or(start + samples, |(at, samples)| at + samples);
    let mut mulaw = stream.caller.get(start..end.min(stream.caller.len()))?.to_vec();
    mulaw.resize(mulaw.len().next_multiple_of(FRAME_BYTES), vocab::audio::MULAW_SILENCE);
    Some(mulaw)
}
