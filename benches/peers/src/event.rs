//! The payload that every peer carries.

use serde::{Deserialize, Serialize};

/// The payload: the number of the event, and text that makes it 300 bytes of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Payload {
    /// Events are numbered from zero, so that losses and duplicates are found.
    pub(crate) number: u32,
    pub(crate) text: String,
}

impl Payload {
    /// Returns the payload of an event.
    pub(crate) fn new(number: u32) -> Self {
        Self { number, text: text() }
    }

    /// Returns the payload as JSON.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// Returns the text of a payload.
pub(crate) fn text() -> String {
    "x".repeat(270)
}
