//! The guides against the command line: a verb that a guide names is there, with the options that it names.

use super::Cli;
use clap::{CommandFactory, Parser};
use std::path::{Path, PathBuf};

fn guides() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
    pages.filter(|page| page.extension().is_some_and(|e| e == "md")).chain([root.join("README.md")]).collect()
}

/// The commands in a page's blocks of shell: the words after `cargo run -- ` or `answerback `.
fn commands(page: &str) -> Vec<Vec<String>> {
    let mut inside = false;
    let mut found = Vec::new();
    // A command that goes on in the next line is one.
    for line in page.replace("\\\n", " ").lines() {
        let line = line.trim();
        if let Some(language) = line.strip_prefix("```") {
            inside = !inside && language == "sh";
        } else if inside {
            let words: Vec<String> =
                line.split(" #").next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
            let ours = words
                .iter()
                .position(|word| word == "--")
                .filter(|_| words.starts_with(&["cargo".into(), "run".into()]))
                .or_else(|| words.iter().position(|word| word == "answerback" || word.ends_with("/answerback")));
            if let Some(ours) = ours {
                found.push(words[ours + 1..].to_vec());
            }
        }
    }
    found
}

#[test]
fn every_command_of_the_guides_parses() {
    let mut seen = 0;
    for path in guides() {
        for words in commands(&std::fs::read_to_string(&path).unwrap()) {
            seen += 1;
            let line = std::iter::once("answerback".to_owned()).chain(words.iter().cloned());
            if let Err(error) = Cli::try_parse_from(line) {
                panic!("{}: `answerback {}`: {error}", path.display(), words.join(" "));
            }
        }
    }
    assert!(seen >= 8, "{seen} commands");
}

#[test]
fn every_verb_of_the_changelog_is_there() {
    let log = include_str!("../../../CHANGELOG.md");
    let known: Vec<String> = Cli::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let named: Vec<&str> = log.split('`').filter_map(|code| code.strip_prefix("answerback ")).collect();
    assert!(named.len() >= 4, "{named:?}");
    for code in named {
        let verb = code.split_whitespace().next().unwrap_or_default();
        assert!(known.iter().any(|name| name == verb), "`answerback {code}`: there is no such verb");
    }
}
