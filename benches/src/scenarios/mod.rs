//! The scenarios, in the order in which they run.

mod business;
mod claim_cost;
mod cost;
mod drain;
mod fan_out;
mod hot;
mod housekeeping;
mod idle;
mod latency;
mod ordered;
mod other_process;
mod sustained;
mod write;

pub(crate) use other_process::{RELAY, relay};

use std::pin::Pin;

use sqlx::{MySql, Postgres, Sqlite};

use crate::Result;
use crate::bench::Bench;
use crate::database::Statistics;
use crate::options::{Options, Size};
use drain::Plan;
use write::Shape;

type Run = fn(&mut Bench) -> Pin<Box<dyn Future<Output = Result> + '_>>;

/// One scenario.
pub(crate) struct Scenario {
    /// The database and the subject.
    pub(crate) name: &'static str,
    /// What is compared with what.
    pub(crate) about: &'static str,
    /// The smallest size of a run that includes it. `--only` includes it at any size.
    pub(crate) from: Size,
    pub(crate) run: Run,
}

const BOTH: &[Statistics] = &[Statistics::Analysed, Statistics::Never];
const ANALYSED: &[Statistics] = &[Statistics::Analysed];

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "postgresql/write",
        about: "one event per transaction, not delivered; against BEGIN, INSERT, COMMIT",
        from: Size::Quick,
        run: |bench| {
            Box::pin(write::run::<Postgres>(bench, &[ONE_TASK, FOUR_TASKS, SIXTEEN_TASKS]))
        },
    },
    Scenario {
        name: "postgresql/write-all",
        about: "100 events per transaction, not delivered; against one INSERT with UNNEST",
        from: Size::Quick,
        run: |bench| {
            const SHAPE: Shape = Shape { tasks: 4, per_transaction: 100, bar: Some(0.90) };
            Box::pin(write::run::<Postgres>(bench, &[SHAPE]))
        },
    },
    Scenario {
        name: "postgresql/business",
        about: "what an event adds to an UPDATE of the application; against a raw INSERT, and none",
        from: Size::Quick,
        run: |bench| Box::pin(business::run(bench)),
    },
    Scenario {
        name: "postgresql/hot",
        about: "16 writers, written and delivered; against inserts alone",
        from: Size::Quick,
        run: |bench| Box::pin(hot::run::<Postgres>(bench, 16, BOTH)),
    },
    Scenario {
        name: "postgresql/drain",
        about: "delivery of a full table; against the fastest simple loops",
        from: Size::Quick,
        run: |bench| {
            let (events, rounds) = (bench.size.pick(50_000, 100_000, 100_000), bench.rounds());
            let plan = Plan { events, rounds, statistics: BOTH, bars: [0.95, 0.90] };
            Box::pin(drain::run::<Postgres>(bench, plan))
        },
    },
    Scenario {
        name: "postgresql/large-drain",
        about: "the same with a million events",
        from: Size::Full,
        run: |bench| {
            let plan = Plan { events: 1_000_000, rounds: 3, statistics: BOTH, bars: [0.95, 0.90] };
            Box::pin(drain::run::<Postgres>(bench, plan))
        },
    },
    Scenario {
        name: "postgresql/latency",
        about: "from the commit to the listener in the same process; against the commit",
        from: Size::Quick,
        run: |bench| Box::pin(latency::run(bench)),
    },
    Scenario {
        name: "postgresql/other-process",
        about: "from the commit to the listener in another process, with `notify`; against the commit",
        from: Size::Quick,
        run: |bench| Box::pin(other_process::run(bench)),
    },
    Scenario {
        name: "postgresql/cost",
        about: "CPU, statements, commits and log bytes per event; against raw inserts and loops",
        from: Size::Quick,
        run: |bench| Box::pin(cost::run(bench)),
    },
    Scenario {
        name: "postgresql/idle",
        about: "statements and CPU of a relay without events",
        from: Size::Quick,
        run: |bench| Box::pin(idle::run(bench)),
    },
    Scenario {
        name: "postgresql/claim-cost",
        about: "claims and settlements on large tables; against 10,000 pending events",
        from: Size::Quick,
        run: |bench| Box::pin(claim_cost::run(bench)),
    },
    Scenario {
        name: "postgresql/sustained",
        about: "1,500 events/s behind an old snapshot; the end against the beginning",
        from: Size::Quick,
        run: |bench| Box::pin(sustained::run(bench)),
    },
    Scenario {
        name: "postgresql/ordered",
        about: "order per aggregate; against no order",
        from: Size::Quick,
        run: |bench| Box::pin(ordered::run(bench)),
    },
    Scenario {
        name: "postgresql/fan-out",
        about: "events with three listeners; against one listener",
        from: Size::Quick,
        run: |bench| Box::pin(fan_out::run(bench)),
    },
    Scenario {
        name: "postgresql/housekeeping",
        about: "writers during replay and purge; against the time between (15 minutes)",
        from: Size::Full,
        run: |bench| Box::pin(housekeeping::run(bench)),
    },
    Scenario {
        name: "mariadb/write",
        about: "one event per transaction, not delivered; against BEGIN, INSERT, COMMIT",
        from: Size::Quick,
        run: |bench| Box::pin(write::run::<MySql>(bench, &[Shape { bar: None, ..SIXTEEN_TASKS }])),
    },
    Scenario {
        name: "mariadb/hot",
        about: "16 writers, written and delivered; against inserts alone",
        from: Size::Quick,
        run: |bench| Box::pin(hot::run::<MySql>(bench, 16, ANALYSED)),
    },
    Scenario {
        name: "mariadb/drain",
        about: "delivery of a full table; against the fastest simple loops",
        from: Size::Quick,
        run: |bench| Box::pin(drain::run::<MySql>(bench, smaller_drain(bench))),
    },
    Scenario {
        name: "sqlite/write",
        about: "one event per transaction, not delivered; against BEGIN IMMEDIATE, INSERT, COMMIT",
        from: Size::Quick,
        run: |bench| Box::pin(write::run::<Sqlite>(bench, &[FOUR_TASKS])),
    },
    Scenario {
        name: "sqlite/hot",
        about: "4 writers, written and delivered; against inserts alone",
        from: Size::Quick,
        run: |bench| Box::pin(hot::run::<Sqlite>(bench, 4, ANALYSED)),
    },
    Scenario {
        name: "sqlite/drain",
        about: "delivery of a full table; against the fastest simple loop",
        from: Size::Quick,
        run: |bench| Box::pin(drain::run::<Sqlite>(bench, smaller_drain(bench))),
    },
];

const ONE_TASK: Shape = Shape { tasks: 1, per_transaction: 1, bar: None };
const FOUR_TASKS: Shape = Shape { tasks: 4, ..ONE_TASK };
const SIXTEEN_TASKS: Shape = Shape { tasks: 16, bar: Some(0.95), ..ONE_TASK };

/// The drain of MariaDB and SQLite.
fn smaller_drain(bench: &Bench) -> Plan<'static> {
    let events = bench.size.pick(30_000, 100_000, 100_000);
    Plan { events, rounds: bench.few_rounds(), statistics: ANALYSED, bars: [0.80, 0.80] }
}

/// Returns the scenarios that the options select.
pub(crate) fn selected(options: &Options) -> Vec<&'static Scenario> {
    let is_selected = |scenario: &&Scenario| match &options.only[..] {
        [] => scenario.from <= options.size,
        only => only.iter().any(|part| scenario.name.contains(part)),
    };
    SCENARIOS.iter().filter(is_selected).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: &Options) -> Vec<&'static str> {
        selected(options).iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn names_are_unique_and_the_old_groups_exist() {
        let mut all: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        for group in ["housekeeping", "ordered", "fan-out"] {
            assert_eq!(all.iter().filter(|name| name.contains(group)).count(), 1, "{group}");
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), SCENARIOS.len());
    }

    #[test]
    fn a_quick_run_leaves_out_long_scenarios_unless_they_are_named() {
        let quick = Options { size: Size::Quick, ..Options::default() };
        assert!(!names(&quick).contains(&"postgresql/housekeeping"));
        let named = Options { only: vec!["housekeeping".to_owned()], ..quick };
        assert_eq!(names(&named), ["postgresql/housekeeping"]);
    }
}
