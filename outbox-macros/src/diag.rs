//! The error messages, one function each, and the context that collects them.
//!
//! Wording: lower case, no full stop, the attribute as the user typed it, then "; " and the remedy.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use syn::Error;

use crate::path::Named;

/// Collects the errors of one item. It panics if it is dropped without [`Errors::finish`], so that no error
/// is lost.
pub(crate) struct Errors {
    found: Option<Option<Error>>,
}

impl Errors {
    pub(crate) fn new() -> Self {
        Self { found: Some(None) }
    }

    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.found {
            Some(Some(found)) => found.combine(error),
            Some(none) => *none = Some(error),
            None => {}
        }
    }

    /// Returns the value, or records the error.
    pub(crate) fn note<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Returns all errors as `compile_error!` calls; empty if there are none.
    pub(crate) fn finish(mut self) -> TokenStream {
        self.found.take().flatten().map(Error::into_compile_error).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.found, Some(None))
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        if self.found.is_some() && !std::thread::panicking() {
            #[expect(clippy::panic, reason = "a missing call of `finish` is a bug in this crate")]
            {
                panic!("errors were collected and not reported");
            }
        }
    }
}

fn error(span: Span, message: impl Display) -> Error {
    Error::new(span, message)
}

fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

// Attributes.

pub(crate) fn unknown_key(span: Span, key: &str, item: &str, known: &[&str]) -> Error {
    if known.is_empty() {
        return error(span, format!("unknown key `{key}`; {item} takes no `outbox` attribute"));
    }
    error(span, format!("unknown key `{key}`; {item} takes {}", list(known)))
}

pub(crate) fn repeated_key(span: Span, key: &str) -> Error {
    error(span, format!("`{key}` is given twice; keep one of them"))
}

pub(crate) fn malformed(span: Span, key: &str, expected: &str) -> Error {
    error(span, format!("malformed `{key}`; expected `{expected}`"))
}

pub(crate) fn malformed_list(span: Span) -> Error {
    error(span, "malformed attribute; expected `key = value`, separated by commas")
}

pub(crate) fn unknown_rename_rule(span: Span, rule: &str, known: &[&str]) -> Error {
    error(span, format!("unknown rename rule `{rule}`; expected one of {}", list(known)))
}

pub(crate) fn malformed_duration(span: Span, key: &str, text: &str, or_none: bool) -> Error {
    let or_none = if or_none { ", or \"none\"" } else { "" };
    error(
        span,
        format!(
            "malformed duration `{text}` in `{key}`; expected a whole number with a unit, such as \
             \"200ms\", \"30s\", \"5m\" or \"1h\"{or_none}"
        ),
    )
}

pub(crate) fn zero(span: Span, key: &str) -> Error {
    error(span, format!("`{key}` must be greater than zero"))
}

pub(crate) fn base_above_max(span: Span) -> Error {
    error(span, "`base` is longer than `max`; lower `base` or raise `max`")
}

// Names.

pub(crate) fn empty_name(span: Span, key: &str) -> Error {
    error(span, format!("`{key}` is empty; use at least one character"))
}

pub(crate) fn long_name(span: Span, what: &str, bytes: usize, limit: usize) -> Error {
    error(
        span,
        format!("{what} name has {bytes} bytes, at most {limit} can be stored; use a shorter name"),
    )
}

pub(crate) fn spaced_name(span: Span, key: &str) -> Error {
    error(
        span,
        format!("`{key}` starts or ends with whitespace, which some databases ignore; remove it"),
    )
}

pub(crate) fn control_name(span: Span, key: &str) -> Error {
    error(span, format!("`{key}` contains a control character; remove it"))
}

pub(crate) fn subscription_character(span: Span, key: &str, character: char) -> Error {
    error(
        span,
        format!(
            "`{key}` contains {character:?}; use only `a` to `z`, `0` to `9`, `_`, `.` and `-`"
        ),
    )
}

pub(crate) fn duplicate_name(span: Span, name: &str, other: &str) -> Error {
    error(
        span,
        format!(
            "name `{name}` is already used by `{other}`; give the variant a unique name with \
             `#[outbox(name = \"..\")]`"
        ),
    )
}

pub(crate) fn colliding_alias(span: Span, name: &str, other: &str) -> Error {
    error(span, format!("alias `{name}` already refers to `{other}`; remove it from one of them"))
}

// Items.

pub(crate) fn union(span: Span, derive: &str) -> Error {
    error(span, format!("`{derive}` cannot be derived for a union; use an enum or a struct"))
}

pub(crate) fn no_variants(span: Span, derive: &str) -> Error {
    error(
        span,
        format!("`{derive}` cannot be derived for an enum without variants; add at least one"),
    )
}

pub(crate) fn generic(span: Span, derive: &str) -> Error {
    error(
        span,
        format!(
            "`{derive}` cannot be derived for a generic type, because a stored name identifies one \
             type; use concrete types"
        ),
    )
}

pub(crate) fn borrowing(span: Span) -> Error {
    error(
        span,
        "an event cannot borrow data, because it is decoded from the database later; use owned \
         types such as `String` or `Vec<T>`",
    )
}

pub(crate) fn two_aggregate_ids(span: Span) -> Error {
    error(span, "two fields are marked `aggregate_id`; keep one of them")
}

pub(crate) fn unsupported_serde(span: Span, key: &str, known: &[&str]) -> Error {
    error(
        span,
        format!(
            "`serde({key})` has no effect on an event; use {}, or attributes on fields",
            list(known)
        ),
    )
}

pub(crate) fn skipped_newtype(span: Span, key: &str) -> Error {
    error(
        span,
        format!(
            "`serde({key})` on the only value of an event leaves nothing to store; use a named field, \
             or remove the value"
        ),
    )
}

// Listeners.

pub(crate) fn missing_event(span: Span) -> Error {
    error(span, "missing `event`; add the event to listen to: `event = OrderEvent::Paid`")
}

pub(crate) fn missing_aggregate(span: Span) -> Error {
    error(
        span,
        "missing `aggregate`, which an event given as a string requires; add `aggregate = Order`, or \
         `aggregate = outbox::event::Global` if the event belongs to no aggregate",
    )
}

pub(crate) fn not_a_function(span: Span) -> Error {
    error(span, "`#[listener]` requires an async function; put it on an `async fn`")
}

pub(crate) fn not_async(span: Span) -> Error {
    error(span, "a listener must be async; write `async fn`")
}

pub(crate) fn receiver(span: Span) -> Error {
    error(
        span,
        "a listener cannot take `self`; use a free function and take application state as `State<T>`",
    )
}

pub(crate) fn generic_function(span: Span) -> Error {
    error(span, "a listener cannot be generic, because the runtime calls it; use concrete types")
}

pub(crate) fn unusual_function(span: Span, keyword: &str) -> Error {
    error(span, format!("a listener cannot be `{keyword}`; write a plain `async fn`"))
}

pub(crate) fn mutable_field(span: Span) -> Error {
    error(span, "a field cannot be a `&mut` argument; take it by value or by `&`")
}

pub(crate) fn second_transaction(span: Span) -> Error {
    error(span, "an event is settled in one transaction; use one `&mut Tx<..>` argument")
}

pub(crate) fn unused_field(span: Span, name: &str) -> Error {
    error(span, format!("no argument is named `{name}`; add one, or replace the field with `..`"))
}

pub(crate) fn field_pattern(span: Span) -> Error {
    error(
        span,
        "malformed field pattern; expected field names, `field: argument`, `field: _` and `..`",
    )
}

pub(crate) fn pattern_of_a_name(span: Span) -> Error {
    error(
        span,
        "an event given as a string has no fields to destructure; take its payload as one argument",
    )
}

pub(crate) fn tuple_pattern(span: Span) -> Error {
    error(
        span,
        "a variant without field names cannot be destructured here; use the variant without a \
         pattern and take its value, or a tuple of its values, as one argument",
    )
}

// Messages that rustc reports.

/// The texts of a `#[diagnostic::on_unimplemented(..)]` attribute, which are format strings.
pub(crate) struct Unimplemented {
    pub(crate) message: String,
    pub(crate) label: String,
    pub(crate) notes: Vec<String>,
}

const OTHER_ARGUMENTS: &str = "take application state as `State<T>`, with a `T` that is `Send` and `Sync`; a type of your \
                               own becomes an extractor by implementing `outbox::listener::FromDelivery`";

pub(crate) fn neither_payload_nor_extractor(event: &Named) -> Unimplemented {
    let text = escaped(&event.text());
    let of_event = format!("`{{Self}}` is neither the payload of `{text}` nor an extractor");
    let (message, label, forms) = match event {
        Named::Variant { .. } => (
            of_event,
            "neither the payload nor an extractor",
            "the payload is what the variant carries: the inner type of a newtype, a tuple of the fields, the \
             generated struct of named fields, or the whole event enum",
        ),
        Named::Type(_) => (
            of_event,
            "neither the payload nor an extractor",
            "the payload is the struct; take single fields of it with a field pattern",
        ),
        Named::Name(_) => (
            String::from("`{Self}` is neither a payload nor an extractor"),
            "implements neither `Deserialize` nor `FromDelivery`",
            "the payload of an event that is given as a string is read with serde: derive `serde::Deserialize`, or turn \
             on the `serde` feature of the crate it comes from",
        ),
    };
    Unimplemented {
        message,
        label: label.to_owned(),
        notes: vec![forms.to_owned(), OTHER_ARGUMENTS.to_owned()],
    }
}

pub(crate) fn both_payload_and_extractor(event: &Named) -> Unimplemented {
    let text = escaped(&event.text());
    let by_serde = match event {
        Named::Variant { .. } | Named::Type(_) => None,
        Named::Name(_) => Some(
            "every type that implements `Deserialize` is a payload of an event that is given as a string",
        ),
    };
    let remedy = "wrap it in a type of your own that is only one of them";
    Unimplemented {
        message: format!("`{{Self}}` is both an extractor and the payload of `{text}`"),
        label: String::from("both an extractor and the payload"),
        notes: by_serde.into_iter().chain([remedy]).map(str::to_owned).collect(),
    }
}

pub(crate) fn neither_field_nor_extractor(argument: &str) -> Unimplemented {
    let argument = escaped(argument);
    Unimplemented {
        message: format!(
            "argument `{argument}` is neither a field in the `event` pattern nor an extractor"
        ),
        label: String::from("`{Self}` is not an extractor"),
        notes: vec![
            String::from("add it to the pattern if it is a field"),
            OTHER_ARGUMENTS.to_owned(),
        ],
    }
}

/// Escapes a text for a format string.
fn escaped(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

pub(crate) fn payload_not_taken(event: &Named) -> Unimplemented {
    let event = escaped(&event.text());
    Unimplemented {
        message: format!("no argument takes the payload of `{event}`"),
        label: String::from("this listener has no payload argument"),
        notes: vec![format!(
            "add an argument for the payload, or say that it is not needed with a field pattern: \
             `event = {event} {{{{ .. }}}}`"
        )],
    }
}

pub(crate) fn event_is_an_enum(path: &str) -> String {
    format!("`{path}` is an enum; name one of its variants: `event = {path}::..`")
}

pub(crate) fn different_aggregate(event: &str) -> String {
    format!(
        "`{event}` declares another aggregate; remove `aggregate`, or use the same one in both places"
    )
}
