use sqlx::Pool;

use crate::store::Backend;

/// A connection pool to start an outbox with: a `sqlx::Pool`, or a reference to one, which is cloned.
///
/// Sealed. It is a trait only so that the compiler can explain a pool of another version of sqlx.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pool that an outbox can use",
    label = "not a `SqlitePool`, `PgPool` or `MySqlPool` of sqlx 0.9",
    note = "outbox uses sqlx 0.9; if this type comes from another version of sqlx, use `outbox::sqlx`, or \
            depend on `sqlx = \"0.9\"`"
)]
pub trait IntoPool<DB: Backend>: sealed::Sealed {
    #[doc(hidden)]
    fn into_pool(self) -> Pool<DB>;
}

impl<DB: Backend> IntoPool<DB> for Pool<DB> {
    fn into_pool(self) -> Self {
        self
    }
}

impl<DB: Backend> IntoPool<DB> for &Pool<DB> {
    fn into_pool(self) -> Pool<DB> {
        self.clone()
    }
}

mod sealed {
    use sqlx::{Database, Pool};

    pub trait Sealed {}

    impl<DB: Database> Sealed for Pool<DB> {}
    impl<DB: Database> Sealed for &Pool<DB> {}
}
