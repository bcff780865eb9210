use std::collections::BTreeSet;

use serde_json::Value;

/// Returns the differences between two JSON values, one for each path.
pub(super) fn json_differences(path: &str, expected: &Value, found: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    compare(path, Some(expected), Some(found), &mut differences);
    differences
}

fn compare(path: &str, expected: Option<&Value>, found: Option<&Value>, out: &mut Vec<String>) {
    match (expected, found) {
        (Some(Value::Object(expected)), Some(Value::Object(found))) => {
            let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
            for key in keys {
                compare(&format!("{path}.{key}"), expected.get(key), found.get(key), out);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(found))) => {
            for index in 0..expected.len().max(found.len()) {
                compare(&format!("{path}[{index}]"), expected.get(index), found.get(index), out);
            }
        }
        (expected, found) if expected == found => {}
        (expected, found) => {
            let text = |value: Option<&Value>| {
                value.map_or("nothing".to_owned(), |value| truncated(&value.to_string()))
            };
            out.push(format!("{path}: expected {}, found {}", text(expected), text(found)));
        }
    }
}

/// Truncates a text to a length at which it can still be recognised.
pub(super) fn truncated(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let cut: String = text.chars().take(MAX_CHARS).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_path_that_differs_is_reported() {
        let expected = json!({"a": 1, "b": [1, {"c": "x"}], "same": null, "gone": true});
        let found = json!({"a": 2, "b": [1, {"c": "y"}, 3], "same": null, "new": {}});
        assert_eq!(
            json_differences("payload", &expected, &found),
            [
                "payload.a: expected 1, found 2",
                "payload.b[1].c: expected \"x\", found \"y\"",
                "payload.b[2]: expected nothing, found 3",
                "payload.gone: expected true, found nothing",
                "payload.new: expected nothing, found {}",
            ]
        );
        assert!(json_differences("payload", &found, &found).is_empty());
        assert_eq!(json_differences("it", &json!({}), &json!([])), ["it: expected {}, found []"]);
    }

    #[test]
    fn long_texts_are_truncated() {
        assert_eq!(truncated("äöü"), "äöü");
        assert_eq!(truncated(&"ü".repeat(301)), "ü".repeat(300) + "…");
    }
}
