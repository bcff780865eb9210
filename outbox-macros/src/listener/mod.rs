//! `#[listener(..)]`: an async function becomes an entry that the registry finds by itself.

mod args;
mod expand;
mod function;
mod model;

use proc_macro2::TokenStream;
use quote::quote;

use crate::diag::Errors;
use args::Args;
use function::Function;
use model::Model;

/// The function always stays as it is, body unread, so that it keeps its completions and other
/// code that calls it adds no errors.
pub(crate) fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let args = Args::read(args, &mut errors);
    let entry = errors.note(Function::read(item.clone())).and_then(|function| {
        let model = Model::new(args?, &function, &mut errors)?;
        errors.is_empty().then(|| expand::entry(&model))
    });
    let errors = errors.finish();
    quote!(#item #entry #errors)
}
