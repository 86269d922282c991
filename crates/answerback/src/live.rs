//! The server's admin API, for whoever looks on at a call.

use anyhow::{Context, bail};
use operations::history::History;
use scenario::live::watch::watch;
use tokio::sync::mpsc;

pub(crate) use scenario::live::watch::{Live, Step};

/// Where a server's admin API is, and what opens it.
#[derive(Clone, Debug)]
pub(crate) struct AdminApi {
    /// No slash at its end.
    pub base: String,
    pub token: String,
}

/// Subscribes; what is received is complete from then on, and ends when the server does.
pub(crate) async fn subscribe(api: &AdminApi, client: &reqwest::Client) -> anyhow::Result<mpsc::Receiver<Live>> {
    let url = format!("{}/api/v1/events", api.base);
    let answer = client.get(&url).bearer_auth(&api.token).send().await.context("the server's live events")?;
    if !answer.status().is_success() {
        bail!("the server's live events are refused: {}", answer.status());
    }
    Ok(watch(answer))
}

/// What the server keeps of the session of a call.
pub(crate) async fn history(api: &AdminApi, client: &reqwest::Client, call_sid: &str) -> anyhow::Result<History> {
    let url = format!("{}/api/v1/calls/{call_sid}/history", api.base);
    let answer = client.get(&url).bearer_auth(&api.token).send().await.context("the call's history")?;
    if !answer.status().is_success() {
        bail!("the history of {call_sid} is refused: {}", answer.status());
    }
    answer.json().await.context("the call's history cannot be read")
}
