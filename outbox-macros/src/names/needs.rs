//! The serde traits that the type of a field needs.
//!
//! A missing one is reported once, at the type, by a check. Everywhere else the code compiles without it: the serde
//! implementations of a hidden struct have it as a bound, and `Json` has functions for any type.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericArgument, PathArguments, Type};

use super::model::{Field, Variant};
use crate::attr::{self, Entry};

/// The traits of serde that the type of a field needs and that are checked.
struct Needs {
    serialize: bool,
    deserialize: bool,
}

impl Needs {
    /// Returns what serde's derive asks of the type of a field with these attributes.
    fn in_derive(field: &Field<'_>) -> Self {
        // Whether a type with a lifetime borrows is found out in the code of the derive only.
        if has_lifetime(field.ty.to_token_stream()) {
            return Self { serialize: false, deserialize: false };
        }
        let entries = attr::serde_entries(field.attrs.iter().copied());
        let has_any = |keys: [&str; 4]| {
            entries.iter().map(Entry::key).any(|key| keys.contains(&key.as_str()))
        };
        Self {
            serialize: !has_any(["skip", "skip_serializing", "with", "serialize_with"]),
            deserialize: !has_any(["skip", "skip_deserializing", "with", "deserialize_with"]),
        }
    }

    /// Generates the check of a field.
    fn check(&self, field: &Field<'_>) -> Option<TokenStream> {
        let check = match self {
            Self { serialize: true, deserialize: true } => quote!(SerdeField),
            Self { serialize: true, deserialize: false } => quote!(SerializeField),
            Self { serialize: false, deserialize: true } => quote!(DeserializeField),
            Self { serialize: false, deserialize: false } => return None,
        };
        let (ty, named) = (field.ty, innermost(field.ty));
        Some(quote_spanned!(named.span()=> let () = <#named as __outbox::#check<#ty>>::PROOF;))
    }
}

fn has_lifetime(ty: TokenStream) -> bool {
    ty.into_iter().any(|token| match token {
        TokenTree::Punct(punct) => punct.as_char() == '\'',
        TokenTree::Group(group) => has_lifetime(group.stream()),
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    })
}

/// Generates the checks of fields whose types implement serde themselves.
pub(super) fn checks(variant: &Variant<'_>) -> TokenStream {
    let needs = Needs { serialize: true, deserialize: true };
    variant.fields.iter().filter_map(|field| needs.check(field)).collect()
}

/// Returns the type to report, which is `T` in `Box<T>`, `Option<T>` and `Vec<T>`: they implement what `T` does.
fn innermost(ty: &Type) -> &Type {
    let inner = match ty {
        Type::Group(group) => &group.elem,
        Type::Paren(paren) => &paren.elem,
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return ty };
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return ty };
            match (last.ident.to_string().as_str(), arguments.args.first(), arguments.args.len()) {
                ("Box" | "Option" | "Vec", Some(GenericArgument::Type(inner)), 1) => inner,
                _ => return ty,
            }
        }
        _ => return ty,
    };
    innermost(inner)
}

/// What a hidden struct needs beside its declaration.
pub(super) struct HiddenNeeds {
    /// The checks of its fields.
    pub(super) checks: TokenStream,
    /// The bounds of its serde implementations, as `bound(..)` in `#[serde(..)]`.
    pub(super) bound: TokenStream,
    /// The aliases by which the bounds name the types.
    pub(super) aliases: TokenStream,
}

/// Generates the checks and bounds of a hidden struct.
///
/// serde would leave the bounds out, because the struct has no parameters, and its code would not compile without the
/// trait. Each has an unused lifetime: other bounds on a type without parameters must hold.
pub(super) fn hidden_needs(variant: &Variant<'_>) -> HiddenNeeds {
    let (mut checks, mut aliases) = (TokenStream::new(), TokenStream::new());
    let (mut serialize, mut deserialize) = (Vec::new(), Vec::new());
    for (index, field) in variant.fields.iter().enumerate() {
        let needs = Needs::in_derive(field);
        let Some(check) = needs.check(field) else { continue };
        checks.extend(check);
        let (alias, ty) = (format_ident!("__{}Field{index}", variant.rust_name()), field.ty);
        aliases.extend(quote!(type #alias = #ty;));
        let bound = |name: &str| format!("for<'any> {alias}: __outbox::serde::{name}");
        serialize.extend(needs.serialize.then(|| bound("Serialize")));
        deserialize.extend(needs.deserialize.then(|| bound("de::DeserializeOwned")));
    }
    let (serialize, deserialize) = (serialize.join(", "), deserialize.join(", "));
    let bound = quote!(bound(serialize = #serialize, deserialize = #deserialize));
    HiddenNeeds { checks, bound, aliases }
}
