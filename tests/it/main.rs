//! The event model, the derives and the listeners, as a user's crate sees them.

#![allow(missing_docs, reason = "these types are read here and nowhere else")]

mod decode;
mod docs;
mod envelope;
mod extract;
mod rename;
