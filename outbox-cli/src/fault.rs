//! Errors of a command, each with a remedy.

use outbox::Error;
use outbox::error::{DatabaseErrorKind, SchemaError};

use crate::exit::Exit;
use crate::output::{BAD, event_count, note, sanitize};

/// An error of a command: the exit code, the message, and what the user can do about it.
#[derive(Debug)]
pub(crate) struct Fault {
    exit: Exit,
    what: String,
    remedy: String,
}

impl Fault {
    pub(crate) fn new(exit: Exit, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { exit, what: what.into(), remedy: remedy.into() }
    }

    /// Creates a fault for a negative result.
    pub(crate) fn negative(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Exit::Negative, what, remedy)
    }

    /// Creates a fault for an invalid command.
    pub(crate) fn usage(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what, remedy)
    }

    /// Creates a fault for a failed operation.
    pub(crate) fn failed(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Exit::Failure, what, remedy)
    }

    /// Creates the fault for a closed standard output. That is not a failure, and nothing is printed.
    pub(crate) fn output_closed() -> Self {
        Self::new(Exit::Success, "", "")
    }

    /// Combines the result of printing a report with the outcome of the command. A failure to print
    /// replaces a successful outcome; a closed standard output does not change the outcome.
    pub(crate) fn conclude(
        printed: Result<(), Self>,
        outcome: Result<Exit, Self>,
    ) -> Result<Exit, Self> {
        match printed {
            Err(fault) if fault.exit != Exit::Success && outcome.is_ok() => Err(fault),
            _ => outcome,
        }
    }

    /// Converts an error of the database driver.
    pub(crate) fn from_driver(doing: &str, error: &sqlx::Error, target: &str) -> Self {
        Self::failed(
            format!("{doing}: {}", message(error)),
            remedy(DatabaseErrorKind::from_error(error), target),
        )
    }

    /// Converts an error of the runtime.
    pub(crate) fn from_error(error: &Error, target: &str) -> Self {
        let kind = error.database_error_kind();
        match error {
            // Not the text of the error itself, which ends with the SQL of the table: that does not help a
            // user who lacks a privilege.
            Error::Schema(SchemaError::Missing { table, source, .. }) => {
                let what = match kind {
                    DatabaseErrorKind::NoTable => {
                        format!("table `{table}` does not exist in {target}")
                    }
                    _ => format!("table `{table}` in {target} cannot be used: {}", message(source)),
                };
                Self::failed(what, remedy(kind, target))
            }
            Error::Schema(SchemaError::NotAnOutbox { table, missing }) => Self::failed(
                format!(
                    "table `{table}` in {target} is not an outbox table: it lacks the columns {}",
                    missing.join(", ")
                ),
                remedy(kind, target),
            ),
            Error::Schema(SchemaError::Older { table, found: 0, .. }) => Self::failed(
                format!("table `{table}` in {target} is one of the original Java framework"),
                "switch the relay of that framework off and run `outbox migrate`, which adopts the table",
            ),
            Error::Schema(SchemaError::NotPermitted { table, missing, sql, source, .. }) => {
                let source = source.as_ref().map(|source| format!(": {}", message(source)));
                Self::failed(
                    format!(
                        "this user lacks privileges on table `{table}` in {target} ({}){}",
                        missing.join(", "),
                        source.unwrap_or_default()
                    ),
                    format!("{}\n  {}", remedy(kind, target), sanitize(sql).trim_end()),
                )
            }
            Error::Schema(SchemaError::Older { table, found, known, .. }) => Self::failed(
                format!(
                    "table `{table}` in {target} has version {found}, and this program needs {known}"
                ),
                "run `outbox migrate`; `outbox migrate --check` shows the SQL",
            ),
            Error::Schema(error @ SchemaError::Migration { source, .. }) => {
                Self::failed(format!("{error}: {}", message(source)), remedy(kind, target))
            }
            Error::NoSuchEvent { .. } => Self::negative(
                error.to_string(),
                "use `outbox list` or `outbox dead list` to see ids",
            ),
            Error::NotDead { .. } => {
                Self::negative(error.to_string(), "use `outbox show` for events of any status")
            }
            Error::NotPending { .. } => Self::negative(
                error.to_string(),
                "use `outbox dead replay` or `outbox dead discard` for dead events",
            ),
            Error::NotClaimed { .. } => {
                Self::negative(error.to_string(), "use `outbox pending due` to make it due at once")
            }
            Error::Claimed { .. } => Self::negative(
                error.to_string(),
                "use `outbox pending release` if the process that claimed it hangs",
            ),
            Error::NoSuchSubscription { .. } => Self::negative(
                error.to_string(),
                "use `outbox subscriptions list` to see names; another outbox may have it (`--table`)",
            ),
            Error::SubscriptionInUse { .. } => Self::negative(
                error.to_string(),
                "use `outbox nodes` to see who has it, or add `--force`; nothing was changed",
            ),
            Error::NoReason => Self::usage("the reason is empty", "give one with `--reason`"),
            Error::Interrupted { done, source } => {
                let Self { what, remedy, .. } = Self::from_error(source, target);
                let again = "run the same command again to continue";
                let remedy = if remedy.is_empty() { remedy } else { format!("\n  {remedy}") };
                Self::failed(
                    format!("stopped after {}: {what}", event_count(*done)),
                    again.to_owned() + &remedy,
                )
            }
            Error::Database { doing, source } => Self::failed(
                format!("the database failed while {doing}: {}", message(source)),
                remedy(kind, target),
            ),
            error => Self::failed(error.to_string(), remedy(kind, target)),
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn report(&self) {
        if !self.what.is_empty() {
            note(&format!("{BAD}error{BAD:#}: {}", sanitize(&self.what)));
        }
        if !self.remedy.is_empty() {
            note(&format!("  {}", self.remedy));
        }
    }
}

fn remedy(kind: DatabaseErrorKind, target: &str) -> String {
    match kind {
        DatabaseErrorKind::Unreachable => {
            format!("check that the server is running and reachable from this machine: {target}")
        }
        DatabaseErrorKind::Login => "check user and password in the URL".to_owned(),
        DatabaseErrorKind::NoDatabase => {
            "check the database name in the URL; a SQLite file is created only if the URL ends with \
             `?mode=rwc`"
                .to_owned()
        }
        DatabaseErrorKind::NoTable => {
            "choose another table with `--table`, or create it with `outbox migrate`".to_owned()
        }
        DatabaseErrorKind::NoColumn => {
            "choose another table with `--table`, or compare it with `outbox migrate --sql`".to_owned()
        }
        DatabaseErrorKind::Rights => {
            "connect as a user with the privilege, or grant it; `outbox migrate --sql` prints the SQL that \
             creates the table"
                .to_owned()
        }
        DatabaseErrorKind::Tls if cfg!(feature = "tls") => {
            "check `sslmode` and the certificates in the URL".to_owned()
        }
        DatabaseErrorKind::Tls => {
            "this program was built without TLS: install it with its default features".to_owned()
        }
        DatabaseErrorKind::ReadOnly => "connect to the primary".to_owned(),
        _ => String::new(),
    }
}

/// Returns the message of the server or the system, without the prefix that the driver adds.
fn message(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Tls(error) => error.to_string(),
        sqlx::Error::PoolTimedOut => "timed out waiting for a connection".to_owned(),
        error => error.to_string(),
    }
}
