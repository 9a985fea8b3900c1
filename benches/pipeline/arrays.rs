//! Arrays of numbers: images with labels as IDX, and vectors as `.npy`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::machine::{Numbers, Result};

/// Entries along an edge of an image.
const EDGE: u32 = 28;
/// Numbers of a vector.
const VECTOR: u64 = 512;
/// Files that the vectors are in.
const N_FILES: u64 = 4;

/// Writes images of 28 by 28 `uint8`, and a label for each, into a folder.
pub(super) fn idx(folder: &Path, n_rows: u64) -> Result<()> {
    let n = u32::try_from(n_rows)?;
    let mut numbers = Numbers(44);
    let mut images = BufWriter::new(File::create(folder.join("train-images-idx3-ubyte"))?);
    for head in [0x0000_0803, n, EDGE, EDGE] {
        images.write_all(&head.to_be_bytes())?;
    }
    for _ in 0..n_rows * u64::from(EDGE * EDGE) / 8 {
        images.write_all(&numbers.next().to_le_bytes())?;
    }
    images.into_inner()?.sync_all()?;
    let mut labels = BufWriter::new(File::create(folder.join("train-labels-idx1-ubyte"))?);
    for head in [0x0000_0801, n] {
        labels.write_all(&head.to_be_bytes())?;
    }
    for _ in 0..n_rows {
        labels.write_all(&[numbers.below(10).to_le_bytes()[0]])?;
    }
    labels.into_inner()?.sync_all()?;
    Ok(())
}

/// Writes vectors of 512 `float32` into four files.
pub(super) fn npy(folder: &Path, n_rows: u64) -> Result<()> {
    let mut numbers = Numbers(45);
    for n in 0..N_FILES {
        let n_rows = n_rows / N_FILES;
        let mut file = BufWriter::new(File::create(folder.join(format!("{n}.npy")))?);
        let head =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({n_rows}, {VECTOR}), }}");
        // Magic, version and length take 10 bytes; all of it is a multiple of 64.
        let n_head = (head.len() + 11).next_multiple_of(64) - 10;
        file.write_all(b"\x93NUMPY\x01\x00")?;
        file.write_all(&u16::try_from(n_head)?.to_le_bytes())?;
        writeln!(file, "{head:<0$}", n_head - 1)?;
        for _ in 0..n_rows * VECTOR {
            let value = numbers.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0;
            file.write_all(&value.to_le_bytes())?;
        }
        file.into_inner()?.sync_all()?;
    }
    Ok(())
}
