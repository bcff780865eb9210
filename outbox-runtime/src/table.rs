use thiserror::Error;

/// The default name of the outbox table, `outbox_event`.
pub const DEFAULT_TABLE: &str = "outbox_event";

/// The maximum length of a part of a table name. PostgreSQL truncates longer identifiers.
const MAX_PART_BYTES: usize = 63;

/// The validated name of an outbox table: `name` or `schema.name`.
///
/// Tools that work on a table without running an outbox take one: [`Admin::new`](crate::Admin::new),
/// [`DeadEvents::new`](crate::DeadEvents::new), [`migrate`](crate::store::migrate). An outbox makes it from the option
/// [`table`](crate::Config::table). [`Table::default`] is `outbox_event`.
///
/// A schema is a schema on PostgreSQL, a database on MySQL and MariaDB, and an attached database on SQLite. Without
/// one, the connection decides, for example by the `search_path` of PostgreSQL.
///
/// It is the only input that is formatted into SQL. It is always quoted, so keywords are allowed and the case is kept.
///
/// ```
/// use outbox::admin::Table;
///
/// let table = Table::new("billing.outbox_event")?;
/// assert_eq!((table.schema(), table.name()), (Some("billing"), "outbox_event"));
///
/// assert!(Table::new("order").is_ok());
/// assert!(Table::new("outbox; DROP TABLE orders").is_err());
/// # Ok::<(), outbox::admin::TableError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table {
    // Boxed, because it is part of errors, which have to be small.
    schema: Option<Box<str>>,
    name: Box<str>,
}

/// The error for an invalid table name. Its message names the rule that is broken.
///
/// It converts into [`Error::Table`](crate::Error::Table) with `?`.
#[derive(Debug, Error)]
#[error("`{name}` is not a valid table name: {reason}")]
pub struct TableError {
    name: String,
    reason: &'static str,
}

impl TableError {
    /// Returns the rule that is broken, without the name, for a message of your own.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl Table {
    /// Parses a table name, with or without a schema.
    ///
    /// # Errors
    /// Returns an error if there are more than two parts, or if a part is empty, is longer than 63 bytes, contains
    /// other characters than ASCII letters, digits and `_`, or starts with a digit.
    pub fn new(name: &str) -> Result<Self, TableError> {
        let refused = |reason| TableError { name: name.to_owned(), reason };
        let parts: Vec<&str> = name.split('.').collect();
        for part in &parts {
            check(part).map_err(refused)?;
        }
        match parts.as_slice() {
            [table] => Ok(Self { schema: None, name: (*table).into() }),
            [schema, table] => Ok(Self { schema: Some((*schema).into()), name: (*table).into() }),
            _ => Err(refused("it has more than two parts; use `table` or `schema.table`")),
        }
    }

    /// Returns the schema, or `None` if the connection decides about it.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Returns the name without the schema, as it is stored in the table `outbox_schema`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a table with this name in the same schema.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self { schema: self.schema.clone(), name: name.into() }
    }

    pub(crate) fn quoted(&self, quote: char) -> String {
        match &self.schema {
            Some(schema) => format!("{quote}{schema}{quote}.{quote}{}{quote}", self.name),
            None => format!("{quote}{}{quote}", self.name),
        }
    }

    /// Returns the name of an object that belongs to the table, such as an index. A name that would be too long is
    /// shortened and gets a hash.
    pub(crate) fn derived(&self, suffix: &str) -> String {
        let full = format!("{}_{suffix}", self.name);
        if full.len() <= MAX_PART_BYTES {
            return full;
        }
        let tail = format!("_{:016x}_{suffix}", fnv1a(&self.name));
        format!("{}{tail}", &self.name[..MAX_PART_BYTES - tail.len()])
    }
}

impl Default for Table {
    fn default() -> Self {
        Self { schema: None, name: DEFAULT_TABLE.into() }
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{schema}.")?;
        }
        f.write_str(&self.name)
    }
}

fn check(part: &str) -> Result<(), &'static str> {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    if part.is_empty() {
        return Err("a part is empty");
    }
    if part.len() > MAX_PART_BYTES {
        return Err("a part is longer than 63 bytes");
    }
    if !part.bytes().all(|byte| letter(byte) || byte.is_ascii_digit()) {
        return Err("only ASCII letters, digits and `_` are allowed");
    }
    if !part.bytes().next().is_some_and(letter) {
        return Err("a part starts with a digit");
    }
    Ok(())
}

/// Returns a hash that does not change between releases of Rust, because names of indexes depend on it.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_identifiers_and_keywords() {
        for name in ["outbox_event", "order", "SELECT", "_x9", "billing.events", &"x".repeat(63)] {
            assert_eq!(Table::new(name).unwrap().to_string(), name);
        }
    }

    #[test]
    fn refuses_everything_that_needs_escaping() {
        let long = "x".repeat(64);
        for name in [
            "", ".", "a.", ".a", "a..b", "a.b.c", "a b", "a\"b", "a`b", "a'b", "a;b", "ü", "9a",
            &long,
        ] {
            assert!(Table::new(name).is_err(), "{name}");
        }
        let refusal = Table::new("a.b.c").unwrap_err().to_string();
        assert_eq!(
            refusal,
            "`a.b.c` is not a valid table name: it has more than two parts; use `table` or `schema.table`"
        );
    }

    #[test]
    fn derived_names_are_short_and_distinct() {
        assert_eq!(Table::new("a.orders").unwrap().derived("claim"), "orders_claim");
        let first = Table::new(&format!("{}1", "x".repeat(62))).unwrap().derived("claim");
        let second = Table::new(&format!("{}2", "x".repeat(62))).unwrap().derived("claim");
        assert!(first.len() <= 63 && second.len() <= 63);
        assert_ne!(first, second);
    }
}
