//! What a dataset's folder holds, for comparing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Every name and every byte below `<out>/<name>`, but for the writer's own state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<String, Vec<u8>>);

impl Tree {
    /// Reads the folder of the datasets below `out`. The lock says who holds it: only its name counts.
    pub(crate) fn read(out: &Path) -> Self {
        let mut files = BTreeMap::new();
        walk(out, "", &mut files);
        Self(files)
    }

    /// Whether a dataset has its sentinel.
    pub(crate) fn is_complete(&self) -> bool {
        let dataset = |name: &str| name.ends_with("/_COMPLETE") && !name.contains("/shards/");
        self.0.keys().any(|name| dataset(name))
    }

    /// Number of names that contain `part`.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.0.keys().filter(|name| name.contains(part)).count()
    }

    /// Fails unless both are the same.
    pub(crate) fn assert_is(&self, want: &Self, case: &str) {
        let differences = self.differences(want, true);
        assert!(differences.is_empty(), "{case}: {differences}");
    }

    /// Fails unless everything in `want` is here; other shards may be.
    pub(crate) fn assert_holds(&self, want: &Self, case: &str) {
        let differences = self.differences(want, false);
        assert!(differences.is_empty(), "{case}: {differences}");
    }

    /// Fails unless every sealed shard is one of `want`, whole, and the dataset too if it is sealed.
    pub(crate) fn assert_sentinels_are_true(&self, want: &Self, case: &str) {
        for folder in self.0.keys().filter_map(|name| name.strip_suffix("_COMPLETE")) {
            let inside = |files: &Self| -> BTreeMap<String, Vec<u8>> {
                let range = files.0.range(folder.to_owned()..);
                let below = range.take_while(|(name, _)| name.starts_with(folder));
                below.map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
            };
            let (found, wanted) = (Self(inside(self)), Self(inside(want)));
            // Old records and manifests may stand beside a dataset's own.
            let differences = found.differences(&wanted, folder.contains("/shards/"));
            assert!(differences.is_empty(), "{case}: {folder} has a sentinel: {differences}");
        }
    }

    fn differences(&self, want: &Self, is_exact: bool) -> String {
        let mut text = String::new();
        for (name, bytes) in &want.0 {
            match self.0.get(name) {
                None => writeln!(text, "{name} is missing").unwrap(),
                Some(found) if found != bytes => {
                    let at = found.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                    let (found, want) = (found.len(), bytes.len());
                    writeln!(text, "{name} ({found} bytes, not {want}) differs at byte {at}")
                        .unwrap();
                }
                Some(_) => {}
            }
        }
        for name in self.0.keys().filter(|name| is_exact && !want.0.contains_key(*name)) {
            writeln!(text, "{name} should not be there").unwrap();
        }
        text
    }
}

fn walk(dir: &Path, prefix: &str, into: &mut BTreeMap<String, Vec<u8>>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let (path, shown) = (entry.path(), format!("{prefix}/{name}"));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            let target = fs::read_link(path).unwrap();
            into.insert(shown, target.to_str().unwrap().as_bytes().to_vec());
        } else if kind.is_dir() && name == "work" {
            // The writer's own.
        } else if kind.is_dir() {
            into.insert(format!("{shown}/"), Vec::new());
            walk(&path, &shown, into);
        } else if path.extension().is_some_and(|of| of == "lock") {
            into.insert(shown, Vec::new());
        } else {
            into.insert(shown, fs::read(path).unwrap());
        }
    }
}
