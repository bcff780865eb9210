//! The names at the root of the crate, from `lib.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::rust::Token;

/// The modules of the crate, and its other names with the module that each comes from.
#[derive(Debug, Default)]
pub(super) struct Root {
    modules: Vec<String>,
    reexports: BTreeMap<String, String>,
    items: BTreeSet<String>,
}

/// The meaning of a name at the root.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The module of this name, or the one that the item is re-exported from.
    Module(String),
    /// An item of `lib.rs`, or the root itself.
    Root,
    Unknown,
}

impl Root {
    /// Reads the modules, the re-exports and the items from the tokens of `lib.rs`.
    pub(super) fn parse(tokens: &[Token<'_>]) -> Self {
        let mut root = Self::default();
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
        let mut depth = 0;
        for at in 0..tokens.len() {
            match text(at) {
                "{" => depth += 1,
                "}" => depth -= 1,
                "mod" if depth == 0 => root.modules.push(text(at + 1).to_owned()),
                "use" if depth == 0 => root.add_use(&tokens[at + 1..]),
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" if depth == 0 => {
                    root.items.insert(text(at + 1).to_owned());
                }
                _ => {}
            }
        }
        root
    }

    /// Adds the names that a `use` declaration brings to the root. Those of a glob stay unknown.
    fn add_use(&mut self, tokens: &[Token<'_>]) {
        let end = tokens.iter().position(|token| token.text == ";").unwrap_or(tokens.len());
        let texts: Vec<&str> = tokens[..end].iter().map(|token| token.text).collect();
        let Some(module) = texts.iter().find(|text| !matches!(**text, "crate" | "self" | ":"))
        else {
            return;
        };
        for (index, name) in texts.iter().enumerate() {
            let is_leaf = matches!(texts.get(index + 1), None | Some(&("," | "}")));
            if is_leaf && !matches!(*name, "," | "}" | "*") {
                self.reexports.insert((*name).to_owned(), (*module).to_owned());
            }
        }
    }

    /// Adds the macros that a file of a module exports: `#[macro_export]` puts them at the root.
    pub(super) fn add_macros(&mut self, module: &str, tokens: &[Token<'_>]) {
        let texts: Vec<&str> = tokens.iter().map(|token| token.text).collect();
        let exports = texts.iter().enumerate().filter(|(_, text)| **text == "macro_export");
        for (at, _) in exports {
            let after = &texts[at..];
            let Some(keyword) = after.iter().position(|text| *text == "macro_rules") else {
                continue;
            };
            if let Some(name) = after.get(keyword + 2) {
                self.reexports.insert((*name).to_owned(), module.to_owned());
            }
        }
    }

    pub(super) fn modules(&self) -> &[String] {
        &self.modules
    }

    pub(super) fn meaning(&self, name: &str) -> Meaning {
        if self.modules.iter().any(|module| module == name) {
            Meaning::Module(name.to_owned())
        } else if let Some(module) = self.reexports.get(name) {
            Meaning::Module(module.clone())
        } else if name == "self" || self.items.contains(name) {
            Meaning::Root
        } else {
            Meaning::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Meaning, Root};
    use crate::tidy::rust::tokens;

    #[test]
    fn every_name_has_its_module() {
        let root = Root::parse(&tokens(
            "pub mod a; mod b; pub use a::{C, d::{E as F, G}}; pub(crate) use crate::b::H; \
             use b::*; pub fn start() { mod inner; fn inside() {} }",
        ));
        assert_eq!(root.modules(), ["a", "b"]);
        let module = |name: &str| Meaning::Module(name.to_owned());
        let expected = [("a", "a"), ("C", "a"), ("F", "a"), ("G", "a"), ("H", "b")];
        for (name, from) in expected {
            assert_eq!(root.meaning(name), module(from), "{name}");
        }
        assert_eq!(root.meaning("start"), Meaning::Root);
        for name in ["E", "inner", "inside", "*"] {
            assert_eq!(root.meaning(name), Meaning::Unknown, "{name}");
        }
    }

    #[test]
    fn exported_macros_are_at_the_root() {
        let mut root = Root::default();
        let code = "macro_rules! a {} #[macro_export] #[doc(hidden)] macro_rules! b { () => {} }";
        root.add_macros("testing", &tokens(code));
        assert_eq!(root.meaning("a"), Meaning::Unknown);
        assert_eq!(root.meaning("b"), Meaning::Module("testing".to_owned()));
    }
}
