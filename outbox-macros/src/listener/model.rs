//! The arguments of the function, each with the source of its value.

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    FnArg, GenericParam, Pat, PatType, ReturnType, Signature, Type, TypeReference,
    parse_quote_spanned,
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
    /// The name or pattern as written, for messages.
    pub(super) name: String,
    pub(super) source: Source,
    /// The type without its reference.
    pub(super) ty: Type,
    /// The span of the type as written, for messages.
    pub(super) span: Span,
    pub(super) by_reference: bool,
}

pub(super) enum Source {
    /// A field that the pattern binds to this name.
    Field(Ident),
    /// The payload or an extractor, which is decided by its type. It has this index among such arguments.
    ByType(usize),
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
                    let next = by_type(&arguments).count();
                    let argument = argument(typed, args.event.fields.as_ref(), next);
                    arguments.extend(errors.note(argument));
                }
            }
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

/// Makes the model of an argument. The value of a `&mut` is the transaction: nothing else can be changed by a listener.
fn argument(
    typed: &PatType,
    fields: Option<&FieldPattern>,
    next_by_type: usize,
) -> syn::Result<Argument> {
    let span = typed.ty.span();
    if let Type::ImplTrait(_) = &*typed.ty {
        return Err(diag::generic_function(span));
    }
    // A type that was passed through `macro_rules!` is wrapped in a group.
    let mut written = &*typed.ty;
    while let Type::Group(group) = written {
        written = &group.elem;
    }
    let field = fields.zip(name_of(typed)).and_then(|(pattern, name)| {
        pattern.bindings.iter().find(|binding| *binding == name).cloned()
    });
    let name = typed.pat.to_token_stream().to_string();
    let (ty, by_reference) = match written {
        Type::Reference(TypeReference { mutability: Some(mutability), elem, .. }) => {
            if field.is_some() {
                return Err(diag::mutable_field(mutability.span));
            }
            let ty = (**elem).clone();
            return Ok(Argument {
                name,
                source: Source::Transaction,
                ty,
                span,
                by_reference: false,
            });
        }
        Type::Reference(reference) => (owned(reference), true),
        ty => (ty.clone(), false),
    };
    let source = field.map_or(Source::ByType(next_by_type), Source::Field);
    Ok(Argument { name, source, ty, span, by_reference })
}

/// Returns the owned type to decode for an argument that is a reference.
fn owned(reference: &TypeReference) -> Type {
    let span = reference.elem.span();
    match &*reference.elem {
        Type::Path(path) if path.path.is_ident("str") => {
            parse_quote_spanned!(span=> __outbox::String)
        }
        Type::Slice(slice) => {
            let element = &slice.elem;
            parse_quote_spanned!(span=> __outbox::Vec<#element>)
        }
        ty => ty.clone(),
    }
}

/// Returns the arguments whose type decides where they come from, with their index.
fn by_type(arguments: &[Argument]) -> impl Iterator<Item = (usize, &Argument)> {
    arguments.iter().filter_map(|argument| match argument.source {
        Source::ByType(index) => Some((index, argument)),
        Source::Field(_) | Source::Transaction => None,
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

    /// Returns the arguments whose type decides where they come from, with their index.
    pub(super) fn by_type(&self) -> impl Iterator<Item = (usize, &Argument)> {
        by_type(&self.arguments)
    }

    /// Returns the span of the return type, or of the function name if there is none.
    pub(super) fn output_span(&self) -> Span {
        match &self.function.signature.output {
            ReturnType::Default => self.function.signature.ident.span(),
            ReturnType::Type(_, ty) => ty.span(),
        }
    }
}
