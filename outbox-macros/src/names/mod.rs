//! Both derives: a type, or each variant of one, gets a stored name.

mod aggregate;
mod check;
mod event;
mod model;
mod payload;

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::diag::Errors;
use model::{Derive, Model};

pub(crate) use check::{aggregate_name, event_name};

pub(crate) fn derive_event_type(input: TokenStream) -> TokenStream {
    derive(input, Derive::EventType, event::expand, event::stub)
}

pub(crate) fn derive_aggregate_type(input: TokenStream) -> TokenStream {
    derive(input, Derive::AggregateType, aggregate::expand, aggregate::stub)
}

/// A type that can be modelled is expanded in full even if its names have errors, so that its uses
/// add none; one that cannot gets a stub.
fn derive(
    input: TokenStream,
    derive: Derive,
    expand: fn(&Model) -> TokenStream,
    stub: fn(&DeriveInput) -> TokenStream,
) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
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
