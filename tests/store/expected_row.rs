use outbox::event::Status;
use outbox_runtime::event::Verdict;

/// The state of a row in the model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    pub(crate) event: usize,
    /// The column `subscription`.
    pub(crate) subscription: &'static str,
    pub(crate) status: Status,
    pub(crate) attempts: u32,
    pub(crate) due: u64,
    pub(crate) token: i64,
    pub(crate) owner: Option<&'static str>,
    pub(crate) takeovers: u32,
    pub(crate) ended: u64,
}

pub(crate) fn owns(row: &Expected, token: i64, owner: &str) -> bool {
    row.token == token && row.owner == Some(owner) && !row.status.is_terminal()
}

pub(crate) fn apply(row: &mut Expected, result: &Verdict, now: u64) {
    row.owner = None;
    let before = row.takeovers;
    row.takeovers = match result {
        Verdict::Done | Verdict::Retry { .. } | Verdict::Dead { .. } => 0,
        // Its owner was not lost this time.
        Verdict::Deferred { .. } | Verdict::Cancelled => match row.takeovers {
            0 => 0,
            begun => (begun - 1).max(1),
        },
        Verdict::Postponed { .. } | Verdict::Released => row.takeovers,
    };
    assert_eq!(row.takeovers, result.kind().takeovers_after(before), "{result:?} after {before}");
    match result {
        Verdict::Done => {
            row.status = Status::Done;
            row.ended = now;
        }
        Verdict::Retry { attempts, delay, .. } => {
            row.status = Status::Retry;
            row.attempts = *attempts;
            row.due = now + delay.as_secs();
        }
        Verdict::Dead { attempts, .. } => {
            row.status = Status::Dead;
            row.attempts = *attempts;
            row.ended = now;
        }
        Verdict::Deferred { delay } | Verdict::Postponed { delay } => {
            row.status = Status::Retry;
            row.due = now + delay.as_secs();
        }
        Verdict::Released | Verdict::Cancelled => row.due = now,
    }
}
