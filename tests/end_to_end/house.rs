//! The whole house over real sockets: the server, the model's service, the booking backend and a caller on a carrier.
//! Real audio in real time, so these tests take seconds; what can be proven in virtual time is proven there.

use serde_json::Value;
use server::config::Config;
use server::serve::Service;
use sim::booking::{self, BookingConfig, BookingServer, Switches};
use sim::model::{self, LoadedScript, ModelConfig, ModelServer};
use sim::phone::{CallResult, CallScript, PhoneCall, PhoneConfig};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PUBLIC_URL: &str = "https://voice.test";
const AUTH_TOKEN: &str = "a test's auth token";
const ADMIN_TOKEN: &str = "a test's admin token";

pub struct House {
    pub address: SocketAddr,
    pub booking: BookingServer,
    pub model: ModelServer,
    dir: PathBuf,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl House {
    pub async fn open(name: &str, model_script: &str, switches: Switches) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = std::env::temp_dir().join(format!("answerback-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut config = BookingConfig::new(dir.join("bookings.jsonl"));
        config.switches = switches;
        let booking = booking::start(config).await.unwrap();
        let script = LoadedScript::parse(model_script, Path::new(".")).unwrap();
        let model = model::start(ModelConfig::new(script)).await.unwrap();
        let (address, stop, running) = Self::serve(&dir, &booking, &model).await;
        Self { address, booking, model, dir, stop, running }
    }

    async fn serve(
        dir: &Path,
        booking: &BookingServer,
        model: &ModelServer,
    ) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
        let config_dir = dir.join("config");
        copy_config(&config_dir, booking.addr);
        let env = [
            ("ANSWERBACK__SERVER__BIND", "127.0.0.1:0".to_owned()),
            ("ANSWERBACK__SERVER__PUBLIC_URL", PUBLIC_URL.to_owned()),
            ("ANSWERBACK__SERVER__DATA_DIR", dir.join("data").display().to_string()),
            ("ANSWERBACK__SERVER__DRAIN_GRACE_S", "2".to_owned()),
            ("ANSWERBACK__SERVER__ADMIN_TOKEN", ADMIN_TOKEN.to_owned()),
            ("ANSWERBACK__TWILIO__AUTH_TOKEN", AUTH_TOKEN.to_owned()),
            ("ANSWERBACK__MODEL__BASE_URL", model.base_url()),
            ("ANSWERBACK__MODEL__API_KEY", "a test's model key".to_owned()),
        ];
        let env = env.into_iter().map(|(key, value)| (key.to_owned(), value));
        let config = Config::load(&config_dir, env).unwrap_or_else(|errors| panic!("{errors}"));
        let service = Service::open(config).await.unwrap();
        let address = service.local_addr();
        let stop = CancellationToken::new();
        let until = stop.clone();
        let running = tokio::spawn(async move {
            service.run(until).await;
        });
        (address, stop, running)
    }

    /// A stop and a start on the same data.
    pub async fn restart(&mut self) {
        self.stop.cancel();
        (&mut self.running).await.unwrap();
        (self.address, self.stop, self.running) = Self::serve(&self.dir, &self.booking, &self.model).await;
    }

    pub fn phone(&self) -> PhoneConfig {
        let mut config = PhoneConfig::new(format!("{PUBLIC_URL}/twilio/voice"), AUTH_TOKEN);
        config.connect_addr = Some(self.address);
        config.max_seconds = 60;
        config
    }

    /// One call from dialling to its end.
    pub async fn call(&self, script: &str) -> CallResult {
        let script = CallScript::parse(script).unwrap();
        let result = PhoneCall::dial(self.phone(), &script).await.unwrap();
        assert_eq!(result.violations, [], "the carrier complains of nothing");
        result
    }

    /// What the store knows of a call.
    pub async fn history(&self, call_sid: &str) -> Value {
        let url = format!("http://{}/api/v1/calls/{call_sid}/history", self.address);
        let client = reqwest::Client::builder().build().unwrap();
        let answer = client.get(url).bearer_auth(ADMIN_TOKEN).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    }

    /// Every delivery state of a call, in order of age.
    pub async fn delivery_states(&self, call_sid: &str) -> Vec<String> {
        let history = self.history(call_sid).await;
        let text = |value: &Value| value["state"].as_str().unwrap_or_default().to_owned();
        each(&history["sessions"]).flat_map(|session| each(&session["deliveries"]).map(text)).collect()
    }

    pub async fn close(self) {
        self.stop.cancel();
        self.running.await.unwrap();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The example config, with the backend where this test has it.
fn copy_config(to: &Path, booking: SocketAddr) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    for folder in ["", "agents", "tools"] {
        std::fs::create_dir_all(to.join(folder)).unwrap();
        for entry in std::fs::read_dir(from.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.replace("127.0.0.1:9300", &booking.to_string());
                std::fs::write(to.join(folder).join(path.file_name().unwrap()), text).unwrap();
            }
        }
    }
}
