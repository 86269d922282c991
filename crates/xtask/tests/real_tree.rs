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
