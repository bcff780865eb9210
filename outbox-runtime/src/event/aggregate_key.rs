use std::sync::Arc;

use super::{EventEnvelope, Recipient};

/// An aggregate as one recipient sees it: its type, its id and the subscription, as one text. Events of one aggregate
/// can be ordered, for each recipient by itself.
///
/// The text is the same that the databases compute from the columns: type, unit separator, id; and for a subscription
/// another separator and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AggregateKey(Arc<str>);

/// Separates the two parts. No name has a control character.
pub(crate) const SEPARATOR: char = '\u{1f}';

impl AggregateKey {
    /// Returns the aggregate of an event; `None` if the event has no aggregate id, or an empty one.
    pub(crate) fn of(event: &EventEnvelope, recipient: &Recipient) -> Option<Self> {
        let id = event.aggregate_id().filter(|id| !id.is_empty())?;
        let mut key = format!("{}{SEPARATOR}{id}", event.aggregate_type());
        if let Recipient::Named(name) = recipient {
            key.push(SEPARATOR);
            key.push_str(name);
        }
        Some(Self(key.into()))
    }

    /// Returns the aggregate with a text that a database has computed.
    pub(crate) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_without_an_aggregate_id_has_no_order() {
        let event = |id: Option<&str>| {
            let event = EventEnvelope::builder("Paid").payload_json("{}").aggregate_type("Order");
            match id {
                Some(id) => event.aggregate_id(id).build(),
                None => event.build(),
            }
        };
        let key = |id| AggregateKey::of(&event(id).unwrap(), &Recipient::Unnamed);
        assert_eq!(key(None), None);
        assert_eq!(key(Some("7")).unwrap().as_str(), "Order\u{1f}7");
        assert_ne!(key(Some("7")), key(Some("8")));
        let event = event(Some("7")).unwrap();
        let named = AggregateKey::of(&event, &Recipient::named("billing")).unwrap();
        assert_eq!(named.as_str(), "Order\u{1f}7\u{1f}billing");
        let unexpanded = AggregateKey::of(&event, &Recipient::Unexpanded);
        assert_eq!(unexpanded, key(Some("7")), "it becomes the row of the unnamed listener");
    }
}
