//! Each part of the outside world by itself, from a shell:
//!
//! ```text
//! outside booking    127.0.0.1:9100 bookings.jsonl
//! outside model      127.0.0.1:9200 model.toml
//! outside load-model 127.0.0.1:9200
//! outside call       https://voice.example.com/twilio/voice call.toml 127.0.0.1:8080     (token in AUTH_TOKEN)
//! outside load       ws://127.0.0.1:9000/ CALLS SECONDS [PID]
//! outside load-calls https://voice.example.com/twilio/voice 127.0.0.1:8080 CALLS SECONDS [PID]    (token in AUTH_TOKEN)
//! ```
//!
//! The load verbs print a table, or one line of JSON when `JSON` is set in the environment.

use sim::booking::{self, BookingConfig};
use sim::load::{self, LoadPlan, Target};
use sim::load_model::{self, LoadModelConfig};
use sim::model::{self, LoadedScript, ModelConfig};
use sim::phone::{CallScript, PhoneCall, PhoneConfig};
use std::error::Error;
use std::future::pending;
use std::path::Path;

// One core, as the load runs want it.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["booking", listen, file] => {
            let mut config = BookingConfig::new(file);
            config.listen = listen.parse()?;
            let server = booking::start(config).await?;
            println!("{}", server.url());
            pending::<()>().await;
        }
        ["model", listen, script] => {
            let mut config = ModelConfig::new(LoadedScript::read(Path::new(script))?);
            config.listen = listen.parse()?;
            let server = model::start(config).await?;
            println!("{}", server.base_url());
            pending::<()>().await;
        }
        ["load-model", listen] => {
            let config = LoadModelConfig { listen: listen.parse()?, ..LoadModelConfig::default() };
            let server = load_model::start(config).await?;
            println!("{}", server.base_url());
            pending::<()>().await;
        }
        ["call", voice_url, script, addr] => {
            let mut config = PhoneConfig::new(voice_url, std::env::var("AUTH_TOKEN")?);
            config.connect_addr = Some(addr.parse()?);
            config.audio_base = Path::new(script).parent().unwrap_or(Path::new(".")).to_owned();
            let result = PhoneCall::dial(config, &CallScript::read(Path::new(script))?).await?;
            println!("{}", serde_json::to_string_pretty(&result)?);
        }
        ["load", url, calls, seconds, ref rest @ ..] => {
            let plan = LoadPlan::new(Target::Stream { url: url.to_owned() }, calls.parse()?, seconds.parse()?);
            measure(plan, rest).await?;
        }
        ["load-calls", voice_url, addr, calls, seconds, ref rest @ ..] => {
            let target = Target::Webhook {
                voice_url: voice_url.to_owned(),
                auth_token: std::env::var("AUTH_TOKEN")?,
                connect_addr: Some(addr.parse()?),
            };
            let mut plan = LoadPlan::new(target, calls.parse()?, seconds.parse()?);
            plan.has_ears = true;
            measure(plan, rest).await?;
        }
        _ => {
            eprintln!("outside booking|model|load-model|call|load|load-calls …: see the head of this file");
            std::process::exit(2);
        }
    }
    Ok(())
}

async fn measure(mut plan: LoadPlan, rest: &[&str]) -> Result<(), Box<dyn Error>> {
    plan.pid = rest.first().map(|pid| pid.parse()).transpose()?;
    let report = load::run(plan).await?;
    match std::env::var_os("JSON") {
        Some(_) => println!("{}", serde_json::to_string(&report)?),
        None => print!("{report}"),
    }
    Ok(())
}
