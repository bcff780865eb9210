use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The event type of the program `ledger` with a plain listener.
pub const PLAIN: &str = "A";
/// The event type with a transactional listener, which inserts a row into `effect`.
pub const IN_TX: &str = "B";

/// The subscription of the events with a plain listener, in processes with the option `fan_out`.
pub const BILLING: &str = "billing";
/// The subscription of all events in these processes.
pub const AUDIT: &str = "audit";

/// A call of a listener, as the program `ledger` writes it to its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The event's id.
    pub event_id: String,
    /// The subscription; empty for the unnamed listener.
    pub subscription: String,
    /// The process that made the call.
    pub node: u64,
    /// The time of the call, by a clock that all processes share.
    pub at: Duration,
    /// The number of failed attempts before, according to the row.
    pub attempts: u32,
    /// Whether the call fails.
    pub fails: bool,
}

impl fmt::Display for LedgerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event_id, subscription, node, at, attempts, fails } = self;
        write!(f, "{event_id} {subscription} {node} {} {attempts} {fails}", at.as_millis())
    }
}

impl FromStr for LedgerEntry {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let invalid = || format!("not a line of a ledger: {line:?}");
        let words: Vec<&str> = line.split(' ').collect();
        let &[event_id, subscription, node, at, attempts, fails] = words.as_slice() else {
            return Err(invalid());
        };
        Ok(Self {
            event_id: event_id.to_owned(),
            subscription: subscription.to_owned(),
            node: node.parse().map_err(|_| invalid())?,
            at: Duration::from_millis(at.parse().map_err(|_| invalid())?),
            attempts: attempts.parse().map_err(|_| invalid())?,
            fails: fails.parse().map_err(|_| invalid())?,
        })
    }
}

/// Returns the uptime of this machine, which is the same for all processes, whatever their clocks show.
pub fn uptime() -> Duration {
    let uptime = std::fs::read_to_string("/proc/uptime").expect("a Linux system");
    let seconds = uptime.split(' ').next().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(seconds.expect("a number"))
}
