//! What a process of ours says of a hook instead of an answer: that it raised an exception, that its
//! answer is no table, or that it cannot be had.
//!
//! A notice stands where a message of the Arrow stream would: four bytes that begin none, the length
//! of what follows as `u32`, and JSON. The runner of Python hooks writes them, and this program where
//! it cannot become the hook's.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// What a notice begins with.
pub(super) const MARK: [u8; 4] = [0xfe, 0xff, 0xff, 0xff];
/// Most bytes of its JSON.
pub(super) const MOST_BYTES: u32 = 1 << 20;

/// Why there is no answer, in the words of who knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Notice {
    pub(super) kind: NoticeKind,
    /// What happened, in one line.
    pub(super) what: String,
    /// Of an exception its traceback, otherwise what to do.
    pub(super) more: String,
    /// The number of the batch that it stands for the answer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) batch: Option<String>,
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum NoticeKind {
    /// The hook raised an exception on this batch; its process lives on.
    Raised,
    /// What it answers with is not what it should be.
    Misfit,
    /// It cannot be had at all.
    Setup,
    /// It cannot be had, or not be believed, as it is defined.
    Definition,
}

impl NoticeKind {
    /// Whether it stands where an answer would; otherwise nothing comes behind it.
    pub(super) fn is_of_a_batch(self) -> bool {
        matches!(self, Self::Raised | Self::Misfit)
    }
}

impl Notice {
    /// Writes it where an answer would be.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let json = serde_json::to_vec(self)?;
        let bytes = u32::try_from(json.len()).map_err(io::Error::other)?;
        to.write_all(&MARK)?;
        to.write_all(&bytes.to_le_bytes())?;
        to.write_all(&json)?;
        to.flush()
    }
}

/// `text` in one line, for people: what would move the cursor is escaped.
pub(super) fn printable(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}
