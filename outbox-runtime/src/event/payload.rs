use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::EventError;

/// The maximum size of a payload in bytes: 1 MiB.
///
/// An outbox is for messages, not for files: write large content elsewhere and put a reference to it in the event.
pub const MAX_PAYLOAD_BYTES: usize = 1_048_576;

/// The JSON payload of an event.
///
/// It is serialised and validated once, when the event is built, and every delivery sees the same bytes: the text is
/// not reformatted, neither by this crate nor by the column it is stored in. Cloning it copies a pointer. `Debug`
/// output shows the size, never the content.
///
/// A `#[listener]` function receives its payload decoded. Use this type where the event's type is not known, for
/// example to forward the text to a broker or to read one field of it.
///
/// ```
/// use outbox::EventEnvelope;
/// use serde::Deserialize;
///
/// /// The fields that every event of this application has.
/// #[derive(Deserialize)]
/// struct Common { version: u64 }
///
/// let envelope = EventEnvelope::json("PriceChanged", r#"{"version": 3, "cents": 1200}"#)?;
/// assert_eq!(envelope.payload().as_str(), r#"{"version": 3, "cents": 1200}"#);
/// assert_eq!(envelope.payload().decode::<Common>()?.version, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Makes a payload from JSON text, which is kept as given.
    ///
    /// # Errors
    /// [`EventError::PayloadTooLarge`] above [`MAX_PAYLOAD_BYTES`], and [`EventError::PayloadNotJson`] if the text is
    /// not JSON that serde can read back (nested more than 128 levels deep, a lone surrogate, a number beyond `f64`).
    pub fn json(text: impl Into<Arc<str>>) -> Result<Self, EventError> {
        let text = text.into();
        check_size(text.len())?;
        serde_json::from_str::<AnyJson>(&text)
            .map_err(|error| EventError::PayloadNotJson { reason: error.to_string() })?;
        Ok(Self(text))
    }

    /// Makes a payload from the UTF-8 bytes of JSON text, such as the body of a request.
    ///
    /// # Errors
    /// Returns the errors of [`Payload::json`], and [`EventError::PayloadNotUtf8`] with the offset of the first invalid
    /// byte.
    pub fn bytes(bytes: Vec<u8>) -> Result<Self, EventError> {
        check_size(bytes.len())?;
        let text = String::from_utf8(bytes).map_err(|error| EventError::PayloadNotUtf8 {
            offset: error.utf8_error().valid_up_to(),
        })?;
        Self::json(text)
    }

    /// Makes a payload from a row, without validating it again.
    pub(super) fn stored(text: String) -> Self {
        Self(text.into())
    }

    /// Returns the JSON text as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the JSON text as bytes, for clients of brokers and HTTP.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the size in bytes, which is never zero: no JSON text is empty.
    ///
    /// It counts against `max_bytes`, the limit for all events in flight.
    #[expect(clippy::len_without_is_empty, reason = "no JSON text is empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Deserialises the payload into a type.
    ///
    /// # Errors
    /// Returns serde's error if the payload does not fit the type. Do not log it where payloads are confidential:
    /// it may quote the content.
    pub fn decode<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.0)
    }
}

fn check_size(actual: usize) -> Result<(), EventError> {
    if actual > MAX_PAYLOAD_BYTES {
        return Err(EventError::PayloadTooLarge { limit: MAX_PAYLOAD_BYTES, actual });
    }
    Ok(())
}

/// Shows the size, never the content.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

/// Reads any JSON value and discards it.
///
/// `serde::de::IgnoredAny` skips over values instead of reading them, and so accepts text that no
/// listener could read: unlimited nesting, lone surrogates, numbers out of range.
struct AnyJson;

impl<'de> Deserialize<'de> for AnyJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for AnyJson {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_bytes_as_given() {
        for text in ["null", "7", "\"a\"", " {\"b\": 1, \"a\": 1.50, \"b\":2} ", "[]", "true"] {
            assert_eq!(Payload::json(text).unwrap().as_str(), text);
            assert_eq!(Payload::bytes(text.into()).unwrap().as_str(), text);
        }
    }

    #[test]
    fn refuses_text_that_no_listener_could_read() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for text in
            ["", "{", "{}{}", "nul", "{'a':1}", "\"\0\"", "\"\\ud800\"", "1e999", "\"a\nb\"", &deep]
        {
            let refusal = Payload::json(text).unwrap_err();
            assert!(matches!(refusal, EventError::PayloadNotJson { .. }), "{text:?}: {refusal}");
        }
        let refusal = Payload::bytes(vec![b'"', 0xff, b'"']).unwrap_err();
        assert!(matches!(refusal, EventError::PayloadNotUtf8 { offset: 1 }), "{refusal}");
    }

    #[test]
    fn refusal_does_not_quote_the_content() {
        let refusal = Payload::json(r#"{"card": "4111-1111", oops}"#).unwrap_err().to_string();
        assert_eq!(refusal, "payload is not JSON: key must be a string at line 1 column 23");
    }

    #[test]
    fn the_limit_is_inclusive() {
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        assert!(Payload::json(text(MAX_PAYLOAD_BYTES)).is_ok());
        let refusal = Payload::json(text(MAX_PAYLOAD_BYTES + 1)).unwrap_err();
        assert_eq!(refusal.to_string(), "payload has 1048577 bytes; at most 1048576 are allowed");
        assert!(matches!(
            Payload::bytes(vec![b' '; MAX_PAYLOAD_BYTES + 1]),
            Err(EventError::PayloadTooLarge { .. })
        ));
    }
}
