//! How long recordings are kept. Only what is a recording is ever removed: a directory with a log and its sidecars, file by
//! file, and the directory last, which fails if anything else lies in it.

use recording::{AGENT_FILE, CALLER_FILE, STEPS_FILE};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// One that changed within this time may still be written.
const STILL_WRITTEN: Duration = Duration::from_secs(60);

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub kept: usize,
    pub kept_bytes: u64,
    pub removed: usize,
    pub removed_bytes: u64,
    /// Could not be removed; tried again at the next sweep.
    pub failed: usize,
}

struct Kept {
    place: PathBuf,
    bytes: u64,
    changed: SystemTime,
}

/// Removes recordings in `dir` that last changed more than `keep` ago, then the oldest while all together take more than
/// `max_bytes`. One that may still be written is left alone.
pub fn sweep(dir: &Path, keep: Duration, max_bytes: u64, now: SystemTime) -> io::Result<Swept> {
    let mut found: Vec<Kept> = fs::read_dir(dir)?.flatten().filter_map(|entry| measured(entry.path())).collect();
    found.sort_by(|a, b| (a.changed, &a.place).cmp(&(b.changed, &b.place)));
    let mut bytes: u64 = found.iter().map(|kept| kept.bytes).sum();
    let mut swept = Swept::default();
    for kept in found {
        let age = now.duration_since(kept.changed).unwrap_or_default();
        let goes = age >= STILL_WRITTEN && (age > keep || bytes > max_bytes);
        if !goes {
            swept.kept += 1;
            swept.kept_bytes += kept.bytes;
            continue;
        }
        match remove(&kept.place) {
            Ok(()) => {
                bytes -= kept.bytes;
                swept.removed += 1;
                swept.removed_bytes += kept.bytes;
            }
            Err(error) => {
                tracing::warn!(%error, place = %kept.place.display(), "a recording could not be removed");
                swept.failed += 1;
                swept.kept_bytes += kept.bytes;
            }
        }
    }
    Ok(swept)
}

/// `None` when it is no recording.
fn measured(place: PathBuf) -> Option<Kept> {
    // Not followed: a link into another directory is not ours to empty.
    if !fs::symlink_metadata(&place).ok()?.is_dir() {
        return None;
    }
    let steps = fs::metadata(place.join(STEPS_FILE)).ok()?;
    let mut changed = steps.modified().ok()?;
    let mut bytes = steps.len();
    for sidecar in [CALLER_FILE, AGENT_FILE] {
        if let Ok(sidecar) = fs::metadata(place.join(sidecar)) {
            bytes += sidecar.len();
            changed = changed.max(sidecar.modified().unwrap_or(changed));
        }
    }
    Some(Kept { place, bytes, changed })
}

/// The log goes last: what is half removed is still found by the next sweep.
fn remove(place: &Path) -> io::Result<()> {
    for file in [CALLER_FILE, AGENT_FILE, STEPS_FILE] {
        match fs::remove_file(place.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    fs::remove_dir(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const DAY: Duration = Duration::from_secs(86_400);
    const NO_LIMIT: u64 = u64::MAX;

    /// Recordings of 100 bytes, named by their age in days.
    fn place(name: &str, ages: &[u32], now: SystemTime) -> PathBuf {
        let place = std::env::temp_dir().join(format!("retention-{name}-{}", std::process::id()));
        for age in ages {
            let recording = place.join(format!("day{age}"));
            fs::create_dir_all(&recording).unwrap();
            for (file, bytes) in [(STEPS_FILE, 20), (CALLER_FILE, 50), (AGENT_FILE, 30)] {
                fs::write(recording.join(file), vec![b'x'; bytes]).unwrap();
                let file = File::options().write(true).open(recording.join(file)).unwrap();
                file.set_modified(now - DAY * *age).unwrap();
            }
        }
        place
    }

    fn left(place: &Path) -> Vec<String> {
        let names = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn recordings_go_when_they_are_too_old() {
        let now = SystemTime::now();
        let place = place("age", &[1, 5, 6, 9], now);
        let swept = sweep(&place, DAY * 5, NO_LIMIT, now).unwrap();
        assert_eq!(left(&place), ["day1", "day5"]);
        assert_eq!(swept, Swept { kept: 2, kept_bytes: 200, removed: 2, removed_bytes: 200, failed: 0 });
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn the_oldest_go_until_the_rest_fits_but_never_one_that_may_be_written() {
        let now = SystemTime::now();
        let place = place("size", &[0, 1, 2, 3], now);
        assert_eq!(sweep(&place, DAY * 30, 250, now).unwrap().removed, 2);
        assert_eq!(left(&place), ["day0", "day1"]);
        assert_eq!(sweep(&place, Duration::ZERO, 0, now).unwrap().removed, 1);
        assert_eq!(left(&place), ["day0"]);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn what_is_no_recording_is_left_alone() {
        let now = SystemTime::now();
        let place = place("other", &[7], now);
        fs::create_dir(place.join("notes")).unwrap();
        fs::write(place.join("notes").join("list.txt"), "x").unwrap();
        fs::write(place.join("README"), "x").unwrap();
        fs::write(place.join("day7").join("remark.txt"), "x").unwrap();
        let swept = sweep(&place, Duration::ZERO, 0, now).unwrap();
        assert_eq!((swept.removed, swept.failed), (0, 1));
        assert_eq!(left(&place), ["README", "day7", "notes"]);
        assert_eq!(left(&place.join("day7")), ["remark.txt"]);
        fs::remove_dir_all(place).unwrap();
    }
}
