//! Where the demo is played: a folder of its own, secrets of its own, the booking backend and the model in this process, and
//! the config that the server in its own process reads.

use super::ear::Line;
use anyhow::{Context, bail};
use sim::booking::{self, BookingConfig, BookingServer};
use sim::model::{self, LoadedScript, ModelConfig, ModelScript, ModelServer, Progress};
use sim::phone::{PhoneConfig, PhoneFaults};
use sim::voices;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

const CONFIG: [(&str, &str); 4] = [
    ("answerback.toml", include_str!("../../../../config/answerback.toml")),
    ("agents/blue_door.toml", include_str!("../../../../config/agents/blue_door.toml")),
    ("tools/book_table.toml", include_str!("../../../../config/tools/book_table.toml")),
    ("tools/find_table.toml", include_str!("../../../../config/tools/find_table.toml")),
];
/// Where the shipped tool files expect the booking backend; the demo's listens on a free port instead.
const SHIPPED_BACKEND: &str = "127.0.0.1:9300";
const MODEL_SCRIPT: &str = include_str!("model.toml");
/// What the server is called from outside. Nothing is sent there: the phone connects to loopback and signs for this name.
const PUBLIC_URL: &str = "https://answerback.example";
const CALLER: &str = "+15005550006";

/// What the recorded caller says, by the name of the voice.
pub(crate) const CALLER_LINES: [(&str, &str); 3] = [
    ("builtin:caller_request", "Hello, I'd like to book a table for two at nine tonight, please."),
    (
        "builtin:caller_talk_over",
        "Oh, and could we sit by the window if there is one? That would be lovely, thank you.",
    ),
    ("builtin:caller_thanks", "That's wonderful, thank you very much. Goodbye."),
];

/// What the demo is asked to hurt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub kill: bool,
    pub drop_marks: bool,
    pub lose_answer: bool,
    pub answer_twice: bool,
}

/// The folder of one demo. Removed when dropped, unless it is to be kept.
#[derive(Debug)]
pub(crate) struct Folder {
    pub path: PathBuf,
    keep: bool,
}

impl Folder {
    pub fn make(wanted: Option<&Path>) -> anyhow::Result<Self> {
        let path = match wanted {
            Some(path) => {
                let used = path.read_dir().is_ok_and(|mut entries| entries.next().is_some());
                if used {
                    bail!("{}: is not empty; give --keep a new folder", path.display());
                }
                std::path::absolute(path).with_context(|| path.display().to_string())?
            }
            None => std::env::temp_dir().join(format!("answerback-demo-{}", random_hex(6)?)),
        };
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path, keep: wanted.is_some() })
    }

    pub fn keep(&mut self) {
        self.keep = true;
    }

    pub fn is_kept(&self) -> bool {
        self.keep
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed lies in the system's folder for such things.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

pub(crate) struct World {
    pub config: PathBuf,
    /// For the server's process alone.
    pub env: Vec<(&'static str, String)>,
    pub booking: BookingServer,
    pub model: ModelServer,
    /// The zero of the model's record.
    pub model_started: Instant,
    pub admin_token: String,
    auth_token: String,
    /// Every line that the agent can say, with its sound.
    pub lines: Vec<Line>,
    pub faults: Faults,
    seed: u64,
}

impl World {
    pub async fn build(folder: &Path, faults: Faults, seed: u64) -> anyhow::Result<Self> {
        let sounds = folder.join("voices");
        let mut script = demo_script(&sounds)?;
        // With --kill the caller never gets to talk over anything.
        script.transcripts = CALLER_LINES
            .iter()
            .filter(|(voice, _)| !(faults.kill && *voice == "builtin:caller_talk_over"))
            .map(|(_, text)| (*text).to_owned())
            .collect();
        let lines = agent_lines(&script, &sounds)?;
        let (api_key, admin_token, auth_token) = (random_hex(16)?, random_hex(16)?, random_hex(16)?);

        let mut booking = BookingConfig::new(folder.join("bookings.jsonl"));
        // Long enough that the caller is talking when it commits; with --kill the answer comes after the server's death.
        booking.switches.delay_before_commit_ms = if faults.kill { 2_500 } else { 3_500 };
        booking.switches.delay_after_commit_ms = if faults.kill { 60_000 } else { 0 };
        booking.switches.lose_response_once = faults.lose_answer;
        booking.switches.duplicate_answer = faults.answer_twice;
        let booking = booking::start(booking).await?;

        let mut model_config = ModelConfig::new(LoadedScript::new(script, &sounds)?);
        model_config.api_key = Some(api_key.clone());
        model_config.wire_log = Some(folder.join("model-wire.jsonl"));
        let model_started = Instant::now();
        let model = model::start(model_config).await?;

        let config = folder.join("config");
        for (name, text) in CONFIG {
            let path = config.join(name);
            let parent = path.parent().unwrap_or(&config);
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
            let text = text.replace(SHIPPED_BACKEND, &booking.addr.to_string());
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let env = vec![
            ("ANSWERBACK__SERVER__BIND", "127.0.0.1:0".to_owned()),
            ("ANSWERBACK__SERVER__PUBLIC_URL", PUBLIC_URL.to_owned()),
            ("ANSWERBACK__SERVER__DATA_DIR", folder.join("data").display().to_string()),
            ("ANSWERBACK__SERVER__ADMIN_TOKEN", admin_token.clone()),
            ("ANSWERBACK__SERVER__DRAIN_GRACE_S", "2".to_owned()),
            ("ANSWERBACK__TWILIO__AUTH_TOKEN", auth_token.clone()),
            ("ANSWERBACK__MODEL__BASE_URL", model.base_url()),
            ("ANSWERBACK__MODEL__API_KEY", api_key),
        ];
        Ok(Self { config, env, booking, model, model_started, admin_token, auth_token, lines, faults, seed })
    }

    /// A call of the demo's one caller, to the server at `addr`.
    pub fn phone(&self, addr: SocketAddr) -> PhoneConfig {
        let mut phone = PhoneConfig::new(format!("{PUBLIC_URL}/twilio/voice"), &self.auth_token);
        phone.connect_addr = Some(addr);
        phone.status_url = Some(format!("{PUBLIC_URL}/twilio/status"));
        CALLER.clone_into(&mut phone.from);
        phone.seed = self.seed;
        phone.max_seconds = 90;
        // As Twilio: a document that cannot be fetched ends the call (11200).
        phone.redirect_attempts = 1;
        phone.faults = PhoneFaults { drop_marks: self.faults.drop_marks, ..PhoneFaults::default() };
        phone
    }
}

/// The demo's model script by itself, for `sim model`: every session starts it anew.
pub(crate) fn model_script() -> anyhow::Result<LoadedScript> {
    let sounds = Folder::make(None)?;
    let mut script = demo_script(&sounds.path)?;
    script.transcripts = CALLER_LINES.iter().map(|(_, text)| (*text).to_owned()).collect();
    script.progress = Progress::Session;
    // The voices are in memory when this returns, and the folder may go.
    Ok(LoadedScript::new(script, &sounds.path)?)
}

/// The script, with the voices that it joins from others written into `sounds`.
fn demo_script(sounds: &Path) -> anyhow::Result<ModelScript> {
    let voice = |name: &str| voices::builtin(name).with_context(|| format!("the voice {name} is not in this program"));
    std::fs::create_dir_all(sounds).with_context(|| format!("cannot make {}", sounds.display()))?;
    let joined = [voice("agent_window")?, voice("agent_confirmation")?].concat();
    let path = sounds.join("window_and_confirmation.ulaw");
    std::fs::write(&path, joined).with_context(|| format!("cannot write {}", path.display()))?;
    toml::from_str(MODEL_SCRIPT).context("the demo's model script")
}

fn agent_lines(script: &ModelScript, sounds: &Path) -> anyhow::Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for say in script.rules.iter().filter_map(|rule| rule.say.as_ref()) {
        if lines.iter().all(|line| line.voice != say.file) {
            let mulaw = voices::load(&say.file, sounds)?;
            lines.push(Line { voice: say.file.clone(), text: say.text.clone(), mulaw });
        }
    }
    Ok(lines)
}

fn random_hex(bytes: usize) -> anyhow::Result<String> {
    let mut drawn = vec![0u8; bytes];
    getrandom::fill(&mut drawn).map_err(|error| anyhow::anyhow!("no randomness to be had: {error}"))?;
    Ok(drawn.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demos_config_is_one_that_the_server_takes() {
        let mut folder = Folder::make(None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let world = runtime.block_on(World::build(&folder.path, Faults::default(), 1)).unwrap();
        let env = world.env.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let config = server::config::Config::load(&world.config, env).unwrap();
        config.ready_to_serve().unwrap();
        let printed = config.print();
        assert!(printed.contains(&world.booking.addr.to_string()), "{printed}");
        assert!(!printed.contains(&world.admin_token), "{printed}");
        let path = folder.path.clone();
        folder.keep = false;
        drop((world, folder));
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_that_holds_something_is_refused() {
        let folder = Folder::make(None).unwrap();
        std::fs::write(folder.path.join("bookings.jsonl"), "").unwrap();
        let refused = Folder::make(Some(&folder.path)).unwrap_err();
        assert!(refused.to_string().contains("not empty"), "{refused}");
    }
}
