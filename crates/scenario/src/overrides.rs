//! Mistakes of a config that a scenario made out of a folder and its overrides, told where they can be mended: the config that
//! the server reads lies in a folder that nobody knows.

use crate::file::Scenario;
use server::config::{ConfigError, ConfigErrors};
use std::path::Path;

/// Each mistake with its key in the scenario, or with its file where the scenario does not touch the key.
pub fn mistakes(scenario: &Scenario, config_folder: &Path, errors: &ConfigErrors) -> Vec<String> {
    errors.0.iter().map(|error| told(scenario, config_folder, error)).collect()
}

fn told(scenario: &Scenario, config_folder: &Path, error: &ConfigError) -> String {
    let file = Path::new(&error.file).strip_prefix(config_folder).unwrap_or(Path::new(&error.file));
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let (table, change) = if file.starts_with("agents") {
        ("agent".to_owned(), Some(&scenario.agent))
    } else if file.starts_with("tools") {
        (format!("tools.{stem}"), scenario.tools.get(&*stem).and_then(toml::Value::as_table))
    } else {
        ("server".to_owned(), Some(&scenario.server))
    };
    let place = match change {
        Some(change) if touches(change, &error.key) => format!("`{table}.{}`", error.key),
        Some(_) | None if error.key.is_empty() => format!("{}", file.display()),
        Some(_) | None => format!("{}: {}", file.display(), error.key),
    };
    let help = error.help.as_ref().map_or_else(String::new, |help| format!(" ({help})"));
    format!("{place}: {}{help}", error.message)
}

/// The override holds the key, or a part of it that is no table: what lies below was replaced.
fn touches(change: &toml::Table, key: &str) -> bool {
    let mut table = change;
    for part in key.split('.') {
        match table.get(part) {
            Some(toml::Value::Table(below)) => table = below,
            Some(_) => return true,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use crate::file::Scenario;
    use crate::setup::Setup;
    use std::path::Path;

    fn told(more: &str) -> String {
        let text = format!("name = \"t\"\nstory = \"t\"\n{more}\n[expect]\n");
        let scenario = Scenario::parse(&text, Path::new("t.toml")).unwrap();
        let setup = Setup::make(&scenario, Path::new("."), "127.0.0.1:1").unwrap();
        setup.config(&scenario, Vec::new()).expect_err(more).to_string()
    }

    #[test]
    fn a_mistake_in_an_override_is_told_by_its_key_in_the_scenario() {
        for (more, wanted) in [
            (
                "[agent.policy.gate]\nquite_ms = 400",
                "`agent.policy.gate.quite_ms`: unknown key (did you mean `quiet_ms`?)",
            ),
            ("[agent.policy.gate]\nquiet_ms = 4", "`agent.policy.gate.quiet_ms`: must be from 200 to 10000, not 4"),
            ("[server.limits]\nmax_call_s = 0", "`server.limits.max_call_s`: must be a whole number from 1 to 86400"),
            ("[tools.book_table]\ninline_wait_ms = \"x\"", "`tools.book_table.inline_wait_ms`: must be a whole number"),
            ("[tools.alarm]\nlike = \"book_table\"\neffect = \"x\"", "`tools.alarm.effect`: must be one of"),
        ] {
            let told = told(more);
            assert!(told.contains(wanted), "no {wanted:?} in {told}");
            assert!(!told.contains("answerback-scenario-"), "{told}");
        }
    }

    #[test]
    fn a_mistake_of_the_config_itself_names_its_file() {
        let folder = std::env::temp_dir().join(format!("answerback-overrides-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("agents")).unwrap();
        std::fs::write(folder.join("answerback.toml"), "[limits]\nmax_call_s = 0\n").unwrap();
        std::fs::write(folder.join("agents/host.toml"), "instructions = \"x\"\n").unwrap();
        let told = told(&format!("config = {:?}", folder.display().to_string()));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(told.contains("answerback.toml: limits.max_call_s: must be"), "{told}");
    }
}
