//! The codes of errors and rejects: what each means, why it happens, what to do.
//!
//! Leaves out: which error has which code, which `cli::error_code` decides, and the definition for its
//! own problems.
//!
//! Invariants:
//! 1. A code is stable: it is never given to anything else, and what it means never changes.
//! 2. Every code has all its texts, because the tables are where codes are made.

#[macro_use]
mod definition;
#[macro_use]
mod row;
#[macro_use]
mod running;
#[macro_use]
mod remote;

// Each file holds a table as a macro, which hands its codes, after those of the tables before it, to
// the next name in the brackets; the last of these is this one.
macro_rules! codes {
    ([] $($name:ident = $code:literal: $means:literal, $why:literal, $todo:literal, $example:literal;)*) => {
        /// What kind of error it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $means] $name,)*
        }

        impl Code {
            /// Every code, in the order of the tables.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What is known about it.
            #[must_use]
            pub fn entry(self) -> Entry {
                match self {
                    $(Self::$name => Entry {
                        code: $code, means: $means, why: $why, todo: $todo, example: $example,
                    },)*
                }
            }
        }
    };
}

/// What is known about a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    /// The code: words with `-` for errors, with `_` for what is wrong with one row, which is also
    /// the code of its reject.
    pub code: &'static str,
    /// What it means.
    pub means: &'static str,
    /// Why it happens.
    pub why: &'static str,
    /// What to do.
    pub todo: &'static str,
    /// What such an error says.
    pub example: &'static str,
}

impl Code {
    /// The code as it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().code
    }

    /// Whether it is about one row, and so the code of its reject.
    #[must_use]
    pub fn is_of_row(self) -> bool {
        let is_one_word =
            matches!(self, Self::RowNull | Self::RowShape | Self::RowAxis | Self::RowCategory);
        is_one_word || self.name().contains('_')
    }

    /// The code of that name; `-` and `_` are one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| is_same_code(code.name(), name))
    }
}

/// Whether two texts name one code; `-` and `_` are one.
#[must_use]
pub fn is_same_code(one: &str, other: &str) -> bool {
    one.replace('_', "-") == other.replace('_', "-")
}

definition_codes! { [row_codes running_codes remote_codes codes] }

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_one_word_of_its_own_with_all_its_texts() {
        let mut seen = BTreeSet::new();
        for code in Code::ALL {
            let Entry { code: name, means, why, todo, example } = code.entry();
            assert!(name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_')), "{name}");
            assert!(seen.insert(name.replace('_', "-")), "{name} stands twice");
            for text in [means, why, todo] {
                assert!(text.ends_with('.') && text.len() > 10, "{name}: {text}");
            }
            assert!(!example.is_empty() && !example.ends_with('.'), "{name}: {example}");
            assert_eq!(Code::from_name(name), Some(*code));
            assert_eq!(Code::from_name(&name.replace('-', "_")), Some(*code));
        }
        assert_eq!(Code::from_name("nonsense"), None);
    }
}
