//! Webhooks: who may speak, and what is answered.

use crate::house::*;
use futures_util::{FutureExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vocab::CallSid;

#[tokio::test]
async fn an_unsigned_or_wrongly_signed_webhook_is_forbidden() {
    let house = House::open().await;
    for path in ["/twilio/voice", "/twilio/resume?n=1", "/twilio/status"] {
        let fields = call_fields("CA1");
        assert_eq!(request(house.at, "POST", path, &[FORM], &form(&fields)).await.status, 403, "{path}");
        assert_eq!(house.webhook_signed_by("wrong", path, &fields).await.status, 403, "{path}");
        // A true signature does not cover a changed field, nor another address.
        let signature = signature_of(SECRET, &format!("{PUBLIC}{path}"), &fields);
        let other = form(&call_fields("CA2"));
        let headers = [("x-twilio-signature", signature.as_str()), FORM];
        assert_eq!(request(house.at, "POST", path, &headers, &other).await.status, 403, "{path}");
        let signature = signature_of(SECRET, &format!("https://{}{path}", house.at), &fields);
        let headers = [("x-twilio-signature", signature.as_str()), FORM, ("x-forwarded-proto", "https")];
        assert_eq!(request(house.at, "POST", path, &headers, &form(&fields)).await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn a_signed_call_is_answered_with_a_stream_and_a_way_back() {
    let house = House::open().await;
    for secret in [SECRET, OLD_SECRET] {
        let answer = house.webhook_signed_by(secret, "/twilio/voice", &call_fields("CA1")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("content-type: text/xml"), "{}", answer.head);
        assert!(answer.body.contains(&format!(r#"<Connect><Stream url="{STREAM}""#)), "{}", answer.body);
        assert!(answer.body.contains(r#"statusCallback="https://voice.example.com/twilio/status""#), "{}", answer.body);
        let way_back =
            r#"</Connect><Redirect method="POST">https://voice.example.com/twilio/resume?n=2</Redirect></Response>"#;
        let first = way_back.replace("n=2", "n=1");
        assert!(answer.body.ends_with(&first), "{}", answer.body);
        assert_eq!(parameter(&answer.body, "caller").as_deref(), Some(CALLER));
        assert_eq!(parameter(&answer.body, "token").map(|token| token.len()), Some(32));
    }
}

#[tokio::test]
async fn the_token_opens_the_call_with_the_caller_of_the_signed_webhook() {
    let mut house = House::open().await;
    let token = house.token_for("CA1").await;
    let mut phone = house.upgrade().await;
    phone.say(CONNECTED).await;
    phone.say(&start("CA1", "MZ1", ACCOUNT, Some(&token))).await;
    let seen = soon(house.seen.recv()).await.unwrap();
    let expected = Seen {
        call_sid: "CA1".into(),
        stream_sid: "MZ1".into(),
        caller: CALLER.into(),
        caller_verified: true,
        agent: "host".into(),
    };
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_withheld_number_makes_an_anonymous_caller() {
    let mut house = House::open().await;
    let fields = [("CallSid", "CA1"), ("AccountSid", ACCOUNT), ("From", "+266696687")];
    let token = parameter(&house.webhook("/twilio/voice", &fields).await.body, "token").unwrap();
    let mut phone = house.upgrade().await;
    phone.say(&start("CA1", "MZ1", ACCOUNT, Some(&token))).await;
    let seen = soon(house.seen.recv()).await.unwrap();
    assert_eq!((seen.caller.as_str(), seen.caller_verified), ("anonymous:CA1", false));
}

#[tokio::test]
async fn a_webhook_that_is_no_call_of_ours_is_refused() {
    let house = House::open().await;
    let other_account = [("CallSid", "CA1"), ("AccountSid", "ACother"), ("From", CALLER)];
    assert_eq!(house.webhook("/twilio/voice", &other_account).await.status, 403);
    assert_eq!(house.webhook("/twilio/voice", &[("AccountSid", ACCOUNT)]).await.status, 400);
    assert_eq!(house.webhook("/twilio/voice", &[("CallSid", "CA/../1"), ("AccountSid", ACCOUNT)]).await.status, 400);
    let json = [("content-type", "application/json")];
    assert_eq!(request(house.at, "POST", "/twilio/voice", &json, "{}").await.status, 415);
    assert_eq!(house.get("/twilio/voice", &[]).await.status, 405);
    let big = "a=".to_owned() + &"x".repeat(65 * 1024);
    assert_eq!(request(house.at, "POST", "/twilio/voice", &[FORM], &big).await.status, 413);
}

#[tokio::test]
async fn a_full_or_draining_server_answers_busy_before_the_call_costs_anything() {
    let mut house = House::with_limits(|limits| limits.max_calls = 1).await;
    // A promise counts as a call until its stream comes; the same call may ask again.
    house.token_for("CA1").await;
    assert!(house.ring("CA2").await.body.contains(r#"<Reject reason="busy"/>"#));
    let _phone = house.call("CA1", "MZ1").await;
    let refused = house.ring("CA2").await;
    assert_eq!(refused.status, 200);
    assert!(refused.body.contains(r#"<Reject reason="busy"/>"#), "{}", refused.body);
    house.drain.drain();
    assert!(house.ring("CA3").await.body.contains(r#"<Reject reason="busy"/>"#));
}

#[tokio::test]
async fn a_call_whose_stream_never_came_gives_its_place_back_when_the_carrier_ends_it() {
    let house = House::with_limits(|limits| limits.max_calls = 1).await;
    house.token_for("CA1").await;
    assert!(house.ring("CA2").await.body.contains("<Reject"));
    let over = [("CallSid", "CA1"), ("AccountSid", ACCOUNT), ("CallStatus", "completed")];
    assert_eq!(house.webhook("/twilio/status", &over).await.status, 204);
    assert!(house.ring("CA2").await.body.contains("<Stream"));
}

#[tokio::test]
async fn a_lost_stream_resumes_with_a_new_token_until_it_is_given_up() {
    let house = House::open().await;
    let mut path = "/twilio/resume?n=1".to_owned();
    let mut tokens = Vec::new();
    for attempt in 1..=5 {
        let answer = house.webhook(&path, &call_fields("CA1")).await;
        tokens.push(parameter(&answer.body, "token").unwrap());
        path = format!("/twilio/resume?n={}", attempt + 1);
        assert!(answer.body.contains(&format!("{PUBLIC}{path}</Redirect>")), "{}", answer.body);
    }
    tokens.dedup();
    assert_eq!(tokens.len(), 5, "each stream has its own token");
    let given_up = house.webhook(&path, &call_fields("CA1")).await.body;
    assert!(
        given_up.contains("<Say>") && given_up.contains("<Hangup/>") && !given_up.contains("<Stream"),
        "{given_up}"
    );
}

#[tokio::test]
async fn a_stream_that_held_starts_the_count_of_attempts_again() {
    let mut house = House::with_limits(|limits| limits.steady_stream = Duration::ZERO).await;
    let _phone = house.call("CA1", "MZ1").await;
    let answer = house.webhook("/twilio/resume?n=6", &call_fields("CA1")).await.body;
    assert!(answer.contains("resume?n=2</Redirect>"), "{answer}");
}

#[tokio::test]
async fn a_call_that_was_finished_on_purpose_is_hung_up_also_after_a_restart() {
    let house = House::open().await;
    house.records.finished.lock().unwrap().insert("CA1".into());
    let records = Arc::clone(&house.records);
    house.stopped().await;
    let restarted = House::open_on(records, Habit::Holds, |_| {}).await;
    let answer = restarted.webhook("/twilio/resume?n=1", &call_fields("CA1")).await.body;
    assert!(answer.contains("<Response><Hangup/></Response>"), "{answer}");
    let unfinished = restarted.webhook("/twilio/resume?n=1", &call_fields("CA2")).await.body;
    assert!(unfinished.contains("<Stream"), "{unfinished}");
}

#[tokio::test]
async fn a_call_that_ended_on_purpose_a_moment_ago_is_hung_up_without_the_store() {
    let mut house = House::open().await;
    let mut phone = house.call("CA1", "MZ1").await;
    house.release.cancel();
    assert_eq!(phone.close_code().await, 1000);
    drop(phone);
    *house.records.broken.lock().unwrap() = true;
    let ended =
        async { while !house.webhook("/twilio/resume?n=1", &call_fields("CA1")).await.body.contains("<Hangup/>") {} };
    soon(ended).await;
}

#[tokio::test]
async fn a_caller_is_kept_when_the_store_cannot_say_whether_the_call_is_finished() {
    let house = House::open().await;
    *house.records.broken.lock().unwrap() = true;
    let answer = house.webhook("/twilio/resume?n=1", &call_fields("CA1")).await.body;
    assert!(answer.contains("resume?n=2</Redirect>") && !answer.contains("<Hangup"), "{answer}");
}

#[tokio::test]
async fn a_store_that_takes_no_writes_takes_no_call_and_says_so() {
    let house = House::open().await;
    *house.records.broken.lock().unwrap() = true;
    let answer = house.ring("CA1").await;
    assert_eq!(answer.status, 200);
    let body = answer.body;
    assert!(body.contains("<Say>We are sorry") && body.contains("<Hangup/>") && !body.contains("<Stream"), "{body}");
    assert_eq!(house.get("/readyz", &[]).await.status, 503);
    *house.records.broken.lock().unwrap() = false;
    assert!(house.ring("CA1").await.body.contains("<Stream"), "a bad answer of the store is asked again");
    assert_eq!(house.get("/readyz", &[]).await.status, 200);
}

#[tokio::test]
async fn a_caller_whose_call_gets_no_model_is_told_and_not_connected_again() {
    let mut house = House::open_with(Habit::FindsNoModel, |_| {}).await;
    let mut phone = house.call("CA1", "MZ1").await;
    assert_eq!(phone.close_code().await, 1000);
    drop(phone);
    // What the call's driver does before it closes the socket.
    house.records.finished.lock().unwrap().insert("CA1".into());
    let answer = house.webhook("/twilio/resume?n=1", &call_fields("CA1")).await.body;
    assert!(answer.contains("<Say>We are sorry") && answer.contains("<Hangup/>"), "{answer}");
}

#[tokio::test]
async fn a_resume_that_counts_nothing_is_told_what_is_wrong() {
    let house = House::open().await;
    for odd in ["abc", "0", "-1", "", "1.5", "99999999999"] {
        let answer = house.webhook(&format!("/twilio/resume?n={odd}"), &call_fields("CA1")).await;
        assert_eq!(answer.status, 400, "{odd}");
        assert!(answer.body.contains(&format!("a whole number from 1, not `{odd}`")), "{}", answer.body);
    }
    assert!(
        house.webhook("/twilio/resume", &call_fields("CA1")).await.body.contains("<Stream"),
        "without n it is the first"
    );
}

#[tokio::test]
async fn a_webhook_that_comes_again_does_not_take_a_running_call_over() {
    let mut house = House::open().await;
    let mut phone = house.call("CA1", "MZ1").await;
    let again = house.ring("CA1").await.body;
    assert!(!again.contains("<Stream") && !again.contains("<Hangup") && !again.contains("<Reject"), "{again}");
    let mut other = house.upgrade().await;
    other.say(&start("CA1", "MZ2", ACCOUNT, parameter(&again, "token").as_deref())).await;
    assert_eq!(other.close_code().await, 1008, "no token was given out");
    assert!(house.seen.try_recv().is_err(), "the first stream is still the call's");

    // If the carrier follows the second document, the first stream is gone: the way back in it brings a new one.
    let (_, way_back) = again.split_once(PUBLIC).unwrap();
    let (way_back, _) = way_back.split_once("</Redirect>").unwrap();
    let resumed = house.webhook(way_back, &call_fields("CA1")).await.body;
    let mut next = house.upgrade().await;
    next.say(&start("CA1", "MZ3", ACCOUNT, parameter(&resumed, "token").as_deref())).await;
    assert_eq!(phone.close_code().await, 1000);
    assert_eq!(soon(house.seen.recv()).await.unwrap().stream_sid, "MZ3");
}

#[tokio::test]
async fn a_resume_at_a_draining_server_waits_and_asks_again() {
    let house = House::open().await;
    house.drain.drain();
    let answer = house.webhook("/twilio/resume?n=2", &call_fields("CA1")).await.body;
    assert!(
        answer.contains("<Pause") && answer.contains("resume?n=3</Redirect>") && !answer.contains("<Stream"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_status_callback_is_counted_once_however_often_it_comes() {
    let house = House::open().await;
    let mut events = house.events.subscribe();
    let fields = [
        ("CallSid", "CA1"),
        ("AccountSid", ACCOUNT),
        ("StreamSid", "MZ1"),
        ("StreamEvent", "stream-error"),
        ("StreamError", "31941"),
        ("Timestamp", "2026-11-29T12:00:00Z"),
    ];
    for _ in 0..3 {
        assert_eq!(house.webhook("/twilio/status", &fields).await.status, 204);
    }
    let metrics = house.get("/metrics", &[]).await.body;
    assert!(metrics.contains(r#"carrier_stream_errors_total{code="31941"} 1"#), "{metrics}");
    assert_eq!(events.next().await.unwrap().unwrap().call_sid, CallSid::new("CA1"));
    assert!(events.next().now_or_never().is_none());
}

#[tokio::test]
async fn a_completed_call_ends_its_stream_though_no_stop_came() {
    let mut house = House::open().await;
    let mut phone = house.call("CA1", "MZ1").await;
    let over = [("CallSid", "CA1"), ("AccountSid", ACCOUNT), ("CallStatus", "completed")];
    assert_eq!(house.webhook("/twilio/status", &over).await.status, 204);
    assert_eq!(phone.close_code().await, 1000);
    let on_record = async {
        while *house.records.ended.lock().unwrap() != ["CA1"] {
            tokio::task::yield_now().await;
        }
    };
    soon(on_record).await;
}

#[tokio::test]
async fn a_panic_in_one_request_is_answered_and_the_server_goes_on() {
    let house = House::open().await;
    assert_eq!(house.webhook("/twilio/resume?n=1", &call_fields("CAbad")).await.status, 500);
    assert_eq!(house.webhook("/twilio/resume?n=1", &call_fields("CA1")).await.status, 200);
}

#[tokio::test]
async fn a_request_that_does_not_come_whole_is_not_waited_for() {
    let house = House::with_limits(|limits| {
        limits.request_timeout = Duration::from_millis(50);
        limits.header_timeout = Duration::from_millis(50);
    })
    .await;
    let head = "POST /twilio/voice HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 100\r\n\
                content-type: application/x-www-form-urlencoded\r\n\r\nCallSid=";
    let answer = raw(&house, head).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    let half_a_head = raw(&house, "POST /twilio/voice HTTP/1.1\r\nhost:").await;
    assert!(!half_a_head.contains(" 200 "), "{half_a_head}");
}

/// Sends `bytes` and reads until the server closes.
async fn raw(house: &House, bytes: &str) -> String {
    let mut socket = TcpStream::connect(house.at).await.unwrap();
    socket.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = soon(socket.read_to_end(&mut answer)).await;
    String::from_utf8(answer).unwrap()
}
