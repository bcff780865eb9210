//! Checks at the end of a test.

use std::collections::{HashMap, HashSet};

use outbox_tests::{IN_TX, LedgerEntry};

use crate::database::FaultDatabase;
use crate::process::read_ledgers;
use crate::testbed::Testbed;

/// Returns what identifies the row of a recipient: the event's id, and the name of the subscription if there is one.
pub(crate) fn row_key(event_id: &str, subscription: &str) -> String {
    match subscription {
        "" | "*" => event_id.to_owned(),
        name => format!("{event_id} {name}"),
    }
}

/// The result of the checks.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    pub(crate) events: usize,
    /// Rows that were delivered: one for each recipient of an event.
    pub(crate) deliveries: usize,
    pub(crate) calls: usize,
    pub(crate) failed_calls: usize,
    /// Events with a transactional listener.
    pub(crate) in_tx: usize,
    /// Events that were delivered more than once, with a known cause.
    pub(crate) repeated: usize,
    pub(crate) problems: Vec<String>,
}

impl Invariants {
    /// Compares the committed events, the table, and the calls of the listeners.
    /// `allowed_repeats` is the number of additional calls a row may have had, by its key.
    pub(crate) async fn check<DB: FaultDatabase>(
        testbed: &Testbed<DB>,
        allowed_repeats: &HashMap<String, usize>,
    ) -> Self {
        let mut invariants = Self::default();
        let business: HashSet<String> = testbed
            .db
            .texts("SELECT event_id FROM business")
            .await
            .into_iter()
            .map(|[id]| id)
            .collect();
        let mut effects: HashMap<String, usize> = HashMap::new();
        for [id] in testbed.db.texts("SELECT event_id FROM effect").await {
            *effects.entry(id).or_default() += 1;
        }
        let text = DB::TEXT;
        let rows = format!(
            "SELECT event_id, subscription, event_type, CAST(attempts AS {text}), CAST(status AS {text}), \
             CASE WHEN done_at IS NULL THEN 'no end' ELSE '' END, COALESCE(locked_by, '') \
             FROM outbox_event"
        );
        let rows: Vec<[String; 7]> = testbed.db.texts(rows).await;
        let mut calls: HashMap<String, Vec<LedgerEntry>> = HashMap::new();
        for entry in read_ledgers(testbed.folder()) {
            invariants.calls += 1;
            invariants.failed_calls += usize::from(entry.fails);
            if !business.contains(&entry.event_id) {
                invariants.problem(format!("delivered, and never committed: {entry}"));
            }
            calls.entry(row_key(&entry.event_id, &entry.subscription)).or_default().push(entry);
        }
        invariants.events = business.len();
        for id in effects.keys().filter(|id| !business.contains(*id)) {
            invariants.problem(format!("{id} had an effect, and was never committed"));
        }
        let recipients = |event_type: &str| match (testbed.settings.fan_out, event_type) {
            (false, _) => 1,
            (true, IN_TX) => 2,
            (true, _) => 3,
        };
        let mut rows_of: HashMap<(&str, &str), usize> = HashMap::new();
        for [id, _, event_type, ..] in &rows {
            *rows_of.entry((id, event_type)).or_default() += 1;
        }
        if rows_of.len() != business.len() {
            invariants.problem(format!("{} events of {}", rows_of.len(), business.len()));
        }
        for ((id, event_type), count) in rows_of {
            if count != recipients(event_type) {
                invariants.problem(format!("{id} of type {event_type} has {count} rows"));
            }
        }
        for [id, subscription, event_type, attempts, status, no_end, locked_by] in &rows {
            let key = row_key(id, subscription);
            if !business.contains(id) {
                invariants.problem(format!("{id} is in the table, and was never committed"));
            }
            if status != "1" || !no_end.is_empty() || !locked_by.is_empty() {
                invariants.problem(format!("{key}: status {status} {no_end} {locked_by}"));
            }
            let Some(calls) = calls.get_mut(&key) else {
                invariants.problem(format!("{key} was never delivered"));
                continue;
            };
            invariants.deliveries += 1;
            if event_type == IN_TX && key == *id {
                invariants.in_tx += 1;
                // A call whose transaction failed is repeated; its writes are rolled back.
                let times = effects.remove(id).unwrap_or_default();
                if times != 1 {
                    invariants.problem(format!("{id} had its effect {times} times: {calls:?}"));
                }
            } else {
                invariants.check_calls(
                    calls,
                    attempts,
                    allowed_repeats.get(&key).copied().unwrap_or(0),
                );
            }
        }
        invariants
    }

    /// Checks the calls for one event: any number of failures, and one success. Each allowed repeat permits
    /// one additional call whose result was not recorded.
    fn check_calls(&mut self, calls: &mut [LedgerEntry], attempts: &str, allowed_repeats: usize) {
        calls.sort_by_key(|call| call.at);
        let failed = calls.iter().filter(|call| call.fails).count();
        let succeeded = calls.len() - failed;
        let recorded: usize = attempts.parse().expect("a number");
        if succeeded == 0 {
            self.problem(format!("no call succeeded: {calls:?}"));
        } else if recorded > failed || succeeded - 1 + failed - recorded > allowed_repeats {
            let details = format!("attempts {attempts}, allowed repeats {allowed_repeats}");
            self.problem(format!("delivered more than once, {details}: {calls:?}"));
        } else if (succeeded, recorded) != (1, failed) {
            self.repeated += 1;
        }
    }

    fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Panics with the history if there are problems.
    pub(crate) fn assert_hold(&self, history: &[String]) {
        if self.problems.is_empty() {
            return;
        }
        let shown: Vec<&str> = self.problems.iter().take(15).map(String::as_str).collect();
        let count = self.problems.len();
        panic!("{}\n{count} problems:\n{}", history.join("\n"), shown.join("\n"));
    }
}
