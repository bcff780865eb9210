use thiserror::Error;

/// One invalid option of a [`Config`](crate::Config).
///
/// [`Config::faults`](crate::Config::faults) returns them, and [`Builder::start`](crate::Builder::start) reports them
/// as [`StartFault::Config`](crate::StartFault::Config). The message names the option, what is expected and the value:
///
/// ```
/// let mut config = outbox::Config::default();
/// config.workers = 0;
/// let fault = &config.faults()[0];
/// assert_eq!(fault.to_string(), "`workers` must be at least 1, but is 0");
/// assert_eq!((fault.option, fault.value.as_str(), fault.expected), ("workers", "0", "at least 1"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{option}` must be {expected}, but is {value}")]
#[non_exhaustive]
pub struct ConfigFault {
    /// The option, as a path of fields of [`Config`](crate::Config): `lease`, or `purge.batch_size`.
    pub option: &'static str,
    /// The value that the option was set to, as text.
    pub value: String,
    /// The values that the option may have, worded to follow "must be".
    pub expected: &'static str,
}
