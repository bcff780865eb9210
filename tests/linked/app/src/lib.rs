//! An application that depends on the crate of its listeners. A program links that crate only if it refers to
//! it: `tests/complete.rs` does, `tests/forgotten.rs` does not.
