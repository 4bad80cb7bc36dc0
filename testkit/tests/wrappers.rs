//! The wrappers keep the contract that they wrap.

use std::time::Duration;

use testkit::faults::Faulty;
use testkit::{Counted, conformance as laws, local_world_with_window};
use transport::{AnyTransport, Transport};

/// Runs the laws that a wrapper could break.
fn check<T: Transport>(world: impl Fn(usize) -> Vec<T>) {
    let laws: [fn(Vec<AnyTransport>, Duration); 16] = [
        laws::ranks_are_numbered,
        laws::messages_arrive_in_order_whole_and_once,
        laws::empty_messages_are_messages,
        laws::a_rank_outside_the_world_is_refused,
        laws::receives_are_posted_at_the_call,
        laws::sends_are_posted_at_the_call,
        laws::a_dropped_receive_takes_no_message,
        laws::a_dropped_send_still_delivers,
        laws::the_last_waker_is_woken,
        laws::a_posted_receive_completes_its_send,
        laws::a_rank_that_leaves_is_lost_after_its_messages,
        laws::operations_that_wait_for_a_leaver_end,
        laws::an_abort_ends_its_context_on_every_rank,
        laws::an_abort_of_the_world_ends_everything,
        laws::the_clock_never_runs_backwards,
        laws::random_traffic_arrives,
    ];
    for law in laws {
        law(laws::erased(world(3)), laws::PATIENCE);
    }
}

const WINDOW: usize = 2 << 20;

#[test]
fn a_counted_rank_keeps_the_contract() {
    check(|size| local_world_with_window(size, WINDOW).into_iter().map(Counted::new).collect());
}

#[test]
fn a_delayed_rank_keeps_the_contract() {
    check(|size| {
        let ranks = local_world_with_window(size, WINDOW).into_iter();
        ranks.map(|rank| Faulty::new(rank).random_delays(1)).collect()
    });
}

#[test]
fn a_rank_behind_pointers_keeps_the_contract() {
    check(|size| local_world_with_window(size, WINDOW).into_iter().map(AnyTransport::new).collect());
}

#[test]
fn a_death_by_plan_is_a_loss() {
    for size in [2, 3, 8] {
        let world = local_world_with_window(size, WINDOW).into_iter().map(Faulty::new).collect();
        laws::a_killed_rank_is_lost(world, laws::PATIENCE, |rank| rank.die());
    }
}
