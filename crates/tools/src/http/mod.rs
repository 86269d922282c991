//! Tools that are one HTTP request: a template filled with validated arguments, and an answer read for what it proves.
//!
//! `template.rs`, `request.rs`, `answer.rs` and `hosts.rs` are pure; `socket.rs` is the only file that awaits.

pub mod answer;
pub mod hosts;
pub mod request;
pub mod socket;
pub mod template;

pub use answer::AnswerRules;
pub use hosts::{AllowedHosts, HostRefused};
pub use request::{HeaderSource, Method, RequestTemplate};
pub use socket::{HttpClient, HttpClientError, HttpTool, http_tools, install_crypto};
pub use template::{BodyTemplate, Template, TemplateError, UrlTemplate};

use std::time::Duration;
use vocab::ToolName;

/// One HTTP tool as the config describes it.
#[derive(Clone, Debug)]
pub struct HttpToolSettings {
    pub name: ToolName,
    pub request: RequestTemplate,
    /// Asks the system of record whether a key took effect. `None` when it cannot be asked.
    pub look_up: Option<LookUpSettings>,
    pub rules: AnswerRules,
    /// One request, name resolution and the whole answer included; the attempt's own time left is the other bound.
    pub timeout: Duration,
    pub allowed_hosts: AllowedHosts,
    /// A longer answer is not read to its end.
    pub max_answer_bytes: usize,
}

/// The question to the system of record.
#[derive(Clone, Debug)]
pub struct LookUpSettings {
    pub request: RequestTemplate,
    /// JSON Pointer to the record inside the answer; `None` takes the whole answer.
    pub result: Option<String>,
}
