//! The call around its streams: webhook, verbs in order, redirects, status callbacks. Twilio's part of the work.

use super::http::Web;
use super::line::Line;
use super::record::{CallEnd, CallResult, Happened, StreamRecord};
use super::script::Ready;
use super::stream::{self, StreamEnd};
use super::twiml::{Stream, Verb};
use super::wire::Carrier;
use super::{PhoneConfig, sid};
use crate::clock::Clock;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use url::Url;

/// A document that only redirects would turn for ever.
const MAX_DOCUMENTS: u32 = 30;
/// A callback is not waited for longer, so that a dead server cannot hold the result.
const CALLBACK_WAIT: Duration = Duration::from_secs(2);

struct Call {
    config: PhoneConfig,
    web: Web,
    clock: Clock,
    line: Line,
    by_hand: mpsc::Receiver<Ready>,
}

pub(super) async fn run(config: PhoneConfig, steps: Vec<Ready>, by_hand: mpsc::Receiver<Ready>) -> CallResult {
    let line = Line::new(&config, steps);
    let longest = Duration::from_secs(u64::from(config.max_seconds));
    let web = match Web::new(&config.auth_token, config.connect_addr) {
        Ok(web) => web,
        Err(reason) => return CallResult { end: CallEnd::WebhookFailed { reason }, ..line.result },
    };
    let mut call = Call { config, web, clock: Clock::start(), line, by_hand };
    let end = tokio::time::timeout(longest, call.talk()).await.unwrap_or(CallEnd::TooLong);
    call.finish(end).await
}

impl Call {
    async fn talk(&mut self) -> CallEnd {
        self.line.note(0, Happened::Dialled);
        let voice_url = self.config.voice_url.clone();
        let mut document = match self.fetch(&voice_url, true, "ringing", 1).await {
            Ok(document) => document,
            Err(reason) => return CallEnd::WebhookFailed { reason },
        };
        for _ in 0..MAX_DOCUMENTS {
            match self.follow(document).await {
                Next::End(end) => return end,
                Next::Document { url, post } => {
                    match self.fetch(&url, post, "in-progress", self.config.redirect_attempts.max(1)).await {
                        Ok(next) => document = next,
                        Err(reason) => return CallEnd::WebhookFailed { reason },
                    }
                }
            }
        }
        CallEnd::WebhookFailed { reason: format!("more than {MAX_DOCUMENTS} documents") }
    }

    /// Follow a document to its end, or to where it sends us.
    async fn follow(&mut self, document: Document) -> Next {
        let mut verbs: VecDeque<Verb> = document.verbs.into();
        while let Some(verb) = verbs.pop_front() {
            match verb {
                Verb::Connect(stream) => {
                    let action = stream.action.clone();
                    match self.connect(stream, &document.url).await {
                        StreamEnd::HungUp => return Next::End(CallEnd::CallerHungUp),
                        StreamEnd::Dropped => return Next::End(CallEnd::CallerDropped),
                        StreamEnd::ServerClosed { .. } => {}
                    }
                    if let Some(action) = action {
                        return self.go_to(&document.url, &action, true);
                    }
                }
                Verb::Pause { seconds } => tokio::time::sleep(Duration::from_secs(u64::from(seconds))).await,
                Verb::Redirect { post, url } => return self.go_to(&document.url, &url, post),
                Verb::Hangup | Verb::Reject => return Next::End(CallEnd::ServerHungUp),
                Verb::Say { text } | Verb::Play { url: text } => {
                    self.line.note(self.clock.now_us(), Happened::CarrierSpeaks { text });
                }
            }
        }
        Next::End(CallEnd::DocumentEnded)
    }

    fn go_to(&self, from: &str, url: &str, post: bool) -> Next {
        match absolute(from, url) {
            Ok(url) => Next::Document { url, post },
            Err(reason) => Next::End(CallEnd::WebhookFailed { reason }),
        }
    }

    async fn fetch(&mut self, url: &str, post: bool, status: &str, attempts: u32) -> Result<Document, String> {
        let fields = self.fields(status);
        let mut reason = String::new();
        for attempt in 1..=attempts {
            match self.web.document(url, post, &fields).await {
                Ok(verbs) => {
                    let what = Happened::DocumentReceived { url: url.to_owned(), verbs: verbs.len() };
                    self.line.note(self.clock.now_us(), what);
                    return Ok(Document { url: url.to_owned(), verbs });
                }
                Err(failure) => {
                    reason = failure;
                    let what = Happened::FetchFailed { url: url.to_owned(), reason: reason.clone() };
                    self.line.note(self.clock.now_us(), what);
                }
            }
            if attempt < attempts {
                tokio::time::sleep(Duration::from_millis(self.config.redirect_retry_ms)).await;
            }
        }
        Err(reason)
    }

    async fn connect(&mut self, wanted: Stream, document_url: &str) -> StreamEnd {
        let began_us = self.clock.now_us();
        let stream_sid = sid("MZ");
        let url = stream_url(document_url, &wanted.url);
        let mut record = StreamRecord {
            stream_sid: stream_sid.clone(),
            url: url.clone(),
            parameters: wanted.parameters.clone(),
            opened_us: began_us,
            closed_us: None,
            close_code: None,
            error: None,
        };
        let opened = self.open(&wanted, &url, began_us).await;
        let now_us = self.clock.now_us();
        record.opened_us = now_us;
        let (socket, error) = match opened {
            Ok(socket) => (Some(socket), None),
            Err((code, reason)) => {
                self.line.note(now_us, Happened::StreamFailed { code, reason: reason.clone() });
                self.line.complain(now_us, code, reason);
                (None, Some(code))
            }
        };
        record.error = error;
        self.line.result.streams.push(record);
        let Some(socket) = socket else {
            self.stream_callback(&wanted, &stream_sid, "stream-error", error);
            return StreamEnd::ServerClosed { code: None };
        };
        self.line.note(now_us, Happened::StreamOpened { stream_sid: stream_sid.clone() });
        if self.line.result.streams.len() > 1 {
            let last_closed = self.line.result.streams.iter().rev().find_map(|s| s.closed_us).unwrap_or(now_us);
            self.line.lose_voice(now_us - last_closed);
        }
        self.stream_callback(&wanted, &stream_sid, "stream-started", None);
        let first_timestamp = 60 + self.line.draw() % 101;
        let (account, call) = (self.config.account_sid.clone(), self.line.result.call_sid.clone());
        let carrier = Carrier::new(stream_sid.clone(), account, call, first_timestamp);
        let end = stream::run(&mut self.line, socket, carrier, &wanted.parameters, &mut self.by_hand, self.clock).await;
        let now_us = self.clock.now_us();
        self.line.play(now_us);
        // What a dead stream had queued is not played on, and its marks have nowhere to go.
        let _ = self.line.playout.clear(now_us);
        stream::note_end(&mut self.line, now_us, end);
        self.stream_callback(&wanted, &stream_sid, "stream-stopped", None);
        end
    }

    async fn open(&mut self, wanted: &Stream, url: &str, now_us: u64) -> Result<super::http::Socket, (u32, String)> {
        if wanted.track.as_deref().is_some_and(|track| track != "inbound_track") {
            return Err((31_941, "only inbound_track is allowed under <Connect>".to_owned()));
        }
        let plain_is_fine = self.config.allow_plain_ws && url.starts_with("ws://");
        if !plain_is_fine && !url.starts_with("wss://") {
            return Err((31_922, format!("{url} is not wss")));
        }
        let bare = match url.split_once('?') {
            None => url,
            Some((bare, _)) => {
                self.line.complain(now_us, 31_920, "the stream's URL has a query, which is not sent".to_owned());
                bare
            }
        };
        let limits = WebSocketConfig::default().read_buffer_size(16 * 1024);
        self.web.upgrade(bare, limits).await.map_err(|failed| (failed.code, failed.reason))
    }

    fn stream_callback(&self, stream: &Stream, stream_sid: &str, event: &str, error: Option<u32>) {
        let Some(url) = &stream.status_callback else { return };
        let mut fields = vec![
            ("AccountSid".to_owned(), self.config.account_sid.clone()),
            ("CallSid".to_owned(), self.line.result.call_sid.clone()),
            ("StreamSid".to_owned(), stream_sid.to_owned()),
            ("StreamName".to_owned(), stream.name.clone().unwrap_or_else(|| stream_sid.to_owned())),
            ("StreamEvent".to_owned(), event.to_owned()),
        ];
        if let Some(code) = error {
            fields.push(("StreamError".to_owned(), code.to_string()));
        }
        let (web, url) = (self.web.clone(), url.clone());
        // Beside the call, as at Twilio: a slow callback delays nothing.
        tokio::spawn(async move {
            if let Err(reason) = web.send(&url, true, &fields).await {
                tracing::debug!(reason, "a stream callback failed");
            }
        });
    }

    async fn finish(mut self, end: CallEnd) -> CallResult {
        let now_us = self.clock.now_us();
        self.line.play(now_us);
        self.line.note(now_us, Happened::CallEnded);
        if let Some(url) = self.config.status_url.clone() {
            let mut fields = self.fields("completed");
            fields.push(("CallDuration".to_owned(), (now_us / 1_000_000).to_string()));
            let _ = tokio::time::timeout(CALLBACK_WAIT, self.web.send(&url, true, &fields)).await;
        }
        let heard = self.line.playout.heard().to_vec();
        CallResult { end, ended_us: now_us, heard, ..self.line.result }
    }

    /// The fields of a voice webhook. Empty ones are sent and signed too.
    fn fields(&self, status: &str) -> Vec<(String, String)> {
        let config = &self.config;
        [
            ("AccountSid", config.account_sid.as_str()),
            ("ApiVersion", "2010-04-01"),
            ("CallSid", self.line.result.call_sid.as_str()),
            ("CallStatus", status),
            ("Called", config.to.as_str()),
            ("Caller", config.from.as_str()),
            ("Direction", "inbound"),
            ("From", config.from.as_str()),
            ("FromCity", ""),
            ("FromCountry", "US"),
            ("To", config.to.as_str()),
            ("ToCountry", "US"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }
}

struct Document {
    url: String,
    verbs: Vec<Verb>,
}

enum Next {
    Document { url: String, post: bool },
    End(CallEnd),
}

fn absolute(from: &str, url: &str) -> Result<String, String> {
    if url.starts_with("http://") || url.starts_with("https://") {
        // As written: the signature covers the exact text.
        return Ok(url.to_owned());
    }
    let joined = Url::parse(from).and_then(|base| base.join(url)).map_err(|error| format!("{url}: {error}"))?;
    Ok(joined.into())
}

/// A relative stream URL takes the document's host, over wss.
fn stream_url(document_url: &str, url: &str) -> String {
    match absolute(document_url, url) {
        Ok(joined) if !url.contains("://") => joined.replacen("http", "ws", 1),
        _ => url.to_owned(),
    }
}
