//! `Self` in the types of fields. They are copied to other structs, where it would be the struct, so it is replaced by
//! the name of the type.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Data, DeriveInput, Fields};

/// Replaces `Self` in the types of all fields. A generic type, in which the name alone would not do, is refused later.
pub(super) fn replace(input: &mut DeriveInput) {
    let fields: Vec<&mut Fields> = match &mut input.data {
        Data::Enum(data) => data.variants.iter_mut().map(|variant| &mut variant.fields).collect(),
        Data::Struct(data) => vec![&mut data.fields],
        Data::Union(_) => Vec::new(),
    };
    for field in fields.into_iter().flatten() {
        let mut found = false;
        let tokens = replaced(field.ty.to_token_stream(), &input.ident, &mut found);
        if found && let Ok(ty) = syn::parse2(tokens) {
            field.ty = ty;
        }
    }
}

fn replaced(ty: TokenStream, name: &Ident, found: &mut bool) -> TokenStream {
    let replace = |token| match token {
        TokenTree::Ident(ident) if ident == "Self" => {
            *found = true;
            let mut name = name.clone();
            name.set_span(ident.span());
            TokenTree::Ident(name)
        }
        TokenTree::Group(group) => {
            let mut inner = Group::new(group.delimiter(), replaced(group.stream(), name, found));
            inner.set_span(group.span());
            TokenTree::Group(inner)
        }
        other => other,
    };
    ty.into_iter().map(replace).collect()
}
