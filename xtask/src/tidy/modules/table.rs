//! The table of the module graph in the document.

use std::collections::BTreeMap;

use super::graph::Graph;

const HEADING: &str = "## Module graph";
const HEADER: &str = "| module | uses |";
/// Stands in the second column of a module that uses no other.
const NONE: &str = "–";

/// Returns the table of a graph, as Markdown.
pub(super) fn render(graph: &Graph) -> String {
    let mut text = format!("{HEADER}\n|---|---|\n");
    for module in graph.modules() {
        let uses: Vec<String> = graph.uses(module).iter().map(|name| format!("`{name}`")).collect();
        let uses = if uses.is_empty() { NONE.to_owned() } else { uses.join(", ") };
        text.push_str(&format!("| `{module}` | {uses} |\n"));
    }
    text
}

/// Returns one line for each difference between the graph and the table in the document.
pub(super) fn compare(graph: &Graph, document: &str) -> Vec<String> {
    let Some(rows) = parse(document) else {
        return vec![format!(
            "no table `{HEADER}` under `{HEADING}`; `cargo xtask modules` prints it"
        )];
    };
    let mut faults = Vec::new();
    for module in graph.modules() {
        if !rows.contains_key(module.as_str()) {
            faults.push(format!("the module graph has no row for `{module}`"));
        }
    }
    for (from, to) in graph.edges() {
        if rows.get(from).is_some_and(|uses| !uses.contains(&to)) {
            let place = graph.places((from, to)).first().map_or("", String::as_str);
            faults.push(format!("the module graph lacks `{from}` → `{to}`, used in {place}"));
        }
    }
    for (module, uses) in &rows {
        if !graph.modules().iter().any(|name| name == module) {
            faults.push(format!("the module graph has a row for `{module}`, which is no module"));
            continue;
        }
        let actual = graph.uses(module);
        for used in uses.iter().filter(|used| !actual.contains(**used)) {
            faults.push(format!("the module graph has `{module}` → `{used}`, which no code uses"));
        }
    }
    faults
}

/// Returns the rows of the table by module; none if there is no table.
fn parse(document: &str) -> Option<BTreeMap<&str, Vec<&str>>> {
    let section = document.lines().skip_while(|line| line.trim_end() != HEADING).skip(1);
    let mut lines = section.take_while(|line| !line.starts_with("## "));
    lines.find(|line| line.trim_end() == HEADER)?;
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    Some(rows.filter_map(row).collect())
}

fn row(line: &str) -> Option<(&str, Vec<&str>)> {
    let (module, uses) = line.trim_end().trim_matches('|').split_once('|')?;
    let uses = uses.split(',').map(unquoted).filter(|name| *name != NONE && !name.is_empty());
    Some((unquoted(module), uses.collect()))
}

fn unquoted(cell: &str) -> &str {
    cell.trim().trim_matches('`')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(rows: &str) -> String {
        format!(
            "# A\n\n{HEADING}\n\nText.\n\n{HEADER}\n|---|---|\n{rows}\n## Next\n\n| `x` | `y` |\n"
        )
    }

    #[test]
    fn a_rendered_table_is_right() {
        let graph = Graph::sample("abc", &["ab", "ac", "bc"]);
        let table = render(&graph);
        assert_eq!(
            table,
            "| module | uses |\n|---|---|\n| `a` | `b`, `c` |\n| `b` | `c` |\n| `c` | – |\n"
        );
        let rows = table.lines().skip(2).collect::<Vec<_>>().join("\n");
        assert_eq!(compare(&graph, &document(&rows)), [""; 0]);
    }

    #[test]
    fn every_difference_is_reported() {
        let graph = Graph::sample("abc", &["ab", "ac"]);
        let rows = "| `a` | `c`, `d` |\n| `b` | `a` |\n| `z` | – |\n";
        assert_eq!(
            compare(&graph, &document(rows)),
            [
                "the module graph has no row for `c`",
                "the module graph lacks `a` → `b`, used in a.rs:1",
                "the module graph has `a` → `d`, which no code uses",
                "the module graph has `b` → `a`, which no code uses",
                "the module graph has a row for `z`, which is no module",
            ]
        );
    }

    #[test]
    fn a_missing_table_is_one_fault() {
        let graph = Graph::sample("ab", &["ab"]);
        let elsewhere = format!("{HEADING}\n\nText.\n\n## Next\n\n{HEADER}\n|---|---|\n");
        for document in ["", "## Module graph", elsewhere.as_str()] {
            assert_eq!(
                compare(&graph, document),
                [
                    "no table `| module | uses |` under `## Module graph`; `cargo xtask modules` prints it"
                ]
            );
        }
    }
}
