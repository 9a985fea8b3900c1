//! Pulls of what was pushed to a store in memory.

use super::*;
use crate::storage::Faulty;

#[test]
fn a_pull_begins_only_where_there_is_room_for_what_is_missing() {
    let trial = Trial::new();
    trial.push().unwrap();
    let home = trial.fake.home();
    let bytes = |name: &str| -> u64 {
        let of_shard = |(path, _): &(String, Vec<u8>)| path.contains(&format!("/shards/{name}"));
        trial.wanted().into_iter().filter(of_shard).map(|(_, bytes)| bytes.len() as u64).sum()
    };
    let disk = Faulty::new(Memory::new(Overlap::Now));
    let pull = |only: Option<Vec<usize>>| {
        let remote = format!("s3://bucket/a b/{}/{}", home.name(), home.cache_key());
        let remote = Remote::of_store(&remote, Arc::clone(&trial.bucket));
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let (options, stop) = (PullOptions::default(), CancellationToken::new());
        trial.runtime.block_on(async {
            pull(remote, storage, Path::new("/out"), only, options, Arc::default(), stop).await
        })
    };
    let all = bytes("");
    let expect = |only, free: u64, needed: u64| {
        disk.set_space(free);
        let error = pull(only).unwrap_err();
        let PullError::Space { free: said, needed: of_pull, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*said, *of_pull), (free, needed), "{error}");
        disk.heal();
    };
    expect(None, all - 1, all);
    assert!(disk.inner().list(&Path::new("/out").join(home.name()).join("x")).unwrap().is_none());
    let report = pull(Some(vec![0])).unwrap();
    expect(None, all - report.bytes - 1, all - report.bytes);
    assert!(pull(None).unwrap().complete);
    // What is here needs no room.
    disk.set_space(1 << 10);
    assert_eq!(pull(None).unwrap().received_bytes, 0);
}
