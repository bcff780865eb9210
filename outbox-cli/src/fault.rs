//! What happened, and what to do.

use outbox_runtime::Error;
use outbox_runtime::store::{DatabaseErrorKind, SchemaError};

use crate::exit::Exit;
use crate::output::{BAD, events, harmless, note};

/// Why a command did not do what it was asked to.
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

    /// The answer is no.
    pub(crate) fn no(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Exit::No, what, remedy)
    }

    /// It cannot be done like that.
    pub(crate) fn usage(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what, remedy)
    }

    /// It failed.
    pub(crate) fn failed(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Exit::Failed, what, remedy)
    }

    /// Nobody reads any further: that is no failure, and there is nobody to tell.
    pub(crate) fn nobody_reads() -> Self {
        Self::new(Exit::Done, "", "")
    }

    /// What a command came to, after that was told. If nobody reads it, it came to the same.
    pub(crate) fn conclude(
        told: Result<(), Self>,
        came_to: Result<Exit, Self>,
    ) -> Result<Exit, Self> {
        match told {
            Err(fault) if fault.exit != Exit::Done && came_to.is_ok() => Err(fault),
            _ => came_to,
        }
    }

    /// What a driver has said about a database at some place.
    pub(crate) fn of_driver(doing: &str, error: &sqlx::Error, place: &str) -> Self {
        Self::failed(
            format!("{doing}: {}", said(error)),
            remedy(DatabaseErrorKind::from_error(error), place),
        )
    }

    /// What the runtime has said.
    pub(crate) fn of(error: &Error, place: &str) -> Self {
        let trouble = error.database_error_kind();
        match error {
            // Whoever lacks a right is not helped by the SQL of the table.
            Error::Schema(SchemaError::Missing { table, source, .. }) => {
                let what = match trouble {
                    DatabaseErrorKind::NoTable => format!("there is no table `{table}` in {place}"),
                    DatabaseErrorKind::NoColumn => {
                        format!(
                            "table `{table}` in {place} is not an outbox table: {}",
                            said(source)
                        )
                    }
                    _ => format!("table `{table}` in {place} cannot be used: {}", said(source)),
                };
                Self::failed(what, remedy(trouble, place))
            }
            Error::Schema(error @ SchemaError::Migration { source, .. }) => {
                Self::failed(format!("{error}: {}", said(source)), remedy(trouble, place))
            }
            Error::NoSuchEvent { .. } => {
                Self::no(error.to_string(), "`outbox dead list` shows the ids of dead events")
            }
            Error::NotDead { .. } => Self::no(error.to_string(), "`outbox show` shows any event"),
            Error::NoReason => {
                Self::usage("a reason must say something", "give it with `--reason`")
            }
            Error::Interrupted { done, source } => {
                let Self { what, remedy, .. } = Self::of(source, place);
                let again = "run the same command again: it goes on from there";
                let remedy = if remedy.is_empty() { remedy } else { format!("\n  {remedy}") };
                Self::failed(
                    format!("stopped after {}: {what}", events(*done)),
                    again.to_owned() + &remedy,
                )
            }
            Error::Database { doing, source } => Self::failed(
                format!("the database failed while {doing}: {}", said(source)),
                remedy(trouble, place),
            ),
            error => Self::failed(error.to_string(), remedy(trouble, place)),
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn report(&self) {
        if !self.what.is_empty() {
            note(&format!("{BAD}error{BAD:#}: {}", harmless(&self.what)));
        }
        if !self.remedy.is_empty() {
            note(&format!("  {}", self.remedy));
        }
    }
}

fn remedy(trouble: DatabaseErrorKind, place: &str) -> String {
    match trouble {
        DatabaseErrorKind::Unreachable => {
            format!("see that the server runs and can be reached from here: {place}")
        }
        DatabaseErrorKind::Login => "check user and password in the URL".to_owned(),
        DatabaseErrorKind::NoDatabase => {
            "check the database's name in the URL; a SQLite file is made only if the URL ends with \
             `?mode=rwc`"
                .to_owned()
        }
        DatabaseErrorKind::NoTable => {
            "name another one with `--table`, or make it with `outbox migrate`".to_owned()
        }
        DatabaseErrorKind::NoColumn => {
            "name another one with `--table`, or compare it with `outbox migrate --sql`".to_owned()
        }
        DatabaseErrorKind::Rights => {
            "use a user who may, or have the right granted; `outbox migrate --sql` prints what makes \
             the table"
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

/// What the server or the system said, without what the driver adds.
fn said(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Tls(error) => error.to_string(),
        sqlx::Error::PoolTimedOut => "no connection was to be had in time".to_owned(),
        error => error.to_string(),
    }
}
