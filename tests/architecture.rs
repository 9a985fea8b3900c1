//! House rules that no lint can check: which module may know which, and what docs promise.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the test reads the source tree itself"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(dir: &str, ext: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(dir)];
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == ext) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The top-level module a source file belongs to.
fn module_of(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

#[test]
fn modules_depend_downwards_only() {
    // What each module may use; a leaf may use nothing of ours.
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("batch", &[] as &[&str]),
        ("codes", &[]),
        ("fingerprint", &[]),
        ("books", &["batch"]),
        ("schema", &["fingerprint", "batch"]),
        ("storage", &[]),
        ("remote", &["storage"]),
        ("shard", &["storage", "schema", "batch", "books", "inputs", "fingerprint"]),
        ("dataset", &["shard", "storage", "schema", "batch", "books", "inputs", "fingerprint"]),
        ("cache", &["shard", "storage", "schema", "fingerprint"]),
        ("sources", &["batch", "inputs", "schema", "fingerprint", "remote"]),
        ("transforms", &["sources", "cache", "batch", "schema", "fingerprint"]),
        ("exporters", &["remote", "dataset", "shard", "storage"]),
        ("graph", &["batch", "transforms"]),
        (
            "config",
            &[
                "codes",
                "sources",
                "transforms",
                "schema",
                "batch",
                "books",
                "fingerprint",
                "remote",
            ],
        ),
        (
            "stages",
            &[
                "graph",
                "sources",
                "transforms",
                "dataset",
                "shard",
                "storage",
                "schema",
                "batch",
                "books",
                "inputs",
            ],
        ),
    ]);
    for path in files_below("src", "rs") {
        let module = module_of(&path);
        let Some(allowed) = allowed.get(module.as_str()) else { continue };
        if path.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // Tests inside a module may stand on anything.
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (n, line) in code.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for piece in line.split("crate::").skip(1) {
                let used: String =
                    piece.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                assert!(
                    used.is_empty() || used == module || allowed.contains(&used.as_str()),
                    "{}:{}: `{module}` may not know `{used}`",
                    path.display(),
                    n + 1
                );
            }
        }
    }
}

#[test]
fn unsafe_and_the_file_system_stay_behind_their_doors() {
    for path in files_below("src", "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let has_unsafe =
            text.lines().any(|l| l.contains("unsafe {") && !l.trim().starts_with("//"));
        assert!(!has_unsafe || name == "src/storage/local.rs", "{name} holds unsafe code");
    }
}

#[test]
fn every_module_says_what_it_holds() {
    for path in files_below("src", "rs") {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} does not open with `//!`", path.display());
    }
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    let mut pages = files_below("docs", "md");
    pages.extend([root().join("README.md"), root().join("CHANGELOG.md")]);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1) {
            let target = link.split(')').next().unwrap().split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = page.parent().unwrap().join(target);
            assert!(path.exists(), "{} links to {target}, which is not there", page.display());
        }
    }
}

#[test]
fn tests_named_in_the_docs_exist() {
    let mut names = Vec::new();
    for path in files_below("tests", "rs").into_iter().chain(files_below("src", "rs")) {
        let text = fs::read_to_string(&path).unwrap();
        names.extend(text.lines().filter_map(|l| {
            let name = l.trim_start().strip_prefix("fn ")?.split('(').next()?;
            Some(name.to_owned())
        }));
    }
    for page in files_below("docs", "md") {
        let text = fs::read_to_string(&page).unwrap();
        for cited in text.split("test `").skip(1) {
            let name = cited.split('`').next().unwrap();
            assert!(
                names.iter().any(|n| n == name),
                "{} cites the test `{name}`, which is not there",
                page.display()
            );
        }
    }
}

#[test]
fn dependencies_are_explained() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let page = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let tables = manifest
        .split("\n[")
        .filter(|t| t.starts_with("dependencies]") || t.starts_with("dev-dependencies]"));
    for table in tables {
        for line in table.lines().skip(1) {
            let Some((name, _)) = line.split_once(" = ") else { continue };
            assert!(page.contains(name), "docs/dependencies.md does not say why `{name}` is here");
        }
    }
}
