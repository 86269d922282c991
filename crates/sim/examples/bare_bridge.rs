//! The least that a bridge can do: Media Streams on one side, a realtime model on the other, and nothing in between. No
//! voice detection, no marks, no pacing, no tools, no records, no signatures. It is the denominator of the performance
//! budget, so it is written to be fast: small buffers, no delay in the socket, fields found by scanning, one task a call,
//! payloads passed through as the text they are.
//!
//! An example and not a crate: nothing may depend on it, and it wants no room of its own.
//!
//! `bare_bridge --listen 127.0.0.1:9000 --model 'ws://127.0.0.1:9001/v1/realtime?model=x' [--threads 1]`, the key in
//! `MODEL_KEY`. It takes a stream on any path.

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// The model's turn detection does the work of a bridge that has none.
const SESSION_UPDATE: &str = r#"{"type":"session.update","session":{"type":"realtime","audio":{"input":{"format":{"type":"audio/pcmu"},"turn_detection":{"type":"server_vad","create_response":true,"interrupt_response":true}},"output":{"format":{"type":"audio/pcmu"}}}}}"#;
const GREET: &str = r#"{"type":"response.create"}"#;

#[allow(dead_code)]
fn main() {
    let option = |name: &str| {
        let mut arguments = std::env::args().skip_while(|a| a != name);
        arguments.next().and_then(|_| arguments.next())
    };
    let usage = "bare_bridge --listen ADDR --model WS_URL [--threads N]";
    let (Some(listen), Some(model)) = (option("--listen"), option("--model")) else {
        eprintln!("{usage}");
        std::process::exit(2);
    };
    let threads = option("--threads").and_then(|n| n.parse().ok()).unwrap_or(1usize);
    let key = std::env::var("MODEL_KEY").unwrap_or_else(|_| "none".to_owned());
    let mut runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(threads.max(1)).enable_all().build().expect("a runtime");
    let listen: SocketAddr = listen.parse().expect("an address to listen on");
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await.expect("the address to be free");
        loop {
            let Ok((socket, _)) = listener.accept().await else { continue };
            let (model, key) = (model.clone(), key.clone());
            tokio::spawn(async move { bridge(socket, &model, &key).await });
        }
    });
}

fn limits() -> WebSocketConfig {
    // 4 KiB holds several frames; the library's default of 128 KiB costs half the CPU and 12 times the memory.
    WebSocketConfig::default().read_buffer_size(4 * 1024).write_buffer_size(4 * 1024).max_message_size(Some(1 << 20))
}

/// One call, from the accepted socket to the end of either side.
pub async fn bridge(socket: TcpStream, model_url: &str, key: &str) -> Result<(), Error> {
    socket.set_nodelay(true)?;
    let mut carrier = tokio_tungstenite::accept_async_with_config(socket, Some(limits())).await?;
    let mut request = model_url.into_client_request()?;
    let bearer = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|error| Error::HttpFormat(error.into()))?;
    request.headers_mut().insert("authorization", bearer);
    let (mut model, _) = tokio_tungstenite::connect_async_with_config(request, Some(limits()), true).await?;
    model.send(Message::text(SESSION_UPDATE)).await?;

    let mut media_head = Bytes::new();
    let mut clear = Utf8Bytes::default();
    let mut scratch = BytesMut::with_capacity(4 * 1024);
    loop {
        tokio::select! {
            message = carrier.next() => match message.transpose()? {
                Some(Message::Text(text)) => {
                    if let Some(payload) = string_field(&text, r#""payload":""#) {
                        scratch.put_slice(br#"{"type":"input_audio_buffer.append","audio":""#);
                        scratch.put_slice(payload.as_bytes());
                        scratch.put_slice(br#""}"#);
                        model.send(taken(&mut scratch)).await?;
                    } else if text.contains(r#""start":"#) {
                        let Some(sid) = string_field(&text, r#""streamSid":""#) else { return Ok(()) };
                        media_head = Bytes::from(format!(r#"{{"event":"media","streamSid":"{sid}","media":{{"payload":""#));
                        clear = Utf8Bytes::from(format!(r#"{{"event":"clear","streamSid":"{sid}"}}"#));
                        // Not before: sound that comes ahead of the stream's name has nowhere to go.
                        model.send(Message::text(GREET)).await?;
                    } else if text.contains(r#""stop""#) {
                        let _ = model.close(None).await;
                        let _ = carrier.close(None).await;
                        return Ok(());
                    }
                }
                Some(Message::Close(_)) | None => {
                    let _ = model.close(None).await;
                    return Ok(());
                }
                Some(_) => {}
            },
            message = model.next() => match message.transpose()? {
                Some(Message::Text(text)) => {
                    if text.contains("response.output_audio.delta") {
                        let Some(delta) = string_field(&text, r#""delta":""#) else { continue };
                        if media_head.is_empty() {
                            continue;
                        }
                        scratch.put_slice(&media_head);
                        scratch.put_slice(delta.as_bytes());
                        scratch.put_slice(br#""}}"#);
                        carrier.send(taken(&mut scratch)).await?;
                    } else if text.contains("input_audio_buffer.speech_started") && !media_head.is_empty() {
                        carrier.send(Message::Text(clear.clone())).await?;
                    }
                }
                Some(Message::Close(_)) | None => {
                    let _ = carrier.close(None).await;
                    return Ok(());
                }
                Some(_) => {}
            },
        }
    }
}

/// The text behind a key, up to the next quote: base64 and identifiers hold no escapes.
fn string_field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let from = text.find(key)? + key.len();
    let length = text[from..].find('"')?;
    Some(&text[from..from + length])
}

/// The scratch buffer as a message. Its memory comes back when the message has been written.
fn taken(scratch: &mut BytesMut) -> Message {
    let bytes = scratch.split().freeze();
    // Only text that came out of `Utf8Bytes` was put in; the check is the price of no `unsafe`.
    Utf8Bytes::try_from(bytes).map_or_else(|_| Message::text(""), Message::Text)
}
