//! Parsing and formatting of times and durations.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: `2026-03-01T12:00:00Z`, or `2h` for two hours ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeArg {
    At(SystemTime),
    Ago(Duration),
}

impl TimeArg {
    /// Parses an argument; for clap.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(duration) = humantime::parse_duration(text) {
            return Ok(Self::Ago(duration));
        }
        humantime::parse_rfc3339_weak(text).map(Self::At).map_err(|_| {
            "expected a duration such as `2h` (ago), or a UTC time such as `2026-03-01T12:00:00Z`"
                .to_owned()
        })
    }

    /// Returns the point in time; `now` is the time of the database's clock.
    pub(crate) fn resolve(self, now: SystemTime) -> SystemTime {
        match self {
            Self::At(time) => time,
            Self::Ago(duration) => now.checked_sub(duration).unwrap_or(UNIX_EPOCH),
        }
    }
}

/// Parses a duration; for clap.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "expected a duration such as `90s`, `2h` or `7d`".to_owned())
}

/// Formats a time as RFC 3339 with microseconds, in UTC. Times before 1970 and after 9999 have no such
/// form.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let end_of_9999 = Duration::from_secs(253_402_300_799);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) if since <= end_of_9999 => humantime::format_rfc3339_micros(time).to_string(),
        Ok(_) => "after 9999".to_owned(),
        Err(_) => "before 1970".to_owned(),
    }
}

/// Formats a duration in its two largest units: `3m 12s`.
pub(crate) fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
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

/// Formats a time relative to `now`: `5s ago`, or `in 5s`.
pub(crate) fn relative_time(now: SystemTime, time: SystemTime) -> String {
    match now.duration_since(time) {
        Ok(ago) => format!("{} ago", format_duration(ago)),
        Err(ahead) => format!("in {}", format_duration(ahead.duration())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_arguments_are_parsed() {
        let two_hours = Duration::from_secs(7_200);
        assert_eq!(TimeArg::parse("2h"), Ok(TimeArg::Ago(two_hours)));
        let Ok(TimeArg::At(time)) = TimeArg::parse("2026-03-01T12:00:00Z") else {
            panic!("not a time")
        };
        assert_eq!(rfc3339(time), "2026-03-01T12:00:00.000000Z");
        assert!(TimeArg::parse("yesterday").is_err());
        assert_eq!(TimeArg::Ago(two_hours).resolve(time), time - two_hours);
    }

    #[test]
    fn durations_have_two_units() {
        let shown = [0, 59, 60, 3_599, 7_260, 90_000]
            .map(|seconds| format_duration(Duration::from_secs(seconds)));
        assert_eq!(shown, ["0s", "59s", "1m", "59m 59s", "2h 1m", "1d 1h"]);
    }

    #[test]
    fn times_out_of_range_are_named() {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(253_402_300_800)), "after 9999");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "before 1970");
    }
}
