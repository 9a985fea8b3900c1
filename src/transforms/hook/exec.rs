//! How this program becomes a hook: it arranges to die with its parent, then runs the hook's program in
//! its own place.
//!
//! A process cannot be told to die with its parent from outside, and what runs between fork and exec
//! cannot be safe Rust; so the parent starts itself, and this runs in the child.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::notice::{Notice, NoticeKind};

/// Becomes the program that `command` names, below the process `parent`.
///
/// Does not return unless the program cannot be run, or the parent is gone already; then it says so on
/// stdout, where the parent expects an answer.
#[must_use]
pub fn become_hook(parent: u32, command: &[OsString]) -> io::Error {
    let error = run(parent, command);
    let program = command.first().map(|it| it.display().to_string()).unwrap_or_default();
    let notice = Notice {
        kind: NoticeKind::Setup,
        what: format!("cannot run `{program}`: {error}"),
        more: "a program with a slash in its name is looked for from the folder of the definition on, \
               another one in PATH"
            .to_owned(),
    };
    // A parent that is gone needs no telling.
    notice.write(&mut io::stdout()).ok();
    error
}

fn run(parent: u32, command: &[OsString]) -> io::Error {
    #[cfg(target_os = "linux")]
    {
        let signal = Some(rustix::process::Signal::KILL);
        if let Err(error) = rustix::process::set_parent_process_death_signal(signal) {
            return error.into();
        }
    }
    // A parent that died before the signal was set sends none.
    if std::os::unix::process::parent_id() != parent {
        return io::Error::other("the process that started this one is gone");
    }
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::other("there is no program to run");
    };
    Command::new(program).args(arguments).exec()
}
