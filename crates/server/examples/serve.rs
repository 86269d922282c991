//! The complete server and nothing around it, for load runs and profiles: `serve CONFIG_DIR`, overrides in the environment.
//! Prints its address, serves until Ctrl-C. For everything else use the binary.

use server::config::Config;
use server::serve::Service;
use std::error::Error;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

fn main() -> Result<(), Box<dyn Error>> {
    server::runtime()?.block_on(serve())
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let dir = std::env::args().nth(1).ok_or("serve CONFIG_DIR")?;
    let service = Service::open(Config::load(&PathBuf::from(dir), std::env::vars())?).await?;
    println!("{}", service.local_addr());
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stopping.cancel();
    });
    service.run(stop).await;
    Ok(())
}
