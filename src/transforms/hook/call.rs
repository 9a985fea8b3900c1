//! Asks a hook about a batch until it has an answer, or it is known which rows are to blame.
//!
//! A batch whose process dies is sent again unchanged. If that one dies too, parts of the batch are
//! sent to find the guilty rows; those answers are thrown away, because a hook may answer a part
//! otherwise than the whole. The batch without the guilty rows is then sent once more, and its answer
//! counts. Where one guilty row ends the run, an exception is believed at once. A hook that raises an
//! exception lives on and is asked about the parts; who is to blame is
//! found with one that has raised none, because an exception may leave it broken.
//!
//! Leaves out: processes (`pool`, `worker`), and what an answer must be (`answer`).
//!
//! Invariants:
//! 1. What is kept is the answer to the batch, or to the batch without its guilty rows.
//! 2. Which rows are guilty, and of what, depends on what the hook does with them: a hook that does
//!    the same with equal batches leads to the same rejects.

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;

use super::HookError;
use super::notice::NoticeKind;
use super::pool::{Pool, Unanswered};
use super::worker::Failure;
use crate::batch::{BadRow, HOOK_DIED, HOOK_MEMORY, HOOK_RAISED, HOOK_TIMEOUT};
use crate::transforms::{Stopped, TransformError};

/// What came of a batch.
#[derive(Debug)]
pub(super) struct Called {
    /// The answer to the rows that are not guilty.
    pub(super) answer: Option<RecordBatch>,
    /// The guilty rows, in order.
    pub(super) guilty: Vec<(usize, BadRow)>,
    /// The others.
    pub(super) left: Vec<usize>,
    /// Whether the hook was not asked for that answer.
    pub(super) is_known: bool,
}

/// The answer that is known to these rows together, if there is one.
type Recall<'a> = dyn Fn(&[usize]) -> Result<Option<RecordBatch>, TransformError> + 'a;

/// Asks about one batch.
pub(super) struct Call<'a> {
    pub(super) pool: &'a Pool,
    pub(super) name: &'a str,
    pub(super) is_stopped: &'a dyn Fn() -> bool,
    /// One guilty row is enough.
    pub(super) ends_at_first: bool,
}

impl Call<'_> {
    /// Asks about `rows`, unless the answer is `known`.
    pub(super) fn answer(
        &self,
        rows: &RecordBatch,
        known: &Recall<'_>,
    ) -> Result<Called, TransformError> {
        let mut guilty: Vec<(usize, BadRow)> = Vec::new();
        // The places in the whole batch of the rows that are left.
        let mut left: Vec<usize> = (0..rows.num_rows()).collect();
        loop {
            if left.is_empty() {
                return Ok(Called { answer: None, guilty, left, is_known: false });
            }
            if let Some(answer) = known(&left)? {
                return Ok(Called { answer: Some(answer), guilty, left, is_known: true });
            }
            let part = without(rows, &guilty)?;
            let found = match self.twice(&part)? {
                Ok(answer) => {
                    return Ok(Called { answer: Some(answer), guilty, left, is_known: false });
                }
                Err(unanswered) => self.search(&part, &unanswered)?,
            };
            let at = |(row, bad): (usize, BadRow)| Some((*left.get(row)?, bad));
            guilty.extend(found.into_iter().filter_map(at));
            guilty.sort_by_key(|(row, _)| *row);
            left.retain(|row| guilty.iter().all(|(gone, _)| gone != row));
            if self.ends_at_first {
                return Ok(Called { answer: None, guilty, left, is_known: false });
            }
        }
    }

    /// Sends the same batch once more where its process died.
    fn twice(&self, rows: &RecordBatch) -> Result<Result<RecordBatch, Unanswered>, TransformError> {
        match self.once(rows, false)? {
            Err(unanswered) if self.ends_at(&unanswered) => Ok(Err(unanswered)),
            Err(unanswered) => {
                tracing::warn!(
                    hook = self.name,
                    why = unanswered.failure.text(),
                    "the batch is sent again"
                );
                self.once(rows, true)
            }
            answered => Ok(answered),
        }
    }

    /// Whether it is an exception that ends the run: most likely the same would be raised again.
    fn ends_at(&self, unanswered: &Unanswered) -> bool {
        self.ends_at_first && unanswered.failure.is_exception()
    }

    /// Sends a single row, again where an exception says little.
    fn row(&self, row: &RecordBatch) -> Result<Result<RecordBatch, Unanswered>, TransformError> {
        match self.once(row, false)? {
            Err(unanswered) if unanswered.failure.is_exception() => self.once(row, true),
            answered => Ok(answered),
        }
    }

    /// Sends a batch; an error where asking again makes no sense.
    fn once(
        &self,
        rows: &RecordBatch,
        fresh: bool,
    ) -> Result<Result<RecordBatch, Unanswered>, TransformError> {
        let asked = self.pool.ask(rows, fresh, self.is_stopped);
        match asked.map_err(|source| HookError::Start { source })? {
            Ok(answer) => Ok(Ok(answer)),
            Err(Unanswered { failure: Failure::Stopped, .. }) => Err(Stopped.into()),
            Err(Unanswered { failure: Failure::Garbled(garbled), stderr }) => {
                Err(HookError::garbled(garbled, &stderr).into())
            }
            Err(Unanswered { failure: Failure::Told(notice), .. })
                if notice.kind != NoticeKind::Raised =>
            {
                Err(HookError::told(notice).into())
            }
            Err(unanswered) => Ok(Err(unanswered)),
        }
    }

    /// The guilty rows of a batch to which there was no answer.
    fn search(
        &self,
        rows: &RecordBatch,
        whole: &Unanswered,
    ) -> Result<Vec<(usize, BadRow)>, TransformError> {
        let n_rows = rows.num_rows();
        if n_rows == 1 {
            return Ok(vec![(0, self.blame(whole))]);
        }
        if !self.pool.has_answered() && !self.ends_at(whole) {
            self.try_samples(rows)?;
        }
        let mut guilty = Vec::new();
        // Parts that may hold guilty rows, the first on top.
        let half = n_rows / 2;
        let mut parts = vec![(half, n_rows - half), (0, half)];
        while let Some((start, len)) = parts.pop() {
            let part = rows.slice(start, len);
            if len == 1 {
                if let Err(unanswered) = self.row(&part)? {
                    guilty.push((start, self.blame(&unanswered)));
                    if self.ends_at_first {
                        break;
                    }
                }
            } else if self.once(&part, false)?.is_err() {
                let half = len / 2;
                parts.push((start + half, len - half));
                parts.push((start, half));
            }
        }
        if guilty.is_empty() {
            return Err(HookError::together(n_rows, whole).into());
        }
        Ok(guilty)
    }

    /// Asks about a few single rows, and about none: a hook that has never answered, and does not answer
    /// to any of this, is itself to blame. One that works answers to no rows, whatever is wrong with those
    /// that it was asked about first; so what is to blame does not depend on their order.
    fn try_samples(&self, rows: &RecordBatch) -> Result<(), TransformError> {
        let last = rows.num_rows() - 1;
        let mut refused = None;
        for row in [0, last / 2, last] {
            match self.row(&rows.slice(row, 1))? {
                Ok(_) => return Ok(()),
                Err(unanswered) => refused = Some(unanswered),
            }
        }
        let none = self.pool.ask(&rows.slice(0, 0), true, self.is_stopped);
        match none.map_err(|source| HookError::Start { source })? {
            Err(Unanswered { failure: Failure::Stopped, .. }) => Err(Stopped.into()),
            Err(Unanswered {
                failure: Failure::Died(_) | Failure::Timeout(_) | Failure::Memory(_),
                ..
            }) => match refused {
                Some(unanswered) => Err(HookError::never(&unanswered).into()),
                None => Ok(()),
            },
            Err(Unanswered { failure: Failure::Told(notice), .. })
                if !notice.kind.is_of_a_batch() =>
            {
                Err(HookError::told(notice).into())
            }
            // An answer that fits no rows is the hook's, and it lives.
            _ => Ok(()),
        }
    }

    /// What is wrong with the row that alone made the hook fail.
    fn blame(&self, Unanswered { failure, stderr }: &Unanswered) -> BadRow {
        let code = match failure {
            Failure::Timeout(_) => HOOK_TIMEOUT,
            Failure::Memory(_) => HOOK_MEMORY,
            Failure::Told(_) => HOOK_RAISED,
            Failure::Died(_) | Failure::Garbled(_) | Failure::Stopped => HOOK_DIED,
        };
        // What is kept of the row does not depend on limits, which are not part of the identity.
        let how = if self.ends_at_first { failure.text() } else { failure.kept_text() };
        let bad = BadRow::new(code, format!("the hook does not answer: {how}"));
        match failure.hint(1, stderr) {
            Some(hint) => bad.hint(hint),
            None => bad,
        }
    }
}

fn without(
    rows: &RecordBatch,
    guilty: &[(usize, BadRow)],
) -> Result<RecordBatch, arrow_schema::ArrowError> {
    if guilty.is_empty() {
        return Ok(rows.clone());
    }
    let mut is_kept = vec![true; rows.num_rows()];
    for (row, _) in guilty {
        if let Some(kept) = is_kept.get_mut(*row) {
            *kept = false;
        }
    }
    filter_record_batch(rows, &BooleanArray::from(is_kept))
}
