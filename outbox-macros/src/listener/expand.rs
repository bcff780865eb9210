use std::time::Duration;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;

use super::args::{Options, Timeout};
use super::model::{Argument, Model, Source};
use crate::path::{Named, local, variant_check};

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
        |Argument { ty, span, .. }| {
            quote_spanned!(*span=> <#ty as __outbox::FromDelivery>::need)
        },
    );
    let call = call(model);
    quote! {
        #(#conditions)*
        #[allow(clippy::all, clippy::pedantic, clippy::restriction)]
        #[allow(dead_code, irrefutable_let_patterns, unreachable_patterns, unused_qualifications)]
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
                    aggregate: AGGREGATE,
                    event: #info,
                    options: #options,
                    needs: &[#(#needs),*],
                    call: __call,
                }
            }
        };
    }
}

/// `type __Event`: the marker of the event. An event known by its name alone has none.
fn event(model: &Model<'_>) -> TokenStream {
    let named = &model.args.event.named;
    let span = named.span();
    match named {
        Named::Type(path) => {
            quote_spanned!(span=> type __Event = <#path as __outbox::SingleEvent>::Event;)
        }
        Named::Variant { of, variant } => {
            let name = variant.unraw().to_string();
            // A field pattern names the variant itself.
            let check = (!binds_fields(model)).then(|| variant_check(of, variant));
            quote_spanned! {span=>
                type __Event = <#of as __outbox::VariantAt<{
                    __outbox::event_index(<#of as __outbox::EventType>::EVENTS, #name)
                }>>::Event;
                #check
            }
        }
        Named::Name(_) => TokenStream::new(),
    }
}

fn event_info(model: &Model<'_>) -> TokenStream {
    let named = &model.args.event.named;
    let span = named.span();
    match named {
        Named::Type(path) => {
            quote_spanned!(span=> <#path as __outbox::EventType>::EVENTS[0])
        }
        Named::Variant { of, variant } => {
            let name = variant.unraw().to_string();
            quote_spanned!(span=>
                __outbox::event_of(<#of as __outbox::EventType>::EVENTS, #name)
            )
        }
        Named::Name(name) => quote_spanned!(span=> __outbox::event_named(#name)),
    }
}

/// `const AGGREGATE`: what the listener says, if the event does not disagree; else what the event
/// says.
fn aggregate(model: &Model<'_>) -> TokenStream {
    let event_span = model.args.event.named.span();
    let Some(aggregate) = &model.args.aggregate else {
        return quote_spanned! {event_span=>
            const AGGREGATE: __outbox::AggregateInfo =
                <__Event as __outbox::TiedToAggregate>::TIED_TO;
        };
    };
    let info = aggregate.aggregate_info();
    let agreement = match &model.args.event.named {
        Named::Type(event) | Named::Variant { of: event, .. } => {
            let message = format!(
                "`{}` names another aggregate; leave `aggregate` out, or let both name the same",
                crate::path::as_text(event)
            );
            let own = quote_spanned!(event_span=> <#event as __outbox::EventType>::AGGREGATE);
            quote_spanned! {aggregate.span()=>
                const _: () = __outbox::assert!(__outbox::agree(#own, AGGREGATE), #message);
            }
        }
        Named::Name(_) => TokenStream::new(),
    };
    quote! {
        const AGGREGATE: __outbox::AggregateInfo = #info;
        #agreement
    }
}

/// `fn __call`: decodes, extracts and runs.
fn call(model: &Model<'_>) -> TokenStream {
    let name = &model.function.signature.ident;
    let delivery = local("delivery");
    let taken = take_fields(model, &delivery);
    let (bound, passed): (Vec<TokenStream>, Vec<TokenStream>) = model
        .arguments
        .iter()
        .enumerate()
        .map(|(index, argument)| {
            let value = value(model, argument, index);
            let bound = bind(model, argument, &value, &delivery);
            let (span, reference) = (argument.span, argument.by_reference.then(|| quote!(&)));
            (bound, quote_spanned!(span=> #reference #value))
        })
        .unzip();
    let answer = quote_spanned! {model.output_span()=>
        __outbox::into_outcome(#name(#(#passed),*).await)
    };
    let body = quote_spanned! {name.span()=>
        __outbox::Box::pin(async move {
            #taken
            #(#bound)*
            #answer
        })
    };
    quote! {
        fn __call(
            #delivery: &__outbox::Delivery,
        ) -> __outbox::BoxFuture<'_, __outbox::Answer<__outbox::Outcome>> {
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
            quote! {
                let #path #tokens = __outbox::payload_of::<__Event, #path>(#delivery)?;
            }
        }
        (Some(fields), Named::Variant { of, variant }) if binds_fields(model) => {
            let tokens = &fields.tokens;
            quote! {
                let #of::#variant #tokens = __outbox::payload_of::<__Event, #of>(#delivery)? else {
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
fn value(_: &Model<'_>, argument: &Argument, index: usize) -> Ident {
    match &argument.source {
        Source::Field(binding) => {
            Ident::new(&binding.to_string(), binding.span().located_at(argument.span))
        }
        Source::Payload | Source::Extracted => {
            let value = local(&format!("argument_{index}"));
            format_ident!("{value}", span = value.span().located_at(argument.span))
        }
    }
}

fn bind(model: &Model<'_>, argument: &Argument, value: &Ident, delivery: &Ident) -> TokenStream {
    let Argument { ty, span, .. } = argument;
    match (&argument.source, &model.args.event.named) {
        (Source::Field(_), _) => TokenStream::new(),
        (Source::Extracted, _) => quote_spanned! {*span=>
            let #value = <#ty as __outbox::FromDelivery>::from_delivery(#delivery)?;
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
