//! The house rules on the house itself.

use std::path::Path;
use xtask::{Tree, check};

fn tree() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Tree::read(&root).expect("the project's files can be read")
}

#[test]
fn the_tree_is_tidy() {
    let findings = check(&tree());
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{} findings\n\n{}\n", findings.len(), text.join("\n\n"));
}

#[test]
fn the_check_sees_the_whole_tree() {
    let tree = tree();
    for (name, _) in xtask::tidy::floors::FLOORS {
        let manifest = if *name == "tests" { "tests/Cargo.toml".into() } else { format!("crates/{name}/Cargo.toml") };
        assert!(tree.find(&manifest).is_some(), "{manifest} is not in the tree: has the room moved?");
    }
    assert!(tree.files.iter().all(|file| !file.path.starts_with("target/")), "build output is not ours");
}

/// A stranger follows a frame and a tool call through ARCHITECTURE.md: every file that it names must be there.
#[test]
fn the_files_that_the_architecture_names_exist() {
    let tree = tree();
    let text = tree.find("ARCHITECTURE.md").expect("the architecture is written down").text();
    let named: Vec<&str> =
        text.split('`').filter(|word| word.ends_with(".rs") && !word.contains(char::is_whitespace)).collect();
    assert!(named.len() > 20, "the way of a frame and of a tool call name their files: {named:?}");
    for name in named {
        let is_there = tree.files.iter().any(|file| file.path == name || file.path.ends_with(&format!("/{name}")));
        assert!(is_there, "ARCHITECTURE.md names `{name}`, which no tracked file ends with");
    }
}

/// Each rule is broken on purpose at least twice, each place is still there, and the result is written down.
#[test]
fn the_deliberate_faults_fit_the_code() {
    let tree = tree();
    let mutations = xtask::mutations::read(&tree).unwrap_or_else(|why| panic!("{why}"));
    for rule in 1..=14 {
        let count = mutations.iter().filter(|mutation| mutation.rule == format!("R{rule}")).count();
        assert!(count >= 2, "R{rule} is broken {count} times");
    }
    let scenarios: Vec<&str> =
        tree.files.iter().filter(|file| file.path.starts_with("tests/scenarios/")).map(xtask::File::name).collect();
    let caught_by: Vec<&str> = mutations.iter().flat_map(|one| one.caught_by.iter().map(String::as_str)).collect();
    for name in &caught_by {
        let is_there = *name == xtask::mutations::SIMULATOR || scenarios.iter().any(|file| file.starts_with(name));
        assert!(is_there, "no scenario is called {name}");
    }
    for file in scenarios.iter().filter(|file| file.starts_with('s')) {
        assert!(caught_by.iter().any(|name| file.starts_with(name)), "{file} is held against no deliberate fault");
    }
    let result = tree.find("docs/mutations.md").expect("the result is written down").text();
    for mutation in &mutations {
        assert!(result.contains(&mutation.breaks), "docs/mutations.md does not name: {}", mutation.breaks);
    }
}
