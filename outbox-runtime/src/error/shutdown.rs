use std::fmt;

use super::{Error, chain, group_member};

/// The outboxes of a group that could not be shut down cleanly, collected in one error.
///
/// [`Outboxes::shutdown`](crate::Outboxes::shutdown) returns it as [`Error::Shutdown`]. All outboxes of the group have
/// stopped; of those listed here, the last results could not be recorded. There is nothing to repair: the events become
/// available when their lease expires and are delivered again. Log the error.
pub struct ShutdownError {
    failures: Vec<ShutdownFailure>,
}

/// One outbox that could not be shut down cleanly.
#[derive(Debug)]
#[non_exhaustive]
pub struct ShutdownFailure {
    /// The name of the outbox; `None` is the unnamed one.
    pub outbox: Option<String>,
    /// The error of its shutdown, as [`Outbox::shutdown`](crate::Outbox::shutdown) returns it.
    pub error: Error,
}

impl ShutdownError {
    pub(crate) fn new(failures: Vec<ShutdownFailure>) -> Self {
        Self { failures }
    }

    /// Returns the outboxes that failed, in the order of the group. There is at least one.
    pub fn failures(&self) -> &[ShutdownFailure] {
        &self.failures
    }
}

impl fmt::Display for ShutdownFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", group_member(self.outbox.as_deref()), chain(&self.error))
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failures.as_slice() {
            [failure] => write!(f, "an outbox was not shut down cleanly: {failure}"),
            failures => {
                write!(f, "{} outboxes were not shut down cleanly:", failures.len())?;
                failures.iter().try_for_each(|failure| write!(f, "\n  - {failure}"))
            }
        }
    }
}

/// Writes the same as `Display`, because a `main` that returns the error prints its `Debug` form.
impl fmt::Debug for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ShutdownError {}
