//! Table names, the only input that becomes part of SQL.

use outbox::admin::{Table, migration_sql};
use outbox_tests::arbitrary::{config, text};
use proptest::collection::vec;
use proptest::prelude::*;

/// `[A-Za-z_][A-Za-z0-9_]{0,62}`
fn is_part(part: &str) -> bool {
    let first = |letter: char| letter == '_' || letter.is_ascii_alphabetic();
    let mut letters = part.chars();
    letters.next().is_some_and(first)
        && letters.all(|letter| first(letter) || letter.is_ascii_digit())
        && part.len() <= 63
}

fn is_name(name: &str) -> bool {
    match name.split_once('.') {
        Some((schema, table)) => is_part(schema) && is_part(table),
        None => is_part(name),
    }
}

fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[A-Za-z_][A-Za-z0-9_]{0,20}",
        2 => "[A-Za-z0-9_.]{0,4}",
        2 => (60..67_usize).prop_map(|length| "t".repeat(length)),
        2 => ("[A-Za-z_]{1,3}", text(1..=1), "[a-z]{0,3}").prop_map(|(a, b, c)| a + &b + &c),
        1 => text(0..6),
    ]
}

fn valid_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z_][A-Za-z0-9_]{0,62}",
        "[A-Za-z_][A-Za-z0-9_]{0,62}\\.[A-Za-z_][A-Za-z0-9_]{0,62}",
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_table_name_is_one_or_two_identifiers(parts in vec(part(), 1..4)) {
        let name = parts.join(".");
        match Table::new(&name) {
            Ok(table) => {
                prop_assert!(is_name(&name));
                prop_assert_eq!(table.to_string(), &*name);
                let bare = name.rsplit('.').next();
                prop_assert_eq!(Some(table.name()), bare);
                prop_assert_eq!(table.schema(), name.split_once('.').map(|(schema, _)| schema));
            }
            Err(error) => {
                prop_assert!(!is_name(&name));
                prop_assert!(error.to_string().ends_with(error.reason()));
            }
        }
    }

    #[test]
    fn a_valid_name_is_accepted(name in valid_name()) {
        prop_assert!(Table::new(&name).is_ok());
    }
}

proptest! {
    // Rendering a schema takes a while.
    #![proptest_config(proptest::test_runner::Config { cases: 500, ..config() })]

    #[test]
    fn a_name_in_sql_is_quoted(name in "Qq[A-Z]{4}[a-z0-9_]{0,57}") {
        let table = Table::new(&name).unwrap();
        for (sql, quote) in [
            (migration_sql::<sqlx::Sqlite>(&table), '"'),
            (migration_sql::<sqlx::Postgres>(&table), '"'),
            (migration_sql::<sqlx::MySql>(&table), '`'),
        ] {
            // Index names start like the table name.
            let begins = &name[..6];
            prop_assert!(sql.contains(&format!("CREATE TABLE {quote}{name}{quote}")), "{sql}");
            for (place, _) in sql.match_indices(begins) {
                let before = sql[..place].chars().next_back();
                prop_assert!(matches!(before, Some('"' | '`' | '\'')), "{sql}");
            }
        }
    }
}
