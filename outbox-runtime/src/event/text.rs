//! The rules that every stored text obeys.

use super::{EventError, Field};

/// The longest aggregate id.
pub const MAX_AGGREGATE_ID_BYTES: usize = 128;

/// The longest tenant id.
pub const MAX_TENANT_ID_BYTES: usize = 64;

/// Checks a name or an id: not empty, short enough, and the same text on every database, whatever
/// it does with outer spaces and control characters.
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
