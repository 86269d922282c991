//! The recordings of calls from a terminal: replay, rehear, what-if and scrub. See docs/replay.md.

use audio::Detector;
use replay::{Voice, find_recordings, rehear, replay_dir, scrub, what_if};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage:
  recordings replay PLACE...                    same inputs, same commands, or the first drift
  recordings rehear DIR [webrtc|earshot]        the turn decisions that another detector moves
  recordings what-if PLACE SVG KEY=VALUE...     the measures under another policy, as a table and a picture
  recordings scrub DIR NEW [silence|tone]       a copy without words, numbers and voices";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["replay", ref places @ ..] if !places.is_empty() => replay_all(places),
        ["rehear", dir] | ["rehear", dir, "webrtc"] => rehear_with(dir, Detector::default()),
        ["rehear", dir, "earshot"] => rehear_with(dir, Detector::Earshot { threshold: 0.5 }),
        ["what-if", place, svg, ref overrides @ ..] => compare(place, svg, overrides),
        ["scrub", from, to] | ["scrub", from, to, "silence"] => scrub_to(from, to, Voice::Silence),
        ["scrub", from, to, "tone"] => scrub_to(from, to, Voice::Tone),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

type Done = Result<ExitCode, Box<dyn std::error::Error>>;

fn replay_all(places: &[&str]) -> Done {
    let mut code = ExitCode::SUCCESS;
    for place in places {
        for recording in find_recordings(Path::new(place))? {
            let began = Instant::now();
            let report = replay_dir(&recording)?;
            let (name, lasted) = (recording.display(), report.lasted.as_ms());
            match report.drift {
                None => println!(
                    "{name}: {} steps, {} commands, {lasted} ms of call in {:?}; log {:?}",
                    report.steps,
                    report.commands,
                    began.elapsed(),
                    report.tail
                ),
                Some(drift) => {
                    println!("{name}: {drift}");
                    code = ExitCode::FAILURE;
                }
            }
        }
    }
    Ok(code)
}

fn rehear_with(dir: &str, detector: Detector) -> Done {
    print!("{}", rehear(Path::new(dir), detector)?);
    Ok(ExitCode::SUCCESS)
}

fn compare(place: &str, svg: &str, overrides: &[&str]) -> Done {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    let report = what_if(Path::new(place), &overrides)?;
    print!("{}", report.table());
    std::fs::write(svg, report.svg())?;
    Ok(ExitCode::SUCCESS)
}

fn scrub_to(from: &str, to: &str, voice: Voice) -> Done {
    scrub(Path::new(from), Path::new(to), voice)?;
    Ok(ExitCode::SUCCESS)
}
