//! Statements that the database may still execute after their client has disconnected.

use super::ledger::Ledger;
use super::table::{ClaimRequest, Table};
use crate::store::{Renewal, Settlement};

/// A statement whose client no longer waits for the response.
#[derive(Debug, Clone)]
pub(super) enum LateStatement {
    Claim {
        owner: u32,
        request: ClaimRequest,
    },
    Renewal {
        owner: u32,
        requested: Vec<Renewal>,
    },
    Settlements {
        owner: u32,
        settlements: Vec<Settlement>,
    },
    /// The commit of an application's transaction.
    Commit {
        rows: Vec<i64>,
    },
    /// The commit of a listener's transaction, which has settled its row.
    Acknowledgement {
        owner: u32,
        settlement: Settlement,
    },
}

impl LateStatement {
    /// Returns whether it waits for a row that another transaction has locked.
    pub(super) fn is_blocked(&self, table: &Table) -> bool {
        matches!(self, Self::Settlements { settlements, .. } if table.is_locked(settlements))
    }

    /// Executes the statement.
    pub(super) fn execute(self, table: &mut Table, ledger: &mut Ledger) {
        match self {
            Self::Claim { owner, request } => {
                table.claim(owner, &request, ledger);
            }
            Self::Renewal { owner, requested } => {
                table.renew(owner, &requested, ledger);
            }
            Self::Settlements { owner, settlements } => {
                table.settle_all(owner, &settlements, ledger);
            }
            Self::Commit { rows } => table.end_transaction(&rows, true, ledger),
            Self::Acknowledgement { owner, settlement } => {
                table.settle(owner, &settlement, ledger);
                table.unlock(settlement.sequence);
            }
        }
    }

    /// Discards the statement; its transaction is rolled back.
    pub(super) fn discard(self, table: &mut Table, ledger: &mut Ledger) {
        match self {
            Self::Claim { .. } | Self::Renewal { .. } | Self::Settlements { .. } => {}
            Self::Commit { rows } => table.end_transaction(&rows, false, ledger),
            Self::Acknowledgement { settlement, .. } => table.unlock(settlement.sequence),
        }
    }
}
