//! Attribute arguments: `key`, `key = value` and `key(list)`, separated by commas.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Attribute, LitInt, LitStr, Meta, Path, Token};

use crate::diag::{self, Errors};
use crate::path::parse_path;
use crate::symbol;

/// Returns the lints that an item allows, as attributes for the code generated from it. An `expect` becomes
/// an `allow`, because the item itself fulfils the expectation.
pub(crate) fn allowed_lints(attrs: &[Attribute]) -> Vec<TokenStream> {
    let lints = |attr: &Attribute| match &attr.meta {
        Meta::List(list) if list.path.is_ident("allow") || list.path.is_ident("expect") => {
            let lints = &list.tokens;
            Some(quote!(#[allow(#lints)]))
        }
        _ => None,
    };
    attrs.iter().filter_map(lints).collect()
}

/// One `key ..` of an attribute. The value stays unparsed until its expected form is known.
pub(crate) struct Entry {
    key: Ident,
    value: Value,
}

#[derive(Clone)]
enum Value {
    None,
    Assigned(TokenStream),
    List(Group),
}

impl Entry {
    pub(crate) fn key(&self) -> String {
        self.key.unraw().to_string()
    }

    pub(crate) fn span(&self) -> Span {
        self.key.span()
    }

    /// Returns the span of the value, or of the key if there is no value.
    pub(crate) fn value_span(&self) -> Span {
        match &self.value {
            Value::None => self.key.span(),
            Value::Assigned(tokens) => {
                tokens.clone().into_iter().next().map_or(self.key.span(), |token| token.span())
            }
            Value::List(group) => group.span(),
        }
    }

    fn malformed(&self, expected: &str) -> syn::Error {
        diag::malformed(self.value_span(), &self.key(), expected)
    }

    /// Parses an assigned value; `expected` shows the correct form in the error.
    pub(crate) fn assigned<T>(
        &self,
        expected: &str,
        parser: impl Parser<Output = T>,
    ) -> syn::Result<T> {
        match &self.value {
            Value::Assigned(tokens) => {
                parser.parse2(tokens.clone()).map_err(|_| self.malformed(expected))
            }
            Value::None | Value::List(_) => Err(self.malformed(expected)),
        }
    }

    pub(crate) fn string(&self) -> syn::Result<LitStr> {
        self.assigned(&format!("{} = \"..\"", self.key()), <LitStr as Parse>::parse)
    }

    pub(crate) fn path(&self) -> syn::Result<Path> {
        self.assigned(&format!("{} = some::path", self.key()), parse_path)
    }

    /// Parses a whole number greater than zero.
    pub(crate) fn count(&self) -> syn::Result<u32> {
        let expected = format!("{} = 5", self.key());
        let literal = self.assigned(&expected, <LitInt as Parse>::parse)?;
        match literal.base10_parse() {
            Err(_) => Err(self.malformed(&expected)),
            Ok(0) => Err(diag::zero(literal.span(), &self.key())),
            Ok(count) => Ok(count),
        }
    }

    /// Returns the entry with another key.
    pub(crate) fn with_key(&self, key: &str) -> TokenStream {
        Self { key: Ident::new(key, self.key.span()), value: self.value.clone() }
            .into_token_stream()
    }

    pub(crate) fn flag(&self) -> syn::Result<()> {
        match self.value {
            Value::None => Ok(()),
            Value::Assigned(_) | Value::List(_) => Err(self.malformed(&self.key())),
        }
    }

    /// Parses the entries of `key(..)`.
    pub(crate) fn list(&self, expected: &str) -> syn::Result<Vec<Self>> {
        match &self.value {
            Value::List(group) => parse_entries.parse2(group.stream()),
            Value::None | Value::Assigned(_) => Err(self.malformed(expected)),
        }
    }
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = Ident::parse_any(input).map_err(|error| diag::malformed_list(error.span()))?;
        let value = if input.peek(syn::token::Paren) {
            Value::List(input.parse()?)
        } else if input.parse::<Option<Token![=]>>()?.is_some() {
            let mut tokens = TokenStream::new();
            while !input.is_empty() && !input.peek(Token![,]) {
                tokens.extend([input.parse::<TokenTree>()?]);
            }
            Value::Assigned(tokens)
        } else {
            Value::None
        };
        Ok(Self { key, value })
    }
}

/// Parses all entries of a list.
pub(crate) fn parse_entries(input: ParseStream<'_>) -> syn::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while !input.is_empty() {
        entries.push(input.parse()?);
        if !input.is_empty() {
            input.parse::<Token![,]>().map_err(|error| diag::malformed_list(error.span()))?;
        }
    }
    Ok(entries)
}

/// Returns the entries with known keys, and records unknown and repeated ones as errors. `alias` may be
/// repeated.
pub(crate) fn retain_known(
    entries: Vec<Entry>,
    item: &str,
    keys: &[&str],
    errors: &mut Errors,
) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::new();
    for entry in entries {
        let key = entry.key();
        if !keys.contains(&key.as_str()) {
            errors.push(diag::unknown_key(entry.span(), &key, item, keys));
        } else if key != symbol::ALIAS && kept.iter().any(|earlier| earlier.key() == key) {
            errors.push(diag::repeated_key(entry.span(), &key));
        } else {
            kept.push(entry);
        }
    }
    kept
}

/// Returns the known entries of every `#[outbox(..)]` attribute.
pub(crate) fn outbox_entries(
    attrs: &[Attribute],
    item: &str,
    keys: &[&str],
    errors: &mut Errors,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident(symbol::OUTBOX)) {
        entries.extend(errors.note(parse_list(attr)).unwrap_or_default());
    }
    retain_known(entries, item, keys, errors)
}

/// Returns the entries of every `#[serde(..)]` attribute. A malformed attribute is skipped, because serde
/// reports it.
pub(crate) fn serde_entries<'a>(attrs: impl IntoIterator<Item = &'a Attribute>) -> Vec<Entry> {
    attrs
        .into_iter()
        .filter(|attr| attr.path().is_ident(symbol::SERDE))
        .filter_map(|attr| parse_list(attr).ok())
        .flatten()
        .collect()
}

fn parse_list(attr: &Attribute) -> syn::Result<Vec<Entry>> {
    match &attr.meta {
        Meta::List(list) => parse_entries.parse2(list.tokens.clone()),
        other => Err(diag::malformed_list(syn::spanned::Spanned::span(other))),
    }
}

impl ToTokens for Entry {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.key.to_tokens(tokens);
        match &self.value {
            Value::None => {}
            Value::Assigned(value) => {
                let span = self.key.span();
                tokens.extend(quote::quote_spanned!(span=> = #value));
            }
            Value::List(group) => {
                debug_assert_eq!(group.delimiter(), Delimiter::Parenthesis);
                group.to_tokens(tokens);
            }
        }
    }
}
