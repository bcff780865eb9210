//! An application that depends on its listeners' crate. Whether it also names it is up to each
//! program: `tests/complete.rs` does, `tests/forgotten.rs` does not.
