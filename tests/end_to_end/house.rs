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
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PUBLIC_URL: &str = "https://voice.test";
const AUTH_TOKEN: &str = "a test's auth token";
const ADMIN_TOKEN: &str = "a test's admin token";

/// Names the config folder of a server child: see `server_child` in `main.rs`.
pub const CHILD_CONFIG: &str = "ANSWERBACK_TEST_CHILD_CONFIG";

pub struct House {
    pub address: SocketAddr,
    pub booking: BookingServer,
    pub model: ModelServer,
    dir: PathBuf,
    server: Running,
}

/// The server, in this process or as a child that can be killed.
enum Running {
    Here { stop: CancellationToken, task: JoinHandle<()> },
    Child(Child),
}

impl House {
    /// The server runs in this process.
    pub async fn open(name: &str, model_script: &str, switches: Switches) -> Self {
        let (dir, booking, model) = outside(name, model_script, switches).await;
        let config = Config::load(&dir.join("config"), environment(&dir, &model, 0));
        let service = Service::open(config.unwrap_or_else(|errors| panic!("{errors}"))).await.unwrap();
        let address = service.local_addr();
        let stop = CancellationToken::new();
        let until = stop.clone();
        let task = tokio::spawn(async move {
            service.run(until).await;
        });
        Self { address, booking, model, dir, server: Running::Here { stop, task } }
    }

    /// The server is a child process that dies at the named crash point.
    pub async fn open_to_crash(name: &str, model_script: &str, switches: Switches, crash_at: &str) -> Self {
        let (dir, booking, model) = outside(name, model_script, switches).await;
        // The port must be the same after the crash: the carrier comes back to the public URL.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = spawn_child(&dir, &model, address, Some(crash_at));
        let house = Self { address, booking, model, dir, server: Running::Child(child) };
        house.ready().await;
        house
    }

    /// Waits for the child's death and starts it again on the same data, without the crash point.
    pub async fn crash_and_restart(&mut self) {
        let Running::Child(child) = &mut self.server else { panic!("the server runs in this process") };
        let died = tokio::time::timeout(Duration::from_secs(30), child.wait()).await;
        let status = died.expect("the crash point was reached").unwrap();
        assert!(!status.success());
        self.server = Running::Child(spawn_child(&self.dir, &self.model, self.address, None));
        self.ready().await;
    }

    async fn ready(&self) {
        let client = reqwest::Client::builder().build().unwrap();
        let url = format!("http://{}/readyz", self.address);
        for _ in 0..200 {
            if client.get(&url).send().await.is_ok_and(|answer| answer.status() == 200) {
                return;
            }
            // A child process tells nobody that it listens; asking again is all there is.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the server does not become ready");
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

    /// Where the server keeps its recordings.
    pub fn recordings(&self) -> PathBuf {
        self.dir.join("data/recordings")
    }

    /// Stops the server, shows `last` what it left behind, and takes everything away.
    pub async fn close_after(self, last: impl FnOnce(&Self)) {
        let mut house = self;
        house.stop().await;
        last(&house);
        let _ = std::fs::remove_dir_all(&house.dir);
    }

    pub async fn close(self) {
        self.close_after(|_| {}).await;
    }

    async fn stop(&mut self) {
        match &mut self.server {
            Running::Here { stop, task } => {
                stop.cancel();
                task.await.unwrap();
            }
            Running::Child(child) => child.kill().await.unwrap(),
        }
    }
}

/// Everything but the server, and the config that leads the server to it.
async fn outside(name: &str, model_script: &str, switches: Switches) -> (PathBuf, BookingServer, ModelServer) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = std::env::temp_dir().join(format!("answerback-test-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let mut config = BookingConfig::new(dir.join("bookings.jsonl"));
    config.switches = switches;
    let booking = booking::start(config).await.unwrap();
    let script = LoadedScript::parse(model_script, Path::new(".")).unwrap();
    let model = model::start(ModelConfig::new(script)).await.unwrap();
    copy_config(&dir.join("config"), booking.addr);
    (dir, booking, model)
}

fn environment(dir: &Path, model: &ModelServer, port: u16) -> Vec<(String, String)> {
    [
        ("ANSWERBACK__SERVER__BIND", format!("127.0.0.1:{port}")),
        ("ANSWERBACK__SERVER__PUBLIC_URL", PUBLIC_URL.to_owned()),
        ("ANSWERBACK__SERVER__DATA_DIR", dir.join("data").display().to_string()),
        ("ANSWERBACK__SERVER__DRAIN_GRACE_S", "2".to_owned()),
        ("ANSWERBACK__SERVER__ADMIN_TOKEN", ADMIN_TOKEN.to_owned()),
        ("ANSWERBACK__TWILIO__AUTH_TOKEN", AUTH_TOKEN.to_owned()),
        ("ANSWERBACK__MODEL__BASE_URL", model.base_url()),
        ("ANSWERBACK__MODEL__API_KEY", "a test's model key".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// This test program once more, as nothing but a server.
fn spawn_child(dir: &Path, model: &ModelServer, address: SocketAddr, crash_at: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "server_child", "--nocapture"])
        .env(CHILD_CONFIG, dir.join("config"))
        .envs(environment(dir, model, address.port()))
        .stdout(Stdio::null())
        .kill_on_drop(true);
    match crash_at {
        Some(point) => command.env("ANSWERBACK_CRASH_AT", point),
        None => command.env_remove("ANSWERBACK_CRASH_AT"),
    };
    command.spawn().unwrap()
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
