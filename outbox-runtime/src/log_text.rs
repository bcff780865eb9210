//! Text of a row in a line of the log. Other programs may insert rows, so it can be anything.

/// The most characters of a text.
const LONGEST: usize = 128;

/// Returns a text without control characters, and shortened if it is long.
pub(crate) fn log_text(text: &str) -> String {
    let visible =
        |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    let mut letters = text.chars();
    let mut shown: String = letters.by_ref().take(LONGEST).map(visible).collect();
    if letters.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Joins the first of several texts, and says how many more there are.
pub(crate) fn first_of(texts: &[String], most: usize) -> String {
    let shown = texts[..texts.len().min(most)].join(", ");
    match texts.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_long_texts_are_not_logged() {
        assert_eq!(log_text("Zahlung für\n\u{1b}[31m"), "Zahlung für\u{fffd}\u{fffd}[31m");
        assert_eq!(log_text(&"ü".repeat(128)), "ü".repeat(128));
        assert_eq!(log_text(&"ü".repeat(129)), "ü".repeat(128) + "…");
    }

    #[test]
    fn a_list_is_cut_off_with_a_number() {
        let texts = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(first_of(&texts, 3), "a, b, c");
        assert_eq!(first_of(&texts, 2), "a, b and 1 more");
        assert_eq!(first_of(&[], 2), "");
    }
}
