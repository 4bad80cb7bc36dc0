/// Checks a back end against every law of the contract, in worlds of 1, 2, 3, 4, 7 and 8 ranks.
///
/// Takes the name of a module to make, and how to make a world: anything that can be called with a size
/// and returns a `Vec` of that many transports, by rank. It is called once for each test, and tests run at
/// the same time. A third argument, `kill = ...`, may say how to end one of these transports abruptly, as
/// a crash would; then the loss of a killed rank is checked as well.
///
/// ```
/// testkit::conformance_suite!(local, testkit::local_world);
/// testkit::conformance_suite!(killed, testkit::local_world, kill = |transport: testkit::LocalTransport| {
///     transport.kill(transport::Transport::rank(&transport));
/// });
/// ```
#[macro_export]
macro_rules! conformance_suite {
    ($name:ident, $world:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn __conformance_world(size: usize) -> Vec<impl $crate::__private::Transport> {
                ($world)(size)
            }

            $crate::conformance_suite! { @laws }
        }
    };
    ($name:ident, $world:expr, kill = $kill:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn __conformance_world(size: usize) -> Vec<impl $crate::__private::Transport> {
                ($world)(size)
            }

            $crate::conformance_suite! { @laws }

            mod a_killed_rank_is_lost {
                #[allow(unused_imports)]
                use super::super::*;

                fn check(size: usize) {
                    let patience = $crate::conformance::PATIENCE;
                    $crate::conformance::a_killed_rank_is_lost(($world)(size), patience, $kill);
                }

                $crate::conformance_suite! { @sizes 2, 3, 4, 7, 8 }
            }
        }
    };
    (@laws) => {
        $crate::__for_each_law! { [$crate::conformance_suite] @each }
    };
    (@each $($law:ident: $($size:tt),*;)*) => {
        $($crate::conformance_suite! { @law $law: $($size),* })*
    };
    (@law $law:ident: $($size:tt),*) => {
        mod $law {
            fn check(size: usize) {
                let world = $crate::conformance::erased(super::__conformance_world(size));
                $crate::conformance::$law(world, $crate::conformance::PATIENCE);
            }

            $crate::conformance_suite! { @sizes $($size),* }
        }
    };
    (@sizes $($size:tt),*) => {
        $($crate::conformance_suite! { @size $size })*
    };
    (@size 1) => {
        #[test]
        fn world_of_1() {
            check(1);
        }
    };
    (@size 2) => {
        #[test]
        fn world_of_2() {
            check(2);
        }
    };
    (@size 3) => {
        #[test]
        fn world_of_3() {
            check(3);
        }
    };
    (@size 4) => {
        #[test]
        fn world_of_4() {
            check(4);
        }
    };
    (@size 7) => {
        #[test]
        fn world_of_7() {
            check(7);
        }
    };
    (@size 8) => {
        #[test]
        fn world_of_8() {
            check(8);
        }
    };
}

/// Every law and the world sizes at which it makes sense, handed to a macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_law {
    ([$($macro:tt)*] @$what:ident) => {
        $($macro)*! {
            @$what
            // What goes where.
            ranks_are_numbered: 1, 2, 3, 4, 7, 8;
            messages_arrive_in_order_whole_and_once: 1, 2, 3, 4, 7, 8;
            empty_messages_are_messages: 1, 2, 3, 4, 7, 8;
            a_rank_may_send_to_itself: 1, 2, 3, 4, 7, 8;
            a_rank_outside_the_world_is_refused: 1, 2, 3, 4, 7, 8;
            any_transport_keeps_the_laws: 1, 2, 3, 4, 7, 8;
            // Posted at the call.
            receives_are_posted_at_the_call: 1, 2, 3, 4, 7, 8;
            sends_are_posted_at_the_call: 1, 2, 3, 4, 7, 8;
            a_dropped_receive_takes_no_message: 1, 2, 3, 4, 7, 8;
            a_dropped_send_still_delivers: 1, 2, 3, 4, 7, 8;
            futures_may_be_awaited_in_any_order: 1, 2, 3, 4, 7, 8;
            the_last_waker_is_woken: 1, 2, 3, 4, 7, 8;
            // Back-pressure.
            large_sends_before_receives_do_not_deadlock: 1, 2, 3, 4, 7, 8;
            a_posted_receive_completes_its_send: 1, 2, 3, 4, 7, 8;
            tags_do_not_block_each_other: 1, 2, 3, 4, 7, 8;
            unexpected_messages_are_bounded: 1, 2, 3;
            unexpected_empty_messages_are_bounded: 1, 2;
            // Loss and abort.
            a_rank_that_leaves_is_lost_after_its_messages: 2, 3, 4, 7, 8;
            what_a_leaver_has_received_was_sent: 2, 3, 4, 7, 8;
            operations_that_wait_for_a_leaver_end: 2, 3, 4, 7, 8;
            a_slow_reader_is_not_lost: 2;
            an_abort_ends_its_context_on_every_rank: 1, 2, 3, 4, 7, 8;
            an_abort_of_the_world_ends_everything: 1, 2, 3, 4, 7, 8;
            who_leaves_after_an_abort_is_not_lost: 2, 3, 4, 7, 8;
            // Time.
            the_clock_never_runs_backwards: 1, 2;
            a_sleep_counts_from_its_call: 1, 2;
            // Everything at once.
            random_traffic_arrives: 1, 2, 3, 4, 7, 8;
            threads_share_a_rank: 1, 2, 3, 4, 7, 8;
        }
    };
}
