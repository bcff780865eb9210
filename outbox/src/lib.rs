#![doc = include_str!("../README.md")]

#[doc(inline)]
pub use outbox_macros::{AggregateType, EventType, listener};

#[doc(inline)]
pub use outbox_runtime::event::{
    AggregateName, AggregateType, Delay, Dynamic, EnvelopeBuilder, EventEnvelope, EventError,
    EventId, EventName, EventType, Field, Global, Headers, IntoAggregateName, IntoEnvelope,
    MAX_AGGREGATE_ID_BYTES, MAX_AGGREGATE_NAME_BYTES, MAX_EVENT_ID_BYTES, MAX_EVENT_NAME_BYTES,
    MAX_HEADERS_BYTES, MAX_PAYLOAD_BYTES, MAX_TENANT_ID_BYTES, Payload, Status, Typed, Verdict,
    VerdictKind, event,
};
#[doc(inline)]
pub use outbox_runtime::listener::{
    Delivery, IntoListenerError, IntoOutcome, Listener, ListenerError, ListenerErrorKind,
    ListenerOptions, ListenerRegistry, Listeners, Meta, Outcome, Place, RegistryError,
    RegistryFault, Result, State, Timeout, Unhandled,
};

#[doc(inline)]
pub use outbox_runtime::{
    Backoff, BackoffError, Builder, BulkChange, ClaimedEvent, Config, ConfigFault, DeadEvents,
    DeadGroup, DeadStream, DispatcherConfig, EnvError, Error, EventInterceptor, HotPathSkip, Lane,
    Metric, MetricKind, MetricUnit, MetricsExporter, Mode, Outbox, PollerConfig, PollerHandler,
    Purge, PurgeConfig, PurgeReport, PurgeScheduler, RetryConfig, RetryPolicy, StartError,
    StartFault, Unroutable, builder, start,
};

#[cfg(feature = "metrics")]
#[doc(inline)]
pub use outbox_runtime::{MetricsFacade, PrefixError};

#[doc(inline)]
pub use outbox_runtime::store::{
    Backend, Completion, DEFAULT_TABLE, DatabaseErrorKind, DeadEvent, DeadFilter, DoctorOptions,
    EventFilter, EventQuery, EventRow, Finding, FindingLevel, Fingerprint, NoFingerprint,
    PendingType, SchemaError, SchemaState, Stats, Store, Table, TableError, migrate, migration_sql,
    migration_sql_from,
};
#[doc(inline)]
pub use outbox_runtime::write::{
    Receipt, Savepoint, Tx, WriteOutcome, Writer, WriterHook, Written,
};

#[cfg(feature = "testing")]
#[doc(inline)]
pub use outbox_runtime::testing;

#[doc = include_str!("../OPERATING.md")]
pub mod operating {}

#[doc(hidden)]
pub use outbox_runtime::private as __private;
