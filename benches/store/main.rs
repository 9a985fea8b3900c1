//! The store against the machine: durable writing, random reading, opening, finding by key.
//!
//!     cargo bench --no-default-features --bench store [-- --quick] [--shape a]
//!         [--only write] [--json]
//!
//! Shapes are fixed, a, b, c, d (see `shapes`) and open. Every figure is a median; a ratio is the median
//! of the ratios of runs taken in turn, with the lowest and the highest beside it. Ratios above 1 say
//! that Rowmill was faster. What was measured and why is in `docs/performance.md`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench measures the file system beside Rowmill, and says what it found"
)]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "made-up values, and rates for people"
)]

mod dataset;
#[path = "../machine/mod.rs"]
mod machine;
mod open;
mod read;
mod shapes;
mod write;

use machine::{Args, Result, Scratch};
use rowmill::dataset::Dataset;
use rowmill::shard::ShardLimits;
use shapes::{NAMES, Shape};

fn main() -> Result<()> {
    let Some(args) = Args::read()? else { return Ok(()) };
    let mut scratch = Scratch::new("store")?;
    let rounds = args.rounds();
    let mut figures = Vec::new();
    for name in NAMES.into_iter().filter(|name| args.wants(name)) {
        let shape = Shape::of(name, args.quick)?;
        eprintln!("{name}: {} rows of {}", shape.n_rows(), shape.about);
        if args.measures("write") {
            figures.extend(write::measure(&shape, rounds, &mut scratch)?);
        }
        if !args.measures("read") {
            continue;
        }
        let out = scratch.fresh();
        let dir = dataset::build(&out, &shape.schema, &shape.batches, ShardLimits::default())?;
        figures.extend(read::measure(&shape, &Dataset::open(&dir)?, (args.quick, rounds))?);
        if shape.schema.key().is_some() {
            figures.extend(open::by_key(&dir, args.quick)?);
        }
        machine::remove(&out)?;
    }
    if args.wants("open") {
        eprintln!("open: a dataset of 1,000 shards");
        figures.extend(open::many_shards(rounds, &mut scratch)?);
    }
    println!("{}", machine::table::print(&figures, args.json).trim_end());
    Ok(())
}
