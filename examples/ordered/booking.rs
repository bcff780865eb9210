//! The listeners: they pass each event to the bank.

use outbox::{ListenerError, Meta, State, listener};

use crate::accounts::AccountEvent;
use crate::bank::{Bank, BankError};

#[listener(event = AccountEvent::Deposited { account, cents }, retry(base = "50ms", max = "100ms"))]
async fn book_deposit(
    account: i64,
    cents: i64,
    bank: State<Bank>,
    meta: Meta,
) -> outbox::ListenerResult {
    bank.book(meta.event_id(), account, cents).map_err(failed)
}

#[listener(event = AccountEvent::Withdrawn { account, cents }, retry(base = "50ms", max = "100ms"))]
async fn book_withdrawal(
    account: i64,
    cents: i64,
    bank: State<Bank>,
    meta: Meta,
) -> outbox::ListenerResult {
    bank.book(meta.event_id(), account, -cents).map_err(failed)
}

fn failed(error: BankError) -> ListenerError {
    match error {
        BankError::NoResponse => error.into(),
        // A retry would not help.
        BankError::Overdrawn => ListenerError::permanent(error),
    }
}
