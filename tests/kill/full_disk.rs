//! A disk that fills up: a small tmpfs, which writes short and then refuses.

use std::path::Path;
use std::process::Command;

use crate::place::Place;
use crate::tools::skipped;
use crate::tree::Tree;

/// More than the disk holds at first.
const N_FILES: usize = 24;
const FILE_BYTES: usize = 4 << 20;

/// A tmpfs that goes with the value.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    /// Mounts one of 64 MiB; says why where that is not allowed.
    fn mount(at: &'a Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        match mount(&["-t", "tmpfs", "-o", "size=64m", "rowmill-test"], at) {
            Ok(()) => Some(Self(at)),
            Err(why) => {
                skipped(&format!("a tmpfs cannot be mounted: {why}"));
                None
            }
        }
    }

    fn grow(&self) {
        mount(&["-o", "remount,size=512m"], self.0).unwrap();
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0).status().ok();
    }
}

fn mount(args: &[&str], at: &Path) -> Result<(), String> {
    let ran = Command::new("mount").args(args).arg(at).output().map_err(|e| e.to_string())?;
    if ran.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&ran.stderr).into()) }
}

#[test]
fn a_build_that_fills_the_disk_says_so_and_goes_on_when_there_is_room() {
    let place = Place::new(
        r#"
version = 1
name = "full"

[sources.files]
type = "files"
root = "in"
path = "*"

[dataset]
partition_bytes = "8MiB"
shard_bytes = "10MiB"
max_row_bytes = "8MiB"

[run]
jobs = 2
memory = "256MiB"
commit_bytes = "3MiB"
"#,
    );
    let out = place.path("out");
    let Some(disk) = Disk::mount(&out) else { return };
    for i in 0..N_FILES {
        place.write(&format!("in/{i:03}"), vec![u8::try_from(i).unwrap(); FILE_BYTES]);
    }
    place.run("plain").complete();
    let want = Tree::read(&place.path("plain"));
    // The second time the disk is full from the start.
    for attempt in 1..=2 {
        let full = place.run("out").wait();
        let case = format!("attempt {attempt}");
        assert_eq!(full.code(), Some(1), "{case}: {full:#?}");
        let messages = full.messages();
        for text in
            ["error[disk-full]: ", "cannot ", "No space left on device", "/out/full/", "hint: free"]
        {
            assert!(messages.contains(text), "{case}: {messages}");
        }
        Tree::read(&out).assert_sentinels_are_true(&want, &case);
    }
    disk.grow();
    let ended = place.run("out").complete();
    assert!(ended.number("resumed_rows") > 0, "{ended:#?}");
    Tree::read(&out).assert_is(&want, "with more room");
}
