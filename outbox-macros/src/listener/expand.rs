//! Generates the registry entry of a listener.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use super::args::{Options, Timeout};
use super::model::{Argument, Model, Source};
use crate::diag;
use crate::path::{Named, as_text, local, variant_check};

/// Generates the entry that is emitted next to the function.
pub(super) fn entry(model: &Model<'_>) -> TokenStream {
    let krate = &model.args.krate;
    let conditions = model.function.conditions();
    let name = &model.function.signature.ident;
    let function = name.unraw().to_string();
    let event = event(model);
    let aggregate = aggregate(model);
    let info = event_info(model);
    let outboxes = &model.args.outboxes;
    let options = options(&model.args.options);
    let needs = model.arguments.iter().filter(|one| matches!(one.source, Source::Extracted)).map(
        |Argument { ty, span, .. }| quote_spanned!(*span=> <#ty as __outbox::FromDelivery>::need),
    );
    let call = call(model);
    let called = match model.transaction() {
        None => quote!(__outbox::EntryCall::Plain(__call)),
        Some(Argument { ty, span, .. }) => {
            let database = quote_spanned!(*span=> <#ty as __outbox::ListenerTx>::database);
            quote!(__outbox::EntryCall::InTx(#database, __call))
        }
    };
    // If an enum has one variant, its pattern always matches.
    let refutable = binds_fields(model).then(|| quote!(#[allow(irrefutable_let_patterns)]));
    quote! {
        #(#conditions)*
        #[allow(clippy::all, clippy::pedantic, clippy::restriction)]
        #[allow(deprecated, unused_qualifications)]
        #refutable
        const _: () = {
            use #krate::__private as __outbox;

            #event
            #aggregate
            #call

            __outbox::inventory::submit! {
                __outbox::ListenerEntry {
                    function: __outbox::concat!(__outbox::module_path!(), "::", #function),
                    place: __outbox::Place {
                        file: __outbox::file!(),
                        line: __outbox::line!(),
                    },
                    outboxes: &[#(#outboxes),*],
                    aggregate: __AGGREGATE,
                    event: #info,
                    options: #options,
                    needs: &[#(#needs),*],
                    call: #called,
                }
            }
        };
    }
}

/// Generates `type __EventType`, the named type, and `type __Event`, the marker of the event. The user's path
/// is used once, so that an error in it is reported once. An event given as a string has neither.
fn event(model: &Model<'_>) -> TokenStream {
    let named = &model.args.event.named;
    let span = named.span();
    let (path, name, check) = match named {
        Named::Type(path) => {
            let message = diag::event_is_an_enum(&as_text(path));
            let check = quote_spanned! {span=>
                const _: () = __outbox::assert!(
                    __outbox::is_struct(<__EventType as __outbox::EventType>::EVENTS),
                    #message
                );
            };
            (path, String::new(), Some(check))
        }
        Named::Variant { enum_path, variant } => {
            // A field pattern with bindings already uses the variant.
            let fields = model.args.event.fields.as_ref().map(|fields| fields.tokens.clone());
            let fields = fields.unwrap_or_else(|| quote!({ .. }));
            let check = (!binds_fields(model))
                .then(|| variant_check(span, &format_ident!("__EventType"), variant, &fields));
            (enum_path, variant.unraw().to_string(), check)
        }
        Named::Name(_) => return TokenStream::new(),
    };
    quote_spanned! {span=>
        type __EventType = #path;
        type __Event = <__EventType as __outbox::VariantAt<{
            __outbox::event_index(<__EventType as __outbox::EventType>::EVENTS, #name)
        }>>::Event;
        #check
    }
}

fn event_info(model: &Model<'_>) -> TokenStream {
    let named = &model.args.event.named;
    let name = match named {
        Named::Type(_) => String::new(),
        Named::Variant { variant, .. } => variant.unraw().to_string(),
        Named::Name(name) => return quote!(__outbox::event_named(#name)),
    };
    quote_spanned!(named.span()=>
        __outbox::event_of(<__EventType as __outbox::EventType>::EVENTS, #name)
    )
}

/// Generates `const __AGGREGATE`: the aggregate of the listener, which must agree with that of the event, or
/// the aggregate of the event if the listener has none.
fn aggregate(model: &Model<'_>) -> TokenStream {
    let event_span = model.args.event.named.span();
    let Some(aggregate) = &model.args.aggregate else {
        return quote_spanned! {event_span=>
            const __AGGREGATE: __outbox::AggregateInfo =
                <__Event as __outbox::TiedToAggregate>::TIED_TO;
        };
    };
    let info = aggregate.aggregate_info();
    let agreement = match &model.args.event.named {
        Named::Type(event) | Named::Variant { enum_path: event, .. } => {
            let message = diag::different_aggregate(&as_text(event));
            let own = quote_spanned!(event_span=> <__EventType as __outbox::EventType>::AGGREGATE);
            quote_spanned! {aggregate.span()=>
                const _: () = __outbox::assert!(__outbox::agree(#own, __NAMED), #message);
                const __AGGREGATE: __outbox::AggregateInfo = __outbox::joined(#own, __NAMED);
            }
        }
        Named::Name(_) => quote!(
            const __AGGREGATE: __outbox::AggregateInfo = __NAMED;
        ),
    };
    quote! {
        const __NAMED: __outbox::AggregateInfo = #info;
        #agreement
    }
}

/// Generates `fn __call`, which decodes the payload, extracts the other arguments and calls the listener.
fn call(model: &Model<'_>) -> TokenStream {
    let name = &model.function.signature.ident;
    let (delivery, tx) = (local("delivery"), local("tx"));
    let taken = take_fields(model, &delivery);
    let (bound, passed): (Vec<TokenStream>, Vec<TokenStream>) = model
        .arguments
        .iter()
        .enumerate()
        .map(|(index, argument)| {
            let value = value(argument, index);
            let bound = bind(model, argument, &value, &delivery, &tx);
            let (span, reference) = (argument.span, argument.by_reference.then(|| quote!(&)));
            (bound, quote_spanned!(span=> #reference #value))
        })
        .unzip();
    let output = model.output_span();
    let called = Ident::new("__function", name.span().located_at(output));
    let function = located(name, output);
    let answer = quote_spanned!(output=> __outbox::into_outcome(#called(#(#passed),*).await));
    let body = quote_spanned! {name.span()=>
        __outbox::Box::pin(async move {
            let #called = #function;
            #taken
            #(#bound)*
            #answer
        })
    };
    let tx = model.transaction().map(|_| quote!(#tx: &'delivery mut __outbox::AnyTx));
    quote! {
        fn __call<'delivery>(
            #delivery: &'delivery __outbox::Delivery,
            #tx
        ) -> __outbox::BoxFuture<'delivery, __outbox::Answer<__outbox::Outcome>> {
            #body
        }
    }
}

/// Generates the destructuring of the event by the field pattern, or a check that an event whose payload is not
/// taken has none.
fn take_fields(model: &Model<'_>, delivery: &Ident) -> TokenStream {
    let name = &model.function.signature.ident;
    match (&model.args.event.fields, &model.args.event.named) {
        (Some(fields), Named::Type(path)) if binds_fields(model) => {
            let tokens = &fields.tokens;
            let ty = Ident::new("__EventType", path.span());
            quote!(let #ty #tokens = __outbox::payload_of::<__Event, __EventType>(#delivery)?;)
        }
        (Some(fields), Named::Variant { enum_path, variant }) if binds_fields(model) => {
            let tokens = &fields.tokens;
            let ty = Ident::new("__EventType", enum_path.span());
            quote! {
                let #ty::#variant #tokens = __outbox::payload_of::<__Event, __EventType>(#delivery)? else {
                    return __outbox::Result::Ok(__outbox::Outcome::Done);
                };
            }
        }
        (None, Named::Type(_) | Named::Variant { .. }) if !model.takes_payload() => {
            quote_spanned! {name.span()=>
                let () = <__Event as __outbox::WithoutPayload>::PROOF;
            }
        }
        _ => TokenStream::new(),
    }
}

fn binds_fields(model: &Model<'_>) -> bool {
    model.args.event.fields.as_ref().is_some_and(|fields| !fields.bindings.is_empty())
}

/// Returns the variable that holds the value of an argument.
fn value(argument: &Argument, index: usize) -> Ident {
    match &argument.source {
        Source::Field(binding) => located(binding, argument.span),
        Source::Payload | Source::Extracted | Source::Transaction => {
            located(&local(&format!("argument_{index}")), argument.span)
        }
    }
}

/// Returns the identifier with the location of another span, for messages.
fn located(ident: &Ident, span: Span) -> Ident {
    let mut ident = ident.clone();
    ident.set_span(ident.span().located_at(span));
    ident
}

fn bind(
    model: &Model<'_>,
    argument: &Argument,
    value: &Ident,
    delivery: &Ident,
    tx: &Ident,
) -> TokenStream {
    let Argument { ty, span, .. } = argument;
    match (&argument.source, &model.args.event.named) {
        (Source::Field(_), _) => TokenStream::new(),
        (Source::Extracted, _) => quote_spanned! {*span=>
            let #value = <#ty as __outbox::FromDelivery>::from_delivery(#delivery)?;
        },
        (Source::Transaction, _) => quote_spanned! {*span=>
            let #value = __outbox::tx_of::<#ty>(#tx)?;
        },
        (Source::Payload, Named::Name(_)) => quote_spanned! {*span=>
            let #value = __outbox::Delivery::payload::<#ty>(#delivery)?;
        },
        (Source::Payload, Named::Type(_) | Named::Variant { .. }) => quote_spanned! {*span=>
            let #value = __outbox::payload_of::<__Event, #ty>(#delivery)?;
        },
    }
}

fn options(options: &Options) -> TokenStream {
    let max_attempts = options.max_attempts.map(|count| quote!(.max_attempts(#count)));
    let base = options.base.map(duration).map(|delay| quote!(.retry_base(#delay)));
    let max = options.max.map(duration).map(|delay| quote!(.retry_max(#delay)));
    let timeout = options.timeout.as_ref().map(|timeout| match timeout {
        Timeout::After(limit) => {
            let limit = duration(*limit);
            quote!(.timeout(__outbox::Timeout::After(#limit)))
        }
        Timeout::Never => quote!(.timeout(__outbox::Timeout::Never)),
    });
    let concurrency = options.concurrency.map(|calls| quote!(.concurrency(#calls)));
    quote!(__outbox::ListenerOptions::new() #max_attempts #base #max #timeout #concurrency)
}

fn duration(duration: Duration) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(__outbox::Duration::new(#seconds, #nanos))
}
