//! A model service for load runs: the same wire as [`crate::model`], one voice, real-time pace, and hardly any work, so that
//! it does not dominate what is measured. Every response is the same sentence over and over for a set time; there are no
//! tool calls and no transcripts.
//!
//! Turn detection is a loudness: a frame with an audible sample starts a turn, a stretch of frames without one ends it. `create_response` and `interrupt_response` are obeyed as the session sets them.

use crate::model::{default_session, detection_of, update_session};
use crate::ticker::{Ticker, periods_due};
use crate::{g711, voices};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, Debug)]
pub struct LoadModelConfig {
    /// `127.0.0.1:0` picks a free port.
    pub listen: SocketAddr,
    /// How long each response speaks.
    pub response_ms: u32,
    /// Between a response's creation and its first sound.
    pub think_ms: u32,
    /// Loud frames in a row that start a turn; 1 makes the first speech frame the confirming one.
    pub onset_frames: u32,
    /// Quiet frames in a row that end it.
    pub quiet_frames: u32,
}

impl Default for LoadModelConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            response_ms: 10_000,
            think_ms: 100,
            onset_frames: 1,
            quiet_frames: 25,
        }
    }
}

/// A running service. Dropping it stops it.
#[derive(Debug)]
pub struct LoadModelServer {
    pub addr: SocketAddr,
    stop: CancellationToken,
}

impl LoadModelServer {
    /// As [`crate::model::ModelServer::base_url`].
    pub fn base_url(&self) -> String {
        format!("ws://{}/v1", self.addr)
    }
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for LoadModelServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub async fn start(config: LoadModelConfig) -> std::io::Result<LoadModelServer> {
    let listener = TcpListener::bind(config.listen).await?;
    let addr = listener.local_addr()?;
    let stop = CancellationToken::new();
    let voice: Arc<Vec<String>> = Arc::new(
        voices::builtin("agent_acknowledge")
            .unwrap_or_default()
            .chunks_exact(160)
            .map(|f| STANDARD.encode(f))
            .collect(),
    );
    let (stopped, ticker, next) = (stop.clone(), Ticker::start(), AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Some(accepted) = stopped.run_until_cancelled(listener.accept()).await {
            let Ok((socket, _)) = accepted else { continue };
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (stopped, voice, slot) = (stopped.clone(), Arc::clone(&voice), ticker.slot(n));
            tokio::spawn(async move { stopped.run_until_cancelled(converse(socket, n, config, voice, slot)).await });
        }
    });
    Ok(LoadModelServer { addr, stop })
}

struct Speaking {
    id: String,
    item: String,
    metadata: Value,
    /// Frames of silence before the first sound.
    thinking: u32,
    frames: u32,
    delta_head: String,
}

struct Conversation {
    ws: WebSocketStream<TcpStream>,
    config: LoadModelConfig,
    session: Value,
    voice: Arc<Vec<String>>,
    speaking: Option<Speaking>,
    next_id: u64,
    loud: u32,
    quiet: u32,
    /// The turn under way, by its item.
    turn: Option<String>,
    heard_frames: u64,
}

async fn converse(
    socket: TcpStream,
    n: usize,
    config: LoadModelConfig,
    voice: Arc<Vec<String>>,
    mut slot: watch::Receiver<Option<Instant>>,
) -> Result<(), Error> {
    socket.set_nodelay(true)?;
    let limits = WebSocketConfig::default().read_buffer_size(4 * 1024).write_buffer_size(4 * 1024);
    let ws = tokio_tungstenite::accept_async_with_config(socket, Some(limits)).await?;
    let session = default_session(&format!("sess_{n}"), "load", 4_102_444_800);
    let mut conversation = Conversation {
        ws,
        config,
        session,
        voice,
        speaking: None,
        next_id: 0,
        loud: 0,
        quiet: 0,
        turn: None,
        heard_frames: 0,
    };
    let created = json!({ "type": "session.created", "session": conversation.session });
    conversation.say(created).await?;
    conversation.ws.flush().await?;
    let mut next_due = None;
    loop {
        tokio::select! {
            changed = slot.changed() => {
                let Some(due) = changed.ok().and_then(|()| *slot.borrow_and_update()) else { return Ok(()) };
                for _ in 0..periods_due(&mut next_due, due) {
                    conversation.tick().await?;
                }
            }
            message = conversation.ws.next() => match message.transpose()? {
                Some(Message::Text(text)) => conversation.take(&text).await?,
                Some(Message::Close(_)) | None => return Ok(()),
                Some(_) => {}
            },
        }
    }
}

impl Conversation {
    /// Queue an event. The type goes first: real events have it there, and readers scan for it.
    async fn say(&mut self, event: Value) -> Result<(), Error> {
        self.next_id += 1;
        let Value::Object(mut fields) = event else { return Ok(()) };
        let kind = fields.remove("type").unwrap_or_default();
        fields.insert("event_id".to_owned(), format!("event_{}", self.next_id).into());
        let rest = Value::Object(fields).to_string();
        self.ws.feed(Message::text(format!(r#"{{"type":{kind},{}"#, &rest[1..]))).await
    }

    async fn tick(&mut self) -> Result<(), Error> {
        let Some(speaking) = &mut self.speaking else { return Ok(()) };
        if speaking.thinking > 0 {
            speaking.thinking -= 1;
            return Ok(());
        }
        if speaking.frames * 20 >= self.config.response_ms {
            return self.end_response("completed", Value::Null).await;
        }
        let payload = &self.voice[speaking.frames as usize % self.voice.len()];
        speaking.frames += 1;
        let text = [&speaking.delta_head, payload.as_str(), r#""}"#].concat();
        self.ws.send(Message::Text(Utf8Bytes::from(text))).await
    }

    async fn take(&mut self, text: &str) -> Result<(), Error> {
        // Nearly every message is an append; it is not parsed.
        if text.contains("input_audio_buffer.append") {
            let audio = text.split_once(r#""audio":""#).map_or("", |(_, rest)| rest);
            return self.hear(is_loud(audio)).await;
        }
        let event: Value = serde_json::from_str(text).unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "session.update" => match update_session(&mut self.session, &event["session"], false) {
                Ok(()) => self.say(json!({ "type": "session.updated", "session": self.session })).await?,
                Err(refusal) => self.refuse(&event, refusal.code, &refusal.message).await?,
            },
            "response.create" if self.speaking.is_some() => {
                let message = "Conversation already has an active response in progress.";
                self.refuse(&event, "conversation_already_has_active_response", message).await?;
            }
            "response.create" => self.begin_response(event["response"]["metadata"].clone()).await?,
            "response.cancel" if self.speaking.is_some() => self.cancel_response("client_cancelled").await?,
            "response.cancel" => {
                self.refuse(&event, "response_cancel_not_active", "Cancellation failed: no active response found")
                    .await?;
            }
            "conversation.item.create" => {
                let mut item = event["item"].clone();
                if item["id"].is_null() {
                    item["id"] = self.id("item").into();
                }
                self.say(json!({ "type": "conversation.item.added", "previous_item_id": null, "item": item })).await?;
                self.say(json!({ "type": "conversation.item.done", "previous_item_id": null, "item": item })).await?;
            }
            "conversation.item.truncate" => {
                let (item, end) = (&event["item_id"], &event["audio_end_ms"]);
                self.say(json!({
                    "type": "conversation.item.truncated", "item_id": item, "content_index": 0, "audio_end_ms": end
                }))
                .await?;
            }
            "conversation.item.delete" => {
                self.say(json!({ "type": "conversation.item.deleted", "item_id": event["item_id"] })).await?;
            }
            _ => {}
        }
        self.ws.flush().await
    }

    async fn hear(&mut self, loud: bool) -> Result<(), Error> {
        self.heard_frames += 1;
        (self.loud, self.quiet) = if loud { (self.loud + 1, 0) } else { (0, self.quiet + 1) };
        let Some(detection) = detection_of(&self.session) else { return Ok(()) };
        let at_ms = self.heard_frames * 20;
        if self.turn.is_none() && self.loud >= self.config.onset_frames {
            let item = self.id("item");
            self.say(json!({ "type": "input_audio_buffer.speech_started", "audio_start_ms": at_ms, "item_id": item }))
                .await?;
            self.ws.flush().await?;
            self.turn = Some(item);
            if detection.interrupt_response && self.speaking.is_some() {
                self.cancel_response("turn_detected").await?;
            }
            self.ws.flush().await?;
        } else if self.quiet >= self.config.quiet_frames
            && let Some(item) = self.turn.take()
        {
            self.say(json!({ "type": "input_audio_buffer.speech_stopped", "audio_end_ms": at_ms, "item_id": item }))
                .await?;
            self.say(json!({ "type": "input_audio_buffer.committed", "previous_item_id": null, "item_id": item }))
                .await?;
            let body = json!({
                "id": item, "object": "realtime.item", "type": "message", "status": "completed", "role": "user",
                "content": [{ "type": "input_audio", "transcript": null }]
            });
            self.say(json!({ "type": "conversation.item.added", "previous_item_id": null, "item": body })).await?;
            self.say(json!({ "type": "conversation.item.done", "previous_item_id": null, "item": body })).await?;
            if detection.create_response && self.speaking.is_none() {
                self.begin_response(Value::Null).await?;
            }
            self.ws.flush().await?;
        }
        Ok(())
    }

    async fn begin_response(&mut self, metadata: Value) -> Result<(), Error> {
        let (id, item) = (self.id("resp"), self.id("item"));
        let delta_head = format!(
            r#"{{"type":"response.output_audio.delta","event_id":"event_d","response_id":"{id}","item_id":"{item}","output_index":0,"content_index":0,"delta":""#
        );
        let speaking = Speaking { id, item, metadata, thinking: self.config.think_ms / 20, frames: 0, delta_head };
        let created = json!({ "type": "response.created", "response": speaking.response("in_progress", &Value::Null) });
        let body = speaking.message("in_progress");
        let part = json!({ "type": "audio", "transcript": "" });
        let events = [
            created,
            json!({ "type": "response.output_item.added", "response_id": speaking.id, "output_index": 0, "item": body }),
            json!({ "type": "conversation.item.added", "previous_item_id": null, "item": body }),
            json!({ "type": "response.content_part.added", "response_id": speaking.id, "item_id": speaking.item,
                "output_index": 0, "content_index": 0, "part": part }),
        ];
        self.speaking = Some(speaking);
        for event in events {
            self.say(event).await?;
        }
        Ok(())
    }

    async fn cancel_response(&mut self, reason: &str) -> Result<(), Error> {
        self.end_response("cancelled", json!({ "type": "cancelled", "reason": reason })).await
    }

    async fn end_response(&mut self, status: &str, details: Value) -> Result<(), Error> {
        let Some(speaking) = self.speaking.take() else { return Ok(()) };
        let body = speaking.message(if status == "completed" { "completed" } else { "incomplete" });
        let place =
            json!({ "response_id": speaking.id, "item_id": speaking.item, "output_index": 0, "content_index": 0 });
        let mut audio_done = place;
        audio_done["type"] = "response.output_audio.done".into();
        self.say(audio_done).await?;
        self.say(json!({ "type": "conversation.item.done", "previous_item_id": null, "item": body })).await?;
        self.say(
            json!({ "type": "response.output_item.done", "response_id": speaking.id, "output_index": 0, "item": body }),
        )
        .await?;
        self.say(json!({ "type": "response.done", "response": speaking.response(status, &details) })).await?;
        self.ws.flush().await
    }

    async fn refuse(&mut self, event: &Value, code: &str, message: &str) -> Result<(), Error> {
        let error = json!({
            "type": "invalid_request_error", "code": code, "message": message, "param": null, "event_id": event["event_id"]
        });
        self.say(json!({ "type": "error", "error": error })).await
    }

    fn id(&mut self, kind: &str) -> String {
        self.next_id += 1;
        format!("{kind}_{}", self.next_id)
    }
}

impl Speaking {
    fn response(&self, status: &str, details: &Value) -> Value {
        let output = if status == "in_progress" { json!([]) } else { json!([self.message("completed")]) };
        json!({
            "object": "realtime.response", "id": self.id, "status": status, "status_details": details, "output": output,
            "conversation_id": "conv_load", "metadata": self.metadata, "output_modalities": ["audio"],
            "max_output_tokens": "inf", "usage": null,
            "audio": { "output": { "format": { "type": "audio/pcmu" }, "voice": "marin" } }
        })
    }

    fn message(&self, status: &str) -> Value {
        let content =
            if status == "in_progress" { json!([]) } else { json!([{ "type": "output_audio", "transcript": "…" }]) };
        json!({
            "id": self.item, "object": "realtime.item", "type": "message", "status": status, "role": "assistant",
            "content": content
        })
    }
}

/// `audio` starts with the base64 of one appended frame.
fn is_loud(audio: &str) -> bool {
    // Longer appends are judged by their first 60 ms.
    let mut mulaw = [0u8; 480];
    let end = audio.find('"').unwrap_or(0).min(640);
    match STANDARD.decode_slice(&audio.as_bytes()[..end], &mut mulaw) {
        Ok(length) => g711::is_audible(&mulaw[..length]),
        Err(_) => false,
    }
}
