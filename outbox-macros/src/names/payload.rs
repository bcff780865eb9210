//! The JSON payload of a variant: named fields become an object, one value stays itself, several values become
//! an array, and no fields become `{}`. The fields are moved into a struct with a serde derive, so that
//! `#[serde(with = ..)]` works as on any struct; a struct of references would break it.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

use super::model::{Field, Model, Variant};
use super::needs::{self, HiddenNeeds};
use super::payload_struct;
use crate::symbol;

/// serde implements its traits for tuples of up to this many values.
const LONGEST_TUPLE: usize = 16;

/// The types and expressions that convert the bindings of a variant to JSON and back.
pub(super) struct Payload {
    /// The public struct of a variant, emitted next to the event type.
    pub(super) public: TokenStream,
    /// A private struct that carries the serde attributes.
    pub(super) hidden: TokenStream,
    /// The checks that the types of the fields implement serde.
    pub(super) checks: TokenStream,
    /// The type that serde reads and writes; `None` for `{}`.
    pub(super) wire: Option<Wire>,
    /// The type that a listener takes.
    pub(super) ty: TokenStream,
    /// The expression that builds that type from the bindings.
    pub(super) construct: TokenStream,
}

pub(super) struct Wire {
    pub(super) ty: TokenStream,
    /// Both the pattern that binds the fields and the expression built from the bindings.
    pub(super) construct: TokenStream,
}

impl Payload {
    pub(super) fn new(model: &Model<'_>, variant: &Variant<'_>) -> Self {
        if variant.fields.is_empty() {
            Self {
                public: TokenStream::new(),
                hidden: TokenStream::new(),
                checks: TokenStream::new(),
                wire: None,
                ty: quote!(()),
                construct: quote!(()),
            }
        } else if variant.has_field_names {
            Self::named(model, variant)
        } else {
            Self::unnamed(model, variant)
        }
    }

    /// Creates the payload of named fields. The struct of a variant is public, so that a listener can take it;
    /// an event struct is its own payload and needs none.
    fn named(model: &Model<'_>, variant: &Variant<'_>) -> Self {
        let ident = format_ident!("{}{}", model.ident, variant.ident, span = variant.ident.span());
        let (names, bindings) = (members(variant), bindings(variant));
        let public = if model.is_enum {
            payload_struct::declaration(model, variant, &ident)
        } else {
            TokenStream::new()
        };
        let Hidden { declaration: hidden, checks, wire } = Hidden::new(model, variant);
        let construct = quote!(#ident { #(#names: #bindings),* });
        Self { public, hidden, checks, wire: Some(wire), ty: quote!(#ident), construct }
    }

    /// Creates the payload of unnamed fields. Without serde attributes, the types implement serde themselves.
    fn unnamed(model: &Model<'_>, variant: &Variant<'_>) -> Self {
        let (ty, construct) = match variant.fields.as_slice() {
            [field] => {
                let (ty, binding) = (field.ty, &field.binding);
                (quote!(#ty), quote!(#binding))
            }
            fields => {
                let (types, bindings) = (fields.iter().map(|field| field.ty), bindings(variant));
                let span = variant.ident.span();
                (quote_spanned!(span=> (#(#types),*)), quote!((#(#bindings),*)))
            }
        };
        let needs_struct = variant.fields.len() > LONGEST_TUPLE
            || !variant.serde.is_empty()
            || variant.fields.iter().any(Field::has_serde);
        let Hidden { declaration: hidden, checks, wire } = if needs_struct {
            Hidden::new(model, variant)
        } else {
            Hidden {
                declaration: TokenStream::new(),
                checks: needs::checks(variant),
                wire: Wire { ty: ty.clone(), construct: construct.clone() },
            }
        };
        Self { public: TokenStream::new(), hidden, checks, wire: Some(wire), ty, construct }
    }
}

/// The struct that serde reads and writes, with the serde attributes of the user.
struct Hidden {
    declaration: TokenStream,
    checks: TokenStream,
    wire: Wire,
}

impl Hidden {
    fn new(model: &Model<'_>, variant: &Variant<'_>) -> Self {
        let span = variant.ident.span();
        let ident = format_ident!("__{}Wire", variant.ident, span = span);
        let serde = &variant.serde;
        let fields = variant.fields.iter().map(|field| {
            let ty = field.ty;
            let attrs = field.attrs.iter().filter(|attr| attr.path().is_ident(symbol::SERDE));
            let name = field.ident.map(|ident| quote!(#ident:));
            let lints = &field.lints;
            quote!(#(#lints)* #(#attrs)* #name #ty)
        });
        let lints = &variant.lints;
        let body = if variant.has_field_names {
            quote!({ #(#fields),* })
        } else {
            quote!((#(#fields),*);)
        };
        let HiddenNeeds { checks, bound, aliases } = needs::hidden_needs(variant);
        let default = variant.has_default().then(|| default(model, variant, &ident));
        let declaration = quote_spanned! {span=>
            #[derive(__outbox::serde::Serialize, __outbox::serde::Deserialize)]
            #[serde(crate = "__outbox::serde", #bound, #(#serde),*)]
            #(#lints)*
            struct #ident #body
            #aliases
            #default
        };
        let (names, bindings) = (members(variant), bindings(variant));
        let wire =
            Wire { ty: quote!(#ident), construct: quote!(#ident { #(#names: #bindings),* }) };
        Self { declaration, checks, wire }
    }
}

/// Generates a `Default` that takes missing fields from the `Default` of the event struct.
fn default(model: &Model<'_>, variant: &Variant<'_>, ident: &Ident) -> TokenStream {
    let event = model.ident;
    let names = members(variant);
    let bindings = bindings(variant);
    quote_spanned! {model.ident.span()=>
        impl __outbox::Default for #ident {
            fn default() -> Self {
                let #event { #(#names: #bindings),* } = __outbox::Default::default();
                Self { #(#names: #bindings),* }
            }
        }
    }
}

/// Returns the field names, or the positions of unnamed fields: both are valid in braces.
pub(super) fn members(variant: &Variant<'_>) -> Vec<TokenStream> {
    variant
        .fields
        .iter()
        .enumerate()
        .map(|(index, field)| match field.ident {
            Some(ident) => quote!(#ident),
            None => {
                let index = syn::Index { index: index as u32, span: field.ty.span() };
                quote!(#index)
            }
        })
        .collect()
}

fn bindings<'a>(variant: &'a Variant<'_>) -> Vec<&'a Ident> {
    variant.fields.iter().map(|field| &field.binding).collect()
}
