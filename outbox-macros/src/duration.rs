//! `"200ms"`, `"30s"`, `"5m"`, `"1h"`, `"7d"`.

use std::time::Duration;

/// A whole number with a unit, if the text is one.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let in_seconds = |unit: u64| number.checked_mul(unit).map(Duration::from_secs);
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => in_seconds(1),
        "m" => in_seconds(60),
        "h" => in_seconds(60 * 60),
        "d" => in_seconds(24 * 60 * 60),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_unit() {
        assert_eq!(parse("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(parse("30s"), Some(Duration::from_secs(30)));
        assert_eq!(parse("5m"), Some(Duration::from_secs(300)));
        assert_eq!(parse("1h"), Some(Duration::from_secs(3_600)));
        assert_eq!(parse("7d"), Some(Duration::from_secs(604_800)));
    }

    #[test]
    fn refuses_everything_else() {
        for text in ["", "5", "s", "-1s", "1.5s", "1 s", "1w", "99999999999999999999s", "1s2"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&format!("{}d", u64::MAX)), None);
    }
}
