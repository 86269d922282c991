//! Each part of the simulated outside world by itself.

use crate::args::{LogFormat, SimPart};
use crate::demo::world;
use crate::{FINE, call, logs};
use sim::{booking, load_model, model};
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;

pub(crate) async fn run(part: SimPart) -> anyhow::Result<ExitCode> {
    logs::start(LogFormat::Text, LevelFilter::WARN);
    match part {
        SimPart::Model { listen, script, api_key, wire_log, speed } => {
            let script = match script {
                Some(path) => model::LoadedScript::read(&path)?,
                None => world::model_script()?,
            };
            let mut config = model::ModelConfig::new(script);
            config.listen = listen;
            config.api_key = api_key;
            config.wire_log = wire_log;
            config.pace.speed = speed;
            let server = model::start(config).await?;
            outln!(
                "model at {} (set ANSWERBACK__MODEL__BASE_URL to it, and ANSWERBACK__MODEL__API_KEY); Ctrl-C ends it",
                server.base_url()
            );
            tokio::signal::ctrl_c().await?;
        }
        SimPart::Booking { listen, file, delay_before_commit_ms, delay_after_commit_ms } => {
            let mut config = booking::BookingConfig::new(file);
            config.listen = listen;
            config.switches.delay_before_commit_ms = delay_before_commit_ms;
            config.switches.delay_after_commit_ms = delay_after_commit_ms;
            let server = booking::start(config).await?;
            outln!("booking backend at {}/bookings; Ctrl-C ends it", server.url());
            tokio::signal::ctrl_c().await?;
        }
        SimPart::Phone(args) => return call::call(args).await,
        SimPart::LoadModel { listen, response_ms } => {
            let config = load_model::LoadModelConfig { listen, response_ms, ..Default::default() };
            let server = load_model::start(config).await?;
            outln!("load model at {} (set ANSWERBACK__MODEL__BASE_URL to it); Ctrl-C ends it", server.base_url());
            tokio::signal::ctrl_c().await?;
        }
    }
    Ok(FINE)
}
