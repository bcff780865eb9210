//! From a URL to a database. Nothing below knows which of the three it is.

use std::str::FromStr;
use std::time::Duration;

use outbox_runtime::store::{Backend, Store, Table};
use sqlx::pool::PoolOptions;
use sqlx::{Connection, Database, MySql, Postgres, Sqlite};

use crate::args::{Cli, Command, Dead, Global};
use crate::command;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::network::{self, Network};
use crate::output::Form;
use crate::{redact, url};

/// How long to wait for a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// An outbox's table, and whom to answer.
#[derive(Debug)]
pub(crate) struct Session<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) form: Form,
    place: String,
}

impl<DB: Backend> Session<DB> {
    pub(crate) fn table(&self) -> &Table {
        self.store.table()
    }

    /// For `map_err`.
    pub(crate) fn fault(&self, error: outbox_runtime::Error) -> Fault {
        Fault::of(&error, &self.place)
    }
}

pub(crate) async fn run(Cli { global, command }: Cli) -> Result<Exit, Fault> {
    if let Command::Completions { shell } = command {
        return command::completions::run(shell);
    }
    let url = &url::given(&global)?;
    match url.split(':').next().unwrap_or_default() {
        "sqlite" => on::<Sqlite>(url, &global, command).await,
        "postgres" | "postgresql" => on::<Postgres>(url, &global, command).await,
        "mysql" | "mariadb" => on::<MySql>(url, &global, command).await,
        _ => Err(Fault::usage(
            format!("{} leads to no database that is known", redact::shown(url)),
            "begin the URL with `sqlite:`, `postgres://` or `mysql://`",
        )),
    }
}

async fn on<DB: Backend>(url: &str, global: &Global, command: Command) -> Result<Exit, Fault>
where
    <DB::Connection as Connection>::Options: Network,
{
    if let Command::Migrate(migrate) = &command
        && migrate.sql
    {
        return command::migrate::print::<DB>(&global.table, global.form());
    }
    let place = redact::shown(url);
    let options = <DB::Connection as Connection>::Options::from_str(url).map_err(|error| {
        Fault::usage(
            format!("{place} cannot be read as a URL: {error}"),
            "write `%40` for `@`, `%2F` for `/` and `%3A` for `:` in user and password",
        )
    })?;
    reach::<DB>(&options, &place).await?;
    let pool = PoolOptions::<DB>::new()
        .max_connections(2)
        .acquire_timeout(PATIENCE)
        .connect_lazy_with(options.clone());
    let store = Store::new(pool.clone(), global.table.clone());
    network::doctor(&options, &store, &place).await;
    let session = Session { store, form: global.form(), place };
    let exit = dispatch(&session, command).await;
    // A server that is gone does not keep anybody here.
    let _ = tokio::time::timeout(Duration::from_secs(1), pool.close()).await;
    exit
}

/// Connects once outside of the pool, which would try again until its time is up, and then not tell
/// why.
async fn reach<DB: Database>(
    options: &<DB::Connection as Connection>::Options,
    place: &str,
) -> Result<(), Fault> {
    let doing = format!("cannot connect to {place}");
    let connecting = DB::Connection::connect_with(options);
    let connection = match tokio::time::timeout(PATIENCE, connecting).await {
        Ok(connection) => connection,
        Err(_) => Err(sqlx::Error::PoolTimedOut),
    };
    match connection {
        Ok(connection) => {
            // It has answered; how it says goodbye does not matter.
            let _ = connection.close().await;
            Ok(())
        }
        Err(sqlx::Error::PoolTimedOut) => Err(Fault::failed(
            format!("{doing}: no answer within {} s", PATIENCE.as_secs()),
            "see that host and port are right, and that no firewall is in the way",
        )),
        Err(error) => Err(Fault::of_driver(&doing, &error, place)),
    }
}

async fn dispatch<DB: Backend>(session: &Session<DB>, command: Command) -> Result<Exit, Fault> {
    match command {
        Command::Migrate(args) => return command::migrate::run(session, &args).await,
        Command::Doctor(args) => return command::doctor::run(session, args).await,
        _ => {}
    }
    session.store.verify().await.map_err(|error| session.fault(error))?;
    match command {
        Command::Status(args) => command::status::run(session, &args).await,
        Command::List(args) => command::list::run(session, &args).await,
        Command::Show(args) => command::show::run(session, &args).await,
        Command::Dead(Dead::List(args)) => command::dead::list(session, &args).await,
        Command::Dead(Dead::Show(args)) => command::show::run_dead(session, &args).await,
        Command::Dead(Dead::Replay(args)) => command::dead::replay(session, &args).await,
        Command::Dead(Dead::Discard(args)) => command::dead::discard(session, &args).await,
        Command::Purge(args) => command::purge::run(session, &args).await,
        Command::Tail(args) => command::tail::run(session, &args).await,
        Command::Migrate(_) | Command::Doctor(_) | Command::Completions { .. } => Ok(Exit::Done),
    }
}
