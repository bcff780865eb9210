//! The statements of a table, rendered once. This is the only file that turns text into SQL.
//!
//! The templates are in the `Dialect` where databases differ, and otherwise in the file that reads the rows.

use std::time::Duration;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::dialect::{self, Alike, Among, Dialect, KeySql, Locking, SkipLocked};
use super::order::{self, OrderSql};
use super::{
    Table, blocked, columns, dead, doctor, filter, insert, inspect, node, peek, pending,
    pending_change, position, purge, restore_order, rights, schema, settle, stats, subscription,
    subscription_rows, unroutable,
};

/// The statements of one table.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) begin: SqlStr,
    pub(super) begin_settling: SqlStr,
    pub(super) begin_work: SqlStr,
    pub(super) guard: Option<SqlStr>,
    pub(super) insert: Insert,
    pub(super) inserted: SqlStr,
    pub(super) existing: SqlStr,
    pub(super) claim_all: Claims,
    pub(super) claim_update: Option<SqlStr>,
    pub(super) claim_one: SqlStr,
    pub(super) order: OrderSql,
    /// For new and for retried events.
    pub(super) in_flight: [SqlStr; 2],
    pub(super) renew: SqlStr,
    pub(super) renew_update: Option<SqlStr>,
    pub(super) restore_order: SqlStr,
    pub(super) settle: Settling,
    pub(super) settle_delete: Settling,
    /// For events that are done under one token: keeps their rows, or deletes them.
    pub(super) settle_alike: Option<[Settling; 2]>,
    /// Locks the rows that no other session has locked, for a transaction that then changes them.
    pub(super) lock_rows: Option<SqlStr>,
    pub(super) states: SqlStr,
    pub(super) dead_query: SqlStr,
    pub(super) dead_one: SqlStr,
    pub(super) dead_count: SqlStr,
    pub(super) dead_count_capped: SqlStr,
    pub(super) dead_keys: SqlStr,
    pub(super) status_of: SqlStr,
    pub(super) replay: SqlStr,
    pub(super) discard: SqlStr,
    pub(super) purge_done: Vec<SqlStr>,
    pub(super) purge_dead: Vec<SqlStr>,
    pub(super) purge_unordered_dead: Vec<SqlStr>,
    pub(super) aged: SqlStr,
    pub(super) delete: Settling,
    /// For delivered and for dead events.
    pub(super) delete_settled: [Settling; 2],
    pub(super) pending: [SqlStr; 2],
    pub(super) estimate: SqlStr,
    pub(super) in_memory: Option<SqlStr>,
    pub(super) table_id: Option<SqlStr>,
    pub(super) connection_limit: Option<SqlStr>,
    pub(super) encrypted: Option<SqlStr>,
    pub(super) notify: Option<SqlStr>,
    pub(super) peek: SqlStr,
    /// For new and for retried events.
    pub(super) window_end: [SqlStr; 2],
    pub(super) now: SqlStr,
    pub(super) inspect: inspect::Sql,
    pub(super) pending_by_type: [[SqlStr; 2]; 2],
    pub(super) pending_changes: [SqlStr; 3],
    pub(super) blocked: blocked::Sql,
    pub(super) doctor: doctor::Sql,
    pub(super) rights: Option<rights::Sql>,
    pub(super) expand: Expand,
    pub(super) subscription: subscription::Sql,
    pub(super) subscription_rows: subscription_rows::Sql,
    pub(super) node: node::Sql,
}

/// A statement that changes rows by primary key.
#[derive(Debug)]
pub(super) struct Settling {
    /// Waits for rows that another session has locked.
    pub(super) waiting: SqlStr,
    /// Skips them; `None` if the free rows are locked first, or if the database has no row locks.
    pub(super) skipping: Option<SqlStr>,
}

/// The statements that expand claimed rows.
#[derive(Debug)]
pub(super) struct Expand {
    pub(super) mark: SqlStr,
    pub(super) copy: SqlStr,
}

/// The statements that insert events.
#[derive(Debug)]
pub(super) enum Insert {
    /// For one row whose id is new, for any number of rows, and for events with several rows.
    Returning { one: SqlStr, many: Insertion, fan_out: Option<Insertion> },
    /// For any number of rows, and for fixed numbers of rows, the largest first and the last one 1.
    Failing { bulk: SqlStr, sizes: [(usize, SqlStr); 3] },
}

/// A statement that inserts rows, in two forms.
#[derive(Debug)]
pub(super) struct Insertion {
    /// For rows with new ids; it fails if a row exists. Returns the sequences, which grow in the order of the rows.
    pub(super) new: SqlStr,
    /// Skips rows that exist, and returns sequence, event id and subscription of the others.
    pub(super) skipping: SqlStr,
}

/// The statements that depend on the event types.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) fresh: SqlStr,
    pub(super) retried: SqlStr,
    /// The candidates of ordered claims, among fresh and among retried rows.
    pub(super) candidates: [SqlStr; 2],
    pub(super) unknown: [SqlStr; 2],
    pub(super) unroutable_types: [SqlStr; 2],
}

impl Statements {
    pub(super) fn new(dialect: &Dialect, table: &Table) -> Self {
        let sql = |template: &str| render(dialect, table, template);
        // For statements that name the tables beside it.
        let beside = |template: &str| of_schema(dialect, table, template);
        let purge = |status: &str, only: &str| {
            let template = |template: &&str| {
                sql(&template.replace("{status}", status).replace("{only}", only))
            };
            dialect.purge.iter().map(template).collect()
        };
        let (renew, renew_update) = match &dialect.renew {
            Locking::AtOnce(renew) => (sql(renew), None),
            Locking::LockThenUpdate { lock, update }
            | Locking::ReadThenUpdate { read: lock, update } => (sql(lock), Some(sql(update))),
        };
        let settling = |template: &str| match dialect.skip_locked {
            SkipLocked::Statement { waiting, skipping } => Settling {
                waiting: sql(&template.replace("{keys}", waiting)),
                skipping: Some(sql(&template.replace("{keys}", skipping))),
            },
            SkipLocked::LockFirst(_) | SkipLocked::Alone => {
                Settling { waiting: sql(template), skipping: None }
            }
        };
        let delete = |only: &str| settling(&dialect.delete.replace("{only}", only));
        let lock_rows = match dialect.skip_locked {
            SkipLocked::LockFirst(lock) => Some(sql(lock)),
            SkipLocked::Statement { .. } | SkipLocked::Alone => None,
        };
        let claim_update = match &dialect.claim {
            Locking::AtOnce(_) => None,
            Locking::LockThenUpdate { update, .. } | Locking::ReadThenUpdate { update, .. } => {
                Some(sql(update))
            }
        };
        Self {
            begin: dialect.begin.into_sql_str(),
            begin_settling: dialect.begin_settling.into_sql_str(),
            begin_work: dialect.begin_work.into_sql_str(),
            guard: dialect.guard.map(SqlSafeStr::into_sql_str),
            insert: Insert::new(&dialect.insert, sql),
            inserted: sql(dialect.existing),
            existing: sql(&[dialect.existing, dialect.existing_lock].concat()),
            claim_all: Claims::new(dialect, table, None),
            claim_update,
            claim_one: sql(insert::CLAIM_ONE),
            order: OrderSql::new(dialect, sql),
            in_flight: ["0", "2"]
                .map(|status| sql(&schema::order::IN_FLIGHT.replace("{status}", status))),
            renew,
            renew_update,
            restore_order: sql(restore_order::RESTORE),
            settle: settling(&settle::render_verdicts(dialect.settle)),
            settle_delete: settling(dialect.settle_delete),
            settle_alike: dialect.settle_alike.map(|Alike { done, delete }| {
                [settling(&settle::render_verdicts(done)), settling(delete)]
            }),
            lock_rows,
            states: sql(dialect.states),
            dead_query: sql(dead::QUERY),
            dead_one: sql(&dead::ONE.replace("{of:$2}", dead::OF)),
            dead_count: sql(dead::COUNT),
            dead_count_capped: sql(stats::DEAD),
            dead_keys: sql(dead::KEYS),
            status_of: sql(&dead::STATUS.replace("{of:$2}", dead::OF)),
            replay: sql(dialect.replay_all),
            // `+ 0` keeps the planner from the index of the status: the rows are found by primary key.
            discard: delete("AND status + 0 = 3").waiting,
            purge_done: purge("1", ""),
            purge_dead: purge("3", ""),
            purge_unordered_dead: purge("3", purge::UNORDERED),
            aged: sql(purge::AGED),
            delete: delete(""),
            // As above.
            delete_settled: [delete("AND status + 0 = 1"), delete("AND status + 0 = 3")],
            pending: ["0", "2"].map(|status| sql(&stats::PENDING.replace("{status}", status))),
            estimate: sql(dialect.estimate),
            in_memory: dialect.in_memory.map(SqlSafeStr::into_sql_str),
            table_id: dialect.table_id.map(sql),
            connection_limit: dialect.connection_limit.map(SqlSafeStr::into_sql_str),
            encrypted: dialect.encrypted.map(SqlSafeStr::into_sql_str),
            notify: dialect.notify.map(SqlSafeStr::into_sql_str),
            peek: sql(peek::PEEK),
            window_end: ["0", "2"].map(|status| {
                let template = position::WINDOW_END.replace("{status}", status);
                sql(&template.replace("{between}", dialect.between))
            }),
            now: sql(stats::NOW),
            inspect: inspect::Sql::new(dialect, sql),
            pending_by_type: pending::sql(sql),
            pending_changes: pending_change::sql(sql),
            blocked: blocked::Sql::new(dialect, sql),
            doctor: doctor::Sql::new(dialect, sql),
            rights: rights::Sql::new(dialect, beside),
            expand: Expand { mark: sql(dialect.fan_out.mark), copy: sql(dialect.fan_out.copy) },
            subscription: subscription::Sql::new(dialect.fan_out.register, beside),
            // As above.
            subscription_rows: subscription_rows::Sql::new(
                sql,
                beside,
                delete("AND status + 0 <> 1").waiting,
            ),
            node: node::Sql::new(dialect.fan_out.beat, beside),
        }
    }
}

impl Insert {
    fn new(insert: &dialect::Insert, sql: impl Fn(&str) -> SqlStr) -> Self {
        match insert {
            dialect::Insert::Returning { one, many, fan_out } => {
                let form = |template: &str, skip: &str, returned: &str| {
                    sql(&template.replace("{skip}", skip).replace("{returned}", returned))
                };
                let keys = "sequence, {text:event_id}, {text:subscription}";
                let insertion = |template: &str| Insertion {
                    new: form(template, "", "sequence"),
                    skipping: form(template, "ON CONFLICT DO NOTHING", keys),
                };
                let fan_out = fan_out.map(insertion);
                Self::Returning { one: sql(one), many: insertion(many), fan_out }
            }
            dialect::Insert::Failing { bulk, head, row } => {
                let sized = |size| {
                    let rows = vec![*row; size].join(", ");
                    (size, sql(&[*head, &rows].concat()))
                };
                Self::Failing { bulk: sql(bulk), sizes: [64, 8, 1].map(sized) }
            }
        }
    }

    /// Returns all of them.
    pub(super) fn each(&self) -> Vec<&SqlStr> {
        match self {
            Self::Returning { one, many, fan_out } => {
                let insertions = [many].into_iter().chain(fan_out);
                let both = insertions.flat_map(|insertion| [&insertion.new, &insertion.skipping]);
                [one].into_iter().chain(both).collect()
            }
            Self::Failing { bulk, sizes } => {
                sizes.iter().map(|(_, sql)| sql).chain([bulk]).collect()
            }
        }
    }
}

/// How many keys of each form a claim is restricted to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restriction {
    pub(super) events: usize,
    pub(super) aggregates: usize,
    pub(super) all: usize,
}

impl Restriction {
    /// Returns the condition that a row has one of the keys, whose first argument is `$next`; `None` if there is none.
    fn render(self, keys: &KeySql, next: &mut usize) -> Option<String> {
        let forms = [
            (keys.event, self.events, "($1, $1, $1)"),
            (keys.aggregate, self.aggregates, "($1, $1)"),
            ("subscription", self.all, "$1"),
        ];
        let compared = forms.into_iter().filter(|(_, count, _)| *count > 0);
        let compared: Vec<String> = compared
            .map(|(key, count, each)| match keys.among {
                Among::Array(among) => {
                    let arg = format!("${next}");
                    *next += 1;
                    format!("{key} {}", among.replace("{arg}", &arg))
                }
                Among::Each => format!("{key} IN ({})", vec![each; count].join(", ")),
            })
            .collect();
        let (before, after) = keys.condition;
        (!compared.is_empty()).then(|| format!("{before}{}{after}", compared.join(" OR ")))
    }
}

impl Claims {
    /// Renders the statements for rows of some keys, without those of others.
    pub(super) fn new(
        dialect: &Dialect,
        table: &Table,
        restrictions: Option<(Restriction, Restriction)>,
    ) -> Self {
        let restriction = |first: usize| {
            let Some((only, except)) = restrictions else { return String::new() };
            let mut next = first;
            let only = only.render(&dialect.keys, &mut next);
            let only = only.map(|only| format!("AND {only}")).unwrap_or_default();
            let except = except.render(&dialect.keys, &mut next);
            let except = except.map(|except| format!(" AND NOT ({except})")).unwrap_or_default();
            only + &except
        };
        let (Locking::AtOnce(claim)
        | Locking::LockThenUpdate { lock: claim, .. }
        | Locking::ReadThenUpdate { read: claim, .. }) = &dialect.claim;
        // The keys are the last arguments of each statement; `first` is the number of the first one.
        let sql = |template: &str, status: &str, first: usize| {
            let template = template
                .replace("{status}", status)
                .replace("{between}", dialect.between)
                .replace("{pairs}", &restriction(first));
            render(dialect, table, &template)
        };
        Self {
            fresh: sql(claim, "0", 10),
            retried: sql(claim, "2", 10),
            candidates: ["0", "2"].map(|status| sql(order::CANDIDATES, status, 8)),
            unknown: ["0", "2"].map(|status| sql(stats::UNKNOWN, status, 1)),
            unroutable_types: ["0", "2"].map(|status| sql(unroutable::TYPES, status, 2)),
        }
    }
}

/// Returns the statement that begins a transaction with our settings, and with those of the relay if there is a
/// time-out. `None` if the dialect has no settings.
pub(super) fn settings(dialect: &Dialect, statement_timeout: Option<Duration>) -> Option<SqlStr> {
    if dialect.settings.is_empty() {
        return None;
    }
    let timeout = statement_timeout.map(|limit| limit.as_millis().to_string());
    let relay = timeout.iter().flat_map(|limit| {
        dialect.relay_settings.iter().copied().chain([("statement_timeout", limit.as_str())])
    });
    let settings = dialect.settings.iter().copied().chain(relay);
    let settings = settings.map(|(name, value)| format!("; SET LOCAL {name} = {value}"));
    Some(safe(dialect.begin_work.to_owned() + &settings.collect::<String>()))
}

/// Returns a statement that begins a transaction and keeps other claims of an ordered outbox out.
pub(super) fn excluding(begin: &SqlStr, dialect: &Dialect, table: &Table) -> SqlStr {
    safe(begin.as_str().to_owned() + &dialect.render(dialect.order.exclude, table))
}

/// Returns the statement that sets up a session of the relay.
pub(super) fn session(dialect: &Dialect, statement_timeout: Duration) -> Option<SqlStr> {
    let seconds = format!("{:.3}", statement_timeout.as_secs_f64());
    let millis = statement_timeout.as_millis().to_string();
    let whole = statement_timeout.as_secs_f64().ceil().to_string();
    let session = dialect.session?.replace("{seconds}", &seconds).replace("{millis}", &millis);
    let mut session = session.replace("{whole}", &whole);
    // The session was started with these settings, but what the application runs on a new
    // connection (`after_connect`) comes later and may have changed them.
    for (name, value) in dialect.settings.iter().chain(dialect.relay_settings) {
        session.push_str(&format!("; SET {name} = {value}"));
    }
    Some(safe(session))
}

/// Renders a statement of the migrations.
pub(super) fn of_schema(dialect: &Dialect, table: &Table, template: &str) -> SqlStr {
    safe(schema::render(dialect, table, &columns::expand(template)))
}

/// Returns the statement that creates a savepoint with the name that sqlx uses at this depth.
pub(super) fn savepoint_of_sqlx(depth: usize) -> SqlStr {
    safe(format!("SAVEPOINT _sqlx_savepoint_{depth}"))
}

/// Renders a statement of a table.
pub(super) fn render(dialect: &Dialect, table: &Table, template: &str) -> SqlStr {
    let template = order::expand(dialect, &filter::expand(&columns::expand(template)));
    safe(dialect.render(&template, table))
}

/// Marks a text as safe: it consists of constants of this crate, of numbers, and of a [`Table`], which is checked and
/// quoted.
fn safe(sql: String) -> SqlStr {
    AssertSqlSafe(sql).into_sql_str()
}
