//! The whole command line, with the sources and transforms that Rowmill brings along.

use std::process::ExitCode;

use rowmill::config::Registry;

fn main() -> ExitCode {
    rowmill::cli::main(Registry::BUILT_IN)
}
