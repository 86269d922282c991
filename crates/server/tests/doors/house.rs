//! A server with a fake call behind it, and the outside that knocks: plain HTTP, and Twilio's side of the WebSocket.

use base64::Engine;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, SinkExt, StreamExt};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::SecretString;
use server::calls::{AcceptedStream, CallEnd, CallReport, CallStarter};
use server::events::LiveEvents;
use server::records::{CallRecords, RecordsUnavailable};
use server::settings::{Limits, ServerSettings, TwilioSettings};
use server::{DrainSwitch, ModelHealth, Server, Stopped, Wiring};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::sync::CancellationToken;
use url::Url;
use vocab::{AgentId, CallSid};

pub const SECRET: &str = "12345";
pub const OLD_SECRET: &str = "54321";
pub const ADMIN: &str = "let-me-in";
pub const PUBLIC: &str = "https://voice.example.com";
pub const STREAM: &str = "wss://voice.example.com/twilio/stream";
pub const ACCOUNT: &str = "AC0123456789abcdef0123456789abcdef";
pub const CALLER: &str = "+14158675309";

/// Nothing here takes longer unless it is broken.
const PATIENCE: Duration = Duration::from_secs(5);

pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("this should have happened by now")
}

/// What the fake call saw of a stream that reached it.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub call_sid: String,
    pub stream_sid: String,
    pub caller: String,
    pub caller_verified: bool,
    pub agent: String,
}

/// The durable record of calls, as far as the doors ask.
#[derive(Default)]
pub struct FakeRecords {
    pub finished: Mutex<BTreeSet<String>>,
    /// Calls that the carrier ended.
    pub ended: Mutex<Vec<String>>,
    pub broken: Mutex<bool>,
}

impl FakeRecords {
    fn answer<T: Send + 'static>(&self, answer: T) -> BoxFuture<'_, Result<T, RecordsUnavailable>> {
        let broken = *self.broken.lock().unwrap();
        async move { if broken { Err(RecordsUnavailable("disk full".into())) } else { Ok(answer) } }.boxed()
    }
}

impl CallRecords for FakeRecords {
    fn finished(&self, call_sid: &CallSid) -> BoxFuture<'_, Result<bool, RecordsUnavailable>> {
        assert_ne!(call_sid.as_str(), "CAbad", "this record is bad on purpose");
        let finished = self.finished.lock().unwrap().contains(call_sid.as_str());
        self.answer(finished)
    }
    fn history(&self, call_sid: &CallSid) -> BoxFuture<'_, Result<Option<serde_json::Value>, RecordsUnavailable>> {
        let known = self.finished.lock().unwrap().contains(call_sid.as_str());
        self.answer(known.then(|| serde_json::json!({ "sessions": [] })))
    }
    fn end_call(&self, call_sid: &CallSid) -> BoxFuture<'_, Result<(), RecordsUnavailable>> {
        self.ended.lock().unwrap().push(call_sid.as_str().to_owned());
        self.answer(())
    }
    fn usable(&self) -> BoxFuture<'_, Result<(), RecordsUnavailable>> {
        self.answer(())
    }
}

/// What the fake call does with an accepted stream.
#[derive(Clone, Copy)]
pub enum Habit {
    /// Holds the socket until it is cancelled or released, then closes it.
    Holds,
    /// Never looks at its cancellation.
    Stubborn,
    /// Gets no model session.
    FindsNoModel,
    /// Panics at callers whose call SID ends with `bad`.
    PanicsAtBad,
}

struct FakeCall {
    habit: Habit,
    seen: mpsc::UnboundedSender<Seen>,
    release: CancellationToken,
}

impl CallStarter for FakeCall {
    fn start(&self, stream: AcceptedStream) -> BoxFuture<'static, CallReport> {
        let call_sid = stream.start.call.as_str().to_owned();
        let _ = self.seen.send(Seen {
            call_sid: call_sid.clone(),
            stream_sid: stream.start.stream.as_str().to_owned(),
            caller: stream.caller.as_str().to_owned(),
            caller_verified: stream.caller_verified,
            agent: stream.agent.as_str().to_owned(),
        });
        let (habit, release) = (self.habit, self.release.clone());
        async move {
            let socket = stream.socket;
            let end = match habit {
                Habit::Stubborn => std::future::pending().await,
                Habit::FindsNoModel => CallEnd::NoModel("nobody answers".into()),
                Habit::PanicsAtBad if call_sid.ends_with("bad") => panic!("this call is bad on purpose"),
                Habit::Holds | Habit::PanicsAtBad => tokio::select! {
                    () = stream.let_go.cancelled() => CallEnd::LetGo,
                    () = release.cancelled() => CallEnd::EndedOnPurpose,
                },
            };
            close(socket).await;
            CallReport { end }
        }
        .boxed()
    }
}

async fn close(mut socket: phone::twilio::TwilioSocket<TcpStream>) {
    socket.close(1000, "").await;
}

pub struct House {
    pub at: SocketAddr,
    pub seen: mpsc::UnboundedReceiver<Seen>,
    pub records: Arc<FakeRecords>,
    pub events: LiveEvents,
    pub model: Arc<ModelHealth>,
    pub drain: DrainSwitch,
    /// Lets all holding calls end on purpose.
    pub release: CancellationToken,
    stop: CancellationToken,
    running: JoinHandle<Stopped>,
}

pub fn settings() -> ServerSettings {
    ServerSettings {
        bind: "127.0.0.1:0".parse().unwrap(),
        public_url: Some(Url::parse(PUBLIC).unwrap()),
        twilio: TwilioSettings {
            account_sids: vec![ACCOUNT.into()],
            auth_tokens: vec![SecretString::from(SECRET), SecretString::from(OLD_SECRET)],
            shared_keys: Vec::new(),
        },
        admin_token: Some(SecretString::from(ADMIN)),
        agent: AgentId::new("host"),
        limits: Limits {
            close_cap: Duration::from_millis(300),
            drain_grace: Duration::from_secs(2),
            ..Limits::default()
        },
    }
}

impl House {
    pub async fn open() -> Self {
        Self::open_with(Habit::Holds, |_| {}).await
    }

    pub async fn with_limits(change: impl FnOnce(&mut Limits)) -> Self {
        Self::open_with(Habit::Holds, |settings| change(&mut settings.limits)).await
    }

    pub async fn open_with(habit: Habit, change: impl FnOnce(&mut ServerSettings)) -> Self {
        Self::open_on(Arc::default(), habit, change).await
    }

    /// On the given records: what a restart finds.
    pub async fn open_on(records: Arc<FakeRecords>, habit: Habit, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        let (sender, seen) = mpsc::unbounded_channel();
        let release = CancellationToken::new();
        let events = LiveEvents::with_capacity(4);
        let model = Arc::new(ModelHealth::default());
        let wiring = Wiring {
            starter: Arc::new(FakeCall { habit, seen: sender, release: release.clone() }),
            records: records.clone(),
            model: Arc::clone(&model),
            events: events.clone(),
        };
        let server = Server::bind(settings, wiring).await.unwrap();
        let (at, drain, stop) = (server.local_addr(), server.drain_switch(), CancellationToken::new());
        let running = tokio::spawn(server.run(stop.clone()));
        Self { at, seen, records, events, model, drain, release, stop, running }
    }

    pub fn tell_to_stop(&self) {
        self.stop.cancel();
    }

    pub async fn stopped(self) -> Stopped {
        self.stop.cancel();
        soon(self.running).await.unwrap()
    }

    /// Drops the future that serves.
    pub fn drop_server(&self) {
        self.running.abort();
    }

    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        request(self.at, "GET", path, headers, "").await
    }

    /// A webhook as Twilio sends it.
    pub async fn webhook(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.webhook_signed_by(SECRET, path, fields).await
    }

    pub async fn webhook_signed_by(&self, secret: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let signature = signature_of(secret, &format!("{PUBLIC}{path}"), fields);
        let headers = [("x-twilio-signature", signature.as_str()), FORM];
        request(self.at, "POST", path, &headers, &form(fields)).await
    }

    /// `POST /twilio/voice` for this call.
    pub async fn ring(&self, call_sid: &str) -> Answer {
        self.webhook("/twilio/voice", &call_fields(call_sid)).await
    }

    /// Rings and returns the token of the answer.
    pub async fn token_for(&self, call_sid: &str) -> String {
        let answer = self.ring(call_sid).await;
        parameter(&answer.body, "token").unwrap_or_else(|| panic!("no token in {}", answer.body))
    }

    pub async fn upgrade(&self) -> Phone {
        self.try_upgrade(Some(&signature_of(SECRET, STREAM, &[]))).await.unwrap()
    }

    /// The WebSocket, or the status that was answered instead.
    pub async fn try_upgrade(&self, signature: Option<&str>) -> Result<Phone, u16> {
        let mut request = format!("ws://{}/twilio/stream", self.at).into_client_request().unwrap();
        if let Some(signature) = signature {
            request.headers_mut().insert("x-twilio-signature", signature.parse().unwrap());
        }
        let socket = TcpStream::connect(self.at).await.unwrap();
        match soon(tokio_tungstenite::client_async(request, socket)).await {
            Ok((socket, _)) => Ok(Phone(socket)),
            Err(Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(other) => panic!("{other}"),
        }
    }

    /// A whole call up to the fake call's hands.
    pub async fn call(&mut self, call_sid: &str, stream_sid: &str) -> Phone {
        let token = self.token_for(call_sid).await;
        self.stream(call_sid, stream_sid, &token).await
    }

    /// The next stream of a call, by the way back.
    pub async fn resume(&mut self, call_sid: &str, stream_sid: &str) -> Phone {
        let answer = self.webhook("/twilio/resume?n=1", &call_fields(call_sid)).await;
        let token = parameter(&answer.body, "token").unwrap_or_else(|| panic!("no token in {}", answer.body));
        self.stream(call_sid, stream_sid, &token).await
    }

    async fn stream(&mut self, call_sid: &str, stream_sid: &str, token: &str) -> Phone {
        let mut phone = self.upgrade().await;
        phone.say(&start(call_sid, stream_sid, ACCOUNT, Some(token))).await;
        let seen = soon(self.seen.recv()).await.unwrap();
        assert_eq!((seen.call_sid.as_str(), seen.stream_sid.as_str()), (call_sid, stream_sid));
        phone
    }
}

/// Twilio's side of a stream.
pub struct Phone(pub WebSocketStream<TcpStream>);

impl Phone {
    pub async fn say(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    /// Waits for the server's close: its code, 1006 when the socket just ends.
    pub async fn close_code(&mut self) -> u16 {
        soon(async {
            loop {
                match self.0.next().await {
                    Some(Ok(Message::Close(frame))) => return frame.map_or(1005, |frame| frame.code.into()),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return 1006,
                }
            }
        })
        .await
    }
}

pub const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

pub fn call_fields(call_sid: &str) -> [(&str, &str); 5] {
    [
        ("CallSid", call_sid),
        ("AccountSid", ACCOUNT),
        ("From", CALLER),
        ("To", "+18005551212"),
        ("CallStatus", "ringing"),
    ]
}

pub fn form(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Twilio's signature, computed here on its own.
pub fn signature_of(secret: &str, url: &str, fields: &[(&str, &str)]) -> String {
    let mut sorted = fields.to_vec();
    sorted.sort_unstable();
    let signed = sorted.iter().fold(url.to_owned(), |text, (name, value)| text + name + value);
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes())
}

pub const CONNECTED: &str = r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#;

pub fn start(call_sid: &str, stream_sid: &str, account_sid: &str, token: Option<&str>) -> String {
    let parameters = token.map_or(serde_json::json!({}), |token| serde_json::json!({ "token": token }));
    serde_json::json!({
        "event": "start", "sequenceNumber": "1", "streamSid": stream_sid,
        "start": {
            "streamSid": stream_sid, "accountSid": account_sid, "callSid": call_sid, "tracks": ["inbound"],
            "customParameters": parameters,
            "mediaFormat": { "encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1 }
        }
    })
    .to_string()
}

/// The value of a `<Parameter>`.
pub fn parameter(twiml: &str, name: &str) -> Option<String> {
    let (_, rest) = twiml.split_once(&format!(r#"<Parameter name="{name}" value=""#))?;
    Some(rest.split_once('"')?.0.to_owned())
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Lower case, as sent.
    pub head: String,
    pub body: String,
}

pub async fn request(at: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {at}\r\n");
    if !headers.iter().any(|(name, _)| *name == "connection") {
        text += "connection: close\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    let mut socket = TcpStream::connect(at).await.unwrap();
    // A server that refuses early may close before all is written.
    let _ = socket.write_all(text.as_bytes()).await;
    let mut bytes = Vec::new();
    let _ = soon(socket.read_to_end(&mut bytes)).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}
