//! The derives `EventType` and `AggregateType`: they give a struct, or each variant of an enum, a stored name.

mod aggregate;
mod check;
mod event;
mod model;
mod needs;
mod payload;
mod payload_struct;
mod self_type;

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::diag::Errors;
use model::{Derive, Model};

pub(crate) use check::{aggregate_name, event_name, subscription_name};

pub(crate) fn derive_event_type(input: TokenStream) -> TokenStream {
    derive(input, Derive::EventType, event::expand, event::stub)
}

pub(crate) fn derive_aggregate_type(input: TokenStream) -> TokenStream {
    derive(input, Derive::AggregateType, aggregate::expand, aggregate::stub)
}

/// Expands a type with a model completely even if its names have errors, so that its uses cause no further
/// errors. A type without a model gets a stub.
fn derive(
    input: TokenStream,
    derive: Derive,
    expand: fn(&Model) -> TokenStream,
    stub: fn(&DeriveInput) -> TokenStream,
) -> TokenStream {
    let mut input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    self_type::replace(&mut input);
    let mut errors = Errors::new();
    let expansion = match Model::new(&input, derive, &mut errors) {
        Some(model) => {
            check::check(&model, &mut errors);
            expand(&model)
        }
        None => stub(&input),
    };
    let errors = errors.finish();
    quote!(#expansion #errors)
}
