//! The rename rules, as serde has them.

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

    /// Renames a variant, which is written in Pascal case.
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
            Self::Snake => words(variant, '_'),
            Self::ScreamingSnake => words(variant, '_').to_uppercase(),
            Self::Kebab => words(variant, '-'),
            Self::ScreamingKebab => words(variant, '-').to_uppercase(),
        }
    }
}

fn words(variant: &str, separator: char) -> String {
    let mut renamed = String::new();
    for (index, letter) in variant.char_indices() {
        if index > 0 && letter.is_uppercase() {
            renamed.push(separator);
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
}
