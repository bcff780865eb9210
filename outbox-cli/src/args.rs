//! What can be said.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser, Subcommand, ValueEnum};
use outbox_runtime::event::Status;
use outbox_runtime::store::{DeadFilter, EventQuery, Fingerprint, Table};

use crate::exit;
use crate::output::Form;
use crate::time::{When, parse_span};

/// Looks after the table of an outbox: what waits, what died, what is wrong.
#[derive(Debug, Parser)]
#[command(name = "outbox", version, after_help = exit::HELP, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "With every command")]
pub(crate) struct Global {
    /// The database: sqlite:shop.db, postgres://user@host/shop, mysql://user@host/shop. Other users of this
    /// machine can read it, so keep a password out of it
    #[arg(long, global = true)]
    pub(crate) url: Option<String>,

    /// A file that holds the URL, `-` for standard input. Without `--url` and `--url-file`, the
    /// environment variable DATABASE_URL has it
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,

    /// The outbox's table: `name` or `schema.name`
    #[arg(long, global = true, default_value_t = Table::default(), value_parser = table)]
    pub(crate) table: Table,

    /// Answer in JSON, for programs
    #[arg(long, global = true)]
    json: bool,
}

impl Global {
    pub(crate) fn form(&self) -> Form {
        if self.json { Form::Programs } else { Form::People }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the table, or bring it up to date
    Migrate(Migrate),
    /// How the outbox stands: pending, in hand, dead, throughput
    Status(Watch),
    /// List events, newest first
    List(List),
    /// Show one event
    Show(Show),
    /// Look at what was given up; replay it or discard it
    #[command(subcommand)]
    Dead(Dead),
    /// Delete what was delivered long ago
    Purge(Purge),
    /// Look for what is wrong, with an exit code for deploy gates
    Doctor(Doctor),
    /// Follow events as they are written
    ///
    /// Rows that are committed late have lower sequences than others that came before them. They are
    /// shown when they come, up to 10,000 rows and 5 minutes behind the newest.
    Tail(Tail),
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Print the SQL and do nothing; no connection is made
    #[arg(long, conflicts_with = "check")]
    pub(crate) sql: bool,
    /// Only look whether there is something to do; if so, exit with 3
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Look again every 2 seconds, or as many as you say (`--watch=10`), until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "2", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) watch: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only events in this state
    #[arg(long, value_enum)]
    status: Option<State>,
    /// At most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Only sequences below this one: the next page
    #[arg(long, value_name = "SEQUENCE")]
    below: Option<i64>,
    /// Show payloads
    #[arg(long)]
    pub(crate) payload: bool,
    #[command(flatten)]
    filter: Filter,
}

impl List {
    pub(crate) fn query(&self, now: SystemTime) -> EventQuery {
        let Filter { event_type, aggregate_type, aggregate_id, tenant, since, before } =
            self.filter.clone();
        EventQuery {
            status: self.status.map(State::status),
            event_type,
            aggregate_type,
            aggregate_id,
            tenant_id: tenant,
            since: since.map(|when| when.resolve(now)),
            before: before.map(|when| when.resolve(now)),
            below: self.below,
            limit: self.limit,
            payloads: self.payload,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    New,
    Retry,
    Done,
    Dead,
}

impl State {
    fn status(self) -> Status {
        match self {
            Self::New => Status::New,
            Self::Retry => Status::Retry,
            Self::Done => Status::Done,
            Self::Dead => Status::Dead,
        }
    }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which events")]
pub(crate) struct Filter {
    /// Of this event type
    #[arg(long = "type", value_name = "EVENT_TYPE")]
    pub(crate) event_type: Option<String>,
    /// Of this aggregate type
    #[arg(long)]
    pub(crate) aggregate_type: Option<String>,
    /// Of this aggregate
    #[arg(long)]
    pub(crate) aggregate_id: Option<String>,
    /// Of this tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Written since (not: died since): `2h` ago, or a UTC time such as 2026-03-01T12:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = When::parse)]
    pub(crate) since: Option<When>,
    /// Written before
    #[arg(long, value_name = "WHEN", value_parser = When::parse)]
    pub(crate) before: Option<When>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The event's id
    pub(crate) id: String,
    /// Show its payload
    #[arg(long)]
    pub(crate) payload: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List dead events, oldest first
    List(DeadList),
    /// Show one dead event
    Show(Show),
    /// Have dead events delivered once more
    Replay(Replay),
    /// Delete dead events
    Discard(Discard),
}

#[derive(Debug, Args)]
pub(crate) struct DeadList {
    /// Count them by type and cause instead
    #[arg(long, conflicts_with_all = ["limit", "payload"])]
    pub(crate) causes: bool,
    /// At most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Show payloads
    #[arg(long)]
    pub(crate) payload: bool,
    #[command(flatten)]
    pub(crate) filter: ByCause,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) which: Which,
}

#[derive(Debug, Args)]
pub(crate) struct Discard {
    /// Why; it is written to standard error with each event
    #[arg(long)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Events by their ids, by a filter, or all.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Their ids
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// All that are dead now
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Only show what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    // Last, as its heading holds for all that follows.
    #[command(flatten)]
    pub(crate) filter: ByCause,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ByCause {
    #[command(flatten)]
    filter: Filter,
    /// That died of this cause; `outbox dead list --causes` shows them
    #[arg(long, help_heading = "Which events")]
    cause: Option<Fingerprint>,
}

impl ByCause {
    /// Whether nothing is said.
    pub(crate) fn is_open(&self) -> bool {
        let Filter { event_type, aggregate_type, aggregate_id, tenant, since, before } =
            &self.filter;
        let texts = [event_type, aggregate_type, aggregate_id, tenant];
        texts.iter().all(|text| text.is_none())
            && since.is_none()
            && before.is_none()
            && self.cause.is_none()
    }

    pub(crate) fn resolve(&self, now: SystemTime) -> DeadFilter {
        let Filter { event_type, aggregate_type, aggregate_id, tenant, since, before } =
            self.filter.clone();
        DeadFilter {
            event_type,
            aggregate_type,
            aggregate_id,
            tenant_id: tenant,
            since: since.map(|when| when.resolve(now)),
            before: before.map(|when| when.resolve(now)),
            fingerprint: self.cause,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Purge {
    /// Delete what was delivered longer ago than this
    #[arg(long, default_value = "7d", value_parser = retention, value_name = "SPAN")]
    pub(crate) older_than: Duration,
    /// Delete what died longer ago than this as well
    #[arg(long, value_parser = retention, value_name = "SPAN")]
    pub(crate) dead_older_than: Option<Duration>,
    /// Only count
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The event types that the deploy knows, with commas between them; any other that is pending is
    /// an error
    #[arg(long, value_delimiter = ',', value_name = "EVENT_TYPES")]
    pub(crate) types: Option<Vec<String>>,
    /// How long an event may be due, or a lease be over, until somebody should have come
    #[arg(long, default_value = "1m", value_parser = parse_span, value_name = "SPAN")]
    pub(crate) overdue: Duration,
    /// How long a transaction may be open
    #[arg(long, default_value = "5m", value_parser = parse_span, value_name = "SPAN")]
    pub(crate) long_transaction: Duration,
    /// Exit with 3 for warnings as well
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Begin with so many that are there
    #[arg(short = 'n', long, default_value_t = 10)]
    pub(crate) lines: u32,
    /// Of this event type
    #[arg(long = "type", value_name = "EVENT_TYPE")]
    pub(crate) event_type: Option<String>,
    /// How often to look
    #[arg(long, default_value = "1s", value_parser = parse_span, value_name = "SPAN")]
    pub(crate) interval: Duration,
    /// Show payloads
    #[arg(long)]
    pub(crate) payload: bool,
}

fn table(name: &str) -> Result<Table, String> {
    Table::new(name).map_err(|error| error.reason().to_owned())
}

fn retention(text: &str) -> Result<Duration, String> {
    match parse_span(text)? {
        Duration::ZERO => {
            Err("it would delete what ended a moment ago; say how long to keep it, such as `1h`"
                .into())
        }
        span => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    /// The commands below a command, each with its whole name.
    fn commands(above: &str, command: &clap::Command) -> Vec<String> {
        let named = |command: &clap::Command| format!("{above} {}", command.get_name());
        command
            .get_subcommands()
            .flat_map(|command| match command.has_subcommands() {
                true => commands(&named(command), command),
                false => vec![named(command)],
            })
            .collect()
    }

    #[test]
    fn the_readme_names_every_command_and_no_other() {
        let readme = include_str!("../README.md");
        let documented: Vec<&str> = readme
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .filter(|name| name.starts_with("outbox"))
            .collect();
        assert_eq!(documented, commands("outbox", &Cli::command()));
    }

    #[test]
    fn the_examples_of_the_readme_are_understood() {
        let readme = include_str!("../README.md");
        let examples: Vec<&str> =
            readme.lines().filter(|line| line.starts_with("outbox ")).collect();
        assert_eq!(examples.len(), 5);
        for example in examples {
            let words = example.split('#').next().unwrap_or_default().split_whitespace();
            assert!(Cli::try_parse_from(words).is_ok(), "{example}");
        }
    }
}
