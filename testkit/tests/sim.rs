//! Worlds in virtual time: exact times of cases computed by hand, and the laws of the contract.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use bytes::Bytes;
use testkit::conformance::{self, LAWS, PATIENCE};
use testkit::sim::{self, Network, Simulator};
use transport::{Rank, Tag, Transport};

const TAG: Tag = Tag::new(0, 1);

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn zeros(length: usize) -> Bytes {
    vec![0; length].into()
}

/// 10 us of latency, and 1 us for 1000 bytes.
fn network(ranks: usize) -> Network {
    Network::new(ranks).alpha(micros(10)).rate(1e9)
}

/// When a message from each of `senders`, of so many bytes, has arrived at rank 0.
fn incast(network: &Network, senders: &[(u32, usize)]) -> Vec<Duration> {
    let run = sim::run(network, |world| async move {
        let mut arrived = Vec::new();
        if world.rank() == Rank(0) {
            let receives: Vec<_> = senders.iter().map(|(from, _)| world.recv(Rank(*from), TAG)).collect();
            for receive in receives {
                receive.await.unwrap();
                arrived.push(world.now());
            }
        }
        for (_, length) in senders.iter().filter(|(from, _)| *from == world.rank().0) {
            world.send(Rank(0), TAG, zeros(*length)).await.unwrap();
        }
        arrived
    });
    run.unwrap().outputs.swap_remove(0)
}

#[test]
fn a_message_alone_takes_alpha_and_its_bytes_once() {
    for (length, time) in [(0, 10), (1000, 11), (1_000_000, 1010)] {
        assert_eq!(incast(&network(2), &[(1, length)]), [micros(time)]);
    }
    let with_overhead = network(2).overhead(micros(3));
    assert_eq!(incast(&with_overhead, &[(1, 1000)]), [micros(14)]);
}

#[test]
fn a_model_in_small_takes_as_long_as_what_it_stands_for() {
    let small = network(2).magnified(100.0, 32);
    assert_eq!(incast(&small, &[(1, 32 + 10)]), incast(&network(2), &[(1, 32 + 1000)]));
    assert_eq!(incast(&small, &[(1, 16)]), incast(&network(2), &[(1, 16)]));
}

#[test]
fn messages_that_arrive_together_share_the_link() {
    // Both get half, until the short one is done.
    assert_eq!(incast(&network(3), &[(1, 1000), (2, 3000)]), [micros(12), micros(14)]);
    // Three get a third: the shortest is done after 3 us, the next after 2 more, and the last after another.
    let times = incast(&network(4), &[(1, 1000), (2, 2000), (3, 3000)]);
    assert_eq!(times, [micros(13), micros(15), micros(16)]);
    let many: Vec<_> = (1..100).map(|from| (from, 1000)).collect();
    assert_eq!(incast(&network(100), &many).last(), Some(&micros(10 + 99)));
}

#[test]
fn messages_of_one_rank_follow_each_other() {
    let run = sim::run(&network(3).traced(), |world| async move {
        if world.rank() == Rank(0) {
            let first = world.send(Rank(1), TAG, zeros(5000));
            let second = world.send(Rank(2), TAG, zeros(1000));
            second.await.unwrap();
            assert_eq!(world.now(), micros(16));
            first.await.unwrap();
        } else {
            world.recv(Rank(0), TAG).await.unwrap();
        }
        world.now()
    });
    let run = run.unwrap();
    assert_eq!(run.ended, [micros(16), micros(15), micros(16)]);
    assert_eq!(run.time, micros(16));
    let [first, second] = run.trace[..] else { panic!("{:?}", run.trace) };
    assert_eq!((first.to, first.bytes, first.sent, first.arrived), (Rank(1), 5000, micros(0), micros(15)));
    assert_eq!((second.posted, second.sent, second.arrived), (micros(0), micros(5), micros(16)));
}

#[test]
fn both_directions_of_a_link_are_independent() {
    let run = sim::run(&network(2), |world| async move {
        let peer = Rank(1 - world.rank().0);
        let received = world.recv(peer, TAG);
        world.send(peer, TAG, zeros(1000)).await.unwrap();
        received.await.unwrap();
        world.now()
    });
    assert_eq!(run.unwrap().outputs, [micros(11); 2]);
}

#[test]
fn ranks_of_one_host_share_its_link_and_pass_messages_by_memory() {
    // Hosts {0, 1}, {2, 3}: 2 and 3 share their egress, 1 sends by memory.
    let hosts = network(4).hosts(2, micros(1), 1e10);
    assert_eq!(incast(&hosts, &[(1, 10_000), (2, 1000), (3, 1000)]), [micros(2), micros(11), micros(12)]);
}

#[test]
fn ranks_of_one_group_have_links_of_their_own_to_each_other() {
    // Groups {0, 1, 2}, {3, 4, 5}: 1 and 2 share the link of 0 inside, 3 and 4 that of its host, and neither pair waits for the other.
    let groups = network(6).groups(3, micros(1), 1e10);
    let times = incast(&groups, &[(1, 10_000), (2, 10_000), (3, 1000), (4, 1000)]);
    assert_eq!(times, [micros(3), micros(3), micros(11), micros(12)]);
    // A rank's messages follow each other inside as outside, and to itself take no time.
    let run = sim::run(&groups, |world| async move {
        let rank = world.rank().0;
        let sent: Vec<_> = if rank == 0 {
            (0..6).map(|to| world.send(Rank(to), TAG, zeros(10_000))).collect()
        } else {
            Vec::new()
        };
        world.recv(Rank(0), TAG).await.unwrap();
        let arrived = world.now();
        for send in sent {
            send.await.unwrap();
        }
        arrived
    });
    assert_eq!(run.unwrap().outputs, [0, 2, 3, 20, 30, 40].map(micros));
}

#[test]
fn a_straggler_is_slow_in_both_directions() {
    // All hosts are slow: so is everything but the latency.
    assert_eq!(incast(&network(2).stragglers(1.0, 4.0), &[(1, 1000)]), [micros(14)]);
    // Some are, others for another seed. A slow receiver delays its left neighbour's message.
    let slow = |seed| {
        let run = sim::run(&network(1000).stragglers(0.1, 10.0).seed(seed), |world| async move {
            let (rank, ranks) = (world.rank().0, world.world_size() as u32);
            let _received = world.recv(Rank((rank + ranks - 1) % ranks), TAG);
            world.send(Rank((rank + 1) % ranks), TAG, zeros(1000)).await.unwrap();
            world.now() > micros(11)
        });
        run.unwrap().outputs
    };
    let (one, other) = (slow(3), slow(4));
    let share = one.iter().filter(|is_slow| **is_slow).count();
    assert!((100..300).contains(&share), "{share} of 1000");
    assert_ne!(one, other);
}

#[test]
fn runs_with_the_same_seed_are_the_same() {
    let run = |seed| {
        let network = network(20).jitter(micros(100)).overhead(micros(1)).seed(seed).traced();
        let run = sim::run(&network, |world| async move {
            let (rank, ranks) = (world.rank().0, world.world_size() as u32);
            for round in 0..5 {
                let received: Vec<_> = (0..ranks).map(|from| world.recv(Rank(from), TAG)).collect();
                let sent: Vec<_> = (0..ranks)
                    .map(|to| world.send(Rank(to), TAG, zeros((rank * to * 37 + round) as usize)))
                    .collect();
                for (from, receive) in received.into_iter().enumerate() {
                    assert_eq!(receive.await.unwrap().len(), (rank as usize * from * 37) + round as usize);
                }
                for send in sent {
                    send.await.unwrap();
                }
            }
        });
        run.unwrap().trace
    };
    let trace = run(1);
    assert_eq!(trace.len(), 5 * 20 * 20);
    assert_eq!(trace, run(1));
    assert_ne!(trace, run(2));
}

#[test]
fn a_deadlock_names_the_ranks_that_wait_and_for_whom() {
    let run = sim::run(&network(4), |world| async move {
        if world.rank() < Rank(2) {
            world.recv(Rank(3), TAG).await.unwrap();
        }
    });
    let deadlock = run.unwrap_err();
    assert_eq!(deadlock.unfinished, [Rank(0), Rank(1)]);
    let says = deadlock.to_string();
    assert!(says.contains("these ranks wait: 0, 1; rank 0 for rank 3 under tag 0:1"), "{says}");
}

#[test]
fn time_passes_only_where_something_happens() {
    let run = sim::run(&network(2), |world| async move {
        let hour = Duration::from_secs(3600);
        // A sleep that is given up does not move the clock.
        drop(world.sleep(10 * hour));
        world.sleep(hour).await;
        assert_eq!(world.now(), hour);
    });
    assert_eq!(run.unwrap().time, Duration::from_secs(3600));
}

/// But for that of threads which share a rank, since a simulation is one thread. Up to 4 ranks: what larger worlds could
/// show is up to chance elsewhere, and here it is the same in every run.
#[test]
fn every_law_of_the_contract_holds_in_virtual_time() {
    for law in LAWS.iter().filter(|law| law.name != "threads_share_a_rank") {
        for size in law.sizes.iter().filter(|size| **size <= 4) {
            let simulator = Simulator::new(&network(*size).window(1 << 20));
            simulator.within(|| (law.check)(conformance::erased(simulator.transports()), PATIENCE));
        }
    }
}
