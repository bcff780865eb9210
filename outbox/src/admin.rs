//! Looking into an outbox table and maintaining it.
//!
//! [`Admin`] lists and finds events, counts them, checks the table and its server for problems, and changes single
//! pending events. It is the API behind the command line (`outbox status`, `outbox list`, `outbox doctor`), for tools
//! and admin pages of an application. [`Outbox::admin`](crate::Outbox::admin) returns the one of a running outbox,
//! [`Admin::new`] makes one for any table.
//!
//! [`migrate`] creates or migrates a table ahead of time, and [`migration_sql`] returns its SQL for people who run
//! schema changes manually. [`PurgeScheduler`] deletes old rows in a program of its own.

#[doc(inline)]
pub use outbox_runtime::store::{
    DEFAULT_TABLE, DoctorOptions, EventFilter, EventQuery, EventRow, Finding, FindingLevel,
    Payloads, PendingType, SchemaState, Stats, Table, TableError, migrate, migration_sql,
    migration_sql_from,
};
#[doc(inline)]
pub use outbox_runtime::{Admin, Purge, PurgeReport, PurgeScheduler};
