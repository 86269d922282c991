//! The durable rules: what may be admitted, what sameness is, what an outcome changes, when a batch closes and what is
//! then to be said. Pure: no runtime, no clock, no randomness; times and ids come in as arguments.
//!
//! Records and their transitions are plain structs ([`operation`], [`batch`], [`delivery`], [`session`]). The verbs in
//! [`ledger`] combine them over [`rows::Rows`], which only gets and puts rows. A store opens a transaction, runs one
//! verb over its rows and commits, so that no two stores can disagree about a rule.
//!
//! *That* a delivery exists is decided here; *when* it may be heard is the conversation's.

pub mod admission;
pub mod attempt;
pub mod audit;
pub mod batch;
pub mod contract;
pub mod delivery;
pub mod history;
pub mod intent;
pub mod ledger;
pub mod operation;
pub mod recovery;
pub mod retry;
pub mod rows;
pub mod session;
pub mod store;

pub use attempt::{Attempt, AttemptAnswer, Fence, LookUpAnswer};
pub use batch::{Batch, BatchState};
pub use delivery::Delivery;
pub use operation::Operation;
pub use session::{SessionEnd, SessionRecord, SessionState};
pub use store::{Store, StoreError};
