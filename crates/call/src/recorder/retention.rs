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
