//! What was committed is changed by something else: refused by name, with a hint that helps.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rowmill::batch::Restart;
use rowmill::shard::{ShardError, Writer, layout, log, verify_shard};
use rowmill::storage::{Memory, Overlap, Storage};
use serde_json::{Value, json};

use crate::build::{CUTS, Case, Cuts, DATASET, Said, chain};
use crate::sampling::{Sampling, Tally};
use crate::schemas;
use crate::trial::Trial;

/// Changes one file.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Flip(usize),
    Cut(usize),
    Grow,
    Remove,
}

impl Harm {
    fn to(self, disk: &Memory, path: &Path, bytes: &[u8]) {
        match self {
            Self::Flip(at) => disk.overwrite(path, at, &[bytes[at] ^ 0x11]).unwrap(),
            Self::Cut(len) => disk.truncate(path, len).unwrap(),
            Self::Grow => disk.truncate(path, bytes.len() + 40).unwrap(),
            Self::Remove => disk.remove_file(path).unwrap(),
        }
    }
}

/// Whether a file is among those that the sentinel in its folder covers.
fn is_covered(disk: &Memory, path: &Path) -> bool {
    let dir = path.parent().unwrap();
    let name = path.file_name().unwrap();
    name != layout::MANIFEST && disk.stat(&dir.join(layout::COMPLETE)).unwrap().is_some()
}

/// Deletes what a hint says is to be deleted.
fn follow(hint: &str, disk: &Memory) {
    for path in hint.split('`').filter(|path| path.starts_with("work/")) {
        disk.remove_all(&Path::new(DATASET).join(path)).unwrap();
    }
}

#[test]
fn any_damage_is_refused_or_does_not_show() {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new("damage", &sampling);
    let case = schemas::each_kind();
    let work = layout::work(Path::new(DATASET));
    let n_operations = Trial::new(&case, Overlap::Late).n_operations(CUTS[0]);
    for n in sampling.pick(n_operations, 8, 11) {
        let mut trial = Trial::new(&case, Overlap::Late);
        trial.run_until(n, CUTS[0]);
        let disk = trial.disk.after_power_cut(&|_| true);
        if disk.stat(&work).unwrap().is_none() {
            continue;
        }
        for (number, (file, bytes)) in disk.snapshot(&work).into_iter().enumerate() {
            let mut harms = vec![Harm::Remove, Harm::Grow];
            let places = sampling.pick(bytes.len(), 3, (n + number) as u64);
            harms.extend(places.into_iter().flat_map(|at| [Harm::Flip(at), Harm::Cut(at)]));
            for harm in harms {
                let way = format!("cut at {n}, then {harm:?} of {}", file.display());
                let disk = disk.after_kill();
                harm.to(&disk, &work.join(&file), &bytes);
                tally.add("damages", 1);
                tally.add(after_damage(&case, &disk, &work.join(&file), &way), 1);
            }
        }
    }
}

/// Goes on after damage to `file`, and says what has come of it.
fn after_damage(case: &Case, disk: &Memory, file: &Path, way: &str) -> &'static str {
    let is_covered = is_covered(disk, file);
    let mut n_refused = 0;
    while n_refused < 3 {
        let outcome = case.run(disk, CUTS[1], &mut Said::nothing());
        match outcome.unwrap_or_else(|problem| panic!("{way}: {problem}")) {
            Ok(finished) => {
                let Err(problem) = case.check_finished(&finished, disk) else {
                    let names = ["that did not show", "refused, and the hint helped"];
                    return names[n_refused.min(1)];
                };
                // A writer does not read again what has a sentinel; verifying does.
                let storage: Arc<dyn Storage> = Arc::new(disk.clone());
                let bad = finished.shards.iter().any(|s| verify_shard(&storage, s.path()).is_err());
                assert!(is_covered && bad, "{way}: {problem}");
                return "found by verifying";
            }
            Err(error) => {
                let is_named =
                    matches!(error, ShardError::Damaged { .. } | ShardError::Lost { .. });
                assert!(is_named, "{way}: {}", chain(&error));
                follow(&error.hint().unwrap(), disk);
                n_refused += 1;
            }
        }
    }
    panic!("{way}: what the hints say does not help");
}

/// A partition whose first shard is sealed and whose second one has two rows, each in a segment of its own.
fn left_open(case: &Case) -> Memory {
    let memory = Memory::new(Overlap::Now);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let (mut writer, _) = Writer::open(storage, case.options.clone()).unwrap();
    let one_by_one = Cuts { n_items: 1, ..CUTS[0] };
    for batch in case.batches(&Restart::default(), one_by_one) {
        writer.append(&batch).unwrap();
        if !writer.sealed().is_empty() && writer.commit().unwrap().rows == 8 {
            break;
        }
    }
    memory
}

/// The open shard of [`left_open`].
struct Open<'a> {
    disk: &'a Memory,
    slot: &'a str,
    dir: PathBuf,
}

impl Open<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        self.disk.read(&self.path(name)).unwrap().unwrap()
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        if self.disk.stat(&path).unwrap().is_none() {
            self.disk.create(&path).unwrap();
        }
        self.disk.truncate(&path, bytes.len()).unwrap();
        self.disk.overwrite(&path, 0, bytes).unwrap();
    }

    /// How many segments the manifest tells of.
    fn n_segments(&self) -> usize {
        self.read(layout::MANIFEST).split(|byte| *byte == b'\n').count() - 2
    }

    /// Writes a line of the manifest anew, with a sum that is right.
    fn rewrite(&self, number: usize, change: impl FnOnce(&mut Value)) {
        let manifest = self.read(layout::MANIFEST);
        let lines = manifest.split_inclusive(|byte| *byte == b'\n').enumerate();
        let mut change = Some(change);
        let lines = lines.map(|(n, line)| {
            if n != number {
                return line.to_vec();
            }
            let mut value: Value = serde_json::from_slice(line).unwrap();
            value.as_object_mut().unwrap().remove("crc32");
            change.take().unwrap()(&mut value);
            log::line(&value)
        });
        let manifest = lines.collect::<Vec<_>>().concat();
        self.put(layout::MANIFEST, &manifest);
    }
}

/// Lets the first value of a dictionary end at byte 1,000, with a sum that is right.
fn break_dictionary(open: &Open<'_>) {
    let name = "word.dict.offsets.bin";
    let mut bytes = open.read(name);
    bytes[8..16].copy_from_slice(&1000_u64.to_le_bytes());
    open.put(name, &bytes);
    open.rewrite(1, |line| {
        let mark = &mut line["files"][name];
        let len = mark["len"].as_u64().unwrap() as usize;
        mark["crc32"] = json!(format!("{:08x}", crc32fast::hash(&bytes[8..len])));
    });
}

/// Makes an open shard contradict itself.
type Change = fn(&Open<'_>);

/// What is done to [`left_open`], and what is said of the shard.
const CONTRADICTIONS: &[(&str, Change, &str)] = &[
    (
        "a later layout",
        |open| open.rewrite(0, |line| line["layout"] = json!(2)),
        "its manifest was written for layout 2, not 1",
    ),
    (
        "another dataset's header",
        |open| open.rewrite(0, |line| line["cache_key"] = json!("fedcba9876543210")),
        "its manifest was written for cache key fedcba9876543210, not 0123456789abcdef",
    ),
    (
        "another partition's header",
        |open| open.rewrite(0, |line| line["slot"] = json!("ff")),
        "its manifest was written for slot ff, not 00112233445566778899aabbccddeeff",
    ),
    (
        "another shard's header",
        |open| open.rewrite(0, |line| line["shard"] = json!(4)),
        "its manifest was written for shard 4, not 1",
    ),
    (
        "a broken header",
        |open| open.disk.overwrite(open.path(layout::MANIFEST), 3, b"#").unwrap(),
        "the first line of its manifest is broken",
    ),
    (
        "a segment that leaves a file out",
        |open| {
            open.rewrite(2, |line| {
                line["files"].as_object_mut().unwrap().remove("id.bin");
            });
        },
        "its manifest does not tell the size of `id.bin`",
    ),
    (
        "books of another stage",
        |open| open.rewrite(open.n_segments(), |line| line["books"]["polish"] = json!({})),
        "its manifest cannot be understood: books of an unknown stage `polish`",
    ),
    (
        "a dictionary whose offsets lead nowhere",
        break_dictionary,
        "`word.dict.offsets.bin` does not fit `word.dict.bin`",
    ),
    (
        "a file that was cut",
        |open| open.disk.truncate(open.path("provenance.bin"), 31).unwrap(),
        "the manifest promises 64 bytes of `provenance.bin`, but it ends at 31",
    ),
    (
        "a file that is gone",
        |open| open.disk.remove_file(&open.path("number.bin")).unwrap(),
        "the manifest promises 16 bytes of `number.bin`, which is not there",
    ),
    (
        "a byte of the first segment",
        |open| open.disk.overwrite(open.path("id.bin"), 0, b"R").unwrap(),
        "`id.bin` does not hold the bytes that manifest line 2 promises",
    ),
    (
        "a byte of a later segment",
        |open| open.disk.overwrite(open.path("id.bin"), 7, b"R").unwrap(),
        "`id.bin` does not hold the bytes that manifest line 6 promises",
    ),
    (
        "a sentinel that is none",
        |open| open.put(layout::COMPLETE, b"{}\n"),
        "its `_COMPLETE` contradicts its manifest",
    ),
    (
        "a sentinel without a manifest",
        |open| {
            open.put(layout::COMPLETE, b"{}\n");
            open.disk.remove_file(&open.path(layout::MANIFEST)).unwrap();
        },
        "it is sealed, but no log and no manifest tells its place",
    ),
    (
        "a log that is cut",
        |open| {
            let log = layout::log(Path::new(DATASET), open.slot);
            open.disk.truncate(log, 100).unwrap();
        },
        "the log of its partition ends after 0 shards",
    ),
];

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let case = schemas::each_kind();
    let slot = &case.options.slot;
    for (name, change, want) in CONTRADICTIONS {
        let disk = left_open(&case);
        let dir = layout::open_shard(Path::new(DATASET), slot, 1);
        change(&Open { disk: &disk, slot, dir });
        let error = case.run(&disk, CUTS[0], &mut Said::nothing()).unwrap().unwrap_err();
        assert_eq!(error.to_string(), format!("open shard {slot}/1: {want}"), "{name}");
        follow(&error.hint().unwrap(), &disk);
        let finished = case.run(&disk, CUTS[0], &mut Said::nothing()).unwrap();
        let finished = finished.unwrap_or_else(|error| panic!("{name}: {}", chain(&error)));
        case.check_finished(&finished, &disk).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    }
}
