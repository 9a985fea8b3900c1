//! Reading forged shards: whole ones, and ones whose files contradict each other.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, UInt8Type};

use super::forge::{FOLDER, Forge, i32s, i64s, keys, sample};
use super::reader::key_entry;
use super::{ReadError, Shard, layout};
use crate::batch::Provenance;
use crate::storage::{Memory, Storage};

type Result<T> = std::result::Result<T, ReadError>;

fn open(forge: &Forge) -> Result<Shard> {
    Shard::open(forge.storage(), FOLDER)
}

/// The error that some use of a forged shard ends with.
fn error(forge: &Forge, fails: impl Fn(&Shard) -> Result<()>) -> String {
    let error = open(forge).and_then(|shard| fails(&shard)).unwrap_err();
    error.to_string().replace("/shard/", "")
}

#[test]
fn rows_of_every_kind_are_read() {
    let shard = open(&sample()).unwrap();
    assert_eq!((shard.n_rows(), shard.id().len()), (3, 32));
    let field = |name: &str| shard.field(name).unwrap();
    assert_eq!(field("id").row(1).unwrap(), b"bb");
    assert_eq!(field("x").row(2).unwrap(), [5, 0, 6, 0]);
    assert_eq!(field("x").typed::<Int16Type>().unwrap()[..], [1, 2, 3, 4, 5, 6]);
    assert_eq!(field("z").row(0).unwrap(), [1, 6]);
    assert!(field("z").row(1).unwrap().is_empty());
    assert_eq!(field("place").entries(2).unwrap(), 2..3);
    assert_eq!(field("place").row(2).unwrap(), [7, 0, 8, 0, 9, 0]);
    assert_eq!(field("grid").dims(0).unwrap(), [1, 2]);
    assert!(field("grid").dims(1).unwrap().is_empty());
    assert_eq!(field("grid").row(1).unwrap(), 30_i32.to_le_bytes());
    assert_eq!(field("grid").value(2).unwrap(), None);
    assert_eq!(field("grid").typed::<Int32Type>().unwrap()[..], [10, 20, 30]);
    assert_eq!(field("panel").code(2).unwrap(), Some(1));
    assert_eq!(field("panel").value(2).unwrap(), Some(&b"Q"[..]));
    assert_eq!(field("panel").value(1).unwrap(), None);
    assert_eq!(field("pet").category(0).unwrap(), Some("dog"));
    assert_eq!(field("pet").category(1).unwrap(), None);
    assert_eq!(field("flag").value(0).unwrap(), Some(&[1][..]));
    assert!(!field("flag").is_valid(1).unwrap());
    assert_eq!(field("flag").typed::<UInt8Type>().unwrap()[..], [1, 0, 0]);
}

#[test]
fn rows_are_given_as_arrow() {
    let shard = open(&sample()).unwrap();
    let batch = shard.record_batch(1..3).unwrap();
    assert_eq!(batch.schema(), shard.schema().arrow_schema());
    assert_eq!(batch.num_rows(), 2);
    let ids: Vec<_> = batch["id"].as_string::<i64>().iter().flatten().collect();
    assert_eq!(ids, ["bb", "c"]);
    assert_eq!(batch["z"].as_list::<i64>().value(1).as_primitive::<UInt8Type>().values()[..], [8]);
    assert!(batch["pet"].is_null(0));
    let panel = batch["panel"].as_dictionary::<Int32Type>();
    assert_eq!(panel.keys().iter().collect::<Vec<_>>(), [None, Some(1)]);
    assert_eq!(panel.values().as_string::<i64>().value(1), "Q");
    let whole = shard.record_batch(0..3).unwrap();
    assert_eq!(whole.slice(1, 2), batch);
    let one_by_one = (0..3).map(|row| shard.record_batch(row..row + 1).unwrap());
    for (row, one) in one_by_one.enumerate() {
        assert_eq!(whole.slice(row, 1), one);
    }
    assert_eq!(shard.record_batch(3..3).unwrap().num_rows(), 0);
    let error = shard.record_batch(2..4).unwrap_err();
    assert_eq!(error.to_string(), "there is no row 4: the shard has 3 rows");
}

#[test]
fn rows_are_gathered_in_any_order() {
    let shard = open(&sample()).unwrap();
    let mut fixed = [0; 12];
    shard.field("x").unwrap().gather(&[2, 0, 2], &mut fixed).unwrap();
    assert_eq!(fixed, [5, 0, 6, 0, 1, 0, 2, 0, 5, 0, 6, 0]);
    let (mut bytes, mut offsets) = (vec![7], vec![7]);
    let id = shard.field("id").unwrap();
    id.gather_ragged(&[2, 1, 2], &mut bytes, &mut offsets).unwrap();
    assert_eq!((&bytes[..], &offsets[..]), (&b"cbbc"[..], &[0, 1, 3, 4][..]));
    let panel = shard.field("panel").unwrap();
    panel.gather_ragged(&[1, 2], &mut bytes, &mut offsets).unwrap();
    assert_eq!((&bytes[..], &offsets[..]), (&b"Q"[..], &[0, 0, 1][..]));
}

#[test]
fn a_key_finds_its_row() {
    let shard = open(&sample()).unwrap();
    for (key, want) in [("a", Some(0)), ("bb", Some(1)), ("c", Some(2)), ("b", None)] {
        assert_eq!(shard.find(key).unwrap(), want, "{key}");
    }
    assert_eq!(shard.find(7).unwrap_err().to_string(), "keys are text, not integers");
}

#[test]
fn keys_of_equal_hash_are_told_apart() {
    // Both entries claim the hash of "a"; only one of the rows has that key.
    let twin = [&keys(&["a"])[..8], &[2, 0, 0, 0]].concat();
    let first = keys(&["a"]);
    let other = &keys(&["a", "bb", "c"]);
    let rest = other.chunks(12).find(|entry| entry[8] == 1).unwrap();
    let mut entries = [first, twin, rest.to_vec()];
    entries.sort_by_key(|entry| key_entry(entry.first_chunk().unwrap()));
    let shard = open(&sample().with(layout::KEYS, entries.concat())).unwrap();
    assert_eq!(shard.find("a").unwrap(), Some(0));
    assert_eq!(shard.find("bb").unwrap(), Some(1));
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let shard = open(&sample()).unwrap();
    let x = shard.field("x").unwrap();
    let mut small = [0; 4];
    for (error, want) in [
        (shard.field("y").err(), "there is no field `y`"),
        (x.row(3).err(), "there is no row 3: the shard has 3 rows"),
        (x.row(u64::MAX).err(), "there is no row 18446744073709551615: the shard has 3 rows"),
        (x.dims(0).err(), "field `x` of kind fixed has no dims"),
        (x.entries(0).err(), "field `x` of kind fixed has no axis"),
        (x.code(0).err(), "field `x` of kind fixed has no codes"),
        (x.dictionary_value(0).err(), "field `x` of kind fixed has no dictionary"),
        (x.typed::<UInt8Type>().err(), "field `x` of kind fixed has no numbers of that type"),
        (x.gather(&[3], &mut small).err(), "there is no row 3: the shard has 3 rows"),
        (x.gather(&[0, 1], &mut small).err(), "2 rows of field `x` are 8 bytes, the buffer has 4"),
        (x.column(2..4).err(), "there is no row 4: the shard has 3 rows"),
    ] {
        assert_eq!(error.unwrap().to_string(), want);
    }
}

/// Opens a sample with one other file, and reads a field of it in every way there is.
fn damaged(field: &str, file: &str, bytes: impl Into<Vec<u8>>) -> Vec<String> {
    let forge = sample().with(file, bytes);
    let shard = open(&forge).unwrap();
    let read = || -> Vec<Result<()>> {
        let field = match shard.field(field) {
            Ok(field) => field,
            Err(e) => return vec![Err(e)],
        };
        let rows = (0..3).map(|row| field.value(row).map(drop));
        let dims = (0..3).filter(|_| field.dims(0).is_ok()).map(|row| field.dims(row).map(drop));
        rows.chain(dims).chain([field.column(0..3).map(drop)]).collect()
    };
    let mut errors: Vec<String> =
        read().into_iter().filter_map(|r| Some(r.err()?.to_string())).collect();
    errors.dedup();
    errors.iter().map(|error| error.replace("/shard/", "")).collect()
}

#[test]
fn files_of_the_wrong_size_are_refused_when_a_field_is_opened() {
    for (field, file, bytes, want) in [
        ("x", "x.bin", vec![0; 11], "`x.bin`: 11 bytes where 3 rows have 12"),
        ("id", "id.offsets.bin", vec![], "`id.offsets.bin`: 0 bytes where 3 rows have 32"),
        ("id", "id.bin", vec![b'a'], "`id.bin`: 1 bytes where the offsets end at entry 4"),
        ("id", "id.offsets.bin", i64s(&[1, 1, 3, 4]), "`id.offsets.bin`: does not begin with 0"),
        (
            "id",
            "id.offsets.bin",
            i64s(&[0, 1, 3, -4]),
            "`id.bin`: 4 bytes where the offsets end at entry -4",
        ),
        (
            "panel",
            "panel.dict.offsets.bin",
            vec![],
            "`panel.dict.offsets.bin`: 0 bytes are no list of offsets",
        ),
        ("grid", "grid.dims.bin", vec![0; 20], "`grid.dims.bin`: 20 bytes where 3 rows have 24"),
    ] {
        assert_eq!(damaged(field, file, bytes), [want]);
    }
}

#[test]
fn offsets_that_do_not_rise_within_the_file_are_refused_where_they_are_read() {
    let of_row = |row| format!("the offsets of row or value {row} do not rise within the file");
    let of_rows = "the offsets of rows 0..3 do not rise within the file";
    for (what, offsets, row) in [
        ("falling", [0, 3, 1, 4], 1),
        ("past the end", [0, 1, 9, 4], 1),
        ("below 0", [0, -1, 3, 4], 0),
        ("past all numbers", [0, i64::MAX, 3, 4], 0),
    ] {
        let found = damaged("id", "id.offsets.bin", i64s(&offsets));
        assert_eq!(found[0], format!("`id.offsets.bin`: {}", of_row(row)), "{what}");
        assert_eq!(found[found.len() - 1], format!("`id.offsets.bin`: {of_rows}"), "{what}");
    }
    let found = damaged("panel", "panel.dict.offsets.bin", i64s(&[0, 5, 2]));
    assert_eq!(found[0], format!("`panel.dict.offsets.bin`: {}", of_row(0)));
}

#[test]
fn dims_that_are_not_those_of_the_scalars_are_refused() {
    for (what, dims, want) in [
        ("too many", [1, 3, -1, -1, 0, 0], "the dims [1, 3] of row 0"),
        (
            "overflow",
            [i32::MAX, i32::MAX, -1, -1, 0, 0],
            "the dims [2147483647, 2147483647] of row 0",
        ),
        ("behind the padding", [1, 2, -1, 1, 0, 0], "the dims [-1, 1] of row 1"),
        ("other padding", [1, 2, -1, -2, 0, 0], "the dims [-1, -2] of row 1"),
    ] {
        let found = damaged("grid", "grid.dims.bin", i32s(&dims));
        assert_eq!(
            found,
            [format!("`grid.dims.bin`: {want} are not those of its scalars")],
            "{what}"
        );
    }
}

#[test]
fn codes_and_flags_out_of_range_are_refused() {
    for (field, file, bytes, want) in [
        ("panel", "panel.codes.bin", i32s(&[0, 2, 1]), "row 1 has the code 2 of 2 values"),
        ("panel", "panel.codes.bin", i32s(&[0, -2, 1]), "row 1 has the code -2 of 2 values"),
        ("pet", "pet.bin", vec![1, 2, 0], "row 1 has the code 2 of 2 values"),
        ("pet", "pet.bin", vec![1, 0x80, 0], "row 1 has the code -128 of 2 values"),
        ("flag", "flag.valid.bin", vec![1, 2, 1], "row 1 is neither 0 nor 1"),
    ] {
        assert_eq!(damaged(field, file, bytes), [format!("`{file}`: {want}")]);
    }
}

#[test]
fn keys_of_rows_that_are_not_there_are_damage() {
    let mut entries = keys(&["a", "bb", "c"]);
    entries.chunks_mut(12).for_each(|entry| entry[8] = 9);
    let forge = sample().with(layout::KEYS, entries);
    assert_eq!(error(&forge, |s| s.find("a").map(drop)), "`keys.bin`: names row 9 of 3");
    let forge = sample().with(layout::KEYS, vec![0; 35]);
    assert_eq!(error(&forge, |s| s.find("a").map(drop)), "`keys.bin`: 35 bytes for 3 rows");
}

#[test]
fn runs_that_do_not_describe_the_rows_are_refused() {
    let fits = "`provenance.bin`: run 1 does not fit between its neighbours";
    for (name, runs, want) in [
        ("none", vec![], "`provenance.bin`: 0 bytes for 3 rows"),
        ("torn", vec![0, 0, 0], "`provenance.bin`: 24 bytes for 3 rows"),
        ("late", vec![1, 0, 0, -1], "`provenance.bin`: run 0 does not fit between its neighbours"),
        (
            "twice",
            vec![0, 0, 0, -1, 0, 0, 9, -1],
            "`provenance.bin`: run 0 does not fit between its neighbours",
        ),
        ("past the end", vec![0, 0, 0, -1, 3, 0, 9, -1], fits),
        ("no input", vec![0, 0, 0, -1, 1, -1, 9, -1], fits),
        ("sub row", vec![0, 0, 0, -1, 1, 0, 9, -2], fits),
        ("past all numbers", vec![0, 0, 0, -1, 1, 0, i64::MAX, -1], fits),
        (
            "not maximal",
            vec![0, 0, 0, -1, 1, 0, 1, -1],
            "`provenance.bin`: run 1 only goes on from the one before",
        ),
    ] {
        let forge = sample().with(layout::PROVENANCE, i64s(&runs));
        assert_eq!(error(&forge, |s| s.provenance().map(drop)), want, "{name}");
    }
    let provenance = open(&sample()).unwrap().provenance().unwrap();
    assert_eq!(provenance, Provenance::of_input(0, 0, 3));
}

#[test]
fn a_folder_that_is_no_sealed_shard_is_refused() {
    let path = |name: &str| Path::new(FOLDER).join(name);
    let open = |change: &dyn Fn(&Memory)| {
        let memory = sample().seal();
        change(&memory);
        let error = Shard::open(Arc::new(memory), FOLDER).unwrap_err();
        (error.to_string(), error.hint().unwrap_or_default())
    };
    let complete = path(layout::COMPLETE);
    let (error, hint) = open(&|m| m.remove_file(&complete).unwrap());
    assert_eq!(error, "`/shard` is no sealed shard: it has no _COMPLETE");
    assert_eq!(hint, "run the build again: it finishes what it had begun");
    let (error, _) = open(&|m| m.rename(&complete, &path(layout::REMOTE)).unwrap());
    assert_eq!(error, "`/shard/_REMOTE`: lacks `url`");
    let (error, _) = open(&|m| m.remove_file(&path(layout::SUMS)).unwrap());
    assert_eq!(error, "`/shard/B3SUMS` is missing");
    let (error, _) = open(&|m| m.truncate(path(layout::SUMS), 60).unwrap());
    assert_eq!(error, "`/shard/B3SUMS`: is not the file that _COMPLETE names");
    let (error, _) = open(&|m| m.truncate(path(layout::SCHEMA), 60).unwrap());
    assert_eq!(error, "`/shard/schema.json`: does not match its sum in B3SUMS");
    let (error, _) = open(&|m| m.overwrite(&complete, 0, b"[").unwrap());
    assert_eq!(error, "`/shard/_COMPLETE`: is not JSON");
}

#[test]
fn schemas_of_another_kind_are_refused_by_name() {
    for (from, to, want) in [
        ("\"layout\": 1", "\"layout\": 2", "unknown layout 2"),
        ("\"requires\": []", "\"requires\": [\"zstd\"]", "requires \"zstd\", which is not known"),
        ("\"codec\": \"none\"", "\"codec\": \"zstd\"", "unknown codec \"zstd\""),
        ("\"stem\": \"x\"", "\"stem\": \"../x\"", "../x"),
    ] {
        let error = open(&sample().edit(layout::SCHEMA, from, to)).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(want), "{source}");
    }
}
