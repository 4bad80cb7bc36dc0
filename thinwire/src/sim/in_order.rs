use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{sync::mpsc, thread};

/// Worlds at one time: one of thousands of ranks may take gigabytes.
const MOST: usize = 4;

/// Works on these on as many threads as there are cores, up to [`MOST`]; `accept` gets the results in the order of the items, each
/// once those before it have come. Its first error ends it: nothing more is begun.
pub(super) fn run<I: Sync, R: Send, E>(
    items: &[I],
    work: impl Fn(&I) -> R + Sync,
    mut accept: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..threads.min(items.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while let Some((place, item)) = place_of(next, items) {
                    if sender.send((place, work(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut wanted = 0;
        for (place, result) in results {
            early.insert(place, result);
            while let Some(result) = early.remove(&wanted) {
                accept(result)?;
                wanted += 1;
            }
        }
        Ok(())
    })
}

fn place_of<'a, I>(next: &AtomicUsize, items: &'a [I]) -> Option<(usize, &'a I)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    items.get(place).map(|item| (place, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_however_long_each_takes() {
        for count in [0, 1, 2, 9, 40] {
            let items: Vec<usize> = (0..count).collect();
            let mut seen = Vec::new();
            let work = |item: &usize| {
                // The first ones end last.
                (0..(40 - item) * 10_000).fold(*item, |sum, add| std::hint::black_box(sum ^ add ^ add))
            };
            let outcome: Result<(), ()> = run(&items, work, |result| {
                seen.push(result);
                Ok(())
            });
            assert_eq!((outcome, seen), (Ok(()), items));
        }
    }

    #[test]
    fn the_first_error_in_their_order_is_the_result() {
        let items: Vec<usize> = (0..100).collect();
        let begun = AtomicUsize::new(0);
        let work = |item: &usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            if item % 3 == 2 { Err(*item) } else { Ok(*item) }
        };
        let mut accepted = Vec::new();
        let outcome = run(&items, work, |result| {
            accepted.push(result?);
            Ok(())
        });
        assert_eq!((outcome, accepted), (Err(2), vec![0, 1]));
        assert!(begun.into_inner() >= 3);
    }
}
