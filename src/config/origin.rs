//! Where the settings of a definition were written, for what is found wrong with them later: when
//! inputs were listed and columns are known.

use std::path::PathBuf;

use super::error::{At, ConfigError, Problem, Text};
use super::tree::{Entry, Table, Tree};
use crate::codes::Code;

/// The text of a definition and the overrides that were laid over it, as they were parsed.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin {
    pub(super) path: PathBuf,
    pub(super) content: String,
    pub(super) sets: Vec<String>,
    pub(super) root: Table,
}

impl Origin {
    /// A problem with the setting that `keys` lead to, or with the innermost table on the way that
    /// is there.
    pub(super) fn error(
        &self,
        keys: &[&str],
        message: String,
        hint: Option<String>,
    ) -> ConfigError {
        let text = Text { path: &self.path, content: &self.content, sets: &self.sets };
        let (code, at) = (Code::DefinitionColumns, self.find(keys).cloned());
        text.locate(&Problem { code, at, message, hint })
    }

    fn find(&self, keys: &[&str]) -> Option<&At> {
        let (first, keys) = keys.split_first()?;
        let entry = self.root.get(first)?;
        let (mut found, mut node) = (entry_at(entry), &entry.node);
        for key in keys {
            match &node.value {
                Tree::Table(table) => {
                    let Some(entry) = table.get(key) else { break };
                    (found, node) = (entry_at(entry), &entry.node);
                }
                Tree::List(items) => {
                    let Some(item) = key.parse().ok().and_then(|i: usize| items.get(i)) else {
                        break;
                    };
                    (found, node) = (&item.at, item);
                }
                _ => break,
            }
        }
        Some(found)
    }
}

/// Where a setting is pointed at: a table at its name, anything else at its value.
fn entry_at(entry: &Entry) -> &At {
    match entry.node.value {
        Tree::Table(_) => &entry.key_at,
        _ => &entry.node.at,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    #[test]
    fn a_problem_points_at_the_setting_or_at_the_table_that_lacks_it() {
        let content = "[a]\nb = 1\n\n[a.c]\nd = { e = 2 }\n[[t]]\nx = 1\n[[t]]\nx = [5, 6]\n";
        let root = tree::parse(content).unwrap();
        let origin = Origin { content: content.to_owned(), root, ..Origin::default() };
        for (keys, place) in [
            (&["a", "b"][..], Some((2, 5))),
            (&["a", "b", "x"], Some((2, 5))),
            (&["a", "x"], Some((1, 2))),
            (&["a", "c", "d"], Some((5, 1))),
            (&["a", "c", "d", "e"], Some((5, 11))),
            (&["a", "c", "d", "x"], Some((5, 1))),
            (&["t", "1", "x"], Some((9, 5))),
            (&["t", "1", "x", "1"], Some((9, 9))),
            (&["t", "1", "y"], Some((8, 1))),
            (&["x"], None),
        ] {
            assert_eq!(origin.error(keys, String::new(), None).line_column(), place, "{keys:?}");
        }
    }
}
