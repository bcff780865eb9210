//! Inserts events, in the transaction of the application.

#[cfg(feature = "postgres")]
pub(super) mod postgres;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::SqlStr;

use super::batch::{Arg, Batch, Cell};
use super::claim::Lease;
use super::columns::{self, Column, RowReader};
use super::row::{micros, span};
use super::statements::{Insert, Insertion};
use super::{Backend, Store, fault_point};
use crate::Error;
use crate::event::{Delay, EventEnvelope, Recipient, SEPARATOR, Status};

/// Claims a row that has not been touched since it was inserted.
pub(super) const CLAIM_ONE: &str = "\
    UPDATE {table} SET available_at = {later:$1}, locked_by = $2, locked_at = {now}, claim_token = 1 \
    WHERE sequence = $3 AND event_id = $4 AND claim_token = 0 AND status = 0 AND locked_by IS NULL";

/// An event to be inserted, for one of its recipients.
#[derive(Debug, Clone, Copy)]
pub struct NewRow<'a> {
    /// The event.
    pub envelope: &'a EventEnvelope,
    /// Whose delivery it is.
    pub recipient: &'a Recipient,
    /// The state in which the row is inserted.
    pub state: InitialState<'a>,
}

/// The state in which a row is inserted.
#[derive(Debug, Clone, Copy)]
pub enum InitialState<'a> {
    /// It is due now, or when the delay of its event ends, for any poller.
    Due,
    /// It is claimed, with token 1, so that no poller can claim it.
    Claimed(Lease<'a>),
    /// It is done: the event needs no listener. The row is kept until it is purged.
    Done,
}

/// The result of inserting one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// The sequence of the row.
    pub sequence: i64,
    /// Whether the recipient had a row of the event already; the sequence is then that of the existing row.
    pub duplicate: bool,
}

/// The maximum number of rows of one statement.
const CHUNK_ROWS: usize = 500;
/// The maximum size of one statement: the default limit of MySQL 5.7 for a packet.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

impl<DB: Backend> Store<DB> {
    /// Inserts rows on the connection of the application's transaction. If a recipient has a row of an event already,
    /// it is not inserted again; this is not an error.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn insert(
        &self,
        connection: &mut DB::Connection,
        rows: &[NewRow<'_>],
    ) -> Result<Vec<Inserted>, Error> {
        self.set_clock(connection).await.map_err(Error::database("inserting events"))?;
        let mut inserted = Vec::with_capacity(rows.len());
        let mut rest = rows;
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(chunk_length(rest, DB::DIALECT.arrays));
            inserted.extend(self.insert_chunk(connection, chunk).await?);
            rest = later;
        }
        Ok(inserted)
    }

    async fn insert_chunk(
        &self,
        connection: &mut DB::Connection,
        rows: &[NewRow<'_>],
    ) -> Result<Vec<Inserted>, Error> {
        if let (Insert::Returning { one, .. }, [row]) = (&self.sql.insert, rows)
            && !row.envelope.inserting()
        {
            return Ok(vec![self.insert_one(connection, one, row).await?]);
        }
        let keys: Vec<RowKey> = rows.iter().map(RowKey::of).collect();
        let mut seen = HashSet::with_capacity(rows.len());
        let fresh: Vec<&NewRow<'_>> = rows
            .iter()
            .zip(&keys)
            .filter(|(_, key)| seen.insert(*key))
            .map(|(row, _)| row)
            .collect();
        let sequences = match &self.sql.insert {
            Insert::Returning { many, fan_out, .. } => {
                let has_several = || fresh.windows(2).any(|rows| is_same_event(rows[0], rows[1]));
                match fan_out {
                    Some(fan_out) if has_several() => {
                        self.insert_returning(connection, fan_out, fanned_out, &fresh).await?
                    }
                    _ => {
                        let arrays =
                            |rows: &[&NewRow<'_>]| values(rows).into_args(DB::DIALECT.arrays);
                        self.insert_returning(connection, many, arrays, &fresh).await?
                    }
                }
            }
            Insert::Failing { bulk, sizes } => {
                self.find_then_insert(connection, bulk, sizes, &fresh).await?
            }
        };
        let mut first = HashSet::with_capacity(rows.len());
        Ok(keys
            .iter()
            .map(|key| {
                let known = sequences.get(key).copied();
                let Inserted { sequence, duplicate } =
                    known.unwrap_or(Inserted { sequence: 0, duplicate: true });
                let again = !first.insert(key);
                Inserted { sequence, duplicate: duplicate || again }
            })
            .collect())
    }

    /// Inserts the first row of an event whose id was generated: no other row can have it. Most transactions write one
    /// event, and a statement that looks for existing rows costs them more.
    async fn insert_one(
        &self,
        connection: &mut DB::Connection,
        sql: &SqlStr,
        row: &NewRow<'_>,
    ) -> Result<Inserted, Error> {
        let args = values(&[row]).into_values();
        let returned = fault_point!(self, Write => DB::fetch(connection, sql.clone(), args).await);
        let returned = returned.map_err(Error::database("inserting events"))?;
        let sequence = returned.first().and_then(|row| DB::int(row, 0).ok().flatten());
        Ok(Inserted { sequence: sequence.unwrap_or_default(), duplicate: false })
    }

    /// Inserts with a statement that returns the rows that it has inserted.
    async fn insert_returning(
        &self,
        connection: &mut DB::Connection,
        sql: &Insertion,
        args: impl Fn(&[&NewRow<'_>]) -> Vec<Arg>,
        rows: &[&NewRow<'_>],
    ) -> Result<HashMap<RowKey, Inserted>, Error> {
        let failed = || Error::database("inserting events");
        let mut may_exist = false;
        for event in rows.chunk_by(|one, next| is_same_event(one, next)) {
            may_exist |= event.first().is_some_and(|row| row.envelope.inserting());
        }
        let statement = if may_exist { &sql.skipping } else { &sql.new };
        let (statement, args) = (statement.clone(), args(rows));
        let returned = fault_point!(self, Write => DB::fetch(connection, statement, args).await);
        let returned = returned.map_err(failed())?;
        if !may_exist {
            let mut sequences = columns::sequences::<DB>(&returned);
            sequences.sort_unstable();
            let inserted =
                sequences.into_iter().map(|sequence| Inserted { sequence, duplicate: false });
            return Ok(rows.iter().map(|row| RowKey::of(row)).zip(inserted).collect());
        }
        let mut sequences = by_key::<DB>(returned, false);
        if sequences.len() < rows.len() {
            let missing = rows.iter().filter(|row| !sequences.contains_key(&RowKey::of(row)));
            let missing: Vec<&NewRow<'_>> = missing.copied().collect();
            let found = self.find(connection, &self.sql.existing, &missing).await;
            sequences.extend(found.map_err(failed())?);
        }
        Ok(sequences)
    }

    /// Returns those of the rows that exist, as duplicates.
    pub(super) async fn find(
        &self,
        connection: &mut DB::Connection,
        sql: &SqlStr,
        rows: &[&NewRow<'_>],
    ) -> sqlx::Result<HashMap<RowKey, Inserted>> {
        let text = |text: &str| Cell::Text(Some(text.to_owned()));
        let keys = rows
            .iter()
            .map(|row| [text(row.envelope.event_id().as_str()), text(row.recipient.name())]);
        let args = Batch::new(keys).into_args(DB::DIALECT.arrays);
        let rows = DB::fetch(connection, sql.clone(), args).await?;
        Ok(by_key::<DB>(rows, true))
    }

    /// Claims a row that was inserted as due, unless it has been touched since. Returns whether it was claimed.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn claim_inserted(
        &self,
        sequence: i64,
        envelope: &EventEnvelope,
        lease: Lease<'_>,
    ) -> Result<bool, Error> {
        let args = || {
            let event_id = envelope.event_id().to_string();
            vec![span(lease.length).into(), lease.owner.into(), sequence.into(), event_id.into()]
        };
        let claimed = self.change("claiming an inserted event", &self.sql.claim_one, args).await?;
        Ok(claimed == 1)
    }
}

/// What is unique about a row: its event and its recipient. A row that is not expanded counts as that of the unnamed
/// listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RowKey(String);

impl RowKey {
    pub(super) fn of(row: &NewRow<'_>) -> Self {
        Self::new(row.envelope.event_id().to_string(), row.recipient)
    }

    fn new(event_id: String, recipient: &Recipient) -> Self {
        let mut key = event_id;
        if let Recipient::Named(name) = recipient {
            key.push(SEPARATOR);
            key.push_str(name);
        }
        Self(key)
    }
}

fn by_key<DB: Backend>(rows: Vec<DB::Row>, duplicate: bool) -> HashMap<RowKey, Inserted> {
    rows.iter()
        .filter_map(|row| {
            let row = RowReader::<DB>::new(row, &columns::INSERTED);
            let sequence = row.int(Column::Sequence)?;
            let recipient = Recipient::from_column(&row.text(Column::Subscription)?);
            let key = RowKey::new(row.text(Column::EventId)?, &recipient);
            Some((key, Inserted { sequence, duplicate }))
        })
        .collect()
}

/// Returns the number of rows of the next statement.
fn chunk_length(rows: &[NewRow<'_>], arrays: bool) -> usize {
    if rows.len() == 1 {
        return 1;
    }
    // The brackets around the JSON text of a batch.
    let mut bytes = 2;
    let fits = |row: &&NewRow<'_>| {
        bytes += sent_bytes(row, arrays);
        bytes < CHUNK_BYTES
    };
    // At least one row, whatever its size.
    rows.iter().take(CHUNK_ROWS).take_while(fits).count().max(1)
}

/// Returns an upper estimate of the size of a row in a statement, as arrays or as JSON text. In JSON text, a payload
/// that consists of quotes is twice as long.
fn sent_bytes(row: &NewRow<'_>, arrays: bool) -> usize {
    /// Brackets, quotes and commas, and six numbers.
    const OVERHEAD: usize = 43 + 6 * 20;
    // In JSON text within JSON text, a quote has four bytes and a control character seven.
    let escaped = |text: &str, quote: usize, control: usize| {
        let extra = |byte: u8| match byte {
            b'"' | b'\\' => quote,
            ..0x20 => control,
            _ => 0,
        };
        text.len() + text.bytes().map(extra).sum::<usize>()
    };
    let text = |text: &str| if arrays { text.len() } else { escaped(text, 1, 5) };
    let header = |text: &str| if arrays { escaped(text, 1, 5) } else { escaped(text, 3, 6) };
    let headers = |(key, value): (&str, &str)| header(key) + header(value) + 4 * 2 + 2;
    let NewRow { envelope, recipient, state } = row;
    let owner = match state {
        InitialState::Claimed(lease) => text(lease.owner),
        InitialState::Due | InitialState::Done => 0,
    };
    let id = envelope.event_id();
    let names = [id.as_str(), envelope.event_type(), envelope.aggregate_type()];
    let more = [envelope.aggregate_id(), envelope.tenant_id()];
    OVERHEAD
        + owner
        + recipient.as_column().len()
        + names.into_iter().chain(more.into_iter().flatten()).map(text).sum::<usize>()
        + text(envelope.payload().as_str())
        + envelope.headers().iter().map(headers).sum::<usize>()
}

/// Returns the values of rows, in the order of the arguments of `Dialect::insert`.
pub(super) fn values(rows: &[&NewRow<'_>]) -> Batch {
    Batch::new(rows.iter().map(|row| {
        let [id, kind, aggregate, aggregate_id, tenant, payload, headers, created, until] =
            event_values(row.envelope);
        let [wait, owner, token, status, subscription] = row_values(row);
        [
            id,
            kind,
            aggregate,
            aggregate_id,
            tenant,
            payload,
            headers,
            created,
            until,
            wait,
            owner,
            token,
            status,
            subscription,
        ]
    }))
}

/// Returns the arguments of `Insert::Returning::fan_out`: the values of events, and those of their rows, which refer to
/// an event by its number.
fn fanned_out(rows: &[&NewRow<'_>]) -> Vec<Arg> {
    let events = || rows.chunk_by(|one, next| is_same_event(one, next));
    let firsts = events().filter_map(|rows| rows.first());
    let mut args = Batch::new(firsts.map(|row| event_values(row.envelope))).into_args(true);
    let rows =
        (1..).zip(events()).flat_map(|(number, rows)| rows.iter().map(move |row| (number, row)));
    let rows = Batch::new(rows.map(|(number, row)| {
        let [wait, owner, token, status, subscription] = row_values(row);
        [Cell::Int(Some(number)), wait, owner, token, status, subscription]
    }));
    args.extend(rows.into_args(true));
    args
}

/// The rows of an event follow each other.
fn is_same_event(one: &NewRow<'_>, next: &NewRow<'_>) -> bool {
    one.envelope.event_id() == next.envelope.event_id()
}

/// Returns the values that all rows of an event share.
fn event_values(envelope: &EventEnvelope) -> [Cell; 9] {
    let text = |text: &str| Cell::Text(Some(text.to_owned()));
    let optional = |text: Option<&str>| Cell::Text(text.map(str::to_owned));
    let until = match envelope.delay() {
        Some(Delay::Until(time)) => Some(micros(time)),
        Some(Delay::For(_)) | None => None,
    };
    [
        text(envelope.event_id().as_str()),
        text(envelope.event_type()),
        text(envelope.aggregate_type()),
        optional(envelope.aggregate_id()),
        optional(envelope.tenant_id()),
        text(envelope.payload().as_str()),
        Cell::Text(envelope.headers().to_json()),
        Cell::Int(Some(micros(envelope.occurred_at()))),
        Cell::Int(until),
    ]
}

/// Returns the values of one row.
fn row_values(row: &NewRow<'_>) -> [Cell; 5] {
    let NewRow { envelope, recipient, state } = row;
    let (status, owner, token, wait) = match state {
        InitialState::Due => (Status::New, None, 0, Duration::ZERO),
        InitialState::Claimed(lease) => (Status::New, Some(lease.owner), 1, lease.length),
        InitialState::Done => (Status::Done, None, 0, Duration::ZERO),
    };
    let wait = match envelope.delay() {
        Some(Delay::For(delay)) => delay,
        Some(Delay::Until(_)) | None => wait,
    };
    [
        Cell::Int(Some(span(wait))),
        Cell::Text(owner.map(str::to_owned)),
        Cell::Int(Some(token)),
        Cell::Int(Some(status.code().into())),
        Cell::Text(Some(recipient.as_column().to_owned())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_statement_is_larger_than_a_packet() {
        let text = |length: usize| format!("\"{}\"", "\\\"\u{1f600}\\u0001".repeat(length / 14));
        for (payload, header) in [(2, 0), (20, 60_000), (60_000, 20), (900_000, 0), (3_000, 3_000)]
        {
            let event = EventEnvelope::builder("Type").aggregate_type("Order").aggregate_id("7");
            let event = event.tenant("tenant").header("k\"ey", "\"\u{1}ü".repeat(header / 20));
            let event = event.payload_json(text(payload)).build().unwrap();
            let lease = Lease { owner: "a\"node", length: Duration::MAX };
            let row = NewRow {
                envelope: &event,
                recipient: &Recipient::Unnamed,
                state: InitialState::Claimed(lease),
            };
            let rows = vec![row; 600];
            for arrays in [false, true] {
                let length = chunk_length(&rows, arrays);
                let chunk: Vec<&NewRow<'_>> = rows[..length].iter().collect();
                let sent: usize = values(&chunk).into_args(arrays).iter().map(size).sum();
                assert!(sent < CHUNK_BYTES || length == 1, "{length} rows of {payload}: {sent}");
                // Chunks are not smaller than necessary.
                let fuller = sent / length * (length + 1) > CHUNK_BYTES * 3 / 4;
                assert!(fuller || length == CHUNK_ROWS, "{length} rows of {payload}: {sent}");
            }
        }
    }

    fn size(arg: &Arg) -> usize {
        match arg {
            Arg::Int(_) => 8,
            Arg::Text(text) => text.as_ref().map_or(0, String::len),
            Arg::Ints(numbers) => 12 * numbers.len(),
            Arg::Texts(texts) => texts.iter().flatten().map(|text| text.len() + 4).sum(),
        }
    }
}
