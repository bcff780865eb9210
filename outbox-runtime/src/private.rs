//! The items that generated code names. Not public API: it may change in any release.

pub use inventory;
pub use serde;
pub use serde_json;

pub use std::boxed::Box;
pub use std::clone::Clone;
pub use std::convert::From;
pub use std::default::Default;
pub use std::fmt::{Debug, Formatter, Result as FmtResult};
pub use std::marker::Sized;
pub use std::option::Option;
pub use std::primitive::{str, u32, usize};
pub use std::result::Result;
pub use std::string::String;
pub use std::time::Duration;
pub use std::vec::Vec;
pub use std::{assert, concat, file, line, matches, module_path};

pub use crate::event::kind::{
    AggregateIdField, AggregateInfo, AggregateType, EventInfo, EventType, NoSuchVariant, PayloadOf,
    SingleAggregate, TiedToAggregate, VariantAt, WithoutPayload, aggregate_named, aggregate_of,
    agree, event_index, event_named, event_of, is_struct, joined,
};
pub use crate::listener::delivery::{Delivery, payload_of};
pub use crate::listener::entry::{
    EntryCall, EventTypeEntry, ListenerEntry, ListenerOptions, Place, Timeout,
};
pub use crate::listener::extract::{FromDelivery, Need};
pub use crate::listener::in_tx::{AnyTx, ListenerTx, tx_of};
pub use crate::listener::outcome::{BoxFuture, Outcome, Result as Answer, into_outcome};

/// Decodes the payload of an event without fields: `{}`, any other object that an older or newer version
/// of the program may have written, or `null`.
pub fn decode_nothing(json: &str) -> serde_json::Result<()> {
    #[derive(serde::Deserialize)]
    struct Nothing {}
    serde_json::from_str::<Option<Nothing>>(json).map(|_| ())
}

/// A payload type with serde implementations of its own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a payload",
    label = "needs both `Serialize` and `Deserialize`",
    note = "every type in an event needs `serde::Serialize` and `serde::Deserialize`: derive both, or \
            turn on the `serde` feature of the crate it comes from"
)]
pub trait Wire: Sized {
    /// Serialises the value as JSON text.
    fn to_json(&self) -> serde_json::Result<String>;

    /// Deserialises a value from JSON text.
    fn from_json(json: &str) -> serde_json::Result<Self>;
}

#[diagnostic::do_not_recommend]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Wire for T {
    fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    fn from_json(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }
}
