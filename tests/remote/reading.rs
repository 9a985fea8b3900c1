//! Inputs in object stores: the same bytes as from files, whatever goes wrong on the way.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use object_store::signer::Signer;
use parquet::arrow::ArrowWriter;

use super::command::{Place, Ran, files_of, joined};
use super::proxy::{Fault, Proxy, Rule};
use super::servers::{Bucket, Server};

/// Definitions of one dataset each, by kind of source.
const SOURCES: [(&str, &str); 9] = [
    ("csv", "type = \"csv\"\npath = \"csv/*.csv\""),
    ("jsonl", "type = \"jsonl\"\npath = [\"jsonl/a.jsonl\", \"jsonl/**/*.jsonl.gz\"]"),
    ("parquet", "type = \"parquet\"\npath = \"**/*.parquet\""),
    ("idx", "type = \"idx\"\npath = \"idx/*.gz\""),
    ("zip", "type = \"csv\"\npath = \"zip/*.zip\""),
    ("files", "type = \"files\"\npath = \"texts/**/*.txt\"\nsibling = \"LICENSE*\""),
    ("npy", "type = \"npy\"\npath = \"npy/*.npy\""),
    ("labels", "type = \"idx\"\npath = \"labels/x/*\"\nlabels = \"labels/y/*\""),
    ("deep", "type = \"files\"\npath = \"texts/b/c/*.txt\"\ncontent = \"text\""),
];

pub(crate) fn definition(name: &str, source: &str) -> String {
    format!(
        "version = 1\nname = \"{name}\"\nenv = [\"ROOT\"]\n\n[sources.in]\nroot = \"${{ROOT}}\"\n\
         {source}\n\n[dataset]\npartition_bytes = \"1MiB\"\nshard_bytes = \"1MiB\"\n"
    )
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zip(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap().into_inner()
}

fn parquet(n: i64) -> Vec<u8> {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..n));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((0..n).map(|i| i.to_string())));
    let rows = RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    bytes
}

/// Three rows of two numbers.
fn npy(first: u8) -> Vec<u8> {
    let head = "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }";
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{head:117}\n").into_bytes());
    bytes.extend(first..first + 6);
    bytes
}

/// Files of every kind of source, some larger than what is asked for at once.
fn inputs() -> Vec<(String, Vec<u8>)> {
    let csv = |from: usize, n: usize| {
        joined((from..from + n).map(|i| format!("{i},{},line {i}\n", i * 7 % 11)))
    };
    let lines = |n: usize| joined((0..n).map(|i| format!("{{\"id\": {i}, \"text\": \"t{i}\"}}\n")));
    let mut idx = vec![0, 0, 8, 3, 0, 0, 0, 100, 0, 0, 0, 4, 0, 0, 0, 4];
    idx.extend((0..1600_u32).map(|i| u8::try_from(i % 256).unwrap()));
    let mut inputs = vec![
        ("csv/a.csv".to_owned(), format!("id,mod,text\n{}", csv(0, 150_000)).into_bytes()),
        ("csv/b.csv".to_owned(), format!("id,mod,text\n{}", csv(150_000, 10)).into_bytes()),
        ("csv/c.txt".to_owned(), b"not meant".to_vec()),
        ("jsonl/a.jsonl".to_owned(), lines(40_000).into_bytes()),
        ("jsonl/x/y/b.jsonl.gz".to_owned(), gzip(lines(50).as_bytes())),
        ("p/a.parquet".to_owned(), parquet(100_000)),
        ("idx/a.gz".to_owned(), gzip(&idx)),
        ("zip/a.zip".to_owned(), zip("m.csv", format!("id,mod,text\n{}", csv(0, 9)).as_bytes())),
        ("texts/LICENSE.md".to_owned(), b"free".to_vec()),
        ("texts/b/LICENSE".to_owned(), b"not free".to_vec()),
    ];
    inputs.extend((1..5).map(|n| (format!("p/{n}.parquet"), parquet(n))));
    inputs.extend((0..9).map(|i| (format!("npy/{i}.npy"), npy(10 * i))));
    for i in 0..9 {
        let rows = vec![0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, i, 1, 2, 3];
        inputs.push((format!("labels/x/{i}"), rows));
        inputs.push((format!("labels/y/{i}"), vec![0, 0, 8, 1, 0, 0, 0, 2, i, i]));
    }
    inputs.extend((0..12).map(|i| {
        let folder = ["a", "b", "b/c"][i % 3];
        (format!("texts/{folder}/{i}.txt"), format!("text {i}").repeat(i).into_bytes())
    }));
    inputs
}

/// Puts the inputs below `data/`, and into the folder `in` of a place that has the definitions.
fn put(bucket: &Bucket) -> Place {
    let place = Place::new();
    let store = bucket.store();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for (path, bytes) in inputs() {
            place.write(&format!("in/{path}"), &bytes);
            store.put(&Path::from(format!("data/{path}")), bytes.into()).await.unwrap();
        }
        // What consoles keep to stand for a folder, and what only begins like one.
        store.put(&Path::from("data-other/a.csv"), "id\n1\n".into()).await.unwrap();
    });
    for (name, source) in SOURCES {
        place.write(&format!("{name}.toml"), definition(name, source));
    }
    place
}

pub(crate) fn run(place: &Place, args: &[&str], root: &str, environment: &[(&str, String)]) -> Ran {
    let mut command = place.command(args);
    command.env("ROOT", root).envs(environment.iter().map(|(name, value)| (name, value)));
    Ran::of(command.output().unwrap())
}

#[track_caller]
pub(crate) fn done(ran: &Ran) {
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn every_source_reads_objects_as_it_reads_files() {
    for server in Server::all() {
        let bucket = server.bucket();
        let place = put(&bucket);
        let environment = bucket.environment(&bucket.endpoint());
        for (name, _) in SOURCES {
            let file = format!("{name}.toml");
            done(&run(&place, &["run", &file, "--out", "local"], "in", &[]));
            let url = bucket.url("data");
            done(&run(&place, &["run", &file, "--out", "remote"], &url, &environment));
            let [local, remote] = ["local", "remote"].map(|out| files_of(&place.path(out)));
            assert!(local.len() > 5, "{}, {name}", server.name);
            assert_eq!(
                local.keys().collect::<Vec<_>>(),
                remote.keys().collect::<Vec<_>>(),
                "{}, {name}",
                server.name
            );
            assert!(local == remote, "{}, {name}: other bytes", server.name);
            let again = run(&place, &["run", &file, "--out", "remote"], &url, &environment);
            done(&again);
            assert!(again.stdout.contains("up to date"), "{}: {again:?}", server.name);
        }
    }
}

/// A folder's name with whatever is escaped in a query, in one way or another.
const ODD: &str = "d~ *(a+b) %20&=\u{fc}";

#[test]
fn many_objects_in_folders_are_listed_by_every_server() {
    for server in Server::all() {
        let bucket = server.bucket();
        let (place, store) = (Place::new(), bucket.store());
        // More than a page, in folders by which the rest is cut.
        let paths = (0..1_100).map(|i| format!("npy/{:02}~/{i:04}.npy", i / 100));
        let paths: Vec<String> = paths.collect();
        for path in &paths {
            place.write(&format!("in/{path}"), npy(1));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let put = |path| {
            let key = Path::parse(format!("{ODD}/{path}")).unwrap();
            let store = &store;
            async move { store.put(&key, npy(1).into()).await.map(drop) }
        };
        let put = stream::iter(paths).map(put).buffer_unordered(8).try_collect::<()>();
        runtime.block_on(put).unwrap();
        place.write("many.toml", definition("many", "type = \"npy\"\npath = \"npy/**/*.npy\""));
        let (url, environment) = (bucket.url(ODD), bucket.environment(&bucket.endpoint()));
        done(&run(&place, &["run", "many.toml", "--out", "local"], "in", &[]));
        let planned = run(&place, &["plan", "many.toml", "--out", "remote"], &url, &environment);
        done(&planned);
        assert!(planned.stdout.contains("1,100 files"), "{}: {planned:?}", server.name);
        done(&run(&place, &["run", "many.toml", "--out", "remote"], &url, &environment));
        let [local, remote] = ["local", "remote"].map(|out| files_of(&place.path(out)));
        assert!(local == remote, "{}: other bytes", server.name);
    }
}

#[test]
fn a_path_may_be_the_url_and_the_key_does_not_hold_it() {
    let Some(server) = Server::moto() else { return };
    let bucket = server.bucket();
    let place = put(&bucket);
    let environment = bucket.environment(&bucket.endpoint());
    let path = format!("type = \"csv\"\npath = \"{}\"", bucket.url("data/csv/*.csv"));
    place.write("url.toml", definition("csv", &path).replace("root = \"${ROOT}\"\n", ""));
    let rooted = definition("csv", "type = \"csv\"\npath = \"*.csv\"");
    place.write("rooted.toml", rooted);
    done(&run(&place, &["run", "url.toml", "--out", "a"], "", &environment));
    done(&run(&place, &["run", "rooted.toml", "--out", "b"], "in/csv", &[]));
    assert!(files_of(&place.path("a")) == files_of(&place.path("b")));
}

#[test]
fn a_signed_url_is_read_by_whoever_has_it_and_never_shown() {
    // Moto takes only signatures in headers.
    let Some(server) = Server::s3s_fs() else { return };
    let bucket = server.bucket();
    let place = put(&bucket);
    let path = Path::from("data/csv/a.csv");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hour = std::time::Duration::from_hours(1);
    let (store, get) = (bucket.store(), "GET".parse().unwrap());
    let url = runtime.block_on(async { store.signed_url(get, &path, hour).await }).unwrap();
    let source = format!("type = \"csv\"\npath = \"{url}\"");
    place.write("url.toml", definition("csv", &source).replace("root = \"${ROOT}\"\n", ""));
    place.write("rooted.toml", definition("csv", "type = \"csv\"\npath = \"a.csv\""));
    let ran = run(&place, &["run", "url.toml", "--out", "a"], "", &[]);
    done(&ran);
    let planned = run(&place, &["plan", "url.toml", "--out", "b", "--json"], "", &[]);
    done(&planned);
    done(&run(&place, &["run", "rooted.toml", "--out", "b"], "in/csv", &[]));
    let [a, b] = ["a", "b"].map(|out| files_of(&place.path(out)));
    assert!(a == b);
    for text in [&ran.stdout, &ran.stderr, &planned.stdout] {
        assert!(!text.contains("Signature"), "{text}");
    }
    let work = place.current("a", "csv").join("work");
    let entries = super::command::snapshot(&work);
    let holds = |entry: &super::command::Entry| match entry {
        super::command::Entry::File { bytes, .. } => {
            String::from_utf8_lossy(bytes).contains("Signature")
        }
        _ => false,
    };
    assert!(!entries.values().any(holds));
    let gone = source.replace("a.csv", "gone.csv");
    place.write("gone.toml", definition("csv", &gone).replace("root = \"${ROOT}\"\n", ""));
    let ran = run(&place, &["run", "gone.toml"], "", &[]);
    assert!(ran.code != 0 && !ran.stderr.contains("Signature="), "{ran:?}");
}

#[test]
fn a_file_url_is_the_folder() {
    let place = Place::new();
    for (path, bytes) in inputs() {
        place.write(&format!("in/{path}"), bytes);
    }
    place.write("p.toml", definition("idx", SOURCES[3].1));
    let url = format!("file://{}", place.path("in").display());
    done(&run(&place, &["run", "p.toml", "--out", "a"], "in", &[]));
    done(&run(&place, &["run", "p.toml", "--out", "b"], &url, &[]));
    assert!(files_of(&place.path("a")) == files_of(&place.path("b")));
}

#[test]
fn what_goes_wrong_on_the_way_changes_nothing() {
    for server in Server::all() {
        let bucket = server.bucket();
        let place = put(&bucket);
        let proxy = bucket.proxy();
        let environment = bucket.environment(&proxy.endpoint());
        done(&run(&place, &["run", "csv.toml", "--out", "local"], "in", &[]));
        let get = |fault: Fault, n: usize| Rule::new(fault).on("GetObject").after(n);
        for (n, fault) in [
            (0, Fault::SlowDown),
            (1, Fault::CutAnswer(9)),
            (2, Fault::CutAnswer(300_000)),
            (3, Fault::Internal),
            (4, Fault::ShortBody(5)),
        ] {
            proxy.inject(get(fault, n));
        }
        proxy.inject(Rule::new(Fault::SlowDown).on("ListObjects").times(2));
        done(&run(&place, &["run", "csv.toml", "--out", "x"], &bucket.url("data"), &environment));
        let met = proxy.requests().into_iter().filter(|it| it.fault.is_some()).count();
        assert!(met >= 6, "{}: {met} faults met", server.name);
        let same = files_of(&place.path("local")) == files_of(&place.path("x"));
        assert!(same, "{}: other bytes", server.name);
    }
}

/// Runs a definition until it reads one of those objects, and kills it.
fn run_until(place: &Place, file: &str, key: &str, bucket: &Bucket, proxy: &Proxy) {
    proxy.inject(Rule::new(Fault::Held).on("GetObject").key(key));
    let mut command = place.command(&["run", file, "--out", "x"]);
    command.env("ROOT", bucket.url("data")).envs(bucket.environment(&proxy.endpoint()));
    let mut child = command.spawn().unwrap();
    proxy.wait("read of an object", |all| all.iter().any(|it| it.fault.is_some()));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_interrupted_build_goes_on_with_what_it_listed() {
    let Some(server) = Server::moto() else { return };
    let bucket = server.bucket();
    let place = put(&bucket);
    let put = |path: &str, text: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (path, store) = (Path::from(format!("data/{path}")), bucket.store());
        runtime.block_on(async { store.put(&path, text.to_owned().into()).await.unwrap() });
    };
    let proxy = bucket.proxy();
    run_until(&place, "deep.toml", "texts/b/c/8.txt", &bucket, &proxy);
    assert_eq!(proxy.count("ListObjects"), 1);
    put("texts/b/c/new.txt", "new");
    let (proxy, url) = (bucket.proxy(), bucket.url("data"));
    let environment = bucket.environment(&proxy.endpoint());
    let run = |command| run(&place, &[command, "deep.toml", "--out", "x"], &url, &environment);
    let [planned, ran] = ["plan", "run"].map(run);
    done(&planned);
    done(&ran);
    assert_eq!(proxy.count("ListObjects"), 0, "it lies in the folder");
    let same_as_local = || {
        let local = ["run", "deep.toml", "--out", "local"];
        done(&self::run(&place, &local, "in", &[]));
        let sentinel = |out| {
            let mut files = files_of(&place.current(out, "deep"));
            files.remove(std::path::Path::new("_COMPLETE")).unwrap()
        };
        assert_eq!(sentinel("x"), sentinel("local"));
    };
    same_as_local();
    // What is complete and run again lists anew.
    done(&run("run"));
    assert_eq!(proxy.count("ListObjects"), 1);
    place.write("in/texts/b/c/new.txt", "new");
    same_as_local();

    put("texts/b/c/newer.txt", "newer");
    run_until(&place, "deep.toml", "texts/b/c/newer.txt", &bucket, &bucket.proxy());
    put("texts/b/c/newer.txt", "newest");
    proxy.clear();
    run("run").fails(1, &["error[input-changed]", "newer.txt"]);
    assert_eq!(proxy.count("ListObjects"), 0);
    done(&run("run"));
    assert_eq!(proxy.count("ListObjects"), 1, "a listing with what has changed does not count");
    place.write("in/texts/b/c/newer.txt", "newest");
    same_as_local();
}

#[test]
fn small_objects_are_asked_for_before_their_turn() {
    let Some(server) = Server::moto() else { return };
    let bucket = server.bucket();
    let place = put(&bucket);
    let proxy = bucket.proxy();
    let environment = bucket.environment(&proxy.endpoint());
    // The first that is not empty never comes.
    proxy.inject(Rule::new(Fault::Held).on("GetObject").key("texts/a/3.txt"));
    let mut command = place.command(&["run", "files.toml"]);
    command.env("ROOT", bucket.url("data")).envs(environment);
    let mut child = command.spawn().unwrap();
    proxy.wait("reads of what comes behind it", |all| {
        let of_texts = all.iter().filter(|it| it.operation == "GetObject" && it.status > 0);
        of_texts.map(|it| &it.key).collect::<std::collections::BTreeSet<_>>().len() >= 10
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_object_that_changes_while_it_is_read_is_noticed() {
    let Some(server) = Server::moto() else { return };
    let bucket = server.bucket();
    let place = put(&bucket);
    let proxy = bucket.proxy();
    let environment = bucket.environment(&proxy.endpoint());
    proxy.inject(Rule::new(Fault::WrongEtag).on("GetObject").after(2).times(1000));
    let ran = run(&place, &["run", "csv.toml"], &bucket.url("data"), &environment);
    ran.fails(1, &["error[input-changed]", "csv/a.csv"]);
}

#[test]
fn an_input_that_never_comes_whole_is_named() {
    for server in Server::all() {
        let bucket = server.bucket();
        let place = put(&bucket);
        let proxy = bucket.proxy();
        let environment = bucket.environment(&proxy.endpoint());
        let short = Rule::new(Fault::ShortBody(5)).on("GetObject").key("csv/a.csv");
        proxy.inject(short.times(1000));
        let ran = run(&place, &["run", "csv.toml"], &bucket.url("data"), &environment);
        ran.fails(1, &["error[input-unreadable]", "csv/a.csv"]);
    }
}

#[test]
fn an_object_that_was_replaced_is_read_again() {
    let Some(server) = Server::moto() else { return };
    let bucket = server.bucket();
    let place = put(&bucket);
    let environment = bucket.environment(&bucket.endpoint());
    let build = || {
        done(&run(&place, &["run", "deep.toml", "--out", "x"], &bucket.url("data"), &environment));
        files_of(&place.path("x"))
    };
    let before = build();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let path = Path::from("data/texts/b/c/2.txt");
    // Of the same size: nothing but the `ETag`, and maybe the second, tells.
    let put = runtime.block_on(async { bucket.store().put(&path, "TEXT 2text 2".into()).await });
    put.unwrap();
    let after = build();
    assert!(after.len() > before.len());
    place.write("in/texts/b/c/2.txt", "TEXT 2text 2");
    done(&run(&place, &["run", "deep.toml", "--out", "fresh"], "in", &[]));
    let sentinel =
        |out: &str| files_of(&place.current(out, "deep")).remove(std::path::Path::new("_COMPLETE"));
    assert!(sentinel("x").is_some());
    assert_eq!(sentinel("x"), sentinel("fresh"));
}

#[test]
fn what_is_wrong_with_a_place_is_told_apart_and_holds_no_secret() {
    let Some(server) = Server::moto() else { return };
    let bucket = server.bucket();
    let place = put(&bucket);
    let right = bucket.environment(&bucket.endpoint()).to_vec();
    let with = |name: &'static str, value: &str| {
        let mut all = right.clone();
        all.retain(|(known, _)| *known != name);
        all.push((name, value.to_owned()));
        all
    };
    let url = bucket.url("data");
    let other_secret = "another-secret-that-nobody-may-see";
    for (name, root, environment, code, texts) in [
        (
            "bucket",
            "s3://no-such-bucket/x",
            right.clone(),
            1,
            ["error[remote-no-bucket]", "hint: "],
        ),
        (
            "secret",
            &url,
            with("AWS_SECRET_ACCESS_KEY", other_secret),
            1,
            ["error[remote-credentials]", "SignatureDoesNotMatch"],
        ),
        ("plain", &url, with("AWS_ALLOW_HTTP", "false"), 2, ["plain HTTP", "allow_http"]),
        ("nothing", &bucket.url("nowhere"), right.clone(), 2, ["source-no-input", "nowhere"]),
    ] {
        let ran = run(&place, &["run", "csv.toml"], root, &environment);
        ran.fails(code, &texts);
        for secret in [bucket.secret(), other_secret] {
            assert!(!ran.stderr.contains(secret), "{name}: {}", ran.stderr);
        }
    }
    let file = "type = \"csv\"\npath = \"csv/nothing.csv\"";
    place.write("one.toml", definition("one", file));
    let ran = run(&place, &["run", "one.toml"], &url, &right);
    ran.fails(2, &["error[source-listing]", "`csv/nothing.csv` is not in `s3://"]);
}
