//! The demo as a user starts it, judged by its own JSON.

use super::answerback;
use super::verbs::Scratch;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn demo(options: &[&str]) -> (bool, Value) {
    let output = answerback().args(["demo", "--json"]).args(options).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let document = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    });
    (output.status.success(), document)
}

fn broken(document: &Value) -> Vec<&Value> {
    document["promises"].as_array().unwrap().iter().filter(|promise| promise["kept"] != true).collect()
}

#[test]
fn the_demo_keeps_every_promise() {
    let (succeeded, document) = demo(&[]);
    assert!(broken(&document).is_empty(), "{:#?}\n{:#?}", broken(&document), document["timeline"]);
    assert!(succeeded);
    assert_eq!(document["bookings"]["bookings"].as_array().unwrap().len(), 1);
    assert_eq!(document["history"][0]["deliveries"][0]["state"], "heard");
    assert_eq!(document["history"][0]["session"]["state"], "ended", "an ordinary hang-up ends the session");
    // The acknowledgement was cut, everything else was heard to its end.
    let heard = document["calls"][0]["heard"].as_array().unwrap();
    let cut: Vec<&str> =
        heard.iter().filter(|h| h["unheard_words"] != "").filter_map(|h| h["words"].as_str()).collect();
    assert_eq!((heard.len(), cut.len()), (4, 1), "{heard:#?}");
    assert!(cut[0].starts_with("One moment please"), "{cut:?}");
    // Nothing is left behind when all went well.
    assert_eq!(document["folder"], Value::Null);
}

#[test]
fn a_server_killed_after_the_commit_still_confirms_once_on_the_next_call() {
    let (succeeded, document) = demo(&["--kill"]);
    assert!(broken(&document).is_empty(), "{:#?}\n{:#?}", broken(&document), document["timeline"]);
    assert!(succeeded);
    assert_eq!(document["bookings"]["bookings"].as_array().unwrap().len(), 1);
    let (booked, killed) = (document["booked_ms"].as_u64().unwrap(), document["killed_ms"].as_u64().unwrap());
    assert!(booked <= killed, "booked at {booked} ms, killed at {killed} ms");
    let calls = document["calls"].as_array().unwrap();
    assert_eq!((&calls[0]["server_killed"], &calls[1]["server_killed"]), (&Value::Bool(true), &Value::Bool(false)));
    let confirmed = |call: &Value| call["heard"].to_string().matches("is booked").count();
    assert_eq!((confirmed(&calls[0]), confirmed(&calls[1])), (0, 1));
}

#[test]
fn an_interrupted_demo_leaves_no_process_and_no_file() {
    let scratch = Scratch::new("interrupted");
    let mut child = answerback()
        .args(["demo", "--plain"])
        .env("TMPDIR", &scratch.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let address = BufReader::new(child.stdout.as_mut().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("ready at http://")?.split(' ').next().map(str::to_owned))
        .expect("the server's address");
    assert!(std::net::TcpStream::connect(&address).is_ok());
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
    // As Ctrl-C at a terminal, but for this one process.
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
    // The server was killed, not asked: the kernel closes its socket a moment after the demo has ended.
    let patience = Instant::now() + Duration::from_secs(2);
    while std::net::TcpStream::connect(&address).is_ok() {
        assert!(Instant::now() < patience, "the server still listens at {address}");
    }
}
