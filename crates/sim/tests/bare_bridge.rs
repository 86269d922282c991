//! The whole loop over real sockets: caller, bare bridge, model. What the caller hears is what the model's voice said.

#[path = "../examples/bare_bridge.rs"]
mod bare_bridge;
mod world;

use sim::model::{self, LoadedScript, ModelConfig, Pace};
use sim::phone::{CallEnd, PhoneCall};
use std::path::Path;
use world::*;

const MODEL: &str = r#"
transcripts = ["a table for two"]
[[rules]]
after = "nothing"
say = { file = "builtin:agent_acknowledge", text = "One moment please, I am sending that." }
[[rules]]
after = "user"
say = { file = "builtin:agent_window", text = "I will note the window seat wish." }
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_talks_over_the_model_stops_it_and_is_answered() {
    let mut config = ModelConfig::new(LoadedScript::parse(MODEL, Path::new(".")).unwrap());
    config.pace = Pace { chunk_ms: 200, speed: 8.0 };
    config.wire_log = std::env::var_os("SIM_MODEL_WIRE_LOG").map(Into::into);
    let model = model::start(config).await.unwrap();
    let url = format!("{}/realtime?model=gpt-realtime-2.1", model.base_url());
    let server = serve(vec![document(STREAM)], move |socket| {
        let url = url.clone();
        async move {
            let _ = bare_bridge::bridge(socket, &url, "key").await;
        }
    })
    .await;
    let steps = r#"
        [[steps]]
        wait_for_agent = { heard_ms = 600 }
        [[steps]]
        say = { file = "builtin:caller_hello_again" }
        [[steps]]
        wait_for_agent = { quiet_ms = 500 }
    "#;
    let result = PhoneCall::dial(server.config(), &script(steps)).await.unwrap();
    assert_eq!(result.end, CallEnd::CallerHungUp);
    assert_eq!(result.timed_out_steps, [] as [usize; 0], "{:#?}", result.timeline);
    assert_eq!(result.violations, []);
    assert!(!result.clears.is_empty());
    assert!(result.clears[0].dropped_ms > 1_000, "{:?}", result.clears);
    // Energy confirms speech 60 ms after its onset, and the recording starts with 150 ms of room.
    assert!(result.clears[0].caller_spoke_ms.is_some_and(|ms| ms < 800), "{:?}", result.clears);
    let heard: Vec<u8> = result.heard.iter().flat_map(|s| s.mulaw.clone()).collect();
    let (first, second) =
        (sim::voices::builtin("agent_acknowledge").unwrap(), sim::voices::builtin("agent_window").unwrap());
    assert!(heard.len() > second.len() + 4_000 && heard.len() < first.len() + second.len());
    assert!(heard[..4_000] == first[..4_000], "the first words came as they were recorded");
    assert!(heard[heard.len() - second.len()..] == *second, "the answer was heard whole");
    let record = model.record();
    assert_eq!(record.sessions[0].turns[0].transcript, "a table for two");
    assert_eq!(record.sessions[0].responses.len(), 2);
}
