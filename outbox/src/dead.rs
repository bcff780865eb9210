//! Dead letters: events that were given up.
//!
//! An event becomes a dead letter when its listener has failed too often or with a permanent error. It remains in the
//! table, as in the dead-letter queue of a message broker, until it is replayed or discarded. [`DeadEvents`] is the
//! handle; a [`DeadFilter`] selects, [`DeadGroup`] counts by cause, and [`BulkChange`] replays or discards any number
//! of them without disturbing writers.
//!
//! ```no_run
//! use outbox::dead::DeadFilter;
//!
//! # async fn example(outbox: outbox::Outbox<sqlx::Sqlite>) -> outbox::Result<()> {
//! let dead = outbox.dead_events();
//! for group in dead.groups(&DeadFilter::new()).await? {
//!     println!("{} × {}: {}", group.count, group.event_type, group.error);
//! }
//! let replayed = dead.replay_all(&DeadFilter::new().event_type("OrderPaid"), 500).await?;
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use outbox_runtime::store::{DeadEvent, DeadFilter, Fingerprint, NoFingerprint, Undecodable};
#[doc(inline)]
pub use outbox_runtime::{BulkChange, DeadEvents, DeadGroup, DeadStream};
