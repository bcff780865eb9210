//! What happened, and what to do.

use outbox_runtime::Error;
use outbox_runtime::store::{SchemaError, Trouble};

use crate::exit::Exit;
use crate::output::{BAD, note};

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

    /// What a driver has said about a database at some place.
    pub(crate) fn of_driver(doing: &str, error: &sqlx::Error, place: &str) -> Self {
        Self::failed(format!("{doing}: {}", chain(error)), remedy(Trouble::of(error), place))
    }

    /// What the runtime has said.
    pub(crate) fn of(error: &Error, place: &str) -> Self {
        let trouble = error.trouble();
        match error {
            // Whoever lacks a right is not helped by the SQL of the table.
            Error::Schema(SchemaError::Missing { table, source, .. }) => {
                let what = match trouble {
                    Trouble::NoTable => format!("there is no table `{table}` in {place}"),
                    _ => format!("table `{table}` in {place} cannot be used: {}", chain(source)),
                };
                Self::failed(what, remedy(trouble, place))
            }
            error => Self::failed(chain(error), remedy(trouble, place)),
        }
    }

    /// The same, after something has been said about how far it got.
    pub(crate) fn after(mut self, done: &str) -> Self {
        self.what = format!("{}; {done}", self.what);
        self
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn report(&self) {
        if !self.what.is_empty() {
            note(&format!("{BAD}error{BAD:#}: {}", self.what));
        }
        if !self.remedy.is_empty() {
            note(&format!("  {}", self.remedy));
        }
    }
}

fn remedy(trouble: Trouble, place: &str) -> String {
    match trouble {
        Trouble::Unreachable => {
            format!("see that the server runs and can be reached from here: {place}")
        }
        Trouble::Login => "check user and password in the URL".to_owned(),
        Trouble::NoDatabase => {
            "check the database's name in the URL; a SQLite file is made only if the URL ends with \
             `?mode=rwc`"
                .to_owned()
        }
        Trouble::NoTable => {
            "name another one with `--table`, or make it with `outbox migrate`".to_owned()
        }
        Trouble::Rights => {
            "use a user who may, or have the right granted; `outbox migrate --sql` prints what makes \
             the table"
                .to_owned()
        }
        Trouble::Tls if cfg!(feature = "tls") => {
            "check `sslmode` and the certificates in the URL".to_owned()
        }
        Trouble::Tls => {
            "this program was built without TLS: install it with `cargo install outbox-cli --features \
             tls`"
                .to_owned()
        }
        Trouble::ReadOnly => "connect to the primary".to_owned(),
        _ => String::new(),
    }
}

/// An error and its sources, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = error.source();
    }
    text
}
