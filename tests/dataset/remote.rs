//! Shards whose rows are only in a store: dropped and brought back with the power cut anywhere, and
//! datasets that are made of them.

use std::path::{Path, PathBuf};

use rowmill::dataset::verify::verify;
use rowmill::dataset::{Dataset, Workplace};
use rowmill::shard::{
    Promise, ReadError, RemoteSentinel, bring_back, drop_rows, dropped_files, files_here,
    is_complete, place_remote, verify_kept, verify_shard,
};
use rowmill::storage::memory::survivals;
use rowmill::storage::{Memory, Overlap, Storage};

use crate::fake::Fake;
use crate::{FILES, disk, sealed};

const URL: &str = "s3://bucket/prefix/letters/key";

fn url(id: &str) -> String {
    format!("{URL}/shards/{id}")
}

fn built() -> (Memory, Fake) {
    let memory = Memory::new(Overlap::Now);
    let mut fake = Fake { key: Some("id"), ..Fake::new(FILES) };
    fake.build(&disk(&memory)).unwrap();
    (memory.after_power_cut(&|_| true), fake)
}

fn ids(memory: &Memory, fake: &Fake) -> Vec<String> {
    let dataset = Dataset::open_in(disk(memory), fake.home().dir()).unwrap();
    dataset.entries().iter().map(|entry| entry.id.clone()).collect()
}

fn drop_shard(memory: &Memory, fake: &Fake, id: &str) -> Result<(), ReadError> {
    drop_rows(&disk(memory), fake.home().dir(), id, &url(id)).map(drop)
}

/// Brings a shard back whose files are all in `from`, as a pull does.
fn fetch(memory: &Memory, fake: &Fake, id: &str, from: &Memory) -> Result<(), ReadError> {
    let (home, place) = (fake.home(), fake.home().shard(id));
    if is_complete(memory, home.dir(), id)? {
        return Ok(());
    }
    let promise = Promise::read(from, &place)?;
    let staged = home.work().join("pull").join(id);
    memory.create_dir_all(&staged)?;
    let here = files_here(memory, &place, &promise)?;
    for (name, _) in promise.files.iter().filter(|(name, _)| !here.contains(name)) {
        let bytes = from.read(&place.join(name))?.unwrap();
        memory.write_atomic(&staged.join(name), &bytes)?;
    }
    bring_back(memory, home.dir(), &staged, &promise)
}

/// What holds of a shard's folder at every moment.
fn check_legal(memory: &Memory, path: &Path, when: &str) {
    let has = |name: &str| memory.stat(&path.join(name)).unwrap().is_some();
    assert!(has("_COMPLETE") || has("_REMOTE"), "{when}: neither sentinel");
    if has("_COMPLETE") {
        verify_shard(&disk(memory), path).unwrap_or_else(|found| panic!("{when}: {found:?}"));
    } else {
        let kept = verify_kept(&disk(memory), path);
        assert!(matches!(kept, Ok(Some(_))), "{when}: {kept:?}");
    }
}

/// Cuts the power at every operation of `act`, lets what is pending survive in every way, and does it
/// again, which must end with the files `want`.
fn cut_everywhere(
    start: &Memory,
    fake: &Fake,
    shard: &Path,
    want: &[(PathBuf, Vec<u8>)],
    act: impl Fn(&Memory) -> Result<(), ReadError>,
) {
    let whole = start.after_kill();
    act(&whole).unwrap();
    assert!(sealed(&whole, &fake.home()) == want);
    let n_operations = whole.operations() - start.after_kill().operations();
    assert!(n_operations > 8, "{n_operations}");
    for n in 0..n_operations {
        let run = start.after_kill();
        run.cut_at(run.operations() + n);
        act(&run).unwrap_err();
        for survival in survivals(run.pending(), 1, 8) {
            let boot = run.after_power_cut(&|i| survival.survives(i));
            let when = format!("cut {n} of {n_operations}, {survival:?}");
            check_legal(&boot, shard, &when);
            act(&boot).unwrap_or_else(|e| panic!("{when}: {e}"));
            assert!(sealed(&boot, &fake.home()) == want, "{when}");
        }
    }
}

#[test]
fn a_shard_is_dropped_and_brought_back_wherever_the_power_is_cut() {
    let (memory, fake) = built();
    let (id, before) = (ids(&memory, &fake)[1].clone(), sealed(&memory, &fake.home()));
    let place = fake.home().shard(&id);
    let dropped = memory.after_kill();
    drop_shard(&dropped, &fake, &id).unwrap();
    let after = sealed(&dropped, &fake.home());
    let gone: Vec<_> = before.iter().filter(|it| !after.contains(it)).collect();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let gone: Vec<_> = gone.iter().map(|(path, _)| name(path)).collect();
    assert_eq!(gone, ["_COMPLETE", "index.parquet", "x.bin"]);
    cut_everywhere(&memory, &fake, &place, &after, |disk| drop_shard(disk, &fake, &id));
    let start = dropped.after_power_cut(&|_| true);
    cut_everywhere(&start, &fake, &place, &before, |disk| fetch(disk, &fake, &id, &memory));
}

#[test]
fn a_dataset_is_completed_with_shards_that_are_elsewhere() {
    let (memory, mut fake) = built();
    let (home, before) = (fake.home(), sealed(&memory, &fake.home()));
    for id in ids(&memory, &fake) {
        drop_shard(&memory, &fake, &id).unwrap();
    }
    let tables = |files: &[(PathBuf, Vec<u8>)]| {
        let mut tables = files.to_vec();
        tables.retain(|(path, _)| !path.starts_with("shards"));
        tables
    };
    for (path, _) in tables(&before).iter().filter(|(path, _)| !path.starts_with("partitions")) {
        memory.remove_file(&home.dir().join(path)).unwrap();
    }
    fake.n_built = 0;
    fake.build(&disk(&memory)).unwrap();
    assert_eq!(fake.n_built, 0, "shards elsewhere are not built again");
    assert!(tables(&sealed(&memory, &home)) == tables(&before), "manifest, index and sentinel");
    let verified = verify(&disk(&memory), home.dir(), &mut |_| ()).unwrap();
    let n_shards = verified.n_shards;
    assert_eq!((verified.n_remote, verified.n_remote_bytes), (n_shards, verified.n_bytes));
    assert_eq!(verified.urls.iter().collect::<Vec<_>>(), [URL]);

    // The dataset grows; the keys of what is elsewhere are compared with those that come.
    fake.files.insert("d.txt".to_owned(), ("JK".to_owned(), 1));
    fake.build(&disk(&memory)).unwrap();
    let verified = verify(&disk(&memory), home.dir(), &mut |_| ()).unwrap();
    assert_eq!((verified.n_shards, verified.n_remote), (n_shards + 1, n_shards));
    fake.files.insert("e.txt".to_owned(), ("b".to_owned(), 1));
    let error = fake.build(&disk(&memory)).unwrap_err().to_string();
    assert!(error.contains("from `a2.txt`, row 1"), "{error}");
    assert!(error.contains("from `e.txt`, row 0"), "{error}");
}

#[test]
fn rows_elsewhere_are_refused_with_the_way_back() {
    let (memory, fake) = built();
    let id = ids(&memory, &fake)[0].clone();
    let opened_before = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    let shard_before = opened_before.shard(0).unwrap();
    drop_shard(&memory, &fake, &id).unwrap();
    let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    assert_eq!(dataset.find("b").unwrap(), Some(1), "keys are here");
    assert_eq!(dataset.find("l").unwrap(), Some(11));
    let want = format!(
        "the rows of shard `{}` are only at `{}`",
        fake.home().shard(&id).display(),
        url(&id)
    );
    let shard = dataset.shard(0).unwrap();
    for (name, error) in [
        ("a field", shard.field("x").map(|_| ()).unwrap_err()),
        ("rows", shard.record_batch(0..1).map(|_| ()).unwrap_err()),
        ("a shard opened before", shard_before.field("x").map(|_| ()).unwrap_err()),
    ] {
        assert_eq!(error.to_string(), want, "{name}");
        let hint = error.hint().unwrap();
        assert_eq!(hint, format!("`rowmill pull {URL} /out` brings them back"), "{name}");
    }
    let mut rows = vec![0; 8];
    dataset.select(&[11]).unwrap().gather("x", &mut rows).unwrap();
    dataset.select(&[1]).unwrap().gather("x", &mut rows).unwrap_err();
    assert!(dataset.load_in_memory().is_err());
    // Damage of what stays is found; what a removal has left over is none.
    let place = fake.home().shard(&id);
    memory.write_atomic(&place.join("x.bin"), b"left over").unwrap();
    verify_kept(&disk(&memory), &place).unwrap();
    memory.write_atomic(&place.join("stray"), b"").unwrap();
    memory.overwrite(place.join("keys.bin"), 0, b"\0\0\0\0\0\0\0\0").unwrap();
    memory.remove_file(&place.join("rejects.jsonl")).unwrap();
    let found = verify(&disk(&memory), Path::new("/out/letters"), &mut |_| ()).unwrap_err();
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    let at = |name: &str| format!("`{}`", place.join(name).display());
    assert_eq!(
        found,
        [
            format!("{}: was changed since it was sealed", at("keys.bin")),
            format!("{}: is missing", at("rejects.jsonl")),
            format!("{}: does not belong to the shard", at("stray")),
        ]
    );
}

#[test]
fn a_shard_that_was_built_elsewhere_takes_its_place() {
    let (there, fake) = built();
    let id = ids(&there, &fake)[2].clone();
    let (home, place) = (fake.home(), fake.home().shard(&id));
    let here = Memory::new(Overlap::Now);
    drop(Workplace::open(disk(&here), home.clone()).unwrap());
    let promise = Promise::read(&there, &place).unwrap();
    let dropped = dropped_files(&fake.schema());
    let staged = home.work().join("adopt").join(&id);
    for _ in 0..2 {
        here.create_dir_all(&staged).unwrap();
        for (name, _) in promise.files.iter().filter(|(name, _)| !dropped.contains(name)) {
            let bytes = there.read(&place.join(name)).unwrap().unwrap();
            here.write_atomic(&staged.join(name), &bytes).unwrap();
        }
        place_remote(&here, home.dir(), &staged, &promise, &url(&id)).unwrap();
    }
    let remote = verify_kept(&disk(&here), &place).unwrap().unwrap();
    assert_eq!(remote, RemoteSentinel::of(&promise, &url(&id)));
    assert_eq!((remote.id(), remote.n_rows()), (id.as_str(), promise.n_rows()));
    let boot = here.after_power_cut(&|_| false);
    assert!(sealed(&boot, &home) == sealed(&here, &home));
    drop_shard(&there, &fake, &id).unwrap();
    let shards = |memory: &Memory| memory.snapshot(&place);
    assert!(shards(&here) == shards(&there), "it is what dropping leaves");
}
