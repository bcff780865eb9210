//! Writing events in transactions.
//!
//! [`Outbox::begin`](crate::Outbox::begin) begins a [`Tx`]. Statements of the application run in it, and events that
//! are written in it are committed and rolled back together with them. [`Savepoint`] is a part of a transaction that
//! can be rolled back on its own. Where another layer begins the transactions,
//! [`Outbox::write_in`](crate::Outbox::write_in) writes into one of those and returns a [`Receipt`]. A [`Writer`] only
//! writes and needs no running outbox. [`WriterHook`] is called around writes, for audits and similar purposes.
//!
//! ```no_run
//! use outbox::{EventEnvelope, Outbox};
//! use sqlx::Postgres;
//!
//! async fn ship(outbox: &Outbox<Postgres>, order_id: i64) -> outbox::Result<()> {
//!     let mut tx = outbox.begin().await?;
//!     sqlx::query("UPDATE orders SET shipped = TRUE WHERE id = $1")
//!         .bind(order_id)
//!         .execute(&mut *tx)
//!         .await?;
//!     let shipped = EventEnvelope::builder("Shipped").aggregate_type("Order");
//!     tx.write(shipped.aggregate_id(order_id.to_string()).payload_json("{}"))?;
//!     tx.commit().await                                 // both or neither
//! }
//! ```
//!
//! Code that is generic over the database has the bound [`Backend`].

#[doc(no_inline)]
pub use crate::Tx;

#[doc(inline)]
pub use outbox_runtime::store::Backend;
#[doc(inline)]
pub use outbox_runtime::write::{Receipt, Savepoint, WriteOutcome, Writer, WriterHook, Written};
