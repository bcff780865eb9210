//! Generates the registry entry of a listener.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{LitStr, Type};

use super::args::{Options, Timeout};
use super::arguments;
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
    let subscription = model.args.name.as_ref().map(LitStr::value).unwrap_or_default();
    let options = options(&model.args.options);
    let needs = model.by_type().map(|(index, argument)| {
        let taken = arguments::taken_as(model, index, argument);
        quote_spanned!(argument.span=> #taken::needs)
    });
    let arguments = arguments::declarations(model);
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
            #arguments
            #call

            __outbox::inventory::submit! {
                __outbox::ListenerEntry {
                    function: __outbox::concat!(__outbox::module_path!(), "::", #function),
                    place: __outbox::Place {
                        file: __outbox::file!(),
                        line: __outbox::line!(),
                    },
                    outboxes: &[#(#outboxes),*],
                    subscription: #subscription,
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
    let (path, check) = match named {
        Named::Type(path) => {
            let message = diag::event_is_an_enum(&as_text(path));
            let check = quote_spanned! {span=>
                const _: () = __outbox::assert!(
                    __outbox::is_struct(<__EventType as __outbox::EventType>::EVENTS),
                    #message
                );
            };
            (path, Some(check))
        }
        Named::Variant { enum_path, variant } => {
            // A field pattern with bindings already uses the variant.
            let fields = model.args.event.fields.as_ref().map(|fields| fields.tokens.clone());
            let fields = fields.unwrap_or_else(|| quote!({ .. }));
            let check = (!binds_fields(model))
                .then(|| variant_check(span, &format_ident!("__EventType"), variant, &fields));
            (enum_path, check)
        }
        Named::Name(_) => return TokenStream::new(),
    };
    let variant = variant(span, &variant_name(named));
    quote_spanned! {span=>
        type __EventType = #path;
        type __Event = #variant::Event;
        #check
    }
}

/// Returns the implementation of `VariantAt` for a variant; an empty name means a struct.
fn variant(span: Span, name: &str) -> TokenStream {
    quote_spanned! {span=>
        <__EventType as __outbox::VariantAt<{
            __outbox::event_index(<__EventType as __outbox::EventType>::EVENTS, #name)
        }>>
    }
}

fn event_info(model: &Model<'_>) -> TokenStream {
    let named = &model.args.event.named;
    match (named, variant_name(named)) {
        (Named::Name(name), _) => quote!(__outbox::event_named(#name)),
        (_, name) => quote_spanned!(named.span()=>
            __outbox::event_of(<__EventType as __outbox::EventType>::EVENTS, #name)
        ),
    }
}

/// Returns the name of the variant in the table of its type; empty for a struct.
fn variant_name(named: &Named) -> String {
    match named {
        Named::Variant { variant, .. } => variant.unraw().to_string(),
        Named::Type(_) | Named::Name(_) => String::new(),
    }
}

/// Generates `const __AGGREGATE`: the aggregate of the listener, which must agree with that of the event, or
/// the aggregate of the event if the listener has none.
fn aggregate(model: &Model<'_>) -> TokenStream {
    let event_span = model.args.event.named.span();
    let Some(aggregate) = &model.args.aggregate else {
        let variant = variant(event_span, &variant_name(&model.args.event.named));
        return quote_spanned! {event_span=>
            const __AGGREGATE: __outbox::AggregateInfo =
                <#variant::DeclaredBy as __outbox::TiedToAggregate>::TIED_TO;
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
    let checks = arguments::checks(model);
    let taken = take_fields(model, &delivery);
    let (bound, passed): (Vec<TokenStream>, Vec<TokenStream>) = model
        .arguments
        .iter()
        .enumerate()
        .map(|(index, argument)| {
            let value = value(argument, index);
            let bound = bind(model, argument, &value, &delivery, &tx);
            (bound, passed(argument, &value))
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
            #checks
            #body
        }
    }
}

/// Generates the destructuring of the event by the field pattern.
fn take_fields(model: &Model<'_>, delivery: &Ident) -> TokenStream {
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
        Source::ByType(_) => located(&local(&format!("argument_{index}")), argument.span),
        Source::Transaction => Ident::new("__transaction", ends(&argument.ty).1),
    }
}

/// Returns the expression that is passed for an argument. Its location is that of the type, so that rustc reports a
/// type that is not valid once: there, where the function declares it.
fn passed(argument: &Argument, value: &Ident) -> TokenStream {
    match argument.source {
        Source::Transaction => {
            let reborrow = quote_spanned!(ends(&argument.ty).0=> &mut *);
            quote!(#reborrow #value)
        }
        Source::ByType(_) if argument.by_reference => {
            let ty = &argument.ty;
            quote_spanned!(argument.span=> __outbox::Borrow::<#ty>::borrow(&#value))
        }
        Source::Field(_) | Source::ByType(_) => {
            let reference = argument.by_reference.then(|| quote!(&));
            quote_spanned!(argument.span=> #reference #value)
        }
    }
}

/// Returns the spans of the first and the last token of a type.
fn ends(ty: &Type) -> (Span, Span) {
    let mut tokens = ty.to_token_stream().into_iter().map(|token| token.span());
    let first = tokens.next().unwrap_or_else(Span::call_site);
    (first, tokens.last().unwrap_or(first))
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
    match argument.source {
        Source::Field(_) => TokenStream::new(),
        Source::ByType(index) => {
            let taken = arguments::taken_as(model, index, argument);
            quote_spanned!(*span=> let #value = #taken::take(#delivery).await?;)
        }
        Source::Transaction => {
            let (first, last) = ends(ty);
            let start = quote_spanned!(first=> <);
            let downcast = quote_spanned!(last=> as __outbox::ListenerTx>::downcast(#tx)?);
            quote!(let #value = #start #ty #downcast;)
        }
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
