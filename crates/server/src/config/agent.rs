//! `agents/*.toml`: who speaks, in which words, with which tools and habits.

use super::model::{self, ModelConfig, ModelProvider};
use super::policy;
use super::reader::Reader;
use super::sections::unknown_name;
use super::tool::ToolConfig;
use conversation::Policy;
use std::collections::BTreeMap;
use vocab::{AgentId, ToolName};

#[derive(Clone, Debug)]
pub struct AgentConfig {
    pub id: AgentId,
    /// What the model is told for the whole call.
    pub instructions: String,
    /// Directions for the first response; `None` lets the caller speak first.
    pub greeting: Option<String>,
    /// The agent's own, or that of `[model]`.
    pub provider: ModelProvider,
    /// The agent's own, or that of `[model]`.
    pub voice: String,
    /// The agent's own, or that of its provider.
    pub model: String,
    /// ISO 639-1.
    pub language: Option<String>,
    pub tools: Vec<ToolName>,
    /// With GPT-Live and `delegation = "client"`: the tool that does what the model wants done.
    pub delegate_tool: Option<ToolName>,
    /// Calls are recorded where `[recording]` is on: `false` where callers have not consented.
    pub record: bool,
    pub policy: Policy,
}

pub(super) fn read(
    r: Reader<'_, '_>,
    name: &str,
    tool_names: &[&str],
    known_tools: &BTreeMap<ToolName, ToolConfig>,
    model: &ModelConfig,
) -> Option<AgentConfig> {
    let help = "write `instructions = \"\"\"…\"\"\"`, or `instructions_file` with a path";
    let instructions = match r.text("instructions_file") {
        Some(path) => {
            if r.has("instructions") {
                r.findings.mistake(&path.place, "there are `instructions` as well: one of them must go", None);
                r.text("instructions");
            }
            let text = r.file(&path)?;
            if text.trim().is_empty() {
                r.findings.mistake(&path.place, format!("the file `{}` is empty", path.value), None);
            }
            Some(text)
        }
        None => r.required_text("instructions", help).map(|text| text.value),
    };
    let language = r.text("language");
    if let Some(language) = &language
        && !(language.value.len() == 2 && language.value.bytes().all(|b| b.is_ascii_lowercase()))
    {
        r.findings.mistake(&language.place, "must be two letters of ISO 639-1, such as `en`", None);
    }
    let mut tools: Vec<ToolName> = Vec::new();
    for tool in r.texts("tools") {
        if !tool_names.contains(&tool.value.as_str()) {
            unknown_name(&r, &tool, "tool", tool_names);
        } else if tools.iter().any(|known| known.as_str() == tool.value) {
            r.findings.mistake(&tool.place, format!("`{}` is named twice", tool.value), None);
        } else {
            tools.push(ToolName::new(tool.value));
        }
    }
    let greeting = r.text("greeting").map(|text| text.value).filter(|text| !text.trim().is_empty());
    let provider = model::provider(&r, model.provider);
    let delegate_tool = model::delegate_tool(&r, provider, model, &tools, known_tools);
    let voice = r.text_or("voice", &model.voice).value;
    let model = r.text_or("model", model.model_of(provider)).value;
    let record = r.flag_or("record", true);
    let policy = policy::read(&r, provider);
    r.finish();
    let instructions = instructions?;
    let language = language.map(|language| language.value);
    Some(AgentConfig {
        id: AgentId::new(name),
        instructions,
        greeting,
        provider,
        voice,
        model,
        language,
        tools,
        delegate_tool,
        record,
        policy,
    })
}
