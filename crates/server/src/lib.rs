//! The doors: Twilio's webhooks and stream, the admin API, health and metrics.
//!
//! Everything here fails closed: a webhook or an upgrade without a valid signature is refused, a stream without its one-time
//! token never reaches a model, the admin API stays shut without a token. What a call *does* is not here: a checked stream is
//! handed to a [`calls::CallStarter`].

pub mod calls;
pub mod config;
pub mod events;
pub mod measures;
mod recordings;
pub mod records;
pub mod serve;
pub mod settings;

mod admin;
mod doors;
mod health;
mod server;
mod twilio;
mod upgrade;

pub use health::ModelHealth;
pub use server::{DrainSwitch, Server, ServerError, Stopped, Wiring};

/// The runtime that a server wants: with one core, threads that hand work to each other only cost.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut builder = match cores {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build()
}
