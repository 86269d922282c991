//! The server is killed at every named point of the way from a tool call to a heard completion, and started again. The
//! carrier's TwiML tail brings the caller back. One effect at the backend, nothing lost, nothing announced twice as news.

use crate::house::{House, each};
use crate::scripts::MODEL;
use sim::booking::Switches;
use sim::phone::{CallScript, PhoneCall};

const CALLER: &str = r#"
[[steps]]
wait_for_agent = { quiet_ms = 300 }
[[steps]]
say = { file = "builtin:caller_request" }
[[steps]]
wait = { ms = 20000 }
[[steps]]
hang_up = {}
"#;

async fn killed_at(point: &str) {
    // Slow enough to be accepted first, so that the completion is a delivery of its own.
    let switches = Switches { delay_before_commit_ms: 1_200, ..Switches::default() };
    let mut house = House::open_to_crash(point, MODEL, switches, point).await;
    let mut phone = house.phone();
    phone.redirect_attempts = 20;
    phone.redirect_retry_ms = 500;
    let call = PhoneCall::start(phone, &CallScript::parse(CALLER).unwrap()).unwrap();
    house.crash_and_restart().await;
    let result = call.wait().await;

    let report = house.booking.report().await;
    assert_eq!(report.bookings.len(), 1, "{point}: one booking");
    assert!(result.streams.len() >= 2, "{point}: the caller came back: {:?}", result.end);

    let history = house.history(&result.call_sid).await;
    let operations: Vec<_> = each(&history["sessions"]).flat_map(|session| each(&session["operations"])).collect();
    assert_eq!(operations.len(), 1, "{point}");
    assert_eq!(operations[0]["operation"]["status"], "committed", "{point}");
    let states = house.delivery_states(&result.call_sid).await;
    assert_eq!(states, ["heard"], "{point}: {}", serde_json::to_string_pretty(&history).unwrap());

    let record = house.model.record();
    let said = record.sessions.iter().flat_map(|session| &session.responses).flat_map(|response| &response.texts);
    let news = said.filter(|text| text.contains("Your table for two at nine is booked")).count();
    assert!(news <= 1, "{point}: announced as news {news} times");
    house.close().await;
}

macro_rules! crash_points {
    ($($point:ident),* $(,)?) => {
        /// All at once: each spends its time waiting for the voice.
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn killed_at_any_point_there_is_one_booking_and_its_completion_is_heard() {
            let points = [$(tokio::spawn(killed_at(stringify!($point)))),*];
            for point in points {
                point.await.unwrap();
            }
        }
    };
}

crash_points![
    after_admit,
    before_sent,
    after_sent,
    after_effect,
    after_outcome,
    after_batch_drained,
    after_offered,
    after_heard,
];
