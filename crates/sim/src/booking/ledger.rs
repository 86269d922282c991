//! The append-only file behind the bookings: a line is a booking, and a booking is on disk before anybody hears of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// One table, promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booking {
    /// `B-7`: what the caller is told.
    pub reference: String,
    /// The `Idempotency-Key` of the request that made it.
    pub key: Option<String>,
    /// The request's body as it came.
    pub details: Value,
}

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: line {line} is not a booking: {source}", path.display())]
    Damaged { path: PathBuf, line: usize, source: serde_json::Error },
}

#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    file: File,
    bookings: Vec<Booking>,
    first_number: u32,
}

impl Ledger {
    /// Reads what is there. A last line without its end was never answered: it is cut off.
    pub(super) fn open(path: &Path, first_number: u32) -> Result<Self, LedgerError> {
        let io = |source| LedgerError::Io { path: path.to_owned(), source };
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(io)?;
        let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            file.set_len(whole as u64).map_err(io)?;
            file.sync_data().map_err(io)?;
        }
        let mut bookings = Vec::new();
        for (n, line) in text[..whole].split(|&b| b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
            let damaged = |source| LedgerError::Damaged { path: path.to_owned(), line: n + 1, source };
            bookings.push(serde_json::from_slice(line).map_err(damaged)?);
        }
        Ok(Self { path: path.to_owned(), file, bookings, first_number })
    }

    pub(super) fn bookings(&self) -> &[Booking] {
        &self.bookings
    }

    /// The first booking made under the key.
    pub(super) fn by_key(&self, key: &str) -> Option<&Booking> {
        self.bookings.iter().find(|b| b.key.as_deref() == Some(key))
    }

    /// Blocks for one `fdatasync`: the simulator would rather be slow than lie.
    pub(super) fn commit(&mut self, key: Option<String>, details: Value) -> Result<Booking, LedgerError> {
        let number = self.first_number + self.bookings.len() as u32;
        let booking = Booking { reference: format!("B-{number}"), key, details };
        let io = |source| LedgerError::Io { path: self.path.clone(), source };
        let mut line = serde_json::to_vec(&booking).map_err(|error| io(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(io)?;
        self.file.sync_data().map_err(io)?;
        self.bookings.push(booking.clone());
        Ok(booking)
    }
}
