//! Feature hooks: programs in any language that compute columns.
//!
//! A hook is a process that reads an Arrow IPC stream on stdin and writes one on stdout: for each batch
//! one batch with as many rows, in the same order, or with any number made of each. It is asked about the columns that `input` names;
//! what it answers is checked and put behind the columns of the batch.
//!
//! In reading order: `settings` is what a definition says of any hook, `command` and `python` are the
//! kinds of them; `transform` asks about batches; `known` asks only about what no feature cache holds;
//! `call` asks about one batch, whatever happens; `pool` has the processes, `worker` is one of them;
//! `numbered` tells batches apart in what it is sent; `frames` reads what it writes, into `spares`, and
//! what is said of it (`notice`); `answer` checks it, `learn` learns from it where nothing is declared;
//! `spread` is for hooks that make any number of rows of one; [`become_hook`] is how this program becomes
//! the hook.
//!
//! Invariants:
//! 1. A hook is asked about the same batches in every run ([`super::Batching`]), and each answer that
//!    is kept is the answer to one of them, or to one without its guilty rows.
//! 2. Whatever a process does, the run goes on, rejects rows, or ends with an error that says what the
//!    process did: it never hangs, never takes an answer for another's, and no process stays.

mod answer;
mod call;
mod cgroup;
pub(super) mod command;
mod error;
mod exec;
mod frames;
mod known;
mod learn;
mod notice;
mod numbered;
mod pool;
pub(super) mod python;
mod resident;
mod settings;
mod spares;
mod spread;
mod transform;
mod words;
mod worker;

pub use answer::type_text;
pub use error::HookError;
pub use exec::become_hook;
pub(crate) use settings::OutputSettings as ColumnSettings;
