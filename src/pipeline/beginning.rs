//! How a run begins: while its inputs are still listed, or with all of them.
//!
//! Leaves out: planning what is listed meanwhile (`ahead`).
//!
//! Invariant: what is kept of an interrupted listing is gone on with only where the store still tells the
//! last of it as it did; else it is begun anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;
use tracing::info;

use super::ahead::{Ahead, Reckoned};
use super::assembly::SourceStage;
use super::demand::{Extent, Held};
use super::frame::Frame;
use super::growing::Growing;
use super::listed::{Listed, ListedSource};
use super::plan::{at_work_bytes, listed_bytes};
use super::run::settle;
use super::{Pipeline, PipelineError};
use crate::dataset::Workplace;
use crate::dataset::facts::Facts;
use crate::dataset::journal::{self, Journal, KeptSoFar};
use crate::dataset::plan;
use crate::dataset::record::RecordNames;
use crate::dataset::stamps::Stamps;
use crate::inputs::Input;
use crate::remote::{Pace, Room, is_url, lists_in_order};
use crate::sources::{Found, InputPages, is_settled};

/// Least that is reckoned with for what a partition at work holds of its list.
const LEAST_PART: u64 = 1 << 20;
/// More than the pages of a source take that are told or on their way while nobody asks for the second.
const FIRST_BYTES: u64 = 64 << 20;
/// Shares of `memory` that are left to the list, and to what one partition holds of it.
const LIST_SHARE: u64 = 4;
const PART_SHARE: u64 = 16;

/// What is found next of a source.
pub(super) enum Coming {
    /// Nothing: its list is whole.
    Nothing,
    More(Box<InputPages>),
}

/// What was found before the rest is waited for.
struct Begun {
    lists: Vec<Vec<Input>>,
    coming: Vec<Coming>,
}

impl Begun {
    /// Whether there is more to be found.
    fn is_long(&self) -> bool {
        let is_long = |coming: &Coming| matches!(coming, Coming::More(pages) if !pages.is_over());
        self.coming.iter().any(is_long)
    }
}

/// What came of beginning to list.
enum Lists {
    Begun(Begun),
    /// It is in no order, or there is no room for it: it is listed whole.
    Whole,
    /// What is kept is not found again.
    Changed,
}

/// How a run begins.
pub(super) enum Beginning {
    /// While the rest is listed.
    Ahead(Box<Ahead>),
    /// Everything is listed with the first pages.
    Listed(Listed),
    /// With the whole list.
    Whole,
}

impl Pipeline {
    /// Begins to list, and says whether it can be built meanwhile.
    pub(super) fn list_ahead(
        &self,
        quit: &CancellationToken,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Beginning, PipelineError> {
        let Some(mut kept) = self.kept_to_begin()? else { return Ok(Beginning::Whole) };
        let at = SystemTime::now();
        let memory = self.definition.run.memory;
        // What is listed before anything is at work waits for nobody, however little room there is.
        let lent_bytes = FIRST_BYTES.saturating_mul(self.sources.len() as u64);
        let room = || Room::new(memory.saturating_add(lent_bytes));
        let mut is_kept = !kept.sources.is_empty();
        let (along, begun) = loop {
            let along = Pace { quit: quit.child_token(), room: room() };
            match self.begin_lists(std::mem::take(&mut kept.sources), &along)? {
                Lists::Begun(begun) => break (along, begun),
                Lists::Whole => return Ok(Beginning::Whole),
                Lists::Changed => {
                    info!("what was listed is not what is there now: it is listed anew");
                    kept.forget();
                    is_kept = false;
                }
            }
        };
        let is_long = begun.is_long();
        let Begun { lists, coming } = begun;
        if !is_long && !lists.iter().all(|list| is_settled(list)) {
            return Ok(Beginning::Whole);
        }
        let listed_now: u64 = lists.iter().flatten().map(listed_bytes).sum();
        let mut listed = match self.typed(at, is_kept, lists, is_stopped) {
            // What was kept does not count any more: all is listed anew.
            Err(error) if is_kept && error.is_changed_input() => return Ok(Beginning::Whole),
            typed => typed?,
        };
        if !is_long {
            return Ok(Beginning::Listed(Listed { is_kept: false, ..listed }));
        }
        let part_bytes = self.part_bytes(&listed);
        let reader = |row_bytes| self.most_reader_bytes(&listed.sources, row_bytes);
        let list_bytes = [memory / LIST_SHARE, listed_now.saturating_mul(2)];
        let list_bytes = list_bytes.into_iter().filter(|bytes| *bytes > listed_now);
        let all = Extent { partitions: usize::MAX, part_bytes };
        let mut bounds = list_bytes.map(|list| {
            let held = Held { list, reader: &reader, to_build: all, all };
            self.bound_of(&listed.schema, &held)
        });
        let Some(bound) = bounds.find_map(Result::ok) else { return Ok(Beginning::Whole) };
        drop(bounds);
        let reader_bytes = reader(self.definition.data.dataset.max_row_bytes);
        let reckoned = Reckoned { reader_bytes, part_bytes };
        if !along.room.take(bound.beside_bytes().saturating_add(lent_bytes)) {
            return Ok(Beginning::Whole);
        }
        let place = Arc::new(Workplace::open(Arc::clone(&self.storage), self.home.clone())?);
        settle(&place)?;
        let Some(journal) = Journal::open(&place, kept.state)? else { return Ok(Beginning::Whole) };
        let by = self.definition.run.fingerprint;
        let stamps = Arc::new(Stamps::open(&place, by, at)?);
        let hook_files = self.hook_files(&stamps)?;
        // As it is now that nobody else writes here.
        let mut facts = Facts::read(&*self.storage, &self.home)?;
        if facts.retrying {
            return Ok(Beginning::Whole);
        }
        facts.schemas.clone_from(&listed.schemas);
        facts.outputs.clone_from(&listed.learned);
        facts.write(&place)?;
        // What was planned is not known before all is listed: nothing may be taken for left over.
        place.discard(&self.home.run_note())?;
        let columns = listed.sources.iter().map(ListedSource::columns).collect();
        let schema = listed.schema.clone();
        let frame = Arc::new(Frame { schema, columns, bound, retry: None });
        let lists = listed.sources.iter_mut().map(|it| std::mem::take(&mut it.inputs)).collect();
        let growing = Arc::new(Growing::new(lists, along.room, along.quit));
        let (quit, again) = (quit.clone(), CancellationToken::new());
        Ok(Beginning::Ahead(Box::new(Ahead {
            frame,
            growing,
            quit,
            again,
            stamps,
            place,
            listed,
            hook_files,
            coming,
            facts,
            journal,
            reckoned,
        })))
    }

    /// Whether a limit of rows could end a list before what belongs among its first inputs.
    fn is_limited_out_of_order(&self) -> bool {
        let is_unordered = |it: &SourceStage| is_url(&it.root) && !lists_in_order(&it.root);
        self.definition.data.dataset.limit_rows.is_some() && self.sources.iter().any(is_unordered)
    }

    /// How far an interrupted run came with its lists, if anything is to be built while they go on.
    fn kept_to_begin(&self) -> Result<Option<KeptSoFar>, PipelineError> {
        if self.is_shared
            || self.retries_rejects
            || !self.sources.iter().any(|stage| is_url(&stage.root))
            || self.definition.push.as_ref().is_some_and(|push| push.drop_local)
            || self.is_limited_out_of_order()
            || self.is_complete()?
        {
            return Ok(None);
        }
        let names = RecordNames::list(&*self.storage, &self.home)?;
        // What earlier runs have built is looked for in the place before anything is sent there.
        if self.pushes().is_some() && names.iter().next().is_some() {
            return Ok(None);
        }
        let facts = Facts::read(&*self.storage, &self.home)?;
        let kept = journal::read(&*self.storage, &self.home, &self.url_roots())?;
        if facts.retrying || kept.is_whole {
            return Ok(None);
        }
        let is_cut = |name: &str| kept.sources.get(name).is_some_and(|it| !it.is_whole);
        // Elsewhere the rest need not stand behind what is kept.
        let is_lost = |it: &SourceStage| is_cut(it.name()) && !lists_in_order(&it.root);
        Ok((!self.sources.iter().any(is_lost)).then_some(kept))
    }

    /// Lists each source as far as it has to be known to begin, or to go on behind what is kept.
    fn begin_lists(
        &self,
        mut kept: BTreeMap<String, journal::Begun>,
        pace: &Pace,
    ) -> Result<Lists, PipelineError> {
        let (mut lists, mut coming) = (Vec::new(), Vec::new());
        for stage in &self.sources {
            let journal::Begun { inputs: mut list, is_whole } =
                kept.remove(stage.name()).unwrap_or_default();
            let mut pages = None;
            if !is_whole {
                let listing = stage.source.listing();
                let begun = listing.map(|listing| listing.pages(&list, pace, listed_bytes));
                pages = begun.transpose().map_err(|e| stage.error(e))?.flatten();
                if pages.is_none() {
                    list = stage.source.list().map_err(|e| stage.error(e))?;
                }
            }
            // What comes in pages pays for itself.
            if !pace.room.take(list.iter().map(listed_bytes).sum()) {
                return Ok(Lists::Whole);
            }
            if let Some(pages) = &mut pages {
                let found = pages.wait().map_err(|e| stage.error(e))?;
                if !pages.is_in_order() {
                    return Ok(Lists::Whole);
                }
                if !pages.is_as_told() {
                    return Ok(Lists::Changed);
                }
                if let Found::More(more) = found {
                    list.extend(more);
                }
            }
            lists.push(list);
            coming.push(pages.map_or(Coming::Nothing, |pages| Coming::More(Box::new(pages))));
        }
        Ok(Lists::Begun(Begun { lists, coming }))
    }

    /// About what the largest partition holds of its list, if all inputs are like those that were found
    /// first.
    fn part_bytes(&self, listed: &Listed) -> u64 {
        let most = self.definition.run.memory / PART_SHARE;
        let partition_bytes = self.definition.data.dataset.partition_bytes;
        let of_source = |inputs: &[Input]| {
            let weight = inputs.iter().map(|input| plan::weight(input, partition_bytes));
            let weight: u64 = weight.sum();
            let held: usize = inputs.iter().map(at_work_bytes).sum();
            let times = partition_bytes.saturating_mul(4).div_ceil(weight.max(1)).max(1);
            times.saturating_mul(held as u64)
        };
        let largest = listed.sources.iter().map(|it| of_source(&it.inputs)).max();
        largest.unwrap_or(0).min(most).max(LEAST_PART)
    }
}
