//! Health, metrics, and the admin API.

use crate::house::*;
use server::events::LiveEvent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vocab::CallSid;

#[tokio::test]
async fn healthz_answers_and_readyz_says_why_not() {
    let mut house = House::with_limits(|limits| limits.max_calls = 1).await;
    assert_eq!(house.get("/healthz", &[]).await.status, 200);
    assert_eq!(house.get("/readyz", &[]).await.status, 200);

    let _phone = house.call("CA1", "MZ1").await;
    house.drain.drain();
    *house.records.broken.lock().unwrap() = true;
    let answer = soon(async {
        loop {
            // A good answer of the store holds for a moment.
            let answer = house.get("/readyz", &[]).await;
            if answer.body.contains("store") {
                return answer;
            }
        }
    })
    .await;
    assert_eq!(answer.status, 503);
    for why in ["store unavailable: disk full", "all calls are taken (1 of 1)", "draining"] {
        assert!(answer.body.contains(why), "{}", answer.body);
    }
    assert_eq!(house.get("/healthz", &[]).await.status, 200, "alive is not ready");
}

#[tokio::test]
async fn readyz_says_that_calls_get_no_model_until_one_gets_it() {
    let house = House::open().await;
    house.model.failed();
    house.model.failed();
    let answer = house.get("/readyz", &[]).await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("no model session could be opened for 2 calls in a row"), "{}", answer.body);
    assert!(house.get("/metrics", &[]).await.body.contains("calls_without_model_total 2"));
    assert!(house.ring("CA1").await.body.contains("<Stream"), "the next call may show that it has passed");
    house.model.opened();
    assert_eq!(house.get("/readyz", &[]).await.status, 200);
}

#[tokio::test]
async fn every_measure_has_buckets_or_starts_at_zero() {
    let house = House::open().await;
    metrics::histogram!("admission_latency_ms").record(3.0);
    metrics::histogram!("a_new_measure_ms").record(3.0);
    let text = house.get("/metrics", &[]).await.body;
    assert!(text.contains(r#"admission_latency_ms_bucket{le="5"} 1"#), "{text}");
    assert!(text.contains(r#"a_new_measure_ms_bucket{le="10"}"#), "no histogram may come out as a summary: {text}");
    assert!(!text.contains("quantile"), "{text}");
    for counter in ["duplicate_side_effect_total 0", "duplicate_delivery_total 0", "tool_timeout_total 0"] {
        assert!(text.contains(counter), "{counter} is not in {text}");
    }
}

#[tokio::test]
async fn the_admin_api_opens_to_its_token_only() {
    let house = House::open().await;
    for path in ["/api/v1/calls", "/api/v1/calls/CA1", "/api/v1/events"] {
        let bare = house.get(path, &[]).await;
        assert_eq!(bare.status, 401, "{path}");
        assert!(bare.head.contains("www-authenticate: bearer"), "{}", bare.head);
        for wrong in ["Bearer wrong", "Bearer let-me-i", "Bearer ", "Basic let-me-in", "let-me-in"] {
            assert_eq!(house.get(path, &[("authorization", wrong)]).await.status, 401, "{path} {wrong}");
        }
    }
    assert_eq!(house.get("/api/v1/calls", &[("authorization", "bearer let-me-in")]).await.status, 200);

    let closed = House::open_with(Habit::Holds, |settings| settings.admin_token = None).await;
    for header in ["Bearer let-me-in", "Bearer "] {
        let answer = closed.get("/api/v1/calls", &[("authorization", header)]).await;
        assert_eq!(answer.status, 403);
        assert!(answer.body.contains("no admin token is configured"), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_call_is_shown_with_its_number_masked() {
    let mut house = House::open().await;
    let _phone = house.call("CA1", "MZ1").await;
    let admin = [("authorization", "Bearer let-me-in")];
    let calls = house.get("/api/v1/calls", &admin).await.body;
    assert!(calls.contains(r#""caller":"…5309""#) && !calls.contains(CALLER), "{calls}");
    assert_eq!(house.get("/api/v1/calls/CA1", &admin).await.status, 200);
    assert_eq!(house.get("/api/v1/calls/CA9", &admin).await.status, 404);
}

/// A server-sent event stream, read as text.
struct Sent {
    socket: TcpStream,
    text: String,
}

impl Sent {
    async fn open(house: &House, more: &str) -> Self {
        let mut socket = TcpStream::connect(house.at).await.unwrap();
        let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\n{more}\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut sent = Self { socket, text: String::new() };
        sent.until("\r\n\r\n").await;
        assert!(sent.text.starts_with("HTTP/1.1 200"), "{}", sent.text);
        sent
    }

    async fn until(&mut self, part: &str) {
        soon(async {
            while !self.text.contains(part) {
                let mut bytes = [0; 4_096];
                let read = self.socket.read(&mut bytes).await.unwrap();
                assert_ne!(read, 0, "the stream ended without {part}: {}", self.text);
                self.text.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        })
        .await;
    }
}

#[tokio::test]
async fn live_events_are_sent_as_they_happen() {
    let mut house = House::open().await;
    let mut sent = Sent::open(&house, "").await;
    assert!(sent.text.to_ascii_lowercase().contains("content-type: text/event-stream"), "{}", sent.text);
    let _phone = house.call("CA1", "MZ1").await;
    sent.until("event: call_started").await;
    sent.until(r#""call_sid":"CA1""#).await;
    house.release.cancel();
    sent.until("event: call_ended").await;
    sent.until(r#""end":"ended_on_purpose""#).await;
    assert!(!sent.text.contains(CALLER), "{}", sent.text);
}

#[tokio::test]
async fn who_lags_or_comes_back_is_told_to_resync() {
    let house = House::open().await;
    let mut back = Sent::open(&house, "last-event-id: 7\r\n").await;
    back.until("event: resync").await;

    let mut slow = Sent::open(&house, "").await;
    // More than are kept, with no chance in between for the sender's task to run.
    for number in 0..10 {
        house.events.publish(
            &CallSid::new("CA1"),
            LiveEvent::Note { name: "tick", fields: serde_json::json!({ "n": number }) },
        );
    }
    slow.until("event: resync").await;
    slow.until(r#"{"missed":6}"#).await;
    slow.until(r#""n":9"#).await;
    assert!(!slow.text.contains(r#""n":5"#), "{}", slow.text);
}

#[tokio::test]
async fn an_unknown_page_is_not_found() {
    let house = House::open().await;
    assert_eq!(house.get("/", &[]).await.status, 404);
    assert_eq!(house.get("/api/v2/calls", &[]).await.status, 404);
}
