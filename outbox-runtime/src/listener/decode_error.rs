//! What a decode error says about the structure of a payload, and nothing of its content.
//!
//! serde's texts quote values: `invalid type: string "4111-1111", expected u64`. Names of variants and fields that it
//! does not know come from the payload as well, and a manual implementation of `Deserialize` may put anything into a
//! message. So a text is kept only if it is one of serde's own, and the part of it that comes from the payload is cut.
//! The rest was written by the program: the names of fields and variants, and what a type expects.
//!
//! A payload could imitate serde's texts, for an implementation that makes its content a message. It would need the
//! words that they are recognised by, so nothing is kept if it contains any of these.

use serde_json::error::Category;

const UNRECOGNISED: &str = "unexpected value";

/// Describes an error without a value from the payload.
pub(super) fn describe(error: &serde_json::Error, payload: &str) -> String {
    if error.classify() != Category::Data {
        return "not JSON".to_owned();
    }
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let message = text.strip_suffix(&position).unwrap_or(&text);
    let known = if may_imitate(payload) { None } else { known(message) };
    known.unwrap_or_else(|| UNRECOGNISED.to_owned())
}

/// Returns whether a payload contains what the texts are recognised by, plainly or with escaped letters.
fn may_imitate(payload: &str) -> bool {
    let plain = ["`", "expected ", "untagged enum "];
    // A backtick, a letter, a space.
    let escaped = [r"\u006", r"\u007", r"\u0020"];
    plain.into_iter().chain(escaped).any(|text| payload.contains(text))
}

/// Returns a text of serde's without the value in it, or `None` if it is not one of them.
fn known(message: &str) -> Option<String> {
    type Parse = fn(&str, &str) -> Option<String>;
    let texts: [(&str, Parse); 8] = [
        ("missing field", named),
        ("duplicate field", named),
        ("unknown variant", unknown),
        ("unknown field", unknown),
        ("invalid type", invalid),
        ("invalid value", invalid),
        ("invalid length", wrong_length),
        ("data did not match any variant of untagged enum", unmatched),
    ];
    let mut texts = texts.into_iter();
    texts.find_map(|(problem, parse)| parse(problem, message.strip_prefix(problem)?))
}

/// "missing field `x`".
fn named(problem: &str, rest: &str) -> Option<String> {
    let name = rest.strip_prefix(" `")?.strip_suffix('`')?;
    is_name(name).then(|| format!("{problem} `{name}`"))
}

/// "unknown variant `from the payload`, expected one of `A`, `B`".
fn unknown(problem: &str, rest: &str) -> Option<String> {
    if rest.ends_with(", there are no variants") || rest.ends_with(", there are no fields") {
        return Some(problem.to_owned());
    }
    let (_, expected) = split_value(rest)?;
    let is_list = expected.trim_start_matches("one of ").starts_with('`');
    is_list.then(|| format!("{problem}, expected {expected}"))
}

/// "invalid type: string \"from the payload\", expected u64".
fn invalid(problem: &str, rest: &str) -> Option<String> {
    let (value, expected) = split_value(rest.strip_prefix(": ")?)?;
    Some(match kind_of(value) {
        Some(kind) => format!("{problem}: {kind}, expected {expected}"),
        None => format!("{problem}, expected {expected}"),
    })
}

/// "invalid length 3, expected a tuple of size 2".
fn wrong_length(problem: &str, rest: &str) -> Option<String> {
    let (length, expected) = split_value(rest.strip_prefix(' ')?)?;
    let length: usize = length.parse().ok()?;
    Some(format!("{problem} {length}, expected {expected}"))
}

/// "data did not match any variant of untagged enum X".
fn unmatched(problem: &str, rest: &str) -> Option<String> {
    let name = rest.strip_prefix(' ')?;
    is_name(name).then(|| format!("{problem} {name}"))
}

/// Separates a value from what was expected instead. The value may contain the separator too, so the last one counts.
fn split_value(rest: &str) -> Option<(&str, &str)> {
    let (value, expected) = rest.rsplit_once(", expected ")?;
    (!expected.is_empty() && !expected.contains('"')).then_some((value, expected))
}

/// Returns the kind of a value that serde has described, without the value.
fn kind_of(described: &str) -> Option<&'static str> {
    const WITH_VALUE: [&str; 5] = ["boolean", "integer", "floating point", "character", "string"];
    const WITHOUT: [&str; 12] = [
        "null",
        "byte array",
        "unit value",
        "Option value",
        "newtype struct",
        "sequence",
        "map",
        "enum",
        "unit variant",
        "newtype variant",
        "tuple variant",
        "struct variant",
    ];
    let is_described = |kind: &&str| {
        let value = described.strip_prefix(kind).and_then(|value| value.strip_prefix(' '));
        value.is_some_and(|value| value.starts_with(['`', '"']))
    };
    let with_value = WITH_VALUE.into_iter().find(is_described);
    with_value.or_else(|| WITHOUT.into_iter().find(|kind| *kind == described))
}

/// Returns whether a text can be the name of a field or of a type.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['`', '"'])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fmt::Debug;

    use serde::de::{DeserializeOwned, Error as _, Unexpected};
    use serde::{Deserialize, Deserializer};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only decoding is tested")]
    struct Order {
        total_cents: u64,
        #[serde(default)]
        method: Option<Method>,
        #[serde(default)]
        pair: Option<(u8, bool)>,
    }

    #[derive(Debug, Deserialize)]
    enum Method {
        Card,
        Invoice,
    }

    #[derive(Debug, Deserialize)]
    enum Empty {}

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only decoding is tested")]
    enum Untagged {
        Number(u8),
        List(Vec<u8>),
    }

    /// Describes the error of decoding a text.
    fn described<T: DeserializeOwned + Debug>(json: &str) -> String {
        describe(&serde_json::from_str::<T>(json).unwrap_err(), json)
    }

    #[test]
    fn the_structure_is_kept_and_values_are_cut() {
        for (json, expected) in [
            ("{}", "missing field `total_cents`"),
            (r#"{"total_cents":1,"total_cents":2}"#, "duplicate field `total_cents`"),
            (r#"{"total_cents":"12"}"#, "invalid type: string, expected u64"),
            (r#"{"total_cents":true}"#, "invalid type: boolean, expected u64"),
            (r#"{"total_cents":1.5}"#, "invalid type: floating point, expected u64"),
            (r#"{"total_cents":null}"#, "invalid type: null, expected u64"),
            (r#"{"total_cents":[]}"#, "invalid type: sequence, expected u64"),
            (r#"{"total_cents":{}}"#, "invalid type: map, expected u64"),
            (r#"{"total_cents":-1}"#, "invalid value: integer, expected u64"),
            (
                r#"{"total_cents":1,"method":"Cash"}"#,
                "unknown variant, expected `Card` or `Invoice`",
            ),
            (
                r#"{"total_cents":1,"cash":0}"#,
                "unknown field, expected one of `total_cents`, `method`, `pair`",
            ),
            (r#"{"total_cents":1,"pair":[1]}"#, "invalid length 1, expected a tuple of size 2"),
            (r#""x""#, "invalid type: string, expected struct Order"),
            (r#"{"total_cents":1"#, "not JSON"),
        ] {
            assert_eq!(described::<Order>(json), expected, "{json}");
        }
        assert_eq!(described::<Empty>(r#""x""#), "unknown variant");
        assert_eq!(described::<Nothing>(r#"{"x":1}"#), "unknown field");
        assert_eq!(described::<u32>("4294967296"), "invalid value: integer, expected u32");
        assert_eq!(described::<char>(r#""xy""#), "invalid value: string, expected a character");
        let untagged = "data did not match any variant of untagged enum Untagged";
        assert_eq!(described::<Untagged>(r#""x""#), untagged);
        assert_eq!(
            described::<HashMap<String, u8>>(r#"{"x":[]}"#),
            "invalid type: sequence, expected u8"
        );
    }

    /// Makes the payload the message, or a part of it.
    macro_rules! custom {
        ($name:ident, |$value:ident| $error:expr) => {
            #[derive(Debug)]
            struct $name;

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let $value = String::deserialize(deserializer)?;
                    Err($error)
                }
            }
        };
    }

    custom!(Quoting, |value| D::Error::custom(format!("the card {value} is refused")));
    custom!(Repeating, |value| D::Error::custom(value));
    custom!(Numbering, |value| D::Error::custom(format!("invalid length {value}, expected 3")));
    custom!(Other, |value| D::Error::invalid_type(Unexpected::Other(&value), &"a card"));
    custom!(Naming, |value| D::Error::unknown_variant(&value, &["Card"]));
    custom!(Listing, |value| {
        D::Error::custom(format!("unknown variant `x`, expected {value}"))
    });

    #[test]
    fn texts_of_the_program_are_not_kept() {
        assert_eq!(described::<Quoting>(r#""4111""#), UNRECOGNISED);
        assert_eq!(described::<Repeating>(r#""4111""#), UNRECOGNISED);
        assert_eq!(described::<Numbering>(r#""4111x""#), UNRECOGNISED);
        assert_eq!(described::<Listing>(r#""4111""#), UNRECOGNISED);
        assert_eq!(described::<Other>(r#""4111""#), "invalid type, expected a card");
        assert_eq!(described::<Naming>(r#""4111""#), "unknown variant, expected `Card`");
    }

    #[test]
    fn a_payload_cannot_imitate_serde() {
        for imitation in [
            "missing field `4111`",
            "invalid type: x, expected 4111",
            "unknown variant `x`, expected `4111`",
            "invalid length 3, expected 4111",
            "data did not match any variant of untagged enum 4111",
        ] {
            assert!(known(imitation).is_some(), "{imitation}");
            for escaped in [false, true] {
                let letters = imitation.chars().map(|letter| match escaped {
                    true => format!("\\u{:04x}", u32::from(letter)),
                    false => letter.to_string(),
                });
                let json = format!("\"{}\"", letters.collect::<String>());
                assert_eq!(described::<Repeating>(&json), UNRECOGNISED, "{json}");
            }
        }
        // The value of serde's own text contains the separator.
        let value = "x, expected 4111";
        assert_eq!(
            known(&format!("invalid type: string {value:?}, expected u64")).as_deref(),
            Some("invalid type: string, expected u64")
        );
        let value = "x, expected 4111`, there are no variants";
        assert_eq!(
            known(&format!("unknown variant `{value}`, there are no variants")).as_deref(),
            Some("unknown variant")
        );
    }
}
