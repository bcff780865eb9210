use std::collections::BTreeMap;
use std::fmt;

use super::{EventError, Field};

/// The maximum size of an event's headers as JSON, in bytes: what a `TEXT` column holds on every database.
///
/// Keys, quotes and escapes count as well. [`EventError::HeadersTooLarge`] is the error above it.
pub const MAX_HEADERS_BYTES: usize = 65_535;

/// The headers of an event: string keys and values that are stored with the payload.
///
/// Use them for what concerns the delivery rather than the event: a trace context, a content type, a reply address, a
/// correlation id. [`EnvelopeBuilder::header`](super::EnvelopeBuilder::header) sets one,
/// [`Meta::headers`](crate::listener::Meta::headers) and [`EventEnvelope::headers`](super::EventEnvelope::headers)
/// return them. Keys are unique and compared exactly, unlike those of HTTP. `Debug` output shows the keys only, because
/// a value may be a token or an address.
///
/// # Examples
///
/// ```
/// use outbox::EventEnvelope;
///
/// let envelope = EventEnvelope::builder("Paid")
///     .payload_json("{}")
///     .header("reply-to", "billing")
///     .header("content-language", "de")
///     .build()?;
/// let headers = envelope.headers();
/// assert_eq!(headers.get("reply-to"), Some("billing"));
/// assert_eq!(headers.get("Reply-To"), None);
/// assert_eq!(format!("{headers:?}"), r#"{"content-language", "reply-to"}"#);
/// # Ok::<(), outbox::event::EventError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    /// Returns the value of a header; keys are case-sensitive.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns an iterator over all headers, ordered by key, for example to copy them to the headers of a message.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the number of headers, those of the trace context included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no headers, as for an event that was written without any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of all keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// Returns the stored form: a JSON object, or `None` (NULL in the database) when there are no headers.
    ///
    /// Together with [`from_json`](Self::from_json) it is for programs that read or insert rows of the table
    /// themselves.
    ///
    /// ```
    /// use outbox::event::Headers;
    ///
    /// let headers: Headers = [("reply-to", "billing")].into_iter().collect();
    /// assert_eq!(headers.to_json().as_deref(), Some(r#"{"reply-to":"billing"}"#));
    /// assert_eq!(Headers::from_json(headers.to_json().as_deref())?, headers);
    /// # Ok::<(), outbox::event::EventError>(())
    /// ```
    pub fn to_json(&self) -> Option<String> {
        // Serialising a map of strings cannot fail.
        (!self.is_empty()).then(|| serde_json::to_string(&self.0).unwrap_or_default())
    }

    /// Reads the stored form.
    ///
    /// NULL, empty text and JSON `null` read as no headers. A header whose value is `null`, as other writers may store
    /// it, is skipped; the others are kept.
    ///
    /// # Errors
    /// Returns [`EventError::HeadersMalformed`] for anything else than a JSON object of strings. The error does not
    /// quote the text.
    pub fn from_json(stored: Option<&str>) -> Result<Self, EventError> {
        let stored = stored.unwrap_or_default().trim();
        if stored.is_empty() {
            return Ok(Self::default());
        }
        let headers: Option<BTreeMap<String, Option<String>>> =
            serde_json::from_str(stored).map_err(|_| EventError::HeadersMalformed)?;
        let headers = headers.unwrap_or_default().into_iter();
        Ok(Self(headers.filter_map(|(key, value)| Some((key, value?))).collect()))
    }

    pub(super) fn insert(&mut self, key: String, value: String) {
        self.0.insert(key, value);
    }

    pub(super) fn check(&self) -> Result<(), EventError> {
        for (key, value) in &self.0 {
            if key.is_empty() {
                return Err(EventError::Empty(Field::HeaderKey));
            }
            if key.contains('\0') {
                return Err(EventError::ControlCharacter(Field::HeaderKey));
            }
            if value.contains('\0') {
                return Err(EventError::ControlCharacter(Field::HeaderValue));
            }
        }
        let actual = self.to_json().map_or(0, |json| json.len());
        if actual > MAX_HEADERS_BYTES {
            return Err(EventError::HeadersTooLarge { limit: MAX_HEADERS_BYTES, actual });
        }
        Ok(())
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(headers: I) -> Self {
        Self(headers.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

/// Shows the keys only, because a value may be a token or an address.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_empty_and_json_null_read_as_none() {
        for stored in [None, Some(""), Some("  "), Some("null"), Some("{}")] {
            assert!(Headers::from_json(stored).unwrap().is_empty(), "{stored:?}");
        }
        assert_eq!(Headers::default().to_json(), None);
    }

    #[test]
    fn reads_back_what_it_stores() {
        let headers: Headers = [("b", "2"), ("a", "\"ü\"")].into_iter().collect();
        let stored = headers.to_json();
        assert_eq!(stored.as_deref(), Some(r#"{"a":"\"ü\"","b":"2"}"#));
        assert_eq!(Headers::from_json(stored.as_deref()).unwrap(), headers);
    }

    #[test]
    fn refuses_other_json_without_quoting_it() {
        for stored in ["[]", "7", r#"{"a":1}"#, r#"{"secret":[null]}"#, "{"] {
            let refusal = Headers::from_json(Some(stored)).unwrap_err();
            assert_eq!(refusal.to_string(), "headers are not a JSON object of strings");
        }
    }

    #[test]
    fn a_null_value_is_skipped() {
        let stored = r#"{"a":null,"b":"2","c":null,"d":"","e":"4","e":null}"#;
        let headers: Headers = [("b", "2"), ("d", "")].into_iter().collect();
        assert_eq!(Headers::from_json(Some(stored)).unwrap(), headers);
        assert!(Headers::from_json(Some(r#"{"a":null}"#)).unwrap().is_empty());
    }

    #[test]
    fn debug_hides_the_values() {
        let headers: Headers = [("authorization", "secret")].into_iter().collect();
        assert_eq!(format!("{headers:?}"), r#"{"authorization"}"#);
    }
}
