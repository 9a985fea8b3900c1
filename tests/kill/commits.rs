//! SIGKILL after every line of progress, and at random ones.

use crate::builds;
use crate::place::Place;
use crate::process::{Ended, Run};
use crate::random::Random;
use crate::tree::Tree;

/// Settings that never show in a byte. Batches of a row and a commit for each come first.
const SETTINGS: [Settings; 6] = [
    Settings { jobs: 2, memory: "160MiB", batch_rows: 1, batch_bytes: "64KiB", commit_bytes: "1B" },
    Settings { jobs: 1, memory: "1GiB", batch_rows: 7, batch_bytes: "4MiB", commit_bytes: "64MiB" },
    Settings { jobs: 3, memory: "160MiB", batch_rows: 2, batch_bytes: "1B", commit_bytes: "500B" },
    Settings { jobs: 2, memory: "256MiB", batch_rows: 3, batch_bytes: "2KiB", commit_bytes: "1B" },
    Settings {
        jobs: 1,
        memory: "64MiB",
        batch_rows: 1000,
        batch_bytes: "64KiB",
        commit_bytes: "3KiB",
    },
    Settings {
        jobs: 4,
        memory: "192MiB",
        batch_rows: 1,
        batch_bytes: "1KiB",
        commit_bytes: "1KiB",
    },
];

#[derive(Debug, Clone, Copy)]
struct Settings {
    jobs: usize,
    memory: &'static str,
    batch_rows: usize,
    batch_bytes: &'static str,
    commit_bytes: &'static str,
}

impl Settings {
    fn over(&self, run: Run) -> Run {
        run.arg("--jobs")
            .arg(self.jobs.to_string())
            .arg("--memory")
            .arg(self.memory)
            .set(format!("run.batch_rows={}", self.batch_rows))
            .set(format!("run.batch_bytes={}", self.batch_bytes))
            .set(format!("run.commit_bytes={}", self.commit_bytes))
    }
}

/// Runs until `n_lines` events were told and kills; gives `None` if there were fewer. A run that came
/// to its end before the kill did is as good.
fn killed_after(run: Run, n_lines: usize) -> Option<Ended> {
    let mut running = run.start();
    for _ in 0..n_lines {
        if running.line().is_none() {
            let ended = running.wait();
            assert_eq!(ended.code(), Some(0), "{ended:#?}");
            return None;
        }
    }
    let ended = running.kill();
    assert!(ended.was_killed() || ended.code() == Some(0), "{ended:#?}");
    Some(ended)
}

/// Kills a build after its first event, another after its second, and so on; the next run of each
/// has other settings and must end it with the same bytes.
fn after_every_event(name: &str, place: &Place) {
    let undisturbed = place.run("plain").complete();
    let (rows, partitions) = (undisturbed.number("rows"), undisturbed.number("partitions"));
    assert!(partitions >= 8, "{partitions} partitions");
    assert!(undisturbed.number("shards") > partitions);
    let want = Tree::read(&place.path("plain"));
    let first = SETTINGS[0];
    let (mut n_kills, mut n_commits) = (0, 0);
    loop {
        let out = format!("out-{n_kills}");
        let n_lines = n_kills + 1;
        let Some(killed) = killed_after(first.over(place.run(&out)), n_lines) else { break };
        n_kills += 1;
        let is_commit = |event: &serde_json::Value| event["event"] == "commit";
        n_commits = n_commits.max(killed.events().iter().filter(|e| is_commit(e)).count());
        let case = format!("{name}, killed after event {n_lines}");
        Tree::read(&place.path(&out)).assert_sentinels_are_true(&want, &case);

        let settings = SETTINGS[1 + n_kills % (SETTINGS.len() - 1)];
        let ended = settings.over(place.run(&out)).complete();
        Tree::read(&place.path(&out)).assert_is(&want, &case);
        let (durable, resumed) = (killed.durable_rows(), ended.number("resumed_rows"));
        assert!(durable > 0, "{case}: {killed:#?}");
        assert!(resumed >= durable, "{case}: {resumed} rows were resumed of {durable}");
        // What was not durable, and the batch that holds the next row of each partition at work.
        let again = (first.jobs * first.batch_rows) as u64;
        let read = ended.rows_read();
        assert!(read <= rows - resumed + again, "{case}: {read} of {rows} read, {resumed} resumed");
        std::fs::remove_dir_all(place.path(&out)).unwrap();
    }
    println!(
        "{name}: {n_kills} kills, after each event of a build with {n_commits} commits or more"
    );
    assert!(n_kills >= 40 && n_commits >= 20, "{n_kills} kills, {n_commits} commits");
}

#[test]
fn a_build_of_files_killed_after_any_event_is_ended_with_the_same_bytes() {
    after_every_event("files", &builds::files(1, 48, 1_000));
}

#[test]
fn a_build_of_rows_killed_after_any_event_is_ended_with_the_same_bytes() {
    after_every_event("csv", &builds::csv(2, 80, 400, 5));
}

#[test]
fn builds_killed_at_random_at_least_three_times_are_ended_with_the_same_bytes() {
    let mut n_kills = 0;
    for seed in 0..8 {
        let place = match seed % 2 {
            0 => builds::files(seed, 120, 4_000),
            _ => builds::csv(seed, 600, 4 << 10, 20),
        };
        place.run("plain").complete();
        let want = Tree::read(&place.path("plain"));
        let mut random = Random(seed);
        let case = format!("seed {seed}");
        let (mut n_here, mut durable) = (0, 0);
        // Each time a while longer is waited: the build comes to its end.
        for patience in 1.. {
            let settings = SETTINGS[if n_here < 3 { 3 * (n_here % 2) } else { random.below(6) }];
            let n_lines = 1 + random.below(if n_here < 3 { 12 } else { 8 * patience });
            let run = settings.over(place.run("out"));
            let Some(killed) = killed_after(run, n_lines) else { break };
            n_here += usize::from(killed.was_killed());
            durable += killed.durable_rows().min(1);
            Tree::read(&place.path("out")).assert_sentinels_are_true(&want, &case);
        }
        assert!(n_here >= 3, "{case}: {n_here} kills");
        assert!(durable > 0, "{case}");
        Tree::read(&place.path("out")).assert_is(&want, &case);
        n_kills += n_here;
    }
    println!("random: {n_kills} kills of 8 builds");
}
