//! The traits behind the two derives, and the tables that they fill.
//!
//! The listener macro sees one enum path and nothing of the enum. So the derive leaves a table of
//! variants ([`EventType::EVENTS`]) and one marker type for each of them; the macro looks the variant
//! up by its name in a constant and goes from its index to the marker ([`VariantAt`]). A variant that
//! does not exist is left to rustc, which knows best how to say so: its marker is [`NoSuchVariant`],
//! which satisfies everything and so adds no second error.

use std::fmt::{self, Write as _};

/// A domain event: an enum whose variants are the things that can happen, or a struct that is one.
///
/// Derive it; there is nothing to write by hand. See the crate page for the attributes.
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

    /// The name under which this event is stored.
    fn event_name(&self) -> &'static str;

    /// The value of the field marked `#[outbox(aggregate_id)]`.
    fn aggregate_id(&self) -> Option<String>;

    #[doc(hidden)]
    fn encode(self) -> serde_json::Result<String>;
}

/// What an event is about: an order, a customer.
///
/// Derive it on the aggregate's struct, or on an enum with one variant for each aggregate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an aggregate type",
    label = "this does not derive `AggregateType`",
    note = "add `#[derive(outbox::AggregateType)]` to it, or give the name as a string"
)]
pub trait AggregateType {
    #[doc(hidden)]
    const AGGREGATES: &'static [AggregateInfo];

    /// The name under which this aggregate is stored.
    fn aggregate_name(&self) -> &'static str;
}

/// The aggregate type of events that belong to no aggregate; stored as `__GLOBAL__`.
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

/// One row of the table that `#[derive(EventType)]` fills.
#[derive(Debug, Clone, Copy)]
pub struct EventInfo {
    /// The variant as written in Rust; empty for a struct.
    pub variant: &'static str,
    /// The name as stored.
    pub name: &'static str,
    /// Names it was stored under before.
    pub aliases: &'static [&'static str],
    /// Nobody is expected to listen.
    pub no_listener: bool,
    /// Where the variant is declared.
    pub line: u32,
}

/// One row of the table that `#[derive(AggregateType)]` fills.
#[derive(Debug, Clone, Copy)]
pub struct AggregateInfo {
    /// The variant as written in Rust; empty for a struct.
    pub variant: &'static str,
    /// The name as stored.
    pub name: &'static str,
    /// Names it was stored under before.
    pub aliases: &'static [&'static str],
}

/// An aggregate known by its name alone.
pub const fn aggregate_named(name: &'static str) -> AggregateInfo {
    AggregateInfo { variant: "", name, aliases: &[] }
}

/// The aggregate that a variant stands for.
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

/// The names of a variant.
pub const fn event_of(table: &'static [EventInfo], variant: &str) -> EventInfo {
    let index = event_index(table, variant);
    if index < table.len() { table[index] } else { event_named("") }
}

/// An event known by its name alone.
pub const fn event_named(name: &'static str) -> EventInfo {
    EventInfo { variant: "", name, aliases: &[], no_listener: false, line: 0 }
}

/// Whether a table is that of a struct.
pub const fn is_struct(table: &'static [EventInfo]) -> bool {
    event_index(table, "") < table.len()
}

/// The place of a variant in its table, or that of [`NoSuchVariant`].
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

/// Whether an event type and a listener speak of the same aggregate. One without a name has its own
/// error already.
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

/// The aggregate that both speak of, with all its old names: one of them may have been given as a
/// plain text, which has none.
pub const fn joined(event: Option<AggregateInfo>, listener: AggregateInfo) -> AggregateInfo {
    match event {
        Some(event) if event.aliases.len() > listener.aliases.len() => event,
        _ => listener,
    }
}

/// `==` for constants.
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

/// From a variant's index to its marker.
pub trait VariantAt<const INDEX: usize> {
    /// The marker.
    type Event;
}

/// An aggregate that is named by its type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an aggregate",
    label = "this does not derive `AggregateType`, or is an enum",
    note = "add `#[derive(outbox::AggregateType)]` to a struct, name one variant of an enum \
            (`aggregate = Aggregates::Order`), or give the name as a string"
)]
pub trait SingleAggregate {
    /// Its names.
    const AGGREGATE: AggregateInfo;
}

/// An event type that names its own aggregate.
#[diagnostic::on_unimplemented(
    message = "the aggregate of `{Self}` is not known",
    label = "neither the listener nor the event names an aggregate",
    note = "add `aggregate = ..` to the listener, or `#[outbox(aggregate = ..)]` to the type that \
            declares the event; for events that belong to no aggregate: `aggregate = outbox::Global`"
)]
pub trait TiedToAggregate {
    /// Its aggregate.
    const TIED_TO: AggregateInfo;
}

/// A type in which a listener may take the payload of the event with marker `E`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the payload of `{E}`",
    label = "not the payload of `{E}`",
    note = "take what the variant carries: the inner type of a newtype, a tuple of the fields, the \
            generated struct of named fields, or the whole event enum; application state is asked \
            for with `State<T>`"
)]
pub trait PayloadOf<E>: Sized {
    /// Reads it from JSON text.
    fn decode(json: &str) -> serde_json::Result<Self>;
}

/// The marker of an event that carries nothing.
#[diagnostic::on_unimplemented(
    message = "no argument takes the payload of `{Self}`",
    label = "this listener has no payload argument",
    note = "add an argument for the payload, or say that it is not needed with a field pattern: \
            `event = OrderEvent::Placed {{ .. }}`"
)]
pub trait WithoutPayload {
    /// Something to name, so that the bound is checked.
    const PROOF: () = ();
}

/// The marker of a variant that rustc has already complained about.
#[derive(Debug)]
pub enum NoSuchVariant {}

impl<E: EventType> VariantAt<{ usize::MAX }> for E {
    type Event = NoSuchVariant;
}

impl<T> PayloadOf<NoSuchVariant> for T {
    fn decode(_: &str) -> serde_json::Result<Self> {
        Err(serde::de::Error::custom("no such variant"))
    }
}

impl WithoutPayload for NoSuchVariant {}

impl TiedToAggregate for NoSuchVariant {
    const TIED_TO: AggregateInfo = aggregate_named("");
}

/// What a field marked `#[outbox(aggregate_id)]` must be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an aggregate id",
    label = "this has no text form",
    note = "implement `std::fmt::Display` for `{Self}`, or mark another field"
)]
pub trait AggregateIdField {
    /// The id's text.
    fn to_aggregate_id(&self) -> String;
}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display> AggregateIdField for T {
    fn to_aggregate_id(&self) -> String {
        let mut text = String::new();
        // An id that cannot be shown is refused later, being empty.
        if write!(text, "{self}").is_err() {
            text.clear();
        }
        text
    }
}
