//! Hears the caller's audio again with a detector of choice, and shows which decisions about the caller's voice move.
//!
//! Exact: the evidence of each frame, and what the core makes of it (tentative, retracted, confirmed, ended). Not touched:
//! everything else of the recording happens when it happened, since nobody knows what the model or the caller would have
//! done. A turn that the *model* closes therefore moves only where it waited for the caller's quiet.

use crate::drift::clock;
use crate::files::{ReplayError, caller_audio, io_error, open, recorded_policy};
use audio::Detector;
use audio::g711::MULAW;
use conversation::{Command, Conversation, Decision, Input};
use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::Path;
use vocab::CallTime;

/// Moments further apart are not the same one moved, but one gone and one new. Above any onset or hangover of a detector.
const SAME_WITHIN_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MomentKind {
    SpeechTentative,
    SpeechRetracted,
    SpeechConfirmed,
    SpeechEnded,
    TurnOpened,
    TurnClosed,
}

/// A decision about the caller's voice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub kind: MomentKind,
    pub at: CallTime,
}

/// One decision, as it was and as it is. `None`: there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    pub kind: MomentKind,
    pub before: Option<CallTime>,
    pub after: Option<CallTime>,
}

#[derive(Clone, Debug, Default)]
pub struct RehearReport {
    pub frames: u64,
    /// Frames that the one calls speech and the other does not.
    pub frames_judged_otherwise: u64,
    pub before: Vec<Moment>,
    pub after: Vec<Moment>,
    /// What moved, came or went; what stayed is not here.
    pub moves: Vec<Moved>,
}

/// Runs `detector` over the recorded caller audio. The recording must have its audio, and its own.
pub fn rehear(dir: &Path, detector: Detector) -> Result<RehearReport, ReplayError> {
    let unfit = |what: String| ReplayError::Unfit { place: dir.display().to_string(), what };
    let mut log = open(dir)?;
    if log.header().scrubbed {
        return Err(unfit("it was scrubbed: its audio is not what was heard".into()));
    }
    let policy = recorded_policy(dir, log.header())?;
    let (mut before, mut after) = (Conversation::new(policy.clone()), Conversation::new(policy));
    let mut audio = caller_audio(dir)?;
    let mut ear = detector.open();
    let (mut codes, mut samples, mut out) = (Vec::new(), Vec::new(), Vec::new());
    let mut report = RehearReport::default();
    let mut heard_to = 0;
    for recorded in log.by_ref() {
        let step = recorded?;
        let mut again = step.input.clone();
        if let Input::CallerAudio { samples: length, evidence } = &mut again {
            if step.caller_at != Some(heard_to) {
                return Err(unfit(format!("the audio of step {} is not where the step before it ends", step.n)));
            }
            heard_to += u64::from(length.0);
            codes.resize(length.0 as usize, 0);
            audio.read_exact(&mut codes).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => unfit(format!("the caller's audio ends before step {}", step.n)),
                _ => io_error(dir, error),
            })?;
            MULAW.decode(&codes, &mut samples);
            let newly = ear.hear(&samples);
            report.frames += 1;
            report.frames_judged_otherwise += u64::from(newly.speech != evidence.speech);
            *evidence = newly;
        }
        for (conversation, input, moments) in
            [(&mut before, step.input, &mut report.before), (&mut after, again, &mut report.after)]
        {
            out.clear();
            conversation.step(step.at, input, &mut out);
            moments.extend(out.iter().filter_map(|command| moment(step.at, command)));
        }
    }
    report.moves = moves(&report.before, &report.after);
    Ok(report)
}

fn moment(at: CallTime, command: &Command) -> Option<Moment> {
    let Command::Explain(decision) = command else { return None };
    let kind = match decision {
        Decision::SpeechTentative { .. } => MomentKind::SpeechTentative,
        Decision::SpeechRetracted { .. } => MomentKind::SpeechRetracted,
        Decision::SpeechConfirmed => MomentKind::SpeechConfirmed,
        Decision::SpeechEnded => MomentKind::SpeechEnded,
        Decision::TurnOpened { .. } => MomentKind::TurnOpened,
        Decision::TurnClosed { .. } => MomentKind::TurnClosed,
        Decision::CallerSaid { .. }
        | Decision::BargedIn { .. }
        | Decision::MarkJudged { .. }
        | Decision::PlaybackEnded(_)
        | Decision::ResponsePlanned { .. }
        | Decision::ResponseSounds { .. }
        | Decision::ResponseEnded { .. }
        | Decision::ResponseRefused { .. }
        | Decision::AnswerAbandoned { .. }
        | Decision::LateForResponse { .. }
        | Decision::ToolCallDropped { .. }
        | Decision::ToolCallProposed { .. }
        | Decision::GateJudged { .. }
        | Decision::OfferWithdrawn { .. }
        | Decision::DeliveryChanged { .. }
        | Decision::DeliveryTakenOver { .. }
        | Decision::SaveFailed { .. }
        | Decision::ClaimUnfounded { .. }
        | Decision::SessionLost { .. }
        | Decision::SessionRestored { .. }
        | Decision::ModelComplained { .. } => return None,
    };
    Some(Moment { kind, at })
}

/// Pairs moments of one kind in their order; the nearer ones belong together.
fn moves(before: &[Moment], after: &[Moment]) -> Vec<Moved> {
    let mut kinds: Vec<_> = before.iter().chain(after).map(|moment| moment.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut moved = Vec::new();
    for kind in kinds {
        let of = |moments: &[Moment]| -> Vec<CallTime> {
            moments.iter().filter(|moment| moment.kind == kind).map(|moment| moment.at).collect()
        };
        let (old, new) = (of(before), of(after));
        let (mut o, mut n) = (0, 0);
        while o < old.len() || n < new.len() {
            let (was, is) = (old.get(o).copied(), new.get(n).copied());
            let same = was.zip(is).is_some_and(|(was, is)| was.ms_since(is).max(is.ms_since(was)) <= SAME_WITHIN_MS);
            let gone = is.is_none() || was.zip(is).is_some_and(|(was, is)| was < is);
            let (before, after) = match (same, gone) {
                (true, _) => (was, is),
                (false, true) => (was, None),
                (false, false) => (None, is),
            };
            o += usize::from(before.is_some());
            n += usize::from(after.is_some());
            if before != after {
                moved.push(Moved { kind, before, after });
            }
        }
    }
    moved.sort_by_key(|moved| (moved.before.or(moved.after), moved.kind));
    moved
}

impl fmt::Display for RehearReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frames, otherwise) = (self.frames, self.frames_judged_otherwise);
        writeln!(f, "{frames} frames, {otherwise} judged otherwise; {} decisions moved", self.moves.len())?;
        let time = |at: Option<CallTime>| at.map_or("-".to_owned(), clock);
        for Moved { kind, before, after } in &self.moves {
            let by = before
                .zip(*after)
                .map(|(before, after)| format!("{:+} ms", i128::from(after.as_ms()) - i128::from(before.as_ms())));
            let what = by.unwrap_or_else(|| if after.is_some() { "new".into() } else { "gone".into() });
            writeln!(f, "  {:<16} {:>10} -> {:>10}  {what}", format!("{kind:?}"), time(*before), time(*after))?;
        }
        Ok(())
    }
}
