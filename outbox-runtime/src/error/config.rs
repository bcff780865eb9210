use thiserror::Error;

/// One invalid option of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{option}` must be {expected}, but is {value}")]
#[non_exhaustive]
pub struct ConfigFault {
    /// The option, as a path of fields: `lease`.
    pub option: &'static str,
    /// The value that it was set to.
    pub value: String,
    /// The values that it may have, worded to follow "must be".
    pub expected: &'static str,
}
