//! The conformance suite can fail: each law is run on back ends that break it, and must say so.

mod broken;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use broken::{Fault, world};
use testkit::conformance as laws;
use transport::AnyTransport;

/// How the laws call a message that is another one, or is not whole.
const DIFFERS: &str = "is not what was sent";

type Law = fn(Vec<AnyTransport>, Duration);

/// A law lets a sound back end pass and finds a fault in a broken one, in certain words.
struct Finding {
    law: Law,
    fault: Fault,
    complaint: &'static str,
    patience: Duration,
}

/// The law says what is wrong.
fn finds(law: Law, fault: Fault, complaint: &'static str) -> Finding {
    Finding { law, fault, complaint, patience: laws::PATIENCE }
}

/// The law waits in vain.
fn hangs(law: Law, fault: Fault) -> Finding {
    Finding { law, fault, complaint: "not finished", patience: Duration::from_secs(1) }
}

impl Finding {
    fn check(&self) {
        let Self { law, fault, complaint, patience } = self;
        law(laws::erased(world(2, Fault::None)), laws::PATIENCE);
        let outcome = catch_unwind(AssertUnwindSafe(|| law(laws::erased(world(2, *fault)), *patience)));
        let Err(panic) = outcome else { panic!("{fault:?} goes unnoticed") };
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(text.contains(complaint), "{fault:?} should be called {complaint:?}, but is called {text:?}");
    }
}

/// All at once, since most of the time is spent in waiting.
fn check_all(findings: &[Finding]) {
    std::thread::scope(|scope| {
        for finding in findings {
            scope.spawn(|| finding.check());
        }
    });
}

#[test]
fn a_message_out_of_order_is_found() {
    check_all(&[
        finds(laws::messages_arrive_in_order_whole_and_once, Fault::Swaps, DIFFERS),
        finds(laws::empty_messages_are_messages, Fault::Swaps, "message"),
        finds(laws::a_rank_may_send_to_itself, Fault::Swaps, DIFFERS),
        finds(laws::futures_may_be_awaited_in_any_order, Fault::Swaps, DIFFERS),
        finds(laws::tags_do_not_block_each_other, Fault::Loses, DIFFERS),
        finds(laws::unexpected_messages_are_bounded, Fault::Swaps, DIFFERS),
        finds(laws::random_traffic_arrives, Fault::Swaps, DIFFERS),
        finds(laws::a_rank_that_leaves_is_lost_after_its_messages, Fault::Swaps, DIFFERS),
    ]);
}

#[test]
fn a_lost_message_is_found() {
    check_all(&[
        finds(laws::messages_arrive_in_order_whole_and_once, Fault::Loses, DIFFERS),
        finds(laws::random_traffic_arrives, Fault::Loses, DIFFERS),
        finds(laws::a_rank_that_leaves_is_lost_after_its_messages, Fault::Loses, DIFFERS),
        finds(laws::empty_messages_are_messages, Fault::LosesEmpty, "message"),
        hangs(laws::threads_share_a_rank, Fault::Loses),
    ]);
}

#[test]
fn a_message_that_comes_twice_is_found() {
    check_all(&[
        finds(laws::messages_arrive_in_order_whole_and_once, Fault::Doubles, DIFFERS),
        finds(laws::random_traffic_arrives, Fault::Doubles, DIFFERS),
        finds(laws::a_dropped_receive_takes_no_message, Fault::DoublesLast, "a message came twice"),
    ]);
}

#[test]
fn a_message_that_is_not_whole_is_found() {
    check_all(&[
        finds(laws::messages_arrive_in_order_whole_and_once, Fault::Truncates, DIFFERS),
        finds(laws::large_sends_before_receives_do_not_deadlock, Fault::Truncates, DIFFERS),
        finds(laws::any_transport_keeps_the_laws, Fault::Truncates, DIFFERS),
        finds(laws::messages_arrive_in_order_whole_and_once, Fault::Corrupts, DIFFERS),
        finds(laws::large_sends_before_receives_do_not_deadlock, Fault::Corrupts, DIFFERS),
        finds(laws::any_transport_keeps_the_laws, Fault::Corrupts, DIFFERS),
    ]);
}

#[test]
fn tags_that_block_each_other_are_found() {
    check_all(&[hangs(laws::tags_do_not_block_each_other, Fault::BlocksTags)]);
}

#[test]
fn a_send_posted_by_its_first_poll_is_found() {
    check_all(&[
        hangs(laws::sends_are_posted_at_the_call, Fault::SendsLazily),
        finds(laws::a_dropped_send_still_delivers, Fault::SendsLazily, DIFFERS),
        finds(laws::random_traffic_arrives, Fault::SendsLazily, DIFFERS),
    ]);
}

#[test]
fn a_receive_posted_by_its_first_poll_is_found() {
    check_all(&[
        finds(laws::receives_are_posted_at_the_call, Fault::ReceivesLazily, DIFFERS),
        hangs(laws::a_posted_receive_completes_its_send, Fault::ReceivesLazily),
        hangs(laws::large_sends_before_receives_do_not_deadlock, Fault::ReceivesLazily),
        finds(laws::futures_may_be_awaited_in_any_order, Fault::ReceivesLazily, DIFFERS),
    ]);
}

#[test]
fn a_dropped_receive_that_takes_a_message_is_found() {
    check_all(&[
        finds(laws::a_dropped_receive_takes_no_message, Fault::TakesWhenDropped, DIFFERS),
        finds(laws::random_traffic_arrives, Fault::TakesWhenDropped, "panicked"),
    ]);
}

#[test]
fn a_forgotten_waker_is_found() {
    check_all(&[hangs(laws::the_last_waker_is_woken, Fault::WakesTheFirst)]);
}

#[test]
fn unbounded_messages_are_found() {
    check_all(&[
        finds(laws::unexpected_messages_are_bounded, Fault::AcceptsAll, "that nobody receives completed"),
        finds(
            laws::unexpected_empty_messages_are_bounded,
            Fault::AcceptsAll,
            "that nobody receives completed",
        ),
        finds(laws::operations_that_wait_for_a_leaver_end, Fault::AcceptsAll, "all sends completed"),
    ]);
}

#[test]
fn a_loss_that_nobody_hears_of_is_found() {
    check_all(&[
        hangs(laws::a_rank_that_leaves_is_lost_after_its_messages, Fault::HidesLoss),
        hangs(laws::operations_that_wait_for_a_leaver_end, Fault::HidesLoss),
        finds(laws::what_a_leaver_has_received_was_sent, Fault::ForgetsSent, "what was received was sent"),
        finds(laws::a_rank_that_leaves_is_lost_after_its_messages, Fault::BlamesAnother, "is lost, but"),
        finds(laws::operations_that_wait_for_a_leaver_end, Fault::BlamesAnother, "is lost, but"),
        hangs(|world, patience| laws::a_killed_rank_is_lost(world, patience, drop), Fault::HidesLoss),
    ]);
}

#[test]
fn an_abort_that_does_not_arrive_is_found() {
    check_all(&[
        hangs(laws::an_abort_ends_its_context_on_every_rank, Fault::SwallowsAborts),
        hangs(laws::an_abort_of_the_world_ends_everything, Fault::SwallowsAborts),
        hangs(laws::who_leaves_after_an_abort_is_not_lost, Fault::SwallowsAborts),
        finds(
            laws::who_leaves_after_an_abort_is_not_lost,
            Fault::CallsAbortLoss,
            "but an operation ends with",
        ),
        finds(laws::an_abort_ends_its_context_on_every_rank, Fault::AbortsAll, "but an operation ends with"),
        finds(
            laws::an_abort_ends_its_context_on_every_rank,
            Fault::ChangesReason,
            "but an operation ends with",
        ),
        finds(
            laws::an_abort_of_the_world_ends_everything,
            Fault::ChangesReason,
            "but an operation ends with",
        ),
        finds(
            laws::an_abort_of_the_world_ends_everything,
            Fault::AbortsSlowly,
            "abort returns within a second",
        ),
    ]);
}

#[test]
fn a_wrong_clock_is_found() {
    check_all(&[
        finds(laws::the_clock_never_runs_backwards, Fault::ClockRunsBackwards, "the clock ran"),
        finds(laws::the_clock_never_runs_backwards, Fault::NeverSleeps, "a sleep of"),
        finds(laws::a_sleep_counts_from_its_call, Fault::SleepsLazily, "was over long ago"),
    ]);
}

#[test]
fn wrong_ranks_are_found() {
    check_all(&[
        finds(laws::ranks_are_numbered, Fault::CountsFromOne, "in the order of their ranks"),
        finds(laws::a_rank_outside_the_world_is_refused, Fault::KnowsNoStrangers, "is outside a world of"),
    ]);
}
