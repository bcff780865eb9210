//! The macros of the [`outbox`](https://docs.rs/outbox) crate. Depend on that one: the code generated
//! here names its items through `::outbox`.
//!
//! # Layout
//! Each macro goes through the same stages, one file each: parse the attributes, build a model that
//! keeps the user's tokens, check it, expand it. All errors of an item are reported together, and an
//! item with errors still gets its traits, so that no error causes a second one.

mod attr;
mod case;
mod diag;
mod duration;
mod path;
mod symbol;

mod listener;
mod names;

use proc_macro::TokenStream;

/// Makes an enum, or a struct, a domain event. See the crate page of `outbox`.
#[proc_macro_derive(EventType, attributes(outbox, serde))]
pub fn derive_event_type(input: TokenStream) -> TokenStream {
    names::derive_event_type(input.into()).into()
}

/// Makes a struct, or each variant of an enum, an aggregate. See the crate page of `outbox`.
#[proc_macro_derive(AggregateType, attributes(outbox))]
pub fn derive_aggregate_type(input: TokenStream) -> TokenStream {
    names::derive_aggregate_type(input.into()).into()
}

/// Makes an async function the listener of an event. See the crate page of `outbox`.
#[proc_macro_attribute]
pub fn listener(args: TokenStream, function: TokenStream) -> TokenStream {
    listener::expand(args.into(), function.into()).into()
}
