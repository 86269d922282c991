//! Recordings of staged calls.
#![allow(dead_code)] // Each test file uses its part.

use conversation::{Command, Input, Policy};
use recording::{AGENT_FILE, CALLER_FILE, Frame, Header, Piece, STEPS_FILE, ToolFacts, Voice, Writer};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use testkit::Stage;
use vocab::model::ModelEvent;
use vocab::{AgentId, CallSid, CallTime, SessionId, StreamSid, ToolName, WallTime};

/// A directory of one test, removed at its end.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("replay-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let place = std::env::temp_dir().join(name);
        fs::create_dir_all(&place).unwrap();
        Self(place)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn header(policy: &Policy) -> Header {
    Header {
        format: recording::FORMAT,
        program: "0.1.0".into(),
        session: SessionId::new("ses_01"),
        stream: StreamSid::new("MZ01"),
        call: CallSid::new("CA01"),
        agent: AgentId::new("bistro"),
        caller: "…23".into(),
        started: WallTime(1_790_000_000_000),
        policy: serde_json::to_value(policy).unwrap(),
        detector: serde_json::json!({"kind": "webrtc"}),
        tools: ToolFacts { names: vec![ToolName::new("book_table")], digest: "0".repeat(64) },
        scrubbed: false,
    }
}

/// What a driver's recorder does, in memory.
pub struct Tape {
    format: u32,
    steps: Writer<Vec<u8>>,
    caller: Vec<u8>,
    agent: Vec<u8>,
}

impl Tape {
    pub fn new(policy: &Policy) -> Self {
        Self::of_format(recording::FORMAT, policy)
    }

    pub fn of_format(format: u32, policy: &Policy) -> Self {
        let steps = Writer::new(Vec::new(), &Header { format, ..header(policy) }).unwrap();
        Self { format, steps, caller: Vec::new(), agent: Vec::new() }
    }

    pub fn take(&mut self, at: CallTime, input: &Input, commands: &[Command], audio: Option<&[u8]>) {
        let mut caller_at = None;
        if let Input::CallerAudio { samples, evidence } = input {
            let from = self.caller.len() as u64;
            match audio {
                Some(codes) => self.caller.extend_from_slice(codes),
                None => {
                    let code = if evidence.speech { 0x2a } else { 0xff };
                    self.caller.extend(std::iter::repeat_n(code, samples.0 as usize));
                }
            }
            if commands.is_empty() {
                let frame = Frame { samples: *samples, evidence: *evidence };
                return self.steps.quiet_frame(at, from, frame).unwrap();
            }
            caller_at = Some(from);
        }
        if let (
            Input::Model(ModelEvent::AudioReceived { response, item, samples }),
            [Command::KeepAudio { playback, from }, Command::SendAudio { to, .. }],
        ) = (input, commands)
            && self.format >= 2
            && *to == *from + *samples
        {
            let voice = Voice { response: *response, item: *item, playback: *playback };
            let agent_at = self.agent.len() as u64;
            self.agent.extend(std::iter::repeat_n(0x3a, (samples.0 as usize).div_ceil(160) * 160));
            return self.steps.smooth_piece(at, agent_at, Piece { voice, from: *from, samples: *samples }).unwrap();
        }
        self.steps.begin_step(at, caller_at, input).unwrap();
        let from = self.agent.len() as u64;
        for command in commands {
            if let Command::SendAudio { from, to, .. } = command {
                let padded = ((*to - *from).0 as usize).div_ceil(160) * 160;
                self.agent.extend(std::iter::repeat_n(0x3a, padded));
            }
        }
        self.steps.end_step((self.agent.len() as u64 > from).then_some(from), commands).unwrap();
    }

    pub fn write(mut self, dir: &Path) {
        self.steps.end().unwrap();
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(STEPS_FILE), self.steps.into_inner()).unwrap();
        fs::write(dir.join(CALLER_FILE), self.caller).unwrap();
        fs::write(dir.join(AGENT_FILE), self.agent).unwrap();
    }
}

/// Records what `script` makes of a call whose model is ready.
pub fn record(dir: &Path, policy: &Policy, script: impl FnOnce(&mut Stage)) {
    record_on(Tape::new(policy), dir, policy, script);
}

pub fn record_on(tape: Tape, dir: &Path, policy: &Policy, script: impl FnOnce(&mut Stage)) {
    let tape = Rc::new(RefCell::new(tape));
    let mut stage = Stage::new(policy.clone());
    let watched = tape.clone();
    stage.watch = Some(Box::new(move |at, input, commands| watched.borrow_mut().take(at, input, commands, None)));
    stage.input(Input::CallStarted { greeting: None });
    stage.model(ModelEvent::SessionReady);
    script(&mut stage);
    stage.input(Input::StreamEnded);
    drop(stage);
    Rc::into_inner(tape).unwrap().into_inner().write(dir);
}

/// The caller books a table; it commits about `after_ms` after the acknowledgement was heard and is announced in a quiet
/// moment.
pub fn booking(stage: &mut Stage, after_ms: u64) {
    stage.take_turn(1_000);
    stage.run(300);
    let call = stage.call_tool("book_table");
    stage.run(30);
    stage.admit(call, "op_1");
    stage.run(900);
    stage.say(1_500);
    stage.run(1_600 + after_ms);
    stage.commit("op_1", "dlv_1");
    answered(stage, 400, 2_000);
    stage.run(3_000);
}

/// Runs until the model is asked for something new, which it says after `delay_ms`.
pub fn answered(stage: &mut Stage, delay_ms: u64, ms: u32) {
    let asked = stage.responses_asked();
    for _ in 0..1_000 {
        if stage.responses_asked() > asked {
            stage.run(delay_ms);
            stage.say(ms);
            return;
        }
        stage.run(10);
    }
    panic!("nothing was asked of the model");
}
