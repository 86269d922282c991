//! One Media Streams socket, from `connected` to its end. The only place of the phone that waits on a stream.

use super::http::Socket;
use super::line::{Act, Line};
use super::record::Happened;
use super::script::Ready;
use super::wire::{CONNECTED, Carrier, understand};
use crate::clock::Clock;
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{self, Message};

const FRAME_US: u64 = 20_000;
/// Nobody waits long for the other side of a close.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    HungUp,
    Dropped,
    /// The server closed, or its connection is gone.
    ServerClosed {
        code: Option<u16>,
    },
}

pub(super) async fn run(
    line: &mut Line,
    mut socket: Socket,
    mut carrier: Carrier,
    parameters: &[(String, String)],
    by_hand: &mut mpsc::Receiver<Ready>,
    clock: Clock,
) -> StreamEnd {
    let gone = StreamEnd::ServerClosed { code: None };
    let start = carrier.start(parameters);
    if socket.feed(Message::text(CONNECTED)).await.is_err() || socket.send(Message::text(start)).await.is_err() {
        return gone;
    }
    let opened_us = clock.now_us();
    let mut frames = 0u64;
    loop {
        let now_us = clock.now_us();
        line.play(now_us);
        let mut outgoing: Vec<String> = Vec::new();
        let mut ending = None;
        for act in line.act(now_us) {
            match act {
                Act::Digit(digit) => outgoing.push(carrier.dtmf(digit)),
                Act::HangUp | Act::Drop => ending = Some(act),
            }
        }
        for name in line.echoes_due(now_us) {
            outgoing.push(carrier.mark(&name));
        }
        // Frames stand on absolute deadlines: one that is late is caught up, never skipped.
        let due = ((now_us - opened_us) / FRAME_US).saturating_sub(frames);
        if due >= u64::from(line.faults.burst_frames.max(1)) || ending.is_some() {
            for _ in 0..due {
                if line.faults.gaps_in_silence && line.is_silent() {
                    carrier.skip();
                } else {
                    let wobble = (line.draw() % 3) as i64 - 1;
                    let frame = line.frame(now_us);
                    outgoing.push(carrier.media(&frame, wobble));
                }
            }
            frames += due;
        }
        if ending == Some(Act::Drop) {
            return StreamEnd::Dropped;
        }
        for text in outgoing {
            if socket.feed(Message::text(text)).await.is_err() {
                return gone;
            }
        }
        if ending == Some(Act::HangUp) {
            hang_up(&mut socket, carrier.stop()).await;
            return StreamEnd::HungUp;
        }
        if socket.flush().await.is_err() {
            return gone;
        }
        let next_frame_us = opened_us + (frames + u64::from(line.faults.burst_frames.max(1))) * FRAME_US;
        let wake_us = line.next_at_us().map_or(next_frame_us, |us| us.min(next_frame_us));
        tokio::select! {
            message = socket.next() => {
                if let Some(end) = take(line, clock.now_us(), message, &carrier.stream_sid) {
                    return end;
                }
            }
            Some(step) = by_hand.recv() => {
                for act in line.do_now(clock.now_us(), &step) {
                    match act {
                        Act::Digit(digit) => {
                            let text = carrier.dtmf(digit);
                            if socket.feed(Message::text(text)).await.is_err() {
                                return gone;
                            }
                        }
                        Act::HangUp => {
                            hang_up(&mut socket, carrier.stop()).await;
                            return StreamEnd::HungUp;
                        }
                        Act::Drop => return StreamEnd::Dropped,
                    }
                }
            }
            () = tokio::time::sleep_until(clock.at(wake_us)) => {}
        }
    }
}

fn take(
    line: &mut Line,
    now_us: u64,
    message: Option<Result<Message, tungstenite::Error>>,
    stream_sid: &str,
) -> Option<StreamEnd> {
    match message {
        Some(Ok(Message::Text(text))) => {
            let understood = understand(&text, stream_sid);
            if let Some(complaint) = understood.complaint {
                line.complain(now_us, 31_951, complaint);
            }
            if let Some(command) = understood.command {
                line.play(now_us);
                line.obey(now_us, command);
            }
            None
        }
        Some(Ok(Message::Binary(bytes))) => {
            line.complain(now_us, 31_950, format!("a binary message of {} bytes", bytes.len()));
            None
        }
        Some(Ok(Message::Close(frame))) => Some(StreamEnd::ServerClosed { code: frame.map(|f| u16::from(f.code)) }),
        // The library answers pings by itself.
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => None,
        Some(Err(tungstenite::Error::Protocol(error)))
            if error != tungstenite::error::ProtocolError::ResetWithoutClosingHandshake =>
        {
            line.complain(now_us, 31_924, error.to_string());
            Some(StreamEnd::ServerClosed { code: None })
        }
        Some(Err(_)) | None => Some(StreamEnd::ServerClosed { code: None }),
    }
}

async fn hang_up(socket: &mut Socket, stop: String) {
    let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let farewell = async {
        let _ = socket.send(Message::text(stop)).await;
        let _ = socket.close(Some(normal)).await;
        // What the server still had to say is heard by nobody.
        while let Some(Ok(_)) = socket.next().await {}
    };
    let _ = tokio::time::timeout(CLOSE_WAIT, farewell).await;
}

/// What the timeline says of an end.
pub(super) fn note_end(line: &mut Line, now_us: u64, end: StreamEnd) {
    let code = match end {
        StreamEnd::ServerClosed { code } => code,
        StreamEnd::HungUp | StreamEnd::Dropped => None,
    };
    line.note(now_us, Happened::StreamClosed { code });
    if let Some(stream) = line.result.streams.last_mut() {
        stream.closed_us = Some(now_us);
        stream.close_code = code;
    }
}
