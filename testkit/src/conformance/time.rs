//! The clock and its sleepers.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use transport::{AnyTransport, Transport};

use super::{on_each_rank, poll_once};

/// The clock never runs backwards, and a sleep takes at least its duration on it.
///
/// Contract: [`now`](Transport::now) and [`sleep`](Transport::sleep).
pub fn the_clock_never_runs_backwards(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let mut last = world.now();
        for micros in [0, 1, 50, 1_000, 20_000] {
            let nap = Duration::from_micros(micros);
            let begun = world.now();
            assert!(begun >= last, "the clock ran from {last:?} to {begun:?}");
            world.sleep(nap).await;
            last = world.now();
            assert!(last >= begun + nap, "a sleep of {nap:?} took {:?}", last - begun);
        }
    });
}

/// A sleep counts from its call, ends others' waits in order, and may be dropped.
///
/// Contract: [`sleep`](Transport::sleep).
pub fn a_sleep_counts_from_its_call(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let mut dropped = Box::pin(world.sleep(Duration::from_millis(20)));
        assert!(poll_once(&mut dropped).is_pending(), "it has only begun");
        drop(dropped);
        drop(world.sleep(Duration::from_secs(3_600)));

        let early = pin!(world.sleep(Duration::from_millis(200)));
        world.sleep(Duration::from_millis(200)).await;
        let late = pin!(world.sleep(Duration::from_millis(150)));
        assert!(matches!(select(early, late).await, Either::Left(_)), "the first sleep was over long ago");
    });
}
