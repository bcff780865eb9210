//! The SQL of subscriptions and nodes. The differences between the databases are in a file for each.

#[cfg(feature = "mysql")]
pub(super) mod mysql;
#[cfg(feature = "postgres")]
pub(super) mod postgres;
#[cfg(feature = "sqlite")]
pub(super) mod sqlite;

/// The statements that differ between the databases.
#[derive(Debug)]
pub(super) struct FanOut {
    /// Makes a batch of (sequence, token), claimed by the last argument, rows of the unnamed listener.
    pub(super) mark: &'static str,
    /// Inserts copies of the rows of a batch of (sequence, token, name), claimed by the last argument, due now, except
    /// those that exist.
    pub(super) copy: &'static str,
    /// Inserts a batch of (name, aggregate type, event type) into the table of the subscriptions, or updates when they
    /// were seen. A new row is paused if one of the same name is.
    pub(super) register: &'static str,
    /// Inserts a node with its owner and state, or updates when it was seen.
    pub(super) beat: &'static str,
}
