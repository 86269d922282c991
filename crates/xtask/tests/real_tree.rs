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
