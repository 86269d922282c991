//! The only file of the HTTP edge that awaits.

use super::answer::{self, Answer, Failure, Received};
use super::request::{BuiltRequest, RequestTemplate};
use super::{AllowedHosts, HostRefused, HttpToolSettings};
use crate::{BoxFuture, LookUp, Tool, ToolOutcome, ToolRequest};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use secrecy::ExposeSecret;
use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use vocab::ToolName;

/// Resolving, connecting and the TLS handshake. Running out here proves that nothing was sent, running out later does
/// not; so it is well under the default attempt timeout of 10 s. Linux repeats a lost SYN after 1 s and 3 s.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(3_500);

/// Makes ring the process's TLS provider. May be called any number of times, from anywhere.
pub fn install_crypto() {
    // An error only says that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// Most often the system's root certificates are missing (package `ca-certificates`).
    #[error("the HTTP client cannot be built: {0}")]
    Build(#[source] reqwest::Error),
}

/// One connection pool, for all tools with the same allowed hosts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: reqwest::Client,
    allowed: Arc<AllowedHosts>,
}

impl HttpClient {
    pub fn new(allowed: AllowedHosts) -> Result<Self, HttpClientError> {
        install_crypto();
        let allowed = Arc::new(allowed);
        let client = reqwest::Client::builder()
            .user_agent(concat!("answerback/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            // A retry would be an attempt that nobody recorded.
            .retry(reqwest::retry::never())
            // A proxy resolves names by itself, past our guard.
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .dns_resolver(Arc::new(GuardedResolver { allowed: allowed.clone() }))
            .build()
            .map_err(HttpClientError::Build)?;
        Ok(Self { client, allowed })
    }
}

/// Resolves by the system, then drops every address that the list does not permit.
struct GuardedResolver {
    allowed: Arc<AllowedHosts>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.allowed.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let permitted: Vec<SocketAddr> =
                found.iter().copied().filter(|address| allowed.permits_resolved(address.ip())).collect();
            match (permitted.is_empty(), found.first()) {
                (true, Some(first)) => {
                    Err(HostRefused::PrivateAddress { name: name.as_str().to_owned(), address: first.ip() }.into())
                }
                (true, None) | (false, _) => Ok(Box::new(permitted.into_iter()) as Addrs),
            }
        })
    }
}

/// An HTTP tool, set up.
#[derive(Debug)]
pub struct HttpTool {
    settings: HttpToolSettings,
    client: HttpClient,
}

impl HttpTool {
    pub fn new(settings: HttpToolSettings, client: HttpClient) -> Self {
        Self { settings, client }
    }

    async fn send(&self, template: &RequestTemplate, request: &ToolRequest) -> Result<Answer, Failure> {
        let built = template.build(request).map_err(|e| Failure::NotAllowed(e.to_string()))?;
        self.client.allowed.check_url(&built.url).map_err(|e| Failure::NotAllowed(e.to_string()))?;
        let timeout = request.timeout.min(self.settings.timeout);
        if timeout.is_zero() {
            return Err(Failure::NotSent("no time left".to_owned()));
        }
        let mut response = self.prepare(built)?.timeout(timeout).send().await.map_err(failure)?;
        let status = response.status().as_u16();
        let retry_after = response.headers().contains_key(RETRY_AFTER);
        let limit = self.settings.max_answer_bytes;
        let mut body = Vec::new();
        let body = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > limit => break Received::TooLong,
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break Received::Whole(body),
                Err(e) => break Received::CutOff(words(&e.without_url())),
            }
        };
        tracing::debug!(tool = %self.settings.name, operation = %request.operation, attempt = request.attempt, status, "answered");
        Ok(Answer { status, retry_after, body })
    }

    fn prepare(&self, built: BuiltRequest) -> Result<reqwest::RequestBuilder, Failure> {
        let method = match built.method {
            super::Method::Get => reqwest::Method::GET,
            super::Method::Post => reqwest::Method::POST,
            super::Method::Put => reqwest::Method::PUT,
            super::Method::Patch => reqwest::Method::PATCH,
            super::Method::Delete => reqwest::Method::DELETE,
        };
        let mut prepared = self.client.client.request(method, built.url);
        for (name, value) in built.headers {
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|_| Failure::NotAllowed(format!("the header {name} does not fit")))?;
            // Never shown by the client's own debug output.
            value.set_sensitive(true);
            prepared = prepared.header(name, value);
        }
        Ok(match built.body {
            Some(body) => prepared.header(CONTENT_TYPE, "application/json").body(body),
            None => prepared,
        })
    }
}

impl Tool for HttpTool {
    fn run(&self, request: ToolRequest) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let rules = &self.settings.rules;
            match self.send(&self.settings.request, &request).await {
                Ok(answer) => {
                    let outcome = answer::outcome(rules, request.attempt, &answer);
                    if let Some(why) = answer::complaint(rules, answer.status, &outcome) {
                        let (tool, operation, attempt) = (&self.settings.name, &request.operation, request.attempt);
                        tracing::warn!(%tool, %operation, attempt, why, "the backend did not confirm");
                    }
                    outcome
                }
                Err(failure) => {
                    self.log(&request, &failure);
                    answer::outcome_of_failure(rules.effect, failure)
                }
            }
        })
    }

    fn look_up(&self, request: ToolRequest) -> Option<BoxFuture<'_, LookUp>> {
        let look_up = self.settings.look_up.as_ref()?;
        Some(Box::pin(async move {
            match self.send(&look_up.request, &request).await {
                Ok(answer) => {
                    let found = answer::look_up(look_up.result.as_deref(), &answer, &self.settings.rules);
                    if let LookUp::Unanswered { reason } = &found {
                        let (tool, operation) = (&self.settings.name, &request.operation);
                        tracing::warn!(%tool, %operation, why = reason, "the look-up was not answered");
                    }
                    found
                }
                Err(failure) => {
                    self.log(&request, &failure);
                    answer::look_up_failure(failure)
                }
            }
        }))
    }
}

impl HttpTool {
    fn log(&self, request: &ToolRequest, failure: &Failure) {
        let (tool, operation, attempt) = (&self.settings.name, &request.operation, request.attempt);
        match failure {
            Failure::NotAllowed(why) => tracing::error!(%tool, %operation, attempt, why, "request refused by us"),
            Failure::NotSent(why) => tracing::warn!(%tool, %operation, attempt, why, "backend not reached"),
            Failure::Lost(why) => tracing::warn!(%tool, %operation, attempt, why, "answer lost"),
        }
    }
}

/// Sets up every tool; tools with the same allowed hosts share one client.
pub fn http_tools(all: Vec<HttpToolSettings>) -> Result<BTreeMap<ToolName, Arc<dyn Tool>>, HttpClientError> {
    let mut clients: BTreeMap<AllowedHosts, HttpClient> = BTreeMap::new();
    let mut tools: BTreeMap<ToolName, Arc<dyn Tool>> = BTreeMap::new();
    for settings in all {
        let client = match clients.get(&settings.allowed_hosts) {
            Some(client) => client.clone(),
            None => {
                let client = HttpClient::new(settings.allowed_hosts.clone())?;
                clients.insert(settings.allowed_hosts.clone(), client.clone());
                client
            }
        };
        tools.insert(settings.name.clone(), Arc::new(HttpTool::new(settings, client)));
    }
    Ok(tools)
}

fn failure(error: reqwest::Error) -> Failure {
    // The URL holds arguments; they do not belong into a reason.
    let error = error.without_url();
    let mut source: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(cause) = source {
        if let Some(refused) = cause.downcast_ref::<HostRefused>() {
            return Failure::NotAllowed(refused.to_string());
        }
        source = cause.source();
    }
    if error.is_builder() {
        Failure::NotAllowed(words(&error))
    } else if error.is_connect() {
        Failure::NotSent(words(&error))
    } else if error.is_timeout() {
        Failure::Lost("timed out".to_owned())
    } else {
        Failure::Lost(words(&error))
    }
}

/// The error and its causes, in one line.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
