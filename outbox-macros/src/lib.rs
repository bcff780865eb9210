//! The macros of the [`outbox`](https://docs.rs/outbox) crate. Depend on `outbox` instead of this crate: the
//! generated code refers to items of `::outbox`.
//!
//! # Layout
//! Each macro has the same stages, one file each: parse the attributes, build a model that keeps the user's
//! tokens, check it, expand it. All errors of an item are reported together. An item with errors still gets
//! its trait implementations, so that one error does not cause others.

mod attr;
mod case;
mod diag;
mod duration;
mod path;
mod symbol;

mod listener;
mod names;

use proc_macro::TokenStream;

// The documentation is in files of its own, because it is longer than the code, and a test compares its tables with
// the keys in `symbol.rs`.

#[doc = include_str!("../docs/event_type.md")]
#[proc_macro_derive(EventType, attributes(outbox, serde))]
pub fn derive_event_type(input: TokenStream) -> TokenStream {
    names::derive_event_type(input.into()).into()
}

#[doc = include_str!("../docs/aggregate_type.md")]
#[proc_macro_derive(AggregateType, attributes(outbox))]
pub fn derive_aggregate_type(input: TokenStream) -> TokenStream {
    names::derive_aggregate_type(input.into()).into()
}

#[doc = include_str!("../docs/listener.md")]
#[proc_macro_attribute]
pub fn listener(args: TokenStream, function: TokenStream) -> TokenStream {
    listener::expand(args.into(), function.into()).into()
}
