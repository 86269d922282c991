//! What a caller and an operator notice when the server cannot keep its promises.

use super::verbs::{Scratch, serve_with};
use super::{answerback, text};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// Status and body.
fn readyz(address: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn readyz_until(address: &str, status: u16) -> String {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let (now, body) = readyz(address);
        if now == status {
            return body;
        }
        assert!(Instant::now() < patience, "{now}: {body}");
        // A good answer of the store holds for a quarter of a second, and another process tells nobody when it changes.
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a caller with nothing to say sees and hears.
fn call(address: &str, scratch: &Scratch) -> String {
    let question = scratch.write("question.ulaw", [0xff; 800]);
    let output = answerback()
        .args(["call", "--url", "https://voice.example.com/twilio/voice", "--connect", address, "--auth-token"])
        .args(["the token", "--admin-token", "an admin", "--max-seconds", "60", "--simulate"])
        .arg(&question)
        .output()
        .unwrap();
    text(&output)
}

/// When the carrier said it, in seconds since the call was dialled.
fn apology_at(told: &str) -> f64 {
    let line = told.lines().find(|line| line.contains("the carrier says: We are sorry"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_else(|| panic!("no apology in\n{told}"))
}

#[test]
fn a_caller_whose_model_does_not_answer_is_told_so_within_seconds() {
    // Refused at once.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Accepted by the machine and answered by no one.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for (name, address) in [("refused", nobody), ("silent", silent.local_addr().unwrap())] {
        let scratch = Scratch::new(name);
        let server = serve_with(&mut answerback(), &scratch, &format!("ws://{address}/v1"));
        let server_at = server.line.trim().strip_prefix("ready at http://").unwrap();
        assert_eq!(readyz(server_at).0, 200);
        let told = call(server_at, &scratch);
        let at = apology_at(&told);
        assert!(at < 8.0, "{name}: the caller waited {at} s\n{told}");
        let (status, why) = readyz(server_at);
        assert!(status == 503 && why.contains("no model session could be opened for one call"), "{name}: {why}");
        let session = told.lines().find(|line| line.starts_with("session ")).unwrap();
        assert!(session.ends_with(": ended"), "{name}: {told}");
    }
}

/// A limit on the size of files refuses writes to a running process as a full disk does, and can be lifted again. Its signal
/// must not end the server.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_takes_nothing_is_told_by_readyz_and_to_the_caller() {
    let scratch = Scratch::new("full");
    let server = serve_with(&mut answerback(), &scratch, "ws://127.0.0.1:9/v1");
    let server_at = server.line.trim().strip_prefix("ready at http://").unwrap();
    let limit = |limit: &str| {
        let pid = server.child.id().to_string();
        assert!(Command::new("prlimit").args(["--pid", &pid, limit]).status().unwrap().success());
    };
    assert_eq!(readyz_until(server_at, 200).matches("store").count(), 0);
    limit("--fsize=1:unlimited");
    let why = readyz_until(server_at, 503);
    assert!(why.contains("the store is unavailable"), "{why}");
    let told = call(server_at, &scratch);
    assert!(apology_at(&told) < 3.0 && !told.contains("media stream"), "{told}");
    limit("--fsize=unlimited");
    readyz_until(server_at, 200);
}
