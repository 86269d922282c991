//! The durable record: operations, attempts, batches, deliveries, sessions and their audit rows.
//!
//! The rules are `operations::ledger`; a store opens a transaction, runs one verb over its rows and commits. What is
//! absent here on purpose: any decision about what an outcome means or what is to be said.

pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod verb;

pub use memory::MemoryStore;
pub use operations::store::*;
#[cfg(feature = "sqlite")]
pub use sqlite::{OpenError, SqliteStore};
