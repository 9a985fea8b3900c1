//! How this program becomes a hook.
//!
//! A process cannot be told from outside to die with its parent, and what runs between fork and exec
//! cannot be safe Rust; so the parent starts itself, twice over. The first of these processes, the
//! keeper, starts the second and stays: when the hook has ended, or the parent holds its end of the
//! lifeline no more, it kills all that the hook started and is still there. The second arranges to die
//! with the keeper, and then runs the hook's program in its own place.
//!
//! Invariants:
//! 1. The keeper holds no pipe of the hook's: they end with the hook.
//! 2. The keeper ends as the hook ended, when nothing is left of it. On Linux that holds for whatever
//!    left its process group or session too: orphans below a keeper become its children.
#![expect(clippy::disallowed_types, reason = "pipes and devices are files that no storage holds")]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, waitid,
};

use super::notice::{Notice, NoticeKind};

/// The hidden subcommand that becomes a hook.
pub(super) const SUBCOMMAND: &str = "hook-exec";

/// This program.
pub(super) fn own_program() -> PathBuf {
    // The same as this one also where its file was replaced meanwhile.
    if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().unwrap_or_else(|_| "rowmill".into())
    }
}

/// Becomes the hook that `command` names, below the process `parent`; or, with the number of the open
/// file that is its `lifeline`, the keeper of one, in the control group `group`. Gives the exit code to
/// end with.
///
/// # Errors
/// The program cannot be run, or the parent is gone already. That was said on stdout, where the parent
/// expects an answer.
pub fn become_hook(
    parent: u32,
    lifeline: Option<u32>,
    group: Option<&Path>,
    command: &[OsString],
) -> io::Result<u8> {
    let became = match lifeline {
        Some(lifeline) => {
            group.map_or(Ok(()), super::cgroup::enter).and_then(|()| keep(lifeline, command))
        }
        None => Err(become_program(parent, command)),
    };
    if let Err(error) = &became {
        let program = command.first().map(|it| it.display().to_string()).unwrap_or_default();
        let notice = Notice {
            kind: NoticeKind::Setup,
            what: format!("cannot run `{program}`: {error}"),
            more: "a program with a slash in its name is looked for from the folder of the definition \
                   on, another one in PATH"
                .to_owned(),
            batch: None,
        };
        // A parent that is gone needs no telling.
        notice.write(&mut io::stdout()).ok();
    }
    became
}

fn become_program(parent: u32, command: &[OsString]) -> io::Error {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
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

fn keep(lifeline: u32, command: &[OsString]) -> io::Result<u8> {
    let files = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let mut lifeline = open(&format!("{files}/{lifeline}"), false)?;
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    let own_id = std::process::id().to_string();
    let mut hook = Command::new(own_program());
    hook.arg(SUBCOMMAND).arg(own_id).arg("--").args(command).process_group(0);
    let mut hook = hook.spawn()?;
    let nothing = open("/dev/null", true)?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    let group = Pid::from_child(&hook);
    let has_ended = Arc::new(Mutex::new(false));
    let noted = Arc::clone(&has_ended);
    thread::spawn(move || {
        // It ends when nobody holds the other end any more; nothing is ever written to it.
        while lifeline.read(&mut [0]).is_ok_and(|n| n > 0) {}
        let has_ended = noted.lock().unwrap_or_else(PoisonError::into_inner);
        if !*has_ended {
            kill_process(group, Signal::KILL).ok();
            kill_process_group(group, Signal::KILL).ok();
        }
    });
    // It is not waited for yet: until then its number stands for it and its group alone.
    waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok();
    let mut has_ended = has_ended.lock().unwrap_or_else(PoisonError::into_inner);
    *has_ended = true;
    kill_process_group(group, Signal::KILL).ok();
    let status = hook.wait()?;
    #[cfg(target_os = "linux")]
    end_orphans();
    Ok(end_as(status))
}

/// Kills whatever is left below this process.
#[cfg(target_os = "linux")]
fn end_orphans() {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            // There are no children.
            Err(_) => return,
            // One has ended; its own may be ours now.
            Ok(Some(_)) => continue,
            Ok(None) => {}
        }
        for child in super::resident::children(getpid()) {
            kill_process(child, Signal::KILL).ok();
        }
        thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

/// Ends as a process with this status did, as far as that can be; otherwise tells the exit code for it.
fn end_as(status: ExitStatus) -> u8 {
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        use rustix::process::{Resource, Rlimit, setrlimit};
        // One core dump is enough.
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
        kill_process(getpid(), signal).ok();
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn open(path: &str, is_written: bool) -> io::Result<File> {
    File::options().read(true).write(is_written).open(path)
}
