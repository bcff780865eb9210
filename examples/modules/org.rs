//! The organisation: departments.

use outbox::{Builder, EventType, State, Tx, listener};
use sqlx::{Sqlite, SqlitePool};

use crate::audit::{AuditEvent, AuditTrail};

pub(crate) const SCHEMA: &str = "CREATE TABLE department (id INTEGER PRIMARY KEY, name TEXT)";

#[derive(EventType)]
#[outbox(aggregate = "Department")]
enum OrgEvent {
    DepartmentFounded {
        #[outbox(aggregate_id)]
        department_id: i64,
        name: String,
    },
}

/// Returns the outbox of this module. The name selects the listeners, the table keeps the events.
pub(crate) fn outbox(pool: &SqlitePool) -> Builder<Sqlite> {
    outbox::builder(pool).name("org").table("org_outbox")
}

pub(crate) async fn found_department(
    tx: &mut Tx<Sqlite>,
    department_id: i64,
    name: &str,
) -> outbox::Result<()> {
    let department = sqlx::query("INSERT INTO department VALUES (?, ?)");
    department.bind(department_id).bind(name).execute(&mut **tx).await?;
    tx.write(OrgEvent::DepartmentFounded { department_id, name: name.to_owned() })?;
    tx.write(AuditEvent::Changed { what: format!("department {department_id}") })?;
    Ok(())
}

#[listener(event = OrgEvent::DepartmentFounded { department_id, name }, outbox = "org")]
async fn print_door_sign(department_id: i64, name: String, trail: State<AuditTrail>) {
    trail.add(format!("org: a door sign for department {department_id}, {name}"));
}
