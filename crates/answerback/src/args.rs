//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use sim::model::Pace;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A server for realtime voice agents on the telephone, with durable operations.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true, disable_help_subcommand = true, max_term_width = 110)]
#[command(
    after_help = "Start with:\n  answerback demo            one call from end to end, with nothing to set up\n  \
                        answerback check           what is wrong with ./config, with file, line and key"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Take calls.
    #[command(after_help = "Example:\n  ANSWERBACK__SERVER__PUBLIC_URL=https://voice.example.com \\\n  \
                            ANSWERBACK__TWILIO__AUTH_TOKEN=… OPENAI_API_KEY=… answerback serve\n\n\
                            SIGTERM or Ctrl-C stops gracefully: no new call, running calls get `drain_grace_s`. \
                            Ctrl-C a second time ends at once.\nRUST_LOG chooses what is logged, such as \
                            RUST_LOG=info,call=debug; at debug and below, logs hold numbers and words of callers.")]
    Serve(ServeArgs),
    /// Play one call to its verdict: no key, no account, no database.
    #[command(
        after_help = "Examples:\n  answerback demo\n  answerback demo --kill      the server dies between the booking and \
                            its confirmation\n  answerback demo --json      one JSON document, for machines\n\n\
                            The exit code is 1 when a promise was broken."
    )]
    Demo(DemoArgs),
    /// Name file, line and key of every mistake in a config.
    #[command(
        after_help = "Example:\n  answerback check --config ./config\n\nThe exit code is 1 when there is a mistake."
    )]
    Check(ConfigArgs),
    /// Show the config in force: every key, its value and where it came from. Secrets only as set or unset.
    #[command(after_help = "Example:\n  ANSWERBACK__SERVER__MAX_CALLS=20 answerback print-config")]
    PrintConfig(ConfigArgs),
    /// Call a running server with a recording, over a simulated carrier.
    #[command(after_help = "Examples:\n  answerback call --simulate my-question.wav --record what-i-heard.wav\n  \
                            answerback call --simulate my-question.wav --url https://voice.example.com/twilio/voice \
                            --connect 127.0.0.1:8080")]
    Call(CallArgs),
    /// Make many calls at once against any Media Streams server, and measure it.
    #[command(after_help = "Examples:\n  answerback load --calls 300 --url http://127.0.0.1:8080/twilio/voice --pid \
                            $(pidof answerback)\n  answerback load --calls 300 --stream ws://127.0.0.1:9000/ --json\n\n\
                            A model that speaks all the time: answerback sim load-model")]
    Load(LoadArgs),
    /// Feed recorded calls to the core again: the same commands, or the first drift.
    #[command(after_help = "Examples:\n  answerback replay data/recordings\n  answerback replay --times 1000 \
                            tests/fixtures/recordings/v1/booking\n\nThe exit code is 1 when a call drifts.")]
    Replay(ReplayArgs),
    /// Run another voice detector over a recorded call, and show the turn decisions that move.
    #[command(after_help = "Example:\n  answerback rehear tests/fixtures/recordings/v1/booking --detector earshot")]
    Rehear(RehearArgs),
    /// Play recorded calls under another policy, and compare the measures.
    #[command(
        after_help = "Example:\n  answerback what-if --set gate.quiet_ms=400 --plot quiet.svg data/recordings\n\n\
                            docs/replay.md says what of this is exact and what is modelled."
    )]
    WhatIf(WhatIfArgs),
    /// Recorded calls: hand them on.
    #[command(subcommand)]
    Calls(CallsVerb),
    /// Rehearse calls: what must come out right, in files.
    #[command(subcommand)]
    Scenario(ScenarioVerb),
    /// Start one part of the simulated outside world by itself.
    #[command(subcommand)]
    Sim(SimPart),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Folder with answerback.toml, agents/ and tools/.
    #[arg(long, value_name = "DIR", default_value = "config")]
    pub config: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// How logs are written, to standard error.
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Stop, gracefully, when standard input is closed: whoever started us is gone or done with us.
    #[arg(long, hide = true)]
    pub while_stdin_open: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Recordings, or folders of them.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<PathBuf>,
    /// How often each is replayed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub times: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DetectorName {
    Cascade,
    Webrtc,
    Earshot,
}

#[derive(Debug, Args)]
pub(crate) struct RehearArgs {
    /// One recording.
    #[arg(value_name = "DIR")]
    pub recording: PathBuf,
    #[arg(long, value_enum, default_value = "earshot")]
    pub detector: DetectorName,
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfArgs {
    /// A recording, or a folder of them.
    #[arg(value_name = "PLACE")]
    pub place: PathBuf,
    /// A key of the policy and its other value, such as gate.quiet_ms=400. May be given again.
    #[arg(long = "set", value_name = "KEY=VALUE", required = true)]
    pub overrides: Vec<String>,
    /// Draw the comparison into this SVG file.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CallsVerb {
    /// Copy a recording without numbers, words, arguments and voices; it replays as before.
    #[command(after_help = "Example:\n  answerback calls export data/recordings/MZ1 /tmp/clean --voice tone")]
    Export(ExportArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportedVoice {
    Silence,
    /// A tone wherever somebody spoke.
    Tone,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// One recording.
    #[arg(value_name = "DIR")]
    pub from: PathBuf,
    /// A folder that is not there yet.
    #[arg(value_name = "NEW")]
    pub to: PathBuf,
    #[arg(long, value_enum, default_value = "silence")]
    pub voice: ExportedVoice,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Kill the server (SIGKILL) between the booking and its confirmation, start it again, and call again.
    #[arg(long)]
    pub kill: bool,
    /// Without colours and drawing characters. NO_COLOR does the same for colours.
    #[arg(long)]
    pub plain: bool,
    /// Print one JSON document at the end instead of the lanes.
    #[arg(long)]
    pub json: bool,
    /// Decides what is random on the simulated line.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Play in this folder and keep it: config, database, logs, bookings. Must be new or empty.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// The carrier swallows every mark: nothing proves what was heard.
    #[arg(long, conflicts_with = "kill")]
    pub drop_marks: bool,
    /// The booking is made, but the backend's answer is lost.
    #[arg(long, conflicts_with = "kill")]
    pub backend_timeout: bool,
    /// The backend writes every answer twice on its connection.
    #[arg(long)]
    pub answer_twice: bool,
}

/// Where a simulated call goes and who makes it.
#[derive(Debug, Args)]
pub(crate) struct LineArgs {
    /// The number's voice webhook, as the server knows it (its `public_url`): this is what is signed.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080/twilio/voice")]
    pub url: String,
    /// Where to connect in fact, in plain HTTP, whatever the URLs say.
    #[arg(long, value_name = "ADDR:PORT")]
    pub connect: Option<SocketAddr>,
    /// Signs the requests, as the server expects it.
    #[arg(long, value_name = "TOKEN", env = "ANSWERBACK__TWILIO__AUTH_TOKEN", hide_env_values = true)]
    pub auth_token: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// What the caller says: a WAV of any common kind, raw .ulaw, or a script (.toml). What cannot be converted is refused.
    #[arg(long, value_name = "FILE", required_unless_present = "script", conflicts_with = "script")]
    pub simulate: Option<PathBuf>,
    /// What the caller does, step by step.
    #[arg(long, value_name = "FILE.toml")]
    pub script: Option<PathBuf>,
    #[command(flatten)]
    pub line: LineArgs,
    /// Shows the server's side too: words, operations and deliveries.
    #[arg(long, value_name = "TOKEN", env = "ANSWERBACK__SERVER__ADMIN_TOKEN", hide_env_values = true)]
    pub admin_token: Option<String>,
    /// The caller's number.
    #[arg(long, value_name = "+1…", default_value = "+15005550006")]
    pub from: String,
    /// Write what the caller heard, on the time axis of the call.
    #[arg(long, value_name = "HEARD.wav")]
    pub record: Option<PathBuf>,
    /// Hang up after so long at the latest.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub max_seconds: u32,
    /// Print one JSON document at the end instead of the story.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Calls at the same time.
    #[arg(long, value_name = "N")]
    pub calls: usize,
    /// How long is measured, after the warm-up.
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub seconds: u64,
    /// Nothing counts before this is over.
    #[arg(long, value_name = "S", default_value_t = 3)]
    pub warm_up: u64,
    #[command(flatten)]
    pub line: LineArgs,
    /// Straight to a Media Streams socket, without webhook and signature.
    #[arg(long, value_name = "WS_URL", conflicts_with_all = ["connect", "auth_token"])]
    pub stream: Option<String>,
    /// Process whose CPU and memory are measured.
    #[arg(long)]
    pub pid: Option<u32>,
    /// Between one call's start and the next.
    #[arg(long, value_name = "MS", default_value_t = 5)]
    pub ramp_ms: u64,
    /// Each caller speaks this often.
    #[arg(long, value_name = "MS", default_value_t = 8_000)]
    pub speak_every_ms: u64,
    /// For so long.
    #[arg(long, value_name = "MS", default_value_t = 1_200)]
    pub speech_ms: u64,
    /// Print JSON instead of the table.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimPart {
    /// A realtime model service that follows a script.
    #[command(after_help = "Example:\n  answerback sim model --script my-model.toml --listen 127.0.0.1:9200")]
    Model {
        #[arg(long, default_value = "127.0.0.1:9200")]
        listen: SocketAddr,
        /// Its script; the demo's when absent.
        #[arg(long, value_name = "FILE.toml")]
        script: Option<PathBuf>,
        /// The key to ask for; any when absent.
        #[arg(long, env = "SIM_MODEL_API_KEY", hide_env_values = true)]
        api_key: Option<String>,
        /// Write every event of both directions here, a JSON line each.
        #[arg(long, value_name = "FILE")]
        wire_log: Option<PathBuf>,
        /// How fast it generates, in times real time; 0 sends a response all at once. The service bursts.
        #[arg(long, value_name = "TIMES", default_value_t = Pace::default().speed, value_parser = speed)]
        speed: f32,
    },
    /// A booking backend: the system of record. Its faults are set with `POST /switches`.
    #[command(after_help = "Example:\n  answerback sim booking --file bookings.jsonl --delay-before-commit-ms 3000")]
    Booking {
        #[arg(long, default_value = "127.0.0.1:9300")]
        listen: SocketAddr,
        /// Its own file, one booking a line.
        #[arg(long, value_name = "FILE", default_value = "bookings.jsonl")]
        file: PathBuf,
        #[arg(long, value_name = "MS", default_value_t = 0)]
        delay_before_commit_ms: u64,
        #[arg(long, value_name = "MS", default_value_t = 0)]
        delay_after_commit_ms: u64,
    },
    /// A telephone: the same as `answerback call`.
    Phone(CallArgs),
    /// A model for load runs: speaks all the time and costs hardly any CPU.
    #[command(after_help = "Example:\n  answerback sim load-model --listen 127.0.0.1:9200")]
    LoadModel {
        #[arg(long, default_value = "127.0.0.1:9200")]
        listen: SocketAddr,
        /// How long each response speaks.
        #[arg(long, value_name = "MS", default_value_t = 10_000)]
        response_ms: u32,
    },
}

fn speed(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(times) if (0.0..=1_000.0).contains(&times) => Ok(times),
        Ok(_) | Err(_) => Err("a number from 0 to 1000, such as 1 for real time".to_owned()),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScenarioVerb {
    /// Play every scenario of a folder: in virtual time, which takes milliseconds, or over real sockets.
    #[command(
        after_help = "Examples:\n  answerback scenario run tests/scenarios\n  answerback scenario run tests/scenarios --live \
                            --junit scenarios.xml\n\nThe exit code is 1 when an expectation was broken. docs/scenarios.md \
                            teaches how to write one."
    )]
    Run(ScenarioRunArgs),
    /// Make scenarios out of recorded calls: each plays the call again and expects what happened.
    #[command(
        after_help = "Examples:\n  answerback scenario from-call data/recordings/ses_… --to my-scenarios\n  answerback scenario \
                            from-call data/recordings --to my-scenarios --config config\n\nEach file is played once in \
                            virtual time; the exit code is 1 when it did not come out as the call did."
    )]
    FromCall(FromCallArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FromCallArgs {
    /// A recording, or a folder of them. Recordings of one call, and of a caller's next one, become one scenario.
    #[arg(value_name = "DIR")]
    pub place: PathBuf,
    /// Where the files go; made when it is not there. Nothing in it is overwritten.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub to: PathBuf,
    /// The config folder that the server ran with. The shipped one when absent.
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,
    /// Print every event of the scenarios that came out otherwise.
    #[arg(long)]
    pub details: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScenarioRunArgs {
    /// A folder of scenario files, or one file.
    #[arg(value_name = "DIR")]
    pub path: PathBuf,
    /// Over real sockets, each against a server process of its own.
    #[arg(long)]
    pub live: bool,
    /// With --live: so many at once.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "live")]
    pub at_once: usize,
    /// With --live: keep the recordings of the calls here, and what went over the model's wire, one folder a scenario.
    #[arg(long, value_name = "DIR", requires = "live")]
    pub keep: Option<PathBuf>,
    /// Write a report as JUnit XML.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Print one JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Print every event of the scenarios that broke.
    #[arg(long, conflicts_with = "json")]
    pub details: bool,
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
