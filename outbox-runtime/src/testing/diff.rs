use std::collections::BTreeSet;

use serde_json::Value;

/// How two JSON values differ, path by path.
pub(super) fn of_json(path: &str, expected: &Value, found: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    cursor(path, Some(expected), Some(found), &mut differences);
    differences
}

fn cursor(path: &str, expected: Option<&Value>, found: Option<&Value>, out: &mut Vec<String>) {
    match (expected, found) {
        (Some(Value::Object(expected)), Some(Value::Object(found))) => {
            let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
            for key in keys {
                cursor(&format!("{path}.{key}"), expected.get(key), found.get(key), out);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(found))) => {
            for index in 0..expected.len().max(found.len()) {
                cursor(&format!("{path}[{index}]"), expected.get(index), found.get(index), out);
            }
        }
        (expected, found) if expected == found => {}
        (expected, found) => {
            let text = |value: Option<&Value>| {
                value.map_or("nothing".to_owned(), |value| shortened(&value.to_string()))
            };
            out.push(format!("{path}: expected {}, found {}", text(expected), text(found)));
        }
    }
}

/// Enough of a text to recognise it.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 300;
    let cut: String = text.chars().take(MOST).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_path_that_differs_is_named() {
        let expected = json!({"a": 1, "b": [1, {"c": "x"}], "same": null, "gone": true});
        let found = json!({"a": 2, "b": [1, {"c": "y"}, 3], "same": null, "new": {}});
        assert_eq!(
            of_json("payload", &expected, &found),
            [
                "payload.a: expected 1, found 2",
                "payload.b[1].c: expected \"x\", found \"y\"",
                "payload.b[2]: expected nothing, found 3",
                "payload.gone: expected true, found nothing",
                "payload.new: expected nothing, found {}",
            ]
        );
        assert!(of_json("payload", &found, &found).is_empty());
        assert_eq!(of_json("it", &json!({}), &json!([])), ["it: expected {}, found []"]);
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(shortened("äöü"), "äöü");
        assert_eq!(shortened(&"ü".repeat(301)), "ü".repeat(300) + "…");
    }
}
