use std::time::{Duration, Instant};

/// How long the poller sleeps: longer and longer while nothing happens, shorter if something is
/// known to be due.
#[derive(Debug)]
pub(super) struct Idle {
    longest: Duration,
    rounds: u32,
}

/// The shortest sleep: what is due a moment later can wait for the next.
const SHORTEST: Duration = Duration::from_millis(50);

impl Idle {
    pub(super) fn new(longest: Duration) -> Self {
        Self { longest, rounds: 0 }
    }

    /// Something has happened.
    pub(super) fn reset(&mut self) {
        self.rounds = 0;
    }

    /// Until when to sleep, if the next event is due in that time. `random` is from 0 to below 1.
    pub(super) fn until(&mut self, now: Instant, due_in: Option<Duration>, random: f64) -> Instant {
        let sleep = sleep(self.longest, self.rounds, due_in, random);
        self.rounds = self.rounds.saturating_add(1);
        now + sleep
    }
}

fn sleep(longest: Duration, rounds: u32, due_in: Option<Duration>, random: f64) -> Duration {
    let shortest = SHORTEST.min(longest);
    let doubled = shortest.saturating_mul(1 << rounds.min(16)).min(longest);
    // Nodes that were started together should not poll together.
    let spread = doubled.mul_f64(0.8 + 0.2 * random.clamp(0.0, 1.0));
    due_in.map_or(spread, |due| due.max(shortest).min(spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(5);

    #[test]
    fn backs_off_to_the_interval_with_jitter() {
        let sleeps: Vec<u128> =
            (0..9).map(|rounds| sleep(LONGEST, rounds, None, 1.0).as_millis()).collect();
        assert_eq!(sleeps, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(sleep(LONGEST, 20, None, 0.0), Duration::from_secs(4));
        assert_eq!(sleep(LONGEST, u32::MAX, None, 1.0), LONGEST);
    }

    #[test]
    fn wakes_for_what_is_due_but_not_for_every_millisecond() {
        let due = |millis| Some(Duration::from_millis(millis));
        assert_eq!(sleep(LONGEST, 9, due(700), 1.0), Duration::from_millis(700));
        assert_eq!(sleep(LONGEST, 9, due(1), 1.0), Duration::from_millis(50));
        assert_eq!(sleep(LONGEST, 9, due(60_000), 1.0), LONGEST);
    }

    #[test]
    fn an_interval_below_the_shortest_sleep_is_kept() {
        let interval = Duration::from_millis(5);
        assert_eq!(sleep(interval, 3, None, 1.0), interval);
        assert_eq!(sleep(interval, 3, Some(Duration::ZERO), 1.0), interval);
    }
}
