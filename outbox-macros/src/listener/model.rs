//! The arguments of the function, each with the source of its value.

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    FnArg, GenericParam, Pat, PatType, PathArguments, ReturnType, Signature, Type, TypeReference,
    parse_quote,
};

use super::args::{Args, FieldPattern};
use super::function::Function;
use crate::diag::{self, Errors};

pub(super) struct Model<'a> {
    pub(super) args: Args,
    pub(super) function: &'a Function,
    pub(super) arguments: Vec<Argument>,
}

pub(super) struct Argument {
    pub(super) source: Source,
    /// The type without its reference.
    pub(super) ty: Type,
    /// The span of the type as written, for messages.
    pub(super) span: Span,
    pub(super) by_reference: bool,
}

pub(super) enum Source {
    /// The whole payload of the event.
    Payload,
    /// A field that the pattern binds to this name.
    Field(Ident),
    /// Another part of the delivery, or application state.
    Extracted,
    /// The transaction that settles the event.
    Transaction,
}

impl<'a> Model<'a> {
    /// Builds the model. Returns `None`, and records an error, if the function takes `self`.
    pub(super) fn new(args: Args, function: &'a Function, errors: &mut Errors) -> Option<Self> {
        check_signature(&function.signature, errors);
        let mut arguments = Vec::new();
        for input in &function.signature.inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    errors.push(diag::receiver(receiver.self_token.span));
                    return None;
                }
                FnArg::Typed(typed) => {
                    arguments.extend(errors.note(argument(typed, args.event.fields.as_ref())));
                }
            }
        }
        let mut payloads = arguments.iter().filter(|one| matches!(one.source, Source::Payload));
        if let (Some(_), Some(second)) = (payloads.next(), payloads.next()) {
            errors.push(diag::second_payload(second.span));
        }
        let mut transactions =
            arguments.iter().filter(|one| matches!(one.source, Source::Transaction));
        if let (Some(_), Some(second)) = (transactions.next(), transactions.next()) {
            errors.push(diag::second_transaction(second.span));
        }
        if let Some(pattern) = &args.event.fields {
            check_all_used(pattern, &function.signature, errors);
        }
        Some(Self { args, function, arguments })
    }
}

fn check_signature(signature: &Signature, errors: &mut Errors) {
    if let Some(constness) = &signature.constness {
        errors.push(diag::unusual_function(constness.span, "const"));
    }
    if let syn::Safety::Unsafe(unsafety) = &signature.safety {
        errors.push(diag::unusual_function(unsafety.span, "unsafe"));
    }
    if let Some(abi) = &signature.abi {
        errors.push(diag::unusual_function(abi.extern_token.span, "extern"));
    }
    if signature.asyncness.is_none() {
        errors.push(diag::not_async(signature.fn_token.span));
    }
    let generic = |param: &&GenericParam| !matches!(param, GenericParam::Lifetime(_));
    if let Some(param) = signature.generics.params.iter().find(generic) {
        errors.push(diag::generic_function(param.span()));
    }
}

fn check_all_used(pattern: &FieldPattern, signature: &Signature, errors: &mut Errors) {
    for binding in &pattern.bindings {
        let used = signature.inputs.iter().any(|input| match input {
            FnArg::Typed(typed) => name_of(typed).is_some_and(|name| name == binding),
            FnArg::Receiver(_) => false,
        });
        if !used {
            errors.push(diag::unused_field(binding.span(), &binding.unraw().to_string()));
        }
    }
}

fn argument(typed: &PatType, fields: Option<&FieldPattern>) -> syn::Result<Argument> {
    let span = typed.ty.span();
    if let Type::ImplTrait(_) = &*typed.ty {
        return Err(diag::generic_function(span));
    }
    // A type that was passed through `macro_rules!` is wrapped in a group.
    let mut written = &*typed.ty;
    while let Type::Group(group) = written {
        written = &group.elem;
    }
    let (ty, by_reference) = match written {
        Type::Reference(reference) if is_transaction(&reference.elem) => {
            return transaction(reference, span);
        }
        Type::Reference(reference) => (owned(reference)?, true),
        ty if is_transaction(ty) => return Err(diag::transaction_not_by_mut_reference(span)),
        ty => (ty.clone(), false),
    };
    let field = fields.zip(name_of(typed)).and_then(|(pattern, name)| {
        pattern.bindings.iter().find(|binding| *binding == name).cloned()
    });
    let source = match field {
        Some(binding) => Source::Field(binding),
        None if is_extracted(&ty) => Source::Extracted,
        None if fields.is_some() => {
            return Err(diag::unbound_argument(span, &typed.pat.to_token_stream().to_string()));
        }
        None => Source::Payload,
    };
    Ok(Argument { source, ty, span, by_reference })
}

fn transaction(reference: &TypeReference, span: Span) -> syn::Result<Argument> {
    if reference.mutability.is_none() {
        return Err(diag::transaction_not_by_mut_reference(span));
    }
    let ty = (*reference.elem).clone();
    Ok(Argument { source: Source::Transaction, ty, span, by_reference: false })
}

/// Returns the owned type to decode for an argument that is a reference.
fn owned(reference: &TypeReference) -> syn::Result<Type> {
    if let Some(mutability) = &reference.mutability {
        return Err(diag::mutable_argument(mutability.span));
    }
    Ok(match &*reference.elem {
        Type::Path(path) if path.path.is_ident("str") => parse_quote!(__outbox::String),
        Type::Slice(slice) => {
            let element = &slice.elem;
            parse_quote!(__outbox::Vec<#element>)
        }
        ty => ty.clone(),
    })
}

/// Returns whether a type has the name of an extractor. rustc then checks that it implements
/// `FromDelivery`.
fn is_extracted(ty: &Type) -> bool {
    last_segment_matches(ty, |name, generic| match name {
        "State" => generic,
        "Meta" | "EventEnvelope" => !generic,
        _ => false,
    })
}

fn is_transaction(ty: &Type) -> bool {
    last_segment_matches(ty, |name, generic| name == "Tx" && generic)
}

/// Applies a predicate to the last segment of a path: its name, and whether it has generic arguments.
fn last_segment_matches(ty: &Type, matches: impl FnOnce(&str, bool) -> bool) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| {
        let generic = matches!(last.arguments, PathArguments::AngleBracketed(_));
        matches(&last.ident.to_string(), generic)
    })
}

fn name_of(typed: &PatType) -> Option<&Ident> {
    match &*typed.pat {
        Pat::Ident(pat) => Some(&pat.ident),
        _ => None,
    }
}

impl Model<'_> {
    /// Returns the transaction argument, if there is one.
    pub(super) fn transaction(&self) -> Option<&Argument> {
        self.arguments.iter().find(|argument| matches!(argument.source, Source::Transaction))
    }

    pub(super) fn takes_payload(&self) -> bool {
        self.arguments.iter().any(|argument| matches!(argument.source, Source::Payload))
    }

    /// Returns the span of the return type, or of the function name if there is none.
    pub(super) fn output_span(&self) -> Span {
        match &self.function.signature.output {
            ReturnType::Default => self.function.signature.ident.span(),
            ReturnType::Type(_, ty) => ty.span(),
        }
    }
}
