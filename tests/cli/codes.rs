//! `explain`, and the codes that errors are printed with.

use rowmill::codes::Code;

use crate::command::Place;

#[test]
fn every_code_is_explained_with_an_example() {
    let place = Place::new();
    let all = place.json(&["explain"])["codes"].as_array().unwrap().clone();
    assert_eq!(all.len(), Code::ALL.len());
    let list = place.done(&["explain"]).stdout;
    for entry in all {
        let code = entry["code"].as_str().unwrap();
        assert!(list.lines().any(|line| line.split(' ').next() == Some(code)), "{code}");
    }
    for code in ["definition-unknown-key", "value_misfit", "value-misfit"] {
        let text = place.done(&["explain", code]).stdout;
        for want in ["why        ", "what to do ", "example    error["] {
            assert!(text.contains(want), "{text}");
        }
    }
    place.rowmill(&["explain", "dataset-bussy"]).fails(
        2,
        &["error[usage]: there is no code `dataset-bussy`", "hint: did you mean `dataset-busy`?"],
    );
}

/// Codes of rejects stand in the source as words; each has to be in the table.
#[test]
fn every_code_of_a_reject_in_the_source_is_in_the_table() {
    let mut open = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let mut n_found = 0;
    while let Some(path) = open.pop() {
        if path.ends_with("tests") {
            continue;
        }
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for constant in code.split(": &str = \"").skip(1) {
            let word = constant.split('"').next().unwrap();
            let is_one =
                word.contains('_') && !word.contains(|c: char| !matches!(c, 'a'..='z' | '_'));
            if is_one && path.starts_with(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sources")) {
                assert_eq!(Code::from_name(word).map(Code::name), Some(word), "{}", path.display());
            }
        }
        for (before, skip) in [("Bad::new(", 1), ("BadRow::new(", 0)] {
            for call in code.split(before).skip(1) {
                let arguments = call.split(',').map(str::trim);
                // A row's number may be a call with a comma of its own: take the first text.
                let word = arguments.skip(skip).find(|it| it.starts_with('"'));
                let Some(word) = word.and_then(|it| it.strip_prefix('"')?.strip_suffix('"')) else {
                    continue;
                };
                if word.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_')) {
                    n_found += 1;
                    assert_eq!(
                        Code::from_name(word).map(Code::name),
                        Some(word),
                        "{}",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(n_found > 5, "{n_found}");
    for code in [
        rowmill::batch::INPUT_DAMAGED,
        rowmill::batch::ROW_TOO_LARGE,
        rowmill::batch::NOT_UTF8,
        rowmill::batch::VALUE_MISFIT,
    ] {
        assert_eq!(Code::from_name(code).map(Code::name), Some(code));
    }
}
