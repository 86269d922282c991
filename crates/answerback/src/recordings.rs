//! Recorded calls from the command line. What replaying means is `docs/replay.md`.

use crate::args::{DetectorName, ExportArgs, ExportedVoice, RehearArgs, ReplayArgs, WhatIfArgs};
use crate::terminal::count;
use crate::{FAILED, FINE, words};
use anyhow::{Context, bail};
use audio::Detector;
use audio::voice_activity::{Aggressiveness, NETWORK_THRESHOLD};
use recording::{StopReason, Tail};
use replay::{ReplayError, Voice, find_recordings, replay_dir, scrub};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let (mut drifted, mut calls, mut steps, mut skipped) = (0, 0, 0, 0);
    for place in &args.places {
        let found = find_recordings(place)?;
        if found.is_empty() {
            bail!("there is no recording in {}: one is a folder with call.jsonl in it", place.display());
        }
        for recording in found {
            match replays(&recording, args.times) {
                Ok(replayed) => {
                    calls += 1;
                    drifted += usize::from(replayed.is_none());
                    steps += replayed.unwrap_or_default() * u64::from(args.times);
                }
                Err(error) => {
                    outln!("skipped: {error}");
                    skipped += 1;
                }
            }
        }
    }
    if calls > 1 {
        let took = began.elapsed().as_secs_f64();
        outln!("{calls} recordings: {drifted} with drift, {steps} steps replayed without, in {took:.2} s");
    }
    if skipped > 0 {
        outln!("{}", words::skipped(skipped));
    }
    Ok(if drifted + skipped > 0 { FAILED } else { FINE })
}

/// The steps that were replayed; `None` with a drift.
fn replays(recording: &Path, times: u32) -> Result<Option<u64>, ReplayError> {
    let began = Instant::now();
    let mut report = replay_dir(recording)?;
    for _ in 1..times {
        report = replay_dir(recording)?;
    }
    let (name, took) = (recording.display(), began.elapsed().as_secs_f64());
    if let Some(drift) = report.drift {
        outln!("{name}: DRIFT\n{drift}");
        return Ok(None);
    }
    let call_s = report.lasted.as_ms() as f64 / 1_000.0;
    let often = if times == 1 { String::new() } else { format!(", {times} times") };
    let steps = count(usize::try_from(report.steps).unwrap_or(usize::MAX), "step");
    let tail = end_in_words(report.tail.as_ref());
    outln!("{name}: no drift in {steps} ({call_s:.1} s of call{often}) in {took:.2} s; the log {tail}");
    Ok(Some(report.steps))
}

fn end_in_words<I>(tail: Option<&Tail<I>>) -> String {
    match tail {
        Some(Tail::Ended { .. }) | None => "ends with its call".to_owned(),
        Some(Tail::Stopped { reason, .. }) => {
            let why = match reason {
                StopReason::MaxBytes => "it had reached the size that one recording may have",
                StopReason::WriterBehind => "the disk did not keep up",
                StopReason::WriteFailed => "it could not be written",
            };
            format!("was stopped before its call ended: {why}")
        }
        // A disk that takes nothing more takes no last line either.
        Some(Tail::Open) => "ends after a whole line: the process was ended, or could not write on".to_owned(),
        Some(Tail::Torn { line, .. }) => {
            format!("ends inside line {line}: the process was ended, or could not write on")
        }
    }
}

pub(crate) fn rehear(args: &RehearArgs) -> anyhow::Result<ExitCode> {
    let detector = match args.detector {
        DetectorName::Cascade => Detector::Cascade { threshold: NETWORK_THRESHOLD },
        DetectorName::Webrtc => Detector::Webrtc { mode: Aggressiveness::default() },
        DetectorName::Earshot => Detector::Earshot { threshold: NETWORK_THRESHOLD },
    };
    out!("{}", replay::rehear(&args.recording, detector)?);
    Ok(FINE)
}

pub(crate) fn what_if(args: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    let report = replay::what_if(&args.place, &args.overrides)?;
    if report.calls.is_empty() {
        // Nothing was compared: a table of zeros would be an answer.
        for (_, why) in &report.skipped {
            outln!("skipped: {why}");
        }
        bail!("{}: no recording can be used, so nothing was compared", args.place.display());
    }
    out!("{}", report.table());
    if let Some(plot) = &args.plot {
        std::fs::write(plot, report.svg()).with_context(|| format!("cannot write {}", plot.display()))?;
        outln!("plot: {}", plot.display());
    }
    Ok(if report.skipped.is_empty() { FINE } else { FAILED })
}

pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let voice = match args.voice {
        ExportedVoice::Silence => Voice::Silence,
        ExportedVoice::Tone => Voice::Tone,
    };
    scrub(&args.from, &args.to, voice)?;
    outln!("{}", args.to.display());
    Ok(FINE)
}
