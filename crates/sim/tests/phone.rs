//! The simulated caller against a server on real sockets. Playing is in real time, so these tests take the time that
//! their few hundred milliseconds of audio last.

mod world;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sim::phone::{CallEnd, Happened, PhoneCall, Step, sign};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use world::*;

/// A server whose one stream is played by `play`; its value comes back through the receiver.
async fn serve_once<T: Send + 'static, F>(
    documents: Vec<Option<String>>,
    play: impl FnOnce(Bridge) -> F + Send + 'static,
) -> (Server, oneshot::Receiver<T>)
where
    F: Future<Output = T> + Send + 'static,
{
    let (told, tell) = oneshot::channel();
    let once = Arc::new(Mutex::new(Some((play, told))));
    let server = serve(documents, move |socket| {
        let (play, told) = once.lock().unwrap().take().expect("only one stream");
        async move {
            let _ = told.send(play(Bridge::accept(socket).await).await);
        }
    })
    .await;
    (server, tell)
}

fn loud(ms: usize) -> Vec<u8> {
    vec![0x10; ms * 8]
}

#[tokio::test]
async fn webhook_and_upgrade_are_signed_for_the_public_urls() {
    let (server, bridge) = serve_once(vec![document(STREAM)], |mut bridge| async move {
        bridge.drain().await;
        bridge
    })
    .await;
    let result = PhoneCall::dial(server.config(), &script("[[steps]]\nsilence = { ms = 50 }")).await.unwrap();
    assert_eq!(result.end, CallEnd::CallerHungUp);
    let bridge = bridge.await.unwrap();

    let post = server.posts.lock().unwrap()[0].clone();
    let fields: Vec<(String, String)> = url::form_urlencoded::parse(post.body.as_bytes()).into_owned().collect();
    assert!(fields.contains(&("CallSid".into(), result.call_sid.clone())), "{fields:?}");
    assert!(fields.iter().any(|(name, value)| name == "From" && value == "+15005550006"));
    assert_eq!(header(&post.head, "x-twilio-signature"), Some(sign(TOKEN, VOICE_URL, &fields)));
    assert_eq!(header(&post.head, "host").as_deref(), Some("voice.example.com"));

    let upgrade = |name: &str| bridge.upgrade.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    assert_eq!(upgrade(":path").as_deref(), Some("/twilio/stream"));
    assert_eq!(upgrade("user-agent").as_deref(), Some("Twilio.TmeWs/1.0"));
    assert_eq!(upgrade("x-twilio-signature"), Some(sign(TOKEN, "wss://voice.example.com/twilio/stream", &[])));
    assert_eq!(upgrade("host").as_deref(), Some("voice.example.com"));
    for absent in ["origin", "sec-websocket-protocol", "sec-websocket-extensions"] {
        assert_eq!(upgrade(absent), None);
    }
    let start = &bridge.start["start"];
    assert_eq!(start["customParameters"]["token"], "t&1");
    assert_eq!(
        (start["callSid"].as_str(), start["tracks"][0].as_str()),
        (Some(result.call_sid.as_str()), Some("inbound"))
    );
}

#[tokio::test]
async fn the_line_speaks_in_real_time_frames_and_stops_with_stop() {
    let (server, messages) = serve_once(vec![document(STREAM)], |mut bridge| async move { bridge.drain().await }).await;
    let voice = std::env::temp_dir().join(format!("answerback-phone-{}.ulaw", std::process::id()));
    std::fs::write(&voice, loud(100)).unwrap();
    let text = format!(
        "[[steps]]\nsilence = {{ ms = 200 }}\n[[steps]]\nsay = {{ file = {voice:?} }}\n[[steps]]\ndtmf = {{ digits = \"1#\" }}\n[[steps]]\nsilence = {{ ms = 200 }}"
    );
    let began = Instant::now();
    let result = PhoneCall::dial(server.config(), &script(&text)).await.unwrap();
    let took = began.elapsed();
    std::fs::remove_file(&voice).unwrap();
    assert!(took > Duration::from_millis(480) && took < Duration::from_secs(3), "{took:?}");
    let messages = messages.await.unwrap();
    let media: Vec<&Value> = messages.iter().filter(|m| m["event"] == "media").collect();
    assert!((20..80).contains(&media.len()), "{}", media.len());
    let number = |v: &Value| v.as_str().expect("numbers are strings").parse::<i64>().unwrap();
    for (n, message) in messages.iter().enumerate() {
        assert_eq!(number(&message["sequenceNumber"]), n as i64 + 2);
    }
    for (n, frame) in media.iter().enumerate() {
        assert_eq!(number(&frame["media"]["chunk"]), n as i64 + 1);
        assert_eq!(STANDARD.decode(frame["media"]["payload"].as_str().unwrap()).unwrap().len(), 160);
    }
    let first = number(&media[0]["media"]["timestamp"]);
    let last = number(&media[media.len() - 1]["media"]["timestamp"]);
    assert!((59..=161).contains(&first), "{first}");
    assert!((last - first - 20 * (media.len() as i64 - 1)).abs() <= 2);
    let all: Vec<u8> =
        media.iter().flat_map(|f| STANDARD.decode(f["media"]["payload"].as_str().unwrap()).unwrap()).collect();
    assert_eq!(all.iter().filter(|&&b| b == 0x10).count(), 800);
    assert!(all.iter().filter(|&&b| b == 0x7f).count() > 10, "silence is +0 and -0 mixed");
    let digits: Vec<&str> =
        messages.iter().filter(|m| m["event"] == "dtmf").map(|m| m["dtmf"]["digit"].as_str().unwrap()).collect();
    assert_eq!(digits, ["1", "#"]);
    assert_eq!(messages.last().unwrap()["event"], "stop");
    assert_eq!(result.said.len(), 1);
    assert_eq!(result.said_track().iter().filter(|&&b| b == 0x10).count(), 800);
}

#[tokio::test]
async fn marks_return_when_their_audio_has_played_and_clear_returns_the_rest() {
    let (server, times) = serve_once(vec![document(STREAM)], |mut bridge| async move {
        let began = Instant::now();
        bridge.mark("at-once").await;
        assert_eq!(bridge.until("mark").await["mark"]["name"], "at-once");
        let empty_ms = began.elapsed().as_millis();
        let began = Instant::now();
        bridge.media(&loud(200)).await;
        bridge.mark("a").await;
        bridge.media(&loud(5_000)).await;
        bridge.mark("b").await;
        bridge.media(&loud(5_000)).await;
        bridge.mark("c").await;
        assert_eq!(bridge.until("mark").await["mark"]["name"], "a");
        let played_ms = began.elapsed().as_millis();
        let began = Instant::now();
        bridge.send(r#""event":"clear""#).await;
        bridge.mark("fence").await;
        for name in ["b", "c", "fence"] {
            assert_eq!(bridge.until("mark").await["mark"]["name"], name);
        }
        let cleared_ms = began.elapsed().as_millis();
        bridge.ws.close(None).await.unwrap();
        (empty_ms, played_ms, cleared_ms)
    })
    .await;
    let result = PhoneCall::dial(server.config(), &script("[[steps]]\nsilence = { ms = 10000 }")).await.unwrap();
    let (empty_ms, played_ms, cleared_ms) = times.await.unwrap();
    assert!(empty_ms < 400 && cleared_ms < 400, "{empty_ms} {cleared_ms}");
    assert!((195..1_500).contains(&played_ms), "{played_ms}");
    assert_eq!(result.end, CallEnd::DocumentEnded);
    assert!(result.heard_ms() >= 199 && result.heard_ms() < 2_000, "{}", result.heard_ms());
    assert_eq!(result.clears.len(), 1);
    assert!(result.clears[0].dropped_ms > 8_000 && result.clears[0].marks == 2, "{:?}", result.clears);
    let cleared: Vec<bool> = result.marks.iter().map(|m| m.cleared).collect();
    assert_eq!(cleared, [false, false, true, true, false]);
    assert_eq!(result.violations, []);
}

#[tokio::test]
async fn dropped_marks_never_return_and_delayed_ones_return_late() {
    let (server, late_ms) = serve_once(vec![document(STREAM)], |mut bridge| async move {
        bridge.mark("lost").await;
        bridge.until("dtmf").await;
        let began = Instant::now();
        bridge.mark("late").await;
        assert_eq!(bridge.until("mark").await["mark"]["name"], "late");
        let late_ms = began.elapsed().as_millis();
        bridge.ws.close(None).await.unwrap();
        late_ms
    })
    .await;
    let mut config = server.config();
    config.faults.drop_marks = true;
    let steps = "[[steps]]\nsilence = { ms = 100 }\n[[steps]]\ndrop_marks = { on = false }\n[[steps]]\ndelay_marks = { ms = 200 }\n[[steps]]\ndtmf = { digits = \"1\" }\n[[steps]]\nsilence = { ms = 9000 }";
    let result = PhoneCall::dial(config, &script(steps)).await.unwrap();
    assert!(late_ms.await.unwrap() >= 195);
    assert!(result.marks[0].swallowed && result.marks[0].returned_us.is_none());
    assert!(result.marks[1].returned_us.is_some());
}

#[tokio::test]
async fn messages_that_twilio_would_complain_of_are_in_the_result() {
    let (server, done) = serve_once(vec![document(STREAM)], |mut bridge| async move {
        use futures_util::SinkExt;
        use tokio_tungstenite::tungstenite::Message;
        bridge.send(r#""event":"clear","track":"outbound""#).await;
        bridge.ws.send(Message::binary(vec![1, 2])).await.unwrap();
        bridge.ws.send(Message::text(r#"{"event":"clear","streamSid":"MZother"}"#)).await.unwrap();
        bridge.ws.send(Message::text("nonsense")).await.unwrap();
        bridge.mark("end").await;
        bridge.until("mark").await;
        bridge.ws.close(None).await.unwrap();
    })
    .await;
    let result = PhoneCall::dial(server.config(), &script("[[steps]]\nsilence = { ms = 9000 }")).await.unwrap();
    done.await.unwrap();
    let codes: Vec<u32> = result.violations.iter().map(|v| v.code).collect();
    assert_eq!(codes, [31_951, 31_950, 31_951, 31_951]);
    assert_eq!(result.clears.len(), 1, "one with an extra field works, one of another stream does not");
}

#[tokio::test]
async fn the_caller_waits_for_what_it_hears() {
    let (server, done) = serve_once(vec![document(STREAM)], |mut bridge| async move {
        bridge.media(&vec![0xff; 800]).await;
        bridge.media(&loud(400)).await;
        bridge.drain().await;
    })
    .await;
    let steps = "[[steps]]\nwait_for_agent = { start = true }\n[[steps]]\nwait_for_agent = { heard_ms = 200 }\n[[steps]]\nwait_for_agent = { quiet_ms = 150 }\n[[steps]]\nwait_for_agent = { start = true, timeout_ms = 100 }";
    let result = PhoneCall::dial(server.config(), &script(steps)).await.unwrap();
    done.await.unwrap();
    assert_eq!(result.timed_out_steps, [4]);
    let at = |step: usize| {
        let done = |e: &&sim::phone::TimelineEvent| matches!(e.what, Happened::StepDone { step: s, .. } if s == step);
        result.timeline.iter().find(done).unwrap().at_us / 1_000
    };
    assert!(at(2) - at(1) >= 180, "{} {}", at(1), at(2));
    assert!(at(3) - at(2) >= 250, "{} {}", at(2), at(3));
    assert!(result.timeline.iter().any(|e| e.what == Happened::AgentAudible));
}

#[tokio::test]
async fn a_lost_socket_follows_the_documents_tail_to_a_second_stream() {
    let tail = format!(r#"{STREAM}<Redirect method="POST">https://voice.example.com/twilio/resume?n=1</Redirect>"#);
    let streams: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&streams);
    // The first socket breaks without a close; the resume webhook fails once; the second stream is closed politely.
    let server = serve(vec![document(&tail), None, document(&tail), document("<Hangup/>")], move |socket| {
        let seen = Arc::clone(&seen);
        async move {
            let mut bridge = Bridge::accept(socket).await;
            seen.lock().unwrap().push(bridge.sid.clone());
            bridge.until("media").await;
            if seen.lock().unwrap().len() == 2 {
                bridge.ws.close(None).await.unwrap();
            }
        }
    })
    .await;
    let result = PhoneCall::dial(server.config(), &script("[[steps]]\nsilence = { ms = 15000 }")).await.unwrap();
    assert_eq!(result.end, CallEnd::ServerHungUp);
    let sids: Vec<String> = result.streams.iter().map(|s| s.stream_sid.clone()).collect();
    assert_eq!(sids, *streams.lock().unwrap());
    assert_eq!(sids.len(), 2);
    assert_eq!(server.paths(), ["/twilio/voice", "/twilio/resume?n=1", "/twilio/resume?n=1", "/twilio/resume?n=1"]);
}

#[tokio::test]
async fn a_dead_webhook_a_wrong_scheme_and_a_refused_upgrade_have_twilios_codes() {
    let server = serve(vec![None], |_| async {}).await;
    let silence = script("[[steps]]\nsilence = { ms = 100 }");
    let result = PhoneCall::dial(server.config(), &silence).await.unwrap();
    assert_eq!(result.end, CallEnd::WebhookFailed { reason: "HTTP 502".into() });

    let plain = document(r#"<Connect><Stream url="ws://voice.example.com/s"/></Connect>"#);
    let server = serve(vec![plain], |_| async {}).await;
    let result = PhoneCall::dial(server.config(), &silence).await.unwrap();
    assert_eq!((result.end, result.streams[0].error), (CallEnd::DocumentEnded, Some(31_922)));

    let server = serve(vec![document(STREAM)], |mut socket| async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let _ = socket.read(&mut [0u8; 4096]).await.unwrap();
        socket.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    })
    .await;
    let result = PhoneCall::dial(server.config(), &silence).await.unwrap();
    assert_eq!(result.streams[0].error, Some(31_920));
}

#[tokio::test]
async fn gaps_and_bursts_move_the_timestamps_and_not_the_chunks() {
    let (server, messages) = serve_once(vec![document(STREAM)], |mut bridge| async move { bridge.drain().await }).await;
    let voice = std::env::temp_dir().join(format!("answerback-phone-gaps-{}.ulaw", std::process::id()));
    std::fs::write(&voice, loud(100)).unwrap();
    let mut config = server.config();
    (config.faults.gaps_in_silence, config.faults.burst_frames) = (true, 3);
    let say = format!("[[steps]]\nsay = {{ file = {voice:?} }}\n");
    let text = format!("{say}[[steps]]\nsilence = {{ ms = 300 }}\n{say}[[steps]]\nsilence = {{ ms = 100 }}");
    PhoneCall::dial(config, &script(&text)).await.unwrap();
    std::fs::remove_file(&voice).unwrap();
    let messages = messages.await.unwrap();
    let number = |v: &Value| v.as_str().unwrap().parse::<i64>().unwrap();
    let media: Vec<(i64, i64)> = messages
        .iter()
        .filter(|m| m["event"] == "media")
        .map(|m| (number(&m["media"]["chunk"]), number(&m["media"]["timestamp"])))
        .collect();
    assert_eq!(media.len(), 10, "only speech was sent: {media:?}");
    assert!(media.iter().enumerate().all(|(n, (chunk, _))| *chunk == n as i64 + 1));
    let gaps: Vec<i64> = media.windows(2).map(|pair| pair[1].1 - pair[0].1).filter(|step| *step > 22).collect();
    assert!(gaps.len() == 1 && gaps[0] >= 280, "{media:?}");
}

#[tokio::test]
async fn a_broken_line_sends_no_stop_and_no_close() {
    let (server, messages) = serve_once(vec![document(STREAM)], |mut bridge| async move { bridge.drain().await }).await;
    let call = PhoneCall::start(server.config(), &script("[[steps]]\nsilence = { ms = 15000 }")).unwrap();
    // Long enough for the stream to be open: the line cannot break before it stands.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(call.step_now(&Step::Dtmf { digits: "5".into() }).unwrap());
    assert!(call.step_now(&Step::AbruptDrop {}).unwrap());
    assert_eq!(call.wait().await.end, CallEnd::CallerDropped);
    let messages = messages.await.unwrap();
    assert!(messages.iter().any(|m| m["dtmf"]["digit"] == "5"));
    assert!(messages.iter().all(|m| m["event"] != "stop"));
}

#[tokio::test]
async fn callbacks_tell_of_the_stream_and_of_the_end() {
    let stream = r#"<Connect><Stream url="wss://voice.example.com/s" name="main" statusCallback="https://voice.example.com/stream-callback"/></Connect>"#;
    let (server, done) = serve_once(vec![document(stream)], |mut bridge| async move {
        bridge.drain().await;
    })
    .await;
    let mut config = server.config();
    config.status_url = Some("https://voice.example.com/call-callback".into());
    PhoneCall::dial(config, &script("[[steps]]\nsilence = { ms = 60 }")).await.unwrap();
    done.await.unwrap();
    // Callbacks run beside the call: the last may still be on its way.
    for _ in 0..100 {
        if server.paths().len() == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let bodies: Vec<String> = server.posts.lock().unwrap().iter().skip(1).map(|p| p.body.clone()).collect();
    for wanted in
        ["StreamEvent=stream-started", "StreamEvent=stream-stopped", "StreamName=main", "CallStatus=completed"]
    {
        assert!(bodies.iter().any(|b| b.contains(wanted)), "{wanted} in {bodies:?}");
    }
}
