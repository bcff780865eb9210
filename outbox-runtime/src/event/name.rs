use std::borrow::Cow;
use std::fmt;

use super::{AggregateType, EventError, Field, Global, kind::SingleAggregate, text};

/// The maximum length of the name of an event type, in bytes. The derive checks it at compile time.
pub const MAX_EVENT_NAME_BYTES: usize = 128;

/// The maximum length of the name of an aggregate type, in bytes. The derive checks it at compile time.
pub const MAX_AGGREGATE_NAME_BYTES: usize = 64;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $field:expr, $limit:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Cow<'static, str>);

        impl $name {
            /// Makes a name from a string, which is checked and stored as given.
            ///
            /// # Errors
            /// [`EventError::Empty`] or [`EventError::TooLong`] by the length in bytes, [`EventError::OuterSpace`] if
            /// the string begins or ends with white space, and [`EventError::ControlCharacter`] if it contains control
            /// characters. These rules keep a name the same text on every database.
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

            /// Returns the name as stored; names are compared exactly, upper and lower case included.
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
    /// The name of an event type, as stored in the column `event_type`.
    ///
    /// Derived and dynamic names share one key space: a listener for `OrderEvent::Paid` also handles an
    /// event of the same aggregate that was written under the dynamic name `"Paid"`.
    ///
    /// The builders take plain strings and check them; use this type to check a name on its own, such as one from a
    /// configuration file.
    ///
    /// ```
    /// use outbox::event::EventName;
    ///
    /// assert_eq!(EventName::new("order.paid")?.as_str(), "order.paid");
    /// assert!(EventName::new(" order.paid").is_err());
    /// # Ok::<(), outbox::event::EventError>(())
    /// ```
    EventName, Field::EventType, MAX_EVENT_NAME_BYTES
}

name! {
    /// The name of an aggregate type, as stored in the column `aggregate_type`.
    ///
    /// The default is the name of [`Global`]; a row without an aggregate type reads as that.
    ///
    /// ```
    /// use outbox::event::AggregateName;
    ///
    /// assert_eq!(AggregateName::default().as_str(), "__GLOBAL__");
    /// ```
    AggregateName, Field::AggregateType, MAX_AGGREGATE_NAME_BYTES
}

impl Default for AggregateName {
    fn default() -> Self {
        Self::derived(Global::AGGREGATE.name)
    }
}

/// A value that names an aggregate type: one whose type derives [`AggregateType`], or a string.
///
/// [`EnvelopeBuilder::aggregate_type`](super::EnvelopeBuilder::aggregate_type) and the methods of
/// [`ListenerRegistry`](crate::listener::ListenerRegistry) that register a listener take any such value.
pub trait IntoAggregateName {
    /// Converts the value into a checked name.
    ///
    /// # Errors
    /// The errors of [`AggregateName::new`] if the value is a string; the names of derived types are checked at compile
    /// time.
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
