use std::sync::Arc;

/// Whose delivery a row is. An event has one row for each of its recipients.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Recipient {
    /// The listener without a name.
    #[default]
    Unnamed,
    /// The listener with this name: a subscription.
    Named(Arc<str>),
    /// Not known yet. Another program has inserted the row; the relay that claims it expands it.
    Unexpanded,
}

/// The value of the column `subscription` in a row that is not expanded. It is the column's default, so that programs
/// that know nothing of subscriptions write it.
const UNEXPANDED: &str = "*";

/// The maximum length of the name of a subscription.
pub const MAX_SUBSCRIPTION_NAME_BYTES: usize = 64;

impl Recipient {
    /// Returns the listener with a name; without one if the name is empty.
    pub fn named(name: &str) -> Self {
        if name.is_empty() { Self::Unnamed } else { Self::Named(name.into()) }
    }

    /// Returns the recipient that the column `subscription` names.
    pub(crate) fn from_column(column: &str) -> Self {
        if column == UNEXPANDED { Self::Unexpanded } else { Self::named(column) }
    }

    /// Returns the value of the column `subscription`.
    pub(crate) fn as_column(&self) -> &str {
        match self {
            Self::Unexpanded => UNEXPANDED,
            Self::Unnamed | Self::Named(_) => self.name(),
        }
    }

    /// Returns the name of the subscription; empty if there is none.
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Unnamed | Self::Unexpanded => "",
        }
    }
}

/// Checks the name of a subscription, and returns the rule that it violates.
pub(crate) fn check_subscription_name(name: &str) -> Result<(), &'static str> {
    let is_valid = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-');
    if name.is_empty() {
        Err("it is empty")
    } else if name.len() > MAX_SUBSCRIPTION_NAME_BYTES {
        Err("it is longer than 64 bytes")
    } else if !name.bytes().all(is_valid) {
        Err("it has characters other than `a-z`, `0-9`, `_`, `.` and `-`")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipient_is_read_back_from_its_column() {
        for recipient in [Recipient::Unnamed, Recipient::Unexpanded, Recipient::named("billing")] {
            assert_eq!(Recipient::from_column(recipient.as_column()), recipient);
        }
        assert_eq!(Recipient::named(""), Recipient::Unnamed);
    }

    #[test]
    fn names_are_short_and_plain() {
        for name in ["billing", "a", "to_nats.eu-1", &"x".repeat(64)] {
            assert_eq!(check_subscription_name(name), Ok(()), "{name}");
        }
        for name in ["", "*", "Billing", "bil ling", "ü", "a/b", "a\0", &"x".repeat(65)] {
            assert!(check_subscription_name(name).is_err(), "{name}");
        }
    }
}
