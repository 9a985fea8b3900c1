//! What the other tests here stand on: servers answer as S3 does, and faults are what they are called.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use super::proxy::{Fault, Rule};
use super::servers::Server;

/// Waits for the answer.
pub(crate) fn wait<T>(answer: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(answer)
}

fn create() -> PutOptions {
    PutOptions { mode: PutMode::Create, ..PutOptions::default() }
}

async fn get(store: &AmazonS3, path: &str) -> object_store::Result<Bytes> {
    store.get(&Path::from(path)).await?.bytes().await
}

/// Bytes that repeat nowhere soon.
fn bytes(n: usize) -> Bytes {
    let mut reader = blake3::Hasher::new().finalize_xof();
    let mut bytes = vec![0; n];
    reader.fill(&mut bytes);
    bytes.into()
}

#[test]
fn what_is_put_can_be_got_listed_and_deleted() {
    for server in Server::all() {
        let (bucket, path) = (server.bucket(), Path::parse("a folder/b=ä.bin").unwrap());
        let store = bucket.store();
        let want = bytes(100_000);
        wait(async {
            store.put(&path, want.clone().into()).await.unwrap();
            assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), want);
            let part = store.get_range(&path, 70_000..70_010).await.unwrap();
            assert_eq!(part, want[70_000..70_010], "{}", server.name);
            let listed = store.list_with_delimiter(Some(&Path::from("a folder"))).await.unwrap();
            let listed: Vec<_> = listed.objects.iter().map(|it| (&it.location, it.size)).collect();
            assert_eq!(listed, [(&path, 100_000)], "{}", server.name);
            store.delete(&path).await.unwrap();
            let gone = store.head(&path).await.unwrap_err();
            assert!(matches!(gone, Error::NotFound { .. }), "{}: {gone}", server.name);
        });
    }
}

#[test]
fn signatures_are_checked() {
    for server in Server::all() {
        let bucket = server.bucket();
        let store = object_store::aws::AmazonS3Builder::new()
            .with_endpoint(bucket.endpoint())
            .with_bucket_name(&bucket.name)
            .with_region("us-east-1")
            .with_access_key_id(bucket.environment("")[0].1.clone())
            .with_secret_access_key("another")
            .with_allow_http(true)
            .build()
            .unwrap();
        let put = wait(store.put(&Path::from("a"), "text".into()));
        let text = put.unwrap_err().to_string();
        assert!(text.contains("SignatureDoesNotMatch"), "{}: {text}", server.name);
        assert!(!text.contains(bucket.secret()), "{}: {text}", server.name);
    }
}

#[test]
fn of_all_who_create_one_object_one_wins() {
    // s3s-fs looks first and renames then: several win a race there, one if they come one by one.
    for server in Server::all() {
        let (store, path) = (server.bucket().store(), Path::from("_COMPLETE"));
        let n = if server.name == "moto" { 8 } else { 1 };
        wait(async {
            let racing = (0..n).map(|i| store.put_opts(&path, i.to_string().into(), create()));
            let won = join_all(racing).await.into_iter().flatten().count();
            assert_eq!(won, 1, "{}", server.name);
            let late = store.put_opts(&path, "late".into(), create()).await.unwrap_err();
            assert!(matches!(late, Error::AlreadyExists { .. }), "{}: {late}", server.name);
            assert_ne!(get(&store, "_COMPLETE").await.unwrap(), "late", "{}", server.name);
        });
    }
}

#[test]
fn a_replacement_needs_the_etag_of_what_it_replaces() {
    let Some(server) = Server::moto() else { return };
    let (store, path) = (server.bucket().store(), Path::from("current.json"));
    wait(async {
        let first = store.put(&path, "1".into()).await.unwrap();
        let update = |of: object_store::PutResult| PutOptions::from(PutMode::Update(of.into()));
        store.put_opts(&path, "2".into(), update(first.clone())).await.unwrap();
        let late = store.put_opts(&path, "3".into(), update(first)).await.unwrap_err();
        assert!(matches!(late, Error::Precondition { .. }), "{late}");
        assert_eq!(get(&store, "current.json").await.unwrap(), "2");
    });
}

#[test]
fn parts_become_one_object_when_they_are_completed() {
    const PART: usize = 5 << 20;
    for server in Server::all() {
        let (bucket, path) = (server.bucket(), Path::from("large.bin"));
        let proxy = bucket.proxy();
        let store = bucket.store_through(&proxy.endpoint());
        let want = bytes(2 * PART + 17);
        wait(async {
            let mut upload = store.put_multipart(&path).await.unwrap();
            for part in [&want[..PART], &want[PART..2 * PART], &want[2 * PART..]] {
                upload.put_part(Bytes::copy_from_slice(part).into()).await.unwrap();
            }
            let gone = store.head(&path).await;
            assert!(matches!(gone, Err(Error::NotFound { .. })), "{}", server.name);
            upload.complete().await.unwrap();
            let got = store.get(&path).await.unwrap().bytes().await.unwrap();
            assert!(got == want, "{}", server.name);
        });
        assert_eq!(proxy.count("UploadPart"), 3, "{}", server.name);
        assert_eq!(proxy.count("CompleteMultipartUpload"), 1, "{}", server.name);
        let of_parts = |it: &&super::proxy::Request| it.operation == "UploadPart";
        let sent: u64 = proxy.requests().iter().filter(of_parts).map(|it| it.sent_bytes).sum();
        assert_eq!(sent, want.len() as u64, "{}", server.name);
    }
}

/// What a client that tries once makes of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Nothing: all is as it should be.
    Right,
    /// An error, and nothing was done.
    Refused,
    /// An error, and yet it was done.
    Unsure,
    /// No error, and other bytes.
    Wrong,
}

#[test]
fn each_fault_is_what_it_is_called() {
    use Seen::{Refused, Right, Unsure, Wrong};
    let stall = Fault::Stall(Duration::from_millis(50));
    for server in Server::all() {
        let bucket = server.bucket();
        let proxy = bucket.proxy();
        let (once, direct) = (bucket.store_once(&proxy.endpoint()), bucket.store());
        for (n, (fault, of_put, of_get)) in [
            (Fault::CutRequest(9), Refused, Refused),
            (Fault::CutRequest(3000), Refused, Right),
            (Fault::CutAnswer(9), Unsure, Refused),
            (Fault::CutAnswer(3000), Right, Refused),
            (Fault::Internal, Refused, Refused),
            (Fault::SlowDown, Refused, Refused),
            (stall.clone(), Right, Right),
            (Fault::ShortBody(5), Right, Wrong),
            (Fault::AnsweredTwice, Right, Right),
            (Fault::SentTwice, Unsure, Right),
            (Fault::LostAnswer, Unsure, Refused),
            (Fault::NoSuchUpload, Refused, Refused),
            (Fault::FlippedByte(3), Right, Wrong),
        ]
        .into_iter()
        .enumerate()
        {
            let what = format!("{}: {fault:?}", server.name);
            let (name, want) = (format!("{n}.bin"), bytes(4096));
            let path = Path::from(name.as_str());
            let began = Instant::now();
            wait(async {
                proxy.clear();
                proxy.inject(Rule::new(fault.clone()).on("PutObject"));
                let put = once.put_opts(&path, want.clone().into(), create()).await;
                let seen = match (put.is_ok(), get(&direct, &name).await.is_ok_and(|it| it == want))
                {
                    (true, true) => Right,
                    (true, false) => Wrong,
                    (false, true) => Unsure,
                    (false, false) => Refused,
                };
                assert_eq!(seen, of_put, "put, {what}: {put:?}");
                direct.put(&path, want.clone().into()).await.unwrap();
                proxy.inject(Rule::new(fault.clone()).on("GetObject"));
                let seen = match get(&once, &name).await {
                    Ok(got) if got == want => Right,
                    Ok(_) => Wrong,
                    Err(_) => Refused,
                };
                assert_eq!(seen, of_get, "get, {what}");
            });
            let met: Vec<_> = proxy.requests().into_iter().map(|it| it.fault).collect();
            assert_eq!(met, [Some(fault.clone()), Some(fault.clone())], "{what}");
            assert!(fault != stall || began.elapsed() > Duration::from_millis(100), "{what}");
        }
    }
}

#[test]
fn a_client_that_tries_three_times_survives_two_faults() {
    for server in Server::all() {
        let bucket = server.bucket();
        let proxy = bucket.proxy();
        let store = bucket.store_through(&proxy.endpoint());
        proxy.inject(Rule::new(Fault::SlowDown).on("PutObject").key("b.bin").after(1).times(2));
        wait(async {
            for content in ["first", "other"] {
                store.put(&Path::from("a.bin"), content.into()).await.unwrap();
                store.put(&Path::from("b.bin"), content.into()).await.unwrap();
            }
            assert_eq!(get(&store, "b.bin").await.unwrap(), "other", "{}", server.name);
        });
        let of_b = proxy.requests().into_iter().filter(|it| it.key == "b.bin");
        let statuses: Vec<_> = of_b.map(|it| it.status).collect();
        assert_eq!(statuses, [200, 503, 503, 200, 200], "{}", server.name);
        // Two contents of two objects, and nothing of what was refused.
        assert_eq!((proxy.sent_bytes(), proxy.got_bytes()), (20, 5), "{}", server.name);
    }
}

#[test]
fn an_etag_can_be_another_and_an_upload_unknown() {
    for server in Server::all() {
        let bucket = server.bucket();
        let proxy = bucket.proxy();
        let (once, path) = (bucket.store_once(&proxy.endpoint()), Path::from("large.bin"));
        wait(async {
            proxy.inject(Rule::new(Fault::WrongEtag).on("UploadPart"));
            let mut upload = once.put_multipart(&path).await.unwrap();
            upload.put_part("text".into()).await.unwrap();
            let completed = upload.complete().await;
            assert!(completed.is_err() || server.name == "s3s-fs", "no part has that ETag");
            proxy.inject(Rule::new(Fault::NoSuchUpload).on("UploadPart"));
            let mut upload = once.put_multipart(&path).await.unwrap();
            let unknown = upload.put_part("text".into()).await.unwrap_err();
            assert!(format!("{unknown:?}").contains("NoSuchUpload"), "{unknown:?}");
            proxy.inject(Rule::new(Fault::LostAnswer).on("CompleteMultipartUpload"));
            let mut upload = once.put_multipart(&path).await.unwrap();
            upload.put_part("text".into()).await.unwrap();
            assert!(upload.complete().await.is_err(), "{}", server.name);
            assert_eq!(once.head(&path).await.unwrap().size, 4, "{}: it is there", server.name);
        });
    }
}

#[test]
fn a_held_request_is_seen_and_ends_with_the_proxy() {
    for server in Server::all() {
        let bucket = server.bucket();
        for (fault, is_there) in [(Fault::Held, false), (Fault::HeldAnswer, true)] {
            let proxy = bucket.proxy();
            let once = bucket.store_once(&proxy.endpoint());
            let path = Path::from(format!("{is_there}"));
            proxy.inject(Rule::new(fault.clone()).key("true"));
            proxy.inject(Rule::new(fault).key("false"));
            std::thread::scope(|threads| {
                let put = threads.spawn(|| wait(once.put(&path, "text".into())));
                proxy.wait("answer that is held", |all| {
                    all.first().is_some_and(|it| it.status > 0 || !is_there)
                });
                let found = wait(bucket.store().head(&path)).is_ok();
                assert_eq!(found, is_there, "{}", server.name);
                drop(proxy);
                assert!(put.join().unwrap().is_err(), "{}", server.name);
            });
        }
    }
}
