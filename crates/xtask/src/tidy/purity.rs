//! Floors 0 and 1 read no clock, draw no randomness, touch no thread, file or socket, and iterate in a fixed order:
//! the same inputs give the same commands, today and in a replay.

use super::floors::Crate;
use super::rust_text::{has_words, split, without_tests};
use super::{Finding, Rule};
use crate::tree::{File, Tree};
use std::collections::BTreeSet;

/// What pure code may not name.
const IMPURE: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    // Their iteration order differs from process to process, so the types themselves stay out.
    "HashMap",
    "HashSet",
    "rand::",
    "std::thread",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "tokio::",
];

/// The same modules as they look inside `use std::{…}`.
const IMPURE_MODULES: &[&str] = &["thread", "fs", "net", "env", "process"];

pub fn check(tree: &Tree, crates: &[Crate], findings: &mut Vec<Finding>) {
    for room in crates.iter().filter(|room| room.is_pure()) {
        let prefix = format!("{}/", room.folder);
        let files: Vec<&File> =
            tree.files.iter().filter(|file| file.is_rust() && file.path.starts_with(&prefix)).collect();
        let tests = test_files(&files);
        for file in files {
            let inside = &file.path[prefix.len()..];
            let folder_of_tests = ["tests/", "benches/", "examples/"].iter().any(|folder| inside.starts_with(folder));
            if !folder_of_tests && !is_below(&file.path, &tests) {
                check_file(file, findings);
            }
        }
    }
}

fn check_file(file: &File, findings: &mut Vec<Finding>) {
    let code = without_tests(&split(file.text()).code).code;
    for (line, text) in (1..).zip(code.lines()) {
        for word in IMPURE.iter().filter(|word| has_words(text, word)) {
            findings.push(Finding::new(&file.path, line, Rule::ImpureCode, format!("names `{word}`")));
        }
    }
    for (at, _) in code.match_indices("std::{") {
        let group = &code[at + "std::{".len()..];
        for module in top_of_group(group).filter(|name| IMPURE_MODULES.contains(name)) {
            let line = code[..at].matches('\n').count() + 1;
            findings.push(Finding::new(&file.path, line, Rule::ImpureCode, format!("names `std::{module}`")));
        }
    }
}

/// The first words of the entries of a `use` group: `fs` and `sync` of `fs, sync::{Arc, Mutex}}`.
fn top_of_group(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 1_u32;
    let mut begin = 0;
    let mut entries = Vec::new();
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            entries.push(&group[begin..at]);
            begin = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    entries.into_iter().filter_map(|entry| entry.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next())
}

/// Paths, without `.rs`, of modules that only tests compile.
fn test_files(files: &[&File]) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for file in files {
        let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
        let is_root = matches!(file.name(), "lib.rs" | "main.rs" | "mod.rs");
        let folder = if is_root { stem.rsplit_once('/').map_or("", |(folder, _)| folder) } else { stem };
        for module in without_tests(&split(file.text()).code).test_modules {
            tests.insert(format!("{folder}/{module}"));
        }
    }
    tests
}

fn is_below(path: &str, modules: &BTreeSet<String>) -> bool {
    modules.iter().any(|module| path.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with(['.', '/'])))
}

#[cfg(test)]
mod tests {
    use crate::tidy::{Rule, check};
    use crate::tree::Tree;

    const MANIFEST: &str = "[package]\nname = \"audio\"\n";

    fn lines(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let mut all = vec![("crates/audio/Cargo.toml", MANIFEST)];
        all.extend(files);
        let findings = check(&Tree::of(&all)).into_iter();
        findings
            .map(|finding| {
                assert_eq!(finding.rule, Rule::ImpureCode, "{finding}");
                (finding.file, finding.line)
            })
            .collect()
    }

    fn lines_of(source: &str) -> Vec<usize> {
        lines(&[("crates/audio/src/lib.rs", source)]).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn pure_code_names_no_clock_entropy_thread_file_socket_or_unordered_map() {
        for code in [
            "let t = Instant::now();",
            "let t = std::time::SystemTime::now();",
            "use std::collections::HashMap;",
            "type Seen = HashSet<u8>;",
            "let r = rand::random::<u8>();",
            "std::thread::yield_now();",
            "use std::fs;",
            "use std::net::TcpStream;",
            "use std::{fmt, fs::File};",
        ] {
            assert_eq!(lines_of(&format!("//! A file.\n\n{code}\n")), [3], "{code}");
        }
    }

    #[test]
    fn a_group_is_searched_over_lines_and_only_at_its_top() {
        assert_eq!(lines_of("use std::{\n    fmt,\n    net::IpAddr,\n};\n"), [1]);
        assert_eq!(lines_of("use std::{fmt, sync::{fs, Arc}};\n"), []);
    }

    #[test]
    fn comments_strings_and_tests_may_name_them() {
        let source = "//! Never `Instant::now`.\nconst WHY: &str = \"std::fs\";\n#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n}\n";
        assert_eq!(lines_of(source), []);
    }

    #[test]
    fn files_of_tests_are_passed_over_and_the_others_are_not() {
        let files = [
            ("crates/audio/src/lib.rs", "mod deep;\n"),
            ("crates/audio/src/deep.rs", "#[cfg(test)]\nmod cases;\nmod real;\n"),
            ("crates/audio/src/deep/cases.rs", "use std::fs;\n"),
            ("crates/audio/src/deep/cases/more.rs", "use std::fs;\n"),
            ("crates/audio/src/deep/real.rs", "use std::fs;\n"),
            ("crates/audio/tests/all.rs", "use std::fs;\n"),
        ];
        assert_eq!(lines(&files), [("crates/audio/src/deep/real.rs".to_string(), 1)]);
    }

    #[test]
    fn higher_floors_may_do_what_they_must() {
        let manifest = "[package]\nname = \"phone\"\n";
        let tree = Tree::of(&[
            ("crates/phone/Cargo.toml", manifest),
            ("crates/phone/src/lib.rs", "use std::net::TcpStream;\nfn f() { Instant::now(); }\n"),
        ]);
        assert_eq!(check(&tree), []);
    }
}
