//! Events and aggregates as users name them: a type, a variant of an enum, or a string.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{LitStr, Path, parse_quote};

/// Parses a path that may start with `crate`.
pub(crate) fn parse_path(input: ParseStream<'_>) -> syn::Result<Path> {
    Path::parse_mod_style(input)
}

/// Returns the path of the `outbox` crate if `crate = ..` does not override it.
pub(crate) fn default_crate() -> Path {
    parse_quote!(::outbox)
}

/// `Order`, `Aggregates::Order` or `"Order"`.
pub(crate) enum Named {
    /// A struct.
    Type(Path),
    /// One variant of an enum.
    Variant { enum_path: Path, variant: Ident },
    /// A string, for a name known at run time only.
    Name(LitStr),
}

impl Named {
    pub(crate) fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            return input.parse().map(Self::Name);
        }
        parse_path(input).map(Self::from_path)
    }

    /// Distinguishes `shop::Order` (a struct in a module) from `Aggregates::Order` (a variant of an enum) by
    /// the case of the last segment but one, following the naming lints of Rust. A name in a script without
    /// case is taken for a type.
    fn from_path(mut path: Path) -> Self {
        let before_last = path.segments.iter().rev().nth(1);
        let is_type = before_last.is_some_and(|segment| {
            let name = segment.ident.unraw().to_string();
            !name.starts_with(|letter: char| letter.is_lowercase() || letter == '_')
        });
        if !is_type {
            return Self::Type(path);
        }
        let last = path.segments.pop();
        path.segments.pop_punct();
        match last {
            Some(last) => Self::Variant { enum_path: path, variant: last.ident },
            None => Self::Type(path),
        }
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Type(path) => path.span(),
            Self::Variant { enum_path, .. } => enum_path.span(),
            Self::Name(name) => name.span(),
        }
    }

    /// Returns the event or aggregate as the user wrote it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Type(path) => as_text(path),
            Self::Variant { enum_path, variant } => format!("{}::{variant}", as_text(enum_path)),
            Self::Name(name) => name.value(),
        }
    }

    /// Returns an expression for the constant `AggregateInfo` of the named aggregate.
    pub(crate) fn aggregate_info(&self) -> TokenStream {
        let span = self.span();
        match self {
            Self::Type(path) => {
                quote_spanned!(span=> <#path as __outbox::SingleAggregate>::AGGREGATE)
            }
            Self::Variant { enum_path, variant } => {
                let check =
                    variant_check(span, &format_ident!("__Aggregate"), variant, &quote!({ .. }));
                let name = variant.unraw().to_string();
                quote_spanned!(span=> {
                    type __Aggregate = #enum_path;
                    #check
                    __outbox::aggregate_of(
                        <__Aggregate as __outbox::AggregateType>::AGGREGATES,
                        #name,
                    )
                })
            }
            Self::Name(name) => quote_spanned!(span=> __outbox::aggregate_named(#name)),
        }
    }
}

/// Generates a check for a variant and its fields, so that rustc reports misspelt names and suggests similar
/// ones.
pub(crate) fn variant_check(
    span: Span,
    ty: &Ident,
    variant: &Ident,
    fields: &TokenStream,
) -> TokenStream {
    quote_spanned! {span=>
        fn __variant_exists(value: &#ty) -> bool {
            __outbox::matches!(value, #ty::#variant #fields)
        }
    }
}

/// Returns an identifier for a generated local variable that the user's code cannot refer to.
pub(crate) fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// Formats a path without spaces.
pub(crate) fn as_text(path: &Path) -> String {
    path.to_token_stream().to_string().replace(' ', "")
}
