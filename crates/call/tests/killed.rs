//! A process that records is killed with SIGKILL: what it handed over is on the disk and replays.

use call::recorder::{RecordingLimits, Recordings};
use conversation::{Conversation, Input, Policy};
use recording::{Header, Tail, ToolFacts};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;
use vocab::work::WorkEvent;
use vocab::{AgentId, CallSid, CallTime, Samples, SaveId, SessionId, StreamSid, VoiceEvidence, WallTime};

const PLACE: &str = "ANSWERBACK_TEST_KILLED_PLACE";

#[test]
#[ignore = "the process that the test below kills"]
fn records_until_it_is_killed() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let policy = Policy::default();
    let header = Header {
        format: recording::FORMAT,
        program: "test".into(),
        session: SessionId::new("ses_1"),
        stream: StreamSid::new("MZ1"),
        call: CallSid::new("CA1"),
        agent: AgentId::new("bistro"),
        caller: "…23".into(),
        started: WallTime(0),
        policy: serde_json::to_value(&policy).unwrap(),
        detector: serde_json::Value::Null,
        tools: ToolFacts::default(),
        scrubbed: false,
    };
    let (recordings, _thread) = Recordings::start(RecordingLimits::new(place)).unwrap();
    let mut recorder = recordings.record(&header).unwrap();
    let mut conversation = Conversation::new(policy);
    let mut commands = Vec::new();
    let mut steps = 0;
    for frame in 0..3_000_u64 {
        let at = CallTime::from_ms(frame * 20);
        let evidence = VoiceEvidence { speech: frame % 100 < 40, level_dbfs: -20 };
        recorder.caller_audio(&[0xff; 160]);
        let mut inputs = vec![Input::CallerAudio { samples: Samples(160), evidence }];
        if frame % 25 == 24 {
            inputs.push(Input::DtmfPressed { digit: '1' });
            inputs.push(Input::Work(WorkEvent::Saved { save: SaveId(frame as u32) }));
        }
        let with_operation = inputs.len() > 1;
        for input in inputs {
            recorder.input(at, &input);
            commands.clear();
            conversation.step(at, input, &mut commands);
            recorder.commands(&commands);
            steps += 1;
        }
        if with_operation {
            // An operation was concerned, so all up to here was handed over.
            println!("\nstep {steps}");
            std::io::stdout().flush().unwrap();
        }
        // Real time: the writer thread must get its turn as in a call.
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_recording_of_a_killed_process_replays_to_the_last_step_that_concerned_an_operation() {
    let place = std::env::temp_dir().join(format!("killed-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "records_until_it_is_killed", "--ignored", "--nocapture"])
        .env(PLACE, &place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        if let Some(steps) = line.strip_prefix("step ") {
            told = steps.parse().unwrap();
        }
        if told > 150 {
            break;
        }
    }
    // A write of a few kB after the hand-over: the process is not killed before the thread could begin.
    std::thread::sleep(Duration::from_millis(50));
    child.kill().unwrap();
    child.wait().unwrap();
    let report = replay::replay_dir(&place.join("ses_1-MZ1")).unwrap();
    assert_eq!(report.drift, None);
    assert!(told > 150 && report.steps >= told, "{} steps, {told} were handed over", report.steps);
    assert!(matches!(report.tail, Some(Tail::Open | Tail::Torn { .. })), "{:?}", report.tail);
    std::fs::remove_dir_all(place).unwrap();
}
