//! Which room may know which: a crate imports lower floors only, never its own.

use super::{Finding, Rule};
use crate::tree::{File, Tree};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Tests, simulations of the house in memory, and this crate. It may know everything; no room may need it to run.
pub const BASEMENT: u8 = u8::MAX;

/// The highest floor without a runtime, a clock or randomness.
pub const HIGHEST_PURE: u8 = 1;

/// ARCHITECTURE.md, "Floors". The binary stands on a floor of its own, above the doors that it opens.
pub const FLOORS: &[(&str, u8)] = &[
    ("vocab", 0),
    ("audio", 1),
    ("conversation", 1),
    ("operations", 1),
    ("recording", 1),
    ("phone", 2),
    ("models", 2),
    ("tools", 2),
    ("store", 2),
    ("call", 3),
    ("executor", 3),
    ("server", 4),
    ("sim", 4),
    ("replay", 4),
    ("testkit", 4),
    ("scenario", 5),
    ("answerback", 6),
    ("tests", BASEMENT),
    ("xtask", BASEMENT),
];

/// These may not meet even in each other's tests.
const STRANGERS: (&str, &str) = ("conversation", "operations");

/// What pure code must not reach, and the crates that do it: those of that name, and those whose name goes on after it
/// with a dash or an underscore.
const IMPURE: &[(&str, &[&str])] = &[
    ("a runtime", &["tokio", "async", "futures", "mio", "smol"]),
    ("the system", &["libc", "nix", "rustix", "socket2"]),
    ("an edge", &["axum", "hyper", "tower", "http", "reqwest", "ureq", "tungstenite", "rustls", "native", "url"]),
    ("storage", &["sqlx", "rusqlite", "libsqlite3", "redis"]),
    ("randomness", &["rand", "getrandom", "fastrand", "uuid", "ulid"]),
    ("a clock", &["chrono", "time", "jiff", "quanta"]),
    ("threads or locks", &["parking", "crossbeam", "rayon", "dashmap"]),
    ("errors without a meaning", &["anyhow", "eyre", "miette"]),
    ("observation in the place of decisions", &["metrics", "tracing", "log", "opentelemetry"]),
];

pub fn floor_of(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

/// A workspace crate as its manifest describes it.
#[derive(Clone, Debug)]
pub struct Crate {
    pub name: String,
    /// Folder of the manifest, relative to the root.
    pub folder: String,
    pub manifest: String,
    /// Line of the name in the manifest.
    pub name_line: usize,
    pub dependencies: Vec<Dependency>,
}

impl Crate {
    pub fn is_pure(&self) -> bool {
        floor_of(&self.name).is_some_and(|floor| floor <= HIGHEST_PURE)
    }
}

#[derive(Clone, Debug)]
pub struct Dependency {
    /// Name of the package, after a rename.
    pub package: String,
    pub line: usize,
    /// Not in the product: from `dev-dependencies`.
    pub only_in_tests: bool,
}

/// Every `Cargo.toml` below the root that describes a package.
pub fn read_crates(tree: &Tree, findings: &mut Vec<Finding>) -> Vec<Crate> {
    let renames = match tree.find("Cargo.toml") {
        Some(root) => renames_of_workspace(root, findings),
        None => BTreeMap::new(),
    };
    let manifests = tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests.filter_map(|file| read_crate(file, &renames, findings)).collect()
}

pub fn check(crates: &[Crate], findings: &mut Vec<Finding>) {
    for room in crates {
        let Some(floor) = floor_of(&room.name) else {
            let found = format!("crate `{}` has no floor", room.name);
            findings.push(Finding::new(&room.manifest, room.name_line, Rule::NoFloor, found));
            continue;
        };
        for dependency in &room.dependencies {
            let at = |rule, found: String| Finding::new(&room.manifest, dependency.line, rule, found);
            let pair = (room.name.as_str(), dependency.package.as_str());
            if pair == STRANGERS || pair == (STRANGERS.1, STRANGERS.0) {
                findings.push(at(Rule::Strangers, format!("`{}` knows `{}`", pair.0, pair.1)));
                continue;
            }
            if dependency.only_in_tests {
                continue;
            }
            if crates.iter().any(|other| other.name == dependency.package) {
                // A crate without a floor is a finding of its own.
                if let Some(below) = floor_of(&dependency.package)
                    && floor != BASEMENT
                    && below >= floor
                {
                    let found = format!(
                        "`{}` ({}) depends on `{}` ({})",
                        pair.0,
                        floor_in_words(floor),
                        pair.1,
                        floor_in_words(below)
                    );
                    findings.push(at(Rule::UpwardDependency, found));
                }
            } else if floor <= HIGHEST_PURE
                && let Some(what) = impurity_of(&dependency.package)
            {
                let found = format!("`{}` ({}) depends on `{}`: {what}", pair.0, floor_in_words(floor), pair.1);
                findings.push(at(Rule::ImpureDependency, found));
            }
        }
    }
}

/// What `package` would bring into pure code.
fn impurity_of(package: &str) -> Option<&'static str> {
    let is_of =
        |root: &&str| package.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']));
    IMPURE.iter().find(|(_, roots)| roots.iter().any(is_of)).map(|(what, _)| *what)
}

fn floor_in_words(floor: u8) -> String {
    if floor == BASEMENT { "basement".into() } else { format!("floor {floor}") }
}

/// The package behind each name in `[workspace.dependencies]` that is not its own.
fn renames_of_workspace(root: &File, findings: &mut Vec<Finding>) -> BTreeMap<String, String> {
    let mut renames = BTreeMap::new();
    let Some(table) = parse(root, findings) else { return renames };
    let dependencies = table.get("workspace").and_then(|w| w.get_ref().get("dependencies"));
    if let Some(dependencies) = dependencies.and_then(|d| d.get_ref().as_table()) {
        for (name, value) in dependencies {
            if let Some(package) = value.get_ref().get("package").and_then(|p| p.get_ref().as_str()) {
                renames.insert(name.get_ref().to_string(), package.to_string());
            }
        }
    }
    renames
}

fn read_crate(file: &File, renames: &BTreeMap<String, String>, findings: &mut Vec<Finding>) -> Option<Crate> {
    let table = parse(file, findings)?;
    let name = table.get("package")?.get_ref().get("name")?;
    let mut room = Crate {
        name: name.get_ref().as_str()?.to_string(),
        folder: file.path.strip_suffix("/Cargo.toml").unwrap_or("").to_string(),
        manifest: file.path.clone(),
        name_line: line_at(file.text(), name.span().start),
        dependencies: Vec::new(),
    };
    collect(&table, file.text(), renames, &mut room.dependencies);
    if let Some(targets) = table.get("target").and_then(|t| t.get_ref().as_table()) {
        for target in targets.values().filter_map(|value| value.get_ref().as_table()) {
            collect(target, file.text(), renames, &mut room.dependencies);
        }
    }
    Some(room)
}

/// Dependencies of all kinds in one table of a manifest.
fn collect(table: &DeTable<'_>, text: &str, renames: &BTreeMap<String, String>, into: &mut Vec<Dependency>) {
    for (kind, only_in_tests) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
        let Some(dependencies) = table.get(kind).and_then(|value| value.get_ref().as_table()) else { continue };
        for (name, value) in dependencies {
            into.push(Dependency {
                package: package_behind(name.get_ref(), value, renames),
                line: line_at(text, name.span().start),
                only_in_tests,
            });
        }
    }
}

fn package_behind(name: &str, value: &Spanned<DeValue<'_>>, renames: &BTreeMap<String, String>) -> String {
    let own = value.get_ref().get("package").and_then(|package| package.get_ref().as_str());
    own.map(String::from).or_else(|| renames.get(name).cloned()).unwrap_or_else(|| name.to_string())
}

fn parse<'a>(file: &'a File, findings: &mut Vec<Finding>) -> Option<DeTable<'a>> {
    match DeTable::parse(file.text()) {
        Ok(table) => Some(table.into_inner()),
        Err(error) => {
            let line = error.span().map_or(1, |span| line_at(file.text(), span.start));
            findings.push(Finding::new(&file.path, line, Rule::Manifest, error.message()));
            None
        }
    }
}

/// The line, from 1, of a byte offset.
fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    fn manifest(name: &str, dependencies: &str) -> String {
        format!("[package]\nname = \"{name}\"\n\n{dependencies}\n")
    }

    /// A tree of crates, each with the text of its dependency tables.
    fn findings(crates: &[(&str, &str)]) -> Vec<(String, usize, Rule)> {
        let manifests: Vec<(String, String)> =
            crates.iter().map(|(name, text)| (format!("crates/{name}/Cargo.toml"), manifest(name, text))).collect();
        let files: Vec<(&str, &str)> = manifests.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        check(&Tree::of(&files)).into_iter().map(|finding| (finding.file, finding.line, finding.rule)).collect()
    }

    fn at(name: &str, line: usize, rule: Rule) -> (String, usize, Rule) {
        (format!("crates/{name}/Cargo.toml"), line, rule)
    }

    #[test]
    fn a_lower_floor_may_be_used() {
        let crates = [("vocab", ""), ("phone", "[dependencies]\nvocab.workspace = true\ntokio.workspace = true")];
        assert_eq!(findings(&crates), []);
    }

    #[test]
    fn a_crate_without_a_floor_is_found() {
        assert_eq!(findings(&[("attic", "")]), [at("attic", 2, Rule::NoFloor)]);
    }

    #[test]
    fn a_higher_floor_may_not_be_used() {
        let crates = [("phone", "[dependencies]\nserde = \"1\"\nserver.workspace = true"), ("server", "")];
        assert_eq!(findings(&crates), [at("phone", 6, Rule::UpwardDependency)]);
    }

    #[test]
    fn the_own_floor_may_not_be_used() {
        let crates = [("call", "[dependencies]\nexecutor = { path = \"../executor\" }"), ("executor", "")];
        assert_eq!(findings(&crates), [at("call", 5, Rule::UpwardDependency)]);
    }

    #[test]
    fn tests_may_use_any_floor_and_the_product_may_not_use_the_basement() {
        let tests_only = [("phone", "[dev-dependencies]\nserver.workspace = true"), ("server", "")];
        assert_eq!(findings(&tests_only), []);
        let product = [("server", "[dependencies]\ntestkit.workspace = true"), ("testkit", "")];
        assert_eq!(findings(&product), [at("server", 5, Rule::UpwardDependency)]);
        let basement = [("tests", "[dependencies]\ntestkit.workspace = true"), ("testkit", "")];
        assert_eq!(findings(&basement), []);
    }

    #[test]
    fn conversation_and_operations_do_not_know_each_other_even_in_tests() {
        let one = [("conversation", "[dependencies]\noperations.workspace = true"), ("operations", "")];
        assert_eq!(findings(&one), [at("conversation", 5, Rule::Strangers)]);
        let other = [("operations", "[dev-dependencies]\nconversation.workspace = true"), ("conversation", "")];
        assert_eq!(findings(&other), [at("operations", 5, Rule::Strangers)]);
    }

    #[test]
    fn pure_crates_may_not_depend_on_runtimes_edges_clocks_or_entropy() {
        for package in ["tokio", "tokio-util", "axum", "sqlx", "reqwest", "rand", "rand_core", "getrandom", "anyhow"] {
            let crates = [("audio", &*format!("[dependencies]\nserde = \"1\"\n{package} = \"1\""))];
            assert_eq!(findings(&crates), [at("audio", 6, Rule::ImpureDependency)], "{package}");
        }
        assert_eq!(findings(&[("audio", "[dependencies]\nrandolph = \"1\"\nhttparse = \"1\"")]), []);
        assert_eq!(findings(&[("audio", "[dev-dependencies]\ntokio = \"1\"")]), []);
        assert_eq!(findings(&[("phone", "[dependencies]\ntokio = \"1\"")]), []);
    }

    #[test]
    fn build_and_target_dependencies_count() {
        let build = [("vocab", "[build-dependencies]\nreqwest = \"1\"")];
        assert_eq!(findings(&build), [at("vocab", 5, Rule::ImpureDependency)]);
        let target = [("vocab", "[target.'cfg(unix)'.dependencies]\nlibc = \"1\"")];
        assert_eq!(findings(&target), [at("vocab", 5, Rule::ImpureDependency)]);
    }

    #[test]
    fn a_rename_hides_nothing() {
        let own = [("vocab", "[dependencies]\nwaiting = { package = \"tokio\", version = \"1\" }")];
        assert_eq!(findings(&own), [at("vocab", 5, Rule::ImpureDependency)]);
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace.dependencies]\nwaiting = { package = \"tokio\", version = \"1\" }\n"),
            ("crates/vocab/Cargo.toml", &manifest("vocab", "[dependencies]\nwaiting.workspace = true")),
        ]);
        let rules: Vec<Rule> = check(&tree).into_iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, [Rule::ImpureDependency]);
    }

    #[test]
    fn a_broken_manifest_is_a_finding_at_its_line() {
        let tree = Tree::of(&[("crates/vocab/Cargo.toml", "[package]\nname = \"vocab\nversion = 1\n")]);
        let found: Vec<(usize, Rule)> = check(&tree).into_iter().map(|finding| (finding.line, finding.rule)).collect();
        assert_eq!(found, [(2, Rule::Manifest)]);
    }
}
