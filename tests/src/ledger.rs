use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The events of the program `ledger`: those of a plain listener, and those of one that works in the
/// transaction that ends them and leaves a row in `effect`.
pub const PLAIN: &str = "A";
/// See [`PLAIN`].
pub const IN_TX: &str = "B";

/// A call of a listener, as the program `ledger` notes it in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// The event's id.
    pub event_id: String,
    /// The process that was called.
    pub node: u64,
    /// When, by a clock that all processes share.
    pub at: Duration,
    /// How often it had failed before, as far as the row knew.
    pub attempts: u32,
    /// Whether the call fails.
    pub fails: bool,
}

impl fmt::Display for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event_id, node, at, attempts, fails } = self;
        write!(f, "{event_id} {node} {} {attempts} {fails}", at.as_millis())
    }
}

impl FromStr for Noted {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("no line of a ledger: {line:?}");
        let words: Vec<&str> = line.split(' ').collect();
        let &[event_id, node, at, attempts, fails] = words.as_slice() else { return Err(wrong()) };
        Ok(Self {
            event_id: event_id.to_owned(),
            node: node.parse().map_err(|_| wrong())?,
            at: Duration::from_millis(at.parse().map_err(|_| wrong())?),
            attempts: attempts.parse().map_err(|_| wrong())?,
            fails: fails.parse().map_err(|_| wrong())?,
        })
    }
}

/// How long this machine has been up: the same for all processes, whatever their clocks say.
pub fn uptime() -> Duration {
    let uptime = std::fs::read_to_string("/proc/uptime").expect("a Linux system");
    let seconds = uptime.split(' ').next().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(seconds.expect("a number"))
}
