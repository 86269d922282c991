//! The files that tidy looks at, read once.

use std::io;
use std::path::Path;
use std::process::Command;

/// One file; `path` is relative to the root, with `/` between its parts.
#[derive(Clone, Debug)]
pub struct File {
    pub path: String,
    /// `None` for a file that is not UTF-8: sound, images.
    pub text: Option<String>,
}

impl File {
    /// The text, empty for a file that has none.
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("")
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// All files of the project, sorted by path.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub files: Vec<File>,
}

impl Tree {
    /// A tree from memory, for tests of the rules.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| File { path: (*path).into(), text: Some((*text).into()) });
        Self { files: files.collect() }
    }

    /// Reads what git tracks and what it would track (so a finding shows before the commit). Where there is no git, as in an
    /// unpacked archive, reads every file outside build output and hidden folders.
    ///
    /// Fails when a listed folder cannot be read; a file that was deleted but is still tracked is passed over.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => {
                let mut paths = Vec::new();
                walk(root, "", &mut paths)?;
                paths
            }
        };
        paths.sort();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            match std::fs::read(root.join(&path)) {
                Ok(bytes) => files.push(File { path, text: String::from_utf8(bytes).ok() }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io::Error::new(error.kind(), format!("{path}: {error}"))),
            }
        }
        Ok(Self { files })
    }

    pub fn find(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    let mut paths: Vec<String> = text.split('\0').filter(|path| !path.is_empty()).map(String::from).collect();
    // A conflicted file is listed once a stage.
    paths.dedup();
    // An archive unpacked inside another checkout, where git answers for a tree that is not ours.
    paths.iter().any(|path| path == "Cargo.toml").then_some(paths)
}

fn walk(root: &Path, folder: &str, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let ours = !name.starts_with('.') || matches!(name.as_str(), ".ci" | ".cargo" | ".config");
            if ours && name != "target" {
                walk(root, &path, paths)?;
            }
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}
