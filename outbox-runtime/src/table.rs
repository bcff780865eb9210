use thiserror::Error;

/// The table that an outbox uses if nothing else is said.
pub const DEFAULT_TABLE: &str = "outbox_event";

/// The longest part of a table name: what PostgreSQL keeps of an identifier.
const MAX_PART_BYTES: usize = 63;

/// The name of an outbox's table: `name` or `schema.name`.
///
/// This is the only thing that is ever formatted into SQL, and it is always quoted, so keywords work.
///
/// ```
/// # use outbox_runtime::store::Table;
/// assert!(Table::new("order").is_ok());
/// assert!(Table::new("billing.outbox_event").is_ok());
/// assert!(Table::new("outbox; DROP TABLE orders").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table {
    // Boxed, since errors carry it.
    schema: Option<Box<str>>,
    name: Box<str>,
}

/// Why a text cannot be the name of a table.
#[derive(Debug, Error)]
#[error("`{name}` cannot be the name of a table: {reason}")]
pub struct TableError {
    name: String,
    reason: &'static str,
}

impl TableError {
    /// What is wrong with the name.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl Table {
    /// Checks a name.
    ///
    /// # Errors
    /// If a part is empty, longer than 63 bytes, or has other characters than ASCII letters, digits
    /// and `_`, or begins with a digit; or if there are more than two parts.
    pub fn new(name: &str) -> Result<Self, TableError> {
        let refused = |reason| TableError { name: name.to_owned(), reason };
        let parts: Vec<&str> = name.split('.').collect();
        for part in &parts {
            check(part).map_err(refused)?;
        }
        match parts.as_slice() {
            [table] => Ok(Self { schema: None, name: (*table).into() }),
            [schema, table] => Ok(Self { schema: Some((*schema).into()), name: (*table).into() }),
            _ => Err(refused("it has more than two parts; write `table` or `schema.table`")),
        }
    }

    /// The schema, if one was named.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The name without the schema.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another table in the same schema.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self { schema: self.schema.clone(), name: name.into() }
    }

    pub(crate) fn quoted(&self, quote: char) -> String {
        match &self.schema {
            Some(schema) => format!("{quote}{schema}{quote}.{quote}{}{quote}", self.name),
            None => format!("{quote}{}{quote}", self.name),
        }
    }

    /// The name of something that belongs to the table, shortened by a hash where it would be too
    /// long.
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
        return Err("a part of it is empty");
    }
    if part.len() > MAX_PART_BYTES {
        return Err("a part of it has more than 63 bytes");
    }
    if !part.bytes().all(|byte| letter(byte) || byte.is_ascii_digit()) {
        return Err("it may have only ASCII letters, digits and `_`");
    }
    if !part.bytes().next().is_some_and(letter) {
        return Err("a part of it begins with a digit");
    }
    Ok(())
}

/// A hash that is the same in every release of every compiler.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_identifiers_and_keywords() {
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
            "`a.b.c` cannot be the name of a table: it has more than two parts; write `table` or \
             `schema.table`"
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
