//! Every message, and the context that gathers them.
//!
//! Wording: lower case, no full stop, the attribute as the user typed it, then "; " and the remedy.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use syn::Error;

/// The errors of one item. It must be asked for them before it goes.
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

    /// The value, or its error noted.
    pub(crate) fn note<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// All of them as `compile_error!`; nothing if there were none.
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
            #[expect(clippy::panic, reason = "a forgotten check is a bug of ours, not of the user")]
            {
                panic!("errors were gathered and not reported");
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

pub(crate) fn unknown_key(span: Span, key: &str, place: &str, known: &[&str]) -> Error {
    if known.is_empty() {
        return error(span, format!("unknown key `{key}`; {place} takes no `outbox` attribute"));
    }
    error(span, format!("unknown key `{key}`; {place} takes {}", list(known)))
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
    let or_none = if or_none { " or \"none\"" } else { "" };
    error(
        span,
        format!(
            "malformed duration `{text}` in `{key}`; expected a whole number with a unit, such as \
             \"200ms\", \"30s\", \"5m\" or \"1h\"{or_none}"
        ),
    )
}

pub(crate) fn zero(span: Span, key: &str) -> Error {
    error(span, format!("`{key}` must be more than zero"))
}

pub(crate) fn base_above_max(span: Span) -> Error {
    error(span, "`base` is longer than `max`; the first delay cannot exceed the longest")
}

// Names.

pub(crate) fn empty_name(span: Span, key: &str) -> Error {
    error(span, format!("`{key}` is empty; a stored name needs at least one character"))
}

pub(crate) fn long_name(span: Span, what: &str, bytes: usize, limit: usize) -> Error {
    error(
        span,
        format!(
            "{what} name has {bytes} bytes; at most {limit} can be stored, choose a shorter one"
        ),
    )
}

pub(crate) fn spaced_name(span: Span, key: &str) -> Error {
    error(
        span,
        format!("`{key}` begins or ends with white space; some databases ignore it, remove it"),
    )
}

pub(crate) fn control_name(span: Span, key: &str) -> Error {
    error(span, format!("`{key}` contains a control character; remove it"))
}

pub(crate) fn duplicate_name(span: Span, name: &str, other: &str) -> Error {
    error(
        span,
        format!(
            "name `{name}` is taken by `{other}`; every variant needs a name of its own, give one \
             with `#[outbox(name = \"..\")]`"
        ),
    )
}

pub(crate) fn colliding_alias(span: Span, name: &str, other: &str) -> Error {
    error(span, format!("alias `{name}` leads to `{other}` already; remove it from one of them"))
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
            "`{derive}` cannot be derived for a generic type; a stored name stands for one type, use \
             concrete types"
        ),
    )
}

pub(crate) fn borrowing(span: Span) -> Error {
    error(
        span,
        "an event cannot borrow; it is read back from the database long after, own the data \
         (`String`, `Vec<T>`)",
    )
}

pub(crate) fn two_aggregate_ids(span: Span) -> Error {
    error(span, "two fields are marked `aggregate_id`; keep one of them")
}

pub(crate) fn unsupported_serde(span: Span, key: &str, known: &[&str]) -> Error {
    error(
        span,
        format!(
            "`serde({key})` has no effect on an event; known here are {}, and every attribute on \
             fields",
            list(known)
        ),
    )
}

pub(crate) fn skipped_newtype(span: Span, key: &str) -> Error {
    error(
        span,
        format!(
            "`serde({key})` on the only value of an event leaves nothing to store; make it a field \
             with a name, or drop the value"
        ),
    )
}

// Listeners.

pub(crate) fn missing_event(span: Span) -> Error {
    error(span, "missing `event`; name what it listens to: `event = OrderEvent::Paid`")
}

pub(crate) fn missing_aggregate(span: Span) -> Error {
    error(
        span,
        "missing `aggregate`; an event named by a string needs one: `aggregate = Order`, or \
         `aggregate = outbox::Global` if it belongs to none",
    )
}

pub(crate) fn not_a_function(span: Span) -> Error {
    error(span, "`#[listener]` goes on an async function")
}

pub(crate) fn not_async(span: Span) -> Error {
    error(span, "a listener must be async; write `async fn`")
}

pub(crate) fn receiver(span: Span) -> Error {
    error(
        span,
        "a listener cannot take `self`; make it a free function and ask for what it needs with \
         `State<T>`",
    )
}

pub(crate) fn generic_function(span: Span) -> Error {
    error(span, "a listener cannot be generic; it is called by the runtime, use concrete types")
}

pub(crate) fn unusual_function(span: Span, keyword: &str) -> Error {
    error(span, format!("a listener cannot be `{keyword}`; write a plain `async fn`"))
}

const ASKABLE: &str = "`State<T>`, `Meta`, `&EventEnvelope` and `&mut Tx<DB>`";

pub(crate) fn second_payload(span: Span) -> Error {
    error(
        span,
        format!(
            "a second payload argument; a listener takes one payload, and beside it may ask for \
             {ASKABLE}: wrap what the application provides in `State<T>`"
        ),
    )
}

pub(crate) fn mutable_argument(span: Span) -> Error {
    error(
        span,
        format!(
            "a listener cannot ask for a `&mut` reference; beside the payload it may ask for {ASKABLE}"
        ),
    )
}

pub(crate) fn transaction_not_lent(span: Span) -> Error {
    error(
        span,
        "a listener is lent the transaction that ends its event, and does not end it itself; write \
         `&mut outbox::Tx<..>`",
    )
}

pub(crate) fn second_transaction(span: Span) -> Error {
    error(span, "an event is ended by one transaction; ask for one `&mut Tx<..>`")
}

pub(crate) fn unbound_argument(span: Span, name: &str) -> Error {
    error(
        span,
        format!(
            "argument `{name}` is neither a field in the `event` pattern nor something a listener can \
             ask for; add it to the pattern, or ask for {ASKABLE}"
        ),
    )
}

pub(crate) fn unused_field(span: Span, name: &str) -> Error {
    error(span, format!("no argument is called `{name}`; add one, or leave the field to `..`"))
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
        "an event that is named in quotes has no fields to take apart; take its payload as one \
         argument",
    )
}

pub(crate) fn tuple_pattern(span: Span) -> Error {
    error(
        span,
        "a variant without field names cannot be taken apart here; name the variant alone and take \
         its value, or a tuple of its values, as one argument",
    )
}
