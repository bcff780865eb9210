//! The bank, an external service.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outbox::event::EventId;
use thiserror::Error;

/// The state that listeners take. It prints what it is asked for.
#[derive(Clone, Default)]
pub(crate) struct Bank(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    balances: HashMap<i64, i64>,
    /// The events that were booked.
    booked: HashSet<EventId>,
    /// The account whose deposits fail the first time.
    unreliable_for: Option<i64>,
    tried: HashSet<EventId>,
    lines: Vec<String>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum BankError {
    #[error("the bank does not respond")]
    NoResponse,
    #[error("the account would be overdrawn")]
    Overdrawn,
}

impl Bank {
    /// Returns a bank that does not respond to the first attempt of each deposit to an account.
    pub(crate) fn unreliable_for(account: i64) -> Self {
        let books = Books { unreliable_for: Some(account), ..Books::default() };
        Self(Arc::new(Mutex::new(books)))
    }

    /// Adds an amount to an account. Delivery is at-least-once, so an event that was booked before changes nothing.
    pub(crate) fn book(&self, event: EventId, account: i64, cents: i64) -> Result<(), BankError> {
        let mut books = self.books();
        let result = books.book(event, account, cents);
        let outcome = match &result {
            Ok(balance) => format!("balance {balance}"),
            Err(error) => error.to_string(),
        };
        let line = format!("account {account}: {cents:+}: {outcome}");
        println!("{line}");
        books.lines.push(line);
        result.map(|_| ())
    }

    /// Returns what was printed about an account.
    #[cfg(test)]
    pub(crate) fn lines(&self, account: i64) -> Vec<String> {
        let prefix = format!("account {account}: ");
        let books = self.books();
        books
            .lines
            .iter()
            .filter_map(|line| line.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn book(&mut self, event: EventId, account: i64, cents: i64) -> Result<i64, BankError> {
        let is_unreliable = cents > 0 && self.unreliable_for == Some(account);
        if is_unreliable && self.tried.insert(event) {
            return Err(BankError::NoResponse);
        }
        let balance = self.balances.entry(account).or_default();
        if self.booked.contains(&event) {
            return Ok(*balance);
        }
        if *balance + cents < 0 {
            return Err(BankError::Overdrawn);
        }
        *balance += cents;
        self.booked.insert(event);
        Ok(*balance)
    }
}
