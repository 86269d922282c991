//! The TLS configuration of model sockets: rustls with ring and the roots of the operating system, loaded once a process.

use crate::ModelError;
use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, Mutex, PoisonError};

/// One configuration for all calls: sessions are resumed across them, and the roots are in memory once. A failure is not
/// kept, so that an operator who installs the certificates need not restart.
static CONFIG: Mutex<Option<Arc<ClientConfig>>> = Mutex::new(None);

/// Reads files on first use: call it where blocking is allowed.
pub fn client_config() -> Result<Arc<ClientConfig>, ModelError> {
    let mut kept = CONFIG.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(config) = &*kept {
        return Ok(config.clone());
    }
    install_provider();
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    if added == 0 {
        return Err(ModelError::NoTrustedRoots { reason: format!("{:?}", loaded.errors) });
    }
    let config = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    *kept = Some(config.clone());
    Ok(config)
}

/// Makes ring the process's provider unless one is installed already; harmless to repeat.
pub fn install_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Losing the race to another thread is the same outcome.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
