//! Connects to the database of a URL. The commands are generic over the three databases.

use std::str::FromStr;
use std::time::Duration;

use outbox::admin::{Admin, Table};
use outbox::tx::Backend;
use sqlx::pool::PoolOptions;
use sqlx::{Connection, Database, MySql, Pool, Postgres, Sqlite};

use crate::args::{Cli, Command, Dead, Global, Subscriptions};
use crate::command;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::network::{self, Network};
use crate::output::Format;
use crate::{redact, url};

/// How long to wait for a server that does not respond.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The table of an outbox, and the output format.
#[derive(Debug)]
pub(crate) struct Session<DB: Backend> {
    pub(crate) admin: Admin<DB>,
    pub(crate) pool: Pool<DB>,
    pub(crate) format: Format,
    /// The redacted URL, for messages.
    target: String,
}

impl<DB: Backend> Session<DB> {
    pub(crate) fn table(&self) -> &Table {
        self.admin.table()
    }

    /// Converts a runtime error; for `map_err`.
    pub(crate) fn fault(&self, error: outbox::Error) -> Fault {
        Fault::from_error(&error, &self.target)
    }
}

pub(crate) async fn run(Cli { global, command }: Cli) -> Result<Exit, Fault> {
    if let Command::Completions { shell } = command {
        return command::completions::run(shell);
    }
    let url = &url::resolve(&global)?;
    match url.split(':').next().unwrap_or_default() {
        "sqlite" => run_on::<Sqlite>(url, &global, command).await,
        "postgres" | "postgresql" => run_on::<Postgres>(url, &global, command).await,
        "mysql" | "mariadb" => run_on::<MySql>(url, &global, command).await,
        _ => Err(Fault::usage(
            format!("{} names no supported database", redact::redacted(url)),
            "use a URL that starts with `sqlite:`, `postgres://` or `mysql://`",
        )),
    }
}

async fn run_on<DB: Backend>(url: &str, global: &Global, command: Command) -> Result<Exit, Fault>
where
    <DB::Connection as Connection>::Options: Network,
{
    if let Command::Migrate(migrate) = &command
        && migrate.sql
    {
        return command::migrate::print::<DB>(&global.table, migrate, global.format());
    }
    let target = redact::redacted(url);
    let options = <DB::Connection as Connection>::Options::from_str(url).map_err(|error| {
        Fault::usage(
            format!("invalid URL {target}: {error}"),
            "in user and password, write `%40` for `@`, `%2F` for `/` and `%3A` for `:`",
        )
    })?;
    check_connection::<DB>(&options, &target).await?;
    let pool = PoolOptions::<DB>::new()
        .max_connections(2)
        .acquire_timeout(CONNECT_TIMEOUT)
        .connect_lazy_with(options.clone());
    let admin = Admin::new(pool.clone(), global.table.clone());
    network::warn_if_unencrypted(&options, &admin, &target).await;
    let session = Session { admin, pool, format: global.format(), target };
    let exit = dispatch(&session, command).await;
    // A server that is gone must not delay the exit.
    let _ = tokio::time::timeout(Duration::from_secs(1), session.pool.close()).await;
    exit
}

/// Connects once outside of the pool. The pool would retry until its timeout and then not report the
/// cause.
async fn check_connection<DB: Database>(
    options: &<DB::Connection as Connection>::Options,
    target: &str,
) -> Result<(), Fault> {
    let doing = format!("cannot connect to {target}");
    let connecting = DB::Connection::connect_with(options);
    let connection = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(connection) => connection,
        Err(_) => Err(sqlx::Error::PoolTimedOut),
    };
    match connection {
        Ok(connection) => {
            // The connection works; an error on close does not matter.
            let _ = connection.close().await;
            Ok(())
        }
        Err(sqlx::Error::PoolTimedOut) => Err(Fault::failed(
            format!("{doing}: no response within {} s", CONNECT_TIMEOUT.as_secs()),
            "check host and port, and that no firewall blocks the connection",
        )),
        Err(error) => Err(Fault::from_driver(&doing, &error, target)),
    }
}

async fn dispatch<DB: Backend>(session: &Session<DB>, command: Command) -> Result<Exit, Fault> {
    match command {
        Command::Migrate(args) => return command::migrate::run(session, &args).await,
        Command::Doctor(args) => return command::doctor::run(session, args).await,
        _ => {}
    }
    session.admin.verify().await.map_err(|error| session.fault(error))?;
    match command {
        Command::Status(args) => command::status::run(session, &args).await,
        Command::List(args) => command::list::run(session, &args).await,
        Command::Show(args) => command::show::run(session, &args).await,
        Command::Dead(Dead::List(args)) => command::dead::list(session, &args).await,
        Command::Dead(Dead::Show(args)) => command::show::run_dead(session, &args).await,
        Command::Dead(Dead::Replay(args)) => command::dead::replay(session, &args).await,
        Command::Dead(Dead::Discard(args)) => command::dead::discard(session, &args).await,
        Command::Pending(args) => command::pending::run(session, &args).await,
        Command::Blocked(args) => command::blocked::run(session, &args).await,
        Command::Subscriptions(Subscriptions::List) => command::subscriptions::list(session).await,
        Command::Subscriptions(Subscriptions::Drop(args)) => {
            command::subscriptions::drop(session, &args).await
        }
        Command::Pause(args) => command::pause::pause(session, &args).await,
        Command::Resume(args) => command::pause::resume(session, &args).await,
        Command::Nodes => command::nodes::run(session).await,
        Command::Purge(args) => command::purge::run(session, &args).await,
        Command::Tail(args) => command::tail::run(session, &args).await,
        Command::Migrate(_) | Command::Doctor(_) | Command::Completions { .. } => Ok(Exit::Success),
    }
}
