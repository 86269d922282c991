//! The booking backend over real HTTP.

use serde_json::{Value, json};
use sim::booking::{self, BookingConfig, BookingServer};
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Place {
    file: PathBuf,
    server: BookingServer,
    http: reqwest::Client,
}

impl Place {
    async fn open(name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("answerback-booking-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        Self::reopen(file).await
    }
    async fn reopen(file: PathBuf) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = booking::start(BookingConfig::new(&file)).await.unwrap();
        Self { file, server, http: reqwest::Client::builder().build().unwrap() }
    }
    async fn book(&self, key: &str, body: &Value) -> Result<(u16, Value), reqwest::Error> {
        let url = format!("{}/bookings", self.server.url());
        let answer = self.http.post(url).header("Idempotency-Key", key).json(body).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    }
    async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.http.get(format!("{}{path}", self.server.url())).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
    async fn switch(&self, change: Value) -> u16 {
        let url = format!("{}/switches", self.server.url());
        self.http.post(url).json(&change).send().await.unwrap().status().as_u16()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn table() -> Value {
    json!({ "party": 2, "time": "21:00" })
}

#[tokio::test]
async fn the_same_key_gives_the_same_booking_and_one_effect() {
    let place = Place::open("same-key").await;
    let (first, made) = place.book("k1", &table()).await.unwrap();
    let (second, again) = place.book("k1", &table()).await.unwrap();
    assert_eq!((first, second), (201, 200));
    assert_eq!(made, again);
    assert_eq!(made["reference"], "B-7");
    let (_, report) = place.get("/bookings").await;
    assert_eq!(report["effects"]["k1"], 1);
    assert_eq!(report["attempts"]["k1"], 2);
    assert_eq!(report["bookings"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_same_key_with_another_body_is_a_conflict() {
    let place = Place::open("conflict").await;
    place.book("k1", &table()).await.unwrap();
    let (status, body) = place.book("k1", &json!({ "party": 3, "time": "21:00" })).await.unwrap();
    assert_eq!((status, body["error"].as_str()), (409, Some("key_reused")));
    assert_eq!(place.server.report().await.bookings.len(), 1);
}

#[tokio::test]
async fn twenty_requests_at_once_under_one_key_make_one_booking() {
    let place = Place::open("race").await;
    place.server.set_switches(|s| s.delay_before_commit_ms = 20);
    let body = table();
    let answers = futures_util::future::join_all((0..20).map(|_| place.book("k1", &body))).await;
    let statuses: Vec<u16> = answers.into_iter().map(|a| a.unwrap().0).collect();
    assert_eq!(statuses.iter().filter(|&&s| s == 201).count(), 1, "{statuses:?}");
    assert_eq!(place.server.report().await.effects["k1"], 1);
}

#[tokio::test]
async fn a_lost_response_leaves_a_booking_that_can_be_looked_up() {
    let place = Place::open("lost").await;
    assert_eq!(place.switch(json!({ "lose_response_once": true })).await, 200);
    assert!(place.book("k/1 +x", &table()).await.is_err());
    let (status, found) = place.get("/bookings/by-key/k%2F1%20+x").await;
    assert_eq!((status, found["reference"].as_str()), (200, Some("B-7")));
    assert_eq!(place.get("/bookings/by-key/other").await.0, 404);
    // The switch turned itself off, and the key still knows its booking.
    let (status, again) = place.book("k/1 +x", &table()).await.unwrap();
    assert_eq!((status, &again), (200, &found));
}

#[tokio::test]
async fn an_error_or_a_refusal_makes_nothing() {
    let place = Place::open("error").await;
    place.switch(json!({ "error_once": true })).await;
    assert_eq!(place.book("k1", &table()).await.unwrap().0, 500);
    place.switch(json!({ "refuse": true })).await;
    assert_eq!(place.book("k1", &table()).await.unwrap().0, 422);
    assert!(place.server.report().await.bookings.is_empty());
    place.switch(json!({ "refuse": false })).await;
    assert_eq!(place.book("k1", &table()).await.unwrap().0, 201);
}

#[tokio::test]
async fn a_slow_answer_comes_after_the_booking_is_made() {
    let place = Place::open("slow").await;
    place.server.set_switches(|s| s.delay_after_commit_ms = 400);
    let body = table();
    let slow = place.book("k1", &body);
    tokio::pin!(slow);
    // The delay under test is real: the caller gives up long before the answer, and the booking is there.
    assert!(tokio::time::timeout(std::time::Duration::from_millis(200), &mut slow).await.is_err());
    assert_eq!(place.get("/bookings/by-key/k1").await.0, 200);
    assert_eq!(slow.await.unwrap().0, 201);
}

#[tokio::test]
async fn bookings_outlive_the_process_and_a_torn_line_does_not() {
    let place = Place::open("restart").await;
    let (_, made) = place.book("k1", &table()).await.unwrap();
    place.server.stop();
    {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().append(true).open(&place.file).unwrap();
        file.write_all(b"{\"reference\":\"B-8\",\"key\":\"k2\",\"det").unwrap();
    }
    let again = Place::reopen(place.file.clone()).await;
    assert_eq!(again.book("k1", &table()).await.unwrap(), (200, made));
    let (status, second) = again.book("k2", &table()).await.unwrap();
    assert_eq!((status, second["reference"].as_str()), (201, Some("B-8")));
}

#[tokio::test]
async fn the_answer_comes_twice_on_the_wire_when_switched() {
    let place = Place::open("twice").await;
    place.switch(json!({ "duplicate_answer": true })).await;
    let mut socket = tokio::net::TcpStream::connect(place.server.addr).await.unwrap();
    let request =
        "POST /bookings HTTP/1.1\r\nhost: x\r\nidempotency-key: k1\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    assert_eq!(text.matches("HTTP/1.1 201 Created").count(), 2, "{text}");
    assert_eq!(place.server.report().await.effects["k1"], 1);
}

#[tokio::test]
async fn a_backend_that_ignores_keys_shows_the_double_effect() {
    let place = Place::open("ignore").await;
    place.switch(json!({ "ignore_keys": true })).await;
    place.book("k1", &table()).await.unwrap();
    place.book("k1", &table()).await.unwrap();
    assert_eq!(place.server.report().await.effects["k1"], 2);
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_reason() {
    let place = Place::open("bad").await;
    assert_eq!(place.book("k1", &json!([1])).await.unwrap().0, 400);
    assert_eq!(place.book(&"k".repeat(256), &table()).await.unwrap().0, 400);
    assert_eq!(place.book("k1", &json!({ "note": "x".repeat(70_000) })).await.unwrap().0, 413);
    assert_eq!(place.switch(json!({ "refuze": true })).await, 400);
    assert_eq!(place.switch(json!({ "refuse": "yes" })).await, 400);
    assert_eq!(place.get("/nowhere").await.0, 404);
    assert!(place.server.report().await.bookings.is_empty());
}
