//! The socket against a carrier's end on 127.0.0.1: what each kind of traffic does to the stream.

use futures_util::{SinkExt, StreamExt};
use phone::twilio::{Ignored, Inbound, PhoneError, SocketConfig, StartProblem, TwilioSocket};
use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use vocab::{Epoch, MarkName, PlaybackId, Samples, StreamSid};

const CONNECTED: &str = r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#;
const START: &str = r#"{"event":"start","sequenceNumber":"1","start":{"accountSid":"AC1","streamSid":"MZ1","callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{"token":"t"}},"streamSid":"MZ1"}"#;
const MEDIA: &str = r#"{"event":"media","sequenceNumber":"2","media":{"track":"inbound","chunk":"1","timestamp":"155","payload":"/3//fw=="},"streamSid":"MZ1"}"#;
const STOP: &str =
    r#"{"event":"stop","sequenceNumber":"3","streamSid":"MZ1","stop":{"accountSid":"AC1","callSid":"CA1"}}"#;

type Carrier = WebSocketStream<TcpStream>;

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (client.unwrap(), accepted.unwrap().0)
}

async fn pair(config: SocketConfig) -> (Carrier, TwilioSocket<TcpStream>) {
    let (client, server) = tcp_pair().await;
    (WebSocketStream::from_raw_socket(client, Role::Client, None).await, TwilioSocket::accept(server, config).await)
}

async fn started(config: SocketConfig) -> (Carrier, TwilioSocket<TcpStream>) {
    let (mut carrier, mut socket) = pair(config).await;
    say(&mut carrier, START).await;
    assert!(matches!(socket.next(&mut Vec::new()).await, Ok(Inbound::Started(_))));
    (carrier, socket)
}

async fn say(carrier: &mut Carrier, text: &str) {
    carrier.send(Message::text(text)).await.unwrap();
}

async fn heard(carrier: &mut Carrier) -> String {
    match carrier.next().await.unwrap().unwrap() {
        Message::Text(text) => text.to_string(),
        other => panic!("{other:?}"),
    }
}

/// What a future says at once; it is dropped either way.
fn polled_once<F: Future>(future: F) -> Poll<F::Output> {
    std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

async fn close_code(carrier: &mut Carrier) -> Option<u16> {
    loop {
        match carrier.next().await? {
            Ok(Message::Close(frame)) => {
                // The library answers a close with the next write.
                let _ = carrier.flush().await;
                return frame.map(|frame| frame.code.into());
            }
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_whole_stream_is_read_and_answered_in_order() {
    let (mut carrier, mut socket) = pair(SocketConfig::default()).await;
    let mut audio = Vec::new();
    for text in [CONNECTED, START, MEDIA] {
        say(&mut carrier, text).await;
    }
    assert!(matches!(socket.next(&mut audio).await, Ok(Inbound::Connected { .. })));
    assert_eq!(socket.send_clear(), Err(PhoneError::NotOpen), "no stream has a name yet");
    assert!(matches!(socket.next(&mut audio).await, Ok(Inbound::Started(_))));
    assert_eq!(socket.stream(), Some(&StreamSid::new("MZ1")));
    assert!(matches!(socket.next(&mut audio).await, Ok(Inbound::Media(_))));
    assert_eq!(audio, [0xff, 0x7f, 0xff, 0x7f]);

    let mark = MarkName::Played { epoch: Epoch(1), playback: PlaybackId(2), offset: Samples(4) };
    socket.send_media(&audio).unwrap();
    socket.send_mark(mark).unwrap();
    socket.send_clear().unwrap();
    socket.send_mark(MarkName::Fence { epoch: Epoch(2) }).unwrap();
    // Reading writes: no flush is called.
    say(&mut carrier, STOP).await;
    assert_eq!(socket.next(&mut audio).await, Ok(Inbound::Stopped));
    assert!(audio.is_empty());
    assert_eq!(heard(&mut carrier).await, r#"{"event":"media","streamSid":"MZ1","media":{"payload":"/3//fw=="}}"#);
    assert_eq!(heard(&mut carrier).await, r#"{"event":"mark","streamSid":"MZ1","mark":{"name":"e1:p2:4"}}"#);
    assert_eq!(heard(&mut carrier).await, r#"{"event":"clear","streamSid":"MZ1"}"#);
    assert_eq!(heard(&mut carrier).await, r#"{"event":"mark","streamSid":"MZ1","mark":{"name":"f2"}}"#);

    carrier.close(Some(CloseFrame { code: 1000.into(), reason: "".into() })).await.unwrap();
    for _ in 0..2 {
        assert_eq!(socket.next(&mut audio).await, Err(PhoneError::Closed { code: Some(1000) }));
    }
    assert_eq!(socket.send_clear(), Err(PhoneError::Closed { code: Some(1000) }));
    assert!(socket.close(1000, "").await, "the handshake was done already");
}

#[tokio::test]
async fn binary_unknown_and_malformed_messages_are_counted_and_the_stream_goes_on() {
    let (mut carrier, mut socket) = started(SocketConfig::default()).await;
    let mut audio = Vec::new();
    carrier.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    for text in [r#"{"event":"hologram"}"#, "{", START, &MEDIA.replace("MZ1", "MZ2"), MEDIA] {
        say(&mut carrier, text).await;
    }
    for why in [
        Ignored::UnknownEvent("hologram".into()),
        Ignored::Malformed,
        Ignored::OutOfOrder { event: "start" },
        Ignored::OtherStream("MZ2".into()),
    ] {
        assert_eq!(socket.next(&mut audio).await, Ok(Inbound::Ignored(why)));
        assert!(audio.is_empty());
    }
    assert!(matches!(socket.next(&mut audio).await, Ok(Inbound::Media(_))));
    let counts = socket.counts();
    assert_eq!((counts.binary, counts.ignored, counts.malformed, counts.messages), (1, 4, 1, 6));
}

#[tokio::test]
async fn a_start_in_another_format_is_an_error_and_the_driver_closes() {
    let (mut carrier, mut socket) = pair(SocketConfig::default()).await;
    say(&mut carrier, &START.replace("8000", "16000")).await;
    let error = socket.next(&mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, PhoneError::StartRefused(StartProblem::Format { .. })), "{error}");
    let reason = error.to_string();
    let (closed, code) = tokio::join!(socket.close(1003, &reason), close_code(&mut carrier));
    assert_eq!((closed, code), (true, Some(1003)));
}

#[tokio::test]
async fn a_ping_is_answered_by_reading_on() {
    let (mut carrier, mut socket) = started(SocketConfig::default()).await;
    carrier.send(Message::Ping(b"are you there".as_slice().into())).await.unwrap();
    say(&mut carrier, MEDIA).await;
    let mut audio = Vec::new();
    assert!(matches!(socket.next(&mut audio).await, Ok(Inbound::Media(_))));
    assert_eq!(carrier.next().await.unwrap().unwrap(), Message::Pong(b"are you there".as_slice().into()));
    assert_eq!((socket.counts().pings, socket.queued_bytes()), (1, 0));
}

#[tokio::test]
async fn an_oversized_message_closes_with_1009_in_one_frame_or_in_many() {
    let limit = SocketConfig::default().message_limit_bytes;
    let mut audio = Vec::new();
    let (mut carrier, mut socket) = started(SocketConfig::default()).await;
    let fits = format!("{}{}", MEDIA, " ".repeat(limit - MEDIA.len()));
    say(&mut carrier, &fits).await;
    assert!(matches!(socket.next(&mut audio).await, Ok(Inbound::Media(_))));
    let over = " ".repeat(limit + 1);
    let (error, code) = tokio::join!(
        async {
            let error = socket.next(&mut audio).await;
            socket.close(1009, "").await;
            error
        },
        async {
            say(&mut carrier, &over).await;
            close_code(&mut carrier).await
        }
    );
    assert_eq!(error, Err(PhoneError::TooLong { bytes: limit + 1, limit_bytes: limit }));
    assert_eq!(code, Some(1009));

    let (mut client, server) = tcp_pair().await;
    let mut socket = TwilioSocket::accept(server, SocketConfig::default()).await;
    let piece = |first: bool| {
        // Text or continuation, not final, masked with zeroes, 40,000 bytes.
        let mut frame = vec![if first { 0x01 } else { 0x00 }, 0xfe];
        frame.extend_from_slice(&40_000_u16.to_be_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.resize(frame.len() + 40_000, b' ');
        frame
    };
    let (error, ()) = tokio::join!(socket.next(&mut audio), async {
        client.write_all(&piece(true)).await.unwrap();
        client.write_all(&piece(false)).await.unwrap();
    });
    assert!(matches!(error, Err(PhoneError::TooLong { .. })), "{error:?}");
    let mut close = [0; 4];
    client.read_exact(&mut close).await.unwrap();
    assert_eq!(close, [0x88, 2, 0x03, 0xf1], "1009");
}

#[tokio::test]
async fn what_is_no_websocket_traffic_closes_with_its_code() {
    let mut audio = Vec::new();
    for (bytes, code) in [
        (vec![0x81, 0x02, b'{', b'}'], 1002_u16),         // not masked
        (vec![0xc1, 0x82, 0, 0, 0, 0, b'{', b'}'], 1002), // a reserved bit: compression that nobody agreed on
        (vec![0x81, 0x82, 0, 0, 0, 0, 0xff, 0xfe], 1007), // no UTF-8
        (vec![0x09, 0x80, 0, 0, 0, 0], 1002),             // a fragmented ping
    ] {
        let (mut client, server) = tcp_pair().await;
        let mut socket = TwilioSocket::accept(server, SocketConfig::default()).await;
        client.write_all(&bytes).await.unwrap();
        let error = socket.next(&mut audio).await.unwrap_err();
        assert!(matches!(error, PhoneError::Protocol(_)), "{error:?}");
        let mut close = [0; 4];
        client.read_exact(&mut close).await.unwrap();
        assert_eq!(close[..2], [0x88, 2]);
        assert_eq!(u16::from_be_bytes([close[2], close[3]]), code, "{bytes:x?}");
    }
}

#[tokio::test]
async fn a_carrier_that_vanishes_is_lost_after_all_it_said_was_read() {
    let (mut carrier, mut socket) = started(SocketConfig::default()).await;
    say(&mut carrier, MEDIA).await;
    say(&mut carrier, STOP).await;
    drop(carrier);
    let mut audio = Vec::new();
    socket.send_media(&[0xff; 160]).unwrap();
    assert!(matches!(socket.next(&mut audio).await, Ok(Inbound::Media(_))));
    socket.send_media(&[0xff; 160]).ok();
    assert_eq!(socket.next(&mut audio).await, Ok(Inbound::Stopped));
    let error = socket.next(&mut audio).await.unwrap_err();
    assert!(matches!(error, PhoneError::Lost(_)), "{error:?}");
    assert_eq!(socket.next(&mut audio).await, Err(error));
}

#[tokio::test]
async fn dropping_a_wait_loses_nothing() {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let mut socket = TwilioSocket::accept(server, SocketConfig::default()).await;
    let mut carrier = client;
    let mut audio = Vec::new();
    let mut bytes = Vec::new();
    for text in [START, MEDIA, MEDIA, STOP] {
        bytes.extend_from_slice(&[0x81, 0xfe]);
        bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(text.as_bytes());
    }
    let mut seen = Vec::new();
    for byte in bytes {
        carrier.write_all(&[byte]).await.unwrap();
        // Polled once and dropped, after every byte.
        if let Poll::Ready(inbound) = polled_once(socket.next(&mut audio)) {
            seen.push(inbound.unwrap());
        }
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(matches!(seen[..], [Inbound::Started(_), Inbound::Media(_), Inbound::Media(_), Inbound::Stopped]));
}

#[tokio::test]
async fn a_carrier_that_does_not_read_is_refused_media_but_still_cleared() {
    let config = SocketConfig { media_limit_bytes: 4_000, control_reserve_bytes: 400, ..SocketConfig::default() };
    let (mut carrier, server) = tokio::io::duplex(1_000);
    let mut socket = TwilioSocket::accept(server, config).await;
    let mut start = vec![0x81, 0xfe];
    start.extend_from_slice(&(START.len() as u16).to_be_bytes());
    start.extend_from_slice(&[0; 4]);
    start.extend_from_slice(START.as_bytes());
    carrier.write_all(&start).await.unwrap();
    let mut audio = Vec::new();
    socket.next(&mut audio).await.unwrap();

    let mut taken = 0;
    let full = loop {
        match socket.send_media(&[0xff; 160]) {
            Ok(()) => taken += 1,
            Err(full) => break full,
        }
        // As the driver does: wait for the carrier, and give up waiting.
        assert!(polled_once(socket.next(&mut audio)).is_pending());
    };
    let PhoneError::OutboundFull { queued_bytes } = full else { panic!("{full}") };
    assert!((3_600..=4_000).contains(&queued_bytes), "{queued_bytes}");
    assert_eq!(queued_bytes, socket.queued_bytes());
    socket.send_clear().unwrap();
    socket.send_mark(MarkName::Fence { epoch: Epoch(1) }).unwrap();
    let mut marks = 1;
    while socket.send_mark(MarkName::Fence { epoch: Epoch(1) }).is_ok() {
        marks += 1;
    }
    // 55 bytes each, into 400 and what a media message was too long for.
    assert!((6..=12).contains(&marks), "{marks} fit into the reserve");
    assert_eq!(socket.counts().refused, 2);

    // The carrier reads again: everything that was taken comes out whole and in order, and media is welcome.
    let mut client = WebSocketStream::from_raw_socket(carrier, Role::Client, None).await;
    let (flushed, texts) = tokio::join!(socket.flush(), async {
        let mut texts = Vec::new();
        for _ in 0..taken + 1 + marks {
            texts.push(client.next().await.unwrap().unwrap().into_text().unwrap().to_string());
        }
        texts
    });
    assert_eq!((flushed, socket.queued_bytes()), (Ok(()), 0));
    assert!(texts[..taken].iter().all(|text| text.contains("\"media\"")));
    assert!(texts[taken].contains("\"clear\""));
    assert!(texts[taken + 1..].iter().all(|text| text.contains("\"f1\"")));
    socket.send_media(&[0xff; 160]).unwrap();
}

#[tokio::test]
async fn a_close_is_bounded_whatever_the_carrier_does() {
    // A tenth of the default, so that the test is short; the bound is what is tested.
    let config = SocketConfig { close_limit: Duration::from_millis(100), ..SocketConfig::default() };
    let (carrier, mut socket) = started(config).await;
    socket.send_media(&[0xff; 1_600]).unwrap();
    let began = Instant::now();
    assert!(!socket.close(1000, &"é".repeat(200)).await, "nobody answered");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(socket.next(&mut Vec::new()).await, Err(PhoneError::NotOpen));
    assert_eq!(socket.send_clear(), Err(PhoneError::NotOpen));
    // What was queued left before the close did, and the reason was cut between two characters.
    let mut carrier = carrier;
    assert!(heard(&mut carrier).await.contains("\"media\""));
    let Some(Ok(Message::Close(Some(frame)))) = carrier.next().await else { panic!("no close") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1000, "é".repeat(61).as_str()));
}

#[tokio::test]
async fn a_carrier_that_answers_the_close_makes_it_quick() {
    let (mut carrier, mut socket) = started(SocketConfig::default()).await;
    let began = Instant::now();
    let (closed, code) = tokio::join!(socket.close(1008, "token"), close_code(&mut carrier));
    assert_eq!((closed, code), (true, Some(1008)));
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}
