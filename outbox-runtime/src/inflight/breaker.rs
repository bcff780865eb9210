//! The circuit breaker of one listener, as a pure state machine.
//!
//! ```text
//!   Closed ── unreachable ──▶ Open ── the pause is over ──▶ half-open ── a call starts ──▶ Probing
//!     ▲                        ▲                             │  ▲                            │
//!     │                        └──── unreachable, longer ────┼──┼────────────────────────────┤
//!     └───────────────────────────── any other verdict ──────┼──┼────────────────────────────┤
//!                                                            └──┴── the probe has no verdict ┘
//! ```
//! Half-open is not a state of its own: it is `Open` whose pause is over.

use std::time::{Duration, Instant};

/// Whether a listener can reach what it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Breaker {
    #[default]
    Closed,
    /// The dependency was unreachable `failures` times in a row. Until the pause is over no call starts; after
    /// it the breaker is half-open, and the next call is the probe.
    Open { until: Instant, failures: u32 },
    /// The call of this row is the probe. No other call may start, and the end of no other call matters.
    Probing { probe: i64, failures: u32 },
}

/// How a breaker has just changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerChange {
    Opened { failures: u32 },
    Closed,
    Unchanged,
}

impl Breaker {
    /// Returns whether events have to wait: until the pause is over, or for the verdict of the probe.
    pub(super) fn is_halted(self, now: Instant) -> bool {
        match self {
            Self::Closed => false,
            Self::Open { until, .. } => until > now,
            Self::Probing { .. } => true,
        }
    }

    /// Returns how much of the pause is left, if it is not over.
    pub(super) fn paused_for(self, now: Instant) -> Option<Duration> {
        match self {
            Self::Open { until, .. } if until > now => Some(until.saturating_duration_since(now)),
            Self::Closed | Self::Open { .. } | Self::Probing { .. } => None,
        }
    }

    /// A call starts. If the breaker is half-open, it is the probe.
    pub(super) fn started(&mut self, sequence: i64) {
        if let Self::Open { failures, .. } = *self {
            *self = Self::Probing { probe: sequence, failures };
        }
    }

    /// A call reached the dependency. If it was the probe, the breaker closes.
    pub(super) fn reached(&mut self, sequence: i64) -> BreakerChange {
        if !self.is_probe(sequence) {
            return BreakerChange::Unchanged;
        }
        *self = Self::Closed;
        BreakerChange::Closed
    }

    /// A call could not reach the dependency. Returns the change, and how long the event has to wait. `pause`
    /// is the pause after a number of failures in a row.
    pub(super) fn unreachable(
        &mut self,
        sequence: i64,
        now: Instant,
        pause: impl Fn(u32) -> Duration,
    ) -> (BreakerChange, Duration) {
        let failures = match *self {
            // This call had started before the breaker opened.
            Self::Open { until, .. } => {
                return (BreakerChange::Unchanged, until.saturating_duration_since(now));
            }
            Self::Probing { failures, .. } if !self.is_probe(sequence) => {
                return (BreakerChange::Unchanged, pause(failures));
            }
            Self::Probing { failures, .. } => failures.saturating_add(1),
            Self::Closed => 1,
        };
        let delay = pause(failures);
        *self = Self::Open { until: now + delay, failures };
        (BreakerChange::Opened { failures }, delay)
    }

    /// A row is no longer in flight. If it was the probe, it had no verdict: the next call is the probe.
    pub(super) fn row_gone(&mut self, sequence: i64, now: Instant) {
        if let Self::Probing { failures, .. } = *self
            && self.is_probe(sequence)
        {
            *self = Self::Open { until: now, failures };
        }
    }

    fn is_probe(self, sequence: i64) -> bool {
        matches!(self, Self::Probing { probe, .. } if probe == sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pause(failures: u32) -> Duration {
        SECOND * failures
    }

    #[test]
    fn it_opens_probes_and_closes() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.started(1);
        assert_eq!(breaker, Breaker::Closed, "without failures no call is a probe");
        let opened = breaker.unreachable(1, now, pause);
        assert_eq!(opened, (BreakerChange::Opened { failures: 1 }, SECOND));
        assert_eq!((breaker.is_halted(now), breaker.paused_for(now)), (true, Some(SECOND)));
        let later = now + SECOND;
        assert_eq!((breaker.is_halted(later), breaker.paused_for(later)), (false, None));
        breaker.started(2);
        assert!(breaker.is_halted(later), "one probe at a time");
        assert_eq!(breaker.reached(1), BreakerChange::Unchanged, "only the probe counts");
        assert_eq!(breaker.reached(2), BreakerChange::Closed);
        assert_eq!(breaker, Breaker::Closed);
    }

    #[test]
    fn a_failed_probe_pauses_for_longer() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.unreachable(1, now, pause);
        breaker.started(2);
        let opened = breaker.unreachable(2, now, pause);
        assert_eq!(opened, (BreakerChange::Opened { failures: 2 }, SECOND * 2));
    }

    #[test]
    fn calls_that_had_started_before_do_not_lengthen_the_pause() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.unreachable(1, now, pause);
        let second = breaker.unreachable(2, now + SECOND / 2, pause);
        assert_eq!(second, (BreakerChange::Unchanged, SECOND / 2));
        breaker.started(3);
        assert_eq!(breaker.unreachable(2, now, pause), (BreakerChange::Unchanged, SECOND));
        assert_eq!(breaker, Breaker::Probing { probe: 3, failures: 1 });
    }

    #[test]
    fn a_probe_without_verdict_leaves_it_half_open() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.unreachable(1, now, pause);
        breaker.started(2);
        breaker.row_gone(1, now);
        assert!(breaker.is_halted(now), "another row does not matter");
        breaker.row_gone(2, now);
        assert!(!breaker.is_halted(now));
        breaker.started(4);
        assert_eq!(breaker, Breaker::Probing { probe: 4, failures: 1 });
    }
}
