//! The model of a type that derives `EventType` or `AggregateType`.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, GenericParam, LitStr, Path, Type, Visibility};

use crate::attr::{self, Entry};
use crate::case::Case;
use crate::diag::{self, Errors};
use crate::path::{Named, default_crate, local};
use crate::symbol;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Derive {
    EventType,
    AggregateType,
}

impl Derive {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::EventType => "EventType",
            Self::AggregateType => "AggregateType",
        }
    }

    /// Returns the known keys of an enum, of its variants, of a struct, and of fields.
    fn keys(self) -> [&'static [&'static str]; 4] {
        match self {
            Self::EventType => [
                symbol::EVENT_ENUM_KEYS,
                symbol::EVENT_VARIANT_KEYS,
                symbol::EVENT_STRUCT_KEYS,
                symbol::EVENT_FIELD_KEYS,
            ],
            Self::AggregateType => [
                symbol::AGGREGATE_ENUM_KEYS,
                symbol::AGGREGATE_VARIANT_KEYS,
                symbol::AGGREGATE_STRUCT_KEYS,
                symbol::NO_KEYS,
            ],
        }
    }
}

/// A type with stored names.
pub(super) struct Model<'a> {
    pub(super) derive: Derive,
    pub(super) ident: &'a Ident,
    pub(super) vis: &'a Visibility,
    pub(super) krate: Path,
    pub(super) aggregate: Option<Named>,
    pub(super) variants: Vec<Variant<'a>>,
    pub(super) is_enum: bool,
    /// The lints that the type allows, for the code generated from it.
    pub(super) lints: Vec<TokenStream>,
}

/// A stored name and its payload: a variant, or the struct itself.
pub(super) struct Variant<'a> {
    pub(super) ident: &'a Ident,
    pub(super) name: Name,
    pub(super) aliases: Vec<LitStr>,
    pub(super) no_listener: bool,
    pub(super) fields: Vec<Field<'a>>,
    pub(super) has_field_names: bool,
    /// The serde attributes for the whole payload.
    pub(super) serde: Vec<TokenStream>,
    /// The lints that the variant and the type allow.
    pub(super) lints: Vec<TokenStream>,
}

pub(super) struct Name {
    pub(super) text: String,
    pub(super) span: Span,
}

pub(super) struct Field<'a> {
    pub(super) ident: Option<&'a Ident>,
    pub(super) ty: &'a Type,
    /// The attributes for serde and rustdoc.
    pub(super) attrs: Vec<&'a Attribute>,
    /// The lints that the field allows.
    pub(super) lints: Vec<TokenStream>,
    /// The variable for the field in generated code.
    pub(super) binding: Ident,
    /// The span of `aggregate_id`, if the field is marked with it.
    pub(super) aggregate_id: Option<Span>,
}

impl Field<'_> {
    pub(super) fn has_serde(&self) -> bool {
        self.attrs.iter().any(|attr| attr.path().is_ident(symbol::SERDE))
    }
}

impl<'a> Model<'a> {
    /// Builds the model. Returns `None`, and records an error, if the item cannot be derived for.
    pub(super) fn new(input: &'a DeriveInput, derive: Derive, errors: &mut Errors) -> Option<Self> {
        if let Some(param) = input.generics.params.first() {
            errors.push(match (param, derive) {
                (GenericParam::Lifetime(_), Derive::EventType) => diag::borrowing(param.span()),
                _ => diag::generic(param.span(), derive.name()),
            });
            return None;
        }
        let [enum_keys, variant_keys, struct_keys, field_keys] = derive.keys();
        let mut model = Self {
            derive,
            ident: &input.ident,
            vis: &input.vis,
            krate: default_crate(),
            aggregate: None,
            variants: Vec::new(),
            is_enum: matches!(input.data, Data::Enum(_)),
            lints: attr::allowed_lints(&input.attrs),
        };
        match &input.data {
            Data::Union(data) => {
                errors.push(diag::union(data.union_token.span, derive.name()));
                return None;
            }
            Data::Enum(data) if data.variants.is_empty() => {
                errors.push(diag::no_variants(input.ident.span(), derive.name()));
                return None;
            }
            Data::Enum(data) => {
                let entries = attr::outbox_entries(&input.attrs, "an enum", enum_keys, errors);
                let case = model.apply_type_entries(&entries, errors);
                let enum_entries = enum_serde(&input.attrs);
                for declared in &data.variants {
                    let entries =
                        attr::outbox_entries(&declared.attrs, "a variant", variant_keys, errors);
                    let mut variant =
                        Variant::new(&declared.ident, &declared.fields, field_keys, errors);
                    variant.apply_entries(&entries, case, errors);
                    variant.serde = variant_serde(&declared.attrs, &enum_entries);
                    variant.lints.clone_from(&model.lints);
                    variant.lints.extend(attr::allowed_lints(&declared.attrs));
                    model.variants.push(variant);
                }
            }
            Data::Struct(data) => {
                let entries = attr::outbox_entries(&input.attrs, "a struct", struct_keys, errors);
                model.apply_type_entries(&entries, errors);
                let mut variant = Variant::new(&input.ident, &data.fields, field_keys, errors);
                variant.apply_entries(&entries, None, errors);
                variant.lints.clone_from(&model.lints);
                if derive == Derive::EventType {
                    variant.serde = struct_serde(&input.attrs, errors);
                }
                model.variants.push(variant);
            }
        }
        let borrowing = (derive == Derive::EventType)
            .then(|| model.variants.iter().flat_map(|variant| &variant.fields))
            .into_iter()
            .flatten()
            .find(|field| borrows(field.ty.to_token_stream()));
        if let Some(field) = borrowing {
            errors.push(diag::borrowing(field.ty.span()));
            return None;
        }
        Some(model)
    }

    /// Applies the attributes of the type. Returns the rename rule.
    fn apply_type_entries(&mut self, entries: &[Entry], errors: &mut Errors) -> Option<Case> {
        let mut case = None;
        for entry in entries {
            match entry.key().as_str() {
                symbol::CRATE => {
                    self.krate = errors.note(entry.path()).unwrap_or_else(default_crate);
                }
                symbol::AGGREGATE => {
                    let expected = "aggregate = Order";
                    self.aggregate = errors.note(entry.assigned(expected, Named::parse));
                }
                symbol::RENAME_ALL => {
                    let rule = entry.string().and_then(|rule| Case::parse(&rule));
                    case = errors.note(rule);
                }
                _ => {}
            }
        }
        case
    }
}

impl<'a> Variant<'a> {
    fn new(
        ident: &'a Ident,
        fields: &'a syn::Fields,
        field_keys: &[&str],
        errors: &mut Errors,
    ) -> Self {
        let model_field = |(index, field): (usize, &'a syn::Field)| {
            let entries = attr::outbox_entries(&field.attrs, "a field", field_keys, errors);
            let mark = entries.iter().find(|entry| entry.key() == symbol::AGGREGATE_ID);
            if let Some(mark) = mark {
                errors.note(mark.flag());
            }
            let kept = |attr: &&Attribute| {
                attr.path().is_ident(symbol::SERDE) || attr.path().is_ident("doc")
            };
            Field {
                ident: field.ident.as_ref(),
                ty: &field.ty,
                attrs: field.attrs.iter().filter(kept).collect(),
                lints: attr::allowed_lints(&field.attrs),
                binding: local(&format!("field_{index}")),
                aggregate_id: mark.map(Entry::span),
            }
        };
        Self {
            ident,
            name: Name { text: ident.unraw().to_string(), span: ident.span() },
            aliases: Vec::new(),
            no_listener: false,
            fields: fields.iter().enumerate().map(model_field).collect(),
            has_field_names: matches!(fields, syn::Fields::Named(_)),
            serde: Vec::new(),
            lints: Vec::new(),
        }
    }

    fn apply_entries(&mut self, entries: &[Entry], case: Option<Case>, errors: &mut Errors) {
        if let Some(case) = case {
            self.name.text = case.rename(&self.name.text);
        }
        for entry in entries {
            match entry.key().as_str() {
                symbol::NAME => {
                    if let Some(name) = errors.note(entry.string()) {
                        self.name = Name { text: name.value(), span: name.span() };
                    }
                }
                symbol::ALIAS => self.aliases.extend(errors.note(entry.string())),
                symbol::NO_LISTENER => {
                    errors.note(entry.flag());
                    self.no_listener = true;
                }
                _ => {}
            }
        }
    }

    /// Returns the name in the source code, for messages and tables.
    pub(super) fn rust_name(&self) -> String {
        self.ident.unraw().to_string()
    }
}

/// Returns whether a type contains a reference.
fn borrows(ty: TokenStream) -> bool {
    ty.into_iter().any(|token| match token {
        TokenTree::Punct(punct) => punct.as_char() == '&',
        TokenTree::Group(group) => borrows(group.stream()),
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    })
}

const RENAME_ALL_FIELDS: &str = "rename_all_fields";
const DENY_UNKNOWN_FIELDS: &str = "deny_unknown_fields";
const DEFAULT: &str = "default";

/// Returns the serde attributes of an enum that apply to the fields of every variant. The others only matter
/// for a `Serialize` derived on the enum itself, which this macro does not use.
fn enum_serde(attrs: &[Attribute]) -> Vec<Entry> {
    let known = [RENAME_ALL_FIELDS, DENY_UNKNOWN_FIELDS];
    let entries = attr::serde_entries(attrs).into_iter();
    entries.filter(|entry| known.contains(&entry.key().as_str())).collect()
}

fn variant_serde(attrs: &[Attribute], enum_entries: &[Entry]) -> Vec<TokenStream> {
    let known = [symbol::RENAME_ALL, DENY_UNKNOWN_FIELDS];
    let own: Vec<Entry> = attr::serde_entries(attrs)
        .into_iter()
        .filter(|entry| known.contains(&entry.key().as_str()))
        .collect();
    let is_set = |key: &str| own.iter().any(|entry| entry.key() == key);
    let mut serde: Vec<TokenStream> = own.iter().map(ToTokens::to_token_stream).collect();
    for entry in enum_entries {
        let key = entry.key();
        if key == RENAME_ALL_FIELDS && !is_set(symbol::RENAME_ALL) {
            serde.push(entry.with_key(symbol::RENAME_ALL));
        } else if key == DENY_UNKNOWN_FIELDS && !is_set(DENY_UNKNOWN_FIELDS) {
            serde.push(entry.to_token_stream());
        }
    }
    serde
}

/// Returns the serde attributes of a struct. A struct is its own payload, so an attribute without effect is an
/// error.
fn struct_serde(attrs: &[Attribute], errors: &mut Errors) -> Vec<TokenStream> {
    let known = [symbol::RENAME_ALL, DENY_UNKNOWN_FIELDS, DEFAULT];
    let mut serde = Vec::new();
    for entry in attr::serde_entries(attrs) {
        let key = entry.key();
        // A function as default would have to return a type that the user cannot name.
        if key == DEFAULT && errors.note(entry.flag()).is_none() {
            continue;
        }
        if known.contains(&key.as_str()) {
            serde.push(entry.to_token_stream());
        } else {
            errors.push(diag::unsupported_serde(entry.span(), &key, &known));
        }
    }
    serde
}

impl Variant<'_> {
    /// Returns whether missing fields are taken from the `Default` of the type.
    pub(super) fn has_default(&self) -> bool {
        self.serde.iter().any(|entry| entry.to_string() == DEFAULT)
    }
}
