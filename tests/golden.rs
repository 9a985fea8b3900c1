//! Bytes that must not change without a new version of the shard writer.

mod model;

use std::sync::Arc;

use model::partition::{Fates, Partition, write_all};
use rowmill::shard::{SealedShard, ShardLimits};
use rowmill::storage::{Memory, Overlap, Storage};

/// When this fails, equal rows have come to other bytes: if that is meant, bump
/// `fingerprint::SHARD_WRITER` (and the layout, if readers must know), and put the new ids here.
#[test]
fn shards_of_every_kind_keep_their_ids() {
    let partition = Partition::of_every_kind(100, Fates::All);
    let limits = ShardLimits { rows: 64, ..ShardLimits::default() };
    let storage: Arc<dyn Storage> = Arc::new(Memory::new(Overlap::Now));
    let options = partition.options("out", limits);
    let finished = write_all(&storage, &options, &partition, 50).unwrap();
    let ids: Vec<&str> = finished.shards.iter().map(SealedShard::id).collect();
    assert_eq!(rowmill::fingerprint::SHARD_WRITER, "shard@3");
    assert_eq!(ids, ["f56ecfc66b42bb71680be6428c500652", "4042cca776e1d41e61ba0ad977d9c91f"]);
}
