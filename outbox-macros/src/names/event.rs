//! Generates the implementation of `EventType`.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::DeriveInput;
use syn::spanned::Spanned;

use super::model::{Model, Variant};
use super::payload::{Payload, Wire, members};
use super::payload_struct;
use crate::path::{default_crate, local};

pub(super) fn expand(model: &Model<'_>) -> TokenStream {
    let (krate, ident) = (&model.krate, model.ident);
    let payloads: Vec<Payload> =
        model.variants.iter().map(|variant| Payload::new(model, variant)).collect();
    let public = payloads.iter().map(|payload| &payload.public);
    let hidden = payloads.iter().map(|payload| &payload.hidden);
    let checks = payloads.iter().map(|payload| &payload.checks);
    let markers = model.variants.iter().map(|variant| variant.ident);
    let event_type = event_type(model, &payloads);
    let tied = tied_to_aggregate(model);
    let paths =
        (0..).zip(&model.variants).map(|(index, variant)| marker_path(model, index, variant));
    let payload_types = model
        .variants
        .iter()
        .zip(&payloads)
        .map(|(variant, payload)| payload_types(model, variant, payload));
    let (type_name, lints) = (model.ident.to_string(), &model.lints);
    quote! {
        #(#public)*

        #[allow(clippy::all, clippy::pedantic, clippy::restriction)]
        #[allow(deprecated, unused_qualifications)]
        #(#lints)*
        const _: () = {
            use #krate::__private as __outbox;
            use #krate::__private::JsonOfAny as _;

            // One marker type per event, so that the compiler can distinguish events.
            #[allow(non_camel_case_types, unreachable_pub)]
            mod __events {
                #(pub enum #markers {})*
            }
            #(#hidden)*
            const _: () = { #(#checks)* };
            #event_type
            #tied
            #(#paths)*
            #(#payload_types)*

            __outbox::inventory::submit! {
                __outbox::EventTypeEntry {
                    type_name: #type_name,
                    file: __outbox::file!(),
                    module: __outbox::module_path!(),
                    aggregate: <#ident as __outbox::EventType>::AGGREGATE,
                    events: <#ident as __outbox::EventType>::EVENTS,
                }
            }
        };
    }
}

/// Generates an implementation for an item without a model, so that its uses compile.
pub(super) fn stub(input: &DeriveInput) -> TokenStream {
    let krate = default_crate();
    let ident = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    quote! {
        const _: () = {
            use #krate::__private as __outbox;

            impl #generics __outbox::EventType for #ident #arguments #bounds {
                const EVENTS: &'static [__outbox::EventInfo] = &[];
                const AGGREGATE: __outbox::Option<__outbox::AggregateInfo> = __outbox::Option::None;
                fn event_name(&self) -> &'static __outbox::str { "" }
                fn aggregate_id(&self) -> __outbox::Option<__outbox::String> {
                    __outbox::Option::None
                }
                fn encode(self) -> __outbox::serde_json::Result<__outbox::String> {
                    __outbox::Result::Ok(__outbox::String::new())
                }
            }
        };
    }
}

fn event_type(model: &Model<'_>, payloads: &[Payload]) -> TokenStream {
    let ident = model.ident;
    let rows = model.variants.iter().map(|variant| row(model, variant));
    let aggregate = match &model.aggregate {
        Some(aggregate) => {
            let info = aggregate.aggregate_info();
            quote!(__outbox::Option::Some(#info))
        }
        None => quote!(__outbox::Option::None),
    };
    let names = model.variants.iter().map(|variant| {
        let (path, name) = (constructor(model, variant), &variant.name.text);
        quote!(#path { .. } => #name)
    });
    let ids = model.variants.iter().map(|variant| aggregate_id(model, variant));
    let encoded = model.variants.iter().zip(payloads).map(|(variant, payload)| {
        let whole = whole(model, variant);
        let json = encode(payload);
        quote!(#whole => #json)
    });
    quote! {
        #[automatically_derived]
        impl __outbox::EventType for #ident {
            const EVENTS: &'static [__outbox::EventInfo] = &[#(#rows),*];

            const AGGREGATE: __outbox::Option<__outbox::AggregateInfo> = #aggregate;

            fn event_name(&self) -> &'static __outbox::str {
                match self { #(#names,)* }
            }

            fn aggregate_id(&self) -> __outbox::Option<__outbox::String> {
                match self { #(#ids,)* }
            }

            fn encode(self) -> __outbox::serde_json::Result<__outbox::String> {
                match self { #(#encoded,)* }
            }
        }
    }
}

fn row(model: &Model<'_>, variant: &Variant<'_>) -> TokenStream {
    let Variant { name, aliases, no_listener, .. } = variant;
    let name = &name.text;
    let rust_name = if model.is_enum { variant.rust_name() } else { String::new() };
    let line = u32::try_from(variant.ident.span().unwrap().line()).unwrap_or(0);
    quote! {
        __outbox::EventInfo {
            variant: #rust_name,
            name: #name,
            aliases: &[#(#aliases),*],
            no_listener: #no_listener,
            line: #line,
        }
    }
}

/// Returns the path of the constructor: `OrderEvent::Paid`, or `UserCreated` for a struct.
fn constructor(model: &Model<'_>, variant: &Variant<'_>) -> TokenStream {
    let (ident, name) = (model.ident, variant.ident);
    if model.is_enum { quote!(#ident::#name) } else { quote!(#ident) }
}

/// Returns the constructor with all fields, both as a pattern and as an expression of the bindings.
fn whole(model: &Model<'_>, variant: &Variant<'_>) -> TokenStream {
    let path = constructor(model, variant);
    let (members, bindings) = (members(variant), variant.fields.iter().map(|field| &field.binding));
    quote!(#path { #(#members: #bindings),* })
}

fn aggregate_id(model: &Model<'_>, variant: &Variant<'_>) -> TokenStream {
    let path = constructor(model, variant);
    let mut fields = variant.fields.iter().zip(members(variant));
    let Some((field, member)) = fields.find(|(field, _)| field.aggregate_id.is_some()) else {
        return quote!(#path { .. } => __outbox::Option::None);
    };
    let (binding, ty) = (&field.binding, field.ty);
    let text = quote_spanned!(ty.span()=> <#ty as __outbox::AggregateIdField>::to_aggregate_id);
    quote!(#path { #member: #binding, .. } => __outbox::Option::Some(#text(#binding)))
}

fn encode(payload: &Payload) -> TokenStream {
    let Some(Wire { ty, construct }) = &payload.wire else {
        return quote!(__outbox::Result::Ok(__outbox::String::from("{}")));
    };
    let to_json = quote_spanned!(ty.span()=> __outbox::Json::<#ty>::to_json);
    if payload.public.is_empty() {
        return quote!(#to_json(&#construct));
    }
    // Constructs the public struct, so that it does not count as unused if no listener takes it.
    let public = &payload.construct;
    quote!({ let #public = #public; #to_json(&#construct) })
}

/// Generates code that decodes the fields from JSON and binds them.
fn decode(payload: &Payload, json: &Ident) -> TokenStream {
    match &payload.wire {
        Some(Wire { ty, construct }) => {
            let from_json = quote_spanned!(ty.span()=> __outbox::Json::<#ty>::from_json);
            quote!(let #construct = #from_json(#json)?;)
        }
        None => quote!(__outbox::decode_nothing(#json)?;),
    }
}

fn marker_path(model: &Model<'_>, index: usize, variant: &Variant<'_>) -> TokenStream {
    let (ident, marker) = (model.ident, variant.ident);
    quote! {
        impl __outbox::VariantAt<#index> for #ident {
            type Event = __events::#marker;
            type DeclaredBy = #ident;
        }
    }
}

/// Generates `PayloadOf` for each type in which a listener may take the payload.
fn payload_types(model: &Model<'_>, variant: &Variant<'_>, payload: &Payload) -> TokenStream {
    let (ident, marker) = (model.ident, variant.ident);
    let json = local("json");
    let decode = decode(payload, &json);
    let implementation = |ty: &TokenStream, construct: &TokenStream| {
        quote! {
            #[automatically_derived]
            impl __outbox::PayloadOf<__events::#marker> for #ty {
                fn decode(#json: &__outbox::str) -> __outbox::serde_json::Result<Self> {
                    #decode
                    __outbox::Result::Ok(#construct)
                }
            }
        }
    };
    let event = whole(model, variant);
    let whole = implementation(&quote!(#ident), &event);
    // A struct with fields is its own payload.
    let part = (model.is_enum || variant.fields.is_empty())
        .then(|| implementation(&payload.ty, &payload.construct));
    let of_struct = (!payload.public.is_empty())
        .then(|| payload_struct::implementations(model, variant, payload, &event));
    quote!(#whole #part #of_struct)
}

/// Generates `TiedToAggregate` for a type that names its aggregate.
fn tied_to_aggregate(model: &Model<'_>) -> Option<TokenStream> {
    let ident = model.ident;
    model.aggregate.as_ref().map(|_| {
        quote! {
            impl __outbox::TiedToAggregate for #ident {
                const TIED_TO: __outbox::AggregateInfo =
                    match <#ident as __outbox::EventType>::AGGREGATE {
                        __outbox::Option::Some(aggregate) => aggregate,
                        __outbox::Option::None => __outbox::aggregate_named(""),
                    };
            }
        }
    })
}
