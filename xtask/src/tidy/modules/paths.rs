//! Finds the paths in a file that begin at the root of the crate.

use crate::tidy::rust::Token;

/// Returns the first name of every path from the root: `store` in `crate::store::Row`, and each name in
/// `crate::{store, event::Id}`. `depth` is the number of names in the path of the file's own module, so that `super`
/// can be followed.
pub(super) fn from_root<'a>(tokens: &[Token<'a>], depth: usize) -> Vec<Token<'a>> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut names = Vec::new();
    // The brace depths at which inline modules began.
    let (mut braces, mut inline) = (0, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        match text(at) {
            "{" => {
                if at >= 2 && text(at - 2) == "mod" {
                    inline.push(braces);
                }
                braces += 1;
            }
            "}" => {
                braces -= 1;
                inline.pop_if(|began| *began == braces);
            }
            "crate" if is_separator(tokens, at + 1) => names.extend(first_names(&tokens[at + 3..])),
            "super" if is_separator(tokens, at + 1) => {
                let mut levels = 1;
                while text(at + 3) == "super" && is_separator(tokens, at + 4) {
                    (at, levels) = (at + 3, levels + 1);
                }
                if levels == depth + inline.len() {
                    names.extend(first_names(&tokens[at + 3..]));
                }
            }
            _ => {}
        }
        at += 1;
    }
    names
}

fn is_separator(tokens: &[Token<'_>], at: usize) -> bool {
    tokens.get(at..at + 2).is_some_and(|pair| pair.iter().all(|token| token.text == ":"))
}

/// Returns the name, or the first name of each path in braces.
fn first_names<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    match tokens.first() {
        Some(token) if token.text == "{" => {}
        Some(token) => return vec![*token],
        None => return Vec::new(),
    }
    let (mut names, mut depth) = (Vec::new(), 0);
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ if depth == 1 && matches!(tokens[index - 1].text, "," | "{") => names.push(*token),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::from_root;
    use crate::tidy::rust::tokens;

    fn names(code: &str, depth: usize) -> Vec<&str> {
        from_root(&tokens(code), depth).iter().map(|token| token.text).collect()
    }

    #[test]
    fn groups_have_several_first_names() {
        let code = "use crate::{a::{b, c}, d::e as f, g::*, self};";
        assert_eq!(names(code, 1), ["a", "d", "g", "self"]);
    }

    #[test]
    fn visibility_is_no_path() {
        assert_eq!(names("pub(crate) fn f() {} pub(in crate::a) fn g() {}", 1), ["a"]);
    }

    #[test]
    fn super_is_followed_out_of_inline_modules() {
        let code =
            "use super::a; mod m { use super::b; use super::super::c; fn f() {} } use super::d;";
        assert_eq!(names(code, 1), ["a", "c", "d"]);
        assert_eq!(names(code, 2), [""; 0]);
    }
}
