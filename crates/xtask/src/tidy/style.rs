//! How files are kept: their length, their names, nothing left open, and wire files that do not await.

use super::rust_text::{has_words, split};
use super::{Finding, Rule};
use crate::tree::{File, Tree};

/// Longer files hide more than one thing; the cores that we learned from and that grew past it are hard to follow.
pub const MOST_LINES: usize = 600;

/// Code that says "later", as macros that compile.
const OPEN_WORK: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// As a word in a comment. Split so that this file does not find itself in a search by hand.
const OPEN_NOTE: &str = concat!("FIX", "ME");

/// As a part of a file name between underscores. They fit every file, so they name none.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "helper", "helpers", "manager", "managers", "handler", "handlers", "misc"];

/// At the end of a type's name.
const EMPTY_TYPE_ENDS: &[&str] = &["Manager", "Handler", "Helper", "Helpers", "Util", "Utils"];

/// Folders that exist on one machine only. Split so that this file is not a finding.
const MACHINE_FOLDERS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        machine_paths(file, findings);
        if file.is_rust() {
            length(file, findings);
            file_name(file, findings);
            rust(file, findings);
        } else if [".toml", ".sql", ".sh", ".yml"].iter().any(|end| file.path.ends_with(end)) {
            open_notes(file, file.text(), findings);
        }
    }
}

fn length(file: &File, findings: &mut Vec<Finding>) {
    let lines = file.text().lines().count();
    if lines > MOST_LINES {
        let found = format!("{lines} lines, {MOST_LINES} at most");
        findings.push(Finding::new(&file.path, MOST_LINES + 1, Rule::LongFile, found));
    }
}

fn file_name(file: &File, findings: &mut Vec<Finding>) {
    let path = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    let empty = path.split('/').flat_map(|part| part.split('_')).find(|word| EMPTY_NAMES.contains(word));
    if let Some(word) = empty {
        findings.push(Finding::new(&file.path, 1, Rule::EmptyName, format!("`{word}` in the name of a file")));
    }
    if file.name() == "data.rs" {
        findings.push(Finding::new(&file.path, 1, Rule::EmptyName, "`data` as the name of a file"));
    }
}

fn rust(file: &File, findings: &mut Vec<Finding>) {
    let parts = split(file.text());
    open_notes(file, &parts.comments, findings);
    let is_wire = file.name() == "wire.rs" || file.path.contains("/wire/");
    for (line, text) in (1..).zip(parts.code.lines()) {
        let mut at = |rule, found: String| findings.push(Finding::new(&file.path, line, rule, found));
        for word in OPEN_WORK.iter().filter(|word| has_words(text, word)) {
            at(Rule::Unfinished, format!("`{word}` in the code"));
        }
        if is_wire && (has_words(text, "await") || has_words(text, "async")) {
            at(Rule::AwaitInWire, "a wire file waits".into());
        }
        if has_words(text, "is_busy") {
            at(Rule::EmptyName, "`is_busy` hides which of the four clocks is meant".into());
        }
        if let Some(name) = declared_type(text)
            && EMPTY_TYPE_ENDS.iter().any(|end| name.ends_with(end))
        {
            at(Rule::EmptyName, format!("type `{name}`"));
        }
    }
}

/// The name of the type that this line declares.
fn declared_type(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.find(|word| matches!(*word, "struct" | "enum" | "trait" | "type"))?;
    words.next()
}

fn open_notes(file: &File, text: &str, findings: &mut Vec<Finding>) {
    for (line, text) in (1..).zip(text.lines()) {
        if has_words(text, OPEN_NOTE) {
            findings.push(Finding::new(&file.path, line, Rule::Unfinished, format!("`{OPEN_NOTE}` in a comment")));
        }
    }
}

fn machine_paths(file: &File, findings: &mut Vec<Finding>) {
    for (line, text) in (1..).zip(file.text().lines()) {
        for folder in MACHINE_FOLDERS {
            // In `https://example.com/home/` the folder is a site's, not a machine's.
            let mut found = text.match_indices(folder).filter(|(at, _)| {
                let before = text[..*at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')' | '*'))
            });
            if found.next().is_some() {
                findings.push(Finding::new(&file.path, line, Rule::MachinePath, format!("`{folder}…`")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<(usize, Rule)> {
        crate::tidy::check(&Tree::of(&[(path, text)])).into_iter().map(|f| (f.line, f.rule)).collect()
    }

    #[test]
    fn a_file_of_601_lines_is_too_long_and_one_of_600_is_not() {
        assert_eq!(findings("crates/call/src/actor.rs", &"// line\n".repeat(601)), [(601, Rule::LongFile)]);
        assert_eq!(findings("crates/call/src/actor.rs", &"// line\n".repeat(600)), []);
        assert_eq!(findings("docs/long.md", &"line\n".repeat(2_000)), []);
    }

    #[test]
    fn work_left_open_is_found() {
        for macro_name in ["todo", "unimplemented", "dbg"] {
            let source = format!("fn f() {{\n    {macro_name}!(x)\n}}\n");
            assert_eq!(findings("crates/call/src/actor.rs", &source), [(2, Rule::Unfinished)], "{macro_name}");
        }
        let note = format!("fn f() {{}}\n// {OPEN_NOTE}: later\n");
        assert_eq!(findings("crates/call/src/actor.rs", &note), [(2, Rule::Unfinished)]);
        assert_eq!(findings("deny.toml", &format!("# {OPEN_NOTE}\n")), [(1, Rule::Unfinished)]);
        let quoted = format!("const A: &str = \"todo! {OPEN_NOTE}\"; // dbg! is a word here\n");
        assert_eq!(findings("crates/call/src/actor.rs", &quoted), []);
    }

    #[test]
    fn a_wire_file_does_not_await() {
        let source = "pub async fn read() {\n    socket.next().await;\n}\n";
        let twice = [(1, Rule::AwaitInWire), (2, Rule::AwaitInWire)];
        assert_eq!(findings("crates/phone/src/twilio/wire.rs", source), twice);
        assert_eq!(findings("crates/phone/src/twilio/wire/start.rs", source), twice);
        assert_eq!(findings("crates/phone/src/twilio/socket.rs", source), []);
        assert_eq!(findings("crates/phone/src/twilio/wire.rs", "/// No await.\npub fn read() {}\n"), []);
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        for path in [
            "crates/call/src/util.rs",
            "crates/call/src/helper.rs",
            "crates/call/src/call_manager.rs",
            "crates/server/src/handlers/voice.rs",
            "crates/call/src/data.rs",
        ] {
            assert_eq!(findings(path, ""), [(1, Rule::EmptyName)], "{path}");
        }
        assert_eq!(findings("crates/call/src/lib.rs", "\npub struct CallManager;\n"), [(2, Rule::EmptyName)]);
        assert_eq!(findings("crates/call/src/lib.rs", "if call.is_busy() {}\n"), [(1, Rule::EmptyName)]);
        assert_eq!(findings("crates/call/src/lib.rs", "use axum::handler::Handler;\n"), []);
        assert_eq!(findings("crates/call/src/utility.rs", ""), []);
    }

    #[test]
    fn paths_of_a_machine_are_found_in_any_text_file() {
        for folder in MACHINE_FOLDERS {
            let text = format!("first\nsee {folder}x\n");
            assert_eq!(findings("docs/guide.md", &text), [(2, Rule::MachinePath)], "{folder}");
            let in_string = format!("const A: &str = \"{folder}x\";\n");
            assert_eq!(findings("crates/call/src/lib.rs", &in_string), [(1, Rule::MachinePath)], "{folder}");
            assert_eq!(findings("docs/guide.md", &format!("https://example.com{folder}x\n")), [], "{folder}");
        }
    }
}
