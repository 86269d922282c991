use super::*;
use proptest::prelude::*;
use vocab::{Epoch, PlaybackId, Samples};

/// Shapes as captured from live calls, ids shortened.
const CONNECTED: &str = r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#;
const START: &str = r#"{"event":"start","sequenceNumber":"1","start":{"accountSid":"AC1","streamSid":"MZ1","callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{"token":"t0k","n":7}},"streamSid":"MZ1"}"#;
const MEDIA: &str = r#"{"event":"media","sequenceNumber":"2","media":{"track":"inbound","chunk":"1","timestamp":"155","payload":"/3//fw=="},"streamSid":"MZ1"}"#;
const DTMF: &str =
    r#"{"event":"dtmf","streamSid":"MZ1","sequenceNumber":"5","dtmf":{"track":"inbound_track","digit":"1"}}"#;
const MARK: &str = r#"{"event":"mark","sequenceNumber":"4","streamSid":"MZ1","mark":{"name":"e3:p5:9600"}}"#;
const STOP: &str =
    r#"{"event":"stop","sequenceNumber":"5","streamSid":"MZ1","stop":{"accountSid":"AC1","callSid":"CA1"}}"#;
const ALL: [&str; 6] = [CONNECTED, START, MEDIA, DTMF, MARK, STOP];

fn read(text: &str) -> Inbound {
    decode(text, &mut Vec::new()).inbound
}
fn ignored(text: &str) -> Ignored {
    match read(text) {
        Inbound::Ignored(why) => why,
        other => panic!("{text} is {other:?}"),
    }
}
fn started(text: &str) -> Start {
    match read(text) {
        Inbound::Started(start) => *start,
        other => panic!("{text} is {other:?}"),
    }
}
fn refused(from: &str, to: &str) -> StartProblem {
    assert!(START.contains(from), "{from}");
    match read(&START.replace(from, to)) {
        Inbound::StartRefused(problem) => problem,
        other => panic!("{to} is {other:?}"),
    }
}

#[test]
fn connected_is_read_whatever_its_version() {
    assert_eq!(read(CONNECTED), Inbound::Connected { protocol: "Call".into(), version: "1.0.0".into() });
    assert!(matches!(read(r#"{"event":"connected"}"#), Inbound::Connected { .. }));
}

#[test]
fn start_is_read_with_its_identities_and_parameters() {
    let start = started(START);
    assert_eq!(start.stream, StreamSid::new("MZ1"));
    assert_eq!(start.call, CallSid::new("CA1"));
    assert_eq!(start.account, "AC1");
    assert_eq!(start.tracks, ["inbound"]);
    assert_eq!(start.parameters["token"], "t0k");
    assert_eq!(start.parameters["n"], "7", "a clone's number is its text");
    assert_eq!(decode(START, &mut Vec::new()).stream.as_deref(), Some("MZ1"));
    assert!(!format!("{start:?}").contains("t0k"), "a token is not for logs");
}

#[test]
fn start_without_parameters_or_tracks_and_with_numbers_as_strings_is_a_start() {
    let text = START
        .replace(r#""customParameters":{"token":"t0k","n":7}"#, r#""customParameters":{}"#)
        .replace("8000", "\"8000\"")
        .replace(r#""channels":1"#, r#""channels":"1""#);
    assert!(started(&text).parameters.is_empty());
    let bare = r#"{"event":"start","start":{"streamSid":"MZ1","callSid":"CA1","accountSid":"AC1","mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1}}}"#;
    assert!(started(bare).tracks.is_empty());
}

#[test]
fn start_in_another_format_is_refused_by_name() {
    let format = |encoding: &str, rate: &str, channels: &str| StartProblem::Format {
        encoding: encoding.into(),
        rate: rate.into(),
        channels: channels.into(),
    };
    assert_eq!(refused("audio/x-mulaw", "audio/x-l16"), format("audio/x-l16", "8000", "1"));
    assert_eq!(refused("8000", "16000"), format("audio/x-mulaw", "16000", "1"));
    assert_eq!(refused("8000", "\"16k\""), format("audio/x-mulaw", "16k", "1"));
    assert_eq!(refused(r#""channels":1"#, r#""channels":2"#), format("audio/x-mulaw", "8000", "2"));
    assert_eq!(
        refused("audio/x-mulaw", "audio/x-l16").to_string(),
        "the stream carries audio/x-l16 at 8000 Hz on 1 channel(s); audio/x-mulaw at 8000 Hz on 1 is needed"
    );
    assert_eq!(refused("mediaFormat", "format"), StartProblem::Lacks { field: "start.mediaFormat" });
    assert_eq!(refused("accountSid", "account"), StartProblem::Lacks { field: "start.accountSid" });
    assert_eq!(refused("callSid", "call"), StartProblem::Lacks { field: "start.callSid" });
    assert_eq!(refused(r#""start":"#, r#""began":"#), StartProblem::Lacks { field: "start" });
}

#[test]
fn start_of_another_carrier_is_told_by_its_name() {
    for (dialect, text) in [
        (
            "Telnyx",
            r#"{"event":"start","stream_id":"x","start":{"call_control_id":"c","media_format":{"encoding":"PCMU"}}}"#,
        ),
        ("Plivo", r#"{"event":"start","start":{"streamId":"x","callId":"c"}}"#),
        ("Exotel", r#"{"event":"start","stream_sid":"x","start":{"stream_sid":"x","call_sid":"c","account_sid":"a"}}"#),
    ] {
        assert_eq!(read(text), Inbound::StartRefused(StartProblem::OtherDialect { dialect }), "{text}");
    }
}

#[test]
fn media_fills_the_buffer_and_keeps_its_label() {
    let mut audio = vec![9; 400];
    let decoded = decode(MEDIA, &mut audio);
    let frame = MediaFrame { chunk: Some(1), timestamp: Some(AudioMs(155)), sequence: Some(2) };
    assert_eq!(decoded, Decoded { stream: Some("MZ1".into()), inbound: Inbound::Media(frame) });
    assert_eq!(audio, [0xff, 0x7f, 0xff, 0x7f]);
}

#[test]
fn media_is_the_same_in_any_number_form_key_order_spacing_and_escaping() {
    let frame = Inbound::Media(MediaFrame { chunk: Some(1), timestamp: Some(AudioMs(155)), sequence: Some(2) });
    for text in [
        r#"{"streamSid":"MZ1","media":{"payload":"/3//fw==","timestamp":155,"chunk":1,"track":"inbound"},"sequenceNumber":2,"event":"media"}"#,
        "\n{ \"event\" :\t\"media\" , \"sequenceNumber\": \"2\", \"streamSid\": \"MZ1\",\r\n \"media\": { \"chunk\": \"1\", \"timestamp\": \"155\" , \"payload\": \"/3//fw==\" } } ",
        r#"{"event":"media","sequenceNumber":"2","media":{"track":"inbound","chunk":"1","timestamp":"155","payload":"\/3\/\/fw=="},"streamSid":"MZ1"}"#,
        r#"{"\u0065vent":"med\u0069a","sequenceNumber":"2","media":{"track":"inbound","chunk":"1","timestamp":"155","payload":"/3//fw=="},"streamSid":"MZ1"}"#,
        r#"{"event":"media","sequenceNumber":"2","media":{"track":"inbound","chunk":"1","timestamp":"155","payload":"/3//fw","extra":{"a":[1,{"b":null}]}},"streamSid":"MZ1","new":[true,-1.5e3]}"#,
        r#"{"event":"media","new":true,"sequenceNumber":"2","media":{"chunk":"1","timestamp":"155","payload":"/3//fw==","new":null},"streamSid":"MZ1"}"#,
    ] {
        let mut audio = Vec::new();
        assert_eq!(decode(text, &mut audio).inbound, frame, "{text}");
        assert_eq!(audio, [0xff, 0x7f, 0xff, 0x7f], "{text}");
        assert_eq!(decode(text, &mut audio).stream.as_deref(), Some("MZ1"), "{text}");
    }
}

#[test]
fn media_of_any_length_is_taken_and_a_label_that_is_none_is_left_out() {
    for length in [0, 1, 2, 3, 159, 160, 161, 8_000] {
        let payload = BASE64.encode(vec![0x42; length]);
        let text = format!(r#"{{"event":"media","media":{{"chunk":"-1","timestamp":"1.5","payload":"{payload}"}}}}"#);
        let mut audio = Vec::new();
        let frame = MediaFrame { chunk: None, timestamp: None, sequence: None };
        assert_eq!(decode(&text, &mut audio).inbound, Inbound::Media(frame));
        assert_eq!(audio.len(), length);
    }
}

#[test]
fn media_that_cannot_be_heard_is_passed_over_and_leaves_no_sound_behind() {
    let mut audio = vec![1; 10];
    for (text, why) in [
        (r#"{"event":"media","media":{"payload":"/3=/"}}"#, Ignored::BadPayload),
        (r#"{"event":"media","media":{"payload":"not base64!"}}"#, Ignored::BadPayload),
        (r#"{"event":"media","media":{"payload":"A"}}"#, Ignored::BadPayload),
        (r#"{"event":"media","media":{}}"#, Ignored::Incomplete { event: "media" }),
        (r#"{"event":"media","media":{"payload":5}}"#, Ignored::Incomplete { event: "media" }),
        (r#"{"event":"media","media":"x"}"#, Ignored::Incomplete { event: "media" }),
        (r#"{"event":"media"}"#, Ignored::Incomplete { event: "media" }),
        (r#"{"event":"media","media":{"track":"outbound","payload":"/w=="}}"#, Ignored::OtherTrack("outbound".into())),
    ] {
        assert_eq!(decode(text, &mut audio).inbound, Inbound::Ignored(why), "{text}");
        assert!(audio.is_empty(), "{text}");
    }
}

#[test]
fn every_key_of_a_telephone_is_read_and_nothing_else() {
    for digit in "0123456789*#ABCD".chars() {
        assert_eq!(read(&DTMF.replace("\"1\"", &format!("\"{digit}\""))), Inbound::KeyPressed { digit });
    }
    assert_eq!(read(&DTMF.replace("\"1\"", "1")), Inbound::KeyPressed { digit: '1' });
    assert_eq!(read(&DTMF.replace("\"1\"", "\"c\"")), Inbound::KeyPressed { digit: 'C' });
    assert_eq!(ignored(&DTMF.replace("\"1\"", "\"12\"")), Ignored::NotAKey("12".into()));
    assert_eq!(ignored(&DTMF.replace("\"1\"", "\"\"")), Ignored::NotAKey(String::new()));
    assert_eq!(ignored(r#"{"event":"dtmf"}"#), Ignored::Incomplete { event: "dtmf" });
}

#[test]
fn a_mark_of_ours_is_read_and_a_foreign_one_is_told() {
    let played = MarkName::Played { epoch: Epoch(3), playback: PlaybackId(5), offset: Samples(9_600) };
    assert_eq!(read(MARK), Inbound::MarkReturned(played));
    let fence = MarkName::Fence { epoch: Epoch(4) };
    assert_eq!(read(&MARK.replace("e3:p5:9600", "f4")), Inbound::MarkReturned(fence));
    assert_eq!(read(&MARK.replace("e3:p5:9600", "\\u00664")), Inbound::MarkReturned(fence));
    assert_eq!(ignored(&MARK.replace("e3:p5:9600", "hello")), Ignored::ForeignMark("hello".into()));
    for text in [r#"{"event":"mark","mark":{}}"#, r#"{"event":"mark"}"#, r#"{"event":"mark","mark":{"name":3}}"#] {
        assert_eq!(ignored(text), Ignored::Incomplete { event: "mark" }, "{text}");
    }
}

#[test]
fn stop_is_read_with_or_without_its_fields() {
    assert_eq!(read(STOP), Inbound::Stopped);
    assert_eq!(read(r#"{"event":"stop"}"#), Inbound::Stopped);
}

#[test]
fn what_nobody_knows_is_passed_over() {
    assert_eq!(ignored(r#"{"event":"hologram","streamSid":"MZ1"}"#), Ignored::UnknownEvent("hologram".into()));
    let long = "x".repeat(5_000);
    assert_eq!(ignored(&format!(r#"{{"event":"{long}"}}"#)), Ignored::UnknownEvent("x".repeat(64)));
    for text in ["{}", "[]", "null", "\"media\"", "7", r#"{"event":7}"#] {
        assert_eq!(ignored(text), Ignored::NoEvent, "{text}");
    }
}

#[test]
fn malformed_text_is_passed_over() {
    for whole in ALL {
        for end in 0..whole.len() {
            let why = ignored(&whole[..end]);
            assert_eq!(why, Ignored::Malformed, "{}", &whole[..end]);
        }
        assert_eq!(ignored(&format!("{whole}x")), Ignored::Malformed);
        assert_eq!(ignored(&format!("{whole}{whole}")), Ignored::Malformed);
    }
    for text in [
        r#"{"event":"mark","mark":{"name":"f1",}}"#,
        r#"{"event":"mark" "mark":{"name":"f1"}}"#,
        r#"{"event":"mark","mark":{"name":"f1"},"n":01}"#,
        "{\"event\":\"mark\",\"mark\":{\"name\":\"f\n1\"}}",
        r#"{'event':'mark'}"#,
    ] {
        assert_eq!(ignored(text), Ignored::Malformed, "{text}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let long = format!(r#"{{"event":"media","media":{{"payload":"{}"}}}}"#, "A".repeat(MESSAGE_LIMIT_BYTES));
    assert_eq!(ignored(&long), Ignored::TooLong { bytes: long.len() });
    let nested = |depth: usize| {
        format!(r#"{{"event":"mark","mark":{{"name":"f1"}},"x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    assert_eq!(read(&nested(DEPTH_LIMIT - 1)), Inbound::MarkReturned(MarkName::Fence { epoch: Epoch(1) }));
    assert_eq!(ignored(&nested(DEPTH_LIMIT)), Ignored::Malformed);
    assert_eq!(ignored(&nested(30_000)), Ignored::Malformed);
    let quoted = format!(r#"{{"event":"mark","mark":{{"name":"f1"}},"x":"\"{}"}}"#, "[".repeat(100));
    assert!(matches!(read(&quoted), Inbound::MarkReturned(_)), "brackets in a string are text");
}

#[test]
fn the_three_shapes_hold_exactly_their_fields() {
    let encoder = Encoder::new(&StreamSid::new("MZ1"));
    let written = |write: &dyn Fn(&mut BytesMut)| {
        let mut message = BytesMut::new();
        write(&mut message);
        String::from_utf8(message.to_vec()).unwrap()
    };
    let mark = MarkName::Played { epoch: Epoch(3), playback: PlaybackId(5), offset: Samples(9_600) };
    assert_eq!(
        written(&|m| encoder.media(&[0xff, 0x7f, 0xff, 0x7f], m)),
        r#"{"event":"media","streamSid":"MZ1","media":{"payload":"/3//fw=="}}"#
    );
    assert_eq!(
        written(&|m| encoder.mark(mark, m)),
        r#"{"event":"mark","streamSid":"MZ1","mark":{"name":"e3:p5:9600"}}"#
    );
    assert_eq!(written(&|m| encoder.clear(m)), r#"{"event":"clear","streamSid":"MZ1"}"#);
    assert_eq!(
        written(&|m| Encoder::new(&StreamSid::new("a\"},\n")).clear(m)),
        r#"{"event":"clear","streamSid":"a\"},\n"}"#
    );
}

#[test]
fn audio_survives_the_way_out_at_every_length() {
    let encoder = Encoder::new(&StreamSid::new("MZ1"));
    let sound: Vec<u8> = (0..1_000).map(|n| (n * 7 % 256) as u8).collect();
    let mut audio = Vec::new();
    for length in (0..20).chain([159, 160, 161, 800, 1_000]) {
        let mut message = BytesMut::new();
        encoder.media(&sound[..length], &mut message);
        let decoded = decode(std::str::from_utf8(&message).unwrap(), &mut audio);
        assert!(matches!(decoded.inbound, Inbound::Media(_)));
        assert_eq!(audio, sound[..length]);
    }
}

/// Text that looks like messages often enough to get past the first brace.
fn near_message() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just(",".to_owned()),
        Just(":".to_owned()),
        Just(" ".to_owned()),
        Just("\"event\":\"media\"".to_owned()),
        Just("\"event\":\"mark\"".to_owned()),
        Just("\"media\":{\"chunk\":\"1\",\"payload\":\"/w==\"}".to_owned()),
        Just("\"mark\":{\"name\":\"f1\"}".to_owned()),
        Just("\"media\":".to_owned()),
        Just("\"payload\":\"AAAA\"".to_owned()),
        Just("\"streamSid\":\"MZ1\"".to_owned()),
        Just("\"sequenceNumber\":".to_owned()),
        Just("\"\\u0041\"".to_owned()),
        Just("null".to_owned()),
        Just("-0.5e1".to_owned()),
        Just("4294967296".to_owned()),
        "[0-9]{1,3}",
        "\"[a-zé\"\\\\]{0,4}\"",
    ];
    proptest::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
}

/// Whole messages with members in random order, so that the scan often answers.
fn whole_message() -> impl Strategy<Value = String> {
    let scalar =
        || prop_oneof![Just("null".to_owned()), "[0-9]{1,11}", "\"[0-9a-z/+=é]{0,8}\"", Just("false".to_owned())];
    let inner = ("(track|chunk|timestamp|payload|name|other)", scalar()).prop_map(|(k, v)| format!("\"{k}\":{v}"));
    let inner = proptest::collection::vec(inner, 0..5).prop_map(|members| format!("{{{}}}", members.join(",")));
    let member = prop_oneof![
        ("(streamSid|sequenceNumber|other|event)", scalar()).prop_map(|(k, v)| format!("\"{k}\":{v}")),
        ("(media|mark|other)", inner).prop_map(|(k, v)| format!("\"{k}\": {v}")),
        "(media|mark)".prop_map(|event| format!("\"event\":\"{event}\"")),
    ];
    proptest::collection::vec(member, 0..7).prop_map(|members| format!("{{{}}}", members.join(" ,")))
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC*") {
        let _ = decode(&text, &mut Vec::new());
    }

    #[test]
    fn near_messages_read_the_same_by_the_scan_and_by_the_parser(text in prop_oneof![near_message(), whole_message()]) {
        let (mut scanned, mut parsed) = (Vec::new(), Vec::new());
        prop_assert_eq!(decode(&text, &mut scanned), parse(&text, &mut parsed), "{}", text);
        prop_assert_eq!(scanned, parsed);
    }
}
