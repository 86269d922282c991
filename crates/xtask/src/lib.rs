//! The habits of the house as programs. `tidy` checks what the compiler cannot: which room may know which, what pure
//! code may not name, and how the tree is kept. It is a library so that `cargo test` runs it on the real tree.
//!
//! Absent on purpose: nothing here writes to the tree, and nothing needs a network.

pub mod mutations;
pub mod tidy;
pub mod tree;

pub use tidy::{Finding, Rule, check};
pub use tree::{File, Tree};
