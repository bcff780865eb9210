use std::time::{Duration, Instant, SystemTime};

/// From where on claims look.
///
/// A row that nobody here handles stays at the head of the index for ever, and so do the remains of
/// rows behind an old snapshot. Walking them on every claim is what makes a claim slow, so a claim
/// begins where the last one ended. Rows that appear below (a transaction that was open for long) are
/// found by a sweep from the beginning.
#[derive(Debug, Default)]
pub(super) struct Floors {
    pub(super) fresh: Option<SystemTime>,
    pub(super) retried: Option<SystemTime>,
    /// The database's clock, and when we read it.
    clock: Option<(SystemTime, Instant)>,
}

/// How far below the present a floor stays: longer than a commit takes.
const MARGIN: Duration = Duration::from_secs(2);

impl Floors {
    /// The database's clock was read.
    pub(super) fn read(&mut self, now: SystemTime) {
        self.clock = Some((now, Instant::now()));
    }

    /// Claims go from the beginning again.
    pub(super) fn drop(&mut self) {
        self.fresh = None;
        self.retried = None;
    }

    /// A claim asked at `anchor` came to these ends, or found less than it asked for.
    pub(super) fn raise(
        &mut self,
        fresh: Option<SystemTime>,
        retried: Option<SystemTime>,
        anchor: Instant,
        skip_recent: Duration,
    ) {
        let present = self.clock.and_then(|(now, read)| {
            let margin = MARGIN.checked_add(skip_recent)?;
            now.checked_add(anchor.saturating_duration_since(read))?.checked_sub(margin)
        });
        self.fresh = fresh.or(present);
        self.retried = retried.or(present);
    }
}
