//! A program of your own with the whole of Rowmill: `custom_stages run P.toml` is `rowmill run P.toml`
//! with one more source, `pgm`, two more transforms, `mean` and `lines`, which makes any number of rows of
//! one, and one more feature hook, `likeness`, which is asked about batches of its own. Resuming, ordering, the cache key, `check`, `plan`, `schema` and
//! `explain` come with them.
//!
//! ```toml
//! version = 1
//! name = "pictures"
//!
//! [sources.pictures]
//! type = "pgm"              # binary grey maps, one row per file
//! path = "*.pgm"
//!
//! [transforms.brightness]
//! type = "mean"
//! input = "pixels"
//!
//! [transforms.shoes]
//! type = "likeness"
//! input = "pixels"
//! template = "shoe.pgm"     # beside the definition
//!
//! [transforms.lines]        # a row for each line that is not black
//! type = "lines"
//! input = "pixels"
//! ```

mod likeness;
mod lines;
mod mean;
mod pgm;

use std::process::ExitCode;

use rowmill::config::Registry;

fn main() -> ExitCode {
    rowmill::cli::main(registry())
}

/// What definitions may name here.
pub(crate) fn registry() -> Registry {
    Registry::BUILT_IN
        .with(&[pgm::PGM], &[mean::MEAN, lines::LINES, likeness::LIKENESS])
        .with_codes(&[likeness::BLACK_PICTURE])
}
