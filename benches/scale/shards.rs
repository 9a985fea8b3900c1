//! A dataset of many shards: finished, found complete, opened.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use arrow_schema::{DataType, Field, Schema};
use rowmill::books::Books;
use rowmill::dataset::Home;
use rowmill::dataset::record::{Record, ShardEntry};
use rowmill::inputs::{Input, InputRange, Part};
use rowmill::schema::{RowSchema, key_hash_int};
use rowmill::shard::layout::document;
use serde_json::json;

use crate::machine::Result;
use crate::machine::table::Figure;
use crate::{Figures, Job, many};

/// Names that one file may have: fewer than any file system allows.
const MOST_LINKS: usize = 30_000;

/// Puts `n` shards and the records of their partitions in place, and finishes the dataset.
pub(crate) fn measure(dir: &Path, n: u64) -> Result<Vec<Figure>> {
    let job = Job::new(dir, n, 1, "1")?;
    let home = job.load()?.home().clone();
    let shape = format!("{n} shards");
    let mut figures = Figures { shape: &shape, n, taken: Vec::new() };
    let mut slots = Vec::new();
    figures.take("plan, nothing there", || {
        slots = job.plan()?.partitions.into_iter().map(|p| (p.slot, p.first_input)).collect();
        Ok(())
    })?;
    let mut shards = Shards::begin(&home)?;
    for (id, (slot, path)) in (0_i64..).zip(&slots) {
        shards.put(id, slot, path)?;
    }
    figures.take("plan, all done", || job.plan().map(drop))?;
    figures.take("finish", || job.run().map(drop))?;
    figures.take("run, all done", || job.run().map(drop))?;
    figures.take("status", || job.status().map(drop))?;
    figures.take("open the dataset", || {
        black_box(job.open()?);
        Ok(())
    })?;
    Ok(figures.taken)
}

/// Makes shards of one row that hold what finishing looks at: sentinel, sums, schema and keys.
struct Shards<'a> {
    home: &'a Home,
    schema: Vec<u8>,
    /// A file that holds the schema, and how many names it has.
    template: (PathBuf, usize),
}

impl<'a> Shards<'a> {
    fn begin(home: &'a Home) -> Result<Self> {
        fs::create_dir_all(home.shards())?;
        fs::create_dir_all(home.partitions())?;
        let columns = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
        let schema = RowSchema::infer(&columns, &BTreeMap::new(), Some("id"))?;
        let schema = document(&schema.to_json());
        Ok(Self { home, schema, template: (PathBuf::new(), MOST_LINKS) })
    }

    fn put(&mut self, key: i64, slot: &str, path: &str) -> Result<()> {
        let b3 = |bytes: &[u8]| blake3::hash(bytes).to_hex();
        let keys = [&key_hash_int(key).to_le_bytes()[..], &[0; 4]].concat();
        let sums = format!("{}  keys.bin\n{}  schema.json\n", b3(&keys), b3(&self.schema));
        let complete = document(&json!({"rows": 1, "sums_b3": b3(sums.as_bytes()).as_str()}));
        let id = b3(sums.as_bytes()).as_str()[..32].to_owned();
        let dir = self.home.shard(&id);
        fs::create_dir(&dir)?;
        for (name, bytes) in
            [("keys.bin", &keys[..]), ("B3SUMS", sums.as_bytes()), ("_COMPLETE", &complete)]
        {
            fs::write(dir.join(name), bytes)?;
        }
        let schema = dir.join("schema.json");
        if self.template.1 == MOST_LINKS {
            fs::write(&schema, &self.schema)?;
            self.template = (schema, 1);
        } else {
            fs::hard_link(&self.template.0, schema)?;
            self.template.1 += 1;
        }

        let modified = SystemTime::UNIX_EPOCH;
        let input = Input { path: path.to_owned(), size: 1, modified, changed: Some(modified) };
        let part = Part { inputs: vec![InputRange { input, range: None }], side: Vec::new() };
        let digests: Vec<_> = part.inputs.iter().map(many::digest).collect();
        let mut books = Books::new(["many"]);
        books.enter(1);
        let shard = ShardEntry { bytes: 1000, id, rows: 1 };
        let record = Record::new(self.home, slot, &part, &digests, vec![shard], &books, None)?;
        let mut bytes = serde_json::to_vec_pretty(&record)?;
        bytes.push(b'\n');
        let name = format!("{slot}-{}.json", &b3(&bytes).as_str()[..16]);
        fs::write(self.home.partitions().join(name), bytes)?;
        Ok(())
    }
}
