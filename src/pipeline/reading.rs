//! The lines that read a dataset with `NumPy`, printed at the end of a run.

use std::fmt::Write;

use super::check::listed;
use crate::dataset::Dataset;
use crate::schema::{Field, Kind, Logical};
use crate::shard::Shard;

/// A few lines of Python that open the first shard's first fields, where they are here.
pub(super) fn lines(dataset: &Dataset) -> String {
    let mut text = String::new();
    let Some(shard) = dataset.entries().first() else { return text };
    if let Some(url) = dataset.shard(0).ok().and_then(Shard::remote_url) {
        writeln!(text, "\nits rows are only at {url}").ok();
        return text;
    }
    let fields = dataset.schema().fields();
    let bulk = |f: &&Field| f.kind == Kind::Fixed && !f.shape.is_empty();
    let fixed = fields.iter().find(bulk).or_else(|| fields.iter().find(|f| f.kind == Kind::Fixed));
    let ragged = fields.iter().find(|f| f.kind == Kind::Ragged);
    writeln!(text, "\nread it with NumPy:\n").ok();
    writeln!(text, "    import numpy as np").ok();
    let dir = dataset.path().join("shards").join(&shard.id);
    writeln!(text, "    shard = {:?}", dir.display().to_string()).ok();
    if let Some(field) = fixed {
        let shape = listed([shard.rows.to_string()], &field.shape);
        let comma = if field.shape.is_empty() { "," } else { "" };
        writeln!(
            text,
            "    {stem} = np.memmap(f\"{{shard}}/{stem}.bin\", \"{descr}\", \"r\", shape=({shape}{comma}))",
            stem = field.stem,
            descr = field.dtype.numpy(),
        )
        .ok();
    }
    if let Some(field) = ragged {
        let axis = field.axis.as_deref().unwrap_or(&field.stem);
        let (stem, descr) = (&field.stem, field.dtype.numpy());
        let reshape = match field.shape.as_slice() {
            [] => String::new(),
            shape => format!(".reshape({})", listed(["-1".to_owned()], shape)),
        };
        writeln!(
            text,
            "    offsets = np.memmap(f\"{{shard}}/{axis}.offsets.bin\", \"<i8\", \"r\")"
        )
        .ok();
        writeln!(
            text,
            "    {stem} = np.memmap(f\"{{shard}}/{stem}.bin\", \"{descr}\", \"r\"){reshape}"
        )
        .ok();
        let row = format!("{stem}[offsets[0]:offsets[1]]");
        match field.logical {
            Some(Logical::Utf8 | Logical::Json) => {
                writeln!(text, "    {row}.tobytes().decode()  # row 0").ok();
            }
            _ => {
                writeln!(text, "    {row}  # row 0").ok();
            }
        }
    }
    text
}
