//! The items that generated code names. Not public API: it may change in any release.

use std::marker::PhantomData;

use ::serde::Serialize;
use ::serde::de::DeserializeOwned;

pub use inventory;
pub use serde;
pub use serde_json;

pub use std::borrow::Borrow;
pub use std::boxed::Box;
pub use std::clone::Clone;
pub use std::convert::From;
pub use std::default::Default;
pub use std::fmt::{Debug, Formatter, Result as FmtResult};
pub use std::marker::Sized;
pub use std::option::Option;
pub use std::primitive::{bool, str, u32, usize};
pub use std::result::Result;
pub use std::string::String;
pub use std::time::Duration;
pub use std::vec::Vec;
pub use std::{assert, concat, file, line, matches, module_path};

pub use crate::event::kind::{
    AggregateIdField, AggregateInfo, AggregateType, EventInfo, EventType, NamedByString,
    NoSuchVariant, PayloadOf, SingleAggregate, TiedToAggregate, VariantAt, aggregate_named,
    aggregate_of, agree, event_index, event_named, event_of, is_struct, joined,
};
pub use crate::listener::argument::{
    Argument, Arguments, Implements, ImplementsNothing, Mistake, NotTransaction, OnlyPayload, Role,
    TakenByField,
};
pub use crate::listener::delivery::{Delivery, payload_of};
pub use crate::listener::entry::{
    EntryCall, EventTypeEntry, ListenerEntry, ListenerOptions, Place, Timeout,
};
pub use crate::listener::from_delivery::Needs;
pub use crate::listener::in_tx::{AnyTx, ListenerTx};
pub use crate::listener::outcome::{BoxFuture, Outcome, Result as Answer, into_outcome};

/// Decodes the payload of an event without fields: `{}`, any other object that an older or newer version
/// of the program may have written, or `null`.
pub fn decode_nothing(json: &str) -> serde_json::Result<()> {
    #[derive(serde::Deserialize)]
    struct Nothing {}
    serde_json::from_str::<Option<Nothing>>(json).map(|_| ())
}

/// The JSON of a payload type. Generated code calls the functions of the implementation that applies: these, or those of
/// [`JsonOfAny`].
#[derive(Debug)]
pub struct Json<T>(PhantomData<T>);

impl<T: Serialize + DeserializeOwned> Json<T> {
    /// Serialises a value as JSON text.
    pub fn to_json(value: &T) -> serde_json::Result<String> {
        serde_json::to_string(value)
    }

    /// Deserialises a value from JSON text.
    pub fn from_json(json: &str) -> serde_json::Result<T> {
        serde_json::from_str(json)
    }
}

/// Stands in for [`Json`] if a type lacks serde's traits, which [`SerdeField`] reports, so that it is never called. It
/// returns an error instead of a constant that fails: an optimised build evaluates that for this crate already.
pub trait JsonOfAny<T> {
    /// Stands in for [`Json::to_json`].
    fn to_json(_: &T) -> serde_json::Result<String> {
        Err(unchecked())
    }

    /// Stands in for [`Json::from_json`].
    fn from_json(_: &str) -> serde_json::Result<T> {
        Err(unchecked())
    }
}

fn unchecked() -> serde_json::Error {
    serde::de::Error::custom("the fields of a payload were not checked")
}

impl<T> JsonOfAny<T> for Json<T> {}

/// Implemented for every type if `Field`, the type of a field, can be part of a payload. `Self` is the type to report:
/// `Money` for a field of type `Vec<Money>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a payload",
    label = "needs both `Serialize` and `Deserialize`",
    note = "every type in an event needs `serde::Serialize` and `serde::Deserialize`: derive both, or \
            turn on the `serde` feature of the crate it comes from"
)]
pub trait SerdeField<Field = Self> {
    /// A constant for generated code to name, so that rustc checks the bound.
    const PROOF: () = ();
}

#[diagnostic::do_not_recommend]
impl<T: ?Sized, Field: Serialize + DeserializeOwned> SerdeField<Field> for T {}

/// [`SerdeField`] for a field that is written by serde and read by other means.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a payload",
    label = "needs `Serialize`",
    note = "a field without `serialize_with` or `skip_serializing` needs `serde::Serialize`: derive it, or turn \
            on the `serde` feature of the crate it comes from"
)]
pub trait SerializeField<Field = Self> {
    /// A constant for generated code to name, so that rustc checks the bound.
    const PROOF: () = ();
}

#[diagnostic::do_not_recommend]
impl<T: ?Sized, Field: Serialize> SerializeField<Field> for T {}

/// [`SerdeField`] for a field that is read by serde and written by other means.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a payload",
    label = "needs `Deserialize`",
    note = "a field without `deserialize_with` or `skip_deserializing` needs `serde::Deserialize`: derive it, or \
            turn on the `serde` feature of the crate it comes from"
)]
pub trait DeserializeField<Field = Self> {
    /// A constant for generated code to name, so that rustc checks the bound.
    const PROOF: () = ();
}

#[diagnostic::do_not_recommend]
impl<T: ?Sized, Field: DeserializeOwned> DeserializeField<Field> for T {}
