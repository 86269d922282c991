//! `[model]`: whose model answers, and how it is reached.

use super::findings::Place;
use super::reader::Reader;
use super::sections::is_loopback;
use super::tool::ToolConfig;
use models::gpt_live::REQUEST_ARGUMENT;
use models::{Delegation, Eagerness, GptLiveSettings, Provider};
use secrecy::SecretString;
use std::collections::BTreeMap;
use url::Url;
use vocab::ToolName;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelProvider {
    OpenaiRealtime,
    GptLive,
}

impl ModelProvider {
    const fn default_model(self) -> &'static str {
        match self {
            Self::OpenaiRealtime => "gpt-realtime-2.1",
            Self::GptLive => "gpt-live-1",
        }
    }
}

/// Who does what a GPT-Live model wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveDelegation {
    /// A backend model of the provider, with the agent's tools.
    Responses,
    /// We do, with one tool.
    Client,
}

/// `[model]`
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// Unless an agent has its own.
    pub provider: ModelProvider,
    /// `wss://`, or `ws://` on loopback.
    pub base_url: Url,
    /// Of this provider; an agent with another one has that one's default, or its own.
    pub model: String,
    pub api_key: Option<SecretString>,
    pub voice: String,
    /// Model of the caller's transcript; `None` turns transcripts off. GPT-Live transcribes by itself.
    pub transcription: Option<String>,
    pub eagerness: Eagerness,
    /// With GPT-Live.
    pub delegation: LiveDelegation,
    /// Of `LiveDelegation::Responses`. Whoever uses that has it.
    pub backend_model: Option<String>,
    /// The backend's own; `None` gives it the agent's.
    pub backend_instructions: Option<String>,
}

impl ModelConfig {
    pub(super) fn model_of(&self, provider: ModelProvider) -> &str {
        if provider == self.provider { &self.model } else { provider.default_model() }
    }

    /// What a session of an agent is opened with.
    pub(super) fn provider_settings(&self, provider: ModelProvider, delegate_tool: Option<&ToolName>) -> Provider {
        let delegation = match (provider, self.delegation) {
            (ModelProvider::OpenaiRealtime, _) => return Provider::OpenAiRealtime,
            (ModelProvider::GptLive, LiveDelegation::Client) => {
                Delegation::Client { tool: delegate_tool.map(|tool| tool.as_str().to_owned()) }
            }
            (ModelProvider::GptLive, LiveDelegation::Responses) => Delegation::Responses {
                model: self.backend_model.clone().unwrap_or_default(),
                instructions: self.backend_instructions.clone(),
            },
        };
        Provider::GptLive(GptLiveSettings { delegation })
    }
}

pub(super) struct ReadModel {
    pub config: ModelConfig,
    /// Where a missing `backend_model` is told.
    pub backend_place: Place,
}

/// The words of `provider`, in `[model]` and in an agent.
pub(super) fn provider(reader: &Reader<'_, '_>, default: ModelProvider) -> ModelProvider {
    const CHOICES: &[(&str, ModelProvider)] =
        &[("openai_realtime", ModelProvider::OpenaiRealtime), ("gpt_live", ModelProvider::GptLive)];
    let word = CHOICES.iter().find(|(_, choice)| *choice == default).map_or("", |(word, _)| *word);
    reader.choice("provider", word, CHOICES).unwrap_or(default)
}

pub(super) fn read(main: &Reader<'_, '_>) -> ReadModel {
    const BASE_URL: &str = "wss://api.openai.com/v1";
    let s = main.section("model");
    let provider = provider(&s, ModelProvider::OpenaiRealtime);
    let text = s.text_or("base_url", BASE_URL);
    let base_url = match Url::parse(&text.value) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            // It would be printed and logged, and it is not sent: the key is.
            s.findings.hide(&text.place);
            let help = "the provider is shown the key: OPENAI_API_KEY, or `api_key_file`".to_owned();
            s.findings.mistake(&text.place, "must hold no user name and no password", Some(help));
            None
        }
        Ok(url) if url.scheme() == "wss" || (url.scheme() == "ws" && is_loopback(&url)) => Some(url),
        Ok(_) | Err(_) => {
            let help = "plain `ws://` only to 127.0.0.1: the key would travel in the open".to_owned();
            s.findings.mistake(&text.place, "must be a `wss://` URL", Some(help));
            None
        }
    };
    let transcription = s.text_or("transcription", "gpt-transcribe").value;
    let eagerness = s.choice(
        "eagerness",
        "auto",
        &[("low", Eagerness::Low), ("medium", Eagerness::Medium), ("high", Eagerness::High), ("auto", Eagerness::Auto)],
    );
    let delegation = s.choice(
        "delegation",
        "responses",
        &[("responses", LiveDelegation::Responses), ("client", LiveDelegation::Client)],
    );
    let filled = |key: &str| s.text(key).map(|text| text.value).filter(|text| !text.trim().is_empty());
    let config = ModelConfig {
        provider,
        // Loopback where the real one has a mistake; such a config never leaves `load`.
        base_url: base_url.unwrap_or_else(loopback),
        model: s.filled_or("model", provider.default_model()).value,
        api_key: s.secret("api_key", Some("OPENAI_API_KEY")),
        voice: s.filled_or("voice", "marin").value,
        transcription: (transcription != "off").then_some(transcription),
        eagerness: eagerness.unwrap_or(Eagerness::Auto),
        delegation: delegation.unwrap_or(LiveDelegation::Responses),
        backend_model: filled("backend_model"),
        backend_instructions: filled("backend_instructions"),
    };
    let backend_place = s.place_of("backend_model");
    s.finish();
    ReadModel { config, backend_place }
}

/// Which tool of an agent a delegation to us becomes a call of.
pub(super) fn delegate_tool(
    agent: &Reader<'_, '_>,
    provider: ModelProvider,
    model: &ModelConfig,
    tools: &[ToolName],
    known: &BTreeMap<ToolName, ToolConfig>,
) -> Option<ToolName> {
    let named = agent.text("delegate_tool");
    if provider != ModelProvider::GptLive || model.delegation != LiveDelegation::Client {
        if let Some(named) = named {
            let message = "belongs to `provider = \"gpt_live\"` with `delegation = \"client\"` in [model]";
            agent.findings.mistake(&named.place, message, None);
        }
        return None;
    }
    let Some(named) = named else {
        if !tools.is_empty() {
            let help = "with `delegation = \"client\"` the model only says that it wants something done".to_owned();
            let message = "is missing: it names the one tool that this agent can call";
            agent.findings.mistake(&agent.place_of("delegate_tool"), message, Some(help));
        }
        return None;
    };
    if !tools.iter().any(|tool| tool.as_str() == named.value) {
        agent.findings.mistake(&named.place, format!("`{}` is not among the agent's `tools`", named.value), None);
        return None;
    }
    if let Some(other) = tools.iter().find(|tool| tool.as_str() != named.value) {
        let message = format!("`{other}` can never be called beside it");
        let help = "leave it out of `tools`, or use `delegation = \"responses\"`".to_owned();
        agent.findings.mistake(&named.place, message, Some(help));
    }
    let tool = ToolName::new(named.value.as_str());
    // A tool with a mistake of its own has told it.
    if let Some(config) = known.get(&tool)
        && !takes_a_request(&config.contract.parameters)
    {
        let message = format!("`{tool}` must take a text `{REQUEST_ARGUMENT}` and require nothing else");
        let help = format!("what the caller said is its only argument: [parameters.properties] {REQUEST_ARGUMENT}");
        agent.findings.mistake(&named.place, message, Some(help));
    }
    Some(tool)
}

fn takes_a_request(parameters: &serde_json::Value) -> bool {
    let required = parameters["required"].as_array().into_iter().flatten();
    parameters["properties"][REQUEST_ARGUMENT]["type"] == "string"
        && required.into_iter().all(|name| name == REQUEST_ARGUMENT)
}

fn loopback() -> Url {
    Url::parse("ws://127.0.0.1").expect("a constant URL")
}
