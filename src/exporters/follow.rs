//! What goes out while a dataset is built: shards as they are sealed, and the record of each partition
//! as soon as it is finished.
//!
//! Leaves out: how a shard is sent, and what is done when the dataset is complete (`steps`).
//!
//! Invariants:
//! 1. The record of a partition goes out after the sentinels of all its shards, those too that an
//!    earlier run sealed.
//! 2. No shard is on its way twice at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use async_channel::Receiver;
use tokio::task::JoinSet;

use super::error::{PushError, Result};
use super::exporter::Exporter;
use super::send_shard::{send_record, send_shard};
use super::steps::LANES;
use super::task::join;
use crate::dataset::record::{RecordName, ShardEntry};
use crate::shard::SealedShard;

/// Something that can go out.
#[derive(Debug, Clone)]
pub enum Ready {
    /// A shard that is sealed and in its place.
    Shard(SealedShard),
    /// A partition that is finished.
    Partition {
        /// Its record.
        record: RecordName,
        /// The shards that the record names.
        shards: Vec<ShardEntry>,
    },
}

/// What was sent.
enum Sent {
    Shard(String),
    Record,
}

/// What is sent next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Shard(String),
    Record(RecordName),
}

/// What is known to be ready, and cannot go out yet or is on its way.
#[derive(Debug, Default)]
struct Queue {
    shards: VecDeque<String>,
    records: VecDeque<RecordName>,
    /// Shards that were asked for and are not in their places.
    under_way: BTreeSet<String>,
    /// Records that wait for shards.
    waiting: Vec<(RecordName, BTreeSet<String>)>,
}

impl Queue {
    /// Takes something on, unless it `is_there`; gives the bytes of what has to be sent.
    fn take(&mut self, ready: Ready, is_there: impl Fn(&str) -> bool) -> u64 {
        match ready {
            Ready::Shard(shard) if is_there(shard.id()) => 0,
            Ready::Shard(shard) => self.add(shard.id(), shard.bytes()),
            Ready::Partition { record, .. } if is_there(record.as_str()) => 0,
            Ready::Partition { record, shards } => {
                let left = shards.into_iter().filter(|shard| !is_there(&shard.id));
                let left: BTreeMap<_, _> = left.map(|it| (it.id, it.bytes)).collect();
                let bytes = left.iter().map(|(id, bytes)| self.add(id, *bytes)).sum();
                if left.is_empty() {
                    self.records.push_back(record);
                } else {
                    self.waiting.push((record, left.into_keys().collect()));
                }
                bytes
            }
        }
    }

    fn add(&mut self, id: &str, bytes: u64) -> u64 {
        if !self.under_way.insert(id.to_owned()) {
            return 0;
        }
        self.shards.push_back(id.to_owned());
        bytes
    }

    /// A shard is in its place.
    fn sent(&mut self, id: &str) {
        self.under_way.remove(id);
        for (_, left) in &mut self.waiting {
            left.remove(id);
        }
        let ready = self.waiting.extract_if(.., |(_, left)| left.is_empty());
        self.records.extend(ready.map(|(record, _)| record));
    }

    /// Records first: they are small, and others may wait for them.
    fn next(&mut self) -> Option<Next> {
        let record = self.records.pop_front().map(Next::Record);
        record.or_else(|| self.shards.pop_front().map(Next::Shard))
    }
}

impl Exporter {
    /// Sends the shards that were ready `before`, and what is ready later as it comes, until no more can.
    ///
    /// # Errors
    /// What went wrong first. [`Exporter::finish`] sends what is missing.
    ///
    /// # Cancel safety
    /// As [`super::Push::run`].
    pub async fn follow(&self, before: Vec<ShardEntry>, ready: Receiver<Ready>) -> Result<()> {
        let mut tasks: JoinSet<Result<Sent>> = JoinSet::new();
        let mut queue = Queue::default();
        for shard in before.iter().filter(|shard| !self.session().remembers(&shard.id)) {
            self.session().live.expect(queue.add(&shard.id, shard.bytes));
        }
        let mut may_come = true;
        loop {
            while tasks.len() < LANES
                && let Some(next) = queue.next()
            {
                let (session, home) = (Arc::clone(self.session()), self.home().clone());
                tasks.spawn(async move {
                    session.announce().await?;
                    match next {
                        Next::Shard(id) => {
                            send_shard(&session, &home, &id).await.map(|()| Sent::Shard(id))
                        }
                        Next::Record(name) => {
                            let nothing = BTreeMap::new();
                            let sent = send_record(&session, &home, name.as_str(), &nothing).await;
                            sent.map(|()| Sent::Record)
                        }
                    }
                });
            }
            if !may_come && tasks.is_empty() {
                return Ok(());
            }
            let ended = tokio::select! {
                ready = ready.recv(), if may_come && tasks.len() < LANES => {
                    match ready {
                        Ok(ready) => {
                            let session = self.session();
                            session.live.expect(queue.take(ready, |it| session.remembers(it)));
                        }
                        Err(_) => may_come = false,
                    }
                    continue;
                }
                ended = join(&mut tasks), if !tasks.is_empty() => ended,
            };
            match ended {
                Some(Ok(Sent::Shard(id))) => queue.sent(&id),
                Some(Err(PushError::Stopped)) => {
                    // What is on its way arrives, and is noted.
                    while join(&mut tasks).await.is_some() {}
                    return Err(PushError::Stopped);
                }
                Some(Err(error)) => return Err(error),
                Some(Ok(Sent::Record)) | None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(digit: char) -> RecordName {
        let slot = digit.to_string().repeat(32);
        RecordName::parse(&format!("{slot}-0123456789abcdef.json")).unwrap()
    }

    fn partition(digit: char, shards: &[&str]) -> Ready {
        let entry = |id: &&str| ShardEntry { bytes: 10, id: (*id).to_owned(), rows: 1 };
        Ready::Partition { record: name(digit), shards: shards.iter().map(entry).collect() }
    }

    #[test]
    fn a_record_waits_for_its_shards_and_no_shard_is_sent_twice() {
        let mut queue = Queue::default();
        let is_there = |it: &str| it == "old" || it == name('3').as_str();
        let shard = |id: &str| Some(Next::Shard(id.to_owned()));
        assert_eq!(queue.take(partition('1', &["a", "b", "a"]), is_there), 20);
        assert_eq!(queue.take(partition('2', &["b", "old"]), is_there), 0, "b is on its way");
        assert_eq!(queue.take(partition('3', &["c"]), is_there), 0, "its record is there");
        assert_eq!([queue.next(), queue.next(), queue.next()], [shard("a"), shard("b"), None]);
        queue.sent("b");
        assert_eq!(queue.next(), Some(Next::Record(name('2'))));
        queue.take(partition('4', &["d"]), is_there);
        queue.sent("a");
        assert_eq!(queue.next(), Some(Next::Record(name('1'))), "before any shard");
        assert_eq!(queue.next(), shard("d"));
        assert_eq!(queue.take(partition('5', &[]), is_there), 0);
        assert_eq!(queue.next(), Some(Next::Record(name('5'))), "it has no shards");
    }
}
