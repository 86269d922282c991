//! A small load run over the bare bridge: the numbers must be those of the calls made. A second of audio takes a second.

#[path = "../examples/bare_bridge.rs"]
mod bare_bridge;
mod world;

use sim::load::{self, LoadError, LoadPlan, Target};
use sim::load_model::{self, LoadModelConfig};
use world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_the_bare_bridge_are_counted_and_their_barge_ins_answered() {
    let model = load_model::start(LoadModelConfig::default()).await.unwrap();
    let url = format!("{}/realtime?model=load", model.base_url());
    let server = serve(vec![document(STREAM)], move |socket| {
        let url = url.clone();
        async move {
            let _ = bare_bridge::bridge(socket, &url, "key").await;
        }
    })
    .await;
    let target =
        Target::Webhook { voice_url: VOICE_URL.into(), auth_token: TOKEN.into(), connect_addr: Some(server.addr) };
    let mut plan = LoadPlan::new(target, 6, 3);
    plan.pid = Some(std::process::id());
    plan.warm_up_seconds = 1;
    (plan.speak_every_ms, plan.speech_ms) = (2_600, 400);
    let report = load::run(plan).await.unwrap();
    let table = report.to_string();
    assert_eq!(
        (report.connected, report.failed_connects, report.lost_streams, report.odd_messages),
        (6, 0, 0, 0),
        "{table}"
    );
    // 50 frames a second each way; a machine under load may lag, but nothing may be lost or doubled.
    let expected = 6.0 * 50.0 * report.seconds;
    assert!((report.sent_frames as f64 / expected - 1.0).abs() < 0.15, "{table}");
    assert!(
        report.received_frames as f64 > expected * 0.4 && (report.received_frames as f64) < expected * 1.15,
        "{table}"
    );
    assert!(report.barge_in.count >= 3 && report.unanswered_barge_ins == 0, "{table}");
    assert_eq!(report.confirming_frame, 1, "the model starts a turn at the first loud frame\n{table}");
    assert!(report.barge_in.p50_ms < 100.0 && report.barge_in.p50_ms > 0.0, "{table}");
    assert!(report.cpu_ms_per_call_second.is_some_and(|ms| ms > 0.0), "{table}");
    assert!(table.contains("barge-in to clear"));
    assert_eq!(serde_json::to_value(&report).unwrap()["connected"], 6);
}

#[tokio::test]
async fn a_plan_that_measures_nothing_or_reaches_nobody_is_refused() {
    let stream = || Target::Stream { url: "ws://127.0.0.1:1/".into() };
    assert!(matches!(load::run(LoadPlan::new(stream(), 0, 1)).await, Err(LoadError::EmptyPlan)));
    let mut plan = LoadPlan::new(stream(), 1, 1);
    plan.speech_ms = plan.speak_every_ms;
    assert!(matches!(load::run(plan).await, Err(LoadError::NoSilence { .. })));
    assert!(matches!(load::run(LoadPlan::new(stream(), 2, 1)).await, Err(LoadError::NoCall(_))));
    let mut plan = LoadPlan::new(stream(), 1, 1);
    plan.pid = Some(u32::MAX);
    assert!(matches!(load::run(plan).await, Err(LoadError::Process(_))));
}
