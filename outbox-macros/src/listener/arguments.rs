//! Generates the code that decides by types where the arguments of a listener come from: rustc knows which traits they
//! implement, the macro knows their names only.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::model::{Argument, Model};
use crate::diag::{self, Unimplemented};
use crate::path::Named;

/// Generates `const __ARGUMENTS`, the sources of the arguments, and the traits of the [`checks`].
pub(super) fn declarations(model: &Model<'_>) -> TokenStream {
    let takes_fields = model.args.event.fields.is_some();
    if takes_fields && model.by_type().next().is_none() {
        return TokenStream::new();
    }
    let event = marker(model);
    let roles = model.by_type().map(|(_, Argument { ty, by_reference, .. })| {
        quote! {
            __outbox::Role {
                extractor: __outbox::Implements::<#ty, #event>::EXTRACTOR,
                payload: __outbox::Implements::<#ty, #event>::PAYLOAD,
                transaction: __outbox::Implements::<#ty, #event>::TRANSACTION,
                by_reference: #by_reference,
            }
        }
    });
    let count = model.by_type().count();
    let traits = traits(model);
    quote! {
        #[allow(unused_imports)]
        use __outbox::ImplementsNothing as _;

        const __ARGUMENTS: __outbox::Arguments<#count> = __outbox::Arguments::new(
            [#(#roles),*],
            // Every type is the payload of an event that does not exist.
            !__outbox::Implements::<__outbox::NoSuchVariant, #event>::PAYLOAD,
        );
        #traits
    }
}

/// Returns the type that stands for the event of the payload.
fn marker(model: &Model<'_>) -> TokenStream {
    match (&model.args.event.fields, &model.args.event.named) {
        (Some(_), _) => quote!(__outbox::TakenByField),
        (None, Named::Name(_)) => quote!(__outbox::NamedByString),
        (None, Named::Type(_) | Named::Variant { .. }) => quote!(__Event),
    }
}

/// Generates the traits whose messages name the event or the argument as the user wrote it.
fn traits(model: &Model<'_>) -> TokenStream {
    if model.args.event.fields.is_some() {
        let traits = model.by_type().map(|(index, argument)| {
            let texts = diag::neither_field_nor_extractor(&argument.name);
            check_trait(&known_argument(model, index), &texts)
        });
        return traits.collect();
    }
    let event = &model.args.event.named;
    let arguments = model.by_type().next().map(|(index, _)| {
        let neither = diag::neither_payload_nor_extractor(event);
        let known = check_trait(&known_argument(model, index), &neither);
        let both = diag::both_payload_and_extractor(event);
        let one_source = check_trait(&format_ident!("__OneSource"), &both);
        quote!(#known #one_source)
    });
    let payload = check_trait(&format_ident!("__PayloadTaken"), &diag::payload_not_taken(event));
    quote!(#arguments #payload)
}

/// Returns the name of the trait that reports an argument which is neither payload nor extractor.
fn known_argument(model: &Model<'_>, index: usize) -> Ident {
    match model.args.event.fields {
        Some(_) => format_ident!("__KnownArgument{index}"),
        None => format_ident!("__KnownArgument"),
    }
}

fn check_trait(name: &Ident, texts: &Unimplemented) -> TokenStream {
    let Unimplemented { message, label, notes } = texts;
    quote! {
        #[diagnostic::on_unimplemented(message = #message, label = #label, #(note = #notes),*)]
        trait #name<const HOLDS: __outbox::bool> {
            const CHECK: () = ();
        }

        #[diagnostic::do_not_recommend]
        impl<T: ?__outbox::Sized> #name<true> for T {}
    }
}

/// Generates statements that report a mistake in the arguments. They belong into the function that uses the arguments,
/// because rustc reports no further errors of a function whose bounds do not hold.
pub(super) fn checks(model: &Model<'_>) -> TokenStream {
    let arguments = model.by_type().map(|(index, argument)| {
        let known = known_argument(model, index);
        let mut checks =
            vec![(quote!(#known), "Neither"), (quote!(__outbox::NotTransaction), "Transaction")];
        if model.args.event.fields.is_none() {
            checks.push((quote!(__OneSource), "Both"));
            checks.push((quote!(__outbox::OnlyPayload), "SecondPayload"));
        }
        checks
            .iter()
            .map(|(check, mistake)| avoids(index, argument, check, mistake))
            .collect::<TokenStream>()
    });
    let payload = model.args.event.fields.is_none().then(|| {
        let event = marker(model);
        quote_spanned! {model.function.signature.ident.span()=>
            let () = <() as __PayloadTaken<{
                __ARGUMENTS.takes_payload() || __outbox::Implements::<(), #event>::PAYLOAD
            }>>::CHECK;
        }
    });
    quote!(#(#arguments)* #payload)
}

fn avoids(index: usize, argument: &Argument, check: &TokenStream, mistake: &str) -> TokenStream {
    let (ty, mistake) = (&argument.ty, format_ident!("{mistake}"));
    quote_spanned! {argument.span=>
        let () = <#ty as #check<{
            __ARGUMENTS.avoids(#index, __outbox::Mistake::#mistake)
        }>>::CHECK;
    }
}

/// Returns the implementation that provides the value of an argument.
pub(super) fn taken_as(model: &Model<'_>, index: usize, argument: &Argument) -> TokenStream {
    let (ty, event) = (&argument.ty, marker(model));
    quote_spanned!(argument.span=> <#ty as __outbox::Argument<#event, { __ARGUMENTS.source(#index) }>>)
}
