/// What stands between a fault and the table. All are on in the product; each can be taken away, to see
/// that it is missed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guards {
    /// A mark names the token of its claim.
    pub(super) token: bool,
    /// A mark names its owner.
    pub(super) owner: bool,
    /// A mark changes nothing that is DONE or DEAD.
    pub(super) terminal: bool,
    /// A renewal names token and owner.
    pub(super) renewal: bool,
    /// A row with a seat is inserted claimed.
    pub(super) born_claimed: bool,
    /// A seat is taken after the commit.
    pub(super) after_commit: bool,
    /// A mark writes the number of attempts, and does not count.
    pub(super) attempts_by_value: bool,
    /// A replay raises the token.
    pub(super) replay_token: bool,
    /// A claim leaves alone what is not due.
    pub(super) due: bool,
}

impl Guards {
    pub(super) const ALL: Self = Self {
        token: true,
        owner: true,
        terminal: true,
        renewal: true,
        born_claimed: true,
        after_commit: true,
        attempts_by_value: true,
        replay_token: true,
        due: true,
    };
}
