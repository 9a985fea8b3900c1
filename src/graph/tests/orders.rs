//! Transforms on several threads: order, memory, errors.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use proptest::prelude::*;

use super::*;

type Ends = (Outlet<&'static str>, Inlet<&'static str>);

/// A scope with an ordered stage; what is sent into the outlet comes out of the inlet.
fn ordered(
    chain: &Chain,
    n_workers: usize,
    outbox_bytes: usize,
    capacity_bytes: (usize, usize),
) -> (Scope<Broken>, Ends) {
    let mut scope = Scope::new(&Control::new());
    let (outlet, from) = scope.edge("before", capacity_bytes.0);
    let (to, inlet) = scope.edge("behind", capacity_bytes.1);
    let name = "transform".to_owned();
    let stage =
        Ordered { name, chain: chain.clone(), n_workers, batch_bytes: 1 << 20, outbox_bytes };
    stage.spawn(&mut scope, from, to);
    (scope, (outlet, inlet))
}

const ROOMY: (usize, usize) = (1 << 20, 1 << 20);

/// All orders in which `n` things can happen.
fn permutations(n: u64) -> Vec<Vec<u64>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let insert = |order: &Vec<u64>| {
        (0..=order.len())
            .map(|at| {
                let mut order = order.clone();
                order.insert(at, n - 1);
                order
            })
            .collect::<Vec<_>>()
    };
    permutations(n - 1).iter().flat_map(insert).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_is_kept_in_whatever_order_batches_are_done() {
    for n_workers in 1..=4 {
        for order in permutations(n_workers) {
            let (transform, mut gates) = Gated::new(0..n_workers);
            let workers = usize::try_from(n_workers).unwrap();
            let (scope, (outlet, inlet)) = ordered(&chain_of(transform), workers, 0, ROOMY);
            for row in 0..n_workers {
                outlet.send(batch(row, 1)).await.unwrap();
            }
            outlet.end("digests").await.unwrap();
            for &row in &order {
                gates.open(row, Then::Pass);
            }
            let (all, end) = within_a_minute(drain(&inlet)).await.unwrap();
            assert_eq!(all, (0..n_workers).collect::<Vec<_>>(), "{order:?}");
            assert_eq!(end, "digests", "{order:?}");
            assert_eq!(within_a_minute(scope.join()).await.unwrap(), Ended::Finished);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_errors_the_first_in_order_is_reported() {
    for order in permutations(3) {
        let (transform, mut gates) = Gated::new(0..4);
        let (scope, (outlet, inlet)) = ordered(&chain_of(transform), 4, 0, ROOMY);
        for row in 0..4 {
            outlet.send(batch(row, 1)).await.unwrap();
        }
        for &row in &order {
            gates.open(row + 1, Then::Fail);
        }
        gates.open(0, Then::Pass);
        let failed = within_a_minute(scope.join()).await.unwrap_err();
        let Failed::Cause { stage, source } = failed else { panic!("{failed}") };
        assert_eq!(stage, "transform");
        let text = "transform `test`: input 0, source row 1, field `row`: is odd";
        assert_eq!(source, Broken::Link(text.to_owned()), "{order:?}");
        drop(inlet);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_transform_ends_the_scope_whatever_else_is_in_flight() {
    for panicking in 0..4 {
        let (transform, mut gates) = Gated::new(0..4);
        let chain = chain_of(transform);
        let (scope, (outlet, _inlet)) = ordered(&chain, 4, 0, ROOMY);
        for row in 0..4 {
            outlet.send(batch(row, 1)).await.unwrap();
        }
        for row in (0..4).filter(|&row| row != panicking) {
            gates.open(row, Then::Pass);
        }
        gates.gates.remove(&panicking).unwrap().send(Then::Panic).unwrap();
        let failed = within_a_minute(scope.join()).await.unwrap_err();
        let want = format!("stage `transform` panicked: row {panicking} is cursed");
        assert_eq!(failed.to_string(), want);
        assert_eq!(Arc::strong_count(&chain.links()[0].meter), 1, "a worker is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_flight_keeps_its_room_until_it_is_sent() {
    let (transform, mut gates) = Gated::new(0..2);
    let (scope, (outlet, inlet)) = ordered(&chain_of(transform), 2, 0, ROOMY);
    let gauge = outlet.gauge();
    outlet.send(batch(0, 1)).await.unwrap();
    outlet.send(batch(1, 1)).await.unwrap();
    outlet.end("end").await.unwrap();
    gates.open(1, Then::Pass);
    assert_eq!(gauge.held_bytes(), 2 * batch(0, 1).memory_bytes());
    gates.open(0, Then::Pass);
    assert_eq!(within_a_minute(drain(&inlet)).await.unwrap().0, [0, 1]);
    within_a_minute(scope.join()).await.unwrap();
    assert_eq!(gauge.held_bytes(), 0);
}

/// Holds the first batch until told, and cuts the others into single rows, counting them.
#[derive(Debug)]
struct CountBehind {
    gated: Gated,
    n_emitted: Arc<AtomicU64>,
}

impl Transform for CountBehind {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        Ok(Arc::clone(input))
    }

    fn apply(&self, stage: Stage, input: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        if first_row(&input) == 0 {
            return self.gated.apply(stage, input, emit);
        }
        for row in rows(&input) {
            emit.emit(batch(row, 1))?;
            self.n_emitted.fetch_add(1, SeqCst);
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_whose_turn_is_not_yet_sets_aside_no_more_than_its_outbox_holds() {
    let piece_bytes = batch(0, 1).memory_bytes();
    for (name, outbox_bytes, want) in [
        ("no room is room for one piece", 0, 1),
        ("room for less than a piece", piece_bytes - 1, 1),
        ("room for less than four", 4 * piece_bytes - 1, 3),
        ("room for four", 4 * piece_bytes, 4),
    ] {
        let (slow, mut gates) = Gated::new([0]);
        let n_emitted = Arc::new(AtomicU64::new(0));
        let behind = CountBehind { gated: slow, n_emitted: Arc::clone(&n_emitted) };
        let (scope, (outlet, inlet)) = ordered(&chain_of(behind), 2, outbox_bytes, ROOMY);
        outlet.send(batch(0, 1)).await.unwrap();
        outlet.send(batch(1, 50)).await.unwrap();
        outlet.end("end").await.unwrap();
        within_a_minute(async {
            while n_emitted.load(SeqCst) < want {
                tokio::task::yield_now().await;
            }
        })
        .await;
        for _ in 0..100 {
            std::thread::yield_now(); // time to make more of them, if it could
        }
        assert_eq!(n_emitted.load(SeqCst), want, "{name}");
        gates.open(0, Then::Pass);
        let all = within_a_minute(drain(&inlet)).await.unwrap().0;
        assert_eq!(all, (0..51).collect::<Vec<_>>(), "{name}");
        within_a_minute(scope.join()).await.unwrap();
    }
}

/// Tells when the stage that it belongs to has let go of it.
#[derive(Debug)]
struct Last(#[expect(dead_code, reason = "dropped with the stage")] oneshot::Sender<()>);

impl Transform for Last {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        Ok(Arc::clone(input))
    }

    fn apply(&self, _: Stage, batch: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        Ok(emit.emit(batch)?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_wait_for_input_leave_when_the_receiver_has() {
    let (last, gone) = oneshot::channel();
    let (scope, (outlet, inlet)) = ordered(&chain_of(Last(last)), 8, 0, ROOMY);
    drop(inlet);
    outlet.send(batch(0, 1)).await.unwrap();
    assert!(within_a_minute(gone).await.is_err(), "all workers dropped it unsent");
    assert_eq!(outlet.send(batch(1, 1)).await, Err(Echo));
    let failed = within_a_minute(scope.join()).await.unwrap_err();
    assert!(matches!(failed, Failed::Unexplained { .. }), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_before_the_sender_left_still_passes_but_no_end() {
    let (scope, (outlet, inlet)) = ordered(&Chain::default(), 4, 0, (1 << 20, 1));
    for row in 0..20 {
        outlet.send(batch(row, 1)).await.unwrap();
    }
    drop(outlet);
    for row in 0..20 {
        let Item::Batch(held) = within_a_minute(inlet.recv()).await.unwrap() else { panic!() };
        assert_eq!(rows(&held), [row]);
    }
    assert_eq!(within_a_minute(inlet.recv()).await.unwrap_err(), Echo);
    within_a_minute(scope.join()).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_transform_of_a_chain_is_counted() {
    let chain = Chain::new([link("halves", 1, Split(5)), link("ones", 2, Split(1))]);
    let (scope, (outlet, inlet)) = ordered(&chain, 3, 0, ROOMY);
    outlet.send(batch(0, 10)).await.unwrap();
    outlet.send(batch(10, 7)).await.unwrap();
    outlet.end("end").await.unwrap();
    assert_eq!(drain(&inlet).await.unwrap().0, (0..17).collect::<Vec<_>>());
    within_a_minute(scope.join()).await.unwrap();
    let bytes = |sizes: &[u64]| sizes.iter().map(|&n| batch(0, n).memory_bytes() as u64).sum();
    let [halves, ones] = [0, 1].map(|i: usize| chain.links()[i].meter.snapshot());
    assert_eq!((halves.rows_in, halves.rows_out, ones.rows_in, ones.rows_out), (17, 17, 17, 17));
    assert_eq!(halves.bytes_in, bytes(&[10, 7]));
    assert_eq!((halves.bytes_out, ones.bytes_in), (bytes(&[5, 5, 5, 2]), halves.bytes_out));
    assert_eq!(ones.bytes_out, bytes(&[1; 17]));
}

/// A later partition ends before an earlier one may begin: they share nothing.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_in_flight_do_not_wait_for_each_other() {
    let (transform, mut gates) = Gated::new([0]);
    let stuck = ordered(&chain_of(transform), 2, 0, (1, 1));
    let (scope, (outlet, inlet)) = stuck;
    outlet.send(batch(0, 1)).await.unwrap();
    for partition in 1..8 {
        let (scope, (outlet, inlet)) = ordered(&chain_of(Split(2)), 2, 0, (1, 1));
        let sender = async {
            for row in 0..10 {
                outlet.send(batch(row * 5, 5)).await.unwrap();
            }
            outlet.end("end").await.unwrap();
        };
        let ((), drained) = within_a_minute(futures::future::join(sender, drain(&inlet))).await;
        assert_eq!(drained.unwrap().0, (0..50).collect::<Vec<_>>(), "partition {partition}");
        within_a_minute(scope.join()).await.unwrap();
    }
    gates.open(0, Then::Pass);
    outlet.end("end").await.unwrap();
    assert_eq!(within_a_minute(drain(&inlet)).await, Ok((vec![0], "end")));
    within_a_minute(scope.join()).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_the_sizes_all_rows_pass_in_order_within_the_capacities(
        sizes in prop::collection::vec(0_u64..100, 0..30),
        pieces in 1_u64..40,
        n_workers in 1_usize..=8,
        outbox_bytes in 0_usize..2000,
        before in 0_usize..4000,
        behind in 0_usize..4000,
    ) {
        let bytes = |n_rows| batch(0, n_rows).memory_bytes();
        let largest = sizes.iter().map(|&n_rows| bytes(n_rows)).max().unwrap_or(0);
        let largest_piece = sizes.iter().map(|&n| bytes(n.min(pieces))).max().unwrap_or(0);
        let n_rows = sizes.iter().sum::<u64>();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
        let (ended, all, gauges) = runtime.block_on(within_a_minute(async move {
            let (mut scope, (outlet, inlet)) =
                ordered(&chain_of(Split(pieces)), n_workers, outbox_bytes, (before, behind));
            let gauges = [outlet.gauge(), inlet.gauge()];
            scope.blocking("read", move || {
                let mut first = 0;
                for n_rows in sizes {
                    outlet.send_blocking(batch(first, n_rows))?;
                    first += n_rows;
                }
                outlet.end_blocking("digests")?;
                Ok::<(), Halt<Broken>>(())
            });
            let (done, drained) = oneshot::channel();
            scope.task("write", async move {
                drop(done.send(drain(&inlet).await?));
                Ok::<(), Halt<Broken>>(())
            });
            (scope.join().await.unwrap(), drained.await.unwrap(), gauges)
        }));
        prop_assert_eq!(ended, Ended::Finished);
        prop_assert_eq!(all, ((0..n_rows).collect(), "digests"));
        prop_assert!(gauges[0].peak_bytes() <= before.max(largest));
        prop_assert!(gauges[1].peak_bytes() <= behind.max(largest_piece));
        for gauge in gauges {
            prop_assert_eq!((gauge.held_bytes(), gauge.queued_bytes()), (0, 0));
        }
    }
}
