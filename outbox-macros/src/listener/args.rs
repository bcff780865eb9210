//! The arguments of `#[listener(..)]`.

use std::time::Duration;

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream, Parser};
use syn::{LitStr, Path, Token, braced, bracketed};

use crate::attr::{self, Entry};
use crate::diag::{self, Errors};
use crate::duration;
use crate::names;
use crate::path::{Named, default_crate};
use crate::symbol;

pub(super) struct Args {
    pub(super) krate: Path,
    pub(super) event: Event,
    pub(super) aggregate: Option<Named>,
    pub(super) outboxes: Vec<LitStr>,
    /// The name of its subscription.
    pub(super) name: Option<LitStr>,
    pub(super) options: Options,
}

/// The event of the listener, with an optional field pattern.
pub(super) struct Event {
    pub(super) named: Named,
    pub(super) fields: Option<FieldPattern>,
}

/// `{ order_id, total_cents: total, .. }`
pub(super) struct FieldPattern {
    /// The pattern as typed.
    pub(super) tokens: TokenStream,
    /// The identifiers bound by the pattern.
    pub(super) bindings: Vec<Ident>,
}

#[derive(Default)]
pub(super) struct Options {
    pub(super) max_attempts: Option<u32>,
    pub(super) base: Option<Duration>,
    pub(super) max: Option<Duration>,
    pub(super) timeout: Option<Timeout>,
    pub(super) concurrency: Option<u32>,
}

pub(super) enum Timeout {
    After(Duration),
    Never,
}

impl Args {
    /// Parses the arguments. Returns `None`, and records an error, if there is no valid `event`.
    pub(super) fn parse(tokens: TokenStream, errors: &mut Errors) -> Option<Self> {
        let entries = errors.note(attr::parse_entries.parse2(tokens))?;
        let has_event = entries.iter().any(|entry| entry.key() == symbol::EVENT);
        let entries = attr::retain_known(entries, "`#[listener]`", symbol::LISTENER_KEYS, errors);
        let mut krate = default_crate();
        let (mut event, mut aggregate) = (None, None);
        let mut outboxes = Vec::new();
        let mut name = None;
        let mut options = Options::default();
        for entry in &entries {
            match entry.key().as_str() {
                symbol::CRATE => krate = errors.note(entry.path()).unwrap_or(krate),
                symbol::EVENT => event = errors.note(parse_event(entry)),
                symbol::AGGREGATE => {
                    let expected = "aggregate = Order";
                    aggregate = errors.note(entry.assigned(expected, Named::parse));
                }
                symbol::OUTBOX => {
                    outboxes = errors.note(parse_outboxes(entry)).unwrap_or_default();
                }
                symbol::NAME => name = errors.note(entry.string()),
                symbol::RETRY => parse_retry(entry, &mut options, errors),
                symbol::TIMEOUT => options.timeout = errors.note(parse_timeout(entry)),
                symbol::CONCURRENCY => options.concurrency = errors.note(entry.count()),
                _ => {}
            }
        }
        if !has_event {
            errors.push(diag::missing_event(Span::call_site()));
        }
        let args = Self { krate, event: event?, aggregate, outboxes, name, options };
        args.check_names(errors);
        Some(args)
    }

    fn check_names(&self, errors: &mut Errors) {
        if let Some(Named::Name(name)) = &self.aggregate {
            names::aggregate_name(symbol::AGGREGATE, &name.value(), name.span(), errors);
        }
        if let Named::Name(name) = &self.event.named {
            names::event_name(symbol::EVENT, &name.value(), name.span(), errors);
            if self.aggregate.is_none() {
                errors.push(diag::missing_aggregate(name.span()));
            }
        }
        for outbox in self.outboxes.iter().filter(|outbox| outbox.value().is_empty()) {
            errors.push(diag::empty_name(outbox.span(), symbol::OUTBOX));
        }
        if let Some(name) = &self.name {
            names::subscription_name(symbol::NAME, &name.value(), name.span(), errors);
        }
    }
}

fn parse_event(entry: &Entry) -> syn::Result<Event> {
    let (named, rest) = entry.assigned("event = OrderEvent::Paid", |input: ParseStream<'_>| {
        Ok((Named::parse(input)?, input.parse::<TokenStream>()?))
    })?;
    let fields = match (rest.is_empty(), &named) {
        (true, _) => None,
        (false, Named::Name(name)) => return Err(diag::pattern_of_a_name(name.span())),
        (false, _) => Some(FieldPattern::parse(rest)?),
    };
    Ok(Event { named, fields })
}

impl FieldPattern {
    fn parse(tokens: TokenStream) -> syn::Result<Self> {
        let start = tokens.clone().into_iter().next().map_or_else(Span::call_site, |t| t.span());
        let parse = |input: ParseStream<'_>| {
            let body;
            braced!(body in input);
            body.parse_terminated(parse_field, Token![,])
        };
        match tokens.clone().into_iter().next() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                Err(diag::tuple_pattern(group.span()))
            }
            _ => {
                let fields =
                    parse.parse2(tokens.clone()).map_err(|_| diag::field_pattern(start))?;
                Ok(Self { tokens, bindings: fields.into_iter().flatten().collect() })
            }
        }
    }
}

/// Parses one part of a field pattern (`field`, `field: argument`, `field: _` or `..`) and returns the
/// identifier that it binds.
fn parse_field(input: ParseStream<'_>) -> syn::Result<Option<Ident>> {
    if input.parse::<Option<Token![..]>>()?.is_some() {
        return Ok(None);
    }
    let field: Ident = input.parse()?;
    if input.parse::<Option<Token![:]>>()?.is_none() {
        return Ok(Some(field));
    }
    if input.parse::<Option<Token![_]>>()?.is_some() {
        return Ok(None);
    }
    input.parse().map(Some)
}

fn parse_outboxes(entry: &Entry) -> syn::Result<Vec<LitStr>> {
    entry.assigned("outbox = \"name\"` or `outbox = [\"a\", \"b\"]", |input: ParseStream<'_>| {
        if input.peek(LitStr) {
            return Ok(vec![input.parse()?]);
        }
        let names;
        bracketed!(names in input);
        let names = names.parse_terminated(<LitStr as Parse>::parse, Token![,])?;
        if names.is_empty() {
            return Err(input.error("no name"));
        }
        Ok(names.into_iter().collect())
    })
}

fn parse_retry(entry: &Entry, options: &mut Options, errors: &mut Errors) {
    let expected = "retry(max_attempts = 5, base = \"1s\", max = \"5m\")";
    let entries = errors.note(entry.list(expected)).unwrap_or_default();
    for entry in attr::retain_known(entries, "`retry`", symbol::RETRY_KEYS, errors) {
        match entry.key().as_str() {
            symbol::MAX_ATTEMPTS => options.max_attempts = errors.note(entry.count()),
            symbol::BASE => options.base = errors.note(parse_duration(&entry)),
            symbol::MAX => options.max = errors.note(parse_duration(&entry)),
            _ => {}
        }
    }
    if let (Some(base), Some(max)) = (options.base, options.max)
        && base > max
    {
        errors.push(diag::base_above_max(entry.span()));
    }
}

fn parse_duration(entry: &Entry) -> syn::Result<Duration> {
    duration_in(&entry.string()?, entry, false)
}

fn parse_timeout(entry: &Entry) -> syn::Result<Timeout> {
    let text = entry.string()?;
    if text.value() == "none" {
        return Ok(Timeout::Never);
    }
    duration_in(&text, entry, true).map(Timeout::After)
}

fn duration_in(text: &LitStr, entry: &Entry, or_none: bool) -> syn::Result<Duration> {
    let (span, key, text) = (text.span(), entry.key(), text.value());
    match duration::parse(&text) {
        None => Err(diag::malformed_duration(span, &key, &text, or_none)),
        Some(Duration::ZERO) => Err(diag::zero(span, &key)),
        Some(duration) => Ok(duration),
    }
}
