//! What the database may still do for a client that has gone.

use super::ledger::Ledger;
use super::table::{Request, Table};
use crate::store::{Renewal, Settlement};

#[derive(Debug, Clone)]
pub(super) enum Late {
    Claim {
        owner: u32,
        request: Request,
    },
    Renewal {
        owner: u32,
        asked: Vec<Renewal>,
    },
    Results {
        owner: u32,
        results: Vec<Settlement>,
    },
    /// The transaction of an application.
    Commit {
        rows: Vec<i64>,
    },
    /// The transaction of a listener, which has marked its row.
    Acknowledgement {
        owner: u32,
        finish: Settlement,
    },
}

impl Late {
    /// Whether it waits for somebody else's transaction.
    pub(super) fn is_blocked(&self, table: &Table) -> bool {
        matches!(self, Self::Results { results, .. } if table.is_locked(results))
    }

    pub(super) fn happens(self, table: &mut Table, ledger: &mut Ledger) {
        match self {
            Self::Claim { owner, request } => {
                table.claim(owner, &request, ledger);
            }
            Self::Renewal { owner, asked } => {
                table.renew(owner, &asked, ledger);
            }
            Self::Results { owner, results } => {
                table.finish(owner, &results, ledger);
            }
            Self::Commit { rows } => table.end(&rows, true, ledger),
            Self::Acknowledgement { owner, finish } => {
                table.mark(owner, &finish, ledger);
                table.unlock(finish.sequence);
            }
        }
    }

    pub(super) fn never(self, table: &mut Table, ledger: &mut Ledger) {
        match self {
            Self::Claim { .. } | Self::Renewal { .. } | Self::Results { .. } => {}
            Self::Commit { rows } => table.end(&rows, false, ledger),
            Self::Acknowledgement { finish, .. } => table.unlock(finish.sequence),
        }
    }
}
