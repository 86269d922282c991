//! The list of deliberate faults, `tests/mutations.toml`: where each one is put, which rule it breaks, who must notice.

use crate::Tree;
use std::collections::BTreeSet;

/// Where the list stands.
pub const LIST: &str = "tests/mutations.toml";
/// The simulator, as a catcher.
pub const SIMULATOR: &str = "sim";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// What breaks, as a sentence.
    pub breaks: String,
    /// `R1` to `R14`.
    pub rule: String,
    /// From the root.
    pub file: String,
    /// Stands in the file exactly once.
    pub before: String,
    pub after: String,
    /// The beginnings of names of scenario files, and [`SIMULATOR`]: each of them must notice.
    pub caught_by: Vec<String>,
}

impl Mutation {
    /// The file's text with the fault in it. Fails when the place is not there, or not the only one.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.before).count() {
            1 => Ok(text.replacen(&self.before, &self.after, 1)),
            count => Err(format!("{}: `{}` stands there {count} times", self.file, self.before)),
        }
    }
}

/// Reads the list and says what is wrong with it.
pub fn read(tree: &Tree) -> Result<Vec<Mutation>, String> {
    let text = tree.find(LIST).ok_or_else(|| format!("{LIST} is not there"))?.text();
    let list: toml::Table = text.parse().map_err(|error| format!("{LIST}: {error}"))?;
    let rows = list.get("mutation").and_then(toml::Value::as_array).ok_or_else(|| format!("{LIST} lists nothing"))?;
    let mutations: Vec<Mutation> = rows.iter().map(mutation).collect::<Result<_, _>>()?;
    let mut sentences = BTreeSet::new();
    for mutation in &mutations {
        if !sentences.insert(&mutation.breaks) {
            return Err(format!("`{}` is listed twice", mutation.breaks));
        }
        let file = tree.find(&mutation.file).ok_or_else(|| format!("{} is not there", mutation.file))?;
        if mutation.apply(file.text())? == file.text() {
            return Err(format!("`{}` changes nothing", mutation.breaks));
        }
    }
    Ok(mutations)
}

fn mutation(row: &toml::Value) -> Result<Mutation, String> {
    let text = |key: &str| {
        let value = row.get(key).and_then(toml::Value::as_str);
        value.map(str::to_owned).ok_or_else(|| format!("a mutation has no `{key}`: {row}"))
    };
    let catchers = row.get("caught_by").and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let caught_by: Vec<String> = catchers.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    if caught_by.is_empty() {
        return Err(format!("nobody is named that must notice: {row}"));
    }
    Ok(Mutation {
        breaks: text("breaks")?,
        rule: text("rule")?,
        file: text("file")?,
        before: text("before")?,
        after: text("after")?,
        caught_by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "[[mutation]]\nbreaks = \"It is mute.\"\nrule = \"R4\"\nfile = \"a.rs\"\nbefore = \"speak()\"\n\
                       after = \"\"\ncaught_by = [\"s01\"]\n";

    #[test]
    fn a_place_that_is_missing_or_not_the_only_one_is_refused() {
        let of = |code| read(&Tree::of(&[(LIST, ROW), ("a.rs", code)]));
        assert_eq!(of("x; speak();").map(|list| list[0].apply("x; speak();")), Ok(Ok("x; ;".to_owned())));
        assert!(of("x;").is_err());
        assert!(of("speak(); speak();").is_err());
    }
}
