//! Inserts events with statements that fail if an id exists, for MySQL and MariaDB.
//!
//! `INSERT IGNORE` would hide other errors, and `ON DUPLICATE KEY UPDATE` does not report which rows it inserted.

use std::collections::HashMap;

use sqlx::SqlStr;

use super::insert::{Inserted, NewRow, RowKey, values};
use super::{Backend, Store, fault_point};
use crate::Error;

/// The result of a statement that fails if an id exists.
enum Attempt {
    /// It has inserted its rows; with the sequence if there was one row and the driver reports it.
    Inserted(Option<i64>),
    /// Its only row exists.
    Duplicate(HashMap<RowKey, Inserted>),
    /// Some of its rows exist, and none was inserted.
    SomeExist,
}

/// A statement that inserts rows.
#[derive(Clone, Copy)]
enum Statement<'a> {
    /// For any number of rows, as one argument.
    Bulk(&'a SqlStr),
    /// For a fixed number of rows, with an argument for each value.
    Values(&'a SqlStr),
}

/// Chooses the statements that insert a batch.
struct Pieces<'a> {
    bulk: &'a SqlStr,
    sizes: &'a [(usize, SqlStr); 3],
    /// Whether all ids are new, so that no statement waits for another transaction to end.
    all_new: bool,
    /// The number of next rows that are inserted one by one.
    one_by_one: usize,
}

impl<'a> Pieces<'a> {
    /// Returns the next statement and the number of rows that it inserts, of `left` rows.
    fn next(&mut self, left: usize) -> (usize, Statement<'a>) {
        if self.all_new && left > 1 && self.one_by_one == 0 {
            return (left, Statement::Bulk(self.bulk));
        }
        let max = if self.one_by_one > 0 { 1 } else { left };
        self.one_by_one = self.one_by_one.saturating_sub(1);
        let [.., one] = self.sizes;
        let (size, sql) = self.sizes.iter().find(|(size, _)| *size <= max).unwrap_or(one);
        (*size, Statement::Values(sql))
    }
}

impl<DB: Backend> Store<DB> {
    /// Inserts the rows that do not exist.
    ///
    /// A statement fails if one of its ids exists, and on MySQL its transaction then keeps a lock on that id and on the
    /// gap beside it. So ids that may exist are read first, without a lock, and their rows are left out.
    pub(super) async fn find_then_insert(
        &self,
        connection: &mut DB::Connection,
        bulk: &SqlStr,
        sizes: &[(usize, SqlStr); 3],
        rows: &[&NewRow<'_>],
    ) -> Result<HashMap<RowKey, Inserted>, Error> {
        let failed = || Error::database("inserting events");
        let mut may_exist = rows.to_vec();
        may_exist.retain(|row| row.envelope.id_may_exist());
        let mut pieces = Pieces { bulk, sizes, all_new: may_exist.is_empty(), one_by_one: 0 };
        let mut known = HashMap::new();
        if !may_exist.is_empty() {
            let found = self.find(connection, &self.sql.inserted, &may_exist).await;
            known = found.map_err(failed())?;
        }
        let mut fresh = rows.to_vec();
        fresh.retain(|row| !known.contains_key(&RowKey::of(row)));
        let (mut rest, mut unnumbered) = (fresh.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (size, statement) = pieces.next(rest.len());
            let (piece, later) = rest.split_at(size);
            match self.insert_piece(connection, statement, piece).await.map_err(failed())? {
                Attempt::Inserted(None) => unnumbered.extend_from_slice(piece),
                Attempt::Inserted(Some(sequence)) => {
                    let inserted = Inserted { sequence, duplicate: false };
                    known.extend(piece.iter().map(|row| (RowKey::of(row), inserted)));
                }
                Attempt::Duplicate(found) => known.extend(found),
                Attempt::SomeExist => {
                    pieces.one_by_one = size;
                    continue;
                }
            }
            rest = later;
        }
        if !unnumbered.is_empty() {
            // This transaction inserted them: a lock would only block other writers.
            let found = self.find(connection, &self.sql.inserted, &unnumbered).await;
            let ours = |(key, inserted)| (key, Inserted { duplicate: false, ..inserted });
            known.extend(found.map_err(failed())?.into_iter().map(ours));
        }
        Ok(known)
    }

    /// Runs one statement.
    ///
    /// If it fails because of a row that was committed after the ids were read, or that is hidden by the snapshot of
    /// this transaction, the row is read with a lock. It may be gone by then, so the insert is tried a few times.
    async fn insert_piece(
        &self,
        connection: &mut DB::Connection,
        statement: Statement<'_>,
        rows: &[&NewRow<'_>],
    ) -> sqlx::Result<Attempt> {
        const TRIES: u32 = 5;
        for row in rows {
            row.envelope.inserting();
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let (sql, args) = match statement {
                Statement::Bulk(sql) => (sql, values(rows).into_args(DB::DIALECT.arrays)),
                Statement::Values(sql) => (sql, values(rows).into_values()),
            };
            match fault_point!(self, Write => DB::execute(connection, sql.clone(), args).await) {
                Ok(done) => {
                    let sequence = done.last_sequence.filter(|_| rows.len() == 1);
                    return Ok(Attempt::Inserted(sequence));
                }
                Err(sqlx::Error::Database(error))
                    if error.is_unique_violation() && tries < TRIES =>
                {
                    if rows.len() > 1 {
                        // Reading all of them with a lock would lock the gaps of the new ids.
                        return Ok(Attempt::SomeExist);
                    }
                    let found = self.find(connection, &self.sql.existing, rows).await?;
                    if !found.is_empty() {
                        return Ok(Attempt::Duplicate(found));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}
