//! Definitions and inputs that the tests share.

use std::fmt::Write;

use crate::place::Place;
use crate::random::Random;

/// Words of which few are distinct.
const WORDS: [&str; 5] = ["rye", "oats", "b\u{e4}rley", "wheat, \"spelt\"", "maize\nmeal"];

/// Text files in packages with licences: texts of any length, interned names and licences, two
/// transforms.
pub(crate) fn files(seed: u64, n_files: usize, most_bytes: usize) -> Place {
    let place = Place::new(
        r#"
version = 1
name = "files"

[sources.files]
type = "files"
root = "in"
path = "*/src/*.txt"
content = "text"
pattern = '^package-(?P<package>[^/]+)/'
sibling = "LICENSE*"
sibling_as = "license"

[transforms.counts]
type = "text_stats"
input = "text"

[transforms.histogram]
type = "byte_histogram"
input = "text"

[dataset]
partition_bytes = "3KiB"
shard_rows = 5
max_row_bytes = "64KiB"

[dataset.fields]
path = { index = true }
parent = { intern = true }
package = { intern = true, index = true }
license = { intern = true, sidecar = "licenses.json" }

[run]
commit_interval = "1h"
"#,
    );
    let mut random = Random(seed);
    for i in 0..n_files {
        let package = format!("in/package-{}", i % 4);
        let text: String = (0..random.below(most_bytes)).map(|_| *random.pick(&TEXT)).collect();
        place.write(&format!("{package}/src/{i:04}.txt"), text);
    }
    for (i, word) in WORDS.iter().take(3).enumerate() {
        place.write(&format!("in/package-{i}/LICENSE-{i}"), word.repeat(20));
    }
    place
}

const TEXT: [char; 6] = ['a', 'z', ' ', '\n', '\u{e9}', '\u{1f33e}'];

/// One CSV file that is cut into many partitions, with numbers, nulls, interned words and texts
/// of any length.
pub(crate) fn csv(seed: u64, n_rows: usize, partition_bytes: usize, shard_rows: usize) -> Place {
    let place = Place::new(&format!(
        r#"
version = 1
name = "rows"

[sources.rows]
type = "csv"
root = "in"
path = "*.csv"

[dataset]
partition_bytes = "{partition_bytes}B"
shard_rows = {shard_rows}
max_row_bytes = "4KiB"
intern_values = 4

[dataset.fields]
id = {{ index = true }}
word = {{ intern = true, sidecar = "words.json" }}

[run]
commit_interval = "1h"
"#
    ));
    place.write("in/rows.csv", rows(seed, n_rows, 60));
    place
}

/// A header and rows of four columns, the last of up to `most_text` characters.
pub(crate) fn rows(seed: u64, n_rows: usize, most_text: usize) -> String {
    let mut random = Random(seed);
    let mut text = String::from("id,word,share,note\n");
    for id in 0..n_rows {
        let word = random.pick(&WORDS).replace('"', "\"\"");
        let share = match random.below(4) {
            0 => String::new(),
            n => format!("{}.{n}", random.below(1000)),
        };
        let note = "n".repeat(random.below(most_text));
        writeln!(text, "{id},\"{word}\",{share},{note}").unwrap();
    }
    text
}
