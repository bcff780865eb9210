//! The command-line arguments. Their doc comments are the help texts.

mod dead;
mod subscriptions;

pub(crate) use dead::{Dead, DeadList, Discard, Replay, Selection};
pub(crate) use subscriptions::{DropSubscription, Listener, Subscriptions};

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser, Subcommand, ValueEnum};
use outbox::admin::{EventFilter, EventQuery, Payloads, Table};
use outbox::event::Status;

use crate::exit;
use crate::output::Format;
use crate::time::{TimeArg, parse_duration};

/// Inspects and maintains the table of an outbox: pending events, dead letters, schema, health.
#[derive(Debug, Parser)]
#[command(name = "outbox", version, after_help = exit::HELP, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Database URL: sqlite:shop.db, postgres://user@host/shop, mysql://user@host/shop. Do not put a
    /// password in it: other users of this machine can read the command line
    #[arg(long, global = true)]
    pub(crate) url: Option<String>,

    /// File that contains the URL, `-` for standard input. Without `--url` and `--url-file`, the URL is
    /// read from the environment variable DATABASE_URL
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,

    /// Table of the outbox: `name` or `schema.name`
    #[arg(long, global = true, default_value_t = Table::default(), value_parser = table)]
    pub(crate) table: Table,

    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

impl Global {
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create the table, or migrate it to the latest version
    Migrate(Migrate),
    /// Show counts: pending, claimed, dead, throughput; and paused subscriptions
    Status(Watch),
    /// List events, newest first
    List(List),
    /// Show one event
    Show(Show),
    /// Make pending events due, end their claims, or delete them
    #[command(subcommand)]
    Pending(Pending),
    /// List, replay or discard dead letters
    #[command(subcommand)]
    Dead(Dead),
    /// List the aggregates of an ordered outbox whose events wait behind one that is not delivered
    Blocked(Blocked),
    /// List or drop subscriptions: the named listeners, each with its own copy of every event
    #[command(subcommand)]
    Subscriptions(Subscriptions),
    /// Pause a listener in every process
    ///
    /// Its events are written and wait until it is resumed. Every process honours the pause within seconds;
    /// calls that are running are not interrupted.
    Pause(Listener),
    /// Resume a listener that was paused
    Resume(Listener),
    /// List the processes that deliver events, with their listeners and events in flight
    Nodes,
    /// Delete old delivered events
    Purge(Purge),
    /// Check schema, indexes, leases and server, with an exit code for deployment pipelines
    Doctor(Doctor),
    /// Follow events as they are written
    ///
    /// A transaction that commits late adds rows with lower sequences than rows already shown. Such rows
    /// are shown when they appear, up to 10,000 rows and 5 minutes behind the newest.
    Tail(Tail),
    /// Print a shell completion script
    Completions { shell: clap_complete::Shell },
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Print the SQL and exit, without connecting
    #[arg(long, conflicts_with = "check")]
    pub(crate) sql: bool,
    /// With `--sql`: print only the statements after this schema version. `--check` shows the version of a table
    #[arg(long, value_name = "VERSION", requires = "sql", default_value_t = 0,
        value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) from: i64,
    /// With `--sql`: print the statements that adopt a table of the original Java framework
    #[arg(long, requires = "sql", conflicts_with = "from")]
    pub(crate) adopt: bool,
    /// Only check whether a migration is pending; if so, exit with 3
    #[arg(long)]
    pub(crate) check: bool,
    /// Also add the index that an ordered outbox needs
    #[arg(long, conflicts_with_all = ["from", "adopt"])]
    pub(crate) ordered: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Refresh every 2 seconds, or at another interval such as `--watch=10`, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "2", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) watch: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only events with this status
    #[arg(long, value_enum)]
    status: Option<StatusArg>,
    /// Maximum number of events
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Only events with a lower sequence, for the next page
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
        let mut query = EventQuery::new().filter(self.filter.resolve(now)).limit(self.limit);
        query.status = self.status.map(StatusArg::status);
        query.below = self.below;
        query.payloads(payloads(self.payload))
    }
}

/// Returns what the flag `--payload` asks for.
fn payloads(included: bool) -> Payloads {
    if included { Payloads::Include } else { Payloads::Omit }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StatusArg {
    New,
    Retry,
    Done,
    Dead,
}

impl StatusArg {
    fn status(self) -> Status {
        match self {
            Self::New => Status::New,
            Self::Retry => Status::Retry,
            Self::Done => Status::Done,
            Self::Dead => Status::Dead,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filter {
    /// Only this event type
    #[arg(long = "type", value_name = "EVENT_TYPE")]
    event_type: Option<String>,
    /// Only this aggregate type
    #[arg(long)]
    aggregate_type: Option<String>,
    /// Only the aggregate with this id
    #[arg(long)]
    aggregate_id: Option<String>,
    /// Only deliveries to this subscription; "" for the unnamed listener
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Only this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only events written (not: died) since this time: `2h` for two hours ago, or UTC such as
    /// 2026-03-01T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = TimeArg::parse)]
    since: Option<TimeArg>,
    /// Only events written before this time
    #[arg(long, value_name = "TIME", value_parser = TimeArg::parse)]
    before: Option<TimeArg>,
}

impl Filter {
    /// Returns the filter; `now` is the time of the database's clock.
    fn resolve(&self, now: SystemTime) -> EventFilter {
        let mut filter = EventFilter::new();
        filter.event_type = self.event_type.clone();
        filter.aggregate_type = self.aggregate_type.clone();
        filter.aggregate_id = self.aggregate_id.clone();
        filter.subscription = self.subscription.clone();
        filter.tenant_id = self.tenant.clone();
        filter.since = self.since.map(|time| time.resolve(now));
        filter.before = self.before.map(|time| time.resolve(now));
        filter
    }
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Id of the event
    pub(crate) id: String,
    /// Show the delivery to this subscription, instead of that to the unnamed listener
    #[arg(long, value_name = "NAME")]
    pub(crate) subscription: Option<String>,
    /// Show the payload
    #[arg(long)]
    pub(crate) payload: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Pending {
    /// Make delayed or retried events due at once
    Due(Ids),
    /// End the claims of events, for example if a listener hangs. Another process may then call the listener
    /// a second time
    Release(Ids),
    /// Delete events that are not delivered yet
    Discard(DiscardPending),
}

#[derive(Debug, Args)]
pub(crate) struct Ids {
    /// Event ids
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DiscardPending {
    /// Event ids
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
    /// Reason, written to standard error with each discarded event
    #[arg(long)]
    pub(crate) reason: String,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Blocked {
    /// Maximum number of aggregates
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// How long an event may be due before it is reported as not claimed
    #[arg(long, default_value = "1m", value_parser = parse_duration, value_name = "DURATION")]
    pub(crate) overdue: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Purge {
    /// Delete events that were delivered longer ago than this
    #[arg(long, default_value = "7d", value_parser = retention, value_name = "DURATION")]
    pub(crate) older_than: Duration,
    /// Also delete events that died longer ago than this, except those that block an aggregate of an ordered
    /// outbox
    #[arg(long, value_parser = retention, value_name = "DURATION")]
    pub(crate) dead_older_than: Option<Duration>,
    /// Only print the number of events
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Event types known to the deployment, separated by commas; a pending event of any other type is an
    /// error
    #[arg(long, value_delimiter = ',', value_name = "EVENT_TYPES")]
    pub(crate) types: Option<Vec<String>>,
    /// How long an event may be due, or a lease expired, before it is reported
    #[arg(long, default_value = "1m", value_parser = parse_duration, value_name = "DURATION")]
    pub(crate) overdue: Duration,
    /// How long a transaction may be open before it is reported
    #[arg(long, default_value = "5m", value_parser = parse_duration, value_name = "DURATION")]
    pub(crate) long_transaction: Duration,
    /// Exit with 3 on warnings too
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Number of existing events to show first
    #[arg(short = 'n', long, default_value_t = 10)]
    pub(crate) lines: u32,
    /// Only this event type
    #[arg(long = "type", value_name = "EVENT_TYPE")]
    pub(crate) event_type: Option<String>,
    /// How often to query for new events
    #[arg(long, default_value = "1s", value_parser = parse_duration, value_name = "DURATION")]
    pub(crate) interval: Duration,
    /// Show payloads
    #[arg(long)]
    payload: bool,
}

impl Tail {
    pub(crate) fn payloads(&self) -> Payloads {
        payloads(self.payload)
    }
}

fn table(name: &str) -> Result<Table, String> {
    Table::new(name).map_err(|error| error.reason().to_owned())
}

fn retention(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        // Zero would delete events that were settled just now.
        Duration::ZERO => Err("must be greater than zero; use a duration such as `1h`".into()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn argument_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    /// Returns the full names of all commands below `command`.
    fn commands(parent: &str, command: &clap::Command) -> Vec<String> {
        let named = |command: &clap::Command| format!("{parent} {}", command.get_name());
        command
            .get_subcommands()
            .flat_map(|command| match command.has_subcommands() {
                true => commands(&named(command), command),
                false => vec![named(command)],
            })
            .collect()
    }

    #[test]
    fn readme_lists_exactly_the_commands() {
        let readme = include_str!("../README.md");
        let documented: Vec<&str> = readme
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .filter(|name| name.starts_with("outbox"))
            .collect();
        assert_eq!(documented, commands("outbox", &Cli::command()));
    }

    #[test]
    fn readme_examples_parse() {
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
