//! The function under the attribute, without its body.

use proc_macro2::{Span, TokenStream};
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Signature, Visibility};

use crate::diag;

pub(super) struct Function {
    pub(super) attrs: Vec<Attribute>,
    pub(super) signature: Signature,
}

impl Function {
    pub(super) fn parse(item: TokenStream) -> syn::Result<Self> {
        Self::parse_tokens.parse2(item)
    }

    fn parse_tokens(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        let start = input.span();
        let signature = input.parse().map_err(|error: syn::Error| {
            let at_start = same_position(error.span(), start);
            if at_start { diag::not_a_function(start) } else { error }
        })?;
        // The body stays unparsed, so that incomplete code keeps its completions.
        input.parse::<TokenStream>()?;
        Ok(Self { attrs, signature })
    }

    /// Returns the `cfg` attributes, which decide whether the function exists.
    pub(super) fn conditions(&self) -> impl Iterator<Item = &Attribute> {
        self.attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
    }
}

fn same_position(left: Span, right: Span) -> bool {
    let (left, right) = (left.unwrap(), right.unwrap());
    (left.line(), left.column()) == (right.line(), right.column())
}
