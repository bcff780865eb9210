use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// A fault. Processes are identified by their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process is killed, if requested only once it has claimed events.
    Kill { index: usize, with_claims: bool },
    /// A process is stopped for less than its lease.
    ShortPause { index: usize },
    /// A process is stopped for longer than its lease.
    LongPause { index: usize },
    /// The server is killed and started again.
    Restart,
    /// The server is stopped for longer than a lease.
    Outage,
    /// The server terminates all sessions.
    Terminate,
    /// The network is slow for a while.
    Delay(Duration),
    /// All connections are closed.
    Cut,
    /// All connections stay open, and transmit nothing.
    HalfOpen,
    /// The clock of a process is set ahead or back.
    ClockStep { index: usize, seconds: i64 },
    /// The files of a process cannot grow for a while.
    FullDisk { index: usize },
}

impl Fault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill",
            Self::ShortPause { .. } => "short pause",
            Self::LongPause { .. } => "long pause",
            Self::Restart => "server restart",
            Self::Outage => "server outage",
            Self::Terminate => "terminated sessions",
            Self::Delay(_) => "delay",
            Self::Cut => "cut",
            Self::HalfOpen => "half-open",
            Self::ClockStep { .. } => "clock step",
            Self::FullDisk { .. } => "full disk",
        }
    }

    /// Returns whether the fault uses up lease time. Two of these at the same time could use up all of it, and
    /// then an event may be delivered twice.
    pub(crate) fn uses_lease_time(self) -> bool {
        matches!(
            self,
            Self::ShortPause { .. }
                | Self::Restart
                | Self::Outage
                | Self::Delay(_)
                | Self::HalfOpen
                | Self::FullDisk { .. }
        )
    }
}

/// An endless series of faults, the same for the same seed.
pub(crate) struct Schedule {
    random: StdRng,
    processes: usize,
    own_clocks: Vec<usize>,
    has_server: bool,
}

impl Schedule {
    /// `own_clocks` are the indexes of the processes whose clocks can be stepped.
    pub(crate) fn new(
        seed: u64,
        processes: usize,
        own_clocks: Vec<usize>,
        has_server: bool,
    ) -> Self {
        Self { random: StdRng::seed_from_u64(seed), processes, own_clocks, has_server }
    }

    /// Returns the next fault, and the time to wait before it.
    pub(crate) fn next(&mut self) -> (Duration, Fault) {
        let wait = Duration::from_millis(self.random.random_range(100..500));
        (wait, self.fault())
    }

    fn fault(&mut self) -> Fault {
        let index = self.random.random_range(0..self.processes);
        match self.random.random_range(0..100) {
            0..50 => Fault::Kill { index, with_claims: self.random.random_bool(0.8) },
            50..56 => Fault::ShortPause { index },
            56..62 => Fault::LongPause { index },
            62..74 if !self.has_server => Fault::FullDisk { index },
            _ if !self.has_server => Fault::Kill { index, with_claims: true },
            62..66 => Fault::Restart,
            66..68 => Fault::Outage,
            68..74 => Fault::Terminate,
            74..81 => Fault::Delay(Duration::from_millis(self.random.random_range(5..60))),
            81..88 => Fault::Cut,
            88..93 => Fault::HalfOpen,
            _ => {
                let clock = self.random.random_range(0..self.own_clocks.len());
                let seconds = self.random.random_range(3_600..200_000);
                let sign = if self.random.random_bool(0.5) { 1 } else { -1 };
                Fault::ClockStep { index: self.own_clocks[clock], seconds: sign * seconds }
            }
        }
    }
}
