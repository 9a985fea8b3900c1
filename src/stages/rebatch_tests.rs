//! Properties of cutting: whatever comes in is made the same batches, from anywhere on.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use proptest::collection::vec;
use proptest::prelude::*;

use super::Cutter;
use crate::batch::{Batch, Event, Outcome, Provenance, Restart, Run, memory_bytes};
use crate::transforms::Batching;

/// A row with a text of so many bytes, or the event of a row that is gone.
#[derive(Debug, Clone, Copy)]
enum Item {
    Row(usize),
    Gone,
    Rejected(usize),
}

/// The items of source rows, which come in source batches that are cut into pieces.
type Stream = Vec<Vec<Item>>;

fn items() -> impl Strategy<Value = Stream> {
    let item = prop_oneof![
        6 => (0_usize..60).prop_map(Item::Row),
        1 => (300_usize..700).prop_map(Item::Row),
        1 => Just(Item::Gone),
        1 => (0_usize..60).prop_map(Item::Rejected),
    ];
    vec(vec(item, 1..12), 1..14)
}

fn rule() -> impl Strategy<Value = Batching> {
    (1_usize..9, 1_u64..800).prop_map(|(rows, bytes)| Batching {
        rows,
        bytes,
        answer_bytes: 0,
        workers: 1,
        is_kept: false,
        multiplies: false,
    })
}

/// Where source batches end (in source rows) and where they are cut (in items), as shares of what
/// there is.
type Cuts = (Vec<usize>, Vec<usize>);

fn cuts() -> impl Strategy<Value = Cuts> {
    (vec(1_usize..6, 25), vec(1_usize..7, 300))
}

/// The batches of the source rows from `first` on.
fn batches(stream: &Stream, first: usize, (rows, places): &Cuts) -> Vec<Batch> {
    let mut made = Vec::new();
    let (mut row, mut places) = (first, places.iter().cycle());
    for n_rows in rows.iter().cycle() {
        if row >= stream.len() {
            return made;
        }
        let end = (row + n_rows).min(stream.len());
        let of_batch: Vec<(u64, i64, Item)> = (row..end)
            .flat_map(|row| {
                stream[row].iter().zip(0..).map(move |(item, n)| (row as u64, n, *item))
            })
            .collect();
        let mut rest = of_batch.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*places.next().unwrap()));
            made.push(batch(piece, row as u64));
            rest = behind;
        }
        row = end;
    }
    made
}

fn batch(items: &[(u64, i64, Item)], first: u64) -> Batch {
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    let (mut provenance, mut events) = (Provenance::new(), Vec::new());
    for (source_row, n, item) in items {
        let source_row = *source_row;
        let outcome = match item {
            Item::Row(bytes) => {
                numbers.push(i64::try_from(source_row).unwrap() * 100 + n);
                texts.push("x".repeat(*bytes));
                provenance.push_run(Run { row: 0, input: 0, source_row, sub_row: *n }, 1);
                continue;
            }
            Item::Gone => Outcome::Dropped,
            Item::Rejected(bytes) => {
                Outcome::Rejected { code: "bad".to_owned(), message: "y".repeat(*bytes) }
            }
        };
        let path = vec![u64::try_from(*n).unwrap()];
        let before_row = numbers.len() as u64;
        events.push(Event { before_row, input: 0, source_row, path, stage: 1, outcome });
    }
    let columns: [(&str, ArrayRef); 2] =
        [("n", Arc::new(Int64Array::from(numbers))), ("t", Arc::new(StringArray::from(texts)))];
    Batch {
        rows: RecordBatch::try_from_iter(columns).unwrap(),
        provenance,
        events,
        restart: Restart { source_row: first, ..Restart::default() },
    }
}

/// All that is cut of these.
fn cut(rule: Batching, resumed: Option<&Restart>, batches: &[Batch]) -> Vec<Batch> {
    let mut cutter = Cutter::new("h", rule);
    if let Some(restart) = resumed {
        cutter.begin_at(restart);
    }
    let mut made = Vec::new();
    for batch in batches {
        let mut cuts = cutter.push(batch);
        while let Some(batch) = cuts.next().unwrap() {
            made.push(batch);
        }
    }
    made.extend(cutter.finish().unwrap());
    made
}

/// What must be the same of a batch in every run: all but where its source begins.
fn same(batch: &Batch) -> (Vec<i64>, Provenance, Vec<Event>) {
    let numbers = batch.rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    (numbers, batch.provenance.clone(), batch.events.clone())
}

/// The source rows and the numbers of the items of these batches.
fn places(batches: &[Batch]) -> impl Iterator<Item = (u64, u64)> {
    batches.iter().flat_map(|batch| {
        let rows = (0..batch.provenance.n_rows()).filter_map(|row| batch.provenance.position(row));
        let rows = rows.map(|at| (at.source_row, at.sub_row));
        rows.chain(batch.events.iter().map(|event| (event.source_row, event.path[0])))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn batches_are_the_same_however_the_rows_came(
        stream in items(), rule in rule(), one in cuts(), other in cuts(),
    ) {
        let made = [one, other].map(|cuts| cut(rule, None, &batches(&stream, 0, &cuts)));
        let all = |made: &Vec<Batch>| -> Vec<_> {
            made.iter().map(|it| (same(it), it.restart.hooks.clone())).collect()
        };
        let [one, other] = made.each_ref().map(all);
        prop_assert_eq!(one, other);
        let all = batch(
            &stream
                .iter()
                .zip(0..)
                .flat_map(|(items, row)| items.iter().zip(0..).map(move |(item, n)| (row, n, *item)))
                .collect::<Vec<_>>(),
            0,
        );
        let mut provenance = Provenance::new();
        for batch in &made[0] {
            let rows = batch.rows.num_rows();
            prop_assert!(rows <= rule.rows);
            // Copied where a slice would keep more; arrays have a cost of their own.
            prop_assert!(memory_bytes(&batch.rows) as u64 <= 2 * rule.bytes.max(800) + 2048);
            provenance.extend(&batch.provenance);
        }
        prop_assert_eq!(provenance, all.provenance);
        prop_assert_eq!(made[0].iter().map(|it| it.events.len()).sum::<usize>(), all.events.len());
    }

    #[test]
    fn what_follows_a_restart_is_what_followed_it_before(
        stream in items(), rule in rule(), one in cuts(), other in cuts(), again_at in 0_usize..1000,
    ) {
        let made = cut(rule, None, &batches(&stream, 0, &one));
        let from = |restart: &Restart, cuts: &Cuts| {
            let first = usize::try_from(restart.source_row).unwrap();
            cut(rule, Some(restart), &batches(&stream, first, cuts))
        };
        for (i, batch) in made.iter().enumerate() {
            let again = from(&batch.restart, &other);
            prop_assert!(again.len() >= made.len() - i, "batch {} is not made again", i);
            let want = &made[made.len() - again.len()..];
            let all = |made: &[Batch]| made.iter().map(same).collect::<Vec<_>>();
            prop_assert_eq!(all(&again), all(want));
            // The source row that the batch begins with comes again as a whole.
            let (row, _) = places(std::slice::from_ref(batch)).min().unwrap();
            prop_assert!(places(&again).any(|at| at == (row, 0)));
            // And once more from a batch that was made again: whatever of it may be wanted is that of
            // the rows behind the one that the first restart was for.
            let place = i + again_at % (made.len() - i);
            let later = &again[again.len() - (made.len() - place)];
            let last = places(std::slice::from_ref(later)).max().unwrap().0;
            let third = from(&later.restart, &one);
            prop_assert!(third.len() >= made.len() - place);
            prop_assert_eq!(all(&third), all(&made[made.len() - third.len()..]));
            if last > row {
                prop_assert!(places(&third).any(|at| at == (last, 0)));
            }
        }
    }
}
