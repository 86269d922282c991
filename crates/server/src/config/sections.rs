//! The sections of `answerback.toml`. Defaults stand here, with their reason.

use super::findings::{Located, did_you_mean};
use super::reader::Reader;
use audio::Detector;
use audio::voice_activity::{Aggressiveness, NETWORK_THRESHOLD};
use secrecy::SecretString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tools::http::AllowedHosts;
use url::{Host, Url};

/// `[server]`
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub bind: SocketAddr,
    /// Where Twilio reaches us. Without a trailing slash, query or fragment; https, or http on loopback.
    pub public_url: Option<Url>,
    /// Database, recordings, lock file.
    pub data_dir: PathBuf,
    /// Calls at once; the next one is told that all lines are busy.
    pub max_calls: usize,
    /// How long a stopping server waits for its calls.
    pub drain_grace: Duration,
    /// `None` keeps the admin API closed.
    pub admin_token: Option<SecretString>,
}

/// `[twilio]`. Requests are always verified; there is no switch.
#[derive(Clone, Debug)]
pub struct TwilioConfig {
    /// Accounts (`AC…`) whose calls we take; empty takes any that signs with our secret.
    pub account_sids: Vec<String>,
    pub auth_token: Option<SecretString>,
    /// Accepted beside `auth_token` while it is rotated.
    pub auth_token_next: Option<SecretString>,
    /// Key id and secret of requests that are signed with a SharedKey.
    pub shared_keys: Vec<(String, SecretString)>,
}

impl TwilioConfig {
    /// The secrets to verify with, the current one first.
    pub fn auth_tokens(&self) -> Vec<SecretString> {
        self.auth_token.iter().chain(&self.auth_token_next).cloned().collect()
    }
}

/// `[limits]`
#[derive(Clone, Debug)]
pub struct LimitsConfig {
    /// From the upgrade to a valid `start`.
    pub start_timeout: Duration,
    /// A stream without any media for this long is dead.
    pub media_timeout: Duration,
    /// One WebSocket message of the carrier; a media frame is about 400 bytes.
    pub max_frame_bytes: usize,
    /// A call is ended after this, whatever happens.
    pub max_call: Duration,
    /// Upgraded sockets that have not shown a valid `start` yet.
    pub max_waiting_streams: usize,
    pub max_connections: usize,
    /// A request body; Twilio's posts stay below 4 KiB.
    pub max_body_bytes: usize,
    /// From serving the TwiML to the `start` that brings the token back.
    pub token_ttl: Duration,
    /// For a request's headers to arrive.
    pub header_timeout: Duration,
    /// For a request that is no stream; Twilio gives a webhook 15 s.
    pub request_timeout: Duration,
    /// For a cancelled call to close before its task is ended.
    pub close_cap: Duration,
    /// New streams offered to one call, one after the other, before it is given up.
    pub resume_attempts: u32,
    /// A stream that lived this long starts the count of `resume_attempts` again.
    pub steady_stream: Duration,
}

/// How willing the WebRTC detector is to reject: the library's own four modes.
/// `[audio]`
#[derive(Clone, Debug)]
pub struct AudioConfig {
    pub detector: Detector,
}

/// `[recording]`
#[derive(Clone, Debug)]
pub struct RecordingConfig {
    /// Every call of an agent that allows it writes its input log and audio.
    pub enabled: bool,
    /// Kept this long …
    pub keep: Duration,
    /// … and no more than this altogether; the oldest go first.
    pub max_bytes: u64,
}

/// `[executor]`
#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// Operations that run at once, over all tools.
    pub workers: usize,
    /// "Not found" is no proof before this long after an outcome became unknown.
    pub settle_ms: u64,
    /// Look-ups of an unknown outcome back off from this …
    pub look_up_base_ms: u64,
    /// … to this.
    pub look_up_cap_ms: u64,
    /// Look-ups without an answer before a person is needed.
    pub max_look_ups: u32,
}

pub(super) struct ReadServer {
    pub config: ServerConfig,
    pub default_agent: Option<Located<String>>,
}

pub(super) fn server(main: &Reader<'_, '_>) -> ReadServer {
    let s = main.section("server");
    const BIND: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
    let bind = if s.has("bind") {
        s.parsed("bind", "an address and a port, such as `0.0.0.0:8080`", |text| text.parse().ok())
    } else {
        s.text_or("bind", "127.0.0.1:8080");
        None
    };
    let public_url = s.text("public_url").and_then(|text| {
        let wrong = |message: &str, help: &str| {
            s.findings.mistake(&text.place, message, Some(help.to_owned()));
            None
        };
        let Ok(url) = Url::parse(&text.value) else {
            return wrong("must be a URL", "for example `https://voice.example.com`");
        };
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(&url) => {}
            _ => {
                let help = "plain http is only for simulated calls on this machine, as `http://127.0.0.1:8080`";
                return wrong("must be an https URL", help);
            }
        }
        if url.query().is_some() || url.fragment().is_some() {
            return wrong("must have no `?` and no `#`", "paths are added to it");
        }
        if !url.username().is_empty() || url.password().is_some() {
            s.findings.hide(&text.place);
            return wrong("must hold no user name and no password", "Twilio's requests are verified by signature");
        }
        Some(url)
    });
    let config = ServerConfig {
        bind: bind.map_or(BIND, |b| b.value),
        public_url,
        data_dir: PathBuf::from(s.filled_or("data_dir", "data").value),
        max_calls: s.number_or("max_calls", 300, 1..=100_000).value as usize,
        drain_grace: Duration::from_secs(s.number_or("drain_grace_s", 30, 0..=86_400).value),
        admin_token: s.secret("admin_token", None),
    };
    let default_agent = s.text("default_agent");
    s.finish();
    ReadServer { config, default_agent }
}

pub(super) fn twilio(main: &Reader<'_, '_>) -> TwilioConfig {
    let s = main.section("twilio");
    let account_sids = s.texts("account_sids");
    for sid in &account_sids {
        let fits = sid.value.len() == 34 && sid.value.starts_with("AC");
        if !fits || !sid.value[2..].bytes().all(|b| b.is_ascii_hexdigit()) {
            s.findings.mistake(&sid.place, "must be an account SID: `AC` and 32 hex digits", None);
        }
    }
    let keys = s.table("shared_keys");
    let mut shared_keys = Vec::new();
    for id in keys.names() {
        let key = keys.table(&id);
        if let Some(secret) = named_secret(&key) {
            shared_keys.push((id, secret));
        }
        key.finish();
    }
    keys.finish();
    let config = TwilioConfig {
        account_sids: account_sids.into_iter().map(|sid| sid.value).collect(),
        auth_token: s.secret("auth_token", None),
        auth_token_next: s.secret("auth_token_next", None),
        shared_keys,
    };
    s.finish();
    config
}

/// A table `{ env = "NAME" }` or `{ file = "path" }`: a secret under a name that the operator chose.
pub(super) fn named_secret(table: &Reader<'_, '_>) -> Option<SecretString> {
    let env = table.text("env");
    let file = table.text("file");
    match (env, file) {
        (Some(var), None) => match table.findings.env.get(&var.value).filter(|text| !text.is_empty()) {
            Some(text) => Some(SecretString::from(text.as_str())),
            None => {
                let message = format!("the environment variable {} is not set", var.value);
                table.findings.mistake(&var.place, message, None);
                None
            }
        },
        (None, Some(path)) => table.secret_file(&path).map(|(text, _)| SecretString::from(text)),
        (Some(_), Some(_)) | (None, None) => {
            let help = "write `env = \"NAME\"` or `file = \"path\"`".to_owned();
            table.findings.mistake(&table.place, "must name one source of the secret", Some(help));
            None
        }
    }
}

pub(super) fn limits(main: &Reader<'_, '_>) -> LimitsConfig {
    let s = main.section("limits");
    let ms = |key, default, range| Duration::from_millis(s.number_or(key, default, range).value);
    let seconds = |key, default, range| Duration::from_secs(s.number_or(key, default, range).value);
    let count = |key, default, range| s.number_or(key, default, range).value as usize;
    let config = LimitsConfig {
        start_timeout: ms("start_timeout_ms", 5_000, 100..=60_000),
        media_timeout: ms("media_timeout_ms", 15_000, 1_000..=600_000),
        max_frame_bytes: count("max_frame_bytes", 65_536, 1_024..=16_777_216),
        max_call: seconds("max_call_s", 3_600, 1..=86_400),
        max_waiting_streams: count("max_waiting_streams", 64, 1..=100_000),
        max_connections: count("max_connections", 2_048, 1..=1_000_000),
        max_body_bytes: count("max_body_bytes", 65_536, 4_096..=16_777_216),
        token_ttl: seconds("token_ttl_s", 60, 1..=600),
        header_timeout: ms("header_timeout_ms", 10_000, 100..=60_000),
        request_timeout: ms("request_timeout_ms", 10_000, 100..=60_000),
        close_cap: ms("close_cap_ms", 2_000, 0..=60_000),
        resume_attempts: s.number_or("resume_attempts", 5, 0..=100).value as u32,
        steady_stream: ms("steady_stream_ms", 30_000, 0..=3_600_000),
    };
    s.finish();
    config
}

pub(super) fn audio(main: &Reader<'_, '_>) -> AudioConfig {
    #[derive(Clone, Copy)]
    enum Kind {
        Webrtc,
        Earshot,
        Cascade,
    }
    let s = main.section("audio");
    let kinds = [("cascade", Kind::Cascade), ("webrtc", Kind::Webrtc), ("earshot", Kind::Earshot)];
    let kind = s.choice("detector", "cascade", &kinds);
    let other = |key: &str, owners: &str| {
        // A detector that is misspelt owns no key.
        if s.has(key) && kind.is_some() {
            let message = format!("belongs to `detector = {owners}`");
            s.findings.mistake(&s.place_of(key), message, None);
        }
    };
    let detector = match kind {
        Some(Kind::Webrtc) => {
            let mode = s.choice(
                "mode",
                "very_aggressive",
                &[
                    ("quality", Aggressiveness::Quality),
                    ("low_bitrate", Aggressiveness::LowBitrate),
                    ("aggressive", Aggressiveness::Aggressive),
                    ("very_aggressive", Aggressiveness::VeryAggressive),
                ],
            );
            other("threshold", "\"cascade\"` or `\"earshot\"");
            Detector::Webrtc { mode: mode.unwrap_or(Aggressiveness::VeryAggressive) }
        }
        Some(Kind::Earshot) => {
            other("mode", "\"webrtc\"");
            Detector::Earshot { threshold: s.share_or("threshold", NETWORK_THRESHOLD) }
        }
        Some(Kind::Cascade) | None => {
            other("mode", "\"webrtc\"");
            Detector::Cascade { threshold: s.share_or("threshold", NETWORK_THRESHOLD) }
        }
    };
    s.finish();
    AudioConfig { detector }
}

pub(super) fn recording(main: &Reader<'_, '_>) -> RecordingConfig {
    let s = main.section("recording");
    let config = RecordingConfig {
        enabled: s.flag_or("enabled", true),
        keep: Duration::from_secs(s.number_or("keep_days", 30, 1..=3_650).value * 86_400),
        max_bytes: s.number_or("max_mb", 10_000, 1..=100_000_000).value << 20,
    };
    s.finish();
    config
}

pub(super) fn executor(main: &Reader<'_, '_>) -> ExecutorConfig {
    let s = main.section("executor");
    let base = s.number_or("look_up_base_ms", 500, 10..=3_600_000);
    let cap = s.number_or("look_up_cap_ms", 300_000, 10..=86_400_000);
    if base.value > cap.value {
        let message = format!("must not be above look_up_cap_ms ({})", cap.value);
        s.findings.mistake(&base.place, message, None);
    }
    let config = ExecutorConfig {
        workers: s.number_or("workers", 32, 1..=10_000).value as usize,
        settle_ms: s.number_or("settle_ms", 5_000, 0..=3_600_000).value,
        look_up_base_ms: base.value,
        look_up_cap_ms: cap.value,
        // A backend that is down for a night is asked through it: 500 at five minutes are more than a day.
        max_look_ups: s.number_or("max_look_ups", 500, 1..=1_000_000).value as u32,
    };
    s.finish();
    config
}

/// `[tools] allowed_hosts`: hosts that every tool may talk to.
pub(super) fn shared_hosts(main: &Reader<'_, '_>) -> AllowedHosts {
    let s = main.section("tools");
    let mut hosts = AllowedHosts::default();
    read_hosts(&s, &mut hosts);
    s.finish();
    hosts
}

pub(super) fn read_hosts(reader: &Reader<'_, '_>, hosts: &mut AllowedHosts) {
    for entry in reader.texts("allowed_hosts") {
        if let Err(message) = hosts.allow(&entry.value) {
            reader.findings.mistake(&entry.place, message, None);
        }
    }
}

pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// For names that one file gives and another must know.
pub(super) fn unknown_name(reader: &Reader<'_, '_>, name: &Located<String>, what: &str, known: &[&str]) {
    let help = did_you_mean(&name.value, known.iter().copied());
    reader.findings.mistake(&name.place, format!("there is no {what} `{}`", name.value), help);
}
