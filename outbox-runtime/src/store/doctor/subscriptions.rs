//! The check that every subscription with pending events is delivered.

use super::{Finding, FindingLevel};
use crate::Error;
use crate::store::{Backend, DatabaseErrorKind, Store, Subscription};

const SUBJECT: &str = "subscriptions";

impl<DB: Backend> Store<DB> {
    /// Looks for subscriptions whose events wait because no node has them, or because they are paused. Returns nothing
    /// if there are no named subscriptions.
    pub(super) async fn check_subscriptions(&self) -> Result<Vec<Finding>, Error> {
        let all = match self.subscriptions().await {
            Err(error) if error.database_error_kind() == DatabaseErrorKind::Rights => {
                let what = "this user may not read the subscriptions or the nodes";
                let remedy = "grant `SELECT` on the tables `outbox_subscription` and `outbox_node`";
                return Ok(vec![Finding::bad(SUBJECT, FindingLevel::Unknown, what, remedy)]);
            }
            // The schema is older, which is another finding.
            Err(error)
                if matches!(
                    error.database_error_kind(),
                    DatabaseErrorKind::NoTable | DatabaseErrorKind::NoColumn
                ) =>
            {
                return Ok(Vec::new());
            }
            all => all?,
        };
        let now = self.now().await?;
        let age = |subscription: &Subscription| {
            let oldest = subscription.oldest.unwrap_or(now);
            now.duration_since(oldest).unwrap_or_default().as_secs()
        };
        let named: Vec<&Subscription> = all.iter().filter(|each| !each.name.is_empty()).collect();
        let waiting = named.iter().filter(|each| each.pending > 0);
        let mut findings: Vec<Finding> = waiting
            .filter_map(|each| {
                let (name, pending, age) = (&each.name, each.pending, age(each));
                if each.nodes.is_empty() {
                    let what = format!(
                        "no running node has `{name}`: {pending} pending, the oldest written {age} s ago"
                    );
                    let remedy = format!(
                        "start a program with its listener, or run `outbox subscriptions drop {name} --reason ..`"
                    );
                    return Some(Finding::warning(SUBJECT, what, remedy));
                }
                let what = format!(
                    "`{name}` is paused: {pending} pending, the oldest written {age} s ago"
                );
                let remedy = format!("run `outbox resume --listener {name}` when it can go on");
                each.paused.then(|| Finding::warning(SUBJECT, what, remedy))
            })
            .collect();
        if findings.is_empty() && !named.is_empty() {
            findings
                .push(Finding::ok(SUBJECT, "none with pending events is paused or without a node"));
        }
        Ok(findings)
    }
}
