//! The other verbs, as a shell sees them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn answerback() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_answerback"));
    for (name, _) in std::env::vars() {
        if name.starts_with("ANSWERBACK__") || name == "OPENAI_API_KEY" || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1");
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("answerback-verbs-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
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
struct Started {
    child: Child,
    line: String,
}

impl Started {
    /// Waits for the one line that says that it is there.
    fn new(command: &mut Command) -> Self {
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

fn shipped_config() -> PathBuf {
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
    assert!(told.contains("ANSWERBACK__SERVER__PUBLIC_URL"), "{told}");
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
    assert!(told.contains("max_calls = 20 # ANSWERBACK__SERVER__MAX_CALLS"), "{told}");
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

/// Real time: a greeting of four seconds, three of a person reading, and the answer.
#[test]
fn a_recording_of_a_person_calls_a_running_server() {
    let scratch = Scratch::new("call");
    let model = Started::new(answerback().args(["sim", "model", "--listen", "127.0.0.1:0"]));
    let model_url = model.line.split_whitespace().find(|word| word.starts_with("ws://")).unwrap().to_owned();
    let server = Started::new(
        answerback()
            .args(["serve", "--config"])
            .arg(shipped_config())
            .env("ANSWERBACK__SERVER__BIND", "127.0.0.1:0")
            .env("ANSWERBACK__SERVER__DATA_DIR", scratch.0.join("data"))
            .env("ANSWERBACK__SERVER__PUBLIC_URL", "https://voice.example.com")
            .env("ANSWERBACK__TWILIO__AUTH_TOKEN", "the token")
            .env("ANSWERBACK__MODEL__BASE_URL", model_url),
    );
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
    assert!(agent_ms > 3_500, "{agent_ms} ms of sound in the recording");
    assert!(result["marks"].as_array().unwrap().len() > 10, "{result}");

    let output = call("another token");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("403"), "{}", text(&output));
}
