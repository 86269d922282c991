//! The rules. Each takes the tree and gives findings; none stops at the first.

use crate::tree::Tree;
use std::fmt;

pub mod floors;
pub mod migrations;
pub mod purity;
pub mod rust_text;
pub mod style;

/// What is wrong, where, and which rule says so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Relative to the root.
    pub file: String,
    /// From 1.
    pub line: usize,
    pub rule: Rule,
    /// What stands there, as a sentence.
    pub found: String,
}

impl Finding {
    pub fn new(file: &str, line: usize, rule: Rule, found: impl Into<String>) -> Self {
        Self { file: file.into(), line, rule, found: found.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: [{}] {}\n    way out: {}",
            self.file,
            self.line,
            self.rule.name(),
            self.found,
            self.rule.way_out()
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A manifest cannot be read.
    Manifest,
    /// A workspace crate without a floor.
    NoFloor,
    /// A dependency on a crate of the same floor or a higher one.
    UpwardDependency,
    /// `conversation` and `operations` know each other.
    Strangers,
    /// A crate of floors 0-1 depends on a runtime, a clock, randomness or an edge.
    ImpureDependency,
    /// Code of floors 0-1 names a clock, randomness, a thread, the file system, the network, or an unordered map.
    ImpureCode,
    /// A wire file that awaits.
    AwaitInWire,
    /// A file of more than [`style::MOST_LINES`] lines.
    LongFile,
    /// Work left open in the code.
    Unfinished,
    /// A name that says nothing.
    EmptyName,
    /// A path of somebody's machine.
    MachinePath,
    /// A migration with a wrong name or number, or without its pair.
    Migration,
}

impl Rule {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::NoFloor => "no-floor",
            Self::UpwardDependency => "upward-dependency",
            Self::Strangers => "strangers",
            Self::ImpureDependency => "impure-dependency",
            Self::ImpureCode => "impure-code",
            Self::AwaitInWire => "await-in-wire",
            Self::LongFile => "long-file",
            Self::Unfinished => "unfinished",
            Self::EmptyName => "empty-name",
            Self::MachinePath => "machine-path",
            Self::Migration => "migration",
        }
    }

    /// What to do about a finding.
    pub const fn way_out(self) -> &'static str {
        match self {
            Self::Manifest => "make it a valid Cargo.toml",
            Self::NoFloor => "give the crate a floor in FLOORS, crates/xtask/src/tidy/floors.rs",
            Self::UpwardDependency => {
                "speak through enums of `vocab` over a channel that a higher floor lays, or move the code down"
            }
            Self::Strangers => {
                "put the shared word into `vocab`: that a delivery exists is `operations`, when it may be heard is `conversation`"
            }
            Self::ImpureDependency => "do that work on floor 2 or higher and pass its result in as a value",
            Self::ImpureCode => {
                "take times, ids and bytes as arguments from floor 2 or higher; keep order with BTreeMap or BTreeSet"
            }
            Self::AwaitInWire => "keep bytes and enums in the wire file and await in `socket.rs` beside it",
            Self::LongFile => "split the file along one of its nouns",
            Self::Unfinished => "finish it, or take it out and write it down in docs/decisions.md",
            Self::EmptyName => "name the thing after what it is in the field",
            Self::MachinePath => "make the path relative, or take it from the environment or a temporary folder",
            Self::Migration => {
                "name it NNNN_lower_case.sql, number from 0001 without gaps, same number and name in every dialect"
            }
        }
    }
}

/// All findings of all rules, ordered by file and line.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let crates = floors::read_crates(tree, &mut findings);
    floors::check(&crates, &mut findings);
    purity::check(tree, &crates, &mut findings);
    style::check(tree, &mut findings);
    migrations::check(tree, &mut findings);
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_place_rule_and_way_out() {
        let finding = Finding::new("crates/vocab/src/ids.rs", 7, Rule::ImpureCode, "names `Instant::now`");
        let text = finding.to_string();
        assert!(text.starts_with("crates/vocab/src/ids.rs:7: [impure-code] names `Instant::now`\n"), "{text}");
        assert!(text.contains("way out: take times"), "{text}");
    }

    #[test]
    fn an_empty_tree_has_no_findings() {
        assert_eq!(check(&Tree::default()), []);
    }
}
