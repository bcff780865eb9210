//! `#[listener(..)]`: registers an async function as an entry that the registry collects at link time.

mod args;
mod arguments;
mod expand;
mod function;
mod model;

use proc_macro2::TokenStream;
use quote::quote;

use crate::diag::Errors;
use args::Args;
use function::Function;
use model::Model;

/// Expands the attribute. The function is always emitted unchanged and its body unparsed, so that it keeps its
/// completions and calls of it cause no further errors.
pub(crate) fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let args = Args::parse(args, &mut errors);
    let entry = errors.note(Function::parse(item.clone())).and_then(|function| {
        let model = Model::new(args?, &function, &mut errors)?;
        errors.is_empty().then(|| expand::entry(&model))
    });
    let errors = errors.finish();
    quote!(#item #entry #errors)
}
