//! What the machine lets tests do: tracing and mounting.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Says that a test is left out; fails where nothing may be.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("ROWMILL_REQUIRE_ALL").is_none(), "cannot be left out here: {why}");
    println!("SKIPPED: {why}");
}

/// Whether the tool works, and why not.
fn works(program: &str, args: &[&str]) -> Result<(), String> {
    let ran = Command::new(program).args(args).stdin(Stdio::null()).output();
    match ran {
        Err(error) => Err(format!("`{program}`: {error}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(format!("`{program}` fails: {}", said.lines().next().unwrap_or_default()))
        }
    }
}

/// Whether a process can be traced here with faults; says so if not.
pub(crate) fn can_trace() -> bool {
    static WORKS: OnceLock<Result<(), String>> = OnceLock::new();
    let tried = WORKS.get_or_init(|| {
        works(
            "strace",
            &["--seccomp-bpf", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "true"],
        )
    });
    if let Err(why) = tried {
        skipped(why);
    }
    tried.is_ok()
}

/// The words that put a program below `strace`, with what it shall trace and do.
pub(crate) fn strace(log: &str, trace: &str, inject: Option<&str>) -> Vec<String> {
    let mut words: Vec<String> =
        ["strace", "-f", "-qq", "-o", log, "-e"].into_iter().map(str::to_owned).collect();
    words.push(format!("trace={trace}"));
    if let Some(inject) = inject {
        words.extend(["-e".to_owned(), format!("inject={inject}")]);
    }
    // Faster where most calls are of other kinds, but signals are not delivered then (strace 6.1).
    if !inject.is_some_and(|inject| inject.contains("signal=")) {
        words.push("--seccomp-bpf".to_owned());
    }
    words
}
