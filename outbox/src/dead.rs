//! Dead letters: events that were given up.
//!
//! An event becomes a dead letter when its listener has failed too often or with a permanent error. It remains in the
//! table, as in the dead-letter queue of a message broker, until it is replayed or discarded. [`DeadEvents`] is the
//! handle; a [`DeadFilter`] selects, [`DeadGroup`] counts by cause, and [`BulkChange`] replays or discards any number
//! of them without disturbing writers.

#[doc(inline)]
pub use outbox_runtime::store::{DeadEvent, DeadFilter, Fingerprint, NoFingerprint, Undecodable};
#[doc(inline)]
pub use outbox_runtime::{BulkChange, DeadEvents, DeadGroup, DeadStream};
