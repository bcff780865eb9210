//! The columns of the table, and how the rows of statements are read.
//!
//! [`Column`] is the only list of the table's columns. A [`Selection`] names what a statement selects, in order: it
//! renders the SELECT list and knows the position of every column in it, so a [`RowReader`] reads by column and not
//! by number. Rows that consist of counts and times are read as a whole, with [`ints`].
//!
//! A new column needs a migration for each database, a line in the list below, and code that reads it. If events
//! are inserted with it, it is also in `Dialect::insert` of each database and in the arguments of `insert`.

use std::time::SystemTime;

use super::Backend;
use super::row::time;

/// Renders a column so that every driver returns it as the same type. The forms are those of the dialect's templates.
macro_rules! expression {
    (plain $name:literal) => {
        concat!("entry.", $name)
    };
    (int $name:literal) => {
        concat!("{int:entry.", $name, "}")
    };
    (text $name:literal) => {
        concat!("{text:entry.", $name, "}")
    };
    (micros $name:literal) => {
        concat!("{micros:entry.", $name, "}")
    };
}

macro_rules! columns {
    (
        $($(#[$group_doc:meta])* const $group:ident { $($column:ident: $form:ident $name:literal,)* })*
        computed { $($(#[$computed_doc:meta])* $computed:ident: $sql:expr,)* }
    ) => {
        /// A column of the table, or an expression that a statement computes from columns.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Column {
            $($(#[doc = concat!("`", $name, "`.")] $column,)*)*
            $($(#[$computed_doc])* $computed,)*
        }

        $($(#[$group_doc])* const $group: &[Column] = &[$(Column::$column),*];)*

        /// The names of the table's columns.
        pub(super) const NAMES: &[&str] = &[$($($name),*),*];

        impl Column {
            const COUNT: usize = NAMES.len() + [$(Self::$computed),*].len();

            /// Returns the column as it appears in a SELECT list, or `None` if the statement itself contains the
            /// expression.
            fn expression(self) -> Option<&'static str> {
                match self {
                    $($(Self::$column => Some(expression!($form $name)),)*)*
                    $(Self::$computed => $sql,)*
                }
            }
        }
    };
}

columns! {
    /// The columns that every statement selects that reads whole events.
    const EVENT {
        Sequence: int "sequence",
        EventId: plain "event_id",
        EventType: plain "event_type",
        AggregateType: plain "aggregate_type",
        AggregateId: plain "aggregate_id",
        TenantId: plain "tenant_id",
        Headers: text "headers",
        Status: int "status",
        Attempts: int "attempts",
        CreatedAt: micros "created_at",
        ClaimToken: int "claim_token",
        Takeovers: int "takeovers",
        Subscription: plain "subscription",
        History: plain "history",
    }
    /// The payload is large: an inspection selects it only on request.
    const PAYLOAD {
        Payload: text "payload",
    }
    /// The columns that a claim does not select.
    const STATE {
        AvailableAt: micros "available_at",
        DoneAt: micros "done_at",
        LastError: plain "last_error",
        LockedBy: plain "locked_by",
        LockedAt: micros "locked_at",
    }
    /// A column that no statement uses yet: the version of the payload's shape.
    #[expect(dead_code, reason = "the schema has it already")]
    const RESERVED {
        Version: int "version",
    }
    computed {
        /// When the row was due before it was claimed.
        DueAt: None,
        /// The owner before the claim, if it has not settled the row.
        LastOwner: None,
        /// 0 if the row is not due, 1 if it is too young to be claimed, 2 if it can be.
        Readiness: None,
        /// How many events of the aggregate are pending.
        PendingOfAggregate: None,
        /// 1 if the row is due.
        #[cfg_attr(
            not(feature = "testing"),
            allow(dead_code, reason = "only the testing kit selects it")
        )]
        IsDue: None,
        /// The length of the payload.
        PayloadBytes: Some("{int:0} + octet_length({text:entry.payload})"),
        /// The payload if the first argument of the statement is 1, or else NULL.
        RequestedPayload: Some("CASE WHEN {int:$1} = 1 THEN {text:entry.payload} END"),
    }
}

/// `{columns}`, followed by the due time and the last owner.
pub(super) static CLAIM: Selection =
    Selection::new(&[EVENT, PAYLOAD, &[Column::DueAt, Column::LastOwner]]);

/// `{columns}`, followed by the due time, the last owner and the readiness.
pub(super) static ORDERED: Selection =
    Selection::new(&[EVENT, PAYLOAD, &[Column::DueAt, Column::LastOwner, Column::Readiness]]);

/// `{columns}`, followed by when the row is due and whether it is.
#[cfg(feature = "testing")]
pub(super) static STORED: Selection =
    Selection::new(&[EVENT, PAYLOAD, &[Column::DueAt, Column::IsDue]]);

/// `{dead_columns}`: a dead letter.
pub(super) static DEAD: Selection =
    Selection::new(&[EVENT, PAYLOAD, &[Column::LastError, Column::DoneAt]]);

/// `{dead_key_columns}`: a dead letter without its payload.
pub(super) static DEAD_KEY: Selection = Selection::new(&[&[
    Column::Sequence,
    Column::EventId,
    Column::EventType,
    Column::Subscription,
    Column::LastError,
    Column::DoneAt,
]]);

/// `{blocked_columns}`: an event that blocks its aggregate, followed by the number of pending events.
pub(super) static BLOCKED: Selection = Selection::new(&[&[
    Column::Sequence,
    Column::EventId,
    Column::EventType,
    Column::AggregateType,
    Column::AggregateId,
    Column::Subscription,
    Column::Attempts,
    Column::AvailableAt,
    Column::DoneAt,
    Column::PendingOfAggregate,
]]);

/// `{inspection_columns}`: every column, the payload only on request.
pub(super) static INSPECTION: Selection =
    Selection::new(&[EVENT, STATE, &[Column::PayloadBytes, Column::RequestedPayload]]);

/// The columns that `Dialect::insert` and `Dialect::existing` return.
pub(super) static INSERTED: Selection =
    Selection::new(&[&[Column::Sequence, Column::EventId, Column::Subscription]]);

/// The columns that `Dialect::states` returns.
pub(super) static STATES: Selection =
    Selection::new(&[&[Column::Sequence, Column::ClaimToken, Column::LockedBy, Column::Status]]);

/// Replaces the placeholders of SELECT lists in a template.
pub(super) fn expand(template: &str) -> String {
    let lists = [
        ("{columns}", &CLAIM),
        ("{dead_columns}", &DEAD),
        ("{dead_key_columns}", &DEAD_KEY),
        ("{inspection_columns}", &INSPECTION),
        ("{blocked_columns}", &BLOCKED),
    ];
    let mut sql = template.to_owned();
    for (placeholder, selection) in lists {
        if sql.contains(placeholder) {
            sql = sql.replace(placeholder, &selection.sql());
        }
    }
    sql
}

/// The columns that a statement selects, in order.
#[derive(Debug)]
pub(super) struct Selection {
    columns: &'static [&'static [Column]],
    positions: [usize; Column::COUNT],
}

/// The position of a column that is not selected. The driver answers it with an error.
const NOT_SELECTED: usize = usize::MAX;

impl Selection {
    /// Computes the positions, at compile time.
    const fn new(columns: &'static [&'static [Column]]) -> Self {
        let mut positions = [NOT_SELECTED; Column::COUNT];
        let (mut group, mut next) = (0, 0);
        while group < columns.len() {
            let mut index = 0;
            while index < columns[group].len() {
                let column = columns[group][index] as usize;
                assert!(positions[column] == NOT_SELECTED, "a column is selected twice");
                positions[column] = next;
                next += 1;
                index += 1;
            }
            group += 1;
        }
        Self { columns, positions }
    }

    /// Renders the SELECT list, without the expressions that the statement itself contains.
    fn sql(&self) -> String {
        let columns = self.columns.iter().copied().flatten();
        columns.filter_map(|column| column.expression()).collect::<Vec<_>>().join(", ")
    }

    fn position(&self, column: Column) -> usize {
        let position = self.positions[column as usize];
        debug_assert!(position != NOT_SELECTED, "{column:?} is not selected");
        position
    }
}

/// Reads a row by column.
pub(super) struct RowReader<'r, DB: Backend> {
    row: &'r DB::Row,
    selection: &'static Selection,
}

impl<'r, DB: Backend> RowReader<'r, DB> {
    /// Creates a reader for a row of a statement with this selection.
    pub(super) fn new(row: &'r DB::Row, selection: &'static Selection) -> Self {
        Self { row, selection }
    }

    /// Returns a number; `None` if it is NULL or not a number.
    pub(super) fn int(&self, column: Column) -> Option<i64> {
        DB::int(self.row, self.selection.position(column)).ok().flatten()
    }

    /// Returns a text; `None` if it is NULL or not a text.
    pub(super) fn text(&self, column: Column) -> Option<String> {
        self.try_text(column).ok().flatten()
    }

    /// Returns a text; `None` if it is NULL.
    ///
    /// # Errors
    /// If the value is not a text.
    pub(super) fn try_text(&self, column: Column) -> sqlx::Result<Option<String>> {
        DB::text(self.row, self.selection.position(column))
    }

    /// Returns a time; `None` if it is NULL or out of range.
    pub(super) fn time(&self, column: Column) -> Option<SystemTime> {
        self.int(column).and_then(time)
    }
}

/// Reads the first `N` values of a row as numbers.
pub(super) fn ints<DB: Backend, const N: usize>(row: &DB::Row) -> [Option<i64>; N] {
    std::array::from_fn(|position| DB::int(row, position).ok().flatten())
}

/// Reads a text and the `N` numbers after it. Returns `None` if the text is NULL or not a text.
pub(super) fn text_and_ints<DB: Backend, const N: usize>(
    row: &DB::Row,
) -> Option<(String, [Option<i64>; N])> {
    let text = DB::text(row, 0).ok().flatten()?;
    Some((text, std::array::from_fn(|position| DB::int(row, 1 + position).ok().flatten())))
}

/// Returns the sequences of rows whose first column is the sequence.
pub(super) fn sequences<DB: Backend>(rows: &[DB::Row]) -> Vec<i64> {
    rows.iter().filter_map(|row| DB::int(row, 0).ok().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::schema;

    /// The migrations of each database.
    const MIGRATIONS: [&[&str]; 3] = [
        &[
            include_str!("schema/mysql/0001_create.sql"),
            include_str!("schema/mysql/0002_subscription.sql"),
            include_str!("schema/mysql/0003_subscriptions.sql"),
        ],
        &[
            include_str!("schema/postgres/0001_create.sql"),
            include_str!("schema/postgres/0002_subscription.sql"),
            include_str!("schema/postgres/0003_subscriptions.sql"),
        ],
        &[
            include_str!("schema/sqlite/0001_create.sql"),
            include_str!("schema/sqlite/0002_subscription.sql"),
            include_str!("schema/sqlite/0003_subscriptions.sql"),
        ],
    ];

    /// Returns the columns of the outbox table that a migration creates. Keys and constraints begin in upper case, and
    /// a storage parameter has an equals sign. A computed column belongs to its index, and no statement reads it.
    fn created(migration: &str) -> Vec<String> {
        let statements = schema::plan::statements(migration);
        let of_table = statements.iter().filter(|statement| statement.contains("{table}"));
        let columns = of_table.flat_map(|statement| statement.lines()).filter_map(|line| {
            let definition = line.split("ADD COLUMN ").last().unwrap_or_default();
            let (name, rest) = definition.trim_start().split_once(' ')?;
            let is_column = name.starts_with(|letter: char| letter.is_ascii_lowercase());
            let is_stored = !rest.starts_with('=') && !rest.contains("GENERATED ALWAYS AS (");
            (is_column && is_stored).then(|| name.to_owned())
        });
        columns.collect()
    }

    #[test]
    fn the_list_names_the_columns_of_every_migration() {
        let listed: BTreeSet<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(listed.len(), NAMES.len());
        for migrations in MIGRATIONS {
            let columns = migrations.iter().flat_map(|migration| created(migration));
            assert_eq!(columns.collect::<BTreeSet<_>>(), listed, "{migrations:?}");
        }
    }

    #[test]
    fn positions_follow_the_order_of_the_selection() {
        for selection in [&CLAIM, &DEAD, &DEAD_KEY, &BLOCKED, &INSPECTION, &INSERTED, &STATES] {
            for (position, column) in selection.columns.concat().into_iter().enumerate() {
                assert_eq!(selection.position(column), position, "{column:?}");
            }
        }
    }

    /// Expressions that the statement itself contains come after the rendered ones.
    #[test]
    fn computed_expressions_are_the_last() {
        for selection in [&CLAIM, &DEAD, &DEAD_KEY, &BLOCKED, &INSPECTION, &INSERTED, &STATES] {
            let columns: Vec<Column> = selection.columns.concat();
            let is_rendered = |column: &Column| column.expression().is_some();
            assert!(columns.is_sorted_by_key(|column| !is_rendered(column)), "{columns:?}");
        }
    }

    #[test]
    fn lists_are_rendered_with_their_forms() {
        assert_eq!(
            expand("SELECT {dead_key_columns} FROM"),
            "SELECT {int:entry.sequence}, entry.event_id, entry.event_type, entry.subscription, entry.last_error, \
             {micros:entry.done_at} FROM"
        );
        assert!(expand("{columns}").ends_with(", {text:entry.payload}"));
    }
}
