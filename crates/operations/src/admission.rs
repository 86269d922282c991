//! What may become an operation. The checks run in the order of behaviour.md 4, as far as a contract can state them
//! today; each refusal is typed and can be spoken. Those that need the store (duplicates, queue) run inside its
//! transaction, in [`crate::ledger::admit`].

use crate::contract::ToolContract;
use crate::intent::{Intent, normalise};
use serde_json::Value;
use std::collections::BTreeMap;
use thiserror::Error;
use vocab::work::{Proposal, Refusal};
use vocab::{CallerId, SessionId, ToolName, WallTime};

/// Longest argument text taken from a model, in bytes. Far above any form that a caller can dictate.
pub const MAX_ARGUMENT_BYTES: usize = 16 * 1024;

/// Why a proposal was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RefusalReason {
    #[error("the agent has no tool `{0}`")]
    UnknownTool(ToolName),
    #[error("arguments of {0} bytes")]
    ArgumentsTooLarge(usize),
    #[error("arguments are not a JSON object")]
    ArgumentsNotJson,
    #[error("arguments break the schema: {0}")]
    ArgumentsInvalid(String),
    #[error("the deadline cannot be reached")]
    DeadlineUnreachable,
    #[error("the queue of the tool is full")]
    QueueFull,
    #[error("the response was sealed before")]
    BatchSealed,
    #[error("the session is not live under this epoch")]
    SessionClosed,
    #[error("the store cannot take it now")]
    StoreUnavailable,
    #[error("the server takes no new work")]
    Stopping,
}

impl RefusalReason {
    /// For programs; stable.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownTool(_) => "unknown_tool",
            Self::ArgumentsTooLarge(_) => "arguments_too_large",
            Self::ArgumentsNotJson => "arguments_not_json",
            Self::ArgumentsInvalid(_) => "arguments_invalid",
            Self::DeadlineUnreachable => "deadline_unreachable",
            Self::QueueFull => "queue_full",
            Self::BatchSealed => "batch_sealed",
            Self::SessionClosed => "session_closed",
            Self::StoreUnavailable => "store_unavailable",
            Self::Stopping => "stopping",
        }
    }

    /// A sentence that the model may speak from. Always true: nothing was started.
    pub fn say(&self) -> String {
        match self {
            Self::UnknownTool(tool) => format!("Nothing was done: there is no tool called {tool}."),
            Self::ArgumentsTooLarge(_) => "Nothing was done: the request was too long.".into(),
            Self::ArgumentsNotJson => "Nothing was done: the arguments were not a JSON object.".into(),
            Self::ArgumentsInvalid(why) => {
                format!("Nothing was done: some details are missing or not valid. {why}")
            }
            Self::DeadlineUnreachable => "Nothing was done: it could not have been finished in time.".into(),
            Self::QueueFull => "Nothing was done: too many such requests are waiting. Please try again shortly.".into(),
            Self::BatchSealed => "Nothing was done: the request came too late. It can be made again.".into(),
            Self::SessionClosed => "Nothing was done: this call is no longer open.".into(),
            Self::StoreUnavailable => {
                "Nothing was done: the request could not be recorded. Please try again shortly.".into()
            }
            Self::Stopping => "Nothing was done: no new requests are taken at the moment.".into(),
        }
    }

    pub fn refusal(&self) -> Refusal {
        Refusal { code: self.code().into(), say: self.say() }
    }
}

/// A contract that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContractError {
    #[error("tool `{tool}`: the parameters are no usable JSON Schema: {reason}")]
    Schema { tool: ToolName, reason: String },
    #[error("tool `{tool}` is defined twice")]
    Twice { tool: ToolName },
    #[error("tool `{tool}`: {what} must be at least 1")]
    Zero { tool: ToolName, what: &'static str },
}

struct CompiledTool {
    contract: ToolContract,
    schema: jsonschema::Validator,
}

/// All tools of the server; each schema compiled once.
pub struct ToolCatalog {
    tools: BTreeMap<ToolName, CompiledTool>,
}

/// A proposal that passed every check that needs no store.
#[derive(Clone, Debug)]
pub struct CheckedProposal {
    pub contract: ToolContract,
    pub arguments: Value,
    pub intent: Intent,
    pub resource: Option<String>,
    pub deadline_at: WallTime,
}

impl ToolCatalog {
    pub fn compile(contracts: Vec<ToolContract>) -> Result<Self, ContractError> {
        let mut tools = BTreeMap::new();
        for contract in contracts {
            let tool = contract.name.clone();
            for (what, value) in [
                ("deadline_ms", contract.deadline_ms),
                ("attempt_timeout_ms", contract.attempt_timeout_ms),
                ("retry.max_attempts", u64::from(contract.retry.max_attempts)),
                ("max_running", u64::from(contract.max_running)),
            ] {
                if value == 0 {
                    return Err(ContractError::Zero { tool, what });
                }
            }
            // Formats are checked too: 2026-02-30 is no date, whoever says it.
            let schema = jsonschema::options()
                .should_validate_formats(true)
                .build(&contract.parameters)
                .map_err(|error| ContractError::Schema { tool: tool.clone(), reason: error.to_string() })?;
            if tools.insert(tool.clone(), CompiledTool { contract, schema }).is_some() {
                return Err(ContractError::Twice { tool });
            }
        }
        Ok(Self { tools })
    }

    pub fn contract(&self, tool: &ToolName) -> Option<&ToolContract> {
        self.tools.get(tool).map(|tool| &tool.contract)
    }

    pub fn contracts(&self) -> impl Iterator<Item = &ToolContract> {
        self.tools.values().map(|tool| &tool.contract)
    }

    /// `allowed`: the tools of the active agent. `requested_at`: when the model's call reached us; the deadline runs
    /// from there, so that a slow admission eats into it.
    pub fn check(
        &self,
        allowed: &[ToolName],
        proposal: &Proposal,
        caller: &CallerId,
        session: &SessionId,
        requested_at: WallTime,
        now: WallTime,
    ) -> Result<CheckedProposal, RefusalReason> {
        let name = ToolName::new(proposal.tool.as_str());
        let tool = match self.tools.get(&name) {
            Some(tool) if allowed.contains(&name) => tool,
            Some(_) | None => {
                // The model's own words come back to it; a very long name is cut.
                return Err(RefusalReason::UnknownTool(ToolName(name.0.chars().take(64).collect())));
            }
        };
        if proposal.arguments.len() > MAX_ARGUMENT_BYTES {
            return Err(RefusalReason::ArgumentsTooLarge(proposal.arguments.len()));
        }
        // Some models write nothing at all where there is nothing to say.
        let text = if proposal.arguments.trim().is_empty() { "{}" } else { &proposal.arguments };
        let parsed: Value = serde_json::from_str(text).map_err(|_| RefusalReason::ArgumentsNotJson)?;
        if !parsed.is_object() {
            return Err(RefusalReason::ArgumentsNotJson);
        }
        let contract = &tool.contract;
        let arguments = normalise(parsed, &contract.parameters);
        let faults: Vec<String> = tool
            .schema
            .iter_errors(&arguments)
            .take(3)
            .map(|fault| {
                let place = fault.instance_path().to_string();
                let what: String = fault.to_string().chars().take(200).collect();
                if place.is_empty() { format!("{what}.") } else { format!("{place}: {what}.") }
            })
            .collect();
        if !faults.is_empty() {
            return Err(RefusalReason::ArgumentsInvalid(faults.join(" ")));
        }
        let intent = Intent::new(&name, caller, session, &arguments, &contract.intent_fields);
        let deadline_at = requested_at.plus_ms(contract.deadline_ms);
        if now >= deadline_at {
            return Err(RefusalReason::DeadlineUnreachable);
        }
        let resource = contract.resource.as_deref().map(|template| resource_name(template, &arguments));
        Ok(CheckedProposal { contract: contract.clone(), arguments, intent, resource, deadline_at })
    }
}

/// Fills `{/pointer}` in `template` with the argument found there; an absent one leaves nothing in its place, which
/// makes the resource wider, never narrower.
fn resource_name(template: &str, arguments: &Value) -> String {
    let mut name = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        name.push_str(before);
        let Some((pointer, tail)) = after.split_once('}') else {
            name.push('{');
            rest = after;
            continue;
        };
        match arguments.pointer(pointer) {
            Some(Value::String(text)) => name.push_str(text),
            Some(other) => name.push_str(&other.to_string()),
            None => {}
        }
        rest = tail;
    }
    name.push_str(rest);
    name
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
