//! Accounts and their events.

use outbox::{AggregateType, EventType, Tx};
use sqlx::Sqlite;
use thiserror::Error;

pub(crate) const SCHEMA: &str = "
    CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0));
    INSERT INTO accounts VALUES (7, 0), (8, 0);";

#[derive(AggregateType)]
pub(crate) struct Account;

// The aggregate id says which events have an order: those of the same account.
#[derive(EventType)]
#[outbox(aggregate = Account)]
pub(crate) enum AccountEvent {
    Deposited {
        #[outbox(aggregate_id)]
        account: i64,
        cents: i64,
    },
    Withdrawn {
        #[outbox(aggregate_id)]
        account: i64,
        cents: i64,
    },
}

#[derive(Debug, Error)]
pub(crate) enum AccountError {
    #[error("there is no account {0}")]
    Unknown(i64),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Outbox(#[from] outbox::Error),
}

type Result<T = (), E = AccountError> = std::result::Result<T, E>;

pub(crate) async fn deposit(tx: &mut Tx<Sqlite>, account: i64, cents: i64) -> Result {
    change(tx, account, cents).await?;
    tx.write(AccountEvent::Deposited { account, cents })?;
    Ok(())
}

pub(crate) async fn withdraw(tx: &mut Tx<Sqlite>, account: i64, cents: i64) -> Result {
    change(tx, account, -cents).await?;
    tx.write(AccountEvent::Withdrawn { account, cents })?;
    Ok(())
}

/// Changes the balance. On every database, the row stays locked until the end of the transaction, so that the events of
/// an account are written in the order of the commits.
async fn change(tx: &mut Tx<Sqlite>, account: i64, cents: i64) -> Result {
    let change = sqlx::query("UPDATE accounts SET cents = cents + ? WHERE id = ?");
    let changed = change.bind(cents).bind(account).execute(&mut **tx).await?;
    if changed.rows_affected() == 0 { Err(AccountError::Unknown(account)) } else { Ok(()) }
}
