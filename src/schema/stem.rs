//! Names of files: stems of fields, axes, sidecars.
//!
//! A stem is made from a field's name: ASCII letters are lower-cased, every other character that is
//! not in `[a-z0-9_]` becomes one `_`, `f_` is put in front where the result does not begin with a
//! letter, or begins with `has_`, and it is cut to 64. Then, in schema order, it gets `_2`, `_3`, …
//! (within the 64) until it collides with no stem, axis or reserved name.

use std::collections::HashSet;

/// Longest stem, axis name or sidecar (without `.json`).
const MAX_LEN: usize = 64;

/// Names that shards use for themselves: in files, in `shapes.json`, in `index.parquet`.
const RESERVED: [&str; 5] = ["n", "row", "keys", "blocks", "provenance"];

/// Sidecars that would hide a document of the shard.
const RESERVED_JSON: [&str; 3] = ["schema.json", "shapes.json", "fingerprint.json"];

/// Whether `name` may name files: the grammar, and not reserved.
#[must_use]
pub fn is_stem(name: &str) -> bool {
    name.len() <= MAX_LEN
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(is_stem_char)
        && !is_reserved(name)
}

/// Whether `name` may name a sidecar.
#[must_use]
pub fn is_sidecar(name: &str) -> bool {
    !RESERVED_JSON.contains(&name)
        && name.strip_suffix(".json").is_some_and(|base| {
            !base.is_empty() && base.len() <= MAX_LEN && base.chars().all(is_stem_char)
        })
}

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || name.starts_with("has_") || name.ends_with("_key")
}

fn is_stem_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

/// Gives out stems that do not collide.
#[derive(Debug, Default)]
pub(super) struct Stems {
    taken: HashSet<String>,
    axes: HashSet<String>,
}

impl Stems {
    /// Starts with the names of the declared axes, which no field may have but those on them.
    pub(super) fn new<'a>(axes: impl IntoIterator<Item = &'a str>) -> Self {
        Self { taken: HashSet::new(), axes: axes.into_iter().map(String::from).collect() }
    }

    /// The stem of the next field: its name, and the axis it declares.
    pub(super) fn next(&mut self, name: &str, axis: Option<&str>) -> String {
        let mut base: String = name.chars().map(stem_char).collect();
        if !base.starts_with(|c: char| c.is_ascii_lowercase()) || base.starts_with("has_") {
            base.insert_str(0, "f_");
        }
        base.truncate(MAX_LEN);
        let mut stem = base.clone();
        let mut n = 1_u64;
        while is_reserved(&stem)
            || self.taken.contains(&stem)
            || (self.axes.contains(&stem) && axis != Some(&stem))
        {
            n += 1;
            let suffix = format!("_{n}");
            stem.clone_from(&base);
            stem.truncate(MAX_LEN - suffix.len());
            stem.push_str(&suffix);
        }
        self.taken.insert(stem.clone());
        stem
    }
}

fn stem_char(c: char) -> char {
    let c = c.to_ascii_lowercase();
    if is_stem_char(c) { c } else { '_' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_follow_the_grammar_and_never_collide() {
        let long = "x".repeat(80);
        let cut = "x".repeat(64);
        let cut_2 = format!("{}_2", "x".repeat(62));
        for (what, names, want) in [
            ("as they are", vec!["data", "a_1"], vec!["data", "a_1"]),
            ("lower-cased", vec!["Data", "ABC9"], vec!["data", "abc9"]),
            ("replaced", vec!["a.b", "a b-c"], vec!["a_b", "a_b_c"]),
            ("one _ per character", vec!["aé€😀"], vec!["a___"]),
            ("no first letter", vec!["1st", "_x", "é", ""], vec!["f_1st", "f__x", "f__", "f_"]),
            ("Kelvin sign is no k", vec!["\u{212a}"], vec!["f__"]),
            ("in schema order", vec!["a", "A", "a_2", "á"], vec!["a", "a_2", "a_2_2", "f__"]),
            (
                "reserved",
                vec!["n", "Row", "keys", "blocks"],
                vec!["n_2", "row_2", "keys_2", "blocks_2"],
            ),
            ("provenance", vec!["provenance"], vec!["provenance_2"]),
            ("has_", vec!["has_x", "has", "Has_x"], vec!["f_has_x", "has", "f_has_x_2"]),
            ("_key", vec!["panel_key", "key", "_key"], vec!["panel_key_2", "key", "f__key_2"]),
            ("cut to 64", vec![&long, &long], vec![&cut, &cut_2]),
            ("a declared axis", vec!["atoms"], vec!["atoms_2"]),
        ] {
            let mut stems = Stems::new(["atoms"]);
            let got: Vec<_> = names.iter().map(|name| stems.next(name, None)).collect();
            assert_eq!(got, want, "{what}");
            assert!(got.iter().all(|stem| is_stem(stem)), "{what}: {got:?}");
        }
    }

    #[test]
    fn a_field_on_an_axis_may_have_its_name_once() {
        let mut stems = Stems::new(["atoms"]);
        assert_eq!(stems.next("Atoms", Some("atoms")), "atoms");
        assert_eq!(stems.next("atoms", Some("atoms")), "atoms_2");
    }

    #[test]
    fn suffixes_past_nine_stay_within_the_limit() {
        let mut stems = Stems::new([]);
        let name = "y".repeat(64);
        let all: HashSet<_> = (0..120).map(|_| stems.next(&name, None)).collect();
        assert_eq!(all.len(), 120);
        assert!(all.iter().all(|stem| is_stem(stem)));
    }

    #[test]
    fn sidecars_and_stems_that_are_refused() {
        for name in ["", "A", "a.b", "a/b", "1a", "_a", "é", "n", "has_x", "x_key", &"x".repeat(65)]
        {
            assert!(!is_stem(name), "{name}");
        }
        for name in ["panels.json", "1.json", "_.json"] {
            assert!(is_sidecar(name), "{name}");
        }
        for name in
            ["schema.json", "shapes.json", "fingerprint.json", ".json", "a.b.json", "A.json"]
        {
            assert!(!is_sidecar(name), "{name}");
        }
        for name in ["../a.json", "a/b.json", "a", "a.json\n", &format!("{}.json", "x".repeat(65))]
        {
            assert!(!is_sidecar(name), "{name}");
        }
    }
}
