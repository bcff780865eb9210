//! The list of public items, `outbox/api.txt`. A change of the public API changes this file, so that it is seen in a
//! review. `cargo xtask semver` compares whole signatures with an earlier revision.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::cargo::{cargo, has, root, run};

const LIST: &str = "outbox/api.txt";

/// The marks that rustdoc puts on the parts of an item.
const PARTS: [(&str, &str); 5] = [
    ("variant.", "variant"),
    ("structfield.", "field"),
    ("tymethod.", "required method"),
    ("method.", "method"),
    ("associatedconstant.", "constant"),
];

/// Generates the documentation and compares the list with it, or writes the list.
pub(crate) fn run_with(write: bool) -> Result {
    run(cargo("doc --package outbox --all-features --no-deps"))?;
    let list = list(&root().join("target/doc/outbox"))?;
    if write {
        fs::write(root().join(LIST), &list)?;
        println!("\n{LIST}: {} items and parts", list.lines().count());
        return Ok(());
    }
    compare(&fs::read_to_string(root().join(LIST))?, &list)
}

/// Compares the public API with that of an earlier revision.
pub(crate) fn semver(revision: &str) -> Result {
    if !has("semver-checks", "install it with `cargo install cargo-semver-checks --locked`") {
        return Err("the public API was not compared".into());
    }
    let packages = "--package outbox --package outbox-runtime --package outbox-macros";
    run(cargo(&format!("semver-checks {packages} --all-features --baseline-rev {revision}")))
}

fn compare(committed: &str, current: &str) -> Result {
    let (committed, current): (BTreeSet<&str>, BTreeSet<&str>) =
        (committed.lines().collect(), current.lines().collect());
    let removed = committed.difference(&current).map(|line| format!("- {line}"));
    let added = current.difference(&committed).map(|line| format!("+ {line}"));
    let changes: Vec<String> = removed.chain(added).collect();
    if changes.is_empty() {
        println!("<== {} items and parts, as in {LIST}", current.len());
        return Ok(());
    }
    let changes = changes.join("\n  ");
    Err(format!(
        "the public API has changed:\n  {changes}\n\nif that is intended, run `cargo xtask api --write` and mention it \
         in CHANGELOG.md"
    )
    .into())
}

/// Lists the items of a documented crate with their fields, variants and methods, from the pages of rustdoc: they show
/// exactly what a user sees, with re-exports in their place.
fn list(pages: &Path) -> Result<String> {
    let index = fs::read_to_string(pages.join("all.html"))?;
    let mut lines = BTreeSet::new();
    for link in index.split("<li><a href=\"").skip(1) {
        let Some((page, rest)) = link.split_once("\">") else { continue };
        // The other links lead to headings of the list itself.
        if page.starts_with('#') {
            continue;
        }
        let name = rest.split('<').next().unwrap_or_default();
        let kind = page.rsplit('/').next().and_then(|file| file.split('.').next());
        lines.insert(format!("outbox::{name} ({})", kind.unwrap_or_default()));
        let text = fs::read_to_string(pages.join(page))?;
        lines.extend(parts(&text).map(|(part, kind)| format!("outbox::{name}::{part} ({kind})")));
    }
    if lines.is_empty() {
        return Err("the documentation lists no items".into());
    }
    Ok(lines.into_iter().collect::<Vec<_>>().join("\n") + "\n")
}

/// Returns the parts of an item. Those of traits of other crates, such as `method.clone`, are left out: they come
/// after the heading of the trait implementations.
fn parts(page: &str) -> impl Iterator<Item = (&str, &'static str)> {
    let own = page.split("id=\"trait-implementations\"").next().unwrap_or_default();
    let own = own.split("id=\"deref-methods").next().unwrap_or_default();
    own.split(" id=\"").skip(1).filter_map(|mark| {
        let mark = mark.split('"').next()?;
        let (prefix, kind) = PARTS.iter().find(|(prefix, _)| mark.starts_with(prefix))?;
        let part = &mark[prefix.len()..];
        // A field of a variant has a mark within that of the variant.
        (!part.contains('.')).then_some((part, *kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_other_traits_are_left_out() {
        let page = r#"<section id="method.begin"> <div id="structfield.table">
            <h2 id="trait-implementations"> <section id="method.clone">"#;
        let parts: Vec<_> = parts(page).collect();
        assert_eq!(parts, [("begin", "method"), ("table", "field")]);
    }

    #[test]
    fn every_change_is_named() {
        assert!(compare("a\nb\n", "a\nb\n").is_ok());
        let error = compare("a\nb\n", "b\nc\n").unwrap_err().to_string();
        assert!(error.contains("- a\n  + c"), "{error}");
    }
}
