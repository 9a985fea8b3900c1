//! Rows that are read where they lie: the same as on a disk, and only the blocks that hold them travel.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use rowmill::dataset::Dataset;
use rowmill::exporters::{open_dataset, storage_at};
use rowmill::remote::{BlockCacheOptions, RemoteOptions};
use rowmill::schema::key_hash_bytes;
use rowmill::shard::ReadError;
use serde_json::Value;

use super::command::{Place, Ran, files_of};
use super::datasets::{command, folder, kinds, large, lay, lay_named, run};
use super::harness::wait;
use super::proxy::{Fault, Proxy, Rule};
use super::servers::{Bucket, Server};
use super::web::Web;

const MIB: u64 = 1 << 20;

fn rowmill(place: &Place, bucket: &Bucket, proxy: &Proxy, args: &[&str]) -> Ran {
    run(place, bucket, &proxy.endpoint(), args)
}

/// What a command prints that must end well.
fn printed(place: &Place, bucket: &Bucket, proxy: &Proxy, args: &[&str]) -> String {
    let ran = rowmill(place, bucket, proxy, args);
    assert_eq!((ran.code, &*ran.stderr), (0, ""), "{}: {args:?}: {ran:?}", bucket.server.name);
    ran.stdout
}

/// A JSON document without what names its place and time.
fn placeless(text: &str) -> Value {
    fn clear(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for name in ["path", "file", "dataset", "completed", "modified", "age_seconds"] {
                    members.remove(name);
                }
                members.values_mut().for_each(clear);
            }
            Value::Array(items) => items.iter_mut().for_each(clear),
            _ => {}
        }
    }
    let mut document = serde_json::from_str(text).unwrap();
    clear(&mut document);
    document
}

#[test]
fn commands_print_of_a_url_what_they_print_of_a_folder() {
    let place = kinds();
    for server in Server::all() {
        let bucket = server.bucket();
        let (key, proxy) = (lay_named(&place, &bucket, "kinds"), bucket.proxy());
        let id = place.json(&["inspect", "data/kinds"])["shards"][0]["id"].clone();
        let shard = format!("{key}/shards/{}", id.as_str().unwrap());
        for below in ["", &format!("/{key}"), &format!("/{shard}")] {
            let url = bucket.url(&format!("kinds{below}"));
            let dir = format!("data/kinds{below}");
            for args in [
                &["cat"][..],
                &["cat", "--rows", "17"],
                &["cat", "--rows", "12..18,3,3..9", "--columns", "kind,grid,id", "--limit", "15"],
                &["inspect", "--row", "11"],
                &["inspect", "--json"],
            ] {
                let [there, here] =
                    [&url, &dir].map(|at| [&args[..1], &[at.as_str()], &args[1..]].concat());
                let there = printed(&place, &bucket, &proxy, &there);
                let here = place.done(&here).stdout;
                let what = format!("{}: {below} {args:?}", server.name);
                if args.contains(&"--json") {
                    assert_eq!(placeless(&there), placeless(&here), "{what}");
                } else {
                    assert!(there == here, "{what}\n{there}\n{here}");
                }
            }
        }
        let url = bucket.url("kinds");
        for key in ["row-0", "row-209", "row-101"] {
            let there = ["inspect", &url, "--key", key];
            let there = printed(&place, &bucket, &proxy, &there);
            let here = place.done(&["inspect", "data/kinds", "--key", key]).stdout;
            assert_eq!(there, here, "{key}");
        }
        // No sum covers a piece of the index: what is not found in it is looked for again.
        let index = files_of(&place.current("data", "kinds"));
        let index = index.iter().find(|(path, _)| path.to_string_lossy().starts_with("keys-"));
        let entries = &index.unwrap().1[(1 << 19) + 8..];
        let hash = key_hash_bytes(b"row-101").to_le_bytes();
        let at = entries.chunks(16).position(|entry| entry[..8] == hash).unwrap() as u64;
        let args = ["inspect", &url, "--key", "row-101"];
        let whole = printed(&place, &bucket, &proxy, &args);
        proxy.clear();
        let flipped = Rule::new(Fault::FlippedByte(8 + at * 16)).on("GetObject").key("/keys-");
        proxy.inject(flipped.after(1));
        assert_eq!(printed(&place, &bucket, &proxy, &args), whole, "{}", server.name);
        let of_index = proxy.requests().into_iter().filter(|it| it.key.contains("/keys-"));
        let of_index: Vec<_> = of_index.filter(|it| it.operation == "GetObject").collect();
        assert_eq!(of_index.len(), 4, "twice the start and the bucket: {of_index:#?}");
        let none = rowmill(&place, &bucket, &proxy, &["inspect", &url, "--key", "row-100"]);
        none.fails(2, &["no row has the key `row-100`"]);
        let there = printed(&place, &bucket, &proxy, &["status", &url, "--json"]);
        let here = place.done(&["status", "data/kinds", "--json"]).stdout;
        let (there, here) = (placeless(&there), placeless(&here));
        for what in ["state", "cache_key", "name", "generation"] {
            assert_eq!(there[what], here[what], "{}", server.name);
        }
        assert_eq!(there["keys"][0]["current"], true, "{there}");
    }
}

#[test]
fn rows_far_apart_are_asked_for_at_the_same_time() {
    let place = kinds();
    let Some(server) = Server::all().next() else { return };
    let bucket = server.bucket();
    lay_named(&place, &bucket, "kinds");
    let proxy = bucket.proxy();
    proxy.inject(Rule::new(Fault::Held).on("GetObject").key("/schema.json"));
    let url = bucket.url("kinds");
    let args = ["cat", &url, "--rows", "5,45,85,125"];
    let mut child = command(&place, &bucket, &proxy.endpoint(), &args).spawn().unwrap();
    proxy.wait("other shards, while one is waited for", |all| {
        all.iter().filter(|it| it.key.ends_with("/schema.json")).count() == 4
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn of_one_row_only_its_blocks_travel() {
    let place = large();
    let bytes = files_of(&folder(&place, "data")).values().map(|it| it.len() as u64).sum::<u64>();
    assert!(bytes > 4 * MIB, "{bytes}");
    for server in Server::all() {
        let bucket = server.bucket();
        lay(&place, &bucket);
        let (proxy, url) = (bucket.proxy(), bucket.url("texts"));
        printed(&place, &bucket, &proxy, &["cat", &url, "--rows", "41", "--columns", "text"]);
        let requests = proxy.requests();
        // The block that the row is in, or two; offsets; what the shard says of itself.
        assert!(proxy.got_bytes() < 5 * MIB / 2, "{}: {} bytes", server.name, proxy.got_bytes());
        assert!(requests.len() <= 14, "{}: {requests:#?}", server.name);
        // All rows: neighbours come together, and nothing comes twice.
        proxy.clear();
        printed(&place, &bucket, &proxy, &["cat", &url, "--columns", "text"]);
        let of_text = proxy.requests().into_iter().filter(|it| it.key.ends_with("/text.bin"));
        let got: Vec<u64> = of_text.map(|it| it.got_bytes).collect();
        let size = files_of(&folder(&place, "data"))
            .iter()
            .find(|(path, _)| path.ends_with("text.bin"))
            .map(|(_, bytes)| bytes.len() as u64);
        assert_eq!(Some(got.iter().sum()), size, "{}: {got:?}", server.name);
        assert!(got.len() <= 2, "{}: {got:?}", server.name);
    }
}

#[test]
fn bytes_that_changed_on_their_way_or_there_are_not_believed() {
    for server in Server::all() {
        let (place, bucket) = (large(), server.bucket());
        let (key, proxy) = (lay(&place, &bucket), bucket.proxy());
        let url = bucket.url("texts");
        let args = ["cat", &url, "--rows", "79", "--columns", "text"];
        let whole = printed(&place, &bucket, &proxy, &args);
        for fault in [
            Fault::FlippedByte(4321),
            Fault::CutAnswer(70_000),
            Fault::ShortBody(3),
            Fault::SlowDown,
            Fault::Internal,
            Fault::LostAnswer,
        ] {
            proxy.clear();
            proxy.inject(Rule::new(fault.clone()).on("GetObject").key("/text.bin"));
            assert!(printed(&place, &bucket, &proxy, &args) == whole, "{fault:?}");
            let met = proxy.requests().iter().any(|it| it.fault.is_some());
            assert!(met, "{}: {fault:?}", server.name);
        }
        // Always flipped: it is what lies there.
        proxy.clear();
        proxy.inject(Rule::new(Fault::FlippedByte(9)).on("GetObject").key("/text.bin").times(99));
        let damaged = rowmill(&place, &bucket, &proxy, &args);
        damaged.fails(4, &["/text.bin`", "block ", "does not match its CRC-32", "hint: "]);
        // Another state of the object than the one that was listed, where listings tell of states.
        if server.name == "moto" {
            proxy.clear();
            proxy.inject(Rule::new(Fault::WrongEtag).on("GetObject").key("/text.bin").times(99));
            let changed = rowmill(&place, &bucket, &proxy, &args);
            changed.fails(1, &["/text.bin`: it is not what it was"]);
        }

        let (dir, store) = (folder(&place, "data"), bucket.store());
        for (name, at) in [("blocks.bin", 0), ("B3SUMS", 0), ("schema.json", 20)] {
            let files = files_of(&dir);
            let (path, good) = files.iter().find(|(path, _)| path.ends_with(name)).unwrap();
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            let object = Key::from(format!("texts/{key}/{}", path.display()));
            wait(store.put(&object, bytes.into())).unwrap();
            proxy.clear();
            let damaged = rowmill(&place, &bucket, &proxy, &args);
            damaged.fails(4, &[name, "hint: `rowmill verify URL`"]);
            wait(store.put(&object, good.clone().into())).unwrap();
        }
    }
}

#[test]
fn a_url_without_a_dataset_says_what_was_looked_for() {
    let place = kinds();
    for server in Server::all() {
        let bucket = server.bucket();
        let (key, proxy) = (lay_named(&place, &bucket, "kinds"), bucket.proxy());
        let id = place.json(&["inspect", "data/kinds"])["shards"][0]["id"].clone();
        let shard = bucket.url(&format!("kinds/{key}/shards/{}", id.as_str().unwrap()));
        let looked = "neither `_COMPLETE` nor `current.json`";
        for command in ["cat", "inspect", "status"] {
            for (url, texts) in [
                (bucket.url("none"), &[looked, "/none` holds", "hint: name URL/NAME"][..]),
                (bucket.url(""), &[looked, "but `kinds`"]),
            ] {
                rowmill(&place, &bucket, &proxy, &[command, &url]).fails(2, texts);
            }
        }
        for args in [&["status", &*shard][..], &["pull", &shard, "out"]] {
            let ran = rowmill(&place, &bucket, &proxy, args);
            ran.fails(2, &["error[no-dataset]", "it is one of the shards of a dataset"]);
        }
        for command_name in ["cat", "inspect", "status", "pull", "clean", "verify"] {
            let more = &["out"][..usize::from(command_name == "pull")];
            let url = bucket.url("kinds");
            let args = [&[command_name, &*url], more].concat();
            let mut command = command(&place, &bucket, &proxy.endpoint(), &args);
            let ran = Ran::of(command.env("AWS_SECRET_ACCESS_KEY", "other").output().unwrap());
            ran.fails(1, &["error[remote-credentials]", "hint: set AWS_ACCESS_KEY_ID"]);
            let args = [&[command_name, "s3://no-such-bucket-here/kinds"], more].concat();
            let ran = rowmill(&place, &bucket, &proxy, &args);
            ran.fails(1, &["error[remote-no-bucket]", "hint: create the bucket"]);
        }
        // Records without a sentinel: a push that has not ended.
        wait(bucket.store().delete(&Key::from(format!("kinds/{key}/_COMPLETE")))).unwrap();
        let verified = rowmill(&place, &bucket, &proxy, &["verify", &bucket.url("kinds")]);
        verified.fails(4, &["no complete dataset", "hint: a push there has not ended"]);
        let status = printed(&place, &bucket, &proxy, &["status", &bucket.url("kinds")]);
        assert!(status.contains("incomplete: `rowmill push`"), "{status}");
        assert!(status.contains(" done, 0 open") && status.contains("209 rows"), "{status}");
    }
}

/// Everything that is read of a dataset by row, by range and by key.
fn check_same(there: &Dataset, here: &Dataset) {
    assert_eq!((there.n_rows(), there.generation()), (here.n_rows(), here.generation()));
    for rows in [&[5][..], &[208, 0, 0, 41, 40, 39, 7], &[], &(0..209).collect::<Vec<_>>()] {
        let (far, near) = (there.select(rows).unwrap(), here.select(rows).unwrap());
        for field in here.schema().fields() {
            let gathered = |it: &rowmill::dataset::Selection<'_>| {
                let (mut bytes, mut offsets, mut valid) = (Vec::new(), Vec::new(), Vec::new());
                it.gather_ragged(&field.name, &mut bytes, &mut offsets).unwrap();
                it.gather_valid(&field.name, &mut valid).unwrap();
                (bytes, offsets, valid)
            };
            assert_eq!(gathered(&far), gathered(&near), "{}", field.name);
        }
        let (mut a, mut b) = (vec![0; rows.len() * 4], vec![1; rows.len() * 4]);
        far.gather("n", &mut a).unwrap();
        near.gather("n", &mut b).unwrap();
        assert_eq!(a, b);
    }
    for range in [0..209, 39..41, 100..100] {
        let columns = |dataset: &Dataset| -> Vec<ArrayRef> {
            let batches = dataset.scan(range.clone(), None).unwrap();
            let columns = batches.flat_map(|batch| batch.unwrap().columns().to_vec());
            // Dictionaries hold what a batch needs of them.
            let plain = |column: ArrayRef| match column.data_type() {
                DataType::Dictionary(_, value) => arrow_cast::cast(&column, value).unwrap(),
                _ => column,
            };
            columns.map(plain).collect()
        };
        assert_eq!(columns(there), columns(here), "{range:?}");
    }
    let keys: Vec<String> = (0..220).map(|n| format!("row-{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let found = there.find_many(&keys).unwrap();
    assert_eq!(found, here.find_many(&keys).unwrap());
    assert_eq!(found.iter().flatten().count(), 209);
    let (far, near) = (there.shard(1).unwrap(), here.shard(1).unwrap());
    assert_eq!(far.provenance().unwrap(), near.provenance().unwrap());
    assert_eq!(far.origin(0, 7).unwrap(), near.origin(0, 7).unwrap());
    for key in &keys {
        assert_eq!(far.find(*key).unwrap(), near.find(*key).unwrap());
    }
}

#[test]
fn a_dataset_that_is_opened_by_url_has_the_same_rows() {
    let place = kinds();
    let (folder, web) = (place.current("data", "kinds"), Web::new(place.path("data")));
    let url = format!("file://{}", folder.display());
    let at_web = web.url(&format!("kinds/{}", folder.file_name().unwrap().to_str().unwrap()));
    let (options, cache) = (RemoteOptions::default(), BlockCacheOptions::default);
    let here = Dataset::open(place.path("data/kinds")).unwrap();
    for (url, bytes) in [(&url, 256 * MIB), (&at_web, 256 * MIB), (&url, 700), (&url, 0)] {
        let there = open_dataset(url, &options, BlockCacheOptions { bytes, ..cache() }).unwrap();
        assert!(there.is_distant() && !here.is_distant());
        check_same(&there, &here);
        let unmapped = there.shard(0).unwrap().field("n").unwrap_err();
        assert!(matches!(unmapped, ReadError::Unmapped { .. }), "{unmapped}");
        let loaded = there.load_in_memory().unwrap();
        check_same(&loaded, &here);
        assert_eq!(loaded.shard(0).unwrap().field("n").unwrap().row(3).unwrap().len(), 4);
    }
    // On a thread that is not to wait for others, too.
    wait(async { check_same(&open_dataset(&url, &options, cache()).unwrap(), &here) });
    let dir = folder.display().to_string();
    for args in [&["cat", "--rows", "150..160"][..], &["inspect", "--key", "row-7"]] {
        let [there, here] =
            [&at_web, &dir].map(|at| [&args[..1], &[at.as_str()], &args[1..]].concat());
        assert_eq!(place.done(&there).stdout, place.done(&here).stdout, "{args:?}");
    }
    let status = place.json(&["status", &at_web]);
    assert_eq!(
        (&status["state"], &status["generation"]["rows"]),
        (&"complete".into(), &209.into())
    );
    let error = open_dataset("ftp://host/x", &options, cache()).unwrap_err();
    assert!(error.to_string().contains("ftp://host/x"), "{error}");
}

#[test]
fn threads_share_a_cache_that_stays_within_its_bytes() {
    let place = large();
    let url = format!("file://{}", folder(&place, "data").display());
    let cache = BlockCacheOptions { bytes: 2 * MIB, requests: 3 };
    let storage = Arc::new(storage_at(&url, &RemoteOptions::default(), cache).unwrap());
    let there = Dataset::open_in(Arc::<_>::clone(&storage) as _, storage.root()).unwrap();
    let here = Dataset::open(folder(&place, "data")).unwrap();
    let texts = |dataset: &Dataset, rows: &[u64]| {
        let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
        dataset.select(rows).unwrap().gather_ragged("text", &mut bytes, &mut offsets).unwrap();
        (bytes, offsets)
    };
    std::thread::scope(|threads| {
        for start in 0..6 {
            let (there, here, storage) = (&there, &here, &storage);
            threads.spawn(move || {
                for n in 0..12 {
                    let rows: Vec<u64> = (0..5).map(|i| (start + n * 13 + i * 17) % 80).collect();
                    assert!(texts(there, &rows) == texts(here, &rows), "rows {rows:?}");
                    assert!(storage.cached_bytes() <= 2 * MIB);
                }
            });
        }
    });
    assert!(storage.cached_bytes() > MIB);
}
