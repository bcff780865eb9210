//! Examples of the `outbox` crate. Run one with `cargo run --example typed_events`.
