//! An outbox for the tests of an application: it delivers on demand, with assertions on published events, a manual
//! clock and injected faults.
//!
//! [`outbox()`] makes one on a SQLite database in memory, which needs no server and takes a few milliseconds.
//! [`outbox_on`] makes one on the application's own database, for example in a `#[sqlx::test]`.
//!
//! This module needs the feature `testing`, which belongs in `[dev-dependencies]` and nowhere else: it is not
//! meant for production, and none of it is compiled without the feature. [`outbox()`] also needs the feature `sqlite`.
//!
//! ```
//! # use outbox::EventEnvelope;
//! # use outbox::listener::{Delivery, ListenerRegistry};
//! # use std::time::Duration;
//! use outbox::testing::{assert_published, refute_published};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let registry = ListenerRegistry::new().register("Paid", |_: Delivery| async {});
//! let outbox = outbox::testing::outbox().listeners(registry).start().await;
//!
//! let mut tx = outbox.begin().await?;
//! let paid = EventEnvelope::builder("Paid").payload_json(r#"{"order_id":7}"#);
//! tx.write(paid.deliver_after(Duration::from_secs(60)))?;         // the code under test
//! assert_published!(tx, EventEnvelope::json("Paid", r#"{"order_id":7}"#)?);
//! refute_published!(tx, "Cancelled");
//! tx.commit().await?;
//!
//! assert_eq!(outbox.drain().await.delivered(), 0);
//! outbox.clock().advance(Duration::from_secs(60));
//! assert_eq!(outbox.drain().await.delivered(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//! [`outbox()`] and [`outbox_on`] return a [`TestBuilder`], which starts a [`TestOutbox`]. Its `drain` returns a [`Report`], its
//! `deliver` calls one listener. [`published()`] returns what a transaction has written. `assert` has the macros,
//! `expect` compares events and `diff` describes their differences. The clock is in `clock/manual.rs`, where each
//! database keeps its time in `store/harness/clock.rs`; the faults are in `store/harness/fault.rs`.

/// Declares a struct for any database. With the feature `sqlite`, SQLite is the default.
macro_rules! sqlite_by_default {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident<$($lifetime:lifetime,)? DB> { $($field:ident: $type:ty,)* }
    ) => {
        #[cfg(feature = "sqlite")]
        $(#[$attribute])*
        pub struct $name<$($lifetime,)? DB: $crate::store::Backend = sqlx::Sqlite> { $($field: $type,)* }

        #[cfg(not(feature = "sqlite"))]
        $(#[$attribute])*
        pub struct $name<$($lifetime,)? DB: $crate::store::Backend> { $($field: $type,)* }
    };
}

mod assert;
mod builder;
mod deliver;
mod diff;
mod expect;
mod hot_queue;
mod outbox;
mod published;
mod report;
mod stepper;

#[cfg(feature = "sqlite")]
pub use builder::outbox;
pub use builder::{TestBuilder, outbox_on};
pub use deliver::Deliver;
pub use expect::{Expectation, IntoExpectation};
pub use outbox::TestOutbox;
pub use published::{Published, published};
pub use report::{DeliveryResult, Report, Reported};

#[doc(inline)]
pub use crate::clock::ManualClock;
#[doc(inline)]
pub use crate::store::harness::{FaultPoint, Faults};
#[doc(inline)]
pub use crate::{assert_published, refute_published};

#[doc(hidden)]
pub use hot_queue::{HotQueue, writer_with_hot_queue};

#[doc(hidden)]
pub use assert::{assert_exactly, assert_one, refute_one};
