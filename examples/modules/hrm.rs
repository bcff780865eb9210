//! Human resources: employees.

use outbox::{Builder, EventType, State, Tx, listener};
use sqlx::{Sqlite, SqlitePool};

use crate::audit::{AuditEvent, AuditTrail};

pub(crate) const SCHEMA: &str =
    "CREATE TABLE employee (id INTEGER PRIMARY KEY, department_id INTEGER)";

#[derive(EventType)]
#[outbox(aggregate = "Employee")]
enum HrmEvent {
    Hired {
        #[outbox(aggregate_id)]
        employee_id: i64,
    },
}

/// Returns the outbox of this module. At most 4 of the program's workers pay and mail people at the same time.
pub(crate) fn outbox(pool: &SqlitePool) -> Builder<Sqlite> {
    outbox::builder(pool).name("hrm").table("hrm_outbox").workers(4)
}

pub(crate) async fn hire(
    tx: &mut Tx<Sqlite>,
    employee_id: i64,
    department_id: i64,
) -> outbox::Result<()> {
    let employee = sqlx::query("INSERT INTO employee VALUES (?, ?)");
    employee.bind(employee_id).bind(department_id).execute(&mut **tx).await?;
    tx.write(HrmEvent::Hired { employee_id })?;
    tx.write(AuditEvent::Changed { what: format!("employee {employee_id}") })?;
    Ok(())
}

#[listener(event = HrmEvent::Hired { employee_id }, outbox = "hrm")]
async fn set_up_salary(employee_id: i64, trail: State<AuditTrail>) {
    trail.add(format!("hrm: a salary for employee {employee_id}"));
}
