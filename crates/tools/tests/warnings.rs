//! What an operator sees when a backend does not do its part.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::any;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tools::http::{
    AllowedHosts, AnswerRules, BodyTemplate, HttpToolSettings, LookUpSettings, Method, RequestTemplate, UrlTemplate,
    http_tools,
};
use tools::{Tool, ToolRequest};
use vocab::effect::EffectClass;
use vocab::{CallerId, IntentKey, OperationId, SessionId, ToolName};

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

impl Log {
    /// Of this thread, until the guard goes. At the level at which a server logs.
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::set_default(log.finish())
    }

    fn warnings(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(" WARN ") || line.contains("ERROR ")).map(str::to_owned).collect()
    }
}

fn template(method: Method, url: &str) -> RequestTemplate {
    RequestTemplate {
        method,
        url: UrlTemplate::parse(url).unwrap(),
        headers: Vec::new(),
        body: (method == Method::Post).then(|| BodyTemplate::from_value(&json!({"name": "{/name}"})).unwrap()),
        with_key: true,
    }
}

fn tool(url: &str) -> Arc<dyn Tool> {
    let mut allowed_hosts = AllowedHosts::default();
    allowed_hosts.allow("127.0.0.1").unwrap();
    let name = ToolName::new("book_table");
    let settings = HttpToolSettings {
        name: name.clone(),
        request: template(Method::Post, url),
        look_up: Some(LookUpSettings { request: template(Method::Get, url), result: None }),
        rules: AnswerRules {
            effect: EffectClass::Keyed,
            refusal_statuses: BTreeSet::from([422]),
            reference: Some("/reference".to_owned()),
        },
        timeout: Duration::from_secs(5),
        allowed_hosts,
        max_answer_bytes: 1_000,
    };
    http_tools(vec![settings]).unwrap().remove(&name).unwrap()
}

fn request() -> ToolRequest {
    ToolRequest {
        operation: OperationId::new("op_1"),
        key: IntentKey::new("key_1"),
        session: SessionId::new("ses_1"),
        caller: CallerId::new("+493012345"),
        arguments: json!({"name": "Ada Lovelace"}),
        attempt: 1,
        timeout: Duration::from_secs(5),
    }
}

/// The warnings that one attempt, or one look-up, leaves.
async fn warnings(status: u16, body: &'static str, look_up: bool) -> Vec<String> {
    let answer = move || async move { (StatusCode::from_u16(status).unwrap(), body) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let backend = tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(answer))).await });
    let log = Log::default();
    let _guard = log.start();
    let tool = tool(&url);
    if look_up {
        tool.look_up(request()).unwrap().await;
    } else {
        tool.run(request()).await;
    }
    backend.abort();
    log.warnings()
}

#[tokio::test]
async fn each_attempt_that_the_backend_does_not_confirm_leaves_one_warning_with_its_reason_and_no_word_of_the_caller() {
    let echo = r#"{"error":"Ada Lovelace, +493012345"}"#;
    for (status, body, why) in [
        (500, echo, "status 500"),
        (502, echo, "status 502"),
        (503, echo, "status 503"),
        (404, echo, "status 404"),
        (401, echo, "status 401"),
        (302, echo, "status 302"),
        (202, echo, "status 202"),
        (429, echo, "status 429"),
        (200, echo, "no reference at /reference"),
    ] {
        let told = warnings(status, body, false).await;
        let [line] = told.as_slice() else { panic!("{status}: {told:?}") };
        for wanted in ["tool=book_table", "operation=op_1", "attempt=1", why] {
            assert!(line.contains(wanted), "{status}: no {wanted} in {line}");
        }
        assert!(!line.contains("Ada") && !line.contains("4930"), "{line}");
    }
    // The backend's yes and its business no are nothing to look at.
    assert_eq!(warnings(201, r#"{"reference":"B-7"}"#, false).await, Vec::<String>::new());
    assert_eq!(warnings(422, echo, false).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_look_up_without_an_answer_leaves_one_warning() {
    for (status, body, why) in [(500, "", "status 500"), (200, "<html>", "not JSON"), (200, "{}", "empty record")] {
        let told = warnings(status, body, true).await;
        let [line] = told.as_slice() else { panic!("{status}: {told:?}") };
        assert!(line.contains("operation=op_1") && line.contains(why), "{line}");
    }
    assert_eq!(warnings(404, "", true).await, Vec::<String>::new());
    assert_eq!(warnings(200, r#"{"reference":"B-7"}"#, true).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_backend_that_is_not_there_leaves_one_warning() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let log = Log::default();
    let _guard = log.start();
    tool(&url).run(request()).await;
    let told = log.warnings();
    assert!(told.len() == 1 && told[0].contains("backend not reached"), "{told:?}");
}
