//! The config: defaults here, then `answerback.toml`, then `agents/*.toml` and `tools/*.toml`, then the environment
//! (`ANSWERBACK__SECTION__KEY`). Strict: an unknown key is a mistake, and all mistakes are told at once with their place.
//! Secrets come from the environment or from files, and are never printed.

mod agent;
mod findings;
mod load;
mod mistake;
mod model;
mod policy;
mod print;
mod reader;
mod sections;
mod tool;

#[cfg(test)]
mod tests;

pub use agent::AgentConfig;
pub use mistake::{ConfigError, ConfigErrors, Drawing};
pub use model::{LiveDelegation, ModelConfig, ModelProvider};
pub use sections::{AudioConfig, ExecutorConfig, LimitsConfig, RecordingConfig, ServerConfig, TwilioConfig};
pub use tool::ToolConfig;

use crate::settings::{Limits, ServerSettings, TwilioSettings};
use conversation::policy::TurnEnd;
use findings::Effective;
use models::{SessionConfig, ToolSpec, TurnDetection};
use operations::contract::ToolContract;
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::path::Path;
use tools::http::HttpToolSettings;
use vocab::{AgentId, ToolName};

/// A config without a mistake.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: ServerConfig,
    pub twilio: TwilioConfig,
    pub model: ModelConfig,
    pub limits: LimitsConfig,
    pub audio: AudioConfig,
    pub recording: RecordingConfig,
    pub executor: ExecutorConfig,
    /// By file name without `.toml`.
    pub agents: BTreeMap<AgentId, AgentConfig>,
    /// By file name without `.toml`.
    pub tools: BTreeMap<ToolName, ToolConfig>,
    /// `[server] default_agent`, or the only agent there is. `None` only without any agent.
    default_agent: Option<AgentId>,
    main_file: String,
    effective: Vec<Effective>,
}

impl Config {
    pub fn agent(&self, id: &AgentId) -> Option<&AgentConfig> {
        self.agents.get(id)
    }

    /// Who answers a call that names no agent.
    pub fn default_agent(&self) -> Option<&AgentConfig> {
        self.agents.get(self.default_agent.as_ref()?)
    }

    /// Every tool with what runs it, for the executor's registry.
    pub fn registered_tools(&self) -> Vec<(ToolContract, HttpToolSettings)> {
        self.tools.values().map(|tool| (tool.contract.clone(), tool.http.clone())).collect()
    }

    /// What a model session of this agent is opened with. Without a key the key is empty, which only a model on
    /// loopback accepts ([`Config::ready_to_serve`]).
    pub fn session_config(&self, agent: &AgentConfig) -> SessionConfig {
        let tools = agent.tools.iter().filter_map(|name| self.tools.get(name)).map(|tool| ToolSpec {
            name: tool.contract.name.as_str().to_owned(),
            description: tool.contract.description.clone(),
            parameters: tool.contract.parameters.clone(),
        });
        SessionConfig {
            provider: self.model.provider_settings(agent.provider, agent.delegate_tool.as_ref()),
            base_url: self.model.base_url.as_str().trim_end_matches('/').to_owned(),
            model: agent.model.clone(),
            api_key: self.model.api_key.clone().unwrap_or_else(|| SecretString::from(String::new())),
            instructions: agent.instructions.clone(),
            voice: agent.voice.clone(),
            language: agent.language.clone(),
            transcription: self.model.transcription.clone(),
            tools: tools.collect(),
            turn_detection: match agent.policy.turn.end {
                TurnEnd::Model => TurnDetection::SemanticEvents { eagerness: self.model.eagerness },
                TurnEnd::Local => TurnDetection::Off,
            },
        }
    }

    /// What the doors are told.
    pub fn server_settings(&self, agent: AgentId) -> ServerSettings {
        let caps = &self.limits;
        ServerSettings {
            bind: self.server.bind,
            public_url: self.server.public_url.clone(),
            twilio: TwilioSettings {
                account_sids: self.twilio.account_sids.clone(),
                auth_tokens: self.twilio.auth_tokens(),
                shared_keys: self.twilio.shared_keys.clone(),
            },
            admin_token: self.server.admin_token.clone(),
            agent,
            limits: Limits {
                max_calls: self.server.max_calls,
                max_waiting_streams: caps.max_waiting_streams,
                max_connections: caps.max_connections,
                max_body_bytes: caps.max_body_bytes,
                max_frame_bytes: caps.max_frame_bytes,
                token_ttl: caps.token_ttl,
                start_timeout: caps.start_timeout,
                header_timeout: caps.header_timeout,
                request_timeout: caps.request_timeout,
                drain_grace: self.server.drain_grace,
                close_cap: caps.close_cap,
                resume_attempts: caps.resume_attempts,
                steady_stream: caps.steady_stream,
            },
        }
    }

    /// What a config may leave out for a demo or a check, but not for taking calls from Twilio.
    pub fn ready_to_serve(&self) -> Result<(), ConfigErrors> {
        let mut missing = Vec::new();
        let mut needs = |given: bool, key: &str, message: &str, help: &str| {
            if !given {
                missing.push(ConfigError {
                    file: self.main_file.clone(),
                    line: 0,
                    column: 0,
                    key: key.to_owned(),
                    message: message.to_owned(),
                    help: Some(help.to_owned()),
                    source: None,
                    span: 0..0,
                });
            }
        };
        needs(
            self.server.public_url.is_some(),
            "server.public_url",
            "is needed to take calls: Twilio signs its requests over it",
            &format!(
                "set ANSWERBACK__SERVER__PUBLIC_URL to the https address at which Twilio reaches this server; for simulated \
                 calls on this machine, to http://127.0.0.1:{}",
                self.server.bind.port()
            ),
        );
        needs(
            self.twilio.auth_token.is_some() || !self.twilio.shared_keys.is_empty(),
            "twilio.auth_token",
            "is needed to take calls: without it no request can be verified",
            "set ANSWERBACK__TWILIO__AUTH_TOKEN, or `auth_token_file` to a file that holds it; for simulated calls, to any \
             words",
        );
        needs(
            self.model.api_key.is_some() || sections::is_loopback(&self.model.base_url),
            "model.api_key",
            "is needed: only a model on this machine works without one",
            "set OPENAI_API_KEY, or `api_key_file` to a file that holds it",
        );
        missing.extend(self.without_agent());
        if missing.is_empty() { Ok(()) } else { Err(ConfigErrors(missing)) }
    }

    /// The mistake of a config whose `agents/` is empty, if it is.
    pub fn without_agent(&self) -> Option<ConfigError> {
        let folder = Path::new(&self.main_file).with_file_name("agents");
        self.agents.is_empty().then(|| ConfigError {
            file: folder.display().to_string(),
            line: 0,
            column: 0,
            key: String::new(),
            message: "holds no agent: nobody would answer a call".to_owned(),
            help: Some(format!(
                "write one, such as {} with `instructions = \"…\"`",
                folder.join("host.toml").display()
            )),
            source: None,
            span: 0..0,
        })
    }

    /// The config in force, as TOML, each value with its origin; secrets only as `"<set>"` or `"<unset>"`.
    pub fn print(&self) -> String {
        print::print(&self.effective)
    }
}
