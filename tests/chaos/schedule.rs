use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Something that goes wrong. Processes are named by their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process is killed; if it must hold claims, that is waited for.
    Kill { place: usize, holding: bool },
    /// A process is stopped for less than its lease.
    ShortPause { place: usize },
    /// A process is stopped for longer than its lease.
    LongPause { place: usize },
    /// The server is killed and started again.
    Restart,
    /// The server is away for longer than a lease.
    Outage,
    /// All sessions are ended by the server.
    Terminate,
    /// The network is slow for a while.
    Delay(Duration),
    /// All connections are closed.
    Cut,
    /// All connections stay open, and nothing passes.
    HalfOpen,
    /// The clock of a process is put ahead or behind.
    ClockStep { place: usize, seconds: i64 },
    /// The files of a process cannot grow for a while.
    FullDisk { place: usize },
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

    /// Whether it uses up time of the leases. Two of these at once could use up all of it, and then an
    /// event may be delivered twice.
    pub(crate) fn takes_time(self) -> bool {
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
    places: usize,
    own_clocks: Vec<usize>,
    has_server: bool,
}

impl Schedule {
    /// `own_clocks` are the places of processes whose clocks can be stepped.
    pub(crate) fn new(seed: u64, places: usize, own_clocks: Vec<usize>, has_server: bool) -> Self {
        Self { random: StdRng::seed_from_u64(seed), places, own_clocks, has_server }
    }

    /// The next fault, and how long to wait before it.
    pub(crate) fn next(&mut self) -> (Duration, Fault) {
        let wait = Duration::from_millis(self.random.random_range(100..500));
        (wait, self.fault())
    }

    fn fault(&mut self) -> Fault {
        let place = self.random.random_range(0..self.places);
        match self.random.random_range(0..100) {
            0..50 => Fault::Kill { place, holding: self.random.random_bool(0.8) },
            50..56 => Fault::ShortPause { place },
            56..62 => Fault::LongPause { place },
            62..74 if !self.has_server => Fault::FullDisk { place },
            _ if !self.has_server => Fault::Kill { place, holding: true },
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
                Fault::ClockStep { place: self.own_clocks[clock], seconds: sign * seconds }
            }
        }
    }
}
