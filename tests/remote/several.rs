//! Several runs that finish one dataset at one place.
#![allow(clippy::disallowed_methods, reason = "a test looks at files as another process left them")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use serde_json::Value;

use super::command::{Place, Ran, TEXTS, files_of, python};
use super::datasets::{self, BLOBS, cache_key, found};
use super::harness::wait;
use super::proxy::{Fault, Request, Rule};
use super::servers::{Bucket, Server};

/// A folder with a definition, and files of which each is a partition.
fn place(n_files: usize, more: &str) -> Place {
    let place = Place::new();
    place.write("p.toml", format!("{BLOBS}{more}"));
    for n in 0..n_files {
        place.write(&format!("in/{n:02}"), format!("file {n}"));
    }
    place
}

#[test]
fn records_of_partitions_go_out_behind_their_shards_while_later_ones_are_built() {
    let Some(server) = Server::all().next() else { return };
    let bucket = server.bucket();
    let (url, proxy) = (bucket.url("prefix"), bucket.proxy());
    let place = place(30, &format!("\n[push]\nurl = \"{url}\"\n"));
    let ran = datasets::run(&place, &bucket, &proxy.endpoint(), &["run", "p.toml", "--jobs=1"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let requests = proxy.requests();
    let is_put = |it: &Request, part: &str| it.operation == "PutObject" && it.key.contains(part);
    let sentinel = |it: &Request| is_put(it, "/shards/") && it.key.ends_with("/_COMPLETE");
    let first_record = requests.iter().position(|it| is_put(it, "/partitions/")).unwrap();
    let last_sentinel = requests.iter().rposition(sentinel).unwrap();
    assert!(first_record < last_sentinel, "{requests:#?}");
    for (at, request) in requests.iter().enumerate() {
        if !is_put(request, "/partitions/") {
            continue;
        }
        // The partition has one shard, which its record names.
        let (_, name) = request.key.rsplit_once('/').unwrap();
        let record = place.current("data", "blobs").join("partitions").join(name);
        let record: serde_json::Value =
            serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
        let shard = format!("/shards/{}/_COMPLETE", record["shards"][0]["id"].as_str().unwrap());
        let sent = requests.iter().position(|it| is_put(it, &shard)).unwrap();
        assert!(sent < at, "{name} before {shard}");
    }
}

/// Partitions of [`machine`].
const N: usize = 12;

/// A machine's own folder: the definition, and the files, each a partition of one row.
fn machine() -> Place {
    let place = Place::of_texts(N);
    place.write("p.toml", TEXTS.replace("[dataset]", "[dataset]\nkey = \"path\""));
    place
}

/// A place that runs share.
enum Site {
    Bucket(Bucket),
    Disk(Place),
}

impl Site {
    fn url(&self) -> String {
        match self {
            Self::Bucket(bucket) => bucket.url("prefix"),
            Self::Disk(disk) => format!("file://{}", disk.path("prefix").display()),
        }
    }

    /// A run of a machine that shares this place, reached through `endpoint` if it is a bucket.
    fn run(&self, machine: &Place, endpoint: &str, more: &[&str]) -> Command {
        let url = self.url();
        let args = [&["run", "p.toml", "--at", url.as_str(), "--jobs=1", "--json"], more].concat();
        let mut command = machine.command(&args);
        if let Self::Bucket(bucket) = self {
            let direct = bucket.endpoint();
            command.envs(bucket.environment(if endpoint.is_empty() { &direct } else { endpoint }));
        }
        command
    }

    /// Everything there, by name.
    fn found(&self) -> BTreeMap<String, Vec<u8>> {
        match self {
            Self::Bucket(bucket) => found(bucket),
            Self::Disk(disk) => {
                // What a process that was killed was writing is no part of the place.
                let files = files_of(&disk.path("")).into_iter();
                let files = files.filter(|(path, _)| !path.to_string_lossy().contains('#'));
                files.map(|(path, bytes)| (path.display().to_string(), bytes)).collect()
            }
        }
    }
}

/// What one machine would push of what it has built alone.
fn pushed(alone: &Place) -> BTreeMap<String, Vec<u8>> {
    datasets::pushed(alone, "texts")
}

fn report(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

fn finish(mut command: Command) -> Value {
    report(&Ran::of(command.output().unwrap()))
}

#[test]
fn what_a_killed_run_has_finished_is_not_built_again() {
    let alone = machine();
    alone.done(&["run", "p.toml"]);
    let want = pushed(&alone);
    // The quicker one of the two suffices.
    if let Some(server) = Server::s3s_fs().or_else(Server::moto) {
        let (site, one) = (Site::Bucket(server.bucket()), machine());
        let Site::Bucket(bucket) = &site else { return };
        let proxy = bucket.proxy();
        proxy.inject(Rule::new(Fault::Held).on("PutObject").key("/partitions/").after(3).times(99));
        let mut command = site.run(&one, &proxy.endpoint(), &[]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let is_record =
            |it: &&Request| it.operation == "PutObject" && it.key.contains("/partitions/");
        proxy.wait("three records", |requests| {
            let records = requests.iter().filter(is_record);
            records.clone().filter(|it| it.status == 200).count() == 3
                && records.clone().any(|it| it.fault.is_some())
        });
        child.kill().unwrap();
        child.wait().unwrap();

        let second = finish(site.run(&machine(), "", &[]));
        assert_eq!(second["adopted_partitions"], 3, "{}: {second}", server.name);
        assert_eq!((&second["adopted_rows"], &second["rows"]), (&3.into(), &N.into()));
        assert_eq!(site.found(), want, "{}", server.name);
        // One that was not there, and the one that was killed.
        let third = machine();
        for (machine, n_adopted) in [(&third, Some(N)), (&third, Some(0)), (&one, None)] {
            let report = finish(site.run(machine, "", &[]));
            let adopted = &report["adopted_partitions"];
            assert!(n_adopted.is_none_or(|n| *adopted == n), "{}: {report}", server.name);
            let built = report["stages"][0]["rows"].as_u64().unwrap();
            assert!(built == 0 || machine.path("") == one.path(""), "{}: {report}", server.name);
            assert_eq!(report["push"]["sent_bytes"], 0, "{}: {report}", server.name);
            assert_eq!(site.found(), want, "{}", server.name);
        }
        // What others said of the inputs is for runs that share; this one reads them.
        let unshared = third.json(&["run", "p.toml"]);
        assert_eq!(unshared["reused_partitions"], N, "{unshared}");
    }
}

#[test]
fn a_shard_that_the_place_has_lost_is_named_and_built_again_when_its_rest_is_removed() {
    let (site, builder, other) = (Site::Disk(Place::new()), machine(), machine());
    finish(site.run(&builder, "", &[]));
    let want = site.found();
    assert_eq!(finish(site.run(&other, "", &[]))["adopted_partitions"], N);
    let rest = std::fs::read_dir(other.current("data", "texts").join("shards"));
    let rest = rest.unwrap().next().unwrap().unwrap().path();
    let Site::Disk(disk) = &site else { return };
    let below = rest.strip_prefix(other.path("data").canonicalize().unwrap()).unwrap();
    std::fs::remove_file(disk.path("prefix").join(below).join("_COMPLETE")).unwrap();

    let verified = disk.rowmill(&["verify", &format!("{}/texts", site.url())]);
    verified.fails(4, &["it has no _COMPLETE", "where none has, remove its folder"]);
    let pulled = other.rowmill(&["pull", &format!("{}/texts", site.url()), "out"]);
    pulled.fails(4, &["it has no _COMPLETE", "hint: push the dataset again from a machine"]);
    for _ in 0..2 {
        let ran = Ran::of(site.run(&other, "", &[]).output().unwrap());
        assert_eq!(ran.code, 4, "{ran:?}");
        let id = rest.file_name().unwrap().to_str().unwrap();
        for text in ["error[push-lost]", "its rows are not here", id] {
            assert!(ran.stderr.contains(text), "{text}: {ran:?}");
        }
        assert!(ran.stderr.contains("where none has, remove `"), "{ran:?}");
    }
    std::fs::remove_dir_all(&rest).unwrap();
    finish(site.run(&other, "", &[]));
    assert!(site.found() == want);
}

/// Starts a run, and kills it when it has told of `n` events. Whether it was killed.
fn kill_after(mut command: Command, n: usize) -> bool {
    command.arg("--progress=json").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let (mut line, mut all) = (String::new(), String::new());
    for _ in 0..n {
        line.clear();
        if said.read_line(&mut line).unwrap() == 0 {
            let code = child.wait().unwrap().code();
            assert_eq!(code, Some(0), "{all}");
            return false;
        }
        all.push_str(&line);
    }
    child.kill().unwrap();
    said.read_to_string(&mut all).unwrap();
    child.wait().unwrap();
    true
}

#[test]
fn runs_that_are_killed_at_any_time_end_with_the_dataset_of_one() {
    let alone = machine();
    alone.done(&["run", "p.toml"]);
    let want = pushed(&alone);
    alone.write("in/more.txt", "one more");
    alone.done(&["run", "p.toml"]);
    let want_more = pushed(&alone);
    let disk = Some(Site::Disk(Place::new()));
    let buckets = Server::all().map(|server| Site::Bucket(server.bucket()));
    for (seed, site) in disk.into_iter().chain(buckets).enumerate() {
        let machines = [machine(), machine(), machine()];
        let all = |work: &(dyn Fn(usize, &Place) + Sync)| {
            std::thread::scope(|threads| {
                for (n, machine) in machines.iter().enumerate() {
                    threads.spawn(move || work(n, machine));
                }
            });
        };
        for round in 0..3 {
            all(&|n, machine| {
                let chance = blake3::hash(format!("{seed} {round} {n}").as_bytes());
                let n_events = usize::from(chance.as_bytes()[0]) % (2 * N);
                kill_after(site.run(machine, "", &[]), n_events);
            });
        }
        all(&|_, machine| {
            finish(site.run(machine, "", &[]));
        });
        assert_eq!(site.found(), want, "seed {seed}");
        // The next generation takes the place of this one, once.
        all(&|_, machine| {
            machine.write("in/more.txt", "one more");
            finish(site.run(machine, "", &[]));
        });
        assert_eq!(site.found(), want_more, "seed {seed}");
        let late = finish(site.run(&machines[0], "", &[]));
        assert_eq!(late["up_to_date"], true, "{late}");
    }
}

#[test]
fn rows_that_go_at_a_shared_place_are_there_wherever_a_run_is_killed() {
    let alone = machine();
    alone.done(&["run", "p.toml"]);
    let want = pushed(&alone);
    let site = Site::Disk(Place::new());
    let machines = [(); 2].map(|()| {
        let machine = machine();
        let text = std::fs::read_to_string(machine.path("p.toml")).unwrap();
        let push = format!("[push]\nurl = \"{}\"\ndrop_local = true\n", site.url());
        machine.write("p.toml", format!("{text}\n{push}"));
        machine
    });
    // How many shards of a machine have no rows there; each is whole at the place.
    let n_gone = |machine: &Place| {
        let there = site.found();
        let mut n_gone = 0;
        for path in files_of(&machine.path("data")).keys().filter(|it| it.ends_with("_REMOTE")) {
            let folder = format!("prefix/{}/", path.parent().unwrap().display());
            let files = want.iter().filter(|(name, _)| name.starts_with(&folder));
            for (name, bytes) in files {
                assert_eq!(there.get(name), Some(bytes), "{name}");
            }
            n_gone += 1;
        }
        n_gone
    };
    let mut n_seen = 0;
    for n_events in [4, 9, 13, 20, 26] {
        for machine in &machines {
            kill_after(site.run(machine, "", &[]), n_events);
            n_seen = n_gone(machine).max(n_seen);
        }
    }
    assert!(n_seen > 0, "nothing went before it was killed");
    for machine in &machines {
        finish(site.run(machine, "", &[]));
        assert_eq!(n_gone(machine), N);
        let complete = files_of(&machine.path("data"));
        let is_shards = |path: &&std::path::PathBuf| {
            path.ends_with("_COMPLETE") && path.iter().any(|part| part == "shards")
        };
        assert_eq!(complete.keys().filter(is_shards).count(), 0);
    }
    assert_eq!(site.found(), want);
}

#[test]
fn machines_that_disagree_about_a_partition_are_told_by_name() {
    let alone = machine();
    alone.done(&["run", "p.toml"]);
    let site = Site::Disk(Place::new());
    let Site::Disk(disk) = &site else { return };
    // As if a hook had answered otherwise: another record of a partition, with the shard of a second.
    let folder = alone.current("data", "texts").join("partitions");
    let mut names: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let read = |name: &String| std::fs::read_to_string(folder.join(name)).unwrap();
    let shard = |text: &str| {
        let record: Value = serde_json::from_str(text).unwrap();
        let of = |name: &str| record["shards"][0][name].to_string();
        (of("id"), format!("\"bytes\": {}", of("bytes")))
    };
    let (text, other) = (read(&names[0]), read(&names[1]));
    let ((id, bytes), (other_id, other_bytes)) = (shard(&text), shard(&other));
    let forged = text.replace(&id, &other_id).replacen(&bytes, &other_bytes, 1);
    let digits = blake3::hash(forged.as_bytes()).to_hex();
    let forged_name = format!("{}-{}.json", names[0].split('-').next().unwrap(), &digits[..16]);
    finish(site.run(&machine(), "", &[]));
    let key = cache_key(&alone, "texts");
    let there = format!("prefix/texts/{key}");
    disk.write(&format!("{there}/partitions/{forged_name}"), &forged);
    // What is complete says which of the two counts.
    assert_eq!(finish(site.run(&machine(), "", &[]))["adopted_partitions"], N);
    std::fs::remove_file(disk.path(&format!("{there}/_COMPLETE"))).unwrap();
    for (who, machine) in [("one that has nothing", &machine()), ("one that has all", &alone)] {
        let ran = Ran::of(site.run(machine, "", &[]).output().unwrap());
        assert_eq!(ran.code, 3, "{who}: {ran:?}");
        for text in ["push-contradiction", &names[0], &forged_name] {
            assert!(ran.stderr.contains(text) || ran.stdout.contains(text), "{who}: {ran:?}");
        }
        assert!(!site.found().contains_key(&format!("{there}/_COMPLETE")), "{who}");
    }
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let place = machine();
    let definition = std::fs::read_to_string(place.path("p.toml")).unwrap();
    place.write("push.toml", format!("{definition}\n[push]\nurl = \"s3://bucket/other\"\n"));
    place.write("limit.toml", definition.replace("[dataset]", "[dataset]\nlimit_rows = 3"));
    let at = "--at=file:///nowhere";
    for (args, texts) in [
        (
            &["run", "push.toml", at][..],
            &["runs share `file:///nowhere`", "the URL of `[push]`"][..],
        ),
        (&["run", "p.toml", at, "--limit-rows=2"], &["not read by several runs"]),
        (&["run", "limit.toml", at], &["not read by several runs", "or `--at`"]),
        (&["run", "p.toml", at, "--retry-rejects"], &["cannot be used with"]),
        (&["run", "p.toml", "--at=https://example.org/x"], &["can only be read"]),
        (&["run", "p.toml", "--at=here"], &["here"]),
    ] {
        place.rowmill(args).fails(2, texts);
    }
}

#[test]
fn a_place_that_is_not_there_is_found_out_before_anything_is_built() {
    let Some(server) = Server::s3s_fs() else { return };
    let (bucket, place) = (server.bucket(), machine());
    let args = ["run", "p.toml", "--at", "s3://no-such-bucket/x"];
    let ran = datasets::run(&place, &bucket, &bucket.endpoint(), &args);
    ran.fails(1, &["error[remote-no-bucket]"]);
    assert!(!ran.stderr.contains("is complete"), "{ran:?}");
}

#[test]
fn a_record_whose_shards_are_gone_is_built_again() {
    let Some(server) = Server::s3s_fs().or_else(Server::moto) else { return };
    let site = Site::Bucket(server.bucket());
    let Site::Bucket(bucket) = &site else { return };
    finish(site.run(&machine(), "", &[]));
    let want = site.found();
    let is_sentinel = |name: &&String| name.contains("/shards/") && name.ends_with("/_COMPLETE");
    let sentinel = want.keys().find(is_sentinel).unwrap();
    let store = bucket.store();
    wait(store.delete(&Key::parse(sentinel).unwrap())).unwrap();
    let report = finish(site.run(&machine(), "", &[]));
    assert_eq!(report["adopted_partitions"], N - 1, "{report}");
    assert_eq!(site.found(), want);
}

#[test]
fn an_input_that_changed_after_its_partition_was_taken_over_is_read() {
    let site = Site::Disk(Place::new());
    finish(site.run(&machine(), "", &[]));
    let late = machine();
    assert_eq!(finish(site.run(&late, "", &[]))["adopted_partitions"], N);
    // As long as before: nothing but its times and bytes tell.
    let text = std::fs::read_to_string(late.path("in/0/3.txt")).unwrap();
    late.write("in/0/3.txt", text.replace("Zeile", "Seite"));
    let report = finish(site.run(&late, "", &[]));
    assert_eq!(report["reused_partitions"], N - 1, "{report}");
    assert_eq!(report["adopted_partitions"], 0, "{report}");
    let alone = machine();
    alone.write("in/0/3.txt", text.replace("Zeile", "Seite"));
    alone.done(&["run", "p.toml"]);
    let (found, want) = (site.found(), pushed(&alone));
    for (name, bytes) in want {
        assert_eq!(found.get(&name), Some(&bytes), "{name}");
    }
}

#[test]
fn what_a_hook_may_have_answered_to_other_rows_is_kept_from_others_until_the_run_ends() {
    let server = Server::s3s_fs().or_else(Server::moto);
    let (Some(server), Some(_)) = (server, python(&["pyarrow"])) else { return };
    let hook = "import sys, pyarrow as pa\n\
                rows = pa.ipc.open_stream(sys.stdin.buffer)\n\
                schema = pa.schema([pa.field('n', pa.int64())])\n\
                answers = pa.ipc.new_stream(sys.stdout.buffer, schema)\n\
                for batch, metadata in rows.iter_batches_with_custom_metadata():\n    \
                    number = {'rowmill:batch': metadata['rowmill:batch']} if 'numbers' in sys.argv else None\n    \
                    answer = pa.record_batch([pa.array(range(batch.num_rows), pa.int64())], schema)\n    \
                    answers.write_batch(answer, custom_metadata=number)\n    \
                    sys.stdout.buffer.flush()\n\
                answers.close()\n";
    for (argument, is_early) in [("numbers", true), ("none", false)] {
        let site = Site::Bucket(server.bucket());
        let Site::Bucket(bucket) = &site else { return };
        let (proxy, machine) = (bucket.proxy(), machine());
        let counts = "type = \"text_stats\"\ninput = \"text\"\n";
        let table = format!(
            "type = \"command\"\ncommand = [\"python3\", \"hook.py\", \"{argument}\"]\nid = \"{argument}\"\n\
             files = [\"hook.py\"]\noutput = {{ n = {{ dtype = \"int64\" }} }}\ninput = [\"text\"]\n"
        );
        let definition = std::fs::read_to_string(machine.path("p.toml")).unwrap();
        machine.write("p.toml", definition.replace(counts, &table));
        machine.write("hook.py", hook);
        finish(site.run(&machine, &proxy.endpoint(), &[]));
        let requests = proxy.requests();
        let at = |part: &str, ending: &str| {
            let is_it = move |it: &Request| {
                it.operation == "PutObject" && it.key.contains(part) && it.key.ends_with(ending)
            };
            let first = requests.iter().position(is_it).unwrap();
            (first, requests.iter().rposition(is_it).unwrap())
        };
        let ((first_record, _), (_, last_sentinel)) =
            (at("/partitions/", ""), at("/shards/", "/_COMPLETE"));
        assert_eq!(first_record < last_sentinel, is_early, "{argument}: {requests:#?}");
    }
}
