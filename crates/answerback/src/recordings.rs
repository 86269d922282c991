//! Recorded calls from the command line. What replaying means is `docs/replay.md`.

use crate::args::{DetectorName, ExportArgs, ExportedVoice, RehearArgs, ReplayArgs, WhatIfArgs};
use crate::{FAILED, FINE};
use anyhow::{Context, bail};
use audio::Detector;
use audio::voice_activity::{Aggressiveness, NETWORK_THRESHOLD};
use recording::Tail;
use replay::{Voice, find_recordings, replay_dir, scrub};
use std::process::ExitCode;
use std::time::Instant;

pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let (mut drifted, mut calls, mut steps) = (0, 0, 0);
    for place in &args.places {
        let found = find_recordings(place)?;
        if found.is_empty() {
            bail!("there is no recording in {}: one is a folder with call.jsonl in it", place.display());
        }
        for recording in found {
            let replayed = replays(&recording, args.times)?;
            calls += 1;
            drifted += u32::from(replayed.is_none());
            steps += replayed.unwrap_or_default() * u64::from(args.times);
        }
    }
    if calls > 1 {
        let took = began.elapsed().as_secs_f64();
        outln!("{calls} recordings: {drifted} with drift, {steps} steps replayed without, in {took:.2} s");
    }
    Ok(if drifted > 0 { FAILED } else { FINE })
}

/// The steps that were replayed; `None` with a drift.
fn replays(recording: &std::path::Path, times: u32) -> anyhow::Result<Option<u64>> {
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
    let tail = match report.tail {
        Some(Tail::Ended { .. }) | None => "ends with its call".to_owned(),
        Some(Tail::Stopped { reason, .. }) => format!("was stopped before its call ended: {reason:?}"),
        Some(Tail::Open) => "ends after a whole line: the process was ended".to_owned(),
        Some(Tail::Torn { line, .. }) => format!("ends inside line {line}: the process was ended"),
    };
    outln!("{name}: no drift in {} steps ({call_s:.1} s of call{often}) in {took:.2} s; the log {tail}", report.steps);
    Ok(Some(report.steps))
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
    out!("{}", report.table());
    if let Some(plot) = &args.plot {
        std::fs::write(plot, report.svg()).with_context(|| format!("cannot write {}", plot.display()))?;
        outln!("plot: {}", plot.display());
    }
    Ok(FINE)
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
