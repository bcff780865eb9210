use std::time::Duration;

use thiserror::Error;

use super::{Config, Mode, PurgeConfig};

/// The error of [`Config::from_env`]: one or more environment variables that cannot be parsed.
///
/// Its message names all of them, each with its value and the expected form.
///
/// ```
/// use outbox::Config;
///
/// let error = Config::from_variables(|name| (name == "OUTBOX_RELAY_LOCK_TTL").then(|| "30".to_owned())).unwrap_err();
/// assert!(error.to_string().starts_with(r#"OUTBOX_RELAY_LOCK_TTL is "30", which is not a duration"#));
/// assert_eq!(error.faults().len(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .faults.join("; "))]
pub struct EnvError {
    faults: Vec<String>,
}

impl EnvError {
    /// Returns one message for each variable that cannot be parsed, in the order of [`Config::VARIABLES`].
    pub fn faults(&self) -> &[String] {
        &self.faults
    }
}

impl Config {
    /// The variables that [`from_env`](Self::from_env) reads, and what each of them sets.
    ///
    /// Use it to print a help text, or to check the manifest of a deployment for misspelt names.
    pub const VARIABLES: &'static [(&'static str, &'static str)] = &[
        (
            "OUTBOX_RELAY_ENABLED",
            "`false`: this process only writes (and purges: `OUTBOX_CLEANER_ENABLED`)",
        ),
        ("OUTBOX_RELAY_POLL_INTERVAL", "`poll_interval`"),
        ("OUTBOX_RELAY_BATCH_SIZE", "`batch_size`"),
        ("OUTBOX_RELAY_LOCK_TTL", "`lease`"),
        ("OUTBOX_RELAY_MAX_ATTEMPTS", "`max_attempts`"),
        ("OUTBOX_CLEANER_ENABLED", "`false`: `purge` is `None`, this process does not purge"),
        ("OUTBOX_CLEANER_RETENTION", "`purge.retention`"),
        ("OUTBOX_CLEANER_BATCH_SIZE", "`purge.batch_size`"),
    ];

    /// Makes a configuration from the defaults and these environment variables:
    ///
    /// | variable | option |
    /// |---|---|
    /// | `OUTBOX_RELAY_ENABLED` | `false`: [`mode`](Self::mode) is [`Mode::WriterOnly`], it delivers nothing |
    /// | `OUTBOX_RELAY_POLL_INTERVAL` | [`poll_interval`](Self::poll_interval) |
    /// | `OUTBOX_RELAY_BATCH_SIZE` | [`batch_size`](Self::batch_size) |
    /// | `OUTBOX_RELAY_LOCK_TTL` | [`lease`](Self::lease) |
    /// | `OUTBOX_RELAY_MAX_ATTEMPTS` | [`max_attempts`](Self::max_attempts) |
    /// | `OUTBOX_CLEANER_ENABLED` | `false`: [`purge`](Self::purge) is `None`, this process does not purge |
    /// | `OUTBOX_CLEANER_RETENTION` | [`purge.retention`](PurgeConfig::retention) |
    /// | `OUTBOX_CLEANER_BATCH_SIZE` | [`purge.batch_size`](PurgeConfig::batch_size) |
    ///
    /// A duration is a whole number with a unit: `500ms`, `30s`, `5m`, `1h`, `7d`. A switch is `true` or `false` (also
    /// `1` and `0`, `yes` and `no`, `on` and `off`). A variable that is not set keeps the default; one that is set and
    /// empty is an error.
    ///
    /// Only the form of a value is checked here. [`Builder::start`](super::Builder::start) and [`faults`](Self::faults)
    /// check whether it is permitted.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut config = outbox::Config::from_env()?;
    /// config.table = "orders_outbox".to_owned();
    /// let outbox = outbox::builder(pool).config(config).start().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EnvError`] with every variable that cannot be parsed. Correct the value, or unset the variable.
    pub fn from_env() -> Result<Self, EnvError> {
        Self::from_variables(|name| {
            std::env::var_os(name)?.into_string().ok().or(Some(String::new()))
        })
    }

    /// Makes a configuration from the defaults and variables from any source, such as a file or a map in a test.
    ///
    /// `get` is called with the names of [`VARIABLES`](Self::VARIABLES) and returns the value of each that is set. See
    /// [`from_env`](Self::from_env) for their meaning.
    ///
    /// ```
    /// use outbox::Config;
    /// use std::time::Duration;
    ///
    /// let config = Config::from_variables(|name| match name {
    ///     "OUTBOX_RELAY_LOCK_TTL" => Some("2m".to_owned()),
    ///     _ => None,
    /// })?;
    /// assert_eq!(config.lease, Duration::from_secs(120));
    /// # Ok::<(), outbox::config::EnvError>(())
    /// ```
    ///
    /// # Errors
    /// [`EnvError`] with every variable that cannot be parsed.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvError> {
        let mut config = Self::default();
        let mut reader = Reader { get, faults: Vec::new() };
        if reader.read("OUTBOX_RELAY_ENABLED", SWITCH, switch) == Some(false) {
            config.mode = Mode::WriterOnly;
        }
        reader.set(&mut config.poll_interval, "OUTBOX_RELAY_POLL_INTERVAL", DURATION, duration);
        reader.set(&mut config.batch_size, "OUTBOX_RELAY_BATCH_SIZE", NUMBER, number);
        reader.set(&mut config.lease, "OUTBOX_RELAY_LOCK_TTL", DURATION, duration);
        reader.set(&mut config.max_attempts, "OUTBOX_RELAY_MAX_ATTEMPTS", NUMBER, number);
        let mut purge = PurgeConfig::default();
        let purges = reader.read("OUTBOX_CLEANER_ENABLED", SWITCH, switch).unwrap_or(true);
        reader.set(&mut purge.retention, "OUTBOX_CLEANER_RETENTION", DURATION, duration);
        reader.set(&mut purge.batch_size, "OUTBOX_CLEANER_BATCH_SIZE", NUMBER, number);
        config.purge = purges.then_some(purge);
        if reader.faults.is_empty() { Ok(config) } else { Err(EnvError { faults: reader.faults }) }
    }
}

const DURATION: &str = "a duration like `500ms`, `30s`, `5m`, `1h` or `7d`";
const SWITCH: &str = "`true` or `false`";
const NUMBER: &str = "a whole number";

struct Reader<G> {
    get: G,
    faults: Vec<String>,
}

impl<G: Fn(&str) -> Option<String>> Reader<G> {
    fn read<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = (self.get)(name)?;
        let value = parse(text.trim());
        if value.is_none() {
            self.faults.push(format!("{name} is {text:?}, which is not {expected}"));
        }
        value
    }

    fn set<T>(
        &mut self,
        field: &mut T,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) {
        if let Some(value) = self.read(name, expected, parse) {
            *field = value;
        }
    }
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// Parses a duration in the format of `outbox-macros`, so that durations are written the same way everywhere.
fn duration(text: &str) -> Option<Duration> {
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
