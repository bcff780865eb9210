//! The examples are the programs beside this file; `cargo run --example typed_events` runs one.
