//! Finds and reads the files, in layers, then lets each part judge its own.

use super::agent::{self, AgentConfig};
use super::findings::{Findings, PREFIX, Place, Source, did_you_mean};
use super::mistake::ConfigErrors;
use super::model::{self, LiveDelegation, ModelProvider, ReadModel};
use super::reader::Reader;
use super::sections;
use super::tool::{self, ToolConfig};
use super::{Config, ConfigError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::DeTable;
use vocab::{AgentId, ToolName};

const SECTIONS: [&str; 8] = ["server", "twilio", "model", "limits", "audio", "recording", "executor", "tools"];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Main,
    Agent,
    Tool,
}

/// The same files twice, by the same index: what they hold, and what they are.
struct Files {
    sources: Vec<Source>,
    /// The file name without `.toml`.
    names: Vec<(Kind, String)>,
}

impl Config {
    /// Reads `dir` and the given environment; nothing else but the secret and instruction files they name.
    /// An absent `answerback.toml` means the defaults; an absent `dir` is a mistake.
    pub fn load(dir: &Path, env: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigErrors> {
        let env: BTreeMap<String, String> = env.into_iter().collect();
        let Files { sources, names: files } = read_files(dir)?;
        let findings = Findings::new(&sources, &env, dir);
        let tables: Vec<Option<Spanned<DeTable<'_>>>> = (0..sources.len()).map(|file| parse(&findings, file)).collect();
        let table = |file: usize| tables.get(file).and_then(|t| t.as_ref()).map(Spanned::get_ref);
        check_sections_of_environment(&findings);

        let main = Reader::top(&findings, 0, table(0), "");
        let server = sections::server(&main);
        let default_agent = server.default_agent;
        let twilio = sections::twilio(&main);
        let ReadModel { config: model, backend_place } = model::read(&main);
        let limits = sections::limits(&main);
        let audio = sections::audio(&main);
        let recording = sections::recording(&main);
        let executor = sections::executor(&main);
        let shared_hosts = sections::shared_hosts(&main);
        main.finish();

        let names = |kind: Kind| {
            files.iter().enumerate().filter(move |(_, (k, _))| *k == kind).map(|(i, (_, name))| (i, name.as_str()))
        };
        let mut tools: BTreeMap<ToolName, ToolConfig> = BTreeMap::new();
        for (file, name) in names(Kind::Tool) {
            check_name(&findings, file, name, "tool");
            if table(file).is_some() {
                let top = Reader::top(&findings, file, table(file), &format!("tools.{name}"));
                if let Some(tool) = tool::read(top, name, &shared_hosts) {
                    tools.insert(ToolName::new(name), tool);
                }
            }
        }
        let tool_names: Vec<&str> = names(Kind::Tool).map(|(_, name)| name).collect();
        let mut agents: BTreeMap<AgentId, AgentConfig> = BTreeMap::new();
        for (file, name) in names(Kind::Agent) {
            check_name(&findings, file, name, "agent");
            if table(file).is_some() {
                let top = Reader::top(&findings, file, table(file), &format!("agents.{name}"));
                if let Some(agent) = agent::read(top, name, &tool_names, &tools, &model) {
                    agents.insert(AgentId::new(name), agent);
                }
            }
        }
        let wants_backend = |agent: &AgentConfig| agent.provider == ModelProvider::GptLive;
        if model.delegation == LiveDelegation::Responses
            && model.backend_model.is_none()
            && agents.values().any(wants_backend)
        {
            let help = "name a model of the Responses API, or write `delegation = \"client\"`".to_owned();
            findings.mistake(&backend_place, "is missing: with `gpt_live` it is the one that calls tools", Some(help));
        }
        let agent_names: Vec<&str> = names(Kind::Agent).map(|(_, name)| name).collect();
        let default_agent = match (default_agent, agent_names.as_slice()) {
            (Some(named), all) => {
                if !all.contains(&named.value.as_str()) {
                    let message = format!("there is no agent `{}` in agents/", named.value);
                    findings.mistake(&named.place, message, did_you_mean(&named.value, all.iter().copied()));
                }
                Some(AgentId::new(named.value))
            }
            (None, []) => None,
            (None, [only]) => Some(AgentId::new(*only)),
            (None, all) => {
                findings.mistake(
                    &Place::Nowhere { key: "server.default_agent".to_owned() },
                    "is missing: there is more than one agent, and one must answer a call that names none",
                    Some(format!("one of {}", all.join(", "))),
                );
                None
            }
        };

        let main_file = sources[0].name.clone();
        let effective = findings.finish()?;
        // Every part that found no mistake is there; a part that is not there has told its mistake above.
        Ok(Self {
            server: server.config,
            twilio,
            model,
            limits,
            audio,
            recording,
            executor,
            agents,
            tools,
            default_agent,
            main_file,
            effective,
        })
    }
}

/// The main file first, whether it is there or not; then agents, then tools, each by name.
fn read_files(dir: &Path) -> Result<Files, ConfigErrors> {
    let unreadable = |path: &Path, message: String, help: Option<&str>| ConfigError {
        file: path.display().to_string(),
        line: 0,
        column: 0,
        key: String::new(),
        message,
        help: help.map(str::to_owned),
        source: None,
        span: 0..0,
    };
    if !dir.is_dir() {
        return Err(ConfigErrors(vec![unreadable(
            dir,
            "there is no such config folder".to_owned(),
            Some("it holds answerback.toml, agents/ and tools/"),
        )]));
    }
    let mut mistakes = Vec::new();
    let mut paths: Vec<(Kind, PathBuf)> = vec![(Kind::Main, dir.join("answerback.toml"))];
    for (kind, folder) in [(Kind::Agent, "agents"), (Kind::Tool, "tools")] {
        let folder = dir.join(folder);
        match std::fs::read_dir(&folder) {
            Ok(entries) => {
                let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                found.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
                found.sort();
                paths.extend(found.into_iter().map(|path| (kind, path)));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => mistakes.push(unreadable(&folder, format!("cannot be read: {e}"), None)),
        }
    }
    let mut sources = Vec::new();
    let mut files = Vec::new();
    for (kind, path) in paths {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if kind == Kind::Main && e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => {
                mistakes.push(unreadable(&path, format!("cannot be read: {e}"), None));
                String::new()
            }
        };
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        sources.push(Source { name: path.display().to_string(), text });
        files.push((kind, name));
    }
    if mistakes.is_empty() { Ok(Files { sources, names: files }) } else { Err(ConfigErrors(mistakes)) }
}

/// `None` when the file is not TOML; its meaning is not judged then.
fn parse<'a>(findings: &Findings<'a>, file: usize) -> Option<Spanned<DeTable<'a>>> {
    let sources: &'a [Source] = findings.sources;
    let (table, errors) = DeTable::parse_recoverable(&sources[file].text);
    findings.hide_secrets(file, table.get_ref());
    for error in &errors {
        let place = Place::File { file, span: error.span().unwrap_or(0..0), key: String::new() };
        findings.mistake(&place, format!("not TOML: {}", error.message()), None);
    }
    errors.is_empty().then_some(table)
}

/// The name goes to the model as a function name, and into tables and logs.
fn check_name(findings: &Findings<'_>, file: usize, name: &str, what: &str) {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        let place = Place::File { file, span: 0..0, key: String::new() };
        let message = format!("the file name `{name}` cannot name a {what}");
        findings.mistake(&place, message, Some("use up to 64 letters, digits, `_` and `-`".to_owned()));
    }
}

fn check_sections_of_environment(findings: &Findings<'_>) {
    for var in findings.env.keys() {
        let Some(rest) = var.strip_prefix(PREFIX) else { continue };
        let section = rest.split("__").next().unwrap_or(rest).to_ascii_lowercase();
        let place = Place::Environment { var: var.clone() };
        if !SECTIONS.contains(&section.as_str()) {
            findings.mistake(&place, format!("there is no section `{section}`"), did_you_mean(&section, SECTIONS));
        } else if !rest.contains("__") {
            let help = format!("write {PREFIX}{rest}__KEY");
            findings.mistake(&place, "names a section but no key", Some(help));
        }
    }
}
