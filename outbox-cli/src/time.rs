//! Times and spans, as they are read and written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment: `2026-03-01T12:00:00Z`, or `2h` for two hours ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    At(SystemTime),
    Ago(Duration),
}

impl When {
    /// For clap.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(span) = humantime::parse_duration(text) {
            return Ok(Self::Ago(span));
        }
        humantime::parse_rfc3339_weak(text).map(Self::At).map_err(|_| {
            "write a span such as `2h` (ago), or a UTC time such as `2026-03-01T12:00:00Z`"
                .to_owned()
        })
    }

    /// The moment, by the database's clock.
    pub(crate) fn resolve(self, now: SystemTime) -> SystemTime {
        match self {
            Self::At(time) => time,
            Self::Ago(span) => now.checked_sub(span).unwrap_or(UNIX_EPOCH),
        }
    }
}

/// For clap.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "write a span such as `90s`, `2h` or `7d`".to_owned())
}

/// RFC 3339 with microseconds, in UTC. Before 1970 and after 9999 there is no such text.
pub(crate) fn exact(time: SystemTime) -> String {
    let years = Duration::from_secs(253_402_300_799);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) if since <= years => humantime::format_rfc3339_micros(time).to_string(),
        Ok(_) => "after 9999".to_owned(),
        Err(_) => "before 1970".to_owned(),
    }
}

/// A span in its two largest units: `3m 12s`.
pub(crate) fn rough(span: Duration) -> String {
    let seconds = span.as_secs();
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let largest = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let (count, unit) = parts[largest];
    match parts.get(largest + 1) {
        Some((next @ 1.., below)) => format!("{count}{unit} {next}{below}"),
        _ => format!("{count}{unit}"),
    }
}

/// How long ago, or in how long.
pub(crate) fn from(now: SystemTime, time: SystemTime) -> String {
    match now.duration_since(time) {
        Ok(ago) => format!("{} ago", rough(ago)),
        Err(ahead) => format!("in {}", rough(ahead.duration())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read() {
        let two_hours = Duration::from_secs(7_200);
        assert_eq!(When::parse("2h"), Ok(When::Ago(two_hours)));
        let Ok(When::At(time)) = When::parse("2026-03-01T12:00:00Z") else { panic!("a time") };
        assert_eq!(exact(time), "2026-03-01T12:00:00.000000Z");
        assert!(When::parse("yesterday").is_err());
        assert_eq!(When::Ago(two_hours).resolve(time), time - two_hours);
    }

    #[test]
    fn spans_have_two_units() {
        let shown =
            [0, 59, 60, 3_599, 7_260, 90_000].map(|seconds| rough(Duration::from_secs(seconds)));
        assert_eq!(shown, ["0s", "59s", "1m", "59m 59s", "2h 1m", "1d 1h"]);
    }

    #[test]
    fn no_time_is_too_late() {
        assert_eq!(exact(UNIX_EPOCH + Duration::from_secs(253_402_300_800)), "after 9999");
        assert_eq!(exact(UNIX_EPOCH - Duration::from_secs(1)), "before 1970");
    }
}
