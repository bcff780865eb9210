//! Paths as users write them: a type, a type's variant, or a name in quotes.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{LitStr, Path, parse_quote};

/// A path that may be `crate` or begin with it.
pub(crate) fn parse_path(input: ParseStream<'_>) -> syn::Result<Path> {
    Path::parse_mod_style(input)
}

/// Where the `outbox` crate is, if nothing else is said.
pub(crate) fn default_crate() -> Path {
    parse_quote!(::outbox)
}

/// `Order`, `Aggregates::Order` or `"Order"`.
pub(crate) enum Named {
    /// A struct that stands for itself.
    Type(Path),
    /// One variant of an enum.
    Variant { of: Path, variant: Ident },
    /// A name known at run time only.
    Name(LitStr),
}

impl Named {
    pub(crate) fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            return input.parse().map(Self::Name);
        }
        parse_path(input).map(Self::from_path)
    }

    /// Tells `shop::Order` (a module's struct) from `Aggregates::Order` (an enum's variant) by the
    /// case of the part before the last, as Rust's naming lint has it. Scripts without case are
    /// taken for types.
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
            Some(last) => Self::Variant { of: path, variant: last.ident },
            None => Self::Type(path),
        }
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Type(path) => path.span(),
            Self::Variant { of, .. } => of.span(),
            Self::Name(name) => name.span(),
        }
    }

    /// The constant `AggregateInfo` of what is named.
    pub(crate) fn aggregate_info(&self) -> TokenStream {
        let span = self.span();
        match self {
            Self::Type(path) => {
                quote_spanned!(span=> <#path as __outbox::SingleAggregate>::AGGREGATE)
            }
            Self::Variant { of, variant } => {
                let check =
                    variant_check(span, &format_ident!("__Aggregate"), variant, &quote!({ .. }));
                let name = variant.unraw().to_string();
                quote_spanned!(span=> {
                    type __Aggregate = #of;
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

/// Lets rustc complain about a variant or a field that does not exist: it knows the similar ones.
pub(crate) fn variant_check(
    span: Span,
    of: &Ident,
    variant: &Ident,
    fields: &TokenStream,
) -> TokenStream {
    quote_spanned! {span=>
        fn __variant_exists(value: &#of) -> bool {
            __outbox::matches!(value, #of::#variant #fields)
        }
    }
}

/// An identifier for a generated local variable, invisible to the user's code.
pub(crate) fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// A path as the text that `#[serde(crate = "..")]` wants.
pub(crate) fn as_text(path: &Path) -> String {
    path.to_token_stream().to_string().replace(' ', "")
}
