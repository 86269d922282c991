//! CPU and memory of a process, from `/proc`.

use serde::Serialize;

/// Linux counts CPU time of processes in hundredths of a second (`USER_HZ`, fixed for user space on every common
/// architecture).
const TICK_MS: u64 = 10;

#[derive(Debug, thiserror::Error)]
#[error("process {pid} cannot be measured: {reason}")]
pub struct ProcessError {
    pid: u32,
    reason: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct ProcessUse {
    /// User and system time since the process started.
    pub cpu_ms: u64,
    pub resident_kb: u64,
}

impl ProcessUse {
    pub fn of(pid: u32) -> Result<Self, ProcessError> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).map_err(|error| ProcessError { pid, reason: format!("{path}: {error}") })
        };
        let odd = |what: &str| ProcessError { pid, reason: format!("{what} is not as expected") };
        Ok(Self {
            cpu_ms: cpu_ticks(&read("stat")?).ok_or_else(|| odd("stat"))? * TICK_MS,
            resident_kb: resident_kb(&read("status")?).ok_or_else(|| odd("status"))?,
        })
    }
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The second field is the name in brackets and may hold anything, brackets too.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident_kb(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 1000 10";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(resident_kb("Name:\tx\nVmRSS:\t  1234 kB\n"), Some(1_234));
    }

    #[test]
    fn this_process_has_memory_and_a_missing_one_is_named() {
        assert!(ProcessUse::of(std::process::id()).unwrap().resident_kb > 100);
        assert!(ProcessUse::of(u32::MAX).unwrap_err().to_string().contains("4294967295"));
    }
}
