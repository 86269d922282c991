//! The tests that need more than one room; each folder is one kind.
