//! The HTTP tool against a real server on 127.0.0.1.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tools::http::{
    AllowedHosts, AnswerRules, BodyTemplate, HttpToolSettings, LookUpSettings, Method, RequestTemplate, UrlTemplate,
    http_tools,
};
use tools::{LookUp, Tool, ToolOutcome, ToolRequest};
use vocab::effect::EffectClass;
use vocab::{CallerId, IntentKey, OperationId, SessionId, ToolName};

/// What the backend saw, oldest first.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(Uri, HeaderMap, Bytes)>>>);

impl Seen {
    fn all(&self) -> Vec<(Uri, HeaderMap, Bytes)> {
        self.0.lock().expect("not poisoned").clone()
    }
}

async fn note(State(seen): State<Seen>, uri: Uri, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    let status = match uri.path() {
        "/busy" => StatusCode::TOO_MANY_REQUESTS,
        "/full" => StatusCode::CONFLICT,
        "/broken" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::CREATED,
    };
    seen.0.lock().expect("not poisoned").push((uri, headers, body));
    (status, axum::Json(json!({"reference": "B-7"})))
}

async fn backend() -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let app = Router::new()
        .route("/moved", post(|| async { (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/bookings")]) }))
        .route("/long", post(|| async { "x".repeat(5_000) }))
        .route("/login", post(|| async { "<html>Please log in</html>" }))
        .route("/down", post(|| async { axum::Json(json!({"error": "database is down"})) }))
        // Never answers while a test lives; the tool gives up first.
        .route("/slow", post(|| async { std::future::pending::<()>().await }))
        .route("/keys/known", get(|| async { axum::Json(json!({"reference": "B-7"})) }))
        .route("/keys/closed", get(|| async { StatusCode::UNAUTHORIZED }))
        .route("/keys/unknown", get(|| async { StatusCode::NOT_FOUND }))
        .fallback(note)
        .with_state(seen.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, seen)
}

fn settings(url: &str, allowed: &[&str]) -> HttpToolSettings {
    let mut allowed_hosts = AllowedHosts::default();
    for entry in allowed {
        allowed_hosts.allow(entry).expect("an entry");
    }
    HttpToolSettings {
        name: ToolName::new("book_table"),
        request: RequestTemplate {
            method: Method::Post,
            url: UrlTemplate::parse(url).expect("a url"),
            headers: Vec::new(),
            body: Some(BodyTemplate::from_value(&json!({"n": "{/n}", "by": "{caller}"})).expect("a body")),
            with_key: true,
        },
        look_up: None,
        rules: AnswerRules {
            effect: EffectClass::Opaque,
            refusal_statuses: BTreeSet::from([409]),
            reference: Some("/reference".to_owned()),
        },
        timeout: Duration::from_secs(5),
        allowed_hosts,
        max_answer_bytes: 1_000,
    }
}

fn tool(settings: HttpToolSettings) -> Arc<dyn Tool> {
    let mut tools = http_tools(vec![settings]).expect("a client");
    tools.remove(&ToolName::new("book_table")).expect("set up")
}

fn request(arguments: Value, attempt: u32) -> ToolRequest {
    ToolRequest {
        operation: OperationId::new("op_1"),
        key: IntentKey::new("key_1"),
        session: SessionId::new("ses_1"),
        caller: CallerId::new("+4930"),
        arguments,
        attempt,
        timeout: Duration::from_secs(5),
    }
}

async fn run(url: &str, allowed: &[&str]) -> ToolOutcome {
    tool(settings(url, allowed)).run(request(json!({"n": 2}), 1)).await
}

fn unclear(outcome: ToolOutcome) -> String {
    match outcome {
        ToolOutcome::Unclear { reason } => reason,
        other => panic!("not unclear: {other:?}"),
    }
}

fn refused_message(outcome: ToolOutcome) -> String {
    match outcome {
        ToolOutcome::Refused { result } => result["message"].as_str().expect("a message").to_owned(),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_commit_carries_the_same_key_at_every_attempt() {
    let (address, seen) = backend().await;
    let tool = tool(settings(&format!("http://{address}/t/{{/n}}?by={{caller}}"), &["127.0.0.1"]));
    for attempt in 1..=2 {
        assert_eq!(
            tool.run(request(json!({"n": 2}), attempt)).await,
            ToolOutcome::Committed { result: json!({"reference": "B-7"}), provider_ref: Some("B-7".to_owned()) }
        );
    }
    let seen = seen.all();
    assert_eq!(seen.len(), 2);
    for (uri, headers, body) in seen {
        assert_eq!(uri, "/t/2?by=%2B4930");
        assert_eq!(headers["idempotency-key"], "key_1");
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(serde_json::from_slice::<Value>(&body).expect("json"), json!({"n": 2, "by": "+4930"}));
    }
}

#[tokio::test]
async fn a_refusal_a_full_queue_and_an_error_are_told_apart() {
    let (address, _) = backend().await;
    let run = async |path: &str| run(&format!("http://{address}{path}"), &["127.0.0.1"]).await;
    assert_eq!(run("/full").await, ToolOutcome::Refused { result: json!({"reference": "B-7"}) });
    assert_eq!(run("/busy").await, ToolOutcome::Retryable { reason: "status 429".to_owned() });
    assert_eq!(unclear(run("/broken").await), "status 500");
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_unclear() {
    let (address, _) = backend().await;
    let mut slow = settings(&format!("http://{address}/slow"), &["127.0.0.1"]);
    slow.timeout = Duration::from_millis(80);
    assert_eq!(unclear(tool(slow).run(request(json!({"n": 2}), 1)).await), "timed out");
    // The attempt's own time left bounds it as well.
    let mut short = request(json!({"n": 2}), 1);
    short.timeout = Duration::from_millis(80);
    let slow = tool(settings(&format!("http://{address}/slow"), &["127.0.0.1"]));
    assert_eq!(unclear(slow.run(short.clone()).await), "timed out");
    short.timeout = Duration::ZERO;
    assert_eq!(slow.run(short).await, ToolOutcome::Retryable { reason: "no time left".to_owned() });
}

/// Reads one request, says `answer` and closes.
async fn rude(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = Vec::new();
            // The body ends with the only closing brace.
            while !read.ends_with(b"}") {
                if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn a_lost_or_cut_off_or_senseless_answer_is_unclear() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"refer", "HTTP/1.1 200", "hello\r\n\r\n"] {
        let address = rude(answer).await;
        let reason = unclear(run(&format!("http://{address}/bookings"), &["127.0.0.1"]).await);
        assert!(!reason.contains("bookings"), "a reason holds no url: {reason}");
    }
}

#[tokio::test]
async fn a_refused_connection_or_handshake_or_an_unknown_name_sent_nothing() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("bound")
    };
    let outcome = run(&format!("http://{address}/bookings"), &["127.0.0.1"]).await;
    assert!(matches!(outcome, ToolOutcome::Retryable { .. }), "{outcome:?}");
    // A server that answers a TLS hello with something else: the request is still here.
    let plain = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        });
        address
    };
    let outcome = run(&format!("https://{plain}/bookings"), &["127.0.0.1"]).await;
    assert!(matches!(outcome, ToolOutcome::Retryable { .. }), "{outcome:?}");
    // RFC 6761: `.invalid` never resolves.
    let outcome = run("http://nobody.invalid/bookings", &["nobody.invalid"]).await;
    assert!(matches!(outcome, ToolOutcome::Retryable { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_host_that_is_not_listed_gets_nothing() {
    let (address, seen) = backend().await;
    let port = address.port();
    let message = refused_message(run(&format!("http://{address}/x"), &["api.example.com", "127.0.0.1:1"]).await);
    assert_eq!(message, format!("the host 127.0.0.1:{port} is not in allowed_hosts"));
    // A listed name is judged again by what it resolves to.
    let message = refused_message(run(&format!("http://localhost:{port}/x"), &["localhost"]).await);
    assert!(message.contains("only private addresses"), "{message}");
    assert_eq!(seen.all().len(), 0);
    let outcome = run(&format!("http://localhost:{port}/x"), &["localhost", "127.0.0.0/8"]).await;
    assert!(matches!(outcome, ToolOutcome::Committed { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (address, seen) = backend().await;
    assert_eq!(unclear(run(&format!("http://{address}/moved"), &["127.0.0.1"]).await), "status 307");
    assert_eq!(seen.all().len(), 0);
}

#[tokio::test]
async fn an_answer_without_the_declared_reference_confirms_nothing() {
    let (address, _) = backend().await;
    for path in ["/login", "/down"] {
        let reason = unclear(run(&format!("http://{address}{path}"), &["127.0.0.1"]).await);
        assert_eq!(reason, "status 200, but the answer has no reference at /reference", "{path}");
    }
}

#[tokio::test]
async fn an_answer_beyond_the_cap_is_not_read() {
    let (address, _) = backend().await;
    let url = format!("http://{address}/long");
    let reason = unclear(run(&url, &["127.0.0.1"]).await);
    assert_eq!(reason, "status 200, but the answer is longer than max_answer_bytes");
    // Without a declared reference the status says it all.
    let mut nameless = settings(&url, &["127.0.0.1"]);
    nameless.rules.reference = None;
    let outcome = tool(nameless).run(request(json!({"n": 2}), 1)).await;
    let ToolOutcome::Committed { result, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(result["note"], "the details of the answer were too long to read");
}

#[tokio::test]
async fn an_argument_that_the_template_needs_and_lacks_sends_nothing() {
    let (address, seen) = backend().await;
    let tool = tool(settings(&format!("http://{address}/bookings"), &["127.0.0.1"]));
    let message = refused_message(tool.run(request(json!({"other": 1}), 1)).await);
    assert_eq!(message, "the body needs the argument /n, which is absent");
    assert_eq!(seen.all().len(), 0);
}

#[tokio::test]
async fn the_system_of_record_is_asked_by_key() {
    let (address, _) = backend().await;
    let with_look_up = |origin: String| {
        let mut settings = settings(&format!("http://{address}/bookings"), &["127.0.0.1"]);
        settings.look_up = Some(LookUpSettings {
            request: RequestTemplate {
                method: Method::Get,
                url: UrlTemplate::parse(&format!("{origin}/keys/{{key}}")).expect("a url"),
                headers: Vec::new(),
                body: None,
                with_key: false,
            },
            result: None,
        });
        tool(settings)
    };
    let ask = async |tool: &Arc<dyn Tool>, key: &str| {
        let request = ToolRequest { key: IntentKey::new(key), ..request(json!({"n": 2}), 1) };
        tool.look_up(request).expect("can be asked").await
    };
    let there = with_look_up(format!("http://{address}"));
    assert_eq!(
        ask(&there, "known").await,
        LookUp::Found { result: json!({"reference": "B-7"}), provider_ref: Some("B-7".to_owned()) }
    );
    assert_eq!(ask(&there, "unknown").await, LookUp::Absent);
    assert_eq!(ask(&there, "closed").await, LookUp::Unanswered { reason: "status 401".to_owned() });
    let gone = with_look_up("http://127.0.0.1:1".to_owned());
    assert!(matches!(ask(&gone, "known").await, LookUp::Unanswered { .. }));
    assert!(tool(settings("http://127.0.0.1/", &["127.0.0.1"])).look_up(request(json!({}), 1)).is_none());
}
