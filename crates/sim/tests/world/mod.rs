//! A server for the caller to call: answers webhooks with documents, and hands WebSockets to whoever plays the bridge.
//! Written on bare sockets, so that it notices what the caller really sends.

#![allow(dead_code)]

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use sim::phone::{CallScript, PhoneConfig};
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

pub const TOKEN: &str = "test auth token";
pub const VOICE_URL: &str = "https://voice.example.com/twilio/voice";

#[derive(Clone, Debug)]
pub struct Post {
    pub path: String,
    pub head: String,
    pub body: String,
}

pub struct Server {
    pub addr: SocketAddr,
    pub posts: Arc<Mutex<Vec<Post>>>,
}

/// `documents` are served in order, the last one again and again; `None` answers 502. Callbacks get an empty 200.
pub async fn serve<F>(
    documents: Vec<Option<String>>,
    on_stream: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> Server
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let posts: Arc<Mutex<Vec<Post>>> = Arc::default();
    let kept = Arc::clone(&posts);
    let documents = Arc::new(Mutex::new(VecDeque::from(documents)));
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let mut first = [0u8; 4];
            while socket.peek(&mut first).await.unwrap() < 4 {}
            if &first == b"POST" {
                tokio::spawn(answer(socket, Arc::clone(&kept), Arc::clone(&documents)));
            } else {
                tokio::spawn(on_stream(socket));
            }
        }
    });
    Server { addr, posts }
}

async fn answer(mut socket: TcpStream, posts: Arc<Mutex<Vec<Post>>>, documents: Arc<Mutex<VecDeque<Option<String>>>>) {
    let mut text = String::new();
    let mut bytes = [0u8; 4096];
    let (head, body) = loop {
        let n = socket.read(&mut bytes).await.unwrap();
        text.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = header(head, "content-length").unwrap().parse::<usize>().unwrap();
        if body.len() >= length {
            break (head.to_owned(), body.to_owned());
        }
    };
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let is_document = !path.contains("callback");
    posts.lock().unwrap().push(Post { path, head, body });
    let document = if is_document {
        let mut documents = documents.lock().unwrap();
        if documents.len() > 1 { documents.pop_front().unwrap() } else { documents[0].clone() }
    } else {
        Some(String::new())
    };
    let (status, body) = document.map_or(("502 Bad Gateway", String::new()), |text| ("200 OK", text));
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/xml\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(answer.as_bytes()).await.unwrap();
}

pub fn header(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

impl Server {
    pub fn config(&self) -> PhoneConfig {
        let mut config = PhoneConfig::new(VOICE_URL, TOKEN);
        config.connect_addr = Some(self.addr);
        config.max_seconds = 20;
        config.redirect_retry_ms = 50;
        config
    }
    pub fn paths(&self) -> Vec<String> {
        self.posts.lock().unwrap().iter().map(|p| p.path.clone()).collect()
    }
}

pub fn document(inner: &str) -> Option<String> {
    Some(format!("<?xml version=\"1.0\"?><Response>{inner}</Response>"))
}

pub const STREAM: &str = r#"<Connect><Stream url="wss://voice.example.com/twilio/stream"><Parameter name="token" value="t&amp;1"/></Stream></Connect>"#;

pub fn script(text: &str) -> CallScript {
    CallScript::parse(text).unwrap()
}

/// The server's end of a stream, in the hands of a test.
pub struct Bridge {
    pub ws: WebSocketStream<TcpStream>,
    pub sid: String,
    pub start: Value,
    pub upgrade: Vec<(String, String)>,
}

impl Bridge {
    #[allow(clippy::result_large_err)]
    pub async fn accept(socket: TcpStream) -> Self {
        let mut upgrade = Vec::new();
        let ws = tokio_tungstenite::accept_hdr_async(
            socket,
            |request: &tokio_tungstenite::tungstenite::handshake::server::Request, response| {
                upgrade.push((":path".to_owned(), request.uri().to_string()));
                for (name, value) in request.headers() {
                    upgrade.push((name.to_string(), value.to_str().unwrap().to_owned()));
                }
                Ok(response)
            },
        )
        .await
        .unwrap();
        let mut bridge = Self { ws, sid: String::new(), start: Value::Null, upgrade };
        assert_eq!(bridge.next().await["event"], "connected");
        bridge.start = bridge.next().await;
        assert_eq!(bridge.start["event"], "start");
        bridge.sid = bridge.start["streamSid"].as_str().unwrap().to_owned();
        bridge
    }

    pub async fn try_next(&mut self) -> Option<Value> {
        let message = tokio::time::timeout(Duration::from_secs(5), self.ws.next()).await.expect("a message in time");
        match message {
            Some(Ok(Message::Text(text))) => Some(serde_json::from_str(&text).unwrap()),
            Some(Ok(Message::Close(_)) | Err(_)) | None => None,
            other => panic!("{other:?}"),
        }
    }
    pub async fn next(&mut self) -> Value {
        self.try_next().await.expect("the stream to be open")
    }
    pub async fn until(&mut self, event: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["event"] == event {
                return message;
            }
        }
    }
    pub async fn send(&mut self, body: &str) {
        let text = format!(r#"{{"streamSid":"{}",{body}}}"#, self.sid);
        self.ws.send(Message::text(text)).await.unwrap();
    }
    pub async fn media(&mut self, mulaw: &[u8]) {
        use base64::Engine;
        let payload = base64::engine::general_purpose::STANDARD.encode(mulaw);
        self.send(&format!(r#""event":"media","media":{{"payload":"{payload}"}}"#)).await;
    }
    pub async fn mark(&mut self, name: &str) {
        self.send(&format!(r#""event":"mark","mark":{{"name":"{name}"}}"#)).await;
    }
    /// Read on until the caller is gone.
    pub async fn drain(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(message) = self.try_next().await {
            messages.push(message);
        }
        messages
    }
}
