//! The keys of the attributes.

pub(crate) const OUTBOX: &str = "outbox";
pub(crate) const SERDE: &str = "serde";

pub(crate) const AGGREGATE: &str = "aggregate";
pub(crate) const AGGREGATE_ID: &str = "aggregate_id";
pub(crate) const ALIAS: &str = "alias";
pub(crate) const BASE: &str = "base";
pub(crate) const CONCURRENCY: &str = "concurrency";
pub(crate) const CRATE: &str = "crate";
pub(crate) const EVENT: &str = "event";
pub(crate) const MAX: &str = "max";
pub(crate) const MAX_ATTEMPTS: &str = "max_attempts";
pub(crate) const NAME: &str = "name";
pub(crate) const NO_LISTENER: &str = "no_listener";
pub(crate) const RENAME_ALL: &str = "rename_all";
pub(crate) const RETRY: &str = "retry";
pub(crate) const TIMEOUT: &str = "timeout";

/// `#[outbox(..)]` on an enum that derives `EventType`.
pub(crate) const EVENT_ENUM_KEYS: &[&str] = &[AGGREGATE, CRATE, RENAME_ALL];
/// `#[outbox(..)]` on a variant of such an enum.
pub(crate) const EVENT_VARIANT_KEYS: &[&str] = &[ALIAS, NAME, NO_LISTENER];
/// `#[outbox(..)]` on a struct that derives `EventType`.
pub(crate) const EVENT_STRUCT_KEYS: &[&str] = &[AGGREGATE, ALIAS, CRATE, NAME, NO_LISTENER];
/// `#[outbox(..)]` on a field of an event.
pub(crate) const EVENT_FIELD_KEYS: &[&str] = &[AGGREGATE_ID];
/// `#[outbox(..)]` on an enum that derives `AggregateType`.
pub(crate) const AGGREGATE_ENUM_KEYS: &[&str] = &[CRATE, RENAME_ALL];
/// `#[outbox(..)]` on a variant of such an enum.
pub(crate) const AGGREGATE_VARIANT_KEYS: &[&str] = &[ALIAS, NAME];
/// `#[outbox(..)]` on a struct that derives `AggregateType`.
pub(crate) const AGGREGATE_STRUCT_KEYS: &[&str] = &[ALIAS, CRATE, NAME];
/// `#[outbox(..)]` where no key is allowed.
pub(crate) const NO_KEYS: &[&str] = &[];
/// `#[listener(..)]`.
pub(crate) const LISTENER_KEYS: &[&str] =
    &[AGGREGATE, CONCURRENCY, CRATE, EVENT, NAME, OUTBOX, RETRY, TIMEOUT];
/// `retry(..)` in `#[listener(..)]`.
pub(crate) const RETRY_KEYS: &[&str] = &[BASE, MAX, MAX_ATTEMPTS];
