//! rustls wants its cryptography chosen once a process.

use std::sync::Once;

pub(crate) fn choose_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that somebody chose before us, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
