//! Listeners that work in the transaction that acknowledges their event.

use std::any::{Any, TypeId, type_name};

use super::{ListenerError, ListenerErrorKind, Result};

/// A transaction whose database is not known here.
pub type AnyTx = dyn Any + Send;

/// What a `&mut Tx<..>` argument of a listener must be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that a listener can ask for",
    label = "known are `Tx<sqlx::Sqlite>`, `Tx<sqlx::Postgres>` and `Tx<sqlx::MySql>` of `outbox`",
    note = "turn on the feature of the database; if this is the payload, import it under another name: \
            `use {Self} as ..;`"
)]
pub trait ListenerTx: Any + Send {
    /// The database it belongs to.
    fn database() -> TxDatabase;
}

/// The database of a transaction.
#[derive(Debug, Clone, Copy)]
pub struct TxDatabase {
    id: TypeId,
    name: &'static str,
}

impl TxDatabase {
    /// The database of this type.
    pub fn of<DB: 'static>() -> Self {
        Self { id: TypeId::of::<DB>(), name: type_name::<DB>() }
    }

    /// What it is called: its last name is enough.
    pub(crate) fn name(&self) -> &'static str {
        self.name.rsplit("::").next().unwrap_or(self.name)
    }
}

impl PartialEq for TxDatabase {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// The transaction as what it is. Databases are compared when the outbox is started, so this cannot
/// fail afterwards. What `T` may be is said once, where its database is asked for.
///
/// # Errors
/// [`ListenerErrorKind::MissingTransaction`] if it is of another database.
pub fn tx_of<T: Any>(tx: &mut AnyTx) -> Result<&mut T> {
    tx.downcast_mut().ok_or_else(|| missing(type_name::<T>()))
}

/// A listener was called without the transaction that it asks for.
pub(super) fn missing(wanted: &str) -> ListenerError {
    let text = format!("no transaction of `{wanted}` was given");
    ListenerError::new(ListenerErrorKind::MissingTransaction, text)
}
