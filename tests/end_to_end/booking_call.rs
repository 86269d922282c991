//! The main job: a table is asked for, acknowledged, talked over, booked once, and the completion is heard once.

use crate::house::{House, each};
use crate::scripts::MODEL;
use sim::booking::Switches;

const CALLER: &str = r#"
[[steps]]
wait_for_agent = { quiet_ms = 500 }
[[steps]]
say = { file = "builtin:caller_request" }
[[steps]]
wait_for_agent = { heard_ms = 1200 }
[[steps]]
say = { file = "builtin:caller_talk_over" }
[[steps]]
wait_for_agent = { quiet_ms = 3000 }
[[steps]]
say = { file = "builtin:caller_thanks" }
[[steps]]
wait = { ms = 500 }
[[steps]]
hang_up = {}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_booking_is_acknowledged_talked_over_made_once_and_heard_once() {
    let switches = Switches { delay_before_commit_ms: 4_500, ..Switches::default() };
    let house = House::open("booking", MODEL, switches).await;
    let result = house.call(CALLER).await;
    assert_eq!(result.timed_out_steps, [0usize; 0], "every wait of the caller came true");

    let effects = house.booking.report().await;
    assert_eq!(effects.bookings.len(), 1, "one booking at the backend");

    assert_eq!(result.clears.len(), 1, "the acknowledgement was talked over once");
    let clear = &result.clears[0];
    assert!(clear.caller_spoke_ms.is_some_and(|ms| ms < 600), "{clear:?}");

    let history = house.history(&result.call_sid).await;
    let session = &history["sessions"][0];
    let operations: Vec<_> = each(&session["operations"]).collect();
    assert_eq!(operations.len(), 1);
    assert_eq!(operations[0]["operation"]["status"], "committed");
    assert_eq!(house.delivery_states(&result.call_sid).await, ["heard"]);

    let said: Vec<_> =
        house.model.record().sessions[0].responses.iter().flat_map(|response| response.texts.clone()).collect();
    let confirmations = said.iter().filter(|text| text.contains("is booked")).count();
    assert_eq!(confirmations, 1, "said once: {said:?}");
    house
        .close_after(|house| {
            let recordings = replay::find_recordings(&house.recordings()).unwrap();
            assert_eq!(recordings.len(), 1, "one stream, one recording");
            let report = replay::replay_dir(&recordings[0]).unwrap();
            assert_eq!(report.drift, None);
        })
        .await;
}
