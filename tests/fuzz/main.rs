//! The targets of the fuzzer over files of ours, whole and changed at random places, the same at each
//! run. `ROWMILL_FUZZ_RUNS` says how many changed files each target is given; `ROWMILL_FUZZ_SEED` where
//! the changes begin; `ROWMILL_FUZZ_CORPUS` names a folder that the whole files are put into for
//! cargo-fuzz.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "targets write and read files themselves, fail by panicking and say with what"
)]

#[path = "../dataset/fake.rs"]
mod fake;
mod targets;

use std::path::Path;
use std::sync::Arc;

use rowmill::shard::layout;
use rowmill::storage::{Memory, Overlap, Storage};

/// Numbers without any order, the same ones for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % n.max(1) as u64).unwrap()
    }
}

/// Says how to get the same bytes again, where a target fails with them.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("again: ROWMILL_FUZZ_SEED={} ROWMILL_FUZZ_RUNS=1", self.0);
        }
    }
}

/// Numbers at which something ends.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "1",
    "255",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "1e308",
];

/// Changes a place of `bytes`; `other` is where pieces come from.
fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let end = (at + 1 + random.below(16)).min(bytes.len());
    match random.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        2 => drop(bytes.drain(at..end)),
        3 => bytes.truncate(at),
        4 => {
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece.repeat(1 + random.below(40)));
        }
        5 => {
            let from = random.below(other.len() + 1);
            let to = (from + random.below(64)).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        6 => {
            // The next number in a text becomes another.
            let is_digit = |byte: &u8| byte.is_ascii_digit();
            let Some(from) = bytes[at..].iter().position(is_digit) else { return };
            let n = bytes[at + from..].iter().take_while(|byte| is_digit(byte)).count();
            let number = NUMBERS[random.below(NUMBERS.len())];
            bytes.splice(at + from..at + from + n, number.bytes());
        }
        _ => {
            let deep = [&b"["[..], b"{\"a\":", b"a.", b"[[", b"("][random.below(5)];
            bytes.splice(at..at, deep.repeat(1 + random.below(2000)));
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Gives a target the whole files and changed ones.
fn run(name: &str, target: fn(&[u8]), seeds: &[Vec<u8>], n: u64) {
    if let Some(corpus) = std::env::var_os("ROWMILL_FUZZ_CORPUS") {
        let folder = Path::new(&corpus).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (i, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(i.to_string()), seed).unwrap();
        }
    }
    for seed in seeds {
        target(seed);
    }
    let first = number("ROWMILL_FUZZ_SEED").unwrap_or(1);
    for i in first..first + number("ROWMILL_FUZZ_RUNS").unwrap_or(n) {
        let mut random = Random(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut bytes = seeds[random.below(seeds.len())].clone();
        let other = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            change(&mut bytes, &other, &mut random);
        }
        let _told = Told(i);
        target(&bytes);
    }
}

#[test]
fn no_definition_makes_reading_it_fail_badly() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "toml"));
    paths.sort();
    let mut seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let nested = |open: &str, close: &str| {
        let lists = format!("x = {}1{}", open.repeat(5000), close.repeat(5000));
        format!("version = 1\nname = \"x\"\n[sources.s]\ntype = \"jsonl\"\n{lists}\n").into_bytes()
    };
    seeds.extend([nested("[", "]"), nested("{a=", "}"), nested("\"list<", ">\"")]);
    let deep = format!("\"{}int8{}\"", "list<".repeat(5000), ">".repeat(5000));
    let types = format!(
        "version = 1\nname = \"x\"\n[sources.s]\ntype = \"jsonl\"\npath = \"a\"\ntypes = {{a = {deep}}}\n"
    );
    seeds.push(types.into_bytes());
    run("definition", targets::definition, &seeds, 400);
}

#[test]
fn no_manifest_makes_reading_it_fail_badly() {
    let own = String::from_utf8(targets::OPEN.file(layout::MANIFEST)).unwrap();
    let lines =
        own.lines().map(|line| format!("{}}}\n", line.split(",\"crc32\":").next().unwrap()));
    let mut seeds = vec![own.clone().into_bytes(), lines.collect::<String>().into_bytes()];
    let memory = Memory::new(Overlap::Now);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let mut fake = fake::Fake::new(&[("a.txt", "ab.c"), ("b.txt", "de!f")]);
    fake.build(&storage).unwrap();
    let home = fake.home();
    let files = memory.snapshot(home.dir()).into_iter();
    let manifests = files.filter(|(path, _)| path.to_string_lossy().starts_with("manifest-"));
    seeds.extend(manifests.map(|(_, bytes)| bytes));
    assert_eq!(seeds.len(), 3);
    run("manifest", targets::manifest, &seeds, 1500);
}

#[test]
fn no_schema_makes_reading_a_shard_fail_badly() {
    let seeds = [targets::SEALED.file(layout::SCHEMA)];
    run("schema", targets::schema, &seeds, 2000);
}

#[test]
fn no_keys_make_a_lookup_fail_badly() {
    let keys = targets::SEALED.file(layout::KEYS);
    let seeds = [keys.clone(), keys.repeat(9), vec![0xff; 64], Vec::new()];
    run("keys", targets::keys, &seeds, 150);
}

#[test]
fn no_provenance_makes_reading_it_fail_badly() {
    let run_of = |numbers: [i64; 4]| numbers.map(i64::to_le_bytes).as_flattened().to_vec();
    let two = [run_of([0, 0, 7, -1]), run_of([2, 0, 9, 0])].concat();
    let last = run_of([0, i64::from(u32::MAX), i64::MAX, i64::MAX]);
    let seeds = [targets::SEALED.file(layout::PROVENANCE), two, last, Vec::new()];
    run("provenance", targets::provenance, &seeds, 2000);
}
