use crate::ordering::OnDead;

/// The conditions that protect the table from late and repeated statements. The product has all of them; tests
/// switch off one at a time, to show that it is needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guards {
    /// Whether events are ordered, and what a dead one does to those after it.
    pub(super) order: Option<OnDead>,
    /// An ordered claim of an aggregate begins with its head.
    pub(super) head: bool,
    /// An ordered claim leaves an aggregate alone while one of its rows is in flight.
    pub(super) one_claim: bool,
    /// An ordered claim takes over all rows of a lost owner, also those that it does not deliver.
    pub(super) whole_takeover: bool,
    /// A settlement applies only with the row's token.
    pub(super) token: bool,
    /// A settlement applies only to a row of its owner.
    pub(super) owner: bool,
    /// A settlement does not change a row that is DONE or DEAD.
    pub(super) terminal: bool,
    /// A renewal applies only with the row's token and owner.
    pub(super) renewal: bool,
    /// A row with a permit is inserted claimed.
    pub(super) inserted_claimed: bool,
    /// A permit is redeemed after the commit.
    pub(super) redeemed_after_commit: bool,
    /// A settlement writes the number of failed attempts and does not increment it.
    pub(super) absolute_attempts: bool,
    /// A replay raises the token.
    pub(super) replay_token: bool,
    /// A claim skips rows that are not due.
    pub(super) due: bool,
}

impl Guards {
    pub(super) const ALL: Self = Self {
        order: None,
        head: true,
        one_claim: true,
        whole_takeover: true,
        token: true,
        owner: true,
        terminal: true,
        renewal: true,
        inserted_claimed: true,
        redeemed_after_commit: true,
        absolute_attempts: true,
        replay_token: true,
        due: true,
    };

    /// All guards of an ordered outbox.
    pub(super) const fn ordered(on_dead: OnDead) -> Self {
        Self { order: Some(on_dead), ..Self::ALL }
    }
}
