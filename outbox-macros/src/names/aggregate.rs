//! Generates the implementation of `AggregateType`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use super::model::{Model, Variant};
use crate::path::default_crate;

pub(super) fn expand(model: &Model<'_>) -> TokenStream {
    let (krate, ident) = (&model.krate, model.ident);
    let rows: Vec<TokenStream> = model.variants.iter().map(row).collect();
    let (name, single) = if model.is_enum {
        let names = model.variants.iter().map(|variant| {
            let (variant, name) = (variant.ident, &variant.name.text);
            quote!(#ident::#variant { .. } => #name)
        });
        (quote!(match self { #(#names,)* }), TokenStream::new())
    } else {
        let single = quote! {
            #[automatically_derived]
            impl __outbox::SingleAggregate for #ident {
                const AGGREGATE: __outbox::AggregateInfo = #(#rows)*;
            }
        };
        (quote!(<#ident as __outbox::SingleAggregate>::AGGREGATE.name), single)
    };
    quote! {
        #[allow(clippy::all, clippy::pedantic, clippy::restriction)]
        #[allow(deprecated, unused_qualifications)]
        const _: () = {
            use #krate::__private as __outbox;

            #[automatically_derived]
            impl __outbox::AggregateType for #ident {
                const AGGREGATES: &'static [__outbox::AggregateInfo] = &[#(#rows),*];

                fn aggregate_name(&self) -> &'static __outbox::str {
                    #name
                }
            }
            #single
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

            impl #generics __outbox::AggregateType for #ident #arguments #bounds {
                const AGGREGATES: &'static [__outbox::AggregateInfo] = &[];
                fn aggregate_name(&self) -> &'static __outbox::str { "" }
            }
            impl #generics __outbox::SingleAggregate for #ident #arguments #bounds {
                const AGGREGATE: __outbox::AggregateInfo = __outbox::aggregate_named("");
            }
        };
    }
}

fn row(variant: &Variant<'_>) -> TokenStream {
    let Variant { name, aliases, .. } = variant;
    let (rust_name, name) = (variant.rust_name(), &name.text);
    quote! {
        __outbox::AggregateInfo { variant: #rust_name, name: #name, aliases: &[#(#aliases),*] }
    }
}
