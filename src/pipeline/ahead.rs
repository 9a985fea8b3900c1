//! Planning while inputs are listed: what the list so far leaves no doubt about is built meanwhile.
//!
//! Leaves out: building (`building`), and lists that are whole at once (`listed`).
//!
//! Invariants:
//! 1. The plan is the one of the whole list. What the list proves to be otherwise than it was told is not
//!    built on: the run begins again with it, as one that was interrupted.
//! 2. Nothing begins to be built that the list leaves no room for. Where they do not fit together, the
//!    list goes on alone, and the bound of the whole plan decides.
//! 3. Inputs are planned once, in order, and stay where they are.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::building::Next;
use super::frame::{Frame, Task};
use super::listed::{Cuts, Listed, ListedSource};
use super::plan::{Held, Plan, Planned, State, at_work_bytes, listed_bytes};
use super::planner::Planner;
use super::run::settle;
use super::side::HookFiles;
use super::{Live, Pipeline, PipelineError};
use crate::dataset::facts::Facts;
use crate::dataset::listing::{self, Journal};
use crate::dataset::plan::{self, Divider};
use crate::dataset::record::RecordNames;
use crate::dataset::stamps::Stamps;
use crate::dataset::{Workplace, partition};
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

/// A plan that grows, as those see it who build meanwhile.
pub(super) struct Growing {
    state: RwLock<Grown>,
    changed: Notify,
    /// What the list and the partitions at work share.
    pub(super) room: Room,
}

#[derive(Default)]
struct Grown {
    /// By source.
    lists: Vec<Vec<Input>>,
    /// Each with whether it takes no more than was reckoned with.
    partitions: Vec<(Planned, bool)>,
}

impl Growing {
    fn new(lists: Vec<Vec<Input>>, room: Room) -> Self {
        let state = Grown { lists, partitions: Vec::new() };
        Self { state: RwLock::new(state), changed: Notify::new(), room }
    }

    /// How many partitions are planned.
    pub(super) fn n_partitions(&self) -> usize {
        self.grown().partitions.len()
    }

    /// What is to be done about a partition; `None` where it is not planned yet.
    pub(super) fn next(&self, index: usize) -> Option<Next> {
        let grown = self.grown();
        let (planned, fits) = grown.partitions.get(index)?;
        if let State::Done(done) = &planned.state {
            return Some(Next::Reuse(done.clone()));
        }
        if !fits {
            return Some(Next::Wait);
        }
        Some(Next::Build(Task::new(index, planned, planned.part(grown.list(planned.source)))))
    }

    /// Waits until more is planned.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn grown(&self) -> RwLockReadGuard<'_, Grown> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Grown> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// More is listed of a source.
    fn grow(&self, source: usize, more: Vec<Input>) {
        if let Some(list) = self.change().lists.get_mut(source) {
            list.extend(more);
        }
    }

    /// A partition is planned; `fits` says whether it takes no more than was reckoned with.
    fn publish(&self, planned: Planned, fits: bool) {
        self.change().partitions.push((planned, fits));
        self.changed.notify_one();
    }

    /// All of it, when it is whole.
    fn take(&self) -> Grown {
        std::mem::take(&mut *self.change())
    }
}

impl Grown {
    fn list(&self, source: usize) -> &[Input] {
        self.lists.get(source).map_or(&[], Vec::as_slice)
    }
}

/// What is found next of a source.
enum Coming {
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

/// How a run begins.
pub(super) enum Beginning {
    /// While the rest is listed.
    Ahead(Box<Ahead>),
    /// Everything is listed with the first pages.
    Listed(Listed),
    /// With the whole list.
    Whole,
}

/// A run that begins before its inputs are all listed.
pub(super) struct Ahead {
    /// What the first partitions are built by.
    pub(super) frame: Arc<Frame>,
    pub(super) growing: Arc<Growing>,
    /// Ends the listing.
    pub(super) quit: CancellationToken,
    /// Cancelled where the list is another than it was told.
    pub(super) again: CancellationToken,
    pub(super) stamps: Arc<Stamps>,
    pub(super) place: Arc<Workplace>,
    /// Its lists lie in `growing`.
    pub(super) listed: Listed,
    pub(super) hook_files: HookFiles,
    coming: Vec<Coming>,
    facts: Facts,
    journal: Journal,
    /// What was reckoned with for each partition.
    reckoned: Held,
}

impl Pipeline {
    /// Begins to list, and says whether it can be built meanwhile.
    pub(super) fn list_ahead(
        &self,
        quit: &CancellationToken,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Beginning, PipelineError> {
        let data = &self.definition.data.dataset;
        let needs_all = self.is_shared || self.retries_rejects || data.limit_rows.is_some();
        if needs_all
            || !self.sources.iter().any(|stage| is_url(&stage.root))
            || self.definition.push.as_ref().is_some_and(|push| push.drop_local)
            || self.is_complete()?
        {
            return Ok(Beginning::Whole);
        }
        let names = RecordNames::list(&*self.storage, &self.home)?;
        // What earlier runs have built is looked for in the place before anything is sent there.
        if self.pushes().is_some() && names.iter().next().is_some() {
            return Ok(Beginning::Whole);
        }
        let facts = Facts::read(&*self.storage, &self.home)?;
        let roots = self.url_roots();
        let mut kept = listing::read_begun(&*self.storage, &self.home, &roots)?;
        if facts.retrying || kept.is_whole {
            return Ok(Beginning::Whole);
        }
        let is_cut = |name| kept.sources.get(name).is_some_and(|it| !it.is_whole);
        // Elsewhere the rest need not stand behind what is kept.
        if self.sources.iter().any(|it| is_cut(it.name()) && !lists_in_order(&it.root)) {
            return Ok(Beginning::Whole);
        }
        let at = SystemTime::now();
        let memory = self.definition.run.memory;
        // What is listed before anything is at work waits for nobody, however little room there is.
        let lent_bytes = FIRST_BYTES.saturating_mul(self.sources.len() as u64);
        let room = Room::new(memory.saturating_add(lent_bytes));
        let along = Pace { quit: quit.clone(), room };
        let is_kept = !kept.sources.is_empty();
        let begun = self.begin_lists(&mut kept.sources, &along)?;
        let Some(begun) = begun else { return Ok(Beginning::Whole) };
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
        let readers = listed.sources.iter().enumerate();
        let readers =
            readers.map(|(source, of_source)| self.reader_bytes(source, &of_source.inputs));
        let reader_bytes = readers.max().unwrap_or(0);
        let list_bytes = [memory / LIST_SHARE, listed_now.saturating_mul(2)];
        let list_bytes = list_bytes.into_iter().filter(|bytes| *bytes > listed_now);
        let reckoned = |list| Held { list, reader: reader_bytes, part: part_bytes };
        let mut bounds = list_bytes.map(|bytes| {
            let held = reckoned(bytes);
            (held, self.bound_of(&listed.schema, usize::MAX, held))
        });
        let Some((reckoned, bound)) = bounds.find_map(|(held, it)| Some((held, it.ok()?))) else {
            return Ok(Beginning::Whole);
        };
        drop(bounds);
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
        let growing = Arc::new(Growing::new(lists, along.room));
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

    /// Lists each source as far as it has to be known to begin; `None` where that is in no order, or there
    /// is no room for it.
    fn begin_lists(
        &self,
        kept: &mut BTreeMap<String, listing::Begun>,
        pace: &Pace,
    ) -> Result<Option<Begun>, PipelineError> {
        let (mut lists, mut coming) = (Vec::new(), Vec::new());
        for stage in &self.sources {
            let listing::Begun { inputs: mut list, is_whole } =
                kept.remove(stage.name()).unwrap_or_default();
            let is_resumed = !list.is_empty();
            let mut pages = None;
            if !is_whole {
                let behind = list.last().map(|input| input.path.as_str());
                let begun = stage.source.pages(behind, pace, listed_bytes);
                pages = begun.map_err(|e| stage.error(e))?;
            }
            match &mut pages {
                // What comes in pages pays for itself.
                Some(pages) if !is_resumed => {
                    if let Found::More(first) = pages.wait().map_err(|e| stage.error(e))? {
                        list = first;
                    }
                    if !pages.is_in_order() {
                        return Ok(None);
                    }
                }
                Some(_) => {}
                None if is_whole => {}
                None => list = stage.source.list().map_err(|e| stage.error(e))?,
            }
            let is_paid = pages.is_some() && !is_resumed;
            if !is_paid && !pace.room.take(list.iter().map(listed_bytes).sum()) {
                return Ok(None);
            }
            lists.push(list);
            coming.push(pages.map_or(Coming::Nothing, |pages| Coming::More(Box::new(pages))));
        }
        Ok(Some(Begun { lists, coming }))
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

impl Ahead {
    /// Plans what is listed until all is.
    pub(super) fn plan(self, pipeline: &Pipeline, live: &Live) -> Result<Plan, PipelineError> {
        let quit = self.quit.clone();
        self.plan_all(pipeline, live).map_err(|error| match error {
            // What was given up is no error of the store.
            _ if quit.is_cancelled() => PipelineError::Stopped,
            error => error,
        })
    }

    fn plan_all(mut self, pipeline: &Pipeline, live: &Live) -> Result<Plan, PipelineError> {
        let growing = Arc::clone(&self.growing);
        let (stamps, place) = (Arc::clone(&self.stamps), Arc::clone(&self.place));
        let files = std::mem::take(&mut self.hook_files);
        let mut planner = Planner::new(pipeline, &self.listed, &stamps, files, &self.facts)?;
        let mut cuts = BTreeMap::new();
        let mut n_listed = 0;
        let coming = std::mem::take(&mut self.coming);
        for (source, (stage, mut coming)) in pipeline.sources.iter().zip(coming).enumerate() {
            let partition_bytes = pipeline.definition.data.dataset.partition_bytes;
            let mut dividing =
                Dividing { source, divider: Divider::new(partition_bytes), learned: Cuts::new() };
            let is_kept = is_url(&stage.root);
            let mut n_kept =
                if is_kept { self.journal.begin(stage.name(), &stage.root)? } else { 0 };
            let mut n_before = 0;
            loop {
                {
                    let grown = growing.grown();
                    let list = grown.list(source);
                    if is_kept {
                        self.journal.add(list.get(n_kept..).unwrap_or_default())?;
                        n_kept = list.len();
                    }
                    n_listed += (list.len() - n_before) as u64;
                    n_before = list.len();
                }
                live.list(n_listed);
                let is_whole = matches!(coming, Coming::Nothing);
                self.plan_known(pipeline, &mut planner, &mut dividing, is_whole)?;
                let Coming::More(pages) = &mut coming else { break };
                let found = pages.wait().map_err(|e| stage.error(e))?;
                let is_over = matches!(found, Found::End);
                if !pages.is_in_order() || (is_over && !is_settled(growing.grown().list(source))) {
                    return Err(self.begin_again()?);
                }
                match found {
                    Found::More(more) => growing.grow(source, more),
                    Found::End => coming = Coming::Nothing,
                }
            }
            if is_kept {
                self.journal.end_source()?;
            }
            cuts.insert(stage.name().to_owned(), dividing.learned);
        }
        self.facts.cuts = cuts;
        self.facts.write(&place)?;
        self.journal.end()?;
        let Grown { lists, partitions } = growing.take();
        for (of_source, list) in self.listed.sources.iter_mut().zip(lists) {
            of_source.inputs = list;
        }
        let partitions = partitions.into_iter().map(|(planned, _)| planned).collect();
        let plan = planner.end(self.listed, partitions, self.facts, Some(&place))?;
        plan.stamps.compact(&place, pipeline.ranges(&plan))?;
        pipeline.note(&place, &plan)?;
        Ok(plan)
    }

    /// The list is not what was told of it.
    fn begin_again(&mut self) -> Result<PipelineError, PipelineError> {
        self.journal.give_up()?;
        self.again.cancel();
        Ok(PipelineError::Stopped)
    }

    /// Plans what the list so far leaves no doubt about.
    fn plan_known(
        &self,
        pipeline: &Pipeline,
        planner: &mut Planner<'_>,
        Dividing { source, divider, learned }: &mut Dividing,
        is_whole: bool,
    ) -> Result<(), PipelineError> {
        let Some(stage) = pipeline.sources.get(*source) else { return Ok(()) };
        loop {
            if self.quit.is_cancelled() {
                return Err(PipelineError::Stopped);
            }
            let (division, ranges, reader_bytes) = {
                let grown = self.growing.grown();
                let list = grown.list(*source);
                let (at, facts) = (self.listed.at, &self.facts);
                let cut = |input: &Input| pipeline.cut(stage, input, at, facts, learned);
                let Some(division) = divider.next(list, is_whole, cut)? else { return Ok(()) };
                let inputs = list.get(division.places()).unwrap_or_default();
                let reader_bytes = pipeline.reader_bytes(*source, inputs);
                let ranges = division.inputs(list);
                (division, ranges, reader_bytes)
            };
            let held: usize = ranges.iter().map(|range| at_work_bytes(&range.input)).sum();
            let Some(next) = planner.plan(*source, division, ranges)? else { return Ok(()) };
            let held = held + next.side.iter().map(at_work_bytes).sum::<usize>();
            let fits = held as u64 <= self.reckoned.part && reader_bytes <= self.reckoned.reader;
            if next.is_done() {
                // A run that was cut off may have left what led to the record.
                partition::clear(&self.place, &next.slot)?;
            }
            self.growing.publish(next, fits);
        }
    }
}

/// A source that is being divided.
struct Dividing {
    source: usize,
    divider: Divider,
    learned: Cuts,
}
