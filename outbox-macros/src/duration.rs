//! Durations such as `"200ms"`, `"30s"`, `"5m"`, `"1h"` and `"7d"`.

use std::time::Duration;

/// Parses a whole number with a unit; `None` for any other text.
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
    fn parses_every_unit() {
        assert_eq!(parse("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(parse("30s"), Some(Duration::from_secs(30)));
        assert_eq!(parse("5m"), Some(Duration::from_secs(300)));
        assert_eq!(parse("1h"), Some(Duration::from_secs(3_600)));
        assert_eq!(parse("7d"), Some(Duration::from_secs(604_800)));
    }

    #[test]
    fn rejects_other_texts() {
        for text in ["", "5", "s", "-1s", "1.5s", "1 s", "1w", "99999999999999999999s", "1s2"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&format!("{}d", u64::MAX)), None);
    }

    /// Returns every text of at most `longest` letters.
    fn texts(alphabet: &str, longest: usize) -> Vec<String> {
        let mut texts = vec![String::new()];
        let mut last = texts.clone();
        for _ in 0..longest {
            let longer = |text: &String| {
                alphabet.chars().map(|letter| format!("{text}{letter}")).collect::<Vec<_>>()
            };
            last = last.iter().flat_map(longer).collect();
            texts.extend_from_slice(&last);
        }
        texts
    }

    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

    #[test]
    fn accepts_only_digits_and_a_unit() {
        for text in texts("019smhd -+.ü\u{661}\0", 4) {
            let unit = text.trim_start_matches(['0', '1', '9']);
            let count = text[..text.len() - unit.len()].parse::<u64>();
            let millis = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
            let expected = count.ok().zip(millis).map(|(count, millis)| count * millis);
            assert_eq!(parse(&text), expected.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn every_unit_is_exact_up_to_its_maximum() {
        for (unit, millis) in UNITS {
            let most = if millis == 1 { u64::MAX } else { u64::MAX / (millis / 1_000) };
            let counts = (0..64).flat_map(|bit| {
                let power = 1_u64 << bit;
                [power - 1, power, power | 1]
            });
            for count in counts.chain([most - 1, most, most.saturating_add(1), u64::MAX]) {
                let found = parse(&format!("{count}{unit}")).map(|found| found.as_millis());
                let expected = u128::from(count) * u128::from(millis);
                assert_eq!(found, (count <= most).then_some(expected), "{count}{unit}");
            }
        }
    }
}
