//! `--set a.b=value`, and options that stand for one: what a run says otherwise than its definition.
//!
//! Invariants:
//! 1. Overrides are laid over the definition before anything in it is substituted, so a value that
//!    is replaced asks for no variable; what an override says itself is taken as it is.
//! 2. Whether an override touches what decides bytes is known from its keys alone.

use toml::de::{DeTable, DeValue};

use super::error::{At, ConfigError, Problem};
use super::tree::{self, Node, Table, Tree};

/// One `--set KEYS=VALUE`, or an option of its own for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    keys: Vec<String>,
    value: String,
    /// As it was typed.
    given: String,
}

impl Override {
    /// Reads `a.b=value`. Keys are TOML's, so a dot or an equals sign may stand in quotes.
    ///
    /// # Errors
    /// There is no `=`, or what stands before it is not a dotted key.
    pub fn parse(given: &str) -> Result<Self, ConfigError> {
        let split = given.match_indices('=').find_map(|(i, _)| {
            let (keys, value) = (given.get(..i)?, given.get(i + 1..)?);
            Some((dotted(keys)?, value))
        });
        let (keys, value) = split.ok_or_else(|| {
            ConfigError::of_override(
                given,
                "an override is written KEY=VALUE",
                "write for example --set dataset.shard_rows=1000",
            )
        })?;
        Ok(Self { keys, value: value.to_owned(), given: format!("--set {given}") })
    }

    /// What an option says of a key in TOML, `typed` as `--jobs 2`.
    #[must_use]
    pub fn by_option(typed: String, keys: [&str; 2], value: String) -> Self {
        Self { keys: keys.map(str::to_owned).to_vec(), value, given: typed }
    }

    /// Whether it touches what decides bytes: anything but `[run]`, `[[test]]`, descriptions, `allow_empty`,
    /// `max_rejects`, the places where things are, and the transforms' settings that `is_run` knows
    /// (name of the transform, name of the setting).
    #[must_use]
    pub fn is_data(&self, is_run: impl Fn(&str, &str) -> bool) -> bool {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let is_elsewhere = match keys.as_slice() {
            [first, ..]
                if ["run", "push", "version", "name", "description", "env", "test"]
                    .contains(first) =>
            {
                true
            }
            ["sources", _, key, ..] => ["root", "allow_empty", "max_rejects"].contains(key),
            ["transforms", _, "max_rejects"] => true,
            ["transforms", name, key, ..] => is_run(name, key),
            ["dataset", key, ..] => ["allow_empty", "max_rejects"].contains(key),
            _ => false,
        };
        !is_elsewhere
    }

    /// As it was typed, with its option.
    #[must_use]
    pub fn given(&self) -> &str {
        &self.given
    }

    /// Lays this override, the `index`th, over `table`.
    ///
    /// # Errors
    /// A key on the way stands for something else than a table.
    pub(crate) fn apply(&self, index: usize, table: &mut Table) -> Result<(), Problem> {
        let at = At::Set(index);
        let value = match tree::parse_value(self.value.trim(), &at)? {
            Some(node) => node,
            None => Node { at: at.clone(), value: Tree::Text(self.value.clone()) },
        };
        let Some((last, way)) = self.keys.split_last() else { return Ok(()) };
        let mut inner = table;
        for key in way {
            inner = inner.table_mut(key, &at).map_err(|what| {
                Problem::new(&at, format!("`{key}` is {what}, not a table"))
                    .hint("an override names a key inside tables")
            })?;
        }
        inner.insert(last, value);
        Ok(())
    }
}

/// The parts of a dotted key, unless `text` is none.
fn dotted(text: &str) -> Option<Vec<String>> {
    // A table's header is no key.
    if text.contains(['\n', '\r']) || text.trim_start().starts_with('[') {
        return None;
    }
    let line = format!("{text} = 0");
    let table = DeTable::parse(&line).ok()?;
    let mut keys = Vec::new();
    let mut inner = table.get_ref();
    loop {
        let mut entries = inner.iter();
        let (key, value) = entries.next()?;
        if entries.next().is_some() {
            return None;
        }
        keys.push(key.get_ref().clone().into_owned());
        match value.get_ref() {
            DeValue::Table(table) => inner = table,
            DeValue::Integer(_) => return Some(keys),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_told_apart() {
        for (given, keys, value) in [
            ("a=1", vec!["a"], "1"),
            ("a.b=x=y", vec!["a", "b"], "x=y"),
            (" a . b = x", vec!["a", "b"], " x"),
            (
                "dataset.fields.\"a.b\".dtype=int8",
                vec!["dataset", "fields", "a.b", "dtype"],
                "int8",
            ),
            ("'k=v'.x=", vec!["k=v", "x"], ""),
        ] {
            let it = Override::parse(given).unwrap();
            assert_eq!(
                (it.keys.iter().map(String::as_str).collect(), it.value.as_str()),
                (keys, value)
            );
        }
    }

    #[test]
    fn what_is_no_override_is_refused() {
        for given in
            ["", "a", "=1", "a..b=1", "a b=1", "[a]=1", "[\"a\"]\nb=1", "# =1", "a.=1", "a\n=1"]
        {
            let message = Override::parse(given).unwrap_err().message().to_owned();
            assert_eq!(message, "an override is written KEY=VALUE", "{given:?}");
        }
        let error = Override::parse("shards").unwrap_err();
        let want = "an override is written KEY=VALUE\n --> --set shards\n\
                    hint: write for example --set dataset.shard_rows=1000";
        assert_eq!(error.to_string(), want);
    }

    #[test]
    fn values_are_toml_or_else_text() {
        for (value, want) in [
            ("1_000", Tree::Integer(1000)),
            ("true", Tree::Bool(true)),
            (" 0.5 ", Tree::Float(0.5)),
            ("\"12\"", Tree::Text("12".into())),
            ("data/*.csv", Tree::Text("data/*.csv".into())),
            ("", Tree::Text(String::new())),
            ("64MiB", Tree::Text("64MiB".into())),
            ("1 2", Tree::Text("1 2".into())),
        ] {
            let mut table = tree::parse("a = 0\n[t]\nb = 1").unwrap();
            Override::parse(&format!("t.b={value}")).unwrap().apply(0, &mut table).unwrap();
            let Tree::Table(inner) = &table.get("t").unwrap().node.value else { panic!() };
            assert_eq!(inner.get("b").unwrap().node.value, want, "{value:?}");
        }
    }

    #[test]
    fn an_override_does_not_turn_a_value_into_a_table() {
        let mut table = tree::parse("a = 0").unwrap();
        let problem = Override::parse("a.b=1").unwrap().apply(0, &mut table).unwrap_err();
        assert_eq!(problem.message, "`a` is a whole number, not a table");
    }

    #[test]
    fn only_data_settings_count_as_data() {
        for (given, data) in [
            ("run.jobs=1", false),
            ("description=x", false),
            ("name=x", false),
            ("sources.a.root=x", false),
            ("sources.a.allow_empty=true", false),
            ("dataset.allow_empty=true", false),
            ("sources.a.path=x", true),
            ("sources.a={}", true),
            ("transforms.root.root=1", true),
            ("dataset.limit_rows=1", true),
            ("dataset.max_rejects=1", false),
            ("sources.a.max_rejects=1", false),
            ("transforms.a.max_rejects=1", false),
            ("sources.a.on_error=quarantine", true),
            ("dataset.fields.x.dtype=int8", true),
        ] {
            assert_eq!(
                Override::parse(given).unwrap().is_data(|_, key| key == "workers"),
                data,
                "{given}"
            );
        }
    }
}
