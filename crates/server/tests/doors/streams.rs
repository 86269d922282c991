//! The stream's upgrade, its checks before a call, and whose socket a call is.

use crate::house::*;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
const VERSION: (&str, &str) = ("sec-websocket-version", "13");
const CONNECTION: (&str, &str) = ("connection", "close, Upgrade");
const UPGRADE: (&str, &str) = ("upgrade", "websocket");

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_upgrade_without_a_true_signature_is_forbidden_and_the_log_names_what_was_tried() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let house = House::open().await;
    assert_eq!(house.try_upgrade(None).await.err(), Some(403));
    assert_eq!(house.try_upgrade(Some("bm8gc2lnbmF0dXJl")).await.err(), Some(403));
    let https = signature_of(SECRET, "https://voice.example.com/twilio/stream", &[]);
    assert_eq!(house.try_upgrade(Some(&https)).await.err(), Some(403), "a stream's address starts with wss");
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for tried in [STREAM, "wss://voice.example.com/twilio/stream/", "wss://voice.example.com:443/twilio/stream"] {
        assert!(text.contains(tried), "{tried} is not in {text}");
    }
    assert!(!text.contains(&https), "a given signature stays out of the log");
}

#[tokio::test]
async fn an_upgrade_may_be_signed_with_the_slash_and_the_port_that_the_carrier_adds() {
    let house = House::open().await;
    for url in ["wss://voice.example.com/twilio/stream/", "wss://voice.example.com:443/twilio/stream"] {
        assert!(house.try_upgrade(Some(&signature_of(SECRET, url, &[]))).await.is_ok(), "{url}");
    }
    assert!(house.try_upgrade(Some(&signature_of(OLD_SECRET, STREAM, &[]))).await.is_ok());
}

#[tokio::test]
async fn a_bad_handshake_is_answered_with_what_is_wrong() {
    let house = House::open().await;
    let signature = signature_of(SECRET, STREAM, &[]);
    let signed = ("x-twilio-signature", signature.as_str());
    let path = "/twilio/stream";

    let good = [CONNECTION, UPGRADE, VERSION, KEY, signed];
    let post = request(house.at, "POST", path, &good, "").await;
    assert_eq!(post.status, 405);
    assert!(post.head.contains("allow: get"), "{}", post.head);

    assert_eq!(request(house.at, "GET", path, &[signed], "").await.status, 426);
    assert_eq!(
        request(house.at, "GET", path, &[CONNECTION, ("upgrade", "h2c"), VERSION, KEY, signed], "").await.status,
        426
    );
    let version =
        request(house.at, "GET", path, &[CONNECTION, UPGRADE, ("sec-websocket-version", "8"), KEY, signed], "").await;
    assert_eq!(version.status, 426);
    assert!(version.head.contains("sec-websocket-version: 13"), "{}", version.head);

    for key in [None, Some("short"), Some("bm90IHNpeHRlZW4="), Some("not base64 at all, really")] {
        let mut headers = vec![CONNECTION, UPGRADE, VERSION, signed];
        headers.extend(key.map(|key| ("sec-websocket-key", key)));
        assert_eq!(request(house.at, "GET", path, &headers, "").await.status, 400, "{key:?}");
    }
}

#[tokio::test]
async fn the_handshake_of_the_rfc_is_answered_and_early_frames_are_not_lost() {
    let mut house = House::open().await;
    let token = house.token_for("CA1").await;
    let signature = signature_of(SECRET, STREAM, &[]);
    // Everything in one write: the frames are in the HTTP reader's buffer before the 101 is out.
    let mut bytes = format!(
        "GET /twilio/stream HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: {}\r\nx-twilio-signature: {signature}\r\n\r\n",
        KEY.1
    )
    .into_bytes();
    for text in [CONNECTED.to_owned(), start("CA1", "MZ1", ACCOUNT, Some(&token))] {
        bytes.extend(masked_text(&text));
    }
    let mut socket = TcpStream::connect(house.at).await.unwrap();
    socket.write_all(&bytes).await.unwrap();
    let mut answer = vec![0; 1_024];
    let read = soon(socket.read(&mut answer)).await.unwrap();
    let head = String::from_utf8_lossy(&answer[..read]).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    assert!(!head.contains("sec-websocket-extensions") && !head.contains("sec-websocket-protocol"), "{head}");
    assert_eq!(soon(house.seen.recv()).await.unwrap().call_sid, "CA1");
}

/// A final text frame with an all-zero mask.
fn masked_text(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81];
    match u8::try_from(text.len()) {
        Ok(short @ 0..=125) => frame.push(0x80 | short),
        Ok(_) | Err(_) => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

#[tokio::test]
async fn a_socket_that_does_not_start_in_time_is_closed() {
    let mut house = House::with_limits(|limits| limits.start_timeout = Duration::from_millis(50)).await;
    let mut silent = house.upgrade().await;
    assert_eq!(silent.close_code().await, 1008);
    let mut half = house.upgrade().await;
    half.say(CONNECTED).await;
    half.say("not even JSON").await;
    assert_eq!(half.close_code().await, 1008);
    assert!(house.seen.try_recv().is_err(), "no call may have started");
}

#[tokio::test]
async fn a_token_opens_one_stream_of_its_own_call_and_nothing_else() {
    let mut house = House::open().await;
    let token = house.token_for("CA1").await;
    let other = house.token_for("CA2").await;
    let refused = [
        start("CA1", "MZ1", ACCOUNT, None),
        start("CA1", "MZ1", ACCOUNT, Some("")),
        start("CA1", "MZ1", ACCOUNT, Some("00000000000000000000000000000000")),
        start("CA1", "MZ1", ACCOUNT, Some(&other)),
        start("CA3", "MZ1", ACCOUNT, Some(&token)),
    ];
    for start in &refused {
        let mut phone = house.upgrade().await;
        phone.say(start).await;
        assert_eq!(phone.close_code().await, 1008, "{start}");
    }
    let mut good = house.upgrade().await;
    good.say(&start("CA1", "MZ1", ACCOUNT, Some(&token))).await;
    assert_eq!(soon(house.seen.recv()).await.unwrap().call_sid, "CA1");
    let mut again = house.upgrade().await;
    again.say(&start("CA1", "MZ2", ACCOUNT, Some(&token))).await;
    assert_eq!(again.close_code().await, 1008);
    assert!(house.seen.try_recv().is_err(), "only the good one became a call");
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let mut house = House::with_limits(|limits| limits.token_ttl = Duration::ZERO).await;
    let token = house.token_for("CA1").await;
    let mut phone = house.upgrade().await;
    phone.say(&start("CA1", "MZ1", ACCOUNT, Some(&token))).await;
    assert_eq!(phone.close_code().await, 1008);
    assert!(house.seen.try_recv().is_err());
}

#[tokio::test]
async fn a_start_of_another_account_is_refused() {
    let mut house = House::open().await;
    let token = house.token_for("CA1").await;
    let mut phone = house.upgrade().await;
    phone.say(&start("CA1", "MZ1", "AC00000000000000000000000000000000", Some(&token))).await;
    assert_eq!(phone.close_code().await, 1008);
    assert!(house.seen.try_recv().is_err());
}

#[tokio::test]
async fn an_oversize_frame_is_refused_with_its_own_code() {
    let mut house = House::open().await;
    let mut phone = house.upgrade().await;
    phone.say(&"x".repeat(64 * 1024 + 1)).await;
    assert_eq!(phone.close_code().await, 1009);
    assert!(house.seen.try_recv().is_err());
}

#[tokio::test]
async fn sockets_that_wait_for_their_start_are_capped() {
    let house = House::with_limits(|limits| limits.max_waiting_streams = 1).await;
    let waiting = house.upgrade().await;
    assert_eq!(house.try_upgrade(Some(&signature_of(SECRET, STREAM, &[]))).await.err(), Some(503));
    let ready = house.get("/readyz", &[]).await;
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("arriving streams"), "{}", ready.body);
    drop(waiting);
    let free_again = async { while house.get("/readyz", &[]).await.status != 200 {} };
    soon(free_again).await;
    assert!(house.try_upgrade(Some(&signature_of(SECRET, STREAM, &[]))).await.is_ok());
}

#[tokio::test]
async fn connections_are_capped() {
    let house = House::with_limits(|limits| limits.max_connections = 1).await;
    let idle = TcpStream::connect(house.at).await.unwrap();
    // The idle one is accepted first, connections being accepted in order.
    assert_ne!(house.get("/healthz", &[]).await.status, 200);
    drop(idle);
    let free_again = async { while house.get("/healthz", &[]).await.status != 200 {} };
    soon(free_again).await;
}

#[tokio::test]
async fn a_running_call_may_have_its_next_stream_when_all_calls_are_taken() {
    let mut house = House::with_limits(|limits| limits.max_calls = 2).await;
    let _first = house.call("CA1", "MZ1").await;
    let resumed = house.webhook("/twilio/resume?n=1", &call_fields("CA1")).await.body;
    // The first call runs and waits for its next stream, which is one place and not two.
    let _second = house.call("CA2", "MZ2").await;
    assert!(house.get("/readyz", &[]).await.body.contains("2 of 2"));
    let mut phone = house.upgrade().await;
    phone.say(&start("CA1", "MZ3", ACCOUNT, parameter(&resumed, "token").as_deref())).await;
    assert_eq!(soon(house.seen.recv()).await.unwrap().stream_sid, "MZ3");
    assert!(house.get("/readyz", &[]).await.body.contains("2 of 2"));
    let resumed = house.webhook("/twilio/resume?n=1", &call_fields("CA3")).await.body;
    assert!(resumed.contains("<Pause") && resumed.contains("resume?n=2</Redirect>"), "{resumed}");
}

#[tokio::test]
async fn a_stream_in_another_format_is_refused() {
    let mut house = House::open().await;
    let token = house.token_for("CA1").await;
    let mut phone = house.upgrade().await;
    phone.say(&start("CA1", "MZ1", ACCOUNT, Some(&token)).replace("8000", "16000")).await;
    assert_eq!(phone.close_code().await, 1008);
    assert!(house.seen.try_recv().is_err());
}

#[tokio::test]
async fn a_second_socket_retires_the_first_and_the_first_ones_late_end_does_not_end_it() {
    let mut house = House::open().await;
    let mut first = house.call("CA1", "MZ1").await;
    let mut second = house.resume("CA1", "MZ2").await;
    assert_eq!(first.close_code().await, 1000);
    drop(first);
    let admin = format!("Bearer {ADMIN}");
    let call = house.get("/api/v1/calls/CA1", &[("authorization", &admin)]).await.body;
    let call: serde_json::Value = serde_json::from_str(&call).unwrap();
    assert_eq!(call["live"], true, "{call}");
    assert_eq!(call["streams"][0]["stream_sid"], "MZ2", "{call}");
    assert_eq!(call["streams"][1]["end"], "retired", "{call}");
    assert_eq!(call["streams"].as_array().unwrap().len(), 2, "{call}");
    house.release.cancel();
    assert_eq!(second.close_code().await, 1000);
}

#[tokio::test]
async fn a_first_stream_that_does_not_let_go_is_ended_before_the_second_one_runs() {
    let mut house =
        House::open_with(Habit::Stubborn, |settings| settings.limits.close_cap = Duration::from_millis(20)).await;
    let mut first = house.call("CA1", "MZ1").await;
    let _second = house.resume("CA1", "MZ2").await;
    assert_eq!(first.close_code().await, 1006, "its task is gone, and its socket with it");
}

#[tokio::test]
async fn a_panic_in_one_call_ends_that_call_alone() {
    let mut house = House::open_with(Habit::PanicsAtBad, |_| {}).await;
    let mut good = house.call("CA1", "MZ1").await;
    let mut bad = house.call("CA2bad", "MZ2").await;
    assert_eq!(bad.close_code().await, 1006);
    let admin = format!("Bearer {ADMIN}");
    let calls = house.get("/api/v1/calls", &[("authorization", &admin)]).await.body;
    let calls: serde_json::Value = serde_json::from_str(&calls).unwrap();
    assert_eq!(calls["live"][0]["call_sid"], "CA1", "{calls}");
    assert_eq!(calls["ended"][0]["end"], "panicked", "{calls}");
    // A lost stream is not a finished call: it may come back.
    assert!(house.webhook("/twilio/resume?n=1", &call_fields("CA2bad")).await.body.contains("<Stream"));
    house.release.cancel();
    assert_eq!(good.close_code().await, 1000);
}
