//! `rejects.jsonl`: the rows that failed, in stream order.
//!
//! Leaves out: writing it as rows arrive (`open`).

use serde::{Deserialize, Serialize};

use super::layout;
use super::read_error::ReadError;
use super::reader::Shard;

/// A row that was rejected: a line of `rejects.jsonl`, keys in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reject {
    /// Stable word for what is wrong.
    pub code: String,
    /// Index of its input in `fingerprint.json`.
    pub input: u32,
    /// What is wrong.
    pub message: String,
    /// Which of the rows that its source row had become; empty where that was one row.
    pub path: Vec<u64>,
    /// Its source row.
    pub source_row: u64,
    /// The stage that rejected it.
    pub stage: String,
}

impl Shard {
    /// Calls `each` with every reject, in stream order.
    ///
    /// # Errors
    /// `rejects.jsonl` is missing, or a line of it is no reject.
    pub fn rejects(&self, mut each: impl FnMut(Reject)) -> Result<(), ReadError> {
        let bytes = self.folder().map(layout::REJECTS)?;
        let mut last = (0, 0);
        for (n, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let fail =
                |what| self.folder().damaged(layout::REJECTS, format!("line {} {what}", n + 1));
            let reject = line.strip_suffix(b"\n").map(serde_json::from_slice::<Reject>);
            let Some(Ok(reject)) = reject else { return Err(fail("is no reject")) };
            let at = (reject.input, reject.source_row);
            if at < last {
                return Err(fail("comes before the one above it"));
            }
            last = at;
            each(reject);
        }
        Ok(())
    }
}
