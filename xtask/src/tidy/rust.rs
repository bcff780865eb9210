//! A lexer for Rust that knows as much as the checks need: comments, literals, and items for tests.

/// A kind of source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    /// A string or character, without its quotes.
    Literal,
}

/// Returns the code, with comments and literals blanked out. Lines stay where they are.
pub(super) fn code(source: &str) -> String {
    only(Kind::Code, source)
}

/// Returns the comments, with everything else blanked out. Lines stay where they are.
pub(super) fn comments(source: &str) -> String {
    only(Kind::Comment, source)
}

fn only(kind: Kind, source: &str) -> String {
    let kept = |(char, its)| if its == kind || char == '\n' { char } else { ' ' };
    source.chars().zip(classify(source)).map(kept).collect()
}

/// Returns the kind of every character.
fn classify(source: &str) -> Vec<Kind> {
    let chars: Vec<char> = source.chars().collect();
    let mut kinds = Vec::with_capacity(chars.len());
    while let Some(&char) = chars.get(kinds.len()) {
        let at = kinds.len();
        let rest = &chars[at..];
        let after_word = at > 0 && is_word(chars[at - 1]);
        let (kind, length) = match char {
            '/' if rest.starts_with(&['/', '/']) => {
                (Kind::Comment, rest.iter().take_while(|char| **char != '\n').count())
            }
            '/' if rest.starts_with(&['/', '*']) => (Kind::Comment, block_comment(rest)),
            '"' => (Kind::Literal, string(rest)),
            'r' | 'b' | 'c' if !after_word && raw_string(rest).is_some() => {
                (Kind::Literal, raw_string(rest).unwrap_or(1))
            }
            '\'' if char_literal(rest).is_some() => {
                (Kind::Literal, char_literal(rest).unwrap_or(1))
            }
            _ => (Kind::Code, 1),
        };
        kinds.resize(at + length.min(rest.len()), kind);
    }
    kinds
}

/// Block comments nest.
fn block_comment(rest: &[char]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        let step = &rest[at..];
        if step.starts_with(&['/', '*']) {
            (at, depth) = (at + 2, depth + 1);
        } else if step.starts_with(&['*', '/']) {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// The length of `r"…"`, `br#"…"#` and the like. The prefix of `b"…"` is left to be code.
fn raw_string(rest: &[char]) -> Option<usize> {
    let prefix = rest.iter().take_while(|char| matches!(char, 'r' | 'b' | 'c')).count();
    let hashes = rest[prefix..].iter().take_while(|char| **char == '#').count();
    let start = prefix + hashes + 1;
    if prefix > 2 || rest[prefix - 1] != 'r' || rest.get(start - 1) != Some(&'"') {
        return None;
    }
    let mut end = vec!['"'];
    end.resize(hashes + 1, '#');
    let length = rest[start..].windows(end.len()).position(|window| window == end)?;
    Some(start + length + end.len())
}

/// The length of a character literal; none for a lifetime.
fn char_literal(rest: &[char]) -> Option<usize> {
    match rest {
        ['\'', '\\', _, more @ ..] => {
            more.iter().position(|char| *char == '\'').map(|more| more + 4)
        }
        ['\'', _, '\'', ..] => Some(3),
        _ => None,
    }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// A token of code: a word (identifier, keyword, number) or one punctuation character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// The line, counted from 1.
    pub(super) line: usize,
}

/// Splits code without comments and literals into tokens.
pub(super) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|char| !is_word(char)).unwrap_or(rest.len());
            let length = if word > 0 { word } else { first.len_utf8() };
            let (text, after) = rest.split_at(length);
            tokens.push(Token { text, line: index + 1 });
            rest = after.trim_start();
        }
    }
    tokens
}

/// Returns the tokens without the items that are compiled for tests only, and the names of the modules among these
/// items that are in files of their own (`#[cfg(test)] mod tests;`).
pub(super) fn without_tests<'a>(tokens: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<&'a str>) {
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let Some(attribute) = test_attribute(&tokens[at..]) else {
            kept.push(tokens[at]);
            at += 1;
            continue;
        };
        let item = &tokens[at + attribute..];
        let length = item_length(item);
        let texts: Vec<&str> = item[..length].iter().map(|token| token.text).collect();
        if let [.., "mod", name, ";"] = texts[..] {
            modules.push(name);
        }
        at += attribute + length;
    }
    (kept, modules)
}

/// The length of `#[cfg(test)]` or `#[cfg(all(test, …))]`, if the tokens begin with it.
fn test_attribute(tokens: &[Token<'_>]) -> Option<usize> {
    const ATTRIBUTES: [&[&str]; 2] =
        [&["#", "[", "cfg", "(", "test", ")"], &["#", "[", "cfg", "(", "all", "(", "test", ","]];
    let begins = |attribute: &&[&str]| {
        tokens.len() > attribute.len()
            && attribute.iter().zip(tokens).all(|(text, token)| *text == token.text)
    };
    ATTRIBUTES.iter().any(begins).then(|| 1 + group_length(&tokens[1..]))
}

/// The length of the bracketed group that the tokens begin with.
fn group_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// The token that ends an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Semicolon,
    /// A block, or a semicolon if there is none.
    Block,
    /// A comma, or a block or semicolon: a field, variant, match arm or statement.
    Comma,
}

fn end_of(first: &str, second: &str) -> End {
    match first {
        "const" if second == "fn" => End::Block,
        "const" | "let" | "static" | "type" | "use" => End::Semicolon,
        "async" | "enum" | "extern" | "fn" | "impl" | "macro_rules" | "mod" | "struct"
        | "trait" | "union" | "unsafe" => End::Block,
        _ => End::Comma,
    }
}

/// The length of an item with its attributes.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut at = 0;
    while text(at) == "#" {
        at += 1 + group_length(&tokens[at + 1..]);
    }
    if text(at) == "pub" {
        at += 1;
        if text(at) == "(" {
            at += group_length(&tokens[at..]);
        }
    }
    let end = end_of(text(at), text(at + 1));
    // Commas between angle brackets end no field.
    let mut angles = 0;
    while at < tokens.len() {
        match text(at) {
            ";" => return at + 1,
            "," if end == End::Comma && angles == 0 => return at + 1,
            // The enclosing block ends, after a last field or arm without a comma.
            ")" | "]" | "}" => return at,
            "<" => angles += 1,
            ">" if !matches!(text(at - 1), "-" | "=") => angles -= 1,
            "(" | "[" => at += group_length(&tokens[at..]) - 1,
            "{" => {
                at += group_length(&tokens[at..]);
                let goes_on = end == End::Semicolon
                    || end == End::Comma
                        && matches!(text(at), "," | ";" | "." | "?" | "=" | "else");
                if !goes_on {
                    return at;
                }
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        let code = code(source);
        let (kept, _) = without_tests(&tokens(&code));
        kept.iter().map(|token| token.text.to_owned()).collect()
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        let source =
            "a // crate::b\n/* c /* d */ e */ f \"g\\\"h\" 'i' r#\"j\"k\"# b\"l\" '\\'' m<'n>";
        let expected: Vec<&str> = "a f b m < ' n >".split(' ').collect();
        assert_eq!(texts(source), expected);
        assert_eq!(code(source).lines().count(), 2);
        let comments = comments(source);
        let comments: Vec<&str> = comments.split_whitespace().collect();
        assert_eq!(comments.join(" "), "// crate::b /* c /* d */ e */");
    }

    #[test]
    fn unusual_literals() {
        assert_eq!(texts("'\\u{1F600}' + '\"' + \"'\" + x"), ["+", "+", "+", "x"]);
        assert_eq!(texts("br##\"a\"# b\"## + r#type + c\"x\""), ["+", "r", "#", "type", "+", "c"]);
        assert_eq!(texts("for \"unclosed"), ["for"]);
        assert_eq!(texts("'é' 'a: loop {}"), ["'", "a", ":", "loop", "{", "}"]);
    }

    #[test]
    fn lines_of_tokens() {
        let code = code("a\n\"b\nc\"\n  d");
        let lines: Vec<usize> = tokens(&code).iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 4]);
    }

    #[test]
    fn items_for_tests_are_left_out() {
        for item in [
            "mod tests { use crate::x; fn f() { { } } }",
            "mod tests;",
            "pub(crate) mod tests;",
            "#[path = \"x.rs\"] mod tests;",
            "use crate::{x, y::z};",
            "pub(crate) const X: Y = Y { z: 1 };",
            "fn f<A, B>(a: A) -> B where A: C, B: D { if a { b } else { c } }",
            "impl<T> X for Y<T> { fn f(); }",
            "struct X;",
            "struct X(A, B);",
            "pub struct X { a: A }",
            "field: HashMap<A, B>,",
            "pub field: fn(A) -> B,",
            "Self::Variant { a, b } => { c }",
            "Variant(A, B),",
            "let x = y { z };",
            "self.check();",
        ] {
            let source = format!("before {{ #[cfg(test)] {item} after }}");
            assert_eq!(texts(&source), ["before", "{", "after", "}"], "{item}");
        }
        assert_eq!(texts("{ a, #[cfg(test)] last: X }"), ["{", "a", ",", "}"]);
        assert_eq!(texts("#[cfg(all(test, feature = \"a\"))] mod b; c"), ["c"]);
    }

    #[test]
    fn other_conditions_are_kept() {
        let source = "#[cfg(any(test, feature = \"a\"))] mod b;";
        assert!(texts(source).contains(&"mod".to_owned()));
        assert!(texts("#[cfg(not(test))] mod b;").contains(&"mod".to_owned()));
    }

    #[test]
    fn modules_in_files_are_named() {
        let code = code("#[cfg(test)] mod tests; #[cfg(test)] mod inline { mod not; } mod kept;");
        let tokens = tokens(&code);
        assert_eq!(without_tests(&tokens).1, ["tests"]);
    }
}
