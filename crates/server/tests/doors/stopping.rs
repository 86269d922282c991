//! Binding, and stopping without losing a call.

use crate::house::*;
use server::settings::ServerSettings;
use server::{Server, ServerError, Stopped, Wiring};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_stopping_server_lets_its_calls_finish_and_takes_no_new_one() {
    let mut house = House::open().await;
    let mut phone = house.call("CA1", "MZ1").await;
    let mut waiting = house.upgrade().await;
    house.tell_to_stop();
    assert_eq!(waiting.close_code().await, 1013, "a socket that waits for its start is sent away");
    assert!(house.ring("CA2").await.body.contains("<Reject"));
    assert_eq!(house.try_upgrade(Some(&signature_of(SECRET, STREAM, &[]))).await.err(), Some(503));
    assert!(house.get("/readyz", &[]).await.body.contains("draining"), "the drain can be watched");
    house.release.cancel();
    assert_eq!(phone.close_code().await, 1000);
    let at = house.at;
    assert_eq!(house.stopped().await, Stopped { calls_closed: 0 });
    assert!(TcpStream::connect(at).await.is_err(), "the doors are closed");
}

#[tokio::test]
async fn a_call_that_outlasts_the_grace_is_closed() {
    let mut house = House::with_limits(|limits| limits.drain_grace = Duration::from_millis(20)).await;
    let mut phone = house.call("CA1", "MZ1").await;
    house.tell_to_stop();
    assert_eq!(phone.close_code().await, 1000);
    assert_eq!(house.stopped().await, Stopped { calls_closed: 1 });
}

#[tokio::test]
async fn a_call_that_does_not_obey_is_ended_with_its_task() {
    let mut house = House::open_with(Habit::Stubborn, |settings| {
        settings.limits.drain_grace = Duration::from_millis(20);
        settings.limits.close_cap = Duration::from_millis(20);
    })
    .await;
    let mut phone = house.call("CA1", "MZ1").await;
    house.tell_to_stop();
    assert_eq!(phone.close_code().await, 1006);
    assert_eq!(house.stopped().await, Stopped { calls_closed: 1 });
}

#[tokio::test]
async fn an_open_event_stream_does_not_hold_the_server() {
    let house = House::open().await;
    let mut socket = TcpStream::connect(house.at).await.unwrap();
    let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    soon(socket.read_exact(&mut head)).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(house.stopped().await, Stopped { calls_closed: 0 });
    let mut rest = Vec::new();
    assert!(soon(socket.read_to_end(&mut rest)).await.is_ok(), "it was ended, not cut");
}

#[tokio::test]
async fn a_server_that_is_dropped_ends_its_calls() {
    let mut house = House::open().await;
    let mut phone = house.call("CA1", "MZ1").await;
    house.drop_server();
    assert_eq!(phone.close_code().await, 1000);
}

async fn bind(change: impl FnOnce(&mut ServerSettings)) -> Result<Server, ServerError> {
    let mut settings = settings();
    change(&mut settings);
    let starter = |stream: server::calls::AcceptedStream| async move {
        drop(stream);
        server::calls::CallReport { end: server::calls::CallEnd::Stopped }
    };
    let wiring = Wiring {
        starter: Arc::new(starter),
        records: Arc::new(FakeRecords::default()),
        model: Default::default(),
        events: Default::default(),
    };
    Server::bind(settings, wiring).await
}

#[tokio::test]
async fn a_server_that_could_only_refuse_does_not_start() {
    let no_secret = bind(|settings| settings.twilio.auth_tokens.clear()).await;
    assert!(matches!(no_secret, Err(ServerError::NoCarrierSecret)));
    let no_address = bind(|settings| {
        settings.bind = "0.0.0.0:0".parse().unwrap();
        settings.public_url = None;
    })
    .await;
    assert!(matches!(no_address, Err(ServerError::NoPublicUrl(_))));
    let plain = bind(|settings| settings.public_url = Some("http://voice.example.com".parse().unwrap())).await;
    assert!(matches!(plain, Err(ServerError::PublicUrl { .. })));
    let taken = bind(|_| {}).await.unwrap();
    let again = bind(|settings| settings.bind = taken.local_addr()).await;
    assert!(matches!(again, Err(ServerError::Bind { .. })));
}

#[tokio::test]
async fn a_loopback_server_without_a_public_address_is_its_own_address() {
    let house = House::open_with(Habit::Holds, |settings| settings.public_url = None).await;
    let url = format!("http://{}/twilio/voice", house.at);
    let fields = call_fields("CA1");
    let signature = signature_of(SECRET, &url, &fields);
    let headers = [("x-twilio-signature", signature.as_str()), FORM];
    let answer = request(house.at, "POST", "/twilio/voice", &headers, &form(&fields)).await;
    assert!(answer.body.contains(&format!(r#"<Stream url="ws://{}/twilio/stream""#, house.at)), "{}", answer.body);
}
