//! The books of a partition: what entered each stage, and what became of it.
//!
//! Invariant: for every stage, in + created = out + dropped + rejected, and what leaves a stage is
//! what enters the next. [`Books::balance`] is called before any sentinel of a dataset.

use serde::{Deserialize, Serialize};

/// Counts of rows at one stage. Written with its keys sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StageBooks {
    /// Rows that the stage made beyond those that came in.
    pub created: u64,
    /// Rows left out.
    pub dropped: u64,
    /// Rows that came in.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Rows that went on.
    pub out: u64,
    /// Rows that failed and were kept as rejects.
    pub rejected: u64,
}

/// The books of all stages, in the order in which rows pass them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Books {
    stages: Vec<(String, StageBooks)>,
}

/// The books of one stage do not close, or one stage's output is not the next one's input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the books of stage `{stage}` do not close: {books:?}")]
pub struct Unbalanced {
    /// The stage.
    pub stage: String,
    /// What was counted there.
    pub books: StageBooks,
}

impl Books {
    /// Empty books for stages of these names, in the order in which rows pass them.
    pub fn new<S: Into<String>>(stages: impl IntoIterator<Item = S>) -> Self {
        Self { stages: stages.into_iter().map(|s| (s.into(), StageBooks::default())).collect() }
    }

    /// Each stage's name and counts.
    pub fn stages(&self) -> impl Iterator<Item = (&str, &StageBooks)> {
        self.stages.iter().map(|(name, books)| (name.as_str(), books))
    }

    /// Counts `n` source rows that pass every stage, but for what [`Books::outcome`] is told.
    pub fn enter(&mut self, n: u64) {
        for (_, books) in &mut self.stages {
            books.entered += n;
            books.out += n;
        }
    }

    /// Takes `outcome`, met at the stage of index `stage`, into account there and below.
    pub fn outcome(&mut self, stage: usize, outcome: &crate::batch::Outcome) {
        use crate::batch::Outcome;
        for (i, (_, books)) in self.stages.iter_mut().enumerate().skip(stage) {
            match outcome {
                Outcome::Dropped | Outcome::Rejected { .. } => {
                    books.out -= 1;
                    if i > stage {
                        books.entered -= 1;
                    } else if matches!(outcome, Outcome::Dropped) {
                        books.dropped += 1;
                    } else {
                        books.rejected += 1;
                    }
                }
                Outcome::Created(n) => {
                    books.out += n;
                    if i > stage {
                        books.entered += n;
                    } else {
                        books.created += n;
                    }
                }
            }
        }
    }

    /// Sets all counts to zero.
    pub fn clear(&mut self) {
        for (_, books) in &mut self.stages {
            *books = StageBooks::default();
        }
    }

    /// Adds the counts of `other`, which has the same stages.
    pub fn add(&mut self, other: &Books) {
        for ((_, mine), (_, theirs)) in self.stages.iter_mut().zip(&other.stages) {
            mine.entered += theirs.entered;
            mine.created += theirs.created;
            mine.out += theirs.out;
            mine.dropped += theirs.dropped;
            mine.rejected += theirs.rejected;
        }
    }

    /// Rows rejected at any stage.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.stages.iter().map(|(_, b)| b.rejected).sum()
    }

    /// Rows that left the last stage.
    #[must_use]
    pub fn out(&self) -> u64 {
        self.stages.last().map_or(0, |(_, b)| b.out)
    }

    /// Checks that the books close.
    ///
    /// # Errors
    /// Names the first stage that lost or invented a row.
    pub fn balance(&self) -> Result<(), Unbalanced> {
        let mut arriving = None;
        for (stage, books) in &self.stages {
            let left = books.entered.checked_add(books.created);
            let right = books.out.checked_add(books.dropped + books.rejected);
            if left != right || arriving.is_some_and(|n| n != books.entered) {
                return Err(Unbalanced { stage: stage.clone(), books: *books });
            }
            arriving = Some(books.out);
        }
        Ok(())
    }

    /// The books as JSON: an object by stage name.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let by_name =
            self.stages.iter().map(|(name, books)| (name.clone(), serde_json::json!(books)));
        serde_json::Value::Object(by_name.collect())
    }

    /// Reads [`Books::to_json`] back, for stages whose order is known.
    ///
    /// # Errors
    /// Says which stage is missing, unknown or malformed.
    pub fn from_json<S: AsRef<str>>(
        stages: &[S],
        json: &serde_json::Value,
    ) -> Result<Self, String> {
        let object = json.as_object().ok_or("books are not an object")?;
        if let Some(name) = object.keys().find(|k| !stages.iter().any(|s| s.as_ref() == *k)) {
            return Err(format!("books of an unknown stage `{name}`"));
        }
        let read = |name: &str| {
            let value = object.get(name).ok_or_else(|| format!("no books of stage `{name}`"))?;
            let books = serde_json::from_value(value.clone())
                .map_err(|e| format!("books of stage `{name}`: {e}"))?;
            Ok((name.to_owned(), books))
        };
        let stages = stages.iter().map(|s| read(s.as_ref())).collect::<Result<_, String>>()?;
        Ok(Self { stages })
    }
}
