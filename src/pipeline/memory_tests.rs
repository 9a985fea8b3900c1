//! What a run may take, for demands made up here.

use super::*;

/// What a run takes, where no more than rows and answers depends on settings.
fn of(demand: &Demand) -> Result<MemoryBound, PipelineError> {
    MemoryBound::of(demand, &|change| {
        let mut changed = demand.clone();
        match change {
            Change::RowBytes(bytes) => changed.row_bytes = bytes,
            Change::AnswerBytes(bytes) => {
                let hooks = changed.groups.iter_mut().filter_map(|group| group.hook.as_mut());
                hooks.for_each(|hook| hook.rule.answer_bytes = hook.rule.answer_bytes.min(bytes));
            }
        }
        changed
    })
}

fn demand() -> Demand {
    Demand {
        memory: 1 << 30,
        jobs: None,
        cores: 2,
        partitions: 8,
        batch_bytes: 4 << 20,
        row_bytes: 64 << 20,
        fixed_row_bytes: 0,
        groups: vec![GroupDemand { hook: None, plain: 1, growth_percent: 100 }],
        rejecting: Rejecting::default(),
        inputs_bytes: 1 << 20,
        reader_bytes: 1 << 20,
        writer_bytes: 64 << 20,
        index_bytes: 0,
        finish_bytes: 0,
        caches_bytes: 0,
        push_bytes: 0,
    }
}

#[test]
fn what_is_held_at_the_end_counts_where_it_is_more_than_what_is_built_takes() {
    let bound = of(&demand()).unwrap().bound_bytes;
    for (finish_bytes, want) in [(16 << 20, bound), (800 << 20, (800 << 20) + (1 << 20))] {
        let memory = of(&Demand { finish_bytes, ..demand() }).unwrap();
        assert_eq!(memory.bound_bytes, want.max(bound), "{finish_bytes}");
    }
    assert!(of(&Demand { finish_bytes: 2 << 30, ..demand() }).is_err());
}

#[test]
fn what_writers_share_counts_once() {
    for jobs in [1, 2] {
        let two = Demand { jobs: Some(jobs), row_bytes: 8 << 20, ..demand() };
        let bound = |index_bytes| {
            let demand = Demand { index_bytes, ..two.clone() };
            let parallel = Parallel { jobs, workers: 1, asked: 1 };
            let sizes = Sizes { batch: 4 << 20, edge: 4 << 20 };
            MemoryBound::sized(&demand, parallel, sizes).bound_bytes
        };
        assert_eq!(bound(32 << 20) - bound(0), 32 << 20, "{jobs} jobs");
    }
}

#[test]
fn a_stage_that_rejects_rows_holds_those_that_stay_twice() {
    let plain = Demand { jobs: Some(1), cores: 1, row_bytes: 8 << 20, ..demand() };
    let needed = |rejecting| {
        let plain = plain.clone();
        let parallel = Parallel { jobs: 1, workers: 1, asked: 1 };
        let sizes = Sizes { batch: 4 << 20, edge: 4 << 20 };
        MemoryBound::sized(&Demand { rejecting, ..plain }, parallel, sizes).bound_bytes
    };
    let none = Rejecting::default();
    for rejecting in [
        Rejecting { sources: true, ..none },
        Rejecting { transforms: true, ..none },
        Rejecting { dataset: true, ..none },
    ] {
        let more = needed(rejecting) - needed(none);
        assert!((8_388_600..=8 << 20).contains(&more), "{rejecting:?}: {more}");
    }
}

#[test]
fn the_defaults_hold_two_jobs_with_large_rows() {
    for jobs in [None, Some(2)] {
        let bound = of(&Demand { jobs, ..demand() }).unwrap();
        assert_eq!(bound.jobs, 2);
        assert!(bound.bound_bytes <= 1 << 30, "{bound:?}");
    }
}

/// A hook with the defaults, and a transform that makes twice as much behind it.
fn hook(workers: usize, plain: usize) -> GroupDemand {
    let rule = Batching {
        rows: 1024,
        bytes: 4 << 20,
        answer_bytes: 32 << 20,
        workers,
        is_kept: false,
        multiplies: false,
    };
    let hook = Some(HookDemand { name: "h".to_owned(), rule });
    GroupDemand { hook, plain, growth_percent: if plain > 0 { 200 } else { 100 } }
}

#[test]
fn the_defaults_hold_a_hook_with_several_workers() {
    for (workers, memory_mib, cores, want) in [
        (1, 1024, 2, (2, 1)),
        (2, 1024, 2, (2, 2)),
        (3, 1024, 2, (2, 3)),
        (8, 1024, 2, (2, 4)),
        (8, 1024, 1, (1, 8)),
        (8, 4096, 4, (4, 8)),
        // All of them cannot be kept busy, and yet the run is not refused.
        (200, 1024, 2, (1, 12)),
        (3, 460, 2, (1, 1)),
    ] {
        let groups = vec![hook(workers, 0)];
        let demand = Demand { groups, cores, memory: memory_mib << 20, ..demand() };
        let bound = of(&demand).unwrap();
        let found = (bound.jobs, bound.hooks.first().unwrap().at_once);
        assert_eq!(found, want, "{workers} workers, {memory_mib} MiB");
        assert!(bound.bound_bytes <= demand.memory, "{bound:?}");
    }
}

#[test]
fn what_a_hook_takes_is_what_it_may_hold() {
    let sized = |workers, plain, rejecting, row_bytes| {
        let demand =
            Demand { groups: vec![hook(workers, plain)], rejecting, row_bytes, ..demand() };
        let parallel = Parallel { jobs: 1, workers: 1, asked: workers };
        let sizes = Sizes { batch: 4 << 20, edge: 4 << 20 };
        let bound = MemoryBound::sized(&demand, parallel, sizes);
        (bound.edges_bytes >> 20, bound.transforms_bytes >> 20)
    };
    let none = Rejecting::default();
    let transforms = Rejecting { transforms: true, ..none };
    // Edges of what is read, asked and answered; 12 MiB are held to cut batches.
    assert_eq!(sized(1, 0, none, 1 << 10), (4 + 8 + 40, 12 + 32));
    assert_eq!(sized(3, 0, none, 1 << 10), (4 + 8 + 40, 12 + 96));
    assert_eq!(sized(1, 0, none, 64 << 20), (64 + 64 + 96, 12 + 32));
    assert_eq!(sized(3, 0, transforms, 64 << 20), (64 + 64 + 96, 12 + 96 + 160));
    assert_eq!(sized(1, 1, none, 64 << 20).0, 64 + 64 + 191);
    assert_eq!(sized(1, 1, none, 64 << 20).1, 12 + 32 + 191);
}

#[test]
fn fewer_jobs_run_where_memory_is_short() {
    let bound = of(&Demand { memory: 600 << 20, ..demand() }).unwrap();
    assert_eq!((bound.jobs, bound.workers), (1, 2));
    assert!(bound.bound_bytes <= 600 << 20);
}

#[test]
fn a_memory_that_cannot_hold_what_was_asked_for_is_refused_with_both_sizes() {
    let memory = 600 << 20;
    let error = of(&Demand { memory, jobs: Some(2), ..demand() }).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("629145600 bytes"), "{text}");
    assert!(text.contains("2 partitions"), "{text}");
    let needed: u64 =
        text.rsplit("may take ").next().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(of(&Demand { memory: needed, jobs: Some(2), ..demand() }).is_ok());
    assert!(of(&Demand { memory: needed - 1, jobs: Some(2), ..demand() }).is_err());
}

#[test]
fn what_a_refusal_says_to_change_is_enough_and_no_more_than_that() {
    let hooks = |n: usize| {
        let named = |i: usize| {
            let mut group = hook(1, 0);
            group.hook.iter_mut().for_each(|hook| hook.name = format!("h{i}"));
            group
        };
        (1..=n).map(named).collect::<Vec<_>>()
    };
    let with = |change: &dyn Fn(&mut Demand)| {
        let mut demand = Demand { groups: hooks(3), ..demand() };
        change(&mut demand);
        demand
    };
    let hint = |demand: &Demand| of(demand).unwrap_err().hint().unwrap();
    let least = |change: &dyn Fn(&mut Demand), mib: u64| {
        of(&with(&|demand: &mut Demand| {
            change(demand);
            demand.memory = mib << 20;
        }))
        .is_ok()
    };
    let three: &dyn Fn(&mut Demand) = &|_| {};
    assert_eq!(
        hint(&with(three)),
        "raise `memory` to \"1030MiB\", or lower `dataset.max_row_bytes` to \"63MiB\", or lower \
         `answer_bytes` of `h1`, `h2`, `h3` to \"31MiB\""
    );
    assert!(least(three, 1030) && !least(three, 1029));
    let rows = |mib: u64| move |demand: &mut Demand| demand.row_bytes = mib << 20;
    assert!(least(&rows(63), 1024) && !least(&rows(64), 1024));
    let two = with(&|demand| (demand.groups, demand.jobs) = (hooks(1), Some(3)));
    let text = hint(&two);
    assert!(text.contains("or lower `jobs` to 2, or"), "{text}");
    let small = with(&|demand| demand.memory = 1 << 20);
    let text = hint(&small);
    assert!(text.contains("`answer_bytes` of hooks"), "{text}");
}

#[test]
fn batches_shrink_before_parallelism_does_and_the_bound_is_kept() {
    for memory in (1..200).map(|mib| mib << 20) {
        let small = Demand { memory, row_bytes: 1 << 10, writer_bytes: 1 << 20, ..demand() };
        match of(&small) {
            Ok(bound) => assert!(bound.bound_bytes <= memory, "{bound:?}"),
            Err(_) => assert!(memory < 8 << 20, "{memory}"),
        }
    }
}
