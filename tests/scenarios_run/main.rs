//! Every file of `tests/scenarios`, in virtual time and over real sockets.

use scenario::file::{Expect, Scenario, ScenarioProvider};
use scenario::from_call::{FromCallError, Target, from_call};
use scenario::judge::judge;
use scenario::live::Launch;
use scenario::run::{Outcome, files, run_live, run_virtual};
use server::config::Config;
use server::serve::Service;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vocab::delivery::DeliveryState;
use vocab::effect::OperationStatus;

/// Names the config folder of a server child.
const CHILD_CONFIG: &str = "ANSWERBACK_TEST_CHILD_CONFIG";
/// They wait most of the time; each is a server process, a phone and a model.
const AT_ONCE: usize = 10;

fn scenarios() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let named = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().contains(&only);
    let found: Vec<_> = files(&folder).unwrap().into_iter().filter(named).collect();
    assert!(!found.is_empty(), "no scenario has `{only}` in its name");
    found
}

fn all_passed(outcomes: &[Outcome]) {
    println!("{}", scenario::report::table(outcomes));
    let broken: Vec<_> = outcomes.iter().filter(|outcome| !outcome.passed()).cloned().collect();
    assert!(broken.is_empty(), "{}\n{}", scenario::report::details(&broken), scenario::report::table(&broken));
}

#[test]
fn every_scenario_comes_out_right_in_virtual_time() {
    all_passed(&run_virtual(&scenarios()));
}

/// An expectation that cannot break guards nothing: each is bent, one at a time, and held against what came.
#[test]
fn no_scenario_expects_what_could_not_be_otherwise() {
    for path in scenarios() {
        let scenario = Scenario::read(&path).unwrap();
        let (record, unknown_ms) = scenario::virtual_run::run(&scenario, path.parent().unwrap()).unwrap();
        let mut bent: Vec<(String, Scenario)> = Vec::new();
        let mut bend = |what: &str, change: &dyn Fn(&mut Expect)| {
            let mut wrong = scenario.clone();
            change(&mut wrong.expect);
            bent.push((what.to_owned(), wrong));
        };
        let expect = &scenario.expect;
        if expect.operations.is_some() {
            bend("operations", &|e| e.operations.as_mut().unwrap().push(OperationStatus::Unknown));
        }
        if expect.deliveries.is_some() {
            bend("deliveries", &|e| e.deliveries.as_mut().unwrap().push(DeliveryState::Expired));
        }
        for (what, pick) in [
            ("effects", (|e| &mut e.effects) as fn(&mut Expect) -> &mut Option<u32>),
            ("requests", |e| &mut e.requests),
            ("clears", |e| &mut e.clears),
        ] {
            if pick(&mut scenario.clone().expect).is_some() {
                bend(what, &|e| *pick(e).as_mut().unwrap() += 1);
            }
        }
        if expect.order.len() > 1 {
            bend("order", &|e| e.order.reverse());
        }
        for n in 0..expect.heard.len() {
            bend("heard", &|e| e.heard[n].times += 1);
        }
        for pattern in expect.times.keys() {
            bend("times", &|e| *e.times.get_mut(pattern).unwrap() += 1);
        }
        assert!(bent.len() >= 3, "{}: it expects next to nothing", path.display());
        for (what, wrong) in bent {
            assert!(!judge(&wrong, &record, unknown_ms).is_empty(), "{}: {what} cannot break", path.display());
        }
    }
}

#[test]
fn every_scenario_comes_out_right_over_real_sockets() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let launch = Launch(Arc::new(|config| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "server_child", "--nocapture"]).env(CHILD_CONFIG, config);
        command
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let kept = Kept(std::env::temp_dir().join(format!("answerback-kept-{}", std::process::id())));
    all_passed(&runtime.block_on(run_live(&scenarios(), &launch, AT_ONCE, Some(&kept.0))));
    every_recording_replays_and_nine_in_ten_make_a_scenario_that_comes_out_the_same(&kept.0);
}

/// A folder that is removed at the end.
struct Kept(PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Interruptions, lost answers, lost model sessions, killed servers, second calls: whatever the scenarios have.
fn every_recording_replays_and_nine_in_ten_make_a_scenario_that_comes_out_the_same(kept: &std::path::Path) {
    let schema = jsonschema::validator_for(&scenario::schema::schema()).unwrap();
    let mut written = Vec::new();
    for path in scenarios() {
        let folder = kept.join(path.file_stem().unwrap());
        if !folder.exists() {
            // Not for this runner.
            continue;
        }
        for recording in replay::find_recordings(&folder).unwrap() {
            let report = replay::replay_dir(&recording).unwrap();
            assert!(report.drift.is_none() && report.steps > 0, "{}: {:?}", recording.display(), report.drift);
        }
        let target = Target { folder: &folder, config: None };
        let speaks_by_itself = Scenario::read(&path).unwrap().provider == Some(ScenarioProvider::GptLive);
        let made = from_call(&folder, &target).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if speaks_by_itself {
            // Such a recording does not hold what made the model speak, and nothing is written that pretends it does.
            assert!(made.written.is_empty(), "{}: a scenario came of it", path.display());
            let told = |(_, error): &(_, FromCallError)| matches!(error, FromCallError::SpeaksByItself { .. });
            assert!(
                !made.skipped.is_empty() && made.skipped.iter().all(told),
                "{}: {:?}",
                path.display(),
                made.skipped
            );
            continue;
        }
        assert!(made.skipped.is_empty(), "{}: {:?}", path.display(), made.skipped);
        assert_eq!(made.written.len(), 1, "{}: the streams and calls of one caller are one story", path.display());
        written.extend(made.written);
    }
    for file in &written {
        let value: toml::Table = std::fs::read_to_string(file).unwrap().parse().unwrap();
        let value = serde_json::to_value(value).unwrap();
        let faults: Vec<String> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(faults.is_empty(), "{}: {faults:?}", file.display());
    }
    // Where two things came within some milliseconds of each other, the call that is played again may take them the other way
    // round, and is right as well; a look-up that came to nothing for a while is not in the recording at all.
    let outcomes = run_virtual(&written);
    println!("{}", scenario::report::table(&outcomes));
    let others: Vec<_> = outcomes.iter().filter(|outcome| !outcome.passed()).cloned().collect();
    assert!(others.len() * 10 <= outcomes.len(), "{}", scenario::report::details(&others));
}

/// No test of its own: when [`CHILD_CONFIG`] is set, this is the server that a scenario started and may kill.
#[test]
fn server_child() {
    let Some(dir) = std::env::var_os(CHILD_CONFIG) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config::load(dir.as_ref(), std::env::vars()).unwrap_or_else(|errors| panic!("{errors}"));
        Service::open(config).await.unwrap().run(CancellationToken::new()).await;
    });
}
