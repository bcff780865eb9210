use std::borrow::Cow;
use std::fmt;

use super::{AggregateType, EventError, Field, Global, kind::SingleAggregate, text};

/// The maximum length of the name of an event type, in bytes.
pub const MAX_EVENT_NAME_BYTES: usize = 128;

/// The maximum length of the name of an aggregate type, in bytes.
pub const MAX_AGGREGATE_NAME_BYTES: usize = 64;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $field:expr, $limit:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Cow<'static, str>);

        impl $name {
            /// Makes a name from a string.
            ///
            /// # Errors
            /// Returns an error if the string is empty or too long, begins or ends with white space, or
            /// contains control characters.
            pub fn new(name: impl Into<Cow<'static, str>>) -> Result<Self, EventError> {
                let name = name.into();
                text::check($field, &name, $limit)?;
                Ok(Self(name))
            }

            /// Makes a name that the derive has checked at compile time.
            pub(super) const fn derived(name: &'static str) -> Self {
                Self(Cow::Borrowed(name))
            }

            /// Makes a name from a row, without checking it again.
            pub(super) fn stored(name: String) -> Self {
                Self(Cow::Owned(name))
            }

            /// Returns the name as stored.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
    };
}

name! {
    /// The name of an event type, as stored in `event_type`.
    ///
    /// Derived and dynamic names share one key space: a listener for `OrderEvent::Paid` also handles an
    /// event that was written under the dynamic name `"Paid"`.
    EventName, Field::EventType, MAX_EVENT_NAME_BYTES
}

name! {
    /// The name of an aggregate type, as stored in `aggregate_type`.
    ///
    /// The default is the name of [`Global`]; a row without an aggregate type reads as that.
    AggregateName, Field::AggregateType, MAX_AGGREGATE_NAME_BYTES
}

impl Default for AggregateName {
    fn default() -> Self {
        Self::derived(Global::AGGREGATE.name)
    }
}

/// A value that names an aggregate type: one whose type derives [`AggregateType`], or a string.
pub trait IntoAggregateName {
    /// Converts the value into a checked name.
    ///
    /// # Errors
    /// Returns an error if the value is a string that is not a valid name.
    fn into_aggregate_name(self) -> Result<AggregateName, EventError>;
}

impl<A: AggregateType> IntoAggregateName for A {
    fn into_aggregate_name(self) -> Result<AggregateName, EventError> {
        Ok(AggregateName::derived(self.aggregate_name()))
    }
}

impl IntoAggregateName for AggregateName {
    fn into_aggregate_name(self) -> Result<AggregateName, EventError> {
        Ok(self)
    }
}

impl IntoAggregateName for &str {
    fn into_aggregate_name(self) -> Result<AggregateName, EventError> {
        AggregateName::new(self.to_owned())
    }
}

impl IntoAggregateName for String {
    fn into_aggregate_name(self) -> Result<AggregateName, EventError> {
        AggregateName::new(self)
    }
}
