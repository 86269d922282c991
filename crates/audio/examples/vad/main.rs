//! How well each detector hears: the tables of docs/vad.md. `benches/vad.sh` fetches the recordings and calls it:
//! `vad FOLDER [PROMPTS [NAME]]`, where FOLDER holds the unpacked packages, PROMPTS is the number of sentences a speaker and
//! NAME picks detectors.
// No part of the audio room but a ruler for it, so it may read clock and files.
#![allow(clippy::disallowed_methods)]

mod cost;
mod judge;
mod material;
mod noise;

use audio::Detector;
use audio::voice_activity::Aggressiveness;
use judge::{SpeechScore, quantile};
use material::{Line, Speaker, at_level, coded, gain, level};
use noise::Draw;
use std::path::PathBuf;

/// Seconds of each made noise.
const SECONDS: usize = 300;

fn detectors() -> Vec<(String, Detector)> {
    use Aggressiveness::{Aggressive, LowBitrate, Quality, VeryAggressive};
    let mut all = Vec::new();
    for (name, mode) in [
        ("quality", Quality),
        ("low_bitrate", LowBitrate),
        ("aggressive", Aggressive),
        ("very_aggressive", VeryAggressive),
    ] {
        all.push((format!("webrtc {name}"), Detector::Webrtc { mode }));
    }
    for threshold in [0.3, 0.5, 0.7, 0.9] {
        all.push((format!("earshot {threshold}"), Detector::Earshot { threshold }));
    }
    for threshold in [0.4, 0.5, 0.6] {
        all.push((format!("cascade {threshold}"), Detector::Cascade { threshold }));
    }
    all
}

/// A line, and what is added to it at which distance under the speech.
struct Condition {
    name: &'static str,
    noise: fn(&Quiet, usize, &mut Draw) -> Vec<f32>,
    snr_db: Option<f32>,
    /// The voice against the nominal level.
    voice_db: f32,
}

/// What noise is made of.
struct Quiet {
    music: Vec<(String, Vec<f32>)>,
    lines: Vec<Line>,
}

impl Quiet {
    fn babble(&self, seconds: usize, dbfs: f32) -> Vec<f32> {
        let sounds: Vec<&[f32]> = self.lines.iter().map(|line| &line.sound[..]).collect();
        noise::babble(seconds, &sounds, 9, dbfs)
    }

    fn music(&self, seconds: usize) -> Vec<f32> {
        self.music.iter().flat_map(|(_, piece)| piece.iter().copied()).cycle().take(seconds * 8_000).collect()
    }
}

const CONDITIONS: &[Condition] = &[
    Condition { name: "clean", noise: |_, seconds, _| vec![0.0; seconds * 8_000], snr_db: None, voice_db: 0.0 },
    Condition {
        name: "clean, 12 dB quieter",
        noise: |_, seconds, _| vec![0.0; seconds * 8_000],
        snr_db: None,
        voice_db: -12.0,
    },
    Condition {
        name: "clean, 10 dB louder",
        noise: |_, seconds, _| vec![0.0; seconds * 8_000],
        snr_db: None,
        voice_db: 10.0,
    },
    Condition {
        name: "white 10 dB, 12 dB quieter",
        noise: |_, seconds, draw| noise::white(seconds, 0.0, draw),
        snr_db: Some(10.0),
        voice_db: -12.0,
    },
    Condition {
        name: "white 20 dB",
        noise: |_, seconds, draw| noise::white(seconds, 0.0, draw),
        snr_db: Some(20.0),
        voice_db: 0.0,
    },
    Condition {
        name: "white 10 dB",
        noise: |_, seconds, draw| noise::white(seconds, 0.0, draw),
        snr_db: Some(10.0),
        voice_db: 0.0,
    },
    Condition {
        name: "white 5 dB",
        noise: |_, seconds, draw| noise::white(seconds, 0.0, draw),
        snr_db: Some(5.0),
        voice_db: 0.0,
    },
    Condition {
        name: "white 0 dB",
        noise: |_, seconds, draw| noise::white(seconds, 0.0, draw),
        snr_db: Some(0.0),
        voice_db: 0.0,
    },
    Condition {
        name: "pink 10 dB",
        noise: |_, seconds, draw| noise::pink(seconds, 0.0, draw),
        snr_db: Some(10.0),
        voice_db: 0.0,
    },
    Condition {
        name: "pink 5 dB",
        noise: |_, seconds, draw| noise::pink(seconds, 0.0, draw),
        snr_db: Some(5.0),
        voice_db: 0.0,
    },
    Condition {
        name: "babble 10 dB",
        noise: |quiet, seconds, _| quiet.babble(seconds, 0.0),
        snr_db: Some(10.0),
        voice_db: 0.0,
    },
    Condition {
        name: "hum 10 dB",
        noise: |_, seconds, _| noise::hum(seconds, 50.0, 0.0),
        snr_db: Some(10.0),
        voice_db: 0.0,
    },
    Condition {
        name: "music 15 dB",
        noise: |quiet, seconds, _| quiet.music(seconds),
        snr_db: Some(15.0),
        voice_db: 0.0,
    },
];

impl Condition {
    fn add_to(&self, line: &Line, quiet: &Quiet) -> Vec<i16> {
        let by = gain(self.voice_db);
        let voice = line.sound.iter().map(|sample| sample * by);
        let Some(snr_db) = self.snr_db else { return coded(&voice.collect::<Vec<_>>()) };
        let noise = (self.noise)(quiet, line.sound.len() / 8_000 + 1, &mut Draw(7));
        let noise = at_level(&noise, material::SPEECH_DBFS + self.voice_db - snr_db);
        coded(&voice.zip(noise).map(|(voice, noise)| (voice + noise).clamp(-1.0, 0.999)).collect::<Vec<_>>())
    }
}

/// Name, tones together, and ms on and off.
type Cadence = (&'static str, &'static [f32], &'static [(usize, usize)]);

/// Sound without a caller, by name.
fn noises(quiet: &Quiet, agent: &Line) -> Vec<(String, Vec<f32>)> {
    let mut draw = Draw(42);
    let mut all: Vec<(String, Vec<f32>)> = vec![("silence".into(), vec![0.0; SECONDS * 8_000])];
    for dbfs in [-50.0, -40.0, -30.0, -20.0] {
        all.push((format!("white {dbfs} dBFS"), noise::white(SECONDS, dbfs, &mut draw)));
        all.push((format!("pink {dbfs} dBFS"), noise::pink(SECONDS, dbfs, &mut draw)));
        all.push((format!("brown {dbfs} dBFS"), noise::brown(SECONDS, dbfs, &mut draw)));
        all.push((format!("hum 50 Hz {dbfs} dBFS"), noise::hum(SECONDS, 50.0, dbfs)));
        all.push((format!("hum 60 Hz {dbfs} dBFS"), noise::hum(SECONDS, 60.0, dbfs)));
    }
    for dbfs in [-10.0, -20.0, -30.0] {
        all.push((format!("DTMF 100 ms {dbfs} dBFS"), noise::dtmf(SECONDS, 100, 100, dbfs, &mut draw)));
    }
    all.push(("DTMF 70 ms -13 dBFS".into(), noise::dtmf(SECONDS, 70, 60, -13.0, &mut draw)));
    all.push(("DTMF 300 ms -13 dBFS".into(), noise::dtmf(SECONDS, 300, 150, -13.0, &mut draw)));
    all.push(("DTMF 1 s -13 dBFS".into(), noise::dtmf(SECONDS, 1_000, 300, -13.0, &mut draw)));
    let cadences: [Cadence; 8] = [
        ("ring-back 440+480 Hz", &[440.0, 480.0], &[(2_000, 4_000)]),
        ("ring-back 425 Hz", &[425.0], &[(1_000, 4_000)]),
        ("ring-back 400+450 Hz", &[400.0, 450.0], &[(400, 200), (400, 2_000)]),
        ("busy 480+620 Hz", &[480.0, 620.0], &[(500, 500)]),
        ("busy 425 Hz", &[425.0], &[(480, 480)]),
        ("reorder 480+620 Hz", &[480.0, 620.0], &[(250, 250)]),
        ("dial 350+440 Hz", &[350.0, 440.0], &[(1_000_000, 0)]),
        ("fax 1100 Hz", &[1_100.0], &[(500, 3_000)]),
    ];
    for (name, hz, cadence) in cadences {
        for dbfs in [-16.0, -30.0] {
            all.push((format!("{name} {dbfs} dBFS"), noise::tones(SECONDS, hz, cadence, dbfs)));
        }
    }
    all.push(("information tones -16 dBFS".into(), noise::information_tones(SECONDS, -16.0)));
    // A real trunk is never digitally silent.
    for (name, hz, cadence) in cadences.iter().take(4) {
        let tone = noise::tones(SECONDS, hz, cadence, -20.0);
        let hiss = noise::white(SECONDS, -50.0, &mut draw);
        all.push((format!("{name} -20 dBFS, hiss -50"), tone.iter().zip(hiss).map(|(a, b)| a + b).collect()));
    }
    all.push(("clicks -6 dBFS peak".into(), noise::clicks(SECONDS, -6.0, &mut draw)));
    all.push(("typing -20 dBFS peak".into(), noise::typing(SECONDS, -20.0, &mut draw)));
    all.push(("knocks -10 dBFS peak".into(), noise::knocks(SECONDS, -10.0, &mut draw)));
    for dbfs in [-20.0, -35.0] {
        all.push((format!("chords {dbfs} dBFS"), noise::chords(SECONDS, dbfs, &mut draw)));
        for (name, piece) in &quiet.music {
            all.push((format!("music {name} {dbfs} dBFS"), at_level(piece, dbfs)));
        }
    }
    for dbfs in [-30.0, -40.0] {
        all.push((format!("babble {dbfs} dBFS"), quiet.babble(SECONDS, dbfs)));
    }
    // Our own voice comes back: 200 ms late, through two codecs.
    for down_db in [15.0, 20.0, 25.0, 30.0] {
        let echo: Vec<f32> = coded(&agent.sound).iter().map(|s| f32::from(*s) / 32_768.0 * gain(-down_db)).collect();
        let mut sound = vec![0.0; 1_600];
        sound.extend(echo);
        all.push((format!("echo of our voice, {down_db} dB down"), sound));
    }
    all
}

fn cell(value: Option<f32>) -> String {
    value.map_or("-".into(), |value| format!("{value:.0}"))
}

fn share(part: usize, whole: usize) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}", 100.0 * part as f32 / whole as f32) }
}

fn speech_table(title: &str, rows: &[(String, SpeechScore)]) {
    println!("\n### {title}\n");
    println!(
        "| detector | onset p50 | p90 | turn p50 | p90 | end p50 | p90 | missed % of speech | utterances missed % | turns missed % | never ended % | already on % | false onsets/min | false turns/min |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (name, s) in rows {
        let minutes = s.gap_frames as f32 / 3_000.0;
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {:.1} |",
            cell(quantile(&s.onsets, 0.5)),
            cell(quantile(&s.onsets, 0.9)),
            cell(quantile(&s.confirmations, 0.5)),
            cell(quantile(&s.confirmations, 0.9)),
            cell(quantile(&s.ends, 0.5)),
            cell(quantile(&s.ends, 0.9)),
            share(s.missed_frames, s.speech_frames),
            share(s.missed, s.utterances),
            share(s.unconfirmed, s.unconfirmed + s.confirmations.len()),
            share(s.endless, s.utterances),
            share(s.already, s.utterances),
            s.gap_onsets as f32 / minutes,
            s.gap_turns as f32 / minutes,
        );
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let root = PathBuf::from(args.next().expect("the folder of the unpacked packages"));
    let most = args.next().map_or(80, |most| most.parse().expect("a number of sentences"));
    let wanted = args.next().unwrap_or_default();
    let detectors: Vec<_> = detectors().into_iter().filter(|(name, _)| name.contains(&wanted)).collect();
    let speakers: Vec<Speaker> = material::speakers(&root, most);
    let lines: Vec<Line> = speakers.iter().map(|speaker| material::line(speaker, 1_200..2_500, &mut Draw(1))).collect();
    let agent = Line { sound: at_level(&lines[0].sound, -20.0), ..lines[0].clone() };
    let quiet = Quiet { music: material::music(&root), lines };

    println!("## Material\n\n| speaker | sentences | utterances | minutes | speech % |\n|---|---|---|---|---|");
    for (speaker, line) in speakers.iter().zip(&quiet.lines) {
        let active = line.active.iter().filter(|active| **active).count();
        println!(
            "| {} | {} | {} | {:.1} | {} |",
            speaker.name,
            speaker.prompts.len(),
            line.utterances.len(),
            line.sound.len() as f32 / 480_000.0,
            share(active, line.active.len())
        );
    }

    println!("\n## Speech");
    for condition in CONDITIONS {
        let mixed: Vec<Vec<i16>> = quiet.lines.iter().map(|line| condition.add_to(line, &quiet)).collect();
        let rows: Vec<_> = detectors
            .iter()
            .map(|(name, detector)| {
                let mut score = SpeechScore::default();
                quiet.lines.iter().zip(&mixed).for_each(|(line, samples)| score.hear(*detector, line, samples));
                (name.clone(), score)
            })
            .collect();
        speech_table(condition.name, &rows);
    }
    println!("\n## Speech by speaker, clean");
    for (speaker, line) in speakers.iter().zip(&quiet.lines) {
        let samples = coded(&line.sound);
        let rows: Vec<_> = detectors
            .iter()
            .map(|(name, detector)| {
                let mut score = SpeechScore::default();
                score.hear(*detector, line, &samples);
                (name.clone(), score)
            })
            .collect();
        speech_table(speaker.name, &rows);
    }

    println!("\n## No caller\n\nFalse onsets a minute / false turns a minute / percent of the time called speech.\n");
    println!("| sound | {} |", detectors.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(detectors.len()));
    for (name, sound) in noises(&quiet, &agent) {
        let samples = coded(&sound);
        let cells: Vec<String> = detectors
            .iter()
            .map(|(_, detector)| {
                let score = judge::noise(*detector, &samples);
                format!("{:.1} / {:.1} / {:.0}", score.onsets_a_minute, score.turns_a_minute, score.share)
            })
            .collect();
        println!("| {name} ({:.0}) | {} |", level(&sound), cells.join(" | "));
    }

    println!("\n## Cost\n\nµs a frame of 20 ms.\n");
    let dialogue = material::line(&speakers[0], 2_500..6_000, &mut Draw(3));
    let hiss = noise::white(dialogue.sound.len() / 8_000 + 1, -60.0, &mut Draw(5));
    let dialogue_sound: Vec<f32> = dialogue.sound.iter().zip(&hiss).map(|(a, b)| a + b).collect();
    let active = dialogue.active.iter().filter(|active| **active).count();
    let sounds = [
        ("digital silence".to_string(), vec![0; 480_000]),
        ("hiss -60 dBFS".to_string(), coded(&hiss[..480_000])),
        ("hiss -30 dBFS".to_string(), coded(&noise::white(60, -30.0, &mut Draw(9)))),
        ("busy tone".to_string(), coded(&noise::tones(60, &[480.0, 620.0], &[(500, 500)], -20.0))),
        (format!("a caller, {} % speech", share(active, dialogue.active.len())), coded(&dialogue_sound)),
    ];
    println!("| sound | {} |", detectors.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(detectors.len()));
    for (name, samples) in sounds {
        let cells: Vec<String> =
            detectors.iter().map(|(_, detector)| format!("{:.2}", cost::us_a_frame(*detector, &samples))).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}
