//! Why a run ends where a hook is to blame, and what to do about it.

use super::frames::Garbled;
use super::notice::{Notice, NoticeKind, printable};
use super::pool::Unanswered;
use super::words::said;
use crate::transforms::TransformError;

/// A hook cannot be run, or does not answer as it should.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The system starts no process.
    #[error("its process cannot be started")]
    Start {
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// It has never answered, whatever it was asked about.
    #[error("it has never answered: {how}")]
    Never {
        /// How its process ended.
        how: String,
        /// What it said.
        hint: Option<String>,
    },
    /// It fails on a batch, but on no row of it alone.
    #[error("it does not answer to {n_rows} rows together, but to each alone: {how}")]
    Together {
        /// Rows of the batch.
        n_rows: usize,
        /// How its process ended.
        how: String,
        /// What to do.
        hint: Option<String>,
    },
    /// It cannot be had, whatever it would be asked about.
    #[error("{how}")]
    Setup {
        /// What is in the way.
        how: String,
        /// What to do.
        hint: String,
    },
    /// It is not as its definition has it, or loads what that does not name.
    #[error("{how}")]
    Definition {
        /// What is wrong.
        how: String,
        /// What to do.
        hint: String,
    },
    /// What it writes is no stream of answers.
    #[error("{how}")]
    Garbled {
        /// What it writes instead.
        how: String,
        /// What to do.
        hint: String,
        /// Whether what it has answered before may belong to other rows.
        is_doubtful: bool,
    },
    /// Its answer is not what was declared.
    #[error("{message}")]
    Misfit {
        /// What was declared, and what came.
        message: String,
        /// What to do.
        hint: String,
    },
}

impl HookError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Start { source } if source.kind() == std::io::ErrorKind::ArgumentListTooLong => {
                Some(
                    "what it is told does not fit: put `params` or arguments into a file, name that in \
                     `files`, and check how long the variables of `env` are",
                )
            }
            Self::Start { .. } => Some("check the folder of the definition and `ulimit -u`"),
            Self::Never { hint, .. } | Self::Together { hint, .. } => hint.as_deref(),
            Self::Setup { hint, .. }
            | Self::Definition { hint, .. }
            | Self::Garbled { hint, .. }
            | Self::Misfit { hint, .. } => Some(hint),
        }
    }

    /// What a notice says that is not about single rows.
    pub(super) fn told(Notice { kind, what, more, .. }: Notice) -> Self {
        let (how, hint) = (printable(&what), more);
        match kind {
            NoticeKind::Setup => Self::Setup { how, hint },
            NoticeKind::Definition => Self::Definition { how, hint },
            NoticeKind::Misfit | NoticeKind::Raised => Self::Misfit { message: how, hint },
        }
    }

    /// It does not answer to one row either.
    pub(super) fn never(Unanswered { failure, stderr }: &Unanswered) -> Self {
        Self::Never { how: failure.text(), hint: failure.hint(1, stderr) }
    }

    pub(super) fn together(n_rows: usize, Unanswered { failure, stderr }: &Unanswered) -> Self {
        Self::Together { n_rows, how: failure.text(), hint: failure.hint(n_rows, stderr) }
    }

    pub(super) fn garbled(garbled: Garbled, stderr: &[String]) -> Self {
        let Garbled { how, hint, is_doubtful } = garbled;
        let hint = with_doubt(hint, is_doubtful);
        let hint = match said(stderr) {
            Some(said) => format!("{hint}; {said}"),
            None => hint,
        };
        Self::Garbled { how, hint, is_doubtful }
    }

    /// What came behind the last answer.
    pub(super) fn late(Garbled { how, hint, is_doubtful }: Garbled) -> Self {
        let how = format!("behind its last answer, {how}");
        Self::Garbled { how, hint: with_doubt(hint, is_doubtful), is_doubtful }
    }

    /// How it shows that what it has answered before may belong to other rows, where it does.
    pub(super) fn doubt(&self) -> Option<&str> {
        match self {
            Self::Garbled { how, is_doubtful: true, .. } => Some(how),
            _ => None,
        }
    }

    pub(super) fn misfit(message: String, hint: &str) -> Self {
        Self::Misfit { message, hint: hint.to_owned() }
    }
}

fn with_doubt(hint: &str, is_doubtful: bool) -> String {
    let doubt = if is_doubtful {
        ". What it has answered may belong to other rows: mend it and run again, and all that is not \
         complete is built anew; a feature cache that it filled is refused until `rowmill cache prune`. A \
         hook that returns the number of each batch is found out at once"
    } else {
        ""
    };
    format!("{hint}{doubt}")
}

impl From<HookError> for TransformError {
    fn from(error: HookError) -> Self {
        Self::Hook(Box::new(error))
    }
}
