//! Edges between two stages: room, order, waking.

use futures::poll;
use proptest::prelude::*;
use std::pin::pin;
use std::thread;
use tokio_util::sync::CancellationToken;

use super::*;

fn free_edge(capacity_bytes: usize) -> (Outlet<&'static str>, Inlet<&'static str>) {
    edge("test", capacity_bytes, &CancellationToken::new())
}

/// Bytes that `batch(_, n_rows)` holds.
fn size(n_rows: u64) -> usize {
    batch(0, n_rows).memory_bytes()
}

async fn received(inlet: &Inlet<&'static str>) -> Held {
    match inlet.recv().await.unwrap() {
        Item::Batch(held) => held,
        Item::EndOfPartition(end) => panic!("{end}"),
    }
}

#[tokio::test]
async fn batches_arrive_in_order_then_the_end() {
    let (outlet, inlet) = free_edge(1 << 20);
    outlet.send(batch(0, 2)).await.unwrap();
    outlet.send(batch(2, 1)).await.unwrap();
    outlet.end("digests").await.unwrap();
    assert_eq!(drain(&inlet).await, Ok((vec![0, 1, 2], "digests")));
    assert_eq!(inlet.recv().await.unwrap_err(), Echo, "nothing follows the end");
}

#[tokio::test]
async fn a_batch_keeps_its_room_until_it_is_dropped() {
    let (outlet, inlet) = free_edge(2 * size(10));
    let gauge = outlet.gauge();
    outlet.send(batch(0, 10)).await.unwrap();
    outlet.send(batch(10, 10)).await.unwrap();
    assert_eq!((gauge.queued_bytes(), gauge.fill_percent()), (2 * size(10), 100));

    let mut third = pin!(outlet.send(batch(20, 10)));
    assert!(poll!(&mut third).is_pending(), "the edge is full");
    let first = received(&inlet).await;
    assert_eq!((gauge.queued_bytes(), gauge.held_bytes()), (size(10), 2 * size(10)));
    assert!(poll!(&mut third).is_pending(), "what was received still takes room");
    drop(first);
    assert!(poll!(&mut third).is_ready());
    assert_eq!(gauge.peak_bytes(), 2 * size(10));

    drop(inlet);
    assert_eq!((gauge.queued_bytes(), gauge.held_bytes()), (0, 0), "what waited is freed");
}

#[tokio::test]
async fn a_batch_sent_on_gives_up_its_room_when_the_next_edge_has_taken_it() {
    let (outlet, inlet) = free_edge(size(10));
    let (next_outlet, next_inlet) = free_edge(size(10));
    let gauge = outlet.gauge();
    outlet.send(batch(0, 10)).await.unwrap();
    next_outlet.send(batch(0, 10)).await.unwrap();
    let held = received(&inlet).await;
    {
        let mut sending = pin!(next_outlet.send(held));
        assert!(poll!(&mut sending).is_pending());
        assert_eq!(gauge.held_bytes(), size(10));
        drop(received(&next_inlet).await);
        assert!(poll!(&mut sending).is_ready());
    }
    assert_eq!(gauge.held_bytes(), 0);
}

#[tokio::test]
async fn a_batch_larger_than_the_edge_passes_alone() {
    for capacity_bytes in [0, 1, size(1)] {
        let (outlet, inlet) = free_edge(capacity_bytes);
        outlet.send(batch(0, 1000)).await.unwrap();
        assert!(outlet.gauge().queued_bytes() > capacity_bytes);
        let mut next = pin!(outlet.send(batch(1000, 1)));
        assert!(poll!(&mut next).is_pending(), "{capacity_bytes}");
        drop(received(&inlet).await);
        next.await.unwrap();
        assert_eq!(rows(&*received(&inlet).await), [1000]);
    }
}

#[tokio::test]
async fn a_large_batch_is_not_overtaken_by_small_ones() {
    let (outlet, inlet) = free_edge(size(100));
    outlet.send(batch(0, 1)).await.unwrap();
    let mut large = pin!(outlet.send(batch(1, 100)));
    assert!(poll!(&mut large).is_pending());
    let mut small = pin!(outlet.send(batch(101, 1)));
    assert!(poll!(&mut small).is_pending(), "it would fit, but comes second");
    drop(received(&inlet).await);
    assert!(poll!(&mut small).is_pending());
    assert!(poll!(&mut large).is_ready());
}

#[tokio::test]
async fn capacities_beyond_the_count_of_units_are_counted_in_larger_units() {
    let (outlet, inlet) = free_edge(1 << 40);
    outlet.send(batch(0, 1000)).await.unwrap();
    outlet.send(batch(1000, 1000)).await.unwrap();
    outlet.end("end").await.unwrap();
    assert_eq!(drain(&inlet).await.unwrap().0.len(), 2000);
}

#[tokio::test]
async fn a_sender_that_leaves_without_an_end_is_an_echo() {
    let (outlet, inlet) = free_edge(1 << 20);
    outlet.send(batch(0, 1)).await.unwrap();
    drop(outlet);
    drop(received(&inlet).await);
    assert_eq!(inlet.recv().await.unwrap_err(), Echo);
}

#[tokio::test]
async fn a_receiver_that_leaves_wakes_senders_with_an_echo() {
    let (outlet, inlet) = free_edge(1);
    outlet.send(batch(0, 1)).await.unwrap();
    let _still_worked_on = received(&inlet).await;
    {
        let mut waiting = pin!(outlet.send(batch(1, 1)));
        assert!(poll!(&mut waiting).is_pending());
        drop(inlet);
        assert_eq!(within_a_minute(waiting).await, Err(Echo));
    }
    assert_eq!(outlet.send(batch(2, 1)).await, Err(Echo));
    assert_eq!(outlet.end("end").await, Err(Echo));
}

#[tokio::test]
async fn cancelling_wakes_tasks_that_wait() {
    let cancel = CancellationToken::new();
    let (outlet, inlet) = edge::<()>("full", 1, &cancel);
    outlet.send(batch(0, 1)).await.unwrap();
    let (_idle, empty) = edge::<()>("empty", 1, &cancel);
    let stop = CancellationToken::new();
    let mut sending = pin!(outlet.send(batch(1, 1)));
    let mut receiving = pin!(empty.recv());
    let mut watching = pin!(empty.recv_until(&stop));
    assert!(poll!(&mut sending).is_pending());
    assert!(poll!(&mut receiving).is_pending());
    assert!(poll!(&mut watching).is_pending());
    cancel.cancel();
    assert_eq!(within_a_minute(sending).await, Err(Echo));
    assert_eq!(within_a_minute(receiving).await.unwrap_err(), Echo);
    assert_eq!(within_a_minute(watching).await.unwrap_err(), Echo);
    assert_eq!(inlet.recv().await.unwrap_err(), Echo, "even though a batch waits");
}

#[tokio::test]
async fn cancelling_wakes_threads_that_wait() {
    let cancel = CancellationToken::new();
    let (outlet, _inlet) = edge::<()>("full", 1, &cancel);
    outlet.send(batch(0, 1)).await.unwrap();
    let (_idle, empty) = edge::<()>("empty", 1, &cancel);
    let (sends, sent) = oneshot::channel();
    let (receives, outcome) = oneshot::channel();
    let (begun, both_began) = mpsc::sync_channel(2);
    let sender_begins = begun.clone();
    thread::spawn(move || {
        sender_begins.send(()).unwrap();
        sends.send(outlet.send_blocking(batch(1, 1))).unwrap();
    });
    thread::spawn(move || {
        begun.send(()).unwrap();
        receives.send(empty.recv_blocking().map(|_| ())).unwrap();
    });
    for _ in 0..2 {
        both_began.recv().unwrap();
    }
    cancel.cancel();
    assert_eq!(within_a_minute(sent).await.unwrap(), Err(Echo));
    assert_eq!(within_a_minute(outcome).await.unwrap(), Err(Echo));
}

#[tokio::test]
async fn stopping_ends_a_watchful_wait_before_what_waits_is_received() {
    let (outlet, inlet) = free_edge(1 << 20);
    let stop = CancellationToken::new();
    {
        let mut watching = pin!(inlet.recv_until(&stop));
        assert!(poll!(&mut watching).is_pending());
        stop.cancel();
        assert!(within_a_minute(watching).await.unwrap().is_none());
    }
    outlet.send(batch(0, 1)).await.unwrap();
    assert!(inlet.recv_until(&stop).await.unwrap().is_none());
    assert_eq!(rows(&*received(&inlet).await), [0], "it is still there");
}

#[tokio::test]
async fn meters_of_both_ends_count_rows_and_bytes() {
    let (outlet, inlet) = free_edge(1 << 20);
    let (from, to) = (Arc::new(Meter::new("from")), Arc::new(Meter::new("to")));
    let (outlet, inlet) = (outlet.metered(&from), inlet.metered(&to));
    outlet.send(batch(0, 3)).await.unwrap();
    outlet.send(batch(3, 4)).await.unwrap();
    drop(received(&inlet).await);
    let bytes = |n_rows| size(n_rows) as u64;
    let (from, to) = (from.snapshot(), to.snapshot());
    assert_eq!((from.rows_out, from.bytes_out), (7, bytes(3) + bytes(4)));
    assert_eq!((to.rows_in, to.bytes_in), (3, bytes(3)));
    assert_eq!((from.rows_in, to.rows_out), (0, 0));
}

#[test]
fn meters_add_up_what_several_workers_do() {
    let meter = Meter::new("stage");
    meter.was_busy(Duration::from_secs(2));
    meter.was_busy(Duration::from_secs(3));
    meter.waited_for_input(Duration::from_millis(7));
    meter.waited_for_output(Duration::from_nanos(1));
    assert_eq!(meter.busy(|| "done"), "done");
    let it = meter.snapshot();
    assert!(it.busy >= Duration::from_secs(5));
    assert_eq!(it.waiting_for_input, Duration::from_millis(7));
    assert_eq!(it.waiting_for_output, Duration::from_nanos(1));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn held_bytes_never_exceed_the_capacity(
        sizes in prop::collection::vec(0_u64..200, 0..40),
        capacity_bytes in 0_usize..4000,
    ) {
        let (outlet, inlet) = free_edge(capacity_bytes);
        let gauge = outlet.gauge();
        let largest = sizes.iter().map(|&n_rows| size(n_rows)).max().unwrap_or(0);
        let n_rows = usize::try_from(sizes.iter().sum::<u64>()).unwrap();
        let sender = thread::spawn(move || {
            for n_rows in sizes {
                outlet.send_blocking(batch(0, n_rows)).unwrap();
            }
            outlet.end_blocking("end").unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (all, end) = runtime.block_on(within_a_minute(drain(&inlet))).unwrap();
        sender.join().unwrap();
        prop_assert_eq!((all.len(), end), (n_rows, "end"));
        prop_assert!(gauge.peak_bytes() <= capacity_bytes.max(largest));
        prop_assert_eq!((gauge.held_bytes(), gauge.queued_bytes()), (0, 0));
    }
}
