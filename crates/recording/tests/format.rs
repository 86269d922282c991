//! What is written reads back; what is torn is told; what is damaged is named by file and line.

use proptest::prelude::*;
use recording::{Frame, Header, Piece, ReadError, Reader, Recorded, Step, StopReason, Tail, ToolFacts, Voice, Writer};
use serde_json::{Value, json};
use vocab::{
    AgentId, CallSid, CallTime, ModelItemId, ModelResponseId, PlaybackId, Samples, SessionId, StreamSid, VoiceEvidence,
    WallTime,
};

type Log<'a> = Reader<&'a [u8], Value, Value>;
type Line = Recorded<Value, Value>;

fn header() -> Header {
    Header {
        format: recording::FORMAT,
        program: "0.1.0".into(),
        session: SessionId::new("ses_1"),
        stream: StreamSid::new("MZ1"),
        call: CallSid::new("CA1"),
        agent: AgentId::new("bistro"),
        caller: "…23".into(),
        started: WallTime(1_790_000_000_000),
        policy: json!({"gate": {"quiet_ms": 650}}),
        detector: json!({"kind": "webrtc"}),
        tools: ToolFacts::default(),
        scrubbed: false,
    }
}

fn frame(samples: u32, speech: bool, level_dbfs: i8) -> Frame {
    Frame { samples: Samples(samples), evidence: VoiceEvidence { speech, level_dbfs } }
}

/// A log of these lines, whose numbers are given in order.
fn write(lines: &[Line]) -> Writer<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for line in lines {
        put(&mut writer, line);
    }
    writer
}

fn put(writer: &mut Writer<Vec<u8>>, line: &Line) {
    match line {
        Recorded::QuietFrame { at, caller_at, frame, .. } => writer.quiet_frame(*at, *caller_at, *frame).unwrap(),
        Recorded::SmoothPiece { at, agent_at, piece, .. } => writer.smooth_piece(*at, *agent_at, *piece).unwrap(),
        Recorded::Step(step) => {
            writer.begin_step(step.at, step.caller_at, &step.input).unwrap();
            writer.end_step(step.agent_at, &step.commands).unwrap();
        }
    }
}

fn read(bytes: &[u8]) -> (Vec<Line>, Option<Tail<Value>>) {
    let mut log = Log::new("call.jsonl", bytes).unwrap();
    assert_eq!(*log.header(), header());
    let lines = log.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    (lines, log.tail().cloned())
}

fn quiet(n: u64, at: u64, caller_at: u64, frame: Frame) -> Line {
    Recorded::QuietFrame { n, at: CallTime(at), caller_at, frame }
}

fn voice(number: u32) -> Voice {
    Voice { response: ModelResponseId(number), item: ModelItemId(number + 1), playback: PlaybackId(number + 2) }
}

fn piece(n: u64, at: u64, agent_at: u64, from: u32) -> Line {
    let piece = Piece { voice: voice(4), from: Samples(from), samples: Samples(160) };
    Recorded::SmoothPiece { n, at: CallTime(at), agent_at, piece }
}

fn step(n: u64, at: u64, input: Value, commands: Vec<Value>) -> Line {
    Recorded::Step(Step { n, at: CallTime(at), input, commands, caller_at: None, agent_at: Some(n * 160) })
}

/// A small call: two steps around a quiet second.
fn small() -> Vec<Line> {
    let mut lines = vec![step(1, 0, json!({"call_started": {}}), vec![json!("a")])];
    lines.extend((0..60).map(|k| quiet(2 + k, 20_000 * (k + 1), 160 * k, frame(160, false, -70))));
    lines.push(step(62, 1_300_000, json!("time_passed"), vec![json!({"x": ",\"commands\":["}), json!(2)]));
    lines
}

#[test]
fn a_quiet_second_is_one_short_line() {
    let mut writer = write(&small()[..51]);
    writer.end().unwrap();
    let bytes = writer.into_inner();
    let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
    assert_eq!(lines.len(), 5, "header, step, run, end, and nothing");
    assert!(lines[2].len() < 150, "{}", String::from_utf8_lossy(lines[2]));
}

#[test]
fn a_second_of_smooth_speech_over_a_quiet_line_is_one_short_line() {
    let mut lines = vec![step(1, 0, json!({"call_started": {}}), vec![])];
    for k in 0..25 {
        lines.push(quiet(2 + 2 * k, 20_000 * (k + 1), 160 * k, frame(160, false, -70)));
        lines.push(piece(3 + 2 * k, 20_000 * (k + 1) + 7_000, 800 + 160 * k, 1_600 + 160 * k as u32));
    }
    let mut writer = write(&lines);
    writer.end().unwrap();
    let bytes = writer.into_inner();
    let written: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
    assert_eq!(written.len(), 5, "header, step, run, end, and nothing");
    assert!(written[2].len() < 700, "{}", String::from_utf8_lossy(written[2]));
    assert_eq!(read(&bytes).0, lines);
}

#[test]
fn a_piece_that_does_not_follow_begins_a_line_of_its_own() {
    let other = |n, at, agent_at, from, number| Recorded::SmoothPiece {
        n,
        at: CallTime(at),
        agent_at,
        piece: Piece { voice: voice(number), from: Samples(from), samples: Samples(160) },
    };
    let lines = [
        piece(1, 0, 0, 0),
        piece(2, 20, 160, 160),
        // A hole in the playback, a hole in the sidecar, another voice, time that runs backwards.
        piece(3, 40, 320, 480),
        piece(4, 60, 640, 640),
        other(5, 80, 800, 800, 9),
        other(6, 70, 960, 960, 9),
    ];
    let mut writer = write(&lines);
    writer.end().unwrap();
    let bytes = writer.into_inner();
    assert_eq!(bytes.split(|byte| *byte == b'\n').count(), 8, "header, five runs, end, and nothing");
    assert_eq!(read(&bytes).0, lines);
}

#[test]
fn a_log_that_ends_in_order_says_so() {
    let mut writer = write(&small());
    writer.end().unwrap();
    let (lines, tail) = read(&writer.into_inner());
    assert_eq!(lines, small());
    assert_eq!(tail, Some(Tail::Ended { steps: 62, at: CallTime(1_300_000) }));
}

#[test]
fn a_log_that_stops_early_says_why() {
    let mut writer = write(&small());
    writer.stop(StopReason::MaxBytes).unwrap();
    let (lines, tail) = read(&writer.into_inner());
    assert_eq!(lines, small());
    let reason = StopReason::MaxBytes;
    assert_eq!(tail, Some(Tail::Stopped { reason, steps: 62, at: CallTime(1_300_000) }));
}

#[test]
fn torn_at_any_byte_of_its_last_line_a_log_keeps_every_step_before_it() {
    let whole = write(&small()).into_inner();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for end in last..=whole.len() {
        let (lines, tail) = read(&whole[..end]);
        let kept = if end >= whole.len() - 1 { small().len() } else { small().len() - 1 };
        assert_eq!(lines, small()[..kept], "cut at {end}");
        let bytes = end - last;
        match tail {
            Some(Tail::Open) => assert!(bytes == 0 || end >= whole.len() - 1, "cut at {end}"),
            Some(Tail::Torn { line: 5, bytes: torn, inside }) => {
                assert_eq!(torn, bytes);
                let input_written = whole[last..end].windows(13).any(|part| part == b"\"time_passed\"");
                assert_eq!(
                    inside.map(|step| (step.n, step.input)),
                    input_written.then_some((62, json!("time_passed")))
                );
            }
            other => panic!("cut at {end}: {other:?}"),
        }
    }
}

#[test]
fn a_step_under_way_is_on_paper_before_its_commands() {
    let mut writer = write(&small());
    writer.begin_step(CallTime(1_400_000), None, &json!({"stream_ended": null})).unwrap();
    let (lines, tail) = read(&writer.into_inner());
    assert_eq!(lines.len(), 62);
    let Some(Tail::Torn { inside: Some(inside), .. }) = tail else { panic!("{tail:?}") };
    assert_eq!((inside.n, inside.at, inside.input), (63, CallTime(1_400_000), json!({"stream_ended": null})));
}

#[test]
fn a_damaged_middle_is_named_by_file_and_line_and_nothing_follows_it() {
    let mut writer = write(&small());
    writer.end().unwrap();
    let whole = String::from_utf8(writer.into_inner()).unwrap();
    let damage = [
        ("\"gaps_us\":[[20000,49]]", "\"gaps_us\":[[20000,48]]", 3, "gaps_us"),
        ("\"frames\":50", "\"frames\":4000000000", 3, "4000000000"),
        ("{\"n\":2,", "{\"n\":3,", 3, "step 3 where step 2 must be"),
        ("{\"n\":2,", "{n:2,", 3, "key must be a string"),
        ("\"steps\":62", "\"steps\":61", 6, "61"),
        (",\"input\":\"time_passed\"", "", 5, "neither"),
    ];
    for (from, to, line, what) in damage {
        let broken = whole.replacen(from, to, 1);
        assert_ne!(broken, whole, "{from}");
        let mut log = Log::new("call.jsonl", broken.as_bytes()).unwrap();
        let error = log.by_ref().find_map(Result::err).unwrap();
        let text = error.to_string();
        assert!(text.starts_with(&format!("call.jsonl:{line}: ")) && text.contains(what), "{text}");
        assert!(log.next().is_none());
    }
}

#[test]
fn lines_after_the_end_are_an_error() {
    let mut writer = write(&small());
    writer.end().unwrap();
    let mut bytes = writer.into_inner();
    bytes.extend_from_slice(b"{\"n\":63,\"at\":0,\"input\":1,\"commands\":[]}\n");
    let error = Log::new("call.jsonl", &bytes[..]).unwrap().find_map(Result::err).unwrap();
    assert!(error.to_string().starts_with("call.jsonl:7: "), "{error}");
}

#[test]
fn what_has_no_header_or_comes_from_a_later_program_is_refused() {
    let refused = |bytes: &[u8]| Log::new("call.jsonl", bytes).err().unwrap();
    assert!(matches!(refused(b""), ReadError::NoHeader { .. }));
    assert!(matches!(refused(b"{\"recording\":{\"for"), ReadError::NoHeader { .. }));
    assert!(matches!(refused(b"{\"hello\":1}\n"), ReadError::Corrupt { line: 1, .. }));
    assert!(matches!(refused(b"{\"recording\":{\"format\":3}}\n"), ReadError::Newer { found: 3, .. }));
}

#[test]
fn a_line_without_end_does_not_take_all_memory() {
    struct Endless(&'static [u8]);
    impl std::io::Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                into.fill(b' ');
                return Ok(into.len());
            }
            self.0.read(into)
        }
    }
    let head = serde_json::to_string(&json!({"recording": header()})).unwrap() + "\n";
    let from = std::io::BufReader::new(Endless(head.leak().as_bytes()));
    let mut log = Reader::<_, Value, Value>::new("call.jsonl", from).unwrap();
    assert!(log.next().unwrap().unwrap_err().to_string().contains("more than"));
}

fn frames() -> impl Strategy<Value = Frame> {
    let samples = prop_oneof![4 => Just(160), 1 => 0_u32..4_000];
    let level = prop_oneof![3 => Just(-70_i8), 1 => any::<i8>()];
    (samples, any::<bool>(), level).prop_map(|(samples, speech, level)| frame(samples, speech, level))
}

#[derive(Clone, Debug)]
enum Kind {
    Frame,
    /// Of which voice.
    Piece(u32),
    Step(u8),
}

/// The number is the gap before it, which may run backwards; the flag makes a hole in the audio.
fn happenings() -> impl Strategy<Value = Vec<(i64, Frame, Kind, bool)>> {
    let gap = prop_oneof![4 => Just(20_000_i64), 2 => 0_i64..60_000, 1 => -5_000_i64..1];
    let kind = prop_oneof![
        8 => Just(Kind::Frame),
        4 => prop::bool::weighted(0.1).prop_map(|other| Kind::Piece(u32::from(other))),
        1 => any::<u8>().prop_map(Kind::Step),
    ];
    prop::collection::vec((gap, frames(), kind, prop::bool::weighted(0.05)), 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn folding_loses_no_frame_and_no_microsecond(happenings in happenings(), flushes in any::<u64>()) {
        let (mut at, mut caller_at, mut agent_at, mut from) = (1_000_000_i64, 0_u64, 0_u64, 0_u32);
        let mut lines = Vec::new();
        for (gap, frame, kind, hole) in happenings {
            at = (at + gap).max(0);
            caller_at += u64::from(hole) * 77;
            let n = lines.len() as u64 + 1;
            lines.push(match kind {
                Kind::Frame => quiet(n, at as u64, caller_at, frame),
                Kind::Piece(number) => {
                    from += u32::from(hole) * 77;
                    let piece = Piece { voice: voice(number), from: Samples(from), samples: frame.samples };
                    Recorded::SmoothPiece { n, at: CallTime(at as u64), agent_at, piece }
                }
                Kind::Step(byte) => Recorded::Step(Step {
                    n,
                    at: CallTime(at as u64),
                    input: json!({"caller_audio": byte}),
                    commands: vec![json!([byte]); usize::from(byte % 3)],
                    caller_at: Some(caller_at),
                    agent_at: (byte % 2 == 0).then_some(u64::from(byte)),
                }),
            });
            match lines.last() {
                Some(Recorded::SmoothPiece { piece, .. }) => {
                    from += piece.samples.0;
                    agent_at += u64::from(piece.samples.0.div_ceil(160) * 160);
                }
                _ => caller_at += u64::from(frame.samples.0),
            }
        }
        let mut writer = Writer::new(Vec::new(), &header()).unwrap();
        for (place, line) in lines.iter().enumerate() {
            put(&mut writer, line);
            if flushes >> (place % 64) & 1 == 1 {
                writer.flush_run().unwrap();
            }
        }
        writer.end().unwrap();
        let (back, tail) = read(&writer.into_inner());
        prop_assert_eq!(back, lines);
        let ended = matches!(tail, Some(Tail::Ended { .. }));
        prop_assert!(ended);
    }
}
