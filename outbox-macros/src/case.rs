//! The rename rules of serde. Unlike serde, they also change the case of letters beyond ASCII, which serde
//! leaves unchanged or fails on.

use syn::LitStr;

use crate::diag;

#[derive(Clone, Copy)]
pub(crate) enum Case {
    Lower,
    Upper,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

const RULES: [(&str, Case); 8] = [
    ("lowercase", Case::Lower),
    ("UPPERCASE", Case::Upper),
    ("PascalCase", Case::Pascal),
    ("camelCase", Case::Camel),
    ("snake_case", Case::Snake),
    ("SCREAMING_SNAKE_CASE", Case::ScreamingSnake),
    ("kebab-case", Case::Kebab),
    ("SCREAMING-KEBAB-CASE", Case::ScreamingKebab),
];

impl Case {
    pub(crate) fn parse(rule: &LitStr) -> syn::Result<Self> {
        let wanted = rule.value();
        RULES.iter().find(|(name, _)| *name == wanted).map(|(_, case)| *case).ok_or_else(|| {
            diag::unknown_rename_rule(rule.span(), &wanted, &RULES.map(|(name, _)| name))
        })
    }

    /// Renames a variant, whose name is in Pascal case.
    pub(crate) fn rename(self, variant: &str) -> String {
        match self {
            Self::Lower => variant.to_lowercase(),
            Self::Upper => variant.to_uppercase(),
            Self::Pascal => variant.to_owned(),
            Self::Camel => {
                let mut letters = variant.chars();
                letters
                    .next()
                    .map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
            }
            Self::Snake => snake(variant),
            Self::ScreamingSnake => snake(variant).to_uppercase(),
            // An underscore in the original name becomes a hyphen, too.
            Self::Kebab => snake(variant).replace('_', "-"),
            Self::ScreamingKebab => snake(variant).to_uppercase().replace('_', "-"),
        }
    }
}

fn snake(variant: &str) -> String {
    let mut renamed = String::new();
    for (index, letter) in variant.char_indices() {
        if index > 0 && letter.is_uppercase() {
            renamed.push('_');
        }
        renamed.extend(letter.to_lowercase());
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renames_as_serde_does() {
        let renamed: Vec<String> =
            RULES.iter().map(|(_, case)| case.rename("OrderPaidInFull")).collect();
        assert_eq!(
            renamed,
            [
                "orderpaidinfull",
                "ORDERPAIDINFULL",
                "OrderPaidInFull",
                "orderPaidInFull",
                "order_paid_in_full",
                "ORDER_PAID_IN_FULL",
                "order-paid-in-full",
                "ORDER-PAID-IN-FULL",
            ]
        );
    }

    /// Renames a variant as the source code of serde does.
    fn serde_rename(rule: &str, variant: &str) -> String {
        let snake = || {
            let mut snake = String::new();
            for (index, letter) in variant.char_indices() {
                if index > 0 && letter.is_uppercase() {
                    snake.push('_');
                }
                snake.push(letter.to_ascii_lowercase());
            }
            snake
        };
        match rule {
            "lowercase" => variant.to_ascii_lowercase(),
            "UPPERCASE" => variant.to_ascii_uppercase(),
            "camelCase" => variant[..1].to_ascii_lowercase() + &variant[1..],
            "snake_case" => snake(),
            "SCREAMING_SNAKE_CASE" => snake().to_ascii_uppercase(),
            "kebab-case" => snake().replace('_', "-"),
            "SCREAMING-KEBAB-CASE" => snake().to_ascii_uppercase().replace('_', "-"),
            _ => variant.to_owned(),
        }
    }

    #[test]
    fn every_short_variant_is_renamed_as_serde_does() {
        let mut variants = vec![String::new()];
        let mut last = variants.clone();
        for _ in 0..6 {
            let longer =
                |text: &String| ["A", "b", "C", "1", "_"].map(|letter| format!("{text}{letter}"));
            last = last.iter().flat_map(longer).collect();
            variants.extend_from_slice(&last);
        }
        for (rule, case) in RULES {
            for variant in variants.iter().filter(|variant| !variant.is_empty()) {
                assert_eq!(case.rename(variant), serde_rename(rule, variant), "{rule}: {variant}");
            }
        }
    }

    #[test]
    fn every_rule_accepts_letters_of_other_scripts() {
        for (_, case) in RULES {
            for variant in ["", "Ü", "ÜÖ", "İx", "ßa", "Дело", "名前", "ǅx", "A\u{301}"]
            {
                let renamed = case.rename(variant);
                assert_eq!(renamed.is_empty(), variant.is_empty(), "{variant}");
            }
        }
    }
}
