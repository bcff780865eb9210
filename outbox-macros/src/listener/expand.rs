use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use super::args::{Options, Timeout};
use super::model::{Argument, Model, Source};
use crate::path::{Named, as_text, local, variant_check};

/// Everything that stands beside the function.
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
    // The only variant of an enum always matches.
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

/// `type __Of`, the type that is named, and `type __Event`, the marker of the event. The user's path
/// is mentioned once, so that a mistake in it is reported once. An event known by its name alone has
/// neither.
fn event(model: &Model<'_>) -> TokenStream {
    let named = &model.args.event.named;
    let span = named.span();
    let (path, name, check) = match named {
        Named::Type(path) => {
            let message = format!(
                "`{0}` is an enum; name one of its variants: `event = {0}::..`",
                as_text(path)
            );
            let check = quote_spanned! {span=>
                const _: () = __outbox::assert!(
                    __outbox::is_struct(<__Of as __outbox::EventType>::EVENTS),
                    #message
                );
            };
            (path, String::new(), Some(check))
        }
        Named::Variant { of, variant } => {
            // A field pattern that binds something names the variant itself.
            let fields = model.args.event.fields.as_ref().map(|fields| fields.tokens.clone());
            let fields = fields.unwrap_or_else(|| quote!({ .. }));
            let check = (!binds_fields(model))
                .then(|| variant_check(span, &format_ident!("__Of"), variant, &fields));
            (of, variant.unraw().to_string(), check)
        }
        Named::Name(_) => return TokenStream::new(),
    };
    quote_spanned! {span=>
        type __Of = #path;
        type __Event = <__Of as __outbox::VariantAt<{
            __outbox::event_index(<__Of as __outbox::EventType>::EVENTS, #name)
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
        __outbox::event_of(<__Of as __outbox::EventType>::EVENTS, #name)
    )
}

/// `const __AGGREGATE`: what the listener says, if the event does not disagree; else what the event
/// says.
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
        Named::Type(event) | Named::Variant { of: event, .. } => {
            let message = format!(
                "`{}` names another aggregate; leave `aggregate` out, or let both name the same",
                as_text(event)
            );
            let own = quote_spanned!(event_span=> <__Of as __outbox::EventType>::AGGREGATE);
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

/// `fn __call`: decodes, extracts and runs.
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

/// Takes the event apart as the field pattern says, or asks that there be nothing to take.
fn take_fields(model: &Model<'_>, delivery: &Ident) -> TokenStream {
    let name = &model.function.signature.ident;
    match (&model.args.event.fields, &model.args.event.named) {
        (Some(fields), Named::Type(path)) if binds_fields(model) => {
            let tokens = &fields.tokens;
            let of = Ident::new("__Of", path.span());
            quote!(let #of #tokens = __outbox::payload_of::<__Event, __Of>(#delivery)?;)
        }
        (Some(fields), Named::Variant { of, variant }) if binds_fields(model) => {
            let tokens = &fields.tokens;
            let of = Ident::new("__Of", of.span());
            quote! {
                let #of::#variant #tokens = __outbox::payload_of::<__Event, __Of>(#delivery)? else {
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

/// The variable that holds an argument's value.
fn value(argument: &Argument, index: usize) -> Ident {
    match &argument.source {
        Source::Field(binding) => located(binding, argument.span),
        Source::Payload | Source::Extracted | Source::Transaction => {
            located(&local(&format!("argument_{index}")), argument.span)
        }
    }
}

/// The same identifier, shown at another place.
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
    quote!(__outbox::ListenerOptions::DEFAULT #max_attempts #base #max #timeout #concurrency)
}

fn duration(duration: Duration) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(__outbox::Duration::new(#seconds, #nanos))
}
