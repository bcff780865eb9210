//! The traits behind the two derives, and the tables that the derives generate.
//!
//! The listener macro sees one enum path and nothing of the enum. So the derive generates a table of
//! variants ([`EventType::EVENTS`]) and one marker type for each of them; the macro looks the variant
//! up by its name in a constant expression and gets from its index to the marker ([`VariantAt`]). A variant
//! that does not exist is reported by rustc, which has the best message for it: its marker is
//! [`NoSuchVariant`], which satisfies every bound and so adds no second error.

use std::fmt::{self, Write as _};

use serde::de::DeserializeOwned;

/// A domain event type: an enum whose variants are event types, or a struct that is one event type.
///
/// Derive it with `#[derive(EventType)]`; a manual implementation is not supported. The values of the type are then
/// written with [`Tx::write`](crate::write::Tx::write), and `#[listener(event = OrderEvent::Paid)]` handles one
/// variant.
///
/// The fields of a variant are the payload, stored as JSON. Every field needs `serde::Serialize` and
/// `serde::Deserialize`, and attributes of serde on fields are honoured:
///
/// | variant | JSON |
/// |---|---|
/// | `Placed { order_id: u64 }` | `{"order_id":7}` |
/// | `Paid(Receipt)` | the JSON of `Receipt` |
/// | `Moved(u64, u64)` | `[1,2]` |
/// | `Cancelled` | `{}` |
///
/// The attributes of `#[outbox(..)]` say the rest:
///
/// - `aggregate = Order` or `aggregate = "Order"` names the [aggregate type](AggregateType) of all variants; without it
///   they belong to [`Global`];
/// - `#[outbox(aggregate_id)]` on a field stores its text in the column `aggregate_id`;
/// - `name = ".."` and `rename_all = ".."` set the stored names, and `alias = ".."` keeps rows with a former name
///   deliverable;
/// - `no_listener` on a variant declares that the event needs no listener: it is stored and settled at once, as a
///   record for other readers of the table. A variant that has neither a listener nor this attribute is *unhandled*,
///   which the start reports ([`Unhandled`](crate::listener::Unhandled)).
///
/// # Changing an event type
///
/// Rows outlive a deployment, and during one the old and the new program run side by side. Keep stored payloads
/// readable: give a new field `#[serde(default)]`, and after a rename of a variant list its old name as an `alias`. The
/// Rust path of the type is not stored, so it can move between modules and crates. An event that a program cannot
/// decode is retried ([`ListenerErrorKind::Decode`](crate::listener::ListenerErrorKind::Decode)), so that a newer
/// program can deliver it.
///
/// # Examples
///
/// ```
/// use outbox::EventType;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Receipt { total_cents: u64 }
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order", rename_all = "snake_case")]
/// enum OrderEvent {
///     #[outbox(alias = "order_created")]              // the name in older rows
///     OrderPlaced {
///         #[outbox(aggregate_id)]
///         order_id: u64,
///         #[serde(default)]                           // older rows do not have it
///         express: bool,
///     },
///     OrderPaid(Receipt),
///     #[outbox(no_listener)]
///     OrderArchived,
/// }
///
/// let placed = OrderEvent::OrderPlaced { order_id: 7, express: true };
/// assert_eq!(placed.event_name(), "order_placed");
/// assert_eq!(placed.aggregate_id().as_deref(), Some("7"));
///
/// let stored = outbox::event(placed).build()?;
/// assert_eq!(stored.aggregate_type(), "Order");
/// assert_eq!(stored.payload().as_str(), r#"{"order_id":7,"express":true}"#);
/// # Ok::<(), outbox::event::EventError>(())
/// ```
///
/// A struct is one event type, without an enum around it:
///
/// ```
/// use outbox::EventType;
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "User", name = "user_registered")]
/// struct UserRegistered { #[outbox(aggregate_id)] user_id: u64, email: String }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event type",
    label = "this does not derive `EventType`",
    note = "add `#[derive(outbox::EventType)]` to the enum or struct that declares the event"
)]
pub trait EventType: Sized {
    #[doc(hidden)]
    const EVENTS: &'static [EventInfo];

    #[doc(hidden)]
    const AGGREGATE: Option<AggregateInfo>;

    /// Returns the name under which this event is stored, in the column `event_type`.
    ///
    /// Aliases are not returned: they are names of older rows, and new events never get them.
    fn event_name(&self) -> &'static str;

    /// Returns the text of the field marked `#[outbox(aggregate_id)]`, if there is one.
    ///
    /// [`EnvelopeBuilder::aggregate_id`](super::EnvelopeBuilder::aggregate_id) overrides it for one event.
    fn aggregate_id(&self) -> Option<String>;

    #[doc(hidden)]
    fn encode(self) -> serde_json::Result<String>;
}

/// An aggregate type: the kind of entity that an event belongs to, such as an order or a customer.
///
/// The listener of an event is found by its aggregate type and its event type, so two aggregates can have events of the
/// same name. Derive it with `#[derive(AggregateType)]` on the aggregate's struct, or on an enum with one variant for
/// each aggregate, and name it in `#[outbox(aggregate = ..)]` of an event type. A string does the same without a Rust
/// type; the derive protects from typing errors and knows aliases.
///
/// The stored name is that of the struct or variant, at most
/// [`MAX_AGGREGATE_NAME_BYTES`](super::MAX_AGGREGATE_NAME_BYTES) long. `#[outbox(name = "..")]` and, on an enum,
/// `rename_all` change it; `alias` keeps rows with a former name deliverable.
///
/// # Examples
///
/// ```
/// use outbox::{AggregateType, EventType};
///
/// #[derive(AggregateType)]
/// #[outbox(name = "customer", alias = "client")]
/// struct Customer { /* the entity of the domain */ }
///
/// #[derive(AggregateType)]
/// enum Aggregates { Order, Shipment }
///
/// #[derive(EventType)]
/// #[outbox(aggregate = Customer)]
/// enum CustomerEvent { Moved }
///
/// #[derive(EventType)]
/// #[outbox(aggregate = Aggregates::Shipment)]
/// enum ShipmentEvent { Moved }
///
/// assert_eq!(outbox::event(CustomerEvent::Moved).build()?.aggregate_type(), "customer");
/// assert_eq!(outbox::event(ShipmentEvent::Moved).build()?.aggregate_type(), "Shipment");
/// assert_eq!(Aggregates::Order.aggregate_name(), "Order");
/// # Ok::<(), outbox::event::EventError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an aggregate type",
    label = "this does not derive `AggregateType`",
    note = "add `#[derive(outbox::AggregateType)]` to it, or give the name as a string"
)]
pub trait AggregateType {
    #[doc(hidden)]
    const AGGREGATES: &'static [AggregateInfo];

    /// Returns the name under which this aggregate type is stored, in the column `aggregate_type`; never an alias.
    fn aggregate_name(&self) -> &'static str;
}

/// The aggregate type of events that belong to no aggregate; stored as `__GLOBAL__`.
///
/// An event type without `#[outbox(aggregate = ..)]` belongs to it. A listener for an event that is given as a string
/// names it explicitly: `#[listener(aggregate = outbox::event::Global, event = "CacheFlushed")]`.
///
/// ```
/// use outbox::AggregateType;
/// use outbox::event::Global;
///
/// let flushed = outbox::EventEnvelope::json("CacheFlushed", "{}")?;
/// assert_eq!(flushed.aggregate_type(), Global.aggregate_name());
/// # Ok::<(), outbox::event::EventError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Global;

impl AggregateType for Global {
    const AGGREGATES: &'static [AggregateInfo] = &[Self::AGGREGATE];

    fn aggregate_name(&self) -> &'static str {
        Self::AGGREGATE.name
    }
}

impl SingleAggregate for Global {
    const AGGREGATE: AggregateInfo = aggregate_named("__GLOBAL__");
}

/// One row of the table that `#[derive(EventType)]` generates.
#[derive(Debug, Clone, Copy)]
pub struct EventInfo {
    /// The variant as written in Rust; empty for a struct.
    pub variant: &'static str,
    /// The name as stored.
    pub name: &'static str,
    /// Former names, under which rows may still be stored.
    pub aliases: &'static [&'static str],
    /// Whether the variant is marked `#[outbox(no_listener)]`: it needs no listener, and is stored as done.
    pub no_listener: bool,
    /// The line on which the variant is declared.
    pub line: u32,
}

/// One row of the table that `#[derive(AggregateType)]` generates.
#[derive(Debug, Clone, Copy)]
pub struct AggregateInfo {
    /// The variant as written in Rust; empty for a struct.
    pub variant: &'static str,
    /// The name as stored.
    pub name: &'static str,
    /// Former names, under which rows may still be stored.
    pub aliases: &'static [&'static str],
}

/// Makes an aggregate that is known only by its name.
pub const fn aggregate_named(name: &'static str) -> AggregateInfo {
    AggregateInfo { variant: "", name, aliases: &[] }
}

/// Returns the aggregate of a variant, or one with an empty name if there is no such variant.
pub const fn aggregate_of(table: &'static [AggregateInfo], variant: &str) -> AggregateInfo {
    let mut index = 0;
    while index < table.len() {
        if same_name(table[index].variant, variant) {
            return table[index];
        }
        index += 1;
    }
    aggregate_named("")
}

/// Returns the event of a variant, or one with an empty name if there is no such variant.
pub const fn event_of(table: &'static [EventInfo], variant: &str) -> EventInfo {
    let index = event_index(table, variant);
    if index < table.len() { table[index] } else { event_named("") }
}

/// Makes an event that is known only by its name.
pub const fn event_named(name: &'static str) -> EventInfo {
    EventInfo { variant: "", name, aliases: &[], no_listener: false, line: 0 }
}

/// Returns whether a table belongs to a struct.
pub const fn is_struct(table: &'static [EventInfo]) -> bool {
    event_index(table, "") < table.len()
}

/// Returns the index of a variant in its table, or the index of [`NoSuchVariant`].
pub const fn event_index(table: &'static [EventInfo], variant: &str) -> usize {
    let mut index = 0;
    while index < table.len() {
        if same_name(table[index].variant, variant) {
            return index;
        }
        index += 1;
    }
    usize::MAX
}

/// Returns whether an event type and a listener name the same aggregate. An empty name has been reported by
/// another error already.
pub const fn agree(event: Option<AggregateInfo>, listener: AggregateInfo) -> bool {
    match event {
        Some(event) => {
            event.name.is_empty()
                || listener.name.is_empty()
                || same_name(event.name, listener.name)
        }
        None => true,
    }
}

/// Returns the aggregate that both name, with its aliases: one of them may be a plain string, which has
/// no aliases.
pub const fn joined(event: Option<AggregateInfo>, listener: AggregateInfo) -> AggregateInfo {
    match event {
        Some(event) if event.aliases.len() > listener.aliases.len() => event,
        _ => listener,
    }
}

/// Compares strings in constant expressions, where `==` is not available.
const fn same_name(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// Maps a variant's index to its marker.
pub trait VariantAt<const INDEX: usize> {
    /// The variant's marker.
    type Event;
    /// The type that declares the variant.
    type DeclaredBy;
}

/// A type that names exactly one aggregate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an aggregate",
    label = "this does not derive `AggregateType`, or is an enum",
    note = "add `#[derive(outbox::AggregateType)]` to a struct, name one variant of an enum \
            (`aggregate = Aggregates::Order`), or give the name as a string"
)]
pub trait SingleAggregate {
    /// The aggregate's names.
    const AGGREGATE: AggregateInfo;
}

/// An event type that names its aggregate.
#[diagnostic::on_unimplemented(
    message = "the aggregate of `{Self}` is not known",
    label = "neither the listener nor the event names an aggregate",
    note = "add `aggregate = ..` to the listener, or `#[outbox(aggregate = ..)]` to `{Self}`; for events \
            that belong to no aggregate: `aggregate = outbox::event::Global`"
)]
pub trait TiedToAggregate {
    /// The event's aggregate.
    const TIED_TO: AggregateInfo;
}

/// A type in which a listener may take the payload of the event with marker `E`. The code of a listener reports a type
/// that is not, because it knows the event as the user wrote it.
pub trait PayloadOf<E>: Sized {
    /// Deserialises the payload from JSON text.
    fn decode(json: &str) -> serde_json::Result<Self>;
}

/// The marker of an event that a listener names by a string: every type that serde can deserialise is its payload.
#[derive(Debug)]
pub enum NamedByString {}

impl<T: DeserializeOwned> PayloadOf<NamedByString> for T {
    fn decode(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }
}

/// The marker of a variant that does not exist, which rustc has reported already.
#[derive(Debug)]
pub enum NoSuchVariant {}

impl<E: EventType> VariantAt<{ usize::MAX }> for E {
    type Event = NoSuchVariant;
    type DeclaredBy = NoSuchVariant;
}

impl<T> PayloadOf<NoSuchVariant> for T {
    fn decode(_: &str) -> serde_json::Result<Self> {
        Err(serde::de::Error::custom("no such variant"))
    }
}

impl TiedToAggregate for NoSuchVariant {
    const TIED_TO: AggregateInfo = aggregate_named("");
}

/// A type that a field marked `#[outbox(aggregate_id)]` may have.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an aggregate id",
    label = "this has no text form",
    note = "implement `std::fmt::Display` for `{Self}`, or mark another field"
)]
pub trait AggregateIdField {
    /// Returns the id as text.
    fn to_aggregate_id(&self) -> String;
}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display> AggregateIdField for T {
    fn to_aggregate_id(&self) -> String {
        let mut text = String::new();
        // If `Display` fails, the empty id is refused when the envelope is built.
        if write!(text, "{self}").is_err() {
            text.clear();
        }
        text
    }
}
