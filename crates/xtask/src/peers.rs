//! `cargo xtask peers`: other people's clients and bridges against our simulated model and our server. Installs them, pinned,
//! below `target/peers`, builds what is tested, and hands over to `tests/peers/run.py`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const USAGE: &str = "\
usage: cargo xtask peers [--skip-missing] [NAME…]

  --skip-missing  end well when Python, Node or a registry of packages is not there
  NAME            only these: openai, livekit, pipecat, agents-js, openai-live, livekit-live, server-events, live-events,
                  live-calls, bridge
";

/// Both were run with these at the least.
const PYTHON: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
const NODE: &str = "process.exit(Number(process.versions.node.split('.')[0]) < 20 ? 1 : 0)";
/// Names what was installed, in the folder that it was installed into.
const STAMP: &str = "installed.txt";

enum Stopped {
    /// Not ours to mend: something that this machine lacks.
    Missing(String),
    Failed(String),
}

pub fn peers(root: &Path, words: &[String]) -> Result<(), String> {
    let (options, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.starts_with('-'));
    if let Some(other) = options.iter().find(|option| **option != "--skip-missing") {
        return Err(format!("`{other}` is not known here\n\n{USAGE}"));
    }
    match run(root, &names) {
        Ok(()) => Ok(()),
        Err(Stopped::Missing(what)) if !options.is_empty() => {
            eprintln!("peers: skipped: {what}");
            Ok(())
        }
        Err(Stopped::Missing(what)) => Err(format!("{what}\n(--skip-missing lets it pass where this cannot be had)")),
        Err(Stopped::Failed(why)) => Err(why),
    }
}

fn run(root: &Path, names: &[&String]) -> Result<(), Stopped> {
    look_for_tools()?;
    let here = Here::find(root)?;
    here.python("python")?;
    here.python("pipecat")?;
    here.javascript()?;
    let scratch = here.target.join("run");
    fs::create_dir_all(&scratch).map_err(|error| failed(&scratch, &error))?;
    build(root)?;
    let report = here.target.join("report.md");
    let status = Command::new(here.target.join("python/bin/python"))
        .arg(here.sources.join("run.py"))
        .args([OsStr::new("--program"), here.program.as_os_str()])
        .args([OsStr::new("--installed"), here.target.as_os_str()])
        .args([OsStr::new("--scratch"), scratch.as_os_str()])
        .args([OsStr::new("--report"), report.as_os_str()])
        .args([OsStr::new("--cargo"), crate::cargo_path().as_os_str()])
        .args(names)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| Stopped::Failed(format!("cannot start run.py: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(Stopped::Failed(format!("a peer disagrees, see above; logs are in {}", scratch.display())))
}

fn look_for_tools() -> Result<(), Stopped> {
    let needs = [
        ("python3", ["-c", PYTHON], "Python 3.11 or newer with venv (Debian: apt-get install python3 python3-venv)"),
        ("node", ["-e", NODE], "Node 20 or newer (Debian: apt-get install nodejs)"),
        ("npm", ["--version", "--silent"], "npm (Debian: apt-get install npm)"),
    ];
    for (program, words, name) in needs {
        if !quiet(Command::new(program).args(words)) {
            return Err(Stopped::Missing(format!("the peers need {name}")));
        }
    }
    Ok(())
}

struct Here {
    sources: PathBuf,
    /// Where peers are installed and reports lie.
    target: PathBuf,
    program: PathBuf,
}

impl Here {
    fn find(root: &Path) -> Result<Self, Stopped> {
        // Built by the same cargo into the same folder as we were, wherever that is.
        let built = std::env::current_exe().ok().and_then(|ours| Some(ours.parent()?.to_owned()));
        let target = built.as_deref().and_then(Path::parent).map(|target| target.join("peers"));
        let (Some(built), Some(target)) = (built, target) else {
            return Err(Stopped::Failed("the folder of this program is unknown".to_owned()));
        };
        let program = built.join("answerback").with_extension(std::env::consts::EXE_EXTENSION);
        Ok(Self { sources: root.join("tests/peers"), target, program })
    }

    /// A virtual environment of its own for each list: two of the peers do not bear each other's versions.
    fn python(&self, name: &str) -> Result<(), Stopped> {
        let list = self.sources.join("install").join(format!("{name}.txt"));
        let folder = self.target.join(name);
        self.install(&folder, &[&list], |folder| {
            step("python3", Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))?;
            let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
            step("pip", Command::new(folder.join("bin/python")).args(pip).arg(&list))
        })
    }

    fn javascript(&self) -> Result<(), Stopped> {
        let (list, lock) = (self.sources.join("install/package.json"), self.sources.join("install/package-lock.json"));
        let folder = self.target.join("js");
        self.install(&folder, &[&list, &lock], |folder| {
            fs::create_dir_all(folder).map_err(|error| error.to_string())?;
            for file in [&list, &lock] {
                fs::copy(file, folder.join(file.file_name().unwrap_or_default())).map_err(|error| error.to_string())?;
            }
            let clean = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"];
            step("npm", Command::new("npm").args(clean).current_dir(folder))
        })?;
        // Node looks for packages from where a script lies.
        let scripts = folder.join("scripts");
        fs::create_dir_all(&scripts).map_err(|error| failed(&scripts, &error))?;
        for part in ["peers", "bridge"] {
            let from = self.sources.join(part);
            for entry in fs::read_dir(&from).map_err(|error| failed(&from, &error))?.flatten() {
                let path = entry.path();
                if path.extension() == Some(OsStr::new("mjs")) {
                    fs::copy(&path, scripts.join(entry.file_name())).map_err(|error| failed(&path, &error))?;
                }
            }
        }
        Ok(())
    }

    /// Once for each state of the lists.
    fn install(
        &self,
        folder: &Path,
        lists: &[&Path],
        how: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), Stopped> {
        let mut wanted = String::new();
        for list in lists {
            wanted += &fs::read_to_string(list).map_err(|error| failed(list, &error))?;
        }
        let stamp = folder.join(STAMP);
        if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
            return Ok(());
        }
        eprintln!("peers: installing into {}", folder.display());
        let _ = fs::remove_file(&stamp);
        how(folder).map_err(|why| {
            Stopped::Missing(format!("{why}, into {}: is its registry of packages in reach?", folder.display()))
        })?;
        fs::write(&stamp, wanted).map_err(|error| failed(&stamp, &error))
    }
}

/// What is tested, and the simulators' own tests, whose events are looked at as well.
fn build(root: &Path) -> Result<(), Stopped> {
    crate::cargo(root, &["build", "--quiet", "--package", "answerback"]).map_err(Stopped::Failed)?;
    crate::cargo(root, &["test", "--quiet", "--package", "sim", "--tests", "--no-run"]).map_err(Stopped::Failed)
}

fn step(name: &str, command: &mut Command) -> Result<(), String> {
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}")),
        Err(error) => Err(format!("{name} cannot be started: {error}")),
    }
}

fn quiet(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn failed(place: &Path, error: &std::io::Error) -> Stopped {
    Stopped::Failed(format!("{}: {error}", place.display()))
}
