//! Which rows a claim asks for, by event type and recipient.

use std::mem::discriminant;
use std::sync::Arc;

use super::batch::Arg;
use super::dialect::{Among, Dialect};
use super::statements::{self, Restriction, Statements};
use super::{Backend, Store};
use crate::event::{EventEnvelope, Recipient};

/// Which rows to claim, with the statements for them.
#[derive(Debug, Clone)]
pub struct TypeFilter {
    restricted: Option<Restricted>,
}

#[derive(Debug, Clone)]
struct Restricted {
    /// The rows; all if there are none.
    only: Keys,
    /// Those among them that are left out.
    except: Keys,
    claims: Arc<statements::Claims>,
}

/// Rows of one recipient: of an event type, of an aggregate type, or all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimKey {
    /// The rows of an event type.
    Event {
        /// The name of the aggregate type.
        aggregate: String,
        /// The name of the event type.
        event: String,
        /// Whose rows.
        recipient: Recipient,
    },
    /// The rows of an aggregate type.
    Aggregate {
        /// The name of the aggregate type.
        aggregate: String,
        /// Whose rows.
        recipient: Recipient,
    },
    /// All rows.
    All {
        /// Whose rows.
        recipient: Recipient,
    },
}

impl ClaimKey {
    /// Returns the key of the rows of an event type.
    pub fn event(aggregate: &str, event: &str, recipient: Recipient) -> Self {
        Self::Event { aggregate: aggregate.to_owned(), event: event.to_owned(), recipient }
    }

    /// Returns whether the rows of another key are among those of this one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All { recipient }, other) => recipient == other.recipient(),
            (Self::Aggregate { aggregate, recipient }, Self::Event { aggregate: of, .. }) => {
                aggregate == of && recipient == other.recipient()
            }
            _ => self == other,
        }
    }

    fn recipient(&self) -> &Recipient {
        match self {
            Self::Event { recipient, .. }
            | Self::Aggregate { recipient, .. }
            | Self::All { recipient } => recipient,
        }
    }

    fn matches(&self, of: &EventEnvelope, to: &Recipient) -> bool {
        match self {
            Self::Event { aggregate, event, recipient } => {
                aggregate == of.aggregate_type() && event == of.event_type() && recipient == to
            }
            Self::Aggregate { aggregate, recipient } => {
                aggregate == of.aggregate_type() && recipient == to
            }
            Self::All { recipient } => recipient == to,
        }
    }

    /// Returns its parts, in the order in which statements compare them.
    fn parts(&self) -> Vec<&str> {
        match self {
            Self::Event { aggregate, event, recipient } => {
                vec![aggregate, event, recipient.as_column()]
            }
            Self::Aggregate { aggregate, recipient } => vec![aggregate, recipient.as_column()],
            Self::All { recipient } => vec![recipient.as_column()],
        }
    }
}

/// Keys in the order of their form.
#[derive(Debug, Clone, Default)]
struct Keys(Arc<[ClaimKey]>);

impl Keys {
    fn new(keys: impl IntoIterator<Item = ClaimKey>) -> Self {
        let mut keys: Vec<ClaimKey> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        Self(keys.into())
    }

    fn matches(&self, event: &EventEnvelope, recipient: &Recipient) -> bool {
        self.0.iter().any(|key| key.matches(event, recipient))
    }

    /// Returns how many keys of each form there are.
    fn restriction(&self) -> Restriction {
        let count = |form: fn(&ClaimKey) -> bool| self.0.iter().filter(|key| form(key)).count();
        Restriction {
            events: count(|key| matches!(key, ClaimKey::Event { .. })),
            aggregates: count(|key| matches!(key, ClaimKey::Aggregate { .. })),
            all: count(|key| matches!(key, ClaimKey::All { .. })),
        }
    }

    fn args(&self, dialect: &Dialect) -> Vec<Arg> {
        if let Among::Each = dialect.keys.among {
            return self.0.iter().flat_map(ClaimKey::parts).map(Arg::from).collect();
        }
        // One array for each form. No name has a control character.
        let forms = self.0.chunk_by(|a, b| discriminant(a) == discriminant(b));
        let text = |key: &ClaimKey| Some(key.parts().join("\u{1f}"));
        forms.map(|keys| Arg::Texts(keys.iter().map(text).collect())).collect()
    }
}

impl TypeFilter {
    /// Every row, whether a listener handles it or not.
    pub const ALL: Self = Self { restricted: None };

    pub(super) fn claims<'a>(&'a self, sql: &'a Statements) -> &'a statements::Claims {
        self.restricted.as_ref().map_or(&sql.claim_all, |restricted| &restricted.claims)
    }

    /// Returns whether it selects a row of an event.
    pub(super) fn contains(&self, event: &EventEnvelope, recipient: &Recipient) -> bool {
        self.restricted.as_ref().is_none_or(|restricted| {
            restricted.only.matches(event, recipient)
                && !restricted.except.matches(event, recipient)
        })
    }

    pub(super) fn args(&self, dialect: &Dialect) -> Vec<Arg> {
        let Some(restricted) = &self.restricted else { return Vec::new() };
        let mut args = restricted.only.args(dialect);
        args.extend(restricted.except.args(dialect));
        args
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns a filter for the rows of some keys. Without any, nothing is claimed.
    pub fn type_filter(&self, only: impl IntoIterator<Item = ClaimKey>) -> TypeFilter {
        self.type_filter_except(only, [])
    }

    /// Returns a filter for the rows of some keys, without those of others.
    pub fn type_filter_except(
        &self,
        only: impl IntoIterator<Item = ClaimKey>,
        except: impl IntoIterator<Item = ClaimKey>,
    ) -> TypeFilter {
        let mut only: Vec<ClaimKey> = only.into_iter().collect();
        if only.is_empty() {
            // No row has an empty event type.
            only.push(ClaimKey::event("", "", Recipient::Unnamed));
        }
        let (only, except) = (Keys::new(only), Keys::new(except));
        let restrictions = Some((only.restriction(), except.restriction()));
        let claims = Arc::new(statements::Claims::new(self.dialect(), &self.table, restrictions));
        TypeFilter { restricted: Some(Restricted { only, except, claims }) }
    }
}
