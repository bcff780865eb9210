//! The struct of a variant with named fields, such as `OrderEventPlaced`, which a listener can take.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::Lifetime;
use syn::spanned::Spanned;

use super::model::{Model, Variant};
use super::payload::{Payload, members};

/// Generates the struct. Its `Debug` shows no content, and reads the fields so that none of them counts as unused.
pub(super) fn declaration(model: &Model<'_>, variant: &Variant<'_>, ident: &Ident) -> TokenStream {
    let (vis, krate, name) = (model.vis, &model.krate, ident.to_string());
    let doc = format!(" The payload of [`{}::{}`].", model.ident, variant.ident);
    let names = members(variant);
    let fields = variant.fields.iter().map(|field| {
        let (ty, name) = (field.ty, field.ident);
        let mut docs = field.attrs.iter().filter(|attr| attr.path().is_ident("doc")).peekable();
        let undocumented = docs.peek().is_none().then(|| quote!(#[doc = ""]));
        let lints = &field.lints;
        quote!(#undocumented #(#docs)* #(#lints)* #vis #name: #ty)
    });
    let lints = &variant.lints;
    quote_spanned! {variant.ident.span()=>
        #[doc = #doc]
        #(#lints)*
        #vis struct #ident { #(#fields),* }

        #[automatically_derived]
        impl #krate::__private::Debug for #ident {
            fn fmt(&self, f: &mut #krate::__private::Formatter<'_>) -> #krate::__private::FmtResult {
                #(let _ = &self.#names;)*
                f.debug_struct(#name).finish_non_exhaustive()
            }
        }
    }
}

/// Generates `Clone` for the struct, and the conversion into its event: `event` is the constructor of the variant
/// with the bindings of the fields.
///
/// The struct is `Clone` if all of its fields are. A bound on a type without parameters must hold, unless it has a
/// lifetime: then an unsatisfied one only takes the implementation away, and a call of `clone` is what rustc reports.
/// Its span is the user's, because rustc would speak of a type parameter in code from a derive.
pub(super) fn implementations(
    model: &Model<'_>,
    variant: &Variant<'_>,
    payload: &Payload,
    event: &TokenStream,
) -> TokenStream {
    let (enum_ident, Payload { ty, construct, .. }) = (model.ident, payload);
    let names = members(variant);
    let any = Lifetime::new("'any", Span::call_site());
    let bounds = variant.fields.iter().map(|field| {
        let ty = field.ty;
        quote_spanned!(ty.span()=> for<#any> #ty: __outbox::Clone)
    });
    quote_spanned! {variant.ident.span()=>
        #[automatically_derived]
        impl __outbox::Clone for #ty where #(#bounds),* {
            #[inline]
            fn clone(&self) -> Self {
                Self { #(#names: __outbox::Clone::clone(&self.#names)),* }
            }
        }

        #[automatically_derived]
        impl __outbox::From<#ty> for #enum_ident {
            #[inline]
            fn from(#construct: #ty) -> Self {
                #event
            }
        }
    }
}
