//! Fingerprints of errors: equal for errors with the same cause.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Identifies the cause of an error: it is the same for errors that differ only in numbers, ids and quoted words.
///
/// A thousand dead letters with one cause are then one group ([`DeadEvents::groups`](crate::DeadEvents::groups)), and a
/// [`DeadFilter`](super::DeadFilter) selects all of them. Its text form has 16 hexadecimal digits and parses back, for
/// command lines and URLs. It is the same in every process.
///
/// ```
/// use outbox::dead::Fingerprint;
///
/// let first = Fingerprint::new("order 7: no answer from 10.0.0.3 after 30s");
/// let second = Fingerprint::new("order 8: no answer from 10.0.0.4 after 31s");
/// assert_eq!(first, second);
/// assert_ne!(first, Fingerprint::new("order 7: refused"));
///
/// assert_eq!(first.to_string().parse(), Ok(first));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(u64);

/// The error for a text that is not a fingerprint: not 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a fingerprint has 16 hexadecimal digits")]
#[non_exhaustive]
pub struct NoFingerprint;

impl Fingerprint {
    /// Computes the fingerprint of an error, from its text as it is stored in `last_error`.
    ///
    /// Words with a digit and quoted words do not count, nor what follows after about 200 characters.
    pub fn new(error: &str) -> Self {
        Self::from_pattern(&pattern(error))
    }

    /// Computes the fingerprint of a [`pattern`].
    pub(crate) fn from_pattern(pattern: &str) -> Self {
        // FNV-1a is the same in every process and version, which the standard hasher does not guarantee.
        let hash = pattern.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| digits);
        number.map(Self).ok_or(NoFingerprint)
    }
}

/// The maximum length of a pattern in bytes, approximately. Longer texts differ at their end more often than in their
/// cause.
const MAX_BYTES: usize = 200;

/// Returns an error without the parts that vary: words with a digit become `#`, quoted ones `…`.
pub(crate) fn pattern(error: &str) -> String {
    let mut pattern = String::new();
    let mut rest = error;
    let mut after_letter = false;
    while let (Some(letter), true) = (rest.chars().next(), pattern.len() < MAX_BYTES) {
        // The apostrophe of `can't` does not open a quotation.
        let opens = closing(letter).filter(|_| !after_letter);
        let quoted = opens.and_then(|closing| {
            let inside = &rest[letter.len_utf8()..];
            inside.find(closing).map(|end| (closing, end + letter.len_utf8()))
        });
        let end = match quoted {
            Some((closing, end)) => {
                pattern.extend([letter, '…', closing]);
                end + closing.len_utf8()
            }
            None if is_word_char(letter) => {
                let end = rest.find(|letter| !is_word_char(letter)).unwrap_or(rest.len());
                // A full stop at the end of a sentence is not part of its last word.
                let word = rest[..end].trim_end_matches(['.', ':', '-']);
                let varies = word.bytes().any(|byte| byte.is_ascii_digit());
                match word {
                    "" => pattern.push(letter),
                    word => pattern.push_str(if varies { "#" } else { word }),
                }
                word.len().max(letter.len_utf8())
            }
            None => {
                pattern.push(letter);
                letter.len_utf8()
            }
        };
        after_letter = rest[..end].ends_with(char::is_alphanumeric);
        rest = &rest[end..];
    }
    pattern
}

/// Returns whether a character is part of a word. Ids, addresses, times and paths are one word each.
fn is_word_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.:/".contains(letter)
}

fn closing(opening: char) -> Option<char> {
    match opening {
        '"' | '`' => Some(opening),
        '“' => Some('”'),
        '\'' => Some('\''),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_omit_what_varies() {
        for (error, expected) in [
            ("order 7 is gone", "order # is gone"),
            ("no answer from 10.0.0.3:5432 after 30s.", "no answer from # after #."),
            ("`Paid` of 01ARZ3NDEKTSV4RRFFQ69G5FAV: refused", "`…` of #: refused"),
            ("it's broken", "it's broken"),
            ("can't: it doesn't exist", "can't: it doesn't exist"),
            ("no 'Ada' here: 'Bob'", "no '…' here: '…'"),
            ("", ""),
            ("été 5", "été #"),
        ] {
            assert_eq!(pattern(error), expected, "{error}");
        }
        assert!(pattern(&"long ".repeat(1_000)).len() < MAX_BYTES + 10);
    }

    #[test]
    fn only_fingerprints_are_parsed() {
        let fingerprint = Fingerprint::new("order 7 is gone");
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        for text in ["", "12", "+123456789abcdef", "0123456789abcdefg", "é123456789abcde"] {
            assert_eq!(text.parse::<Fingerprint>(), Err(NoFingerprint), "{text}");
        }
    }

    #[test]
    fn fingerprints_are_the_same_in_every_version() {
        assert_eq!(Fingerprint::new("").to_string(), "cbf29ce484222325");
    }
}
