//! Looking into an outbox table and maintaining it.
//!
//! [`Admin`] lists and finds events, counts them, checks the table and its server for problems, and changes single
//! pending events. It is the API behind the command line (`outbox status`, `outbox list`, `outbox doctor`), for tools
//! and admin pages of an application. [`Outbox::admin`](crate::Outbox::admin) returns the one of a running outbox,
//! [`Admin::new`] makes one for any table.
//!
//! [`migrate`] creates or migrates a table ahead of time, and [`migration_sql`] returns its SQL for people who run
//! schema changes manually. [`PurgeScheduler`] deletes old rows in a program of its own.
//!
//! A step of a deployment that runs before the new program is started:
//!
//! ```no_run
//! use outbox::admin::{Admin, DoctorOptions, FindingLevel, Table, migrate};
//!
//! # async fn example(pool: sqlx::SqlitePool) -> outbox::Result<()> {
//! let table = Table::default();
//! migrate(&pool, &table).await?;
//! for finding in Admin::new(pool, table).doctor(&DoctorOptions::new()).await? {
//!     if finding.level > FindingLevel::Ok {
//!         println!("{}: {finding}", finding.subject);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use outbox_runtime::store::{
    BlockReason, BlockedAggregate, DEFAULT_TABLE, DoctorOptions, EventFilter, EventQuery, EventRow,
    Failure, Finding, FindingLevel, Node, NodeListener, Payloads, PendingType, SchemaState, Stats,
    Subscription, SubscriptionPattern, Table, TableError, adoption_sql, migrate, migrate_ordered,
    migration_sql, migration_sql_from, migration_sql_ordered,
};
#[doc(inline)]
pub use outbox_runtime::{Admin, DropSubscription, Purge, PurgeReport, PurgeScheduler};
