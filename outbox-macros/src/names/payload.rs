//! How the fields of one variant travel: named ones as an object, one value as itself, several as an
//! array, none as `{}`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Visibility;
use syn::spanned::Spanned;

use super::model::{Field, Model, Variant};
use crate::path::{as_text, respanned};

/// serde implements its traits for tuples of up to this many values.
const LONGEST_TUPLE: usize = 16;

/// The types and expressions that take a variant's bindings to the wire and back.
pub(super) struct Payload {
    /// A struct that users may name; stands beside the event type.
    pub(super) public: TokenStream,
    /// A struct for serde's attributes alone.
    pub(super) hidden: TokenStream,
    /// What serde reads and writes; `None` for `{}`.
    pub(super) wire: Option<Wire>,
    /// What a listener takes.
    pub(super) ty: TokenStream,
    /// That type, made of the bindings.
    pub(super) made: TokenStream,
}

pub(super) struct Wire {
    pub(super) ty: TokenStream,
    /// Both the pattern that binds the fields and the expression made of the bindings.
    pub(super) made: TokenStream,
}

impl Payload {
    pub(super) fn of(model: &Model<'_>, variant: &Variant<'_>) -> Self {
        if variant.fields.is_empty() {
            Self::nothing()
        } else if variant.has_field_names {
            Self::named(model, variant)
        } else {
            Self::unnamed(model, variant)
        }
    }

    fn nothing() -> Self {
        Self {
            public: TokenStream::new(),
            hidden: TokenStream::new(),
            wire: None,
            ty: quote!(()),
            made: quote!(()),
        }
    }

    /// A variant's struct is public, so that a listener can take it; an event struct has no need of
    /// that, being its own payload.
    fn named(model: &Model<'_>, variant: &Variant<'_>) -> Self {
        let names = variant.fields.iter().filter_map(|field| field.ident);
        let bindings = variant.fields.iter().map(|field| &field.binding);
        let ident = if model.is_enum {
            format_ident!("{}{}", model.ident, variant.ident, span = variant.ident.span())
        } else {
            format_ident!("{}Payload", model.ident)
        };
        let made = quote!(#ident { #(#names: #bindings),* });
        let (public, hidden) = if model.is_enum {
            let doc = format!(" What [`{}::{}`] carries.", model.ident, variant.ident);
            (declare(model, variant, &ident, &doc, model.vis), TokenStream::new())
        } else {
            let hidden = declare(model, variant, &ident, "", &Visibility::Inherited);
            (TokenStream::new(), hidden)
        };
        let wire = Some(Wire { ty: quote!(#ident), made: made.clone() });
        Self { public, hidden, wire, ty: quote!(#ident), made }
    }

    fn unnamed(model: &Model<'_>, variant: &Variant<'_>) -> Self {
        let types = variant.fields.iter().map(|field| field.ty);
        let bindings = variant.fields.iter().map(|field| &field.binding);
        let (ty, made) = match variant.fields.as_slice() {
            [field] => {
                let (ty, binding) = (field.ty, &field.binding);
                (quote!(#ty), quote!(#binding))
            }
            _ => {
                let span = variant.ident.span();
                (quote_spanned!(span=> (#(#types),*)), quote!((#(#bindings),*)))
            }
        };
        let needs_struct =
            variant.fields.len() > LONGEST_TUPLE || variant.fields.iter().any(Field::has_serde);
        if !needs_struct {
            let wire = Wire { ty: ty.clone(), made: made.clone() };
            return Self {
                public: TokenStream::new(),
                hidden: TokenStream::new(),
                wire: Some(wire),
                ty,
                made,
            };
        }
        let ident = format_ident!("{}Payload", variant.ident);
        let bindings = variant.fields.iter().map(|field| &field.binding);
        let wire = Wire { ty: quote!(#ident), made: quote!(#ident(#(#bindings),*)) };
        let hidden = declare(model, variant, &ident, "", &Visibility::Inherited);
        Self { public: TokenStream::new(), hidden, wire: Some(wire), ty, made }
    }
}

/// A struct of the variant's fields with the user's serde attributes on them.
fn declare(
    model: &Model<'_>,
    variant: &Variant<'_>,
    ident: &Ident,
    doc: &str,
    vis: &Visibility,
) -> TokenStream {
    let span = variant.ident.span();
    let krate = respanned(&model.krate, span);
    let serde_crate = format!("{}::__private::serde", as_text(&model.krate));
    let serde = &variant.serde;
    let fields = variant.fields.iter().map(|field| {
        let (attrs, ty) = (&field.attrs, field.ty);
        let name = field.ident.map(|ident| quote!(#ident:));
        quote!(#(#attrs)* #vis #name #ty)
    });
    let body =
        if variant.has_field_names { quote!({ #(#fields),* }) } else { quote!((#(#fields),*);) };
    let default = variant.has_default().then(|| default(model, variant, ident));
    quote_spanned! {span=>
        #[doc = #doc]
        #[allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs)]
        #[allow(dead_code, missing_debug_implementations, unreachable_pub)]
        #[derive(#krate::__private::serde::Serialize, #krate::__private::serde::Deserialize)]
        #[serde(crate = #serde_crate, #(#serde),*)]
        #vis struct #ident #body
        #default
    }
}

/// Takes the defaults of absent fields from the event struct's own `Default`.
fn default(model: &Model<'_>, variant: &Variant<'_>, ident: &Ident) -> TokenStream {
    let event = model.ident;
    let names: Vec<TokenStream> = members(variant);
    let bindings: Vec<&Ident> = variant.fields.iter().map(|field| &field.binding).collect();
    quote_spanned! {model.ident.span()=>
        impl __outbox::Default for #ident {
            fn default() -> Self {
                let #event { #(#names: #bindings),* } = __outbox::Default::default();
                Self { #(#names: #bindings),* }
            }
        }
    }
}

/// Field names, or positions where there are none: both work in braces.
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
