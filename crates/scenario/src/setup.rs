//! What a scenario plays in: a config folder with its overrides, the model's script, and every sound. Both runners start
//! from the same one.

use crate::ear::Line;
use crate::file::{BackendRule, CallerLine, Scenario, ScenarioDelegation, ScenarioProvider};
use crate::overrides;
use crate::problems::MAX_SOUND_MS;
use crate::sound;
use serde_json::Value;
use server::config::Config;
use sim::audio_file::AudioFileError;
use sim::booking::Switches;
use sim::model::{LoadedScript, ModelScript, Rule, Say, ScriptError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The shipped config: Luigi's.
const SHIPPED: [(&str, &str); 4] = [
    ("answerback.toml", include_str!("../../../config/answerback.toml")),
    ("agents/blue_door.toml", include_str!("../../../config/agents/blue_door.toml")),
    ("tools/book_table.toml", include_str!("../../../config/tools/book_table.toml")),
    ("tools/find_table.toml", include_str!("../../../config/tools/find_table.toml")),
];
/// Its tools, and the one of them that makes something.
pub const SHIPPED_TOOLS: [&str; 2] = ["find_table", SHIPPED_BOOKING];
pub const SHIPPED_BOOKING: &str = "book_table";
/// Where the shipped tool files expect the booking backend.
pub const SHIPPED_BACKEND: &str = "127.0.0.1:9300";
/// What the server is called from outside; nothing is sent there.
pub const PUBLIC_URL: &str = "https://scenario.example";
/// Milliseconds that a character of an agent's text sounds, when nothing else is said: a brisk speaker.
/// A backend that nobody reaches: the simulated service is its own.
const BACKEND_MODEL: &str = "simulated-backend";
const MS_A_CHARACTER: u64 = 60;

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {problem}", path.display())]
    Config { path: PathBuf, problem: String },
    #[error("the config with the scenario's overrides: {}", mistakes.join("; "))]
    Mistakes { mistakes: Vec<String> },
    #[error("the config has no agent that answers a call")]
    NoAgent,
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error("caller line {line}: {source}")]
    Sound { line: usize, source: AudioFileError },
}

/// The folder is removed when this is dropped.
pub struct Setup {
    pub folder: PathBuf,
    pub lines: Vec<Line>,
    /// By rule: the line that it says.
    pub line_of_rule: Vec<Option<usize>>,
    pub script: LoadedScript,
    /// By caller line: what it sounds like, and what is understood.
    pub caller: Vec<Option<CallerSound>>,
}

#[derive(Clone, Debug)]
pub struct CallerSound {
    pub mulaw: Vec<u8>,
    pub name: String,
}

impl Drop for Setup {
    fn drop(&mut self) {
        // What cannot be removed lies in the system's folder for such things.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Setup {
    /// `base`: the scenario's own folder. `backend`: host and port of the booking system.
    pub fn make(scenario: &Scenario, base: &Path, backend: &str) -> Result<Self, SetupError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("answerback-scenario-{}-{number}", std::process::id()));
        let mut setup = Self {
            folder,
            lines: Vec::new(),
            line_of_rule: Vec::new(),
            script: LoadedScript::new(ModelScript::default(), base)?,
            caller: Vec::new(),
        };
        setup.write_config(scenario, base, backend)?;
        for (n, line) in scenario.caller.iter().enumerate() {
            let sound = caller_sound(line, base).map_err(|source| SetupError::Sound { line: n + 1, source })?;
            setup.caller.push(sound);
        }
        setup.script = setup.model_script(scenario, base)?;
        Ok(setup)
    }

    pub fn config_folder(&self) -> PathBuf {
        self.folder.join("config")
    }

    /// Whether the agent's model has the Live interface.
    pub fn is_live(&self, scenario: &Scenario) -> Result<bool, SetupError> {
        let config = self.config(scenario, Vec::new())?;
        let agent = config.default_agent().ok_or(SetupError::NoAgent)?;
        Ok(matches!(config.session_config(agent).provider, models::Provider::GptLive(_)))
    }

    pub fn config(&self, scenario: &Scenario, env: Vec<(String, String)>) -> Result<Config, SetupError> {
        let folder = self.config_folder();
        Config::load(&folder, env)
            .map_err(|errors| SetupError::Mistakes { mistakes: overrides::mistakes(scenario, &folder, &errors) })
    }

    fn write_config(&self, scenario: &Scenario, base: &Path, backend: &str) -> Result<(), SetupError> {
        let mut files: Vec<(PathBuf, toml::Table)> = Vec::new();
        match &scenario.config {
            None => {
                for (name, text) in SHIPPED {
                    files.push((name.into(), read_table(Path::new(name), text)?));
                }
            }
            Some(wanted) => {
                for part in ["", "agents", "tools"] {
                    let folder = base.join(wanted).join(part);
                    let entries = match std::fs::read_dir(&folder) {
                        Ok(entries) => entries,
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !part.is_empty() => continue,
                        Err(source) => return Err(SetupError::Io { path: folder, source }),
                    };
                    for path in entries
                        .flatten()
                        .map(|entry| entry.path())
                        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
                    {
                        let text = std::fs::read_to_string(&path)
                            .map_err(|source| SetupError::Io { path: path.clone(), source })?;
                        let name = Path::new(part).join(path.file_name().unwrap_or_default());
                        files.push((name, read_table(&path, &text)?));
                    }
                }
            }
        }
        overlay(&mut files, scenario)?;
        for (name, table) in files {
            let path = self.config_folder().join(name);
            let io = |source| SetupError::Io { path: path.clone(), source };
            std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(io)?;
            let text = table.to_string().replace(SHIPPED_BACKEND, backend);
            std::fs::write(&path, text).map_err(io)?;
        }
        Ok(())
    }

    fn model_script(&mut self, scenario: &Scenario, base: &Path) -> Result<LoadedScript, SetupError> {
        let sounds = self.folder.join("sounds");
        std::fs::create_dir_all(&sounds).map_err(|source| SetupError::Io { path: sounds.clone(), source })?;
        let mut rules = Vec::new();
        for (n, rule) in scenario.model.iter().enumerate() {
            let mut say = None;
            if let Some(text) = &rule.say {
                let mulaw = match &rule.voice {
                    Some(voice) => {
                        sound::recording(voice, base).map_err(|source| ScriptError::Audio { rule: n + 1, source })?
                    }
                    None => sound::agent(text, rule.ms.unwrap_or(length_of(text))),
                };
                say = Some(written(&sounds, format!("{n}.ulaw"), text, &mulaw)?);
                let known = self.lines.iter().position(|line| line.mulaw == mulaw);
                let place = known.unwrap_or_else(|| {
                    self.lines.push(Line { text: text.clone(), mulaw });
                    self.lines.len() - 1
                });
                self.line_of_rule.push(Some(place));
            } else {
                self.line_of_rule.push(None);
            }
            rules.push(Rule {
                after: rule.after,
                nth: rule.nth,
                instructions_contain: rule.instructions_contain.clone(),
                context_contains: rule.context_contains.clone(),
                once: rule.once,
                delay_ms: rule.delay_ms,
                say,
                call: rule.call.clone(),
                more_calls: rule.more_calls.clone(),
                fail: rule.fail.clone(),
                empty: rule.empty,
            });
        }
        let mut unprompted = Vec::new();
        for (n, text) in scenario.fault.iter().filter_map(|fault| fault.unprompted.as_ref()).enumerate() {
            let mulaw = sound::agent(text, length_of(text));
            unprompted.push(written(&sounds, format!("unprompted_{n}.ulaw"), text, &mulaw)?);
            self.lines.push(Line { text: text.clone(), mulaw });
        }
        let spoken = |line: &&CallerLine| line.say.is_some() || line.speech_ms.is_some();
        let transcripts = scenario.caller.iter().filter(spoken).map(|line| understood(line).to_owned()).collect();
        Ok(LoadedScript::new(ModelScript { transcripts, rules, unprompted, ..ModelScript::default() }, &sounds)?)
    }

    /// The words of a rule of the model's record, which counts from 1.
    pub fn words_of_rule(&self, rule: Option<usize>) -> Option<String> {
        let line = (*self.line_of_rule.get(rule?.checked_sub(1)?)?)?;
        Some(self.lines[line].text.clone())
    }
}

fn written(folder: &Path, file: String, text: &str, mulaw: &[u8]) -> Result<Say, SetupError> {
    let path = folder.join(&file);
    std::fs::write(&path, mulaw).map_err(|source| SetupError::Io { path, source })?;
    Ok(Say { file, text: text.to_owned(), phase: None })
}

fn understood(line: &CallerLine) -> &str {
    let known = || line.say.as_deref().and_then(sound::text_of);
    line.text.as_deref().or_else(known).unwrap_or_default()
}

fn caller_sound(line: &CallerLine, base: &Path) -> Result<Option<CallerSound>, AudioFileError> {
    let sound = |name: &str, mulaw| Ok(Some(CallerSound { name: name.to_owned(), mulaw }));
    if let Some(file) = &line.say {
        let name = understood(line);
        sound(if name.is_empty() { file } else { name }, sound::recording(file, base)?)
    } else if let Some(ms) = line.speech_ms {
        sound(understood(line), sound::speech(ms))
    } else if let Some(ms) = line.blip_ms {
        sound("blip", sound::blip(ms))
    } else if let Some(ms) = line.noise_ms {
        sound("noise", sound::noise(ms))
    } else if let Some(ms) = line.silence_ms {
        sound("silence", vec![vocab::audio::MULAW_SILENCE; ms as usize * 8])
    } else {
        Ok(None)
    }
}

/// What the shipped agent begins with.
pub fn shipped_greeting() -> String {
    let agent = SHIPPED.iter().find(|(name, _)| name.starts_with("agents/"));
    let table = agent.and_then(|(name, text)| read_table(Path::new(name), text).ok());
    table.and_then(|table| Some(table.get("greeting")?.as_str()?.to_owned())).unwrap_or_default()
}

fn read_table(path: &Path, text: &str) -> Result<toml::Table, SetupError> {
    text.parse()
        .map_err(|error: toml::de::Error| SetupError::Config { path: path.to_owned(), problem: error.to_string() })
}

fn overlay(files: &mut Vec<(PathBuf, toml::Table)>, scenario: &Scenario) -> Result<(), SetupError> {
    let wrong = |path: &Path, problem: String| SetupError::Config { path: path.to_owned(), problem };
    let mut made = Vec::new();
    for (name, change) in &scenario.tools {
        let path = Path::new("tools").join(format!("{name}.toml"));
        let mut change = change.as_table().cloned().ok_or_else(|| wrong(&path, "[tools] holds tables".into()))?;
        if let Some(like) = change.remove("like") {
            let like = Path::new("tools").join(format!("{}.toml", like.as_str().unwrap_or_default()));
            let other = files.iter().find(|(known, _)| *known == like);
            let table = other.ok_or_else(|| wrong(&path, format!("there is no {}", like.display())))?.1.clone();
            files.push((path.clone(), table));
            made.push(toml::Value::from(name.as_str()));
        }
        let file = files.iter_mut().find(|(known, _)| *known == path);
        lay_over(&mut file.ok_or_else(|| wrong(&path, "there is no such tool".into()))?.1, &change);
    }
    for (name, table) in files {
        if name.starts_with("agents") {
            lay_over(table, &scenario.agent);
            if let Some(toml::Value::Array(tools)) = table.get_mut("tools") {
                tools.extend(made.iter().cloned());
            }
        } else if !name.starts_with("tools") {
            if let Some(provider) = scenario.provider {
                lay_over(table, &model_section(provider, scenario.delegation));
            }
            lay_over(table, &scenario.server);
        }
    }
    Ok(())
}

fn model_section(provider: ScenarioProvider, delegation: Option<ScenarioDelegation>) -> toml::Table {
    let mut model = toml::Table::new();
    let mut set = |key: &str, value: &str| model.insert(key.to_owned(), value.into());
    match (provider, delegation) {
        (ScenarioProvider::OpenaiRealtime, _) => {
            set("provider", "openai_realtime");
        }
        (ScenarioProvider::GptLive, Some(ScenarioDelegation::Client)) => {
            set("provider", "gpt_live");
            set("model", "gpt-live-1");
            set("delegation", "client");
        }
        (ScenarioProvider::GptLive, Some(ScenarioDelegation::Responses) | None) => {
            set("provider", "gpt_live");
            set("model", "gpt-live-1");
            set("delegation", "responses");
            set("backend_model", BACKEND_MODEL);
        }
    }
    toml::Table::from_iter([("model".to_owned(), model.into())])
}

/// Tables are merged, everything else is replaced.
fn lay_over(table: &mut toml::Table, change: &toml::Table) {
    for (key, value) in change {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => lay_over(below, above),
            (Some(_) | None, _) => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The backend's rules, as far as they have been used up.
#[derive(Debug)]
pub struct BackendRules {
    rules: Vec<(BackendRule, u32)>,
}

impl BackendRules {
    pub fn new(scenario: &Scenario) -> Self {
        Self { rules: scenario.backend.iter().map(|rule| (rule.clone(), 0)).collect() }
    }

    /// How this request is treated.
    pub fn take(&mut self, arguments: &Value) -> BackendRule {
        for (rule, used) in &mut self.rules {
            let meant = rule.arguments.iter().all(|(name, value)| plain(&arguments[name]) == plain(value));
            if meant && rule.times.is_none_or(|times| *used < times) {
                *used += 1;
                return rule.clone();
            }
        }
        BackendRule::default()
    }
}

/// A query has no numbers.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub fn switches(rule: &BackendRule) -> Switches {
    Switches {
        delay_before_commit_ms: rule.commit_ms,
        delay_after_commit_ms: rule.answer_ms,
        lose_response_once: rule.lose_answer,
        error_once: rule.error,
        refuse: rule.refuse,
        duplicate_answer: rule.answer_twice,
        ignore_keys: rule.ignore_keys,
    }
}

/// How long words sound of which nothing else is said, in milliseconds.
fn length_of(text: &str) -> u32 {
    (text.len() as u64 * MS_A_CHARACTER).min(MAX_SOUND_MS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        name = "t"
        story = "t"
        [agent]
        greeting = ""
        policy.gate.quiet_ms = 400
        [tools.book_table]
        inline_wait_ms = 100
        [tools.alarm]
        like = "book_table"
        delivery.priority = "urgent"
        [[backend]]
        arguments = { time = "21:00", party_size = 2 }
        times = 1
        commit_ms = 900
        [[caller]]
        say = "builtin:caller_request"
        [[model]]
        say = "One moment."
        ms = 700
        [expect]
    "#;

    #[test]
    fn overrides_become_a_config_that_the_server_takes() {
        let scenario = Scenario::parse(TEXT, Path::new("t.toml")).unwrap();
        let setup = Setup::make(&scenario, Path::new("."), "127.0.0.1:1").unwrap();
        let config = setup.config(&scenario, Vec::new()).unwrap();
        let agent = config.default_agent().unwrap();
        assert_eq!((agent.policy.gate.quiet_ms, agent.greeting.as_deref()), (400, None));
        let tools: Vec<_> = agent.tools.iter().map(|tool| tool.as_str()).collect();
        assert_eq!(tools, ["find_table", "book_table", "alarm"]);
        let tool = |name: &str| config.tools[&vocab::ToolName::new(name)].contract.clone();
        assert_eq!(tool("book_table").inline_wait_ms, 100);
        assert_eq!(tool("alarm").delivery.priority, vocab::effect::Priority::Urgent);
        assert_eq!(setup.words_of_rule(Some(1)).as_deref(), Some("One moment."));
        let folder = setup.folder.clone();
        drop(setup);
        assert!(!folder.exists());
    }

    #[test]
    fn a_backend_rule_is_for_its_arguments_and_its_number_of_requests() {
        let scenario = Scenario::parse(TEXT, Path::new("t.toml")).unwrap();
        let mut rules = BackendRules::new(&scenario);
        let asked = serde_json::json!({"time": "21:00", "party_size": "2"});
        assert_eq!(rules.take(&serde_json::json!({"time": "22:00", "party_size": 2})).commit_ms, 0);
        assert_eq!(rules.take(&asked).commit_ms, 900);
        assert_eq!(rules.take(&asked).commit_ms, 0);
    }
}
