//! Checks names, aliases and fields.

use std::collections::HashMap;

use proc_macro2::Span;

use super::model::{Derive, Model, Variant};
use crate::attr::{self, Entry};
use crate::diag::{self, Errors};
use crate::path::Named;
use crate::symbol;

/// The limits of `EventName` and `AggregateName` in the runtime; a test compares them.
const MAX_EVENT_NAME_BYTES: usize = 128;
const MAX_AGGREGATE_NAME_BYTES: usize = 64;
const MAX_SUBSCRIPTION_NAME_BYTES: usize = 64;

pub(super) fn check(model: &Model<'_>, errors: &mut Errors) {
    if let Some(Named::Name(name)) = &model.aggregate {
        aggregate_name(symbol::AGGREGATE, &name.value(), name.span(), errors);
    }
    let check_name = match model.derive {
        Derive::EventType => event_name,
        Derive::AggregateType => aggregate_name,
    };
    for variant in &model.variants {
        check_name(symbol::NAME, &variant.name.text, variant.name.span, errors);
        for alias in &variant.aliases {
            check_name(symbol::ALIAS, &alias.value(), alias.span(), errors);
        }
        if model.derive == Derive::EventType {
            fields(variant, errors);
        }
    }
    uniqueness(&model.variants, errors);
}

pub(crate) fn event_name(key: &str, name: &str, span: Span, errors: &mut Errors) {
    stored_name("event", MAX_EVENT_NAME_BYTES, key, name, span, errors);
}

pub(crate) fn aggregate_name(key: &str, name: &str, span: Span, errors: &mut Errors) {
    stored_name("aggregate", MAX_AGGREGATE_NAME_BYTES, key, name, span, errors);
}

/// Checks the name of a subscription, which is also an argument of commands and a label of metrics.
pub(crate) fn subscription_name(key: &str, name: &str, span: Span, errors: &mut Errors) {
    let permitted = |one: char| matches!(one, 'a'..='z' | '0'..='9' | '_' | '.' | '-');
    if name.is_empty() {
        errors.push(diag::empty_name(span, key));
    } else if let Some(other) = name.chars().find(|one| !permitted(*one)) {
        errors.push(diag::subscription_character(span, key, other));
    } else if name.len() > MAX_SUBSCRIPTION_NAME_BYTES {
        errors.push(diag::long_name(span, "subscription", name.len(), MAX_SUBSCRIPTION_NAME_BYTES));
    }
}

fn stored_name(what: &str, limit: usize, key: &str, name: &str, span: Span, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(diag::empty_name(span, key));
    } else if name.len() > limit {
        errors.push(diag::long_name(span, what, name.len(), limit));
    } else if name.trim() != name {
        errors.push(diag::spaced_name(span, key));
    } else if name.contains(char::is_control) {
        errors.push(diag::control_name(span, key));
    }
}

/// Checks that names and aliases are unique. Names are checked first, so that in a conflict between a name
/// and an alias the alias is reported, wherever it is.
fn uniqueness(variants: &[Variant<'_>], errors: &mut Errors) {
    let mut taken: HashMap<String, String> = HashMap::new();
    for variant in variants {
        if let Some(other) = taken.insert(variant.name.text.clone(), variant.rust_name()) {
            errors.push(diag::duplicate_name(variant.name.span, &variant.name.text, &other));
        }
    }
    for variant in variants {
        for alias in &variant.aliases {
            if let Some(other) = taken.insert(alias.value(), variant.rust_name()) {
                errors.push(diag::colliding_alias(alias.span(), &alias.value(), &other));
            }
        }
    }
}

fn fields(variant: &Variant<'_>, errors: &mut Errors) {
    if let ([only], false) = (variant.fields.as_slice(), variant.has_field_names) {
        // serde ignores the attribute in this position and would store the value.
        let skipped = |entry: &Entry| entry.key().starts_with("skip");
        let attrs = only.attrs.iter().copied();
        if let Some(entry) = attr::serde_entries(attrs).iter().find(|entry| skipped(entry)) {
            errors.push(diag::skipped_newtype(entry.span(), &entry.key()));
        }
    }
    for second in variant.fields.iter().filter_map(|field| field.aggregate_id).skip(1) {
        errors.push(diag::two_aggregate_ids(second));
    }
}
