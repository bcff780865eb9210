//! The rules for stored names and ids.

use super::{EventError, Field};

/// The maximum length of an aggregate id, in bytes. [`EventError::TooLong`] is the error above it.
pub const MAX_AGGREGATE_ID_BYTES: usize = 128;

/// The maximum length of a tenant id, in bytes. [`EventError::TooLong`] is the error above it.
pub const MAX_TENANT_ID_BYTES: usize = 64;

/// Checks a name or an id: it must not be empty or too long. Outer white space and control characters are
/// refused too, because databases treat them differently and the text must be the same on each.
pub(super) fn check(field: Field, text: &str, limit: usize) -> Result<(), EventError> {
    if text.is_empty() {
        return Err(EventError::Empty(field));
    }
    if text.len() > limit {
        return Err(EventError::TooLong { field, limit, actual: text.len() });
    }
    if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        return Err(EventError::OuterSpace(field));
    }
    if text.contains(char::is_control) {
        return Err(EventError::ControlCharacter(field));
    }
    Ok(())
}
