use super::*;
use conversation::{Command, Input, Policy};
use recording::{Piece, Reader, Recorded, Tail, ToolFacts, Voice};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use testkit::Stage;
use vocab::model::ModelEvent;
use vocab::work::WorkEvent;
use vocab::{AgentId, CallSid, Samples, SaveId, SessionId, StreamSid, VoiceEvidence, WallTime};

const FRAME: [u8; 160] = [0xff; 160];
const QUIET: Input =
    Input::CallerAudio { samples: Samples(160), evidence: VoiceEvidence { speech: false, level_dbfs: -70 } };

/// A directory of this test alone, removed at its end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("recorder-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let place = std::env::temp_dir().join(name);
        fs::create_dir_all(&place).unwrap();
        Self(place)
    }

    fn only_recording(&self) -> PathBuf {
        let mut found: Vec<_> = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn header() -> Header {
    Header {
        format: recording::FORMAT,
        program: "test".into(),
        session: SessionId::new("ses_1"),
        stream: StreamSid::new("MZ/../1"),
        call: CallSid::new("CA1"),
        agent: AgentId::new("bistro"),
        caller: "…23".into(),
        started: WallTime(0),
        policy: serde_json::to_value(Policy::default()).unwrap(),
        detector: serde_json::Value::Null,
        tools: ToolFacts::default(),
        scrubbed: false,
    }
}

type Lines = Vec<Recorded<Input, Command>>;

fn read(place: &Path) -> (Lines, Tail<Input>) {
    let bytes = fs::read(place.join(STEPS_FILE)).unwrap();
    let mut log = Reader::<_, Input, Command>::new("call.jsonl", &bytes[..]).unwrap();
    let lines = log.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    (lines, log.tail().cloned().unwrap())
}

fn steps_of(lines: &Lines) -> Vec<(CallTime, Input, Vec<Command>)> {
    lines
        .iter()
        .map(|line| match line {
            Recorded::QuietFrame { at, frame, .. } => {
                (*at, Input::CallerAudio { samples: frame.samples, evidence: frame.evidence }, Vec::new())
            }
            Recorded::SmoothPiece {
                at,
                piece: Piece { voice: Voice { response, item, playback }, from, samples },
                ..
            } => (
                *at,
                Input::Model(ModelEvent::AudioReceived { response: *response, item: *item, samples: *samples }),
                vec![
                    Command::KeepAudio { playback: *playback, from: *from },
                    Command::SendAudio { playback: *playback, from: *from, to: *from + *samples },
                ],
            ),
            Recorded::Step(step) => (step.at, step.input.clone(), step.commands.clone()),
        })
        .collect()
}

/// Gives the recorder what a driver would, with the audio that belongs to it.
fn drive(recorder: &mut Recorder, at: CallTime, input: &Input, commands: &[Command]) {
    if let Input::CallerAudio { samples, .. } = input {
        recorder.caller_audio(&FRAME[..samples.0 as usize]);
    }
    recorder.input(at, input);
    recorder.commands(commands);
    for command in commands {
        if let Command::SendAudio { from, to, .. } = command {
            recorder.agent_audio(&vec![7; ((*to - *from).0 as usize).div_ceil(160) * 160]);
        }
    }
}

fn quiet_seconds(recorder: &mut Recorder, from_ms: u64, seconds: u64) {
    for frame in 0..seconds * 50 {
        drive(recorder, CallTime::from_ms(from_ms + frame * 20), &QUIET, &[]);
    }
}

#[test]
fn a_staged_call_is_written_as_it_happened_with_its_audio() {
    let place = Place::new();
    let (recordings, thread) = Recordings::start(RecordingLimits::new(&place.0)).unwrap();
    let mut recorder = recordings.record(&header()).unwrap();
    let told = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let mut stage = Stage::new(Policy::default());
    let listener = told.clone();
    stage.watch = Some(Box::new(move |at, input, commands| {
        listener.borrow_mut().push((at, input.clone(), commands.to_vec()));
    }));
    stage.input(Input::CallStarted { greeting: Some("Greet.".into()) });
    stage.model(vocab::model::ModelEvent::SessionReady);
    stage.say(1_990);
    stage.run(3_000);
    stage.take_turn(1_000);
    stage.say(1_000);
    stage.run(3_000);
    stage.take_turn(1_000);
    stage.say_smoothly(2_000);
    stage.run(3_000);
    stage.input(Input::StreamEnded);
    let steps = told.borrow().clone();
    for (at, input, commands) in &steps {
        drive(&mut recorder, *at, input, commands);
    }
    recorder.end();
    drop((recorder, recordings));
    thread.join();

    let recording = place.only_recording();
    assert_eq!(recording.file_name().unwrap(), "ses_1-MZ----1", "a name from outside leads nowhere else");
    let (lines, tail) = read(&recording);
    assert_eq!(steps_of(&lines), steps);
    assert_eq!(tail, Tail::Ended { steps: steps.len() as u64, at: stage.now });
    let caller = fs::read(recording.join(CALLER_FILE)).unwrap();
    let agent = fs::read(recording.join(AGENT_FILE)).unwrap();
    let (mut heard, mut sent, mut smooth) = (0, 0, 0);
    for line in &lines {
        match line {
            Recorded::QuietFrame { caller_at, frame, .. } => {
                assert_eq!(*caller_at, heard);
                heard += u64::from(frame.samples.0);
            }
            Recorded::SmoothPiece { agent_at, piece, .. } => {
                assert_eq!(*agent_at, sent);
                sent += u64::from(piece.samples.0);
                smooth += 1;
            }
            Recorded::Step(step) => {
                if let Input::CallerAudio { samples, .. } = step.input {
                    assert_eq!(step.caller_at, Some(heard));
                    heard += u64::from(samples.0);
                }
                let audio = step.commands.iter().filter_map(|command| match command {
                    Command::SendAudio { from, to, .. } => Some(u64::from((*to - *from).0.div_ceil(160) * 160)),
                    _ => None,
                });
                let audio: Vec<u64> = audio.collect();
                assert_eq!(step.agent_at, (!audio.is_empty()).then_some(sent));
                sent += audio.iter().sum::<u64>();
            }
        }
    }
    assert_eq!((caller.len() as u64, agent.len() as u64), (heard, sent));
    assert!(sent > 0 && smooth > 40, "{smooth} pieces were folded");
}

#[test]
fn a_writer_that_is_stuck_stops_the_recording_and_not_the_call() {
    let place = Place::new();
    let limits = RecordingLimits { max_waiting: 8, ..RecordingLimits::new(&place.0) };
    // Nobody attends the desk: a call that waited would wait for ever.
    let (recordings, desk) = Recordings::unattended(limits);
    let mut recorder = recordings.record(&header()).unwrap();
    quiet_seconds(&mut recorder, 0, 60);
    recorder.end();
    drop((recorder, recordings));
    desk.attend();
    let (lines, tail) = read(&place.only_recording());
    let Tail::Stopped { reason: StopReason::WriterBehind, steps, .. } = tail else { panic!("{tail:?}") };
    assert!((280..400).contains(&lines.len()), "seven chunks of 900 ms fitted: {}", lines.len());
    assert!(steps > lines.len() as u64, "those of the lost chunk are counted");
}

#[test]
fn bytes_that_wait_are_bounded_over_all_calls() {
    let place = Place::new();
    let limits = RecordingLimits { max_bytes_waiting: 20_000, ..RecordingLimits::new(&place.0) };
    let (recordings, desk) = Recordings::unattended(limits);
    let mut calls: Vec<_> = (0..5).map(|_| recordings.record(&header()).unwrap()).collect();
    for recorder in &mut calls {
        quiet_seconds(recorder, 0, 3);
    }
    assert!(desk.waiting.load(Ordering::Relaxed) <= 20_000);
    drop((calls, recordings));
    desk.attend();
    let stopped = fs::read_dir(&place.0).unwrap().filter(|entry| {
        let (_, tail) = read(&entry.as_ref().unwrap().path());
        matches!(tail, Tail::Stopped { .. })
    });
    assert_eq!(stopped.count(), 5);
}

#[test]
fn a_recording_that_is_big_enough_ends_with_a_stopped_line() {
    let place = Place::new();
    let limits = RecordingLimits { max_bytes_each: 100_000, ..RecordingLimits::new(&place.0) };
    let (recordings, thread) = Recordings::start(limits).unwrap();
    let mut recorder = recordings.record(&header()).unwrap();
    quiet_seconds(&mut recorder, 0, 60);
    recorder.end();
    drop((recorder, recordings));
    thread.join();
    let recording = place.only_recording();
    let (lines, tail) = read(&recording);
    assert!(matches!(tail, Tail::Stopped { reason: StopReason::MaxBytes, .. }), "{tail:?}");
    assert!((500..700).contains(&lines.len()), "{}", lines.len());
    let total: u64 = [STEPS_FILE, CALLER_FILE, AGENT_FILE]
        .iter()
        .map(|file| fs::metadata(recording.join(file)).unwrap().len())
        .sum();
    assert!(total < 110_000, "{total}");
}

#[test]
fn a_call_whose_task_died_inside_a_step_leaves_that_steps_input() {
    let place = Place::new();
    let (recordings, thread) = Recordings::start(RecordingLimits::new(&place.0)).unwrap();
    let mut recorder = recordings.record(&header()).unwrap();
    quiet_seconds(&mut recorder, 0, 1);
    recorder.caller_audio(&FRAME);
    recorder.input(CallTime::from_ms(1_000), &QUIET);
    drop((recorder, recordings));
    thread.join();
    let (lines, tail) = read(&place.only_recording());
    assert_eq!(lines.len(), 50);
    let Tail::Torn { inside: Some(inside), .. } = tail else { panic!("{tail:?}") };
    assert_eq!((inside.n, inside.input), (51, QUIET));
}

#[test]
fn what_concerns_an_operation_is_handed_over_at_once_and_the_rest_within_a_second() {
    let place = Place::new();
    let (recordings, mut desk) = Recordings::unattended(RecordingLimits::new(&place.0));
    let mut recorder = recordings.record(&header()).unwrap();
    let mut chunks = || {
        let messages: Vec<_> = desk.mail.try_iter().collect();
        let chunks = messages.iter().filter(|message| matches!(message, Message::Append { .. })).count();
        messages.into_iter().for_each(|message| desk.take(message));
        chunks
    };
    drive(&mut recorder, CallTime::from_ms(10), &QUIET, &[]);
    assert_eq!(chunks(), 0);
    drive(&mut recorder, CallTime::from_ms(20), &Input::Work(WorkEvent::Saved { save: SaveId(1) }), &[]);
    assert_eq!(chunks(), 1);
    quiet_seconds(&mut recorder, 30, 10);
    let handed_over = chunks();
    assert!((10..=14).contains(&handed_over), "{handed_over} in ten seconds");
}

#[test]
fn a_process_that_is_killed_in_the_calls_first_second_leaves_a_log_that_can_be_read() {
    let place = Place::new();
    let (recordings, mut desk) = Recordings::unattended(RecordingLimits::new(&place.0));
    let mut recorder = recordings.record(&header()).unwrap();
    drive(&mut recorder, CallTime::from_ms(10), &QUIET, &[]);
    // What had reached the thread is written, and nothing that is dropped in order.
    desk.mail.try_iter().collect::<Vec<_>>().into_iter().for_each(|message| desk.take(message));
    let (lines, tail) = read(&place.only_recording());
    assert_eq!((lines.len(), tail), (0, Tail::Open));
}

#[test]
fn a_directory_that_is_there_is_never_written_into() {
    let place = Place::new();
    let (recordings, thread) = Recordings::start(RecordingLimits::new(&place.0)).unwrap();
    for _ in 0..3 {
        let mut recorder = recordings.record(&header()).unwrap();
        quiet_seconds(&mut recorder, 0, 1);
        recorder.end();
    }
    drop(recordings);
    thread.join();
    let found: Vec<_> = fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    for recording in found {
        assert_eq!(read(&recording).0.len(), 50);
    }
}

#[test]
fn a_disk_that_refuses_ends_the_recording_only() {
    let place = Place::new();
    let (recordings, mut desk) = Recordings::unattended(RecordingLimits::new(place.0.join("nowhere")));
    let mut recorder = recordings.record(&header()).unwrap();
    let open = desk.mail.recv().unwrap();
    desk.take(open);
    quiet_seconds(&mut recorder, 0, 5);
    assert_eq!(recorder.mailbox.failure(), StopReason::WriteFailed);
    assert_eq!(desk.mail.try_iter().count(), 0, "nothing more is handed over");
}

#[test]
fn whenever_the_process_is_killed_a_step_on_the_disk_finds_its_sound_there() {
    let place = Place::new();
    let (recordings, mut desk) = Recordings::unattended(RecordingLimits::new(&place.0));
    let mut recorder = recordings.record(&header()).unwrap();
    let told = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let mut stage = Stage::new(Policy::default());
    let listener = told.clone();
    stage.watch = Some(Box::new(move |at, input, commands| {
        listener.borrow_mut().push((at, input.clone(), commands.to_vec()));
    }));
    stage.input(Input::CallStarted { greeting: Some("Greet.".into()) });
    stage.model(vocab::model::ModelEvent::SessionReady);
    stage.say(8_000);
    stage.run(9_000);
    let mut looks = 0;
    for (at, input, commands) in told.borrow().iter() {
        drive(&mut recorder, *at, input, commands);
        while let Ok(message) = desk.mail.try_recv() {
            desk.take(message);
            let recording = place.only_recording();
            let size = |file: &str| fs::metadata(recording.join(file)).unwrap().len();
            if size(STEPS_FILE) == 0 {
                continue;
            }
            looks += 1;
            for line in read(&recording).0 {
                let Recorded::Step(step) = line else { continue };
                for command in &step.commands {
                    if let Command::SendAudio { from, to, .. } = command {
                        let sent = u64::from((*to - *from).0);
                        assert!(step.agent_at.unwrap() + sent <= size(AGENT_FILE), "step {}", step.n);
                    }
                }
            }
        }
    }
    assert!(looks >= 10, "{looks}");
}

/// Every write to it fails as on a full disk.
#[cfg(target_os = "linux")]
fn full_disk() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_fills_up_leaves_whole_lines_and_the_word_that_the_recording_stopped() {
    for ends_at_once in [false, true] {
        let place = Place::new();
        let (recordings, mut desk) = Recordings::unattended(RecordingLimits::new(&place.0));
        let mut recorder = recordings.record(&header()).unwrap();
        quiet_seconds(&mut recorder, 0, 3);
        while let Ok(message) = desk.mail.try_recv() {
            desk.take(message);
        }
        let files = desk.open.values_mut().next().unwrap().files.as_mut().unwrap();
        // Part of a line had got through.
        files.steps.write_all(b"{\"n\":1").unwrap();
        files.caller = full_disk();
        if !ends_at_once {
            quiet_seconds(&mut recorder, 3_000, 3);
            while let Ok(message) = desk.mail.try_recv() {
                desk.take(message);
            }
            quiet_seconds(&mut recorder, 6_000, 3);
        }
        recorder.end();
        drop((recorder, recordings));
        desk.attend();
        let (lines, tail) = read(&place.only_recording());
        let Tail::Stopped { reason: StopReason::WriteFailed, steps, at } = tail else { panic!("{tail:?}") };
        assert!((100..=150).contains(&lines.len()), "{}", lines.len());
        assert!(steps > lines.len() as u64 && at > CallTime::from_ms(2_900), "{steps} steps, {at:?}");
    }
}
