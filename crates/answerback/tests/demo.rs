//! The demo as a user starts it, judged by its own JSON. A demo is a telephone call and runs in real time, about half a
//! minute each; the two run side by side.

use serde_json::Value;
use std::process::Command;

fn demo(options: &[&str]) -> (bool, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_answerback"))
        .args(["demo", "--json"])
        .args(options)
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
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
