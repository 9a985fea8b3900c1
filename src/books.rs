//! The books of a partition: what entered each stage, and what became of it.
//!
//! Invariants:
//! 1. For every stage, in + created = out + dropped + rejected, and what leaves a stage is
//!    what enters the next. [`Books::balance`] is called before any sentinel of a dataset.
//! 2. A budget is judged by the books alone, so all who have them judge alike.

use std::fmt::{self, Display};

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

impl StageBooks {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.created += other.created;
        self.dropped += other.dropped;
        self.entered += other.entered;
        self.out += other.out;
        self.rejected += other.rejected;
    }
}

/// The books of all stages, in the order in which rows pass them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Books {
    stages: Vec<(String, StageBooks)>,
}

/// How many rows of a stage may be rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxRejects {
    /// So many in the whole dataset.
    Rows(u64),
    /// A share of the rows that come into the stage, in each partition and in the whole dataset.
    Share {
        /// The share in billionths.
        per_billion: u64,
    },
}

impl Default for MaxRejects {
    fn default() -> Self {
        Self::Rows(Self::DEFAULT_ROWS)
    }
}

impl MaxRejects {
    /// The number of rows that may be rejected where nothing else is said.
    pub const DEFAULT_ROWS: u64 = 100;

    /// `share` of the rows, `None` where it does not lie between 0 and 1.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number from 0 to a billion"
    )]
    pub fn of_share(share: f64) -> Option<Self> {
        let is_share = (0.0..=1.0).contains(&share);
        is_share.then(|| Self::Share { per_billion: (share * 1e9).round() as u64 })
    }

    /// Whether `books` hold more rejects than this.
    #[must_use]
    pub fn is_exceeded(self, books: &StageBooks) -> bool {
        match self {
            Self::Rows(most) => books.rejected > most,
            Self::Share { per_billion } => {
                let most = u128::from(books.entered) * u128::from(per_billion);
                u128::from(books.rejected) * 1_000_000_000 > most
            }
        }
    }
}

impl Display for MaxRejects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => write!(f, "{rows}"),
            #[expect(clippy::cast_precision_loss, reason = "at most a billion")]
            Self::Share { per_billion } => write!(f, "{}%", *per_billion as f64 / 1e7),
        }
    }
}

/// How many rows of one stage may be rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// The stage.
    pub stage: String,
    /// How many.
    pub max: MaxRejects,
}

/// A stage has more rejects than it may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "stage `{}` rejected {} of {} rows, and its `max_rejects` is {}",
    budget.stage, books.rejected, books.entered, budget.max
)]
pub struct OverBudget {
    /// What was allowed.
    pub budget: Budget,
    /// What was counted.
    pub books: StageBooks,
}

/// Holds books against budgets.
///
/// # Errors
/// The first stage that has more rejects than it may have.
pub fn judge<'a>(
    budgets: &[Budget],
    books: impl IntoIterator<Item = (&'a str, &'a StageBooks)>,
) -> Result<(), OverBudget> {
    for (stage, books) in books {
        let budget = budgets.iter().find(|budget| budget.stage == stage);
        if let Some(budget) = budget.filter(|budget| budget.max.is_exceeded(books)) {
            return Err(OverBudget { budget: budget.clone(), books: *books });
        }
    }
    Ok(())
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
            mine.add(theirs);
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
            let right = books.out.checked_add(books.dropped);
            let right = right.and_then(|n| n.checked_add(books.rejected));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_exceeded_by_one_row_more() {
        let share = |share| MaxRejects::of_share(share).unwrap();
        for (max, entered, rejected, want) in [
            (MaxRejects::Rows(0), 5, 0, false),
            (MaxRejects::Rows(0), 5, 1, true),
            (MaxRejects::Rows(2), 5, 2, false),
            (MaxRejects::Rows(2), 5, 3, true),
            (share(0.01), 200, 2, false),
            (share(0.01), 199, 2, true),
            (share(0.0), 199, 0, false),
            (share(0.0), 199, 1, true),
            (share(1.0), 7, 7, false),
            (share(0.5), 0, 0, false),
            (share(0.1), u64::MAX, u64::MAX / 10, false),
            (share(0.1), u64::MAX, u64::MAX / 9, true),
        ] {
            let books = StageBooks { entered, rejected, ..StageBooks::default() };
            assert_eq!(max.is_exceeded(&books), want, "{max} of {entered}: {rejected}");
        }
        assert_eq!((MaxRejects::of_share(f64::NAN), MaxRejects::of_share(1.01)), (None, None));
    }

    #[test]
    fn the_first_stage_over_its_budget_is_named() {
        let budget = |stage: &str, max| Budget { stage: stage.to_owned(), max };
        let budgets = [budget("read", MaxRejects::Rows(1)), budget("cast", MaxRejects::Rows(0))];
        let mut books = Books::new(["read", "cast"]);
        books.enter(4);
        let reject =
            crate::batch::Outcome::Rejected { code: String::new(), message: String::new() };
        books.outcome(0, &reject);
        judge(&budgets, books.stages()).unwrap();
        books.outcome(1, &reject);
        let over = judge(&budgets, books.stages()).unwrap_err();
        let want = "stage `cast` rejected 1 of 3 rows, and its `max_rejects` is 0";
        assert_eq!(over.to_string(), want);
        let share = budget("cast", MaxRejects::of_share(0.005).unwrap());
        let over = judge(&[share], books.stages()).unwrap_err();
        assert!(over.to_string().ends_with("`max_rejects` is 0.5%"), "{over}");
    }
}
