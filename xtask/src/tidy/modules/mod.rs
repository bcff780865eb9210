//! The graph of the top-level modules of `outbox-runtime`: it must be the one in `ARCHITECTURE.md`, without cycles.

mod graph;
mod paths;
mod root;
mod table;

use std::collections::BTreeSet;
use std::path::Path;

use graph::{Edge, Graph};
use root::{Meaning, Root};

use super::files::{self, File};
use super::rust::{code, tokens, without_tests};
use crate::Result;

const SOURCES: &str = "outbox-runtime/src/";
const DOCUMENT: &str = "ARCHITECTURE.md";

/// Compares the modules with the table in the document, and checks that their graph has no cycle.
pub(super) fn check(files: &[File]) -> Result<Vec<String>> {
    let (graph, mut faults) = read(files)?;
    if let [shortest, more @ ..] = &graph.cycles()[..] {
        let more = match more.len() {
            0 => String::new(),
            count => format!("; `cargo xtask modules` lists {count} more"),
        };
        faults.push(format!("{SOURCES}: the modules form a cycle: {}{more}", shortest.join(" → ")));
    }
    let document = files.iter().find(|file| file.path == DOCUMENT);
    let document = document.map_or("", |file| &file.text);
    faults.extend(
        table::compare(&graph, document).iter().map(|fault| format!("{DOCUMENT}: {fault}")),
    );
    Ok(faults)
}

/// `cargo xtask modules`: prints the table as it should be in the document, and the cycles with their uses.
pub(crate) fn print() -> Result {
    let (graph, faults) = read(&files::read()?)?;
    print!("{}", table::render(&graph));
    let cycles = graph.cycles();
    if !cycles.is_empty() {
        println!("\nCycles:");
    }
    for cycle in &cycles {
        println!("  {}", cycle.join(" → "));
    }
    let mut shown = BTreeSet::new();
    for edge in cycles.iter().flat_map(|cycle| cycle.windows(2)) {
        let edge = (edge[0].as_str(), edge[1].as_str());
        if shown.insert(edge) {
            println!("\n{} → {}:", edge.0, edge.1);
            for place in graph.places(edge) {
                println!("  {place}");
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n").into()) }
}

/// Reads the graph from the sources. Leaves out everything that is compiled for tests only.
fn read(files: &[File]) -> Result<(Graph, Vec<String>)> {
    let sources = files.iter().filter(|file| file.is_rust());
    let sources: Vec<(&str, String)> = sources
        .filter_map(|file| Some((file.path.strip_prefix(SOURCES)?, code(&file.text))))
        .collect();
    let library = sources.iter().find(|(path, _)| *path == "lib.rs");
    let library = library.ok_or_else(|| format!("there is no {SOURCES}lib.rs"))?;
    let mut root = Root::parse(&without_tests(&tokens(&library.1)).0);
    for (path, code) in &sources {
        if let [module, ..] = &module_path(path)[..] {
            root.add_macros(module, &tokens(code));
        }
    }
    let tests = test_modules(&sources);
    let mut graph = Graph::new(root.modules());
    let mut faults = Vec::new();
    for (path, code) in &sources {
        let module = module_path(path);
        if module.is_empty() || is_for_tests(&module, &tests) {
            continue;
        }
        let from = module[0].clone();
        for name in paths::from_root(&without_tests(&tokens(code)).0, module.len()) {
            let place = format!("{SOURCES}{path}:{}", name.line);
            match root.meaning(name.text) {
                Meaning::Module(to) => graph.add(Edge { from: from.clone(), to, place }),
                Meaning::Root => {}
                Meaning::Unknown => faults.push(format!(
                    "{place}: `crate::{}` is no module and not re-exported by name in lib.rs",
                    name.text
                )),
            }
        }
    }
    Ok((graph, faults))
}

/// The path of the module in this file: `store/mysql.rs` is `store`, `mysql`. Empty for `lib.rs`.
fn module_path(file: &str) -> Vec<String> {
    let mut path: Vec<String> = Path::new(file)
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    path.pop_if(|last| last == "mod" || last == "lib");
    path
}

/// The paths of the modules that are declared under `#[cfg(test)]` and in files of their own.
fn test_modules(sources: &[(&str, String)]) -> Vec<Vec<String>> {
    let mut modules = Vec::new();
    for (path, code) in sources {
        for name in without_tests(&tokens(code)).1 {
            let mut module = module_path(path);
            module.push(name.to_owned());
            modules.push(module);
        }
    }
    modules
}

fn is_for_tests(module: &[String], tests: &[Vec<String>]) -> bool {
    module.iter().any(|part| part == "tests") || tests.iter().any(|test| module.starts_with(test))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = "
        pub mod event;
        pub mod store;
        mod write;
        mod error;
        #[cfg(test)]
        mod simulation;
        pub use error::Error;
        pub use write::{Writer, tx::Tx as Transaction};
        pub fn start() { crate::write::go() }";

    fn files(sources: &[(&str, &str)]) -> Vec<File> {
        let library = [("lib.rs", LIBRARY)];
        let source = |(path, text): &(&str, &str)| File {
            path: format!("{SOURCES}{path}"),
            text: (*text).to_owned(),
        };
        library.iter().chain(sources).map(source).collect()
    }

    fn edges(sources: &[(&str, &str)]) -> Vec<String> {
        let (graph, faults) = read(&files(sources)).unwrap();
        assert_eq!(faults, [""; 0]);
        graph.edges().map(|(from, to)| format!("{from} → {to}")).collect()
    }

    #[test]
    fn paths_in_code_count() {
        let found = edges(&[
            ("store/mod.rs", "use crate::event::{Id, Kind};"),
            ("store/mysql.rs", "fn f() { $crate::error::g() }"),
            ("write.rs", "use crate::{event, store::{self, Row}};"),
        ]);
        assert_eq!(found, ["store → event", "store → error", "write → event", "write → store"]);
    }

    #[test]
    fn items_of_the_root_count_for_their_module() {
        let found = edges(&[
            ("event.rs", "fn f() -> crate::Error { crate::start() }"),
            ("store.rs", "use crate::{Transaction, Writer};"),
        ]);
        assert_eq!(found, ["event → error", "store → write"]);
    }

    #[test]
    fn paths_through_super_count_if_they_reach_the_root() {
        let found = edges(&[
            ("event/mod.rs", "use super::store; use super::error::E; mod a { use super::id; }"),
            ("write/tx.rs", "use super::hook; use super::super::{error, event}; fn f(store: S) {}"),
        ]);
        assert_eq!(found, ["event → store", "event → error", "write → event", "write → error"]);
    }

    #[test]
    fn comments_strings_tests_and_own_paths_do_not_count() {
        let found = edges(&[
            ("event.rs", "//! [`crate::store`]\nconst A: &str = \"crate::store\";"),
            ("store/mod.rs", "use crate::store::Row; #[cfg(test)] mod fixture;"),
            ("store/fixture.rs", "use crate::write;"),
            ("store/fixture/deep.rs", "use crate::write;"),
            ("store/tests.rs", "use crate::write;"),
            ("store/tests/more.rs", "use crate::write;"),
            ("simulation/mod.rs", "use crate::write;"),
            ("write.rs", "pub(crate) fn f() {} #[cfg(test)] mod tests { use crate::store; }"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn unknown_names_are_reported() {
        let (_, faults) = read(&files(&[("event.rs", "\nuse crate::{*, Lost};")])).unwrap();
        assert_eq!(
            faults,
            [
                "outbox-runtime/src/event.rs:2: `crate::*` is no module and not re-exported by name in lib.rs",
                "outbox-runtime/src/event.rs:2: `crate::Lost` is no module and not re-exported by name in lib.rs",
            ]
        );
    }

    #[test]
    fn the_check_reports_cycles_and_differences() {
        let mut files = files(&[
            ("event.rs", "use crate::store;"),
            ("store.rs", "use crate::event;\nuse crate::error;"),
        ]);
        files.push(File {
            path: DOCUMENT.to_owned(),
            text: "## Module graph\n\n| module | uses |\n|---|---|\n| `event` | `store` |\n\
                   | `store` | `event`, `write` |\n| `write` | – |\n| `error` | – |\n"
                .to_owned(),
        });
        assert_eq!(
            check(&files).unwrap(),
            [
                "outbox-runtime/src/: the modules form a cycle: event → store → event",
                "ARCHITECTURE.md: the module graph lacks `store` → `error`, used in \
                 outbox-runtime/src/store.rs:2",
                "ARCHITECTURE.md: the module graph has `store` → `write`, which no code uses",
            ]
        );
    }
}
