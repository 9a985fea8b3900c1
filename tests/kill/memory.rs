//! Peak memory: within `memory` and 64 MiB, whatever rows are like and however slow the disk.

use std::fmt::Write;

use crate::place::Place;
use crate::tools::{can_trace, strace};

/// What the process itself may take.
const CONSTANT_BYTES: u64 = 64 << 20;

/// A build whose inputs are larger than its memory, or very many.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) memory_mib: u64,
    pub(crate) jobs: usize,
    /// Microseconds by which each write and sync takes longer.
    pub(crate) delay: u32,
    pub(crate) rows: u64,
}

pub(crate) fn check(place: &Place, case: &Case) {
    let Case { name, memory_mib, jobs, delay, rows } = case;
    let mut run = place.run("out").arg("--memory").arg(format!("{memory_mib}MiB"));
    run = run.arg("--jobs").arg(jobs.to_string());
    if *delay > 0 && can_trace() {
        let inject = format!("pwrite64,fdatasync:delay_exit={delay}");
        let log = place.path("log");
        run = run.below(strace(log.to_str().unwrap(), "pwrite64,fdatasync", Some(&inject)));
    }
    let ended = run.complete();
    assert_eq!(ended.number("rows"), *rows, "{name}");
    let (peak, limit) = (ended.number("peak_rss_bytes"), (memory_mib << 20) + CONSTANT_BYTES);
    println!(
        "{name}: {:.0} of {} MiB + 64 MiB, {jobs} jobs, {:.1} s",
        mib(peak),
        memory_mib,
        ended.report()["seconds"].as_f64().unwrap()
    );
    assert!(peak <= limit, "{name}: {:.1} MiB are more than {:.1}", mib(peak), mib(limit));
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn files(partition_bytes: &str, max_row_bytes: &str) -> Place {
    Place::new(&format!(
        r#"
version = 1
name = "files"

[sources.files]
type = "files"
root = "in"
path = "**"

[dataset]
partition_bytes = "{partition_bytes}"
max_row_bytes = "{max_row_bytes}"
"#
    ))
}

fn csv(partition_bytes: &str, max_row_bytes: &str) -> Place {
    let place = files(partition_bytes, max_row_bytes);
    let definition = std::fs::read_to_string(place.path("p.toml")).unwrap();
    place.write("p.toml", definition.replace("\"files\"", "\"csv\""));
    place
}

#[test]
fn rows_of_a_byte() {
    let place = csv("200KiB", "1KiB");
    place.write("in/rows.csv", format!("v\n{}", "7\n".repeat(300_000)));
    check(&place, &Case { name: "1 B", memory_mib: 72, jobs: 3, delay: 2000, rows: 300_000 });
}

#[test]
fn rows_of_4_kib() {
    let place = csv("12MiB", "8KiB");
    let row = "x".repeat(4 << 10) + "\n";
    place.write("in/rows.csv", format!("v\n{}", row.repeat(20_000)));
    check(&place, &Case { name: "4 KiB", memory_mib: 72, jobs: 3, delay: 2000, rows: 20_000 });
}

#[test]
fn rows_of_1_mib() {
    let place = files("64MiB", "2MiB");
    for i in 0..300 {
        place.write_sparse(&format!("in/{i:03}"), 1 << 20);
    }
    check(&place, &Case { name: "1 MiB", memory_mib: 96, jobs: 3, delay: 2000, rows: 300 });
}

#[test]
fn rows_of_64_mib() {
    let place = files("128MiB", "65MiB");
    for i in 0..8 {
        place.write_sparse(&format!("in/{i:03}"), 64 << 20);
    }
    check(&place, &Case { name: "64 MiB", memory_mib: 800, jobs: 2, delay: 500, rows: 8 });
}

#[test]
fn rows_of_16_mib_through_transforms() {
    let place = files("64MiB", "17MiB");
    let mut definition = std::fs::read_to_string(place.path("p.toml")).unwrap();
    definition = definition.replace("path = \"**\"", "path = \"**\"\ncontent = \"text\"");
    for transform in ["text_stats", "byte_histogram"] {
        write!(
            definition,
            "\n[transforms.{transform}]\ntype = \"{transform}\"\ninput = \"text\"\n"
        )
        .unwrap();
    }
    place.write("p.toml", definition);
    for i in 0..16 {
        place.write_sparse(&format!("in/{i:03}"), 16 << 20);
    }
    check(
        &place,
        &Case { name: "16 MiB, two transforms", memory_mib: 320, jobs: 2, delay: 500, rows: 16 },
    );
}

#[test]
fn a_memory_that_is_too_small_is_refused_with_sizes_that_differ() {
    let place = files("1MiB", "2MiB");
    place.write("in/one", "1");
    let run = |memory: u64| place.run("out").arg("--memory").arg(format!("{memory}B"));
    let refused = |memory: u64| {
        let ended = run(memory).wait();
        assert_eq!(ended.code(), Some(2), "{ended:#?}");
        let messages = ended.messages();
        assert!(messages.contains(&format!("memory = {memory} bytes")), "{messages}");
        assert!(messages.contains("hint: raise `memory`"), "{messages}");
        let needed = messages.split("may take ").nth(1).unwrap().split(' ').next().unwrap();
        needed.parse::<u64>().unwrap()
    };
    let least = refused(1 << 20);
    assert_eq!(refused(least - 1), least, "one byte less is shown as less");
    run(least).complete();
}

#[test]
fn many_small_inputs() {
    const N: u64 = 60_000;
    let place = files("1GiB", "64KiB");
    for i in 0..N {
        if i % 1000 == 0 {
            std::fs::create_dir_all(place.path(&format!("in/{:02}", i / 1000))).unwrap();
        }
        let path = place.path(&format!("in/{:02}/input-{i:06}.txt", i / 1000));
        std::fs::write(path, format!("{i}\n")).unwrap();
    }
    check(&place, &Case { name: "60,000 inputs", memory_mib: 64, jobs: 1, delay: 0, rows: N });
}

/// Files are counted here as memory is: more are open than a process may have at first.
#[test]
fn wide_rows() {
    const COLUMNS: usize = 300;
    let place = csv("1MiB", "64KiB");
    let header: Vec<String> = (0..COLUMNS).map(|i| format!("column_{i}")).collect();
    let mut text = header.join(",");
    for row in 0..2000 {
        let values: Vec<String> = (0..COLUMNS).map(|i| (row * i).to_string()).collect();
        write!(text, "\n{}", values.join(",")).unwrap();
    }
    place.write("in/rows.csv", text);
    let few_files = ["sh", "-c", "ulimit -n 256; exec \"$0\" \"$@\""].map(str::to_owned).to_vec();
    let refused = place.run("refused").below(few_files).wait();
    assert_eq!(refused.code(), Some(1), "{refused:#?}");
    for text in ["cannot create `", "Too many open files", "hint: raise the limit of open files"] {
        assert!(refused.messages().contains(text), "{refused:#?}");
    }
    let soft = ["sh", "-c", "ulimit -Sn 256; exec \"$0\" \"$@\""].map(str::to_owned).to_vec();
    place.run("raised").below(soft).complete();
    check(&place, &Case { name: "300 columns", memory_mib: 160, jobs: 2, delay: 0, rows: 2000 });
}

/// What files gather is bounded for all together: columns do not multiply it.
#[test]
fn very_wide_rows() {
    const COLUMNS: usize = 2000;
    let place = csv("64MiB", "64KiB");
    let header: Vec<String> = (0..COLUMNS).map(|i| format!("column_{i}")).collect();
    let mut text = header.join(",");
    for row in 0..500 {
        let values: Vec<String> = (0..COLUMNS).map(|i| (row * i).to_string()).collect();
        write!(text, "\n{}", values.join(",")).unwrap();
    }
    place.write("in/rows.csv", text);
    check(&place, &Case { name: "2,000 columns", memory_mib: 128, jobs: 1, delay: 0, rows: 500 });
}
