//! The inputs, made the same each time, and the definitions that read them.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::machine::table::Target;
use crate::machine::{Numbers, Result};
use crate::peers::{MEMMAP, NUMPY, POLARS, PYARROW, Script};
use crate::{arrays, tables};

/// One pipeline and what it reads.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The pipeline definition.
    pub(crate) definition: PathBuf,
    /// The scripts that it is compared with, what they are asked to read, and where.
    pub(crate) scripts: &'static [Script],
    pub(crate) kind: &'static str,
    pub(crate) read_by_hand: PathBuf,
    pub(crate) n_rows: u64,
    /// Bytes of the inputs.
    pub(crate) bytes: u64,
    /// What is aimed at when it runs, against the plain writer.
    pub(crate) target: Target,
}

/// The names of the cases.
pub(crate) const NAMES: [&str; 8] =
    ["files", "wide", "tiny", "csv", "jsonl", "parquet", "idx", "npy"];

/// Bytes of a file of the first case.
const FILE_BYTES: usize = 88 << 10;
const FILES_PER_FOLDER: u64 = 256;
const WIDE_COLUMNS: usize = 16;

impl Case {
    /// Makes the inputs and the definition of the case of that name in `dir`.
    pub(crate) fn make(name: &str, dir: &Path, quick: bool) -> Result<Self> {
        fs::create_dir_all(dir.join("in"))?;
        match name {
            "files" => files(dir, if quick { 2_048 } else { 16_384 }),
            "wide" => wide(dir, if quick { 100_000 } else { 1_000_000 }),
            "tiny" => tiny(dir, if quick { 1_000_000 } else { 5_000_000 }),
            "csv" => table(dir, &CSV, if quick { 200_000 } else { 2_000_000 }),
            "jsonl" => table(dir, &JSONL, if quick { 200_000 } else { 2_000_000 }),
            "parquet" => table(dir, &PARQUET, if quick { 1_000_000 } else { 6_000_000 }),
            "idx" => array(dir, &IDX, if quick { 60_000 } else { 600_000 }),
            "npy" => array(dir, &NPY, if quick { 40_000 } else { 240_000 }),
            other => Err(format!("there is no shape `{other}`, only {}", NAMES.join(", ")).into()),
        }
    }
}

/// Files of 88 KiB, a row each.
fn files(dir: &Path, n_rows: u64) -> Result<Case> {
    let mut numbers = Numbers(41);
    let mut content: Vec<u8> =
        (0..FILE_BYTES / 8).flat_map(|_| numbers.next().to_le_bytes()).collect();
    for n in 0..n_rows {
        let folder = dir.join("in").join(format!("{:04}", n / FILES_PER_FOLDER));
        fs::create_dir_all(&folder)?;
        content[..8].copy_from_slice(&n.to_le_bytes());
        fs::write(folder.join(format!("{n:06}.bin")), &content)?;
    }
    Ok(Case {
        name: "files",
        about: "binary files of 88 KiB",
        definition: define(dir, "files", "*/*.bin", "")?,
        scripts: &[MEMMAP],
        kind: "files",
        read_by_hand: dir.join("in"),
        n_rows,
        bytes: n_rows * FILE_BYTES as u64,
        target: Target::Ratio(0.9),
    })
}

/// CSV with a key and 16 numbers.
fn wide(dir: &Path, n_rows: u64) -> Result<Case> {
    let names: Vec<_> = (0..WIDE_COLUMNS).map(|n| format!("x{n}")).collect();
    let types: Vec<_> = names.iter().map(|name| format!("{name} = \"float32\"")).collect();
    let more = format!("[sources.rows.types]\n{}\n[dataset]\nkey = \"id\"\n", types.join("\n"));
    csv(dir, ("wide", "CSV with a text key and 16 numbers"), n_rows, &more, |n, numbers, line| {
        if n == 0 {
            return write!(line, "id,{}", names.join(","));
        }
        write!(line, "sample-{n:09}")?;
        (0..WIDE_COLUMNS)
            .try_for_each(|_| write!(line, ",{}", numbers.below(1 << 20) as f32 / 1024.0))
    })
}

/// CSV of tiny rows.
fn tiny(dir: &Path, n_rows: u64) -> Result<Case> {
    let more = "[sources.rows.types]\nvalue = \"float32\"\n";
    let about = "CSV of an integer, a number and a text of 16 bytes";
    csv(dir, ("tiny", about), n_rows, more, |n, numbers, line| {
        if n == 0 {
            return write!(line, "id,value,tag");
        }
        let value = numbers.below(1 << 20) as f32 / 1024.0;
        write!(line, "{},{value},tag-{n:012}", numbers.below(1 << 40))
    })
}

/// A CSV file whose line `n` is written by `write`; line 0 is the header.
fn csv(
    dir: &Path,
    (name, about): (&'static str, &'static str),
    n_rows: u64,
    more: &str,
    mut write: impl FnMut(u64, &mut Numbers, &mut String) -> std::fmt::Result,
) -> Result<Case> {
    let path = dir.join("in/rows.csv");
    let mut file = BufWriter::new(File::create(&path)?);
    let (mut numbers, mut line) = (Numbers(42), String::new());
    for n in 0..=n_rows {
        line.clear();
        write(n, &mut numbers, &mut line)?;
        line.push('\n');
        file.write_all(line.as_bytes())?;
    }
    file.into_inner()?.sync_all()?;
    Ok(Case {
        name,
        about,
        definition: define(dir, "csv", "rows.csv", more)?,
        scripts: &[MEMMAP],
        kind: "csv",
        read_by_hand: path.clone(),
        n_rows,
        bytes: path.metadata()?.len(),
        target: Target::Open,
    })
}

/// A format that the table is written in.
struct Format {
    name: &'static str,
    about: &'static str,
    write: fn(&Path, u64) -> Result<()>,
    /// Settings of the source.
    settings: &'static str,
    scripts: &'static [Script],
}

const CSV: Format = Format {
    name: "csv",
    about: "CSV of three integers, three floats and two texts",
    write: tables::csv,
    // As pyarrow reads CSV unless it is told otherwise.
    settings: "newlines_in_values = false\n",
    scripts: &[PYARROW, POLARS, NUMPY],
};
const JSONL: Format = Format {
    name: "jsonl",
    about: "the same table as JSON Lines",
    write: tables::jsonl,
    settings: "",
    scripts: &[PYARROW, POLARS, NUMPY],
};
/// NumPy reads no Parquet.
const PARQUET: Format = Format {
    name: "parquet",
    about: "the same table as Parquet, Snappy",
    write: tables::parquet,
    settings: "",
    scripts: &[PYARROW, POLARS],
};
/// Neither pyarrow nor polars reads arrays.
const IDX: Format = Format {
    name: "idx",
    about: "IDX files of 28 by 28 images and their labels",
    write: arrays::idx,
    settings: "labels = \"*-labels-*\"\n",
    scripts: &[NUMPY],
};
const NPY: Format = Format {
    name: "npy",
    about: ".npy files of float32[512]",
    write: arrays::npy,
    settings: "",
    scripts: &[NUMPY],
};

/// What the definitions of these formats say beside the source: both cores have something to do.
const TWO_AT_ONCE: &str = "[dataset]\npartition_bytes = \"32MiB\"\n[run]\njobs = 2\n";

/// A file of the table.
fn table(dir: &Path, format: &Format, n_rows: u64) -> Result<Case> {
    let file = format!("rows.{}", format.name);
    let path = dir.join("in").join(&file);
    (format.write)(&path, n_rows)?;
    case(dir, format, &file, path, n_rows)
}

/// A folder of arrays.
fn array(dir: &Path, format: &Format, n_rows: u64) -> Result<Case> {
    (format.write)(&dir.join("in"), n_rows)?;
    let path = if format.name == "idx" { "*-images-*" } else { "*.npy" };
    case(dir, format, path, dir.join("in"), n_rows)
}

fn case(
    dir: &Path,
    format: &Format,
    path: &str,
    read_by_hand: PathBuf,
    n_rows: u64,
) -> Result<Case> {
    let sizes = fs::read_dir(dir.join("in"))?.map(|entry| Ok(entry?.metadata()?.len()));
    let bytes = sizes.sum::<Result<u64>>()?;
    let more = format!("{}{TWO_AT_ONCE}", format.settings);
    Ok(Case {
        name: format.name,
        about: format.about,
        definition: define(dir, format.name, path, &more)?,
        scripts: format.scripts,
        kind: format.name,
        read_by_hand,
        n_rows,
        bytes,
        target: Target::Open,
    })
}

fn define(dir: &Path, source: &str, path: &str, more: &str) -> Result<PathBuf> {
    let text = format!(
        "version = 1\nname = \"bench\"\n\n[sources.rows]\ntype = \"{source}\"\nroot = \"in\"\n\
         path = \"{path}\"\n{more}",
    );
    let definition = dir.join("bench.toml");
    fs::write(&definition, text)?;
    Ok(definition)
}
