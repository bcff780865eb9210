//! The pages can be read on GitHub and in rustdoc: their links lead somewhere in both, and their examples are complete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{read, root};

/// A page of the documentation.
pub(super) struct Page {
    /// The path from the root of the repository, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// Returns the README and every page of the guide.
pub(super) fn all() -> Vec<Page> {
    let names = fs::read_dir(root().join("docs")).expect("docs").map(|entry| {
        entry.expect("an entry of docs").file_name().into_string().expect("a name in UTF-8")
    });
    let mut paths: Vec<String> = names.map(|name| format!("docs/{name}")).collect();
    paths.sort();
    paths.insert(0, "README.md".to_owned());
    assert!(paths.len() > 10, "{paths:?}");
    paths.into_iter().map(|path| Page { text: read(&path), path }).collect()
}

/// The links of rustdoc, which come before each page.
const LINKS_OF_RUSTDOC: &str = "outbox/src/links.md";

const LONGEST_README: usize = 150;

/// A line of a page.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Prose(&'a str),
    /// A line of a code block in a language.
    Code(&'a str, &'a str),
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut language = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), language) {
            (Some(info), None) => language = Some(info),
            (Some(_), Some(_)) => language = None,
            (None, Some(language)) => lines.push(Line::Code(language, line)),
            (None, None) => lines.push(Line::Prose(line)),
        }
    }
    assert_eq!(language, None, "a code block does not end");
    lines
}

/// Returns the prose, without code blocks and code spans.
fn prose(text: &str) -> String {
    let prose: Vec<&str> = lines(text)
        .into_iter()
        .filter_map(|line| match line {
            Line::Prose(line) => Some(line),
            Line::Code(..) => None,
        })
        .collect();
    prose.join("\n").split('`').step_by(2).collect()
}

/// Returns the definitions of references, `[name]: target`, by name.
fn definitions(text: &str) -> BTreeMap<&str, &str> {
    let definition = |line: &'_ str| -> Option<(usize, usize)> {
        let end = line.strip_prefix('[')?.find("]: ")? + 1;
        Some((end, end + "]: ".len()))
    };
    let mut definitions = BTreeMap::new();
    for line in text.lines() {
        let Some((end, target)) = definition(line) else { continue };
        let earlier = definitions.insert(&line[1..end], &line[target..]);
        assert_eq!(earlier, None, "`{line}` is defined twice");
    }
    definitions
}

/// A link in the text.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Link<'a> {
    /// `[text](target)`
    Inline(&'a str),
    /// `[text][name]`
    Reference(&'a str),
    /// `[text]` without a target, which only rustdoc understands.
    Bare(&'a str),
}

/// Returns the links of a text without code.
fn links(prose: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    let mut rest = prose;
    while let Some(start) = rest.find('[') {
        let Some((text, after)) = rest[start + 1..].split_once(']') else { break };
        let target = |open, close| after.strip_prefix(open)?.split_once::<char>(close);
        let is_definition = after.starts_with(": ") && rest[..start].ends_with('\n');
        rest = if let Some((target, after)) = target('(', ')') {
            links.push(Link::Inline(target));
            after
        } else if let Some((name, after)) = target('[', ']') {
            links.push(Link::Reference(name));
            after
        } else {
            if !is_definition {
                links.push(Link::Bare(text));
            }
            after
        };
    }
    links
}

/// Returns the anchors of the headings. GitHub and rustdoc make them in the same way from letters, digits and spaces.
fn anchors(text: &str) -> Vec<String> {
    let heading = |line| match line {
        Line::Prose(line) if line.starts_with('#') => Some(line.trim_start_matches('#').trim()),
        Line::Prose(_) | Line::Code(..) => None,
    };
    let headings: Vec<&str> = lines(text).into_iter().filter_map(heading).collect();
    let is_plain = |char: char| char.is_ascii_alphanumeric() || " -".contains(char);
    for heading in &headings {
        assert!(
            heading.chars().all(is_plain),
            "the anchor of `{heading}` is not the same everywhere"
        );
    }
    headings.iter().map(|heading| heading.to_lowercase().replace(' ', "-")).collect()
}

/// Returns the path from the root of the repository, and the anchor.
fn resolve<'a>(page: &str, target: &'a str) -> (String, Option<&'a str>) {
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    if file.is_empty() {
        return (page.to_owned(), anchor);
    }
    let mut path = PathBuf::from(page);
    path.pop();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{page}: {target}"),
            part => path.push(part),
        }
    }
    (path.to_str().expect("a path in UTF-8").to_owned(), anchor)
}

fn is_web(target: &str) -> bool {
    target.starts_with("https://")
}

#[test]
fn links_lead_to_files_and_headings() {
    for Page { path: page, text } in all() {
        let definitions = definitions(&text);
        let prose = prose(&text);
        let links = links(&prose);
        let mut targets: Vec<&str> = definitions.values().copied().collect();
        for link in &links {
            match link {
                Link::Inline(target) => targets.push(target),
                Link::Reference(name) => {
                    assert!(definitions.contains_key(name), "{page}: `[{name}]` is not defined");
                }
                Link::Bare(text) => panic!("{page}: `[{text}]` has no target"),
            }
            if let Link::Inline(target) = link {
                let stays = is_web(target) || target.starts_with('#');
                assert!(
                    stays,
                    "{page}: `({target})` is no reference, so rustdoc cannot resolve it"
                );
            }
        }
        for name in definitions.keys() {
            assert!(links.contains(&Link::Reference(name)), "{page}: `[{name}]` is not used");
        }
        for target in targets.into_iter().filter(|target| !is_web(target)) {
            let (file, anchor) = resolve(&page, target);
            assert!(root().join(&file).is_file(), "{page}: there is no {file}");
            if let Some(anchor) = anchor {
                let found = anchors(&read(&file)).iter().any(|found| found == anchor);
                assert!(found, "{page}: {file} has no heading #{anchor}");
            }
        }
    }
}

/// rustdoc uses the first definition of a reference, which is the one in `links.md`.
#[test]
fn references_have_the_same_target_in_rustdoc() {
    let links = read(LINKS_OF_RUSTDOC);
    let in_rustdoc = definitions(&links);
    let manifest = read("Cargo.toml");
    let repository =
        manifest.split("repository = \"").nth(1).and_then(|rest| rest.split('"').next());
    let repository = repository.expect("the address of the repository");
    let mut used = BTreeSet::new();
    for Page { path: page, text } in all() {
        for (name, target) in definitions(&text) {
            let (file, anchor) = resolve(&page, target);
            let module = match file.strip_prefix("docs/").and_then(|name| name.strip_suffix(".md"))
            {
                Some("README") => "crate::guide".to_owned(),
                Some(name) => format!("crate::guide::{}", name.replace('-', "_")),
                None => format!("{repository}/blob/main/{file}"),
            };
            let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
            let expected = module + &anchor;
            assert_eq!(in_rustdoc.get(name), Some(&&*expected), "{page}: `[{name}]`");
            used.insert(name.to_owned());
        }
    }
    let unused: Vec<&&str> = in_rustdoc.keys().filter(|name| !used.contains(**name)).collect();
    assert!(unused.is_empty(), "{LINKS_OF_RUSTDOC}: {unused:?} are not used");
}

#[test]
fn every_page_is_in_the_index_and_in_rustdoc() {
    let index = read("docs/README.md");
    let module = read("outbox/src/guide.rs");
    for Page { path, .. } in all() {
        let Some(name) = path.strip_prefix("docs/") else { continue };
        let include = format!("doc = include_str!(\"../docs/{name}\")");
        assert!(module.contains(&include), "outbox/src/guide.rs does not include {name}");
        let is_listed = definitions(&index).values().any(|target| *target == name);
        assert!(is_listed || name == "README.md", "docs/README.md does not list {name}");
    }
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= LONGEST_README, "README.md has {lines} lines; at most {LONGEST_README}");
}

/// rustdoc hides lines that begin with `# `, and GitHub does not.
#[test]
fn examples_have_no_hidden_lines() {
    for Page { path, text } in all() {
        for line in lines(&text) {
            let Line::Code(language, line) = line else { continue };
            let is_hidden = line.trim() == "#" || line.trim_start().starts_with("# ");
            assert!(!is_hidden || !language.starts_with("rust"), "{path}: `{line}` is hidden");
        }
    }
}

/// An example without a language is taken for Rust by rustdoc, and one that is ignored is not compiled.
#[test]
fn examples_name_their_language() {
    const LANGUAGES: [&str; 7] =
        ["rust", "rust,no_run", "rust,standalone_crate", "sh", "sql", "text", "toml"];
    for Page { path, text } in all() {
        for line in lines(&text) {
            let Line::Code(language, line) = line else { continue };
            assert!(LANGUAGES.contains(&language), "{path}: `{language}` at `{line}`");
        }
    }
}

#[test]
fn the_parser_finds_every_kind_of_link() {
    let text =
        "# A b\n\n[a](#b), [c\nd][e] and `[f]` [g]\n\n```rust\n# hidden [h]\n```\n\n[e]: x.md#y\n";
    let found = [Link::Inline("#b"), Link::Reference("e"), Link::Bare("g")];
    assert_eq!(links(&prose(text)), found);
    assert_eq!(definitions(text), BTreeMap::from([("e", "x.md#y")]));
    assert_eq!(anchors(text), ["a-b"]);
    assert!(lines(text).contains(&Line::Code("rust", "# hidden [h]")));
    assert_eq!(resolve("docs/a.md", "../b/c.md#d"), ("b/c.md".to_owned(), Some("d")));
    assert_eq!(resolve("docs/a.md", "#d"), ("docs/a.md".to_owned(), Some("d")));
}
