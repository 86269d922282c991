mod places;

use super::*;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use secrecy::ExposeSecret;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use vocab::effect::EffectClass;

/// A config folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("answerback-config-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = Self(std::env::temp_dir().join(name));
        for (path, text) in files {
            let path = folder.0.join(path);
            std::fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        folder
    }

    fn load(&self, env: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        Config::load(&self.0, env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
    }

    /// Each mistake as it is shown, with the folder's own path left out.
    fn mistakes(&self, env: &[(&str, &str)]) -> Vec<String> {
        let errors = self.load(env).expect_err("a mistake");
        let prefix = format!("{}/", self.0.display());
        errors.0.iter().map(|e| e.to_string().replace(&prefix, "")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const AGENT: &str = "instructions = \"Be kind.\"\ntools = [\"book\"]\n";
const TOOL: &str = r#"description = "Books."
effect = "keyed"
[parameters]
type = "object"
required = ["size"]
[parameters.properties]
size = { type = "integer" }
name = { type = "string" }
[http]
url = "https://api.example.com/book"
allowed_hosts = ["api.example.com"]
"#;

fn good(main: &str) -> Folder {
    Folder::new(&[("answerback.toml", main), ("agents/anna.toml", AGENT), ("tools/book.toml", TOOL)])
}

#[track_caller]
fn assert_mistake(mistakes: &[String], expected: &str) {
    assert_eq!(mistakes, [expected]);
}

#[test]
fn a_file_that_is_not_toml_is_told_once_and_its_meaning_is_not_judged() {
    let mistakes = good("[server\nbind = 1").mistakes(&[]);
    assert!(mistakes[0].starts_with("answerback.toml:1:8: not TOML: "), "{mistakes:?}");
    // A tool whose file is broken is still a tool that agents may name.
    let folder = Folder::new(&[("agents/anna.toml", AGENT), ("tools/book.toml", "description = ")]);
    let mistakes = folder.mistakes(&[]);
    assert!(mistakes.iter().all(|m| m.starts_with("tools/book.toml:1:")), "{mistakes:?}");
}

#[test]
fn all_mistakes_of_all_files_are_told_at_once() {
    let folder = Folder::new(&[
        ("answerback.toml", "[server]\nbnd = 1\nmax_calls = 0\n[modle]"),
        ("agents/anna.toml", "tools = [\"x\"]\n[policy.gate]\nquiet_ms = 1"),
        ("tools/book.toml", "effect = \"x\""),
    ]);
    let mistakes = folder.mistakes(&[("ANSWERBACK__SERVER__BIND", "x"), ("ANSWERBACK__NOPE__BIND", "x")]);
    let files: Vec<_> = mistakes.iter().map(|m| m.split(':').next().expect("a file")).collect();
    let count = |file: &str| files.iter().filter(|f| **f == file).count();
    assert_eq!(count("answerback.toml"), 3, "{mistakes:#?}");
    assert_eq!(count("agents/anna.toml"), 3, "{mistakes:#?}");
    assert_eq!(count("tools/book.toml"), 3, "{mistakes:#?}");
    assert_eq!(count("environment"), 2, "{mistakes:#?}");
    let all = folder.load(&[]).expect_err("mistakes").to_string();
    assert!(all.starts_with("the config has 9 mistakes\n  "), "{all}");
}

#[test]
fn the_environment_overrides_and_is_checked_as_strictly() {
    let folder = good("[server]\nbind = \"127.0.0.1:1\"\nmax_calls = 7");
    let config = folder
        .load(&[
            ("ANSWERBACK__SERVER__BIND", "0.0.0.0:99"),
            ("ANSWERBACK__LIMITS__MAX_CALL_S", "60"),
            (
                "ANSWERBACK__TWILIO__ACCOUNT_SIDS",
                "AC00000000000000000000000000000001, AC00000000000000000000000000000002",
            ),
            ("ANSWERBACK__MODEL__VOICE", ""),
            ("PATH", "/bin"),
        ])
        .expect("good");
    assert_eq!(config.server.bind.to_string(), "0.0.0.0:99");
    assert_eq!(config.server.max_calls, 7);
    assert_eq!(config.limits.max_call, Duration::from_secs(60));
    assert_eq!(config.twilio.account_sids.len(), 2);
    assert_eq!(config.model.voice, "marin", "an empty variable is none");
    for (var, value, expected) in [
        (
            "ANSWERBACK__SERVER__MAX_CALLS",
            "many",
            "environment: ANSWERBACK__SERVER__MAX_CALLS: must be a whole number from 1 to 100000",
        ),
        (
            "ANSWERBACK__SERVER__BIND",
            "x",
            "environment: ANSWERBACK__SERVER__BIND: must be an address and a port, such as `0.0.0.0:8080`",
        ),
        (
            "ANSWERBACK__SERVER__BINDD",
            "x",
            "environment: ANSWERBACK__SERVER__BINDD: unknown key (did you mean `bind`?)",
        ),
        (
            "ANSWERBACK__SERVR__BIND",
            "x",
            "environment: ANSWERBACK__SERVR__BIND: there is no section `servr` (did you mean `server`?)",
        ),
        (
            "ANSWERBACK__SERVER",
            "x",
            "environment: ANSWERBACK__SERVER: names a section but no key (write ANSWERBACK__SERVER__KEY)",
        ),
        (
            "ANSWERBACK__TWILIO__SHARED_KEYS",
            "x",
            "environment: ANSWERBACK__TWILIO__SHARED_KEYS: `shared_keys` is a table; it cannot be set from the environment",
        ),
    ] {
        assert_mistake(&folder.mistakes(&[(var, value)]), expected);
    }
}

#[test]
fn secrets_come_from_the_environment_or_files_and_are_never_shown() {
    let tool = format!("{TOOL}[http.secret_headers.Authorization]\nenv = \"BOOKING_KEY\"\nprefix = \"Bearer \"\n");
    let folder = Folder::new(&[
        (
            "answerback.toml",
            "[server]\nadmin_token_file = \"admin\"\n[twilio.shared_keys.SK1]\nfile = \"shared\"\n[twilio]\n",
        ),
        ("admin", "hush-admin\n"),
        ("shared", "hush-shared\r\n"),
        ("agents/anna.toml", AGENT),
        ("tools/book.toml", &tool),
    ]);
    let config = folder
        .load(&[
            ("OPENAI_API_KEY", "hush-model"),
            ("ANSWERBACK__TWILIO__AUTH_TOKEN", "hush-twilio"),
            ("BOOKING_KEY", "hush-booking"),
        ])
        .expect("good");
    let shown = |secret: &Option<SecretString>| secret.as_ref().map(|s| s.expose_secret().to_owned());
    assert_eq!(shown(&config.server.admin_token).as_deref(), Some("hush-admin"));
    assert_eq!(shown(&config.model.api_key).as_deref(), Some("hush-model"));
    assert_eq!(shown(&config.twilio.auth_token).as_deref(), Some("hush-twilio"));
    assert_eq!(config.twilio.shared_keys[0].1.expose_secret(), "hush-shared");
    assert_eq!(config.twilio.auth_tokens().len(), 1);
    let printed = config.print();
    assert!(!format!("{config:?}{printed}").contains("hush"), "a secret shows");
    assert!(printed.contains("api_key = \"<set>\" # environment OPENAI_API_KEY\n"), "{printed}");
    assert!(printed.contains("auth_token_next = \"<unset>\" # default\n"), "{printed}");
}

#[test]
fn a_secret_in_the_config_is_a_mistake_that_does_not_repeat_it() {
    let draw = |error: &ConfigErrors| {
        let mut picture = String::new();
        GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
            .render_report(&mut picture, &Drawing::from(error.clone()) as &dyn Diagnostic)
            .expect("drawn");
        picture
    };
    let help = "set ANSWERBACK__TWILIO__AUTH_TOKEN in the environment, or `auth_token_file` to a file that holds it";
    // Drawn next to another mistake, under a misspelt name, and in a file that is not TOML.
    for main in [
        "[twilio]\nauth_token = \"hush\"\nstream_pth = \"/x\"",
        "[twillio]\nauth_token = \"hush\"",
        "[twilio]\nauth_tokn = \"hush\"\nstream_pth = \"/x\"",
        "[twilio]\nauth_token = \"hush\nstream_pth = \"/x\"",
        "[model]\nbase_url = \"wss://ann:hush@api.example.com/v1\"",
        "[server]\npublic_url = \"https://ann:hush@voice.example.com\"",
    ] {
        let errors = good(main).load(&[("ANSWERBACK__TWILIO__AUTH_TOKEN", "x")]).expect_err("a mistake");
        let picture = draw(&errors);
        assert!(!picture.contains("hush") && !format!("{errors:?}{errors}").contains("hush"), "{picture}");
    }
    let errors = good("[twilio]\nauth_token = \"hush\"").load(&[]).expect_err("a mistake");
    assert_eq!((errors.0[0].line, errors.0[0].column, errors.0[0].key.as_str()), (2, 14, "twilio.auth_token"));
    assert_eq!(errors.0[0].help.as_deref(), Some(help));
    assert!(draw(&errors).contains("auth_token = ******"), "{}", draw(&errors));
    let tool = TOOL.replace("[http]", "[http.headers]\nauthorization = \"Bearer hush\"\n[http]");
    let errors = Folder::new(&[("tools/book.toml", &tool)]).load(&[]).expect_err("a mistake");
    assert!(errors.0[0].help.as_deref().is_some_and(|h| h.contains("[http.secret_headers.authorization]")), "{errors}");
    assert!(!draw(&errors).contains("hush"));
}

#[test]
fn what_is_printed_is_toml_with_the_origin_of_each_value() {
    let config = good("[server]\nmax_calls = 7").load(&[("ANSWERBACK__MODEL__VOICE", "cedar")]).expect("good");
    let printed = config.print();
    let table: toml::Table = printed.parse().expect("TOML");
    assert_eq!(table["server"]["max_calls"].as_integer(), Some(7));
    assert_eq!(table["agents"]["anna"]["policy"]["gate"]["quiet_ms"].as_integer(), Some(650));
    assert_eq!(table["agents"]["anna"]["voice"].as_str(), Some("cedar"));
    assert_eq!(table["tools"]["book"]["parameters"]["required"][0].as_str(), Some("size"));
    for line in [
        "answerback.toml:2\n",
        "voice = \"cedar\" # environment ANSWERBACK__MODEL__VOICE\n",
        "start_timeout_ms = 5000 # default\n",
    ] {
        assert!(printed.contains(line), "{line} in {printed}");
    }
}

#[test]
fn an_empty_folder_means_the_defaults_and_a_missing_one_is_a_mistake() {
    let folder = Folder::new(&[("keep", "")]);
    let config = folder.load(&[]).expect("defaults");
    assert_eq!(config.server.bind.to_string(), "127.0.0.1:8080");
    assert_eq!(config.model.model, "gpt-realtime-2.1");
    assert!(config.default_agent().is_none());
    let missing = config.ready_to_serve().expect_err("not ready").0;
    let keys: Vec<_> = missing.iter().map(|mistake| mistake.key.as_str()).collect();
    assert_eq!(keys, ["server.public_url", "twilio.auth_token", "model.api_key", ""]);
    assert!(missing[3].file.ends_with("agents"), "an empty folder is named: {}", missing[3].file);
    let errors = Config::load(&folder.0.join("nowhere"), []).expect_err("a mistake");
    assert!(errors.to_string().contains("nowhere: there is no such config folder"), "{errors}");
}

#[test]
fn one_of_several_agents_must_be_named_to_answer() {
    let agent = "instructions = \"x\"";
    let folder = |main| Folder::new(&[("answerback.toml", main), ("agents/a.toml", agent), ("agents/b.toml", agent)]);
    assert_mistake(
        &folder("").mistakes(&[]),
        "answerback.toml: server.default_agent: is missing: there is more than one agent, and one must answer a call that names none (one of a, b)",
    );
    let config = folder("[server]\ndefault_agent = \"b\"").load(&[]).expect("good");
    assert_eq!(config.default_agent().expect("named").id, AgentId::new("b"));
}

#[test]
fn the_example_config_loads_and_says_what_it_promises() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let config = Config::load(&dir, []).unwrap_or_else(|e| panic!("{e}"));
    let blue_door = config.default_agent().expect("blue_door answers");
    assert_eq!(blue_door.id, AgentId::new("blue_door"));
    assert!(blue_door.instructions.contains("committed") && blue_door.instructions.contains("accepted"));
    let tools = config.registered_tools();
    assert_eq!(tools.len(), 2);
    let (book, http) = &tools[0];
    assert_eq!((book.name.as_str(), book.effect), ("book_table", EffectClass::Keyed));
    assert_eq!((book.inline_wait_ms, book.deadline_ms, book.attempt_timeout_ms), (700, 30_000, 10_000));
    assert_eq!((book.retry.max_attempts, book.retry.base_ms, book.retry.cap_ms), (5, 200, 5_000));
    assert_eq!((book.max_running, book.max_queued), (16, 64));
    assert!(http.look_up.is_some() && http.request.with_key);
    assert_eq!(tools[1].0.effect, EffectClass::Read);
    let session = config.session_config(blue_door);
    assert_eq!(session.base_url, "wss://api.openai.com/v1");
    assert_eq!(session.tools.len(), 2);
    // The main file says that its values are the defaults.
    let folder = Folder::new(&[("keep", "")]);
    let defaults = folder.load(&[]).expect("defaults").print();
    let mut defaults: toml::Table = defaults.parse().expect("TOML");
    let example: toml::Table =
        std::fs::read_to_string(dir.join("answerback.toml")).expect("there").parse().expect("TOML");
    for (section, values) in example {
        for (key, value) in values.as_table().expect("a section") {
            let default = defaults.get_mut(&section).and_then(|s| s.as_table_mut()).and_then(|s| s.remove(key));
            // An empty list and an absent one are the same.
            let empty = toml::Value::Array(Vec::new());
            assert_eq!(&default.unwrap_or(empty), value, "{section}.{key}");
        }
    }
}

const LIVE: &str = "[model]\nprovider = \"gpt_live\"\nbackend_model = \"backend-1\"";
const ASK: &str = r#"description = "Asks the house."
effect = "read"
[parameters]
type = "object"
required = ["request"]
[parameters.properties]
request = { type = "string" }
[http]
url = "https://api.example.com/ask"
allowed_hosts = ["api.example.com"]
"#;

#[test]
fn words_that_claim_success_are_a_list_of_texts_in_the_agents_language() {
    let agent = |words: &str| format!("instructions = \"x\"\n[policy.claims]\nwords = {words}");
    let load = |words: &str| Folder::new(&[("agents/anna.toml", &agent(words))]);
    let folder = load("[\"ist gebucht\"]");
    let config = folder.load(&[]).expect("no mistake");
    assert_eq!(config.default_agent().expect("there is one").policy.claims.words, ["ist gebucht"]);
    assert!(config.print().contains("words = [\"ist gebucht\"]"));
    let folder = load("[]");
    assert!(
        folder.load(&[]).expect("no mistake").default_agent().expect("there is one").policy.claims.words.is_empty()
    );
    for wrong in ["\"ist gebucht\"", "[1]"] {
        let mistakes = load(wrong).mistakes(&[]);
        let told = |mistake: &String| {
            mistake.starts_with("agents/anna.toml:3:9: policy.claims.words: must be a list of texts")
        };
        assert!(mistakes.iter().any(told), "{mistakes:?}");
    }
}

#[test]
fn gpt_live_has_a_backend_with_the_agents_tools_or_one_tool_of_ours() {
    let config = good(LIVE).load(&[]).expect("no mistake");
    let anna = config.default_agent().expect("there is one");
    assert_eq!((anna.model.as_str(), anna.policy.turn.end), ("gpt-live-1", TurnEnd::Local));
    let settings = |config: &Config| config.session_config(config.default_agent().expect("there is one")).provider;
    let delegation = models::Delegation::Responses { model: "backend-1".into(), instructions: None };
    assert_eq!(settings(&config), models::Provider::GptLive(models::GptLiveSettings { delegation }));
    let shown = config.print();
    let provider = shown.lines().find(|line| line.starts_with("provider")).expect("it is shown");
    assert!(
        provider.starts_with("provider = \"gpt_live\" # ") && provider.ends_with("answerback.toml:2"),
        "{provider}"
    );
    assert!(shown.contains("end = \"local\" # default") && shown.contains("delegation = \"responses\" # default"));

    // An agent may have its own, with the model of that one.
    let agent = format!("provider = \"gpt_live\"\n{AGENT}");
    let folder = Folder::new(&[
        ("answerback.toml", "[model]\nbackend_model = \"backend-1\"\nmodel = \"my-realtime\""),
        ("agents/anna.toml", &agent),
        ("tools/book.toml", TOOL),
    ]);
    let config = folder.load(&[]).expect("no mistake");
    assert_eq!(config.default_agent().expect("there is one").model, "gpt-live-1");

    let folder = Folder::new(&[
        ("answerback.toml", "[model]\nprovider = \"gpt_live\"\ndelegation = \"client\""),
        ("agents/anna.toml", "instructions = \"x\"\ntools = [\"ask\"]\ndelegate_tool = \"ask\""),
        ("tools/ask.toml", ASK),
    ]);
    let config = folder.load(&[]).expect("no mistake");
    let delegation = models::Delegation::Client { tool: Some("ask".into()) };
    assert_eq!(settings(&config), models::Provider::GptLive(models::GptLiveSettings { delegation }));
}

#[test]
fn each_mistake_about_gpt_live_is_told_with_its_place() {
    let client = "[model]\nprovider = \"gpt_live\"\ndelegation = \"client\"";
    for (main, agent, expected) in [
        (
            "[model]\nprovider = \"gpt_live\"",
            "instructions = \"x\"",
            "answerback.toml:1:2: model.backend_model: is missing: with `gpt_live` it is the one that calls tools (name a model of the Responses API, or write `delegation = \"client\"`)",
        ),
        (
            LIVE,
            "instructions = \"x\"\n[policy.turn]\nend = \"model\"",
            "agents/anna.toml:3:7: policy.turn.end: must be `local`: `gpt_live` does not say where a turn ends",
        ),
        (
            LIVE,
            "instructions = \"x\"\ndelegate_tool = \"ask\"",
            "agents/anna.toml:2:17: delegate_tool: belongs to `provider = \"gpt_live\"` with `delegation = \"client\"` in [model]",
        ),
        (
            client,
            "instructions = \"x\"\ntools = [\"ask\"]",
            "agents/anna.toml:1:1: delegate_tool: is missing: it names the one tool that this agent can call (with `delegation = \"client\"` the model only says that it wants something done)",
        ),
        (
            client,
            "instructions = \"x\"\ndelegate_tool = \"ask\"",
            "agents/anna.toml:2:17: delegate_tool: `ask` is not among the agent's `tools`",
        ),
        (
            client,
            "instructions = \"x\"\ntools = [\"ask\", \"book\"]\ndelegate_tool = \"ask\"",
            "agents/anna.toml:3:17: delegate_tool: `book` can never be called beside it (leave it out of `tools`, or use `delegation = \"responses\"`)",
        ),
        (
            client,
            "instructions = \"x\"\ntools = [\"book\"]\ndelegate_tool = \"book\"",
            "agents/anna.toml:3:17: delegate_tool: `book` must take a text `request` and require nothing else (what the caller said is its only argument: [parameters.properties] request)",
        ),
        (
            "[model]\nprovider = \"gpt_live\"\ndelegation = \"clients\"",
            "instructions = \"x\"",
            "answerback.toml:3:14: model.delegation: must be one of `responses`, `client` (did you mean `client`?)",
        ),
    ] {
        let folder = Folder::new(&[
            ("answerback.toml", main),
            ("agents/anna.toml", agent),
            ("tools/ask.toml", ASK),
            ("tools/book.toml", TOOL),
        ]);
        let mistakes = folder.mistakes(&[]);
        assert!(mistakes.iter().any(|mistake| mistake == expected), "{expected}\n{mistakes:#?}");
    }
}
