//! A call from end to end, over real sockets, with real audio.

mod booking_call;
mod crash;
mod house;
mod scripts;

use server::config::Config;
use server::serve::Service;
use tokio_util::sync::CancellationToken;

/// No test of its own: when [`house::CHILD_CONFIG`] is set, this is the server that another test started and may kill.
#[test]
fn server_child() {
    let Some(dir) = std::env::var_os(house::CHILD_CONFIG) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config::load(dir.as_ref(), std::env::vars()).unwrap_or_else(|errors| panic!("{errors}"));
        Service::open(config).await.unwrap().run(CancellationToken::new()).await;
    });
}
