//! What an operator sees when a provider does not do its part.

use models::link::{Due, Link, websocket_config};
use std::io::Write;
use std::sync::{Arc, Mutex};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use vocab::model::ModelEvent;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Of this thread, until the guard goes. At the level at which a server logs.
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::set_default(log.finish())
    }

    fn warnings(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(" WARN ") || line.contains("ERROR ")).map(str::to_owned).collect()
    }
}

async fn link() -> Link<tokio::io::DuplexStream> {
    let (ours, _theirs) = tokio::io::duplex(64);
    Link::over(WebSocketStream::from_raw_socket(ours, Role::Client, Some(websocket_config())).await)
}

fn complaint() -> ModelEvent {
    ModelEvent::ErrorReported { code: "invalid_value".into(), message: "unknown voice".into(), fatal: false }
}

#[tokio::test]
async fn a_complaint_before_the_session_is_ready_is_warned_of_and_a_later_one_is_the_calls() {
    let log = Log::default();
    let _guard = log.start();
    let mut link = link().await;
    link.tell(complaint());
    let told = log.warnings();
    let [line] = told.as_slice() else { panic!("{told:?}") };
    assert!(line.contains("invalid_value") && line.contains("unknown voice") && line.contains("before"), "{line}");
    link.tell(ModelEvent::SessionReady);
    link.tell(complaint());
    assert_eq!(log.warnings().len(), 1);
}

#[tokio::test]
async fn a_session_that_ends_before_it_is_ready_is_warned_of() {
    for (ready, warnings) in [(false, 1), (true, 0)] {
        let log = Log::default();
        let _guard = log.start();
        let mut link = link().await;
        if ready {
            link.tell(ModelEvent::SessionReady);
        }
        link.lose("closed by the provider with code 4000: no such model".into());
        assert!(matches!(link.due(), Some(Due::Event(ModelEvent::SessionLost { .. }))));
        let told = log.warnings();
        assert_eq!(told.len(), warnings, "{told:?}");
        assert!(told.iter().all(|line| line.contains("no such model")), "{told:?}");
    }
}
