//! The other verbs, as a shell sees them.

use super::{answerback, text};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A folder that is removed at the end.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("answerback-verbs-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Killed at the end, whatever happened.
pub(crate) struct Started {
    pub child: Child,
    pub line: String,
}

impl Started {
    /// Waits for the one line that says that it is there.
    pub fn new(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, line }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn shipped_config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config")
}

#[test]
fn check_draws_every_mistake_and_fails() {
    let scratch = Scratch::new("check");
    scratch.write("answerback.toml", "[server]\nmax_cals = 3\n[limits]\nmax_call_s = \"long\"\n");
    scratch.write("agents/a.toml", "instructions = \"x\"\ntools = [\"bok_table\"]\n");
    let output = answerback().args(["check", "--config"]).arg(&scratch.0).output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for wanted in ["3 mistakes", "max_cals", "max_calls", "max_call_s", "bok_table", "answerback.toml", ":2:"] {
        assert!(told.contains(wanted), "no {wanted:?} in\n{told}");
    }
}

#[test]
fn check_says_what_serving_still_needs() {
    let output = answerback().args(["check", "--config"]).arg(shipped_config()).output().unwrap();
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("no mistake (1 agent, 2 tools)") && told.contains("ANSWERBACK__SERVER__PUBLIC_URL"),
        "{told}"
    );

    let output = answerback().args(["serve", "--config"]).arg(shipped_config()).output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for (wanted, times) in [("ANSWERBACK__SERVER__PUBLIC_URL", 1), ("ANSWERBACK__TWILIO__AUTH_TOKEN", 1)] {
        assert_eq!(told.matches(wanted).count(), times, "{wanted} in\n{told}");
    }
    assert!(told.contains("http://127.0.0.1:8080"), "the way to try it on one machine is told: {told}");
}

#[test]
fn a_config_without_an_agent_is_a_mistake_that_names_the_folder() {
    let scratch = Scratch::new("no-agent");
    scratch.write("answerback.toml", "");
    std::fs::create_dir_all(scratch.0.join("agents")).unwrap();
    for verb in ["check", "serve"] {
        let output = answerback().args([verb, "--config"]).arg(&scratch.0).output().unwrap();
        let told = text(&output).replace(['\n', '│', ' '], "");
        assert_eq!(output.status.code(), Some(1), "{told}");
        let folder = scratch.0.join("agents").display().to_string();
        assert!(told.contains(&folder) && told.contains("host.toml"), "{told}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_makes_nothing_panic() {
    let config = shipped_config();
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/c01_a_question_while_the_tool_runs.toml");
    for (verb, place) in [
        (["print-config", "--config"].as_slice(), &config),
        (&["check", "--config"], &config),
        (&["scenario", "run"], &scenario),
    ] {
        let mut command = answerback();
        let (closed, theirs) = std::io::pipe().unwrap();
        drop(closed);
        let child = command.args(verb).arg(place).stdout(theirs).stderr(Stdio::piped()).spawn().unwrap();
        // The command keeps the pipe's end.
        drop(command);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{verb:?}: {output:?}");
    }
    // Nor does one that hears no complaint.
    let (closed, theirs) = std::io::pipe().unwrap();
    drop(closed);
    let status = answerback().args(["call", "--simulate", "nowhere.wav"]).stderr(theirs).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = answerback().args(["print-config", "--config"]).arg(shipped_config()).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("standard output cannot be written"), "{}", text(&output));
}

#[test]
fn what_the_recording_holds_is_told_before_the_call() {
    let scratch = Scratch::new("holds");
    let told = |name: &str, bytes: &[u8]| {
        let file = scratch.write(name, bytes);
        let args = ["call", "--url", "http://127.0.0.1:9/twilio/voice", "--auth-token", "t", "--simulate"];
        text(&answerback().args(args).arg(&file).output().unwrap())
    };
    let silence = told("silence.ulaw", &[0xff; 16_000]);
    assert!(silence.contains("2.0 s of silence: the agent will hear nobody"), "{silence}");
    let person =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/assets/human_reading_0880.wav")).unwrap();
    let cut = told("cut.wav", &person[..person.len() / 2]);
    assert!(cut.contains("cut short: its header promises"), "{cut}");
    assert!(!told("whole.wav", &person).contains("cut short"));
}

#[test]
fn a_config_folder_that_is_not_there_is_named() {
    let output = answerback().args(["check", "--config", "no/such/folder"]).output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("no/such/folder") && told.contains("no such config folder"), "{told}");
}

#[test]
fn print_config_shows_origins_and_hides_secrets() {
    let output = answerback()
        .args(["print-config", "--config"])
        .arg(shipped_config())
        .env("ANSWERBACK__TWILIO__AUTH_TOKEN", "hush-hush-token")
        .env("OPENAI_API_KEY", "hush-hush-key")
        .env("ANSWERBACK__SERVER__MAX_CALLS", "20")
        .output()
        .unwrap();
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    assert!(!told.contains("hush"), "{told}");
    assert!(told.contains("auth_token = \"<set>\""), "{told}");
    assert!(told.contains("max_calls = 20 # environment ANSWERBACK__SERVER__MAX_CALLS"), "{told}");
}

#[test]
fn a_recording_in_a_wrong_format_is_refused_before_anybody_is_called() {
    let scratch = Scratch::new("wrong");
    let mp3 = scratch.write("question.wav", b"ID3\x04\x00 and so on");
    let output = answerback().args(["call", "--auth-token", "t", "--simulate"]).arg(&mp3).output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("an MP3") && told.contains("ffmpeg"), "{told}");

    let output = answerback().args(["call", "--auth-token", "t", "--simulate", "nowhere.wav"]).output().unwrap();
    assert!(text(&output).contains("nowhere.wav: cannot be read"), "{}", text(&output));
}

#[test]
fn a_call_without_a_token_says_where_to_get_one() {
    let scratch = Scratch::new("token");
    let question = scratch.write("question.ulaw", [0x42; 800]);
    let output = answerback().args(["call", "--simulate"]).arg(&question).output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--auth-token"), "{told}");
}

const SHORT_MODEL: &str = r#"
progress = "session"
[[rules]]
instructions_contain = "Greet the guest"
say = { file = "builtin:agent_window", text = "A greeting." }
[[rules]]
after = "user"
say = { file = "builtin:agent_goodbye", text = "An answer." }
"#;

/// Real time: two seconds of greeting, three of a person reading, two of the answer, and the waits between.
pub fn serve_with(command: &mut Command, scratch: &Scratch, model_url: &str) -> Started {
    Started::new(
        command
            .args(["serve", "--config"])
            .arg(shipped_config())
            .env("ANSWERBACK__SERVER__BIND", "127.0.0.1:0")
            .env("ANSWERBACK__SERVER__ADMIN_TOKEN", "an admin")
            .env("ANSWERBACK__SERVER__DATA_DIR", scratch.0.join("data"))
            .env("ANSWERBACK__SERVER__PUBLIC_URL", "https://voice.example.com")
            .env("ANSWERBACK__TWILIO__AUTH_TOKEN", "the token")
            .env("ANSWERBACK__MODEL__BASE_URL", model_url)
            .env("ANSWERBACK__MODEL__API_KEY", "any"),
    )
}

#[test]
fn a_recording_of_a_person_calls_a_running_server() {
    let scratch = Scratch::new("call");
    let script = scratch.write("model.toml", SHORT_MODEL);
    let model = Started::new(answerback().args(["sim", "model", "--listen", "127.0.0.1:0", "--script"]).arg(script));
    let model_url = model.line.split_whitespace().find(|word| word.starts_with("ws://")).unwrap().to_owned();
    let server = serve_with(&mut answerback(), &scratch, &model_url);
    let address = server.line.trim().strip_prefix("ready at http://").unwrap();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/assets/human_reading_0880.wav");
    let heard = scratch.0.join("heard.wav");
    let call = |token: &str| {
        answerback()
            .args(["call", "--url", "https://voice.example.com/twilio/voice", "--connect", address])
            .args(["--auth-token", token, "--json", "--max-seconds", "60", "--simulate"])
            .arg(&recording)
            .arg("--record")
            .arg(&heard)
            .output()
            .unwrap()
    };
    let output = call("the token");
    assert!(output.status.success(), "{}", text(&output));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["end"], "caller_hung_up");
    let agent_ms = (sim::audio_file::read(&heard).unwrap().iter().filter(|byte| **byte != 0xff).count() / 8) as u64;
    // 2,002 ms of greeting and 2,327 ms of answer, less the bytes of theirs that look like silence.
    assert!((4_000..=4_340).contains(&agent_ms), "{agent_ms} ms of sound in the recording");
    assert!(result["marks"].as_array().unwrap().len() > 10, "{result}");

    let output = call("another token");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("403"), "{}", text(&output));

    let output = answerback()
        .args(["call", "--url", "https://voice.example.com/twilio/voice", "--connect", address])
        .args(["--auth-token", "the token", "--admin-token", "an admin", "--simulate"])
        .arg(&recording)
        .output()
        .unwrap();
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    for wanted in ["model: has generated “A greeting.”", "model: has generated “An answer.”", "the caller hung up"]
    {
        assert!(told.contains(wanted), "no {wanted:?} in\n{told}");
    }
    // The carrier's last word closes the session.
    let session = told.lines().find(|line| line.starts_with("session ")).unwrap();
    assert!(session.ends_with(": ended") && told.contains("operation   none was asked for"), "{told}");
}
