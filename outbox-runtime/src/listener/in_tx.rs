//! Listeners that run in the transaction that settles their event.

use std::any::{Any, TypeId, type_name};

use super::{ListenerError, ListenerErrorKind, Result};

/// A transaction with its type erased.
pub type AnyTx = dyn Any + Send;

/// A transaction that a listener may ask for with a `&mut Tx<..>` argument.
///
/// It is implemented for [`Tx`](crate::write::Tx) of every database and not meant for other types. It occurs in the
/// signature of [`ListenerRegistry::register_in_tx`](super::ListenerRegistry::register_in_tx).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that a listener can ask for",
    label = "only `Tx<Sqlite>`, `Tx<Postgres>` and `Tx<MySql>` of `outbox` can be a `&mut` argument",
    note = "take the payload and extractors by value or by `&`, and application state as `State<T>`"
)]
pub trait ListenerTx: Any + Send + Sized {
    /// Returns the database of the transaction, which must be that of the outbox.
    fn database() -> TxDatabase;

    /// Downcasts a transaction. The databases are compared when the outbox starts, so it cannot fail afterwards.
    ///
    /// # Errors
    /// Returns [`ListenerErrorKind::MissingTransaction`] if the transaction belongs to another database.
    #[doc(hidden)]
    fn downcast(tx: &mut AnyTx) -> Result<&mut Self> {
        tx.downcast_mut().ok_or_else(|| missing_transaction(type_name::<Self>()))
    }
}

/// The database of a transaction that a listener asks for, compared with the outbox's when that starts.
///
/// ```
/// use outbox::Tx;
/// use outbox::listener::{ListenerTx, TxDatabase};
///
/// assert!(<Tx<sqlx::Sqlite> as ListenerTx>::database() == TxDatabase::of::<sqlx::Sqlite>());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TxDatabase {
    id: TypeId,
    name: &'static str,
}

impl TxDatabase {
    /// Returns the database of a sqlx driver type, such as `sqlx::Postgres`.
    #[doc(hidden)]
    pub fn of<DB: 'static>() -> Self {
        Self { id: TypeId::of::<DB>(), name: type_name::<DB>() }
    }

    /// Returns the name of the driver type without its path.
    pub(crate) fn name(&self) -> &'static str {
        self.name.rsplit("::").next().unwrap_or(self.name)
    }
}

impl PartialEq for TxDatabase {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// Returns the error of a listener that is called without the transaction that it asks for.
pub(super) fn missing_transaction(wanted: &str) -> ListenerError {
    let text = format!("no transaction of `{wanted}` was given");
    ListenerError::new(ListenerErrorKind::MissingTransaction, text)
}
