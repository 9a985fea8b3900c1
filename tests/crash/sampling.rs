//! What is tried of all that could be: everything where it is little, else what the seed picks.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use rowmill::storage::memory::{Lost, Memory, Pending, survivals};

use crate::build::Said;

/// Pending operations of which so many are there may survive in any subset; beyond that this many
/// subsets are drawn.
const SAMPLES: usize = 64;

/// Decides what is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    pub(crate) seed: u64,
    scale: usize,
}

impl Sampling {
    /// What the environment asks for, or what is tried by default.
    pub(crate) fn from_env() -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text}, not a number")))
        };
        let seed = number("ROWMILL_CRASH_SEED").unwrap_or(1);
        let scale = number("ROWMILL_CRASH_SCALE").unwrap_or(1).max(1) as usize;
        Self { seed, scale }
    }

    /// `n` times the scale.
    pub(crate) fn times(&self, n: usize) -> usize {
        n.saturating_mul(self.scale)
    }

    /// A number that looks random: a function of the seed and of what it is for.
    pub(crate) fn number(&self, what: &[u64]) -> u64 {
        let mut hasher = blake3::Hasher::new();
        for number in [self.seed].iter().chain(what) {
            hasher.update(&number.to_le_bytes());
        }
        u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().unwrap())
    }

    /// Up to `most` of the numbers below `n`, times the scale: the first, the last, and others.
    pub(crate) fn pick(&self, n: usize, most: usize, what: u64) -> Vec<usize> {
        let most = self.times(most);
        if n <= most {
            return (0..n).collect();
        }
        let mut picked = BTreeSet::from([0, n - 1]);
        let mut draw = 0;
        while picked.len() < most {
            picked.insert((self.number(&[what, n as u64, draw]) % n as u64) as usize);
            draw += 1;
        }
        picked.into_iter().collect()
    }

    /// The disks that the next boot may find, up to `most` of them, times the scale, and among them
    /// the one on which nothing survived and the one on which everything did. Where pages are lost
    /// they hold zeros in one half of the cases and stale bytes in the other.
    pub(crate) fn boots(
        self,
        disk: &Memory,
        most: usize,
        what: u64,
    ) -> impl Iterator<Item = (String, Memory)> + use<'_> {
        let sets: Vec<_> = survivals(disk.pending(), self.number(&[what]), SAMPLES).collect();
        let picked = self.pick(sets.len(), most, what);
        let boot = move |set: usize| {
            let is_stale = self.number(&[what, set as u64]) & 1 == 1;
            let lost = if is_stale { Lost::Stale } else { Lost::Zeros };
            let survival = &sets[set];
            let disk = disk.after_power_cut_with(lost, &|operation| survival.survives(operation));
            (format!("{survival:?} survives, lost pages hold {lost:?}"), disk)
        };
        picked.into_iter().map(boot)
    }
}

/// Which disks were looked at, together with what had been said by then.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeSet<([u8; 32], u64, usize)>);

/// Which ways of going on were gone: from disks that recovery has left, in every respect.
#[derive(Debug, Default)]
pub(crate) struct Gone(BTreeSet<[u8; 32]>);

impl Gone {
    /// Whether nobody has gone on from this disk, with the same pending (together they say what the
    /// medium holds of all that is seen) and with `how`. What is removed and may come back is of no
    /// interest to who goes on without a further cut.
    pub(crate) fn is_new(&mut self, disk: &Memory, how: &str) -> bool {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&disk.digest());
        for pending in disk.pending_operations() {
            if !matches!(&pending, Pending::Names(change) if change.starts_with("remove ")) {
                hasher.update(format!("{pending} ").as_bytes());
            }
        }
        hasher.update(how.as_bytes());
        self.0.insert(*hasher.finalize().as_bytes())
    }
}

impl Seen {
    /// Whether this one is new.
    pub(crate) fn is_new(&mut self, disk: &Memory, said: &Said) -> bool {
        self.0.insert((disk.digest(), said.rows, said.sealed.len()))
    }

    /// The same where a number stands for what had been said.
    pub(crate) fn is_new_with(&mut self, disk: &Memory, said: u64) -> bool {
        self.0.insert((disk.digest(), said, 0))
    }
}

/// Counts what a test tries, and says so when it has ended.
#[derive(Debug)]
pub(crate) struct Tally {
    name: String,
    seed: u64,
    began: Instant,
    told: Instant,
    counts: Vec<(&'static str, usize)>,
}

/// How often a test that takes long says how far it is.
const TELLING: Duration = Duration::from_mins(1);

impl Tally {
    pub(crate) fn new(name: impl fmt::Display, sampling: &Sampling) -> Self {
        let (name, seed) = (name.to_string(), sampling.seed);
        let now = Instant::now();
        Self { name, seed, began: now, told: now, counts: Vec::new() }
    }

    pub(crate) fn add(&mut self, what: &'static str, n: usize) {
        match self.counts.iter_mut().find(|(name, _)| *name == what) {
            Some((_, count)) => *count += n,
            None => self.counts.push((what, n)),
        }
        if self.told.elapsed() > TELLING {
            self.told = Instant::now();
            self.tell();
        }
    }

    #[expect(clippy::print_stderr, reason = "a test tells how much it has tried")]
    fn tell(&self) {
        let counts: Vec<_> = self.counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
        let (name, seed, seconds) = (&self.name, self.seed, self.began.elapsed().as_secs_f64());
        eprintln!("{name}: {} in {seconds:.1} s, seed {seed}", counts.join(", "));
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.tell();
    }
}
