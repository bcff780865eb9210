//! Inserting where a statement fails if one of its ids exists: MySQL and MariaDB.
//!
//! `INSERT IGNORE` would hide other errors, and `ON DUPLICATE KEY UPDATE` does not tell what it did.

use std::collections::HashMap;

use sqlx::SqlStr;

use super::insert::{Inserted, NewRow, arguments};
use super::{Backend, Store, fault_point};
use crate::Error;

/// What a statement did that fails if an id exists.
enum Attempt {
    /// It has inserted its rows; with the sequence if there was one row and the driver tells.
    Inserted(Option<i64>),
    /// Its one row exists.
    Duplicate(HashMap<String, Inserted>),
    /// Some of its rows exist; none was inserted.
    SomeExist,
}

/// A statement for some rows.
#[derive(Clone, Copy)]
enum Statement<'a> {
    /// For any number of them, as one argument.
    Bulk(&'a SqlStr),
    /// For so many, with an argument for each value.
    Values(&'a SqlStr),
}

/// Which statement inserts the next rows.
struct Pieces<'a> {
    bulk: &'a SqlStr,
    sizes: &'a [(usize, SqlStr); 3],
    /// Whether no statement has to wait for the end of another transaction.
    all_new: bool,
    /// How many rows are still to be tried by themselves.
    singly: usize,
}

impl<'a> Pieces<'a> {
    /// The next statement, and how many of the rows that are left it takes.
    fn next(&mut self, left: usize) -> (usize, Statement<'a>) {
        if self.all_new && left > 1 && self.singly == 0 {
            return (left, Statement::Bulk(self.bulk));
        }
        let most = if self.singly > 0 { 1 } else { left };
        self.singly = self.singly.saturating_sub(1);
        let [.., one] = self.sizes;
        let (size, sql) = self.sizes.iter().find(|(size, _)| *size <= most).unwrap_or(one);
        (*size, Statement::Values(sql))
    }
}

impl<DB: Backend> Store<DB> {
    /// A statement fails if any of its ids exists, and on MySQL its transaction then keeps a lock on that
    /// id and on the gap beside it. So ids that may exist are read first, without a lock, and left out.
    pub(super) async fn find_then_insert(
        &self,
        connection: &mut DB::Connection,
        bulk: &SqlStr,
        sizes: &[(usize, SqlStr); 3],
        rows: &[&NewRow<'_>],
    ) -> Result<HashMap<String, Inserted>, Error> {
        let failed = || Error::database("inserting events");
        let may_exist = ids(rows, |row| row.envelope.id_may_exist());
        let mut pieces = Pieces { bulk, sizes, all_new: may_exist.is_empty(), singly: 0 };
        let mut known = HashMap::new();
        if !may_exist.is_empty() {
            let found = self.find(connection, &self.sql.inserted, may_exist).await;
            known = found.map_err(failed())?;
        }
        let mut fresh = rows.to_vec();
        fresh.retain(|row| !known.contains_key(row.envelope.event_id().as_str()));
        let (mut rest, mut unnumbered) = (fresh.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (size, statement) = pieces.next(rest.len());
            let (piece, later) = rest.split_at(size);
            match self.insert_piece(connection, statement, piece).await.map_err(failed())? {
                Attempt::Inserted(None) => unnumbered.extend(ids(piece, |_| true)),
                Attempt::Inserted(Some(sequence)) => {
                    let inserted = Inserted { sequence, duplicate: false };
                    known.extend(ids(piece, |_| true).into_iter().map(|id| (id, inserted)));
                }
                Attempt::Duplicate(found) => known.extend(found),
                Attempt::SomeExist => {
                    pieces.singly = size;
                    continue;
                }
            }
            rest = later;
        }
        if !unnumbered.is_empty() {
            // They are ours: a lock would only stand in the way of other writers.
            let found = self.find(connection, &self.sql.inserted, unnumbered).await;
            let ours = |(id, inserted)| (id, Inserted { duplicate: false, ..inserted });
            known.extend(found.map_err(failed())?.into_iter().map(ours));
        }
        Ok(known)
    }

    /// Runs one statement. Another transaction's row may have been committed after it was looked for, or be
    /// hidden by the snapshot of this one: it is then read with a lock. By then it may be gone, so this is
    /// tried a few times.
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
                Statement::Bulk(sql) => (sql, arguments(rows).into_args(DB::DIALECT.arrays)),
                Statement::Values(sql) => (sql, arguments(rows).into_values()),
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
                        // To read them all with a lock would lock gaps for those that are new.
                        return Ok(Attempt::SomeExist);
                    }
                    let found = self.find(connection, &self.sql.existing, ids(rows, |_| true));
                    let found = found.await?;
                    if !found.is_empty() {
                        return Ok(Attempt::Duplicate(found));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn ids(rows: &[&NewRow<'_>], which: impl Fn(&NewRow<'_>) -> bool) -> Vec<String> {
    let rows = rows.iter().filter(|row| which(row));
    rows.map(|row| row.envelope.event_id().to_string()).collect()
}
