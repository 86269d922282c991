//! Migrations come in pairs: one number and name, one file a dialect, written twice and proven by one conformance suite.

use super::{Finding, Rule};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const DIALECTS: [&str; 2] = ["sqlite", "postgres"];

/// Looks at every `migrations/` folder, wherever it lies. A dialect whose folder does not exist yet asks for no pairs.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    // folder of migrations → dialect → file names
    let mut folders: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for file in &tree.files {
        for dialect in DIALECTS {
            let Some((before, name)) = file.path.split_once(&format!("migrations/{dialect}/")) else { continue };
            if before.is_empty() || before.ends_with('/') {
                let folder = &file.path[..before.len() + "migrations/".len()];
                folders.entry(folder).or_default().entry(dialect).or_default().insert(name);
            }
        }
    }
    for (folder, dialects) in folders {
        for (dialect, names) in &dialects {
            numbering(folder, dialect, names, findings);
            for (other, others) in dialects.iter().filter(|(other, _)| *other != dialect) {
                for name in names.difference(others) {
                    let found = format!("no {folder}{other}/{name} beside it");
                    findings.push(Finding::new(&format!("{folder}{dialect}/{name}"), 1, Rule::Migration, found));
                }
            }
        }
    }
}

fn numbering(folder: &str, dialect: &str, names: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let mut expected = 1;
    for name in names {
        let mut at = |found: String| {
            findings.push(Finding::new(&format!("{folder}{dialect}/{name}"), 1, Rule::Migration, found));
        };
        match number_of(name) {
            None => at("is not named NNNN_lower_case.sql".into()),
            Some(number) if number == expected => expected += 1,
            Some(number) => {
                at(format!("has number {number:04} where {expected:04} is next"));
                expected = number + 1;
            }
        }
    }
}

/// The number of `0007_deliveries.sql`.
fn number_of(name: &str) -> Option<u32> {
    let (number, words) = name.strip_suffix(".sql")?.split_once('_')?;
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_words = words.starts_with(|c: char| c.is_ascii_lowercase())
        && words.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if is_number && is_words { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use crate::tidy::{Rule, check};
    use crate::tree::Tree;

    fn found_in(paths: &[&str]) -> Vec<String> {
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (*path, "select 1;\n")).collect();
        let findings = check(&Tree::of(&files)).into_iter();
        findings
            .map(|finding| {
                assert_eq!(finding.rule, Rule::Migration, "{finding}");
                finding.file
            })
            .collect()
    }

    #[test]
    fn one_dialect_alone_is_checked_for_names_and_numbers_only() {
        assert_eq!(found_in(&["migrations/sqlite/0001_first.sql", "migrations/sqlite/0002_second.sql"]), [""; 0]);
        let gap = ["migrations/sqlite/0001_first.sql", "migrations/sqlite/0003_third.sql"];
        assert_eq!(found_in(&gap), ["migrations/sqlite/0003_third.sql"]);
        let twice = ["migrations/sqlite/0001_first.sql", "migrations/sqlite/0001_other.sql"];
        assert_eq!(found_in(&twice), ["migrations/sqlite/0001_other.sql"]);
        for name in ["1_first.sql", "0001-first.sql", "0001_First.sql", "0001_.sql", "0001_first.txt"] {
            let path = format!("crates/store/migrations/sqlite/{name}");
            assert_eq!(found_in(&[&path]), [&*path], "{name}");
        }
    }

    #[test]
    fn each_migration_needs_its_pair_once_there_are_two_dialects() {
        let pairs = ["migrations/sqlite/0001_first.sql", "migrations/postgres/0001_first.sql"];
        assert_eq!(found_in(&pairs), [""; 0]);
        let lonely = [pairs[0], pairs[1], "migrations/sqlite/0002_second.sql"];
        assert_eq!(found_in(&lonely), ["migrations/sqlite/0002_second.sql"]);
        let renamed = [pairs[0], "migrations/postgres/0001_start.sql"];
        assert_eq!(found_in(&renamed), ["migrations/postgres/0001_start.sql", "migrations/sqlite/0001_first.sql"]);
    }
}
