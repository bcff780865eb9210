use anstyle::Style;
use outbox::admin::{DoctorOptions, Finding, FindingLevel};
use outbox::tx::Backend;
use serde::Serialize;

use crate::args::Doctor;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{BAD, DIM, Format, GOOD, WARN, print_json, print_text};
use crate::table::{Cell, Columns};

#[derive(Serialize)]
struct Report<'a> {
    table: String,
    errors: usize,
    warnings: usize,
    findings: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    subject: &'a str,
    level: &'a str,
    what: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    remedy: &'a str,
}

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: Doctor) -> Result<Exit, Fault> {
    let Doctor { types, overdue, long_transaction, strict } = args;
    let mut options = DoctorOptions::new().overdue(overdue).long_transaction(long_transaction);
    options.types = types;
    let findings = session.admin.doctor(&options).await.map_err(|error| session.fault(error))?;
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (errors, warnings) = (count(FindingLevel::Error), count(FindingLevel::Warning));
    let printed = match session.format {
        Format::Json => print_json(&Report {
            table: session.table().to_string(),
            errors,
            warnings,
            findings: findings.iter().map(entry).collect(),
        }),
        Format::Text => print_text(&text(&findings, errors, warnings)),
    };
    let worst = if strict { FindingLevel::Warning } else { FindingLevel::Error };
    let bad = findings.iter().any(|finding| finding.level >= worst);
    Fault::conclude(printed, Ok(if bad { Exit::Negative } else { Exit::Success }))
}

fn entry(finding: &Finding) -> Entry<'_> {
    let Finding { subject, level, what, remedy, .. } = finding;
    Entry { subject, level: name(*level).0, what, remedy }
}

fn name(level: FindingLevel) -> (&'static str, Style) {
    match level {
        FindingLevel::Ok => ("ok", GOOD),
        FindingLevel::Unknown => ("unknown", DIM),
        FindingLevel::Warning => ("warning", WARN),
        FindingLevel::Error => ("error", BAD),
    }
}

fn text(findings: &[Finding], errors: usize, warnings: usize) -> String {
    let mut columns = Columns::plain();
    for Finding { subject, level, what, remedy, .. } in findings {
        let (name, style) = name(*level);
        columns.row([Cell::styled(name, style), (*subject).into(), what.into()]);
        if !remedy.is_empty() {
            columns.row(["".into(), "".into(), Cell::styled(format!("→ {remedy}"), DIM)]);
        }
    }
    let plural = |count: usize, name: &str| match count {
        1 => format!("1 {name}"),
        _ => format!("{count} {name}s"),
    };
    format!("{}\n{}, {}", columns.render(), plural(errors, "error"), plural(warnings, "warning"))
}
