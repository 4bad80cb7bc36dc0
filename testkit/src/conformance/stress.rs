//! Everything at once.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use chacha20::ChaCha8Rng;
use futures_util::future::{join, join_all};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use transport::{AnyTransport, Rank, Tag, Transport};

use super::{KIB, Letters, left, on_each_rank, poll_once, right, same_bytes};

/// Random messages between random ranks under random tags, with pauses, abandoned receives and abandoned
/// sends, drawn from fixed seeds: every message arrives in its place.
///
/// Contract: *Matching*, *posted at the call* and *dropping a future abandons it*, together.
pub fn random_traffic_arrives(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        for seed in 0..3 {
            let plan = plan(seed, world.world_size());
            let of_rank = u64::from(world.rank().0) + 1;
            let mut dice = ChaCha8Rng::seed_from_u64(seed << 32 | of_rank);
            let mine = plan.iter().filter(|(letters, _)| letters.from == world.rank());
            let send_all = async {
                let mut sends = Vec::new();
                for (letters, index) in mine {
                    let send = world.send(letters.to, letters.tag, letters.number(*index));
                    match dice.random_range(0..8) {
                        0 => drop(send),
                        1 => send.await.expect("a send completes"),
                        2 => world.sleep(Duration::from_micros(dice.random_range(0..500))).await,
                        _ => sends.push(send),
                    }
                }
                assert!(join_all(sends).await.iter().all(Result::is_ok), "sends complete");
            };
            let mut dice = ChaCha8Rng::seed_from_u64(seed << 32 | of_rank << 16);
            let receive_all = async {
                let mut channels = BTreeMap::<_, Vec<_>>::new();
                for (letters, index) in plan.iter().filter(|(letters, _)| letters.to == world.rank()) {
                    channels.entry((letters.from, letters.tag)).or_default().push((*letters, *index));
                }
                let mut order: Vec<_> =
                    channels.iter().flat_map(|(key, all)| vec![*key; all.len()]).collect();
                order.shuffle(&mut dice);
                let mut channels: BTreeMap<_, _> =
                    channels.into_iter().map(|(key, all)| (key, all.into_iter())).collect();
                let mut receives = Vec::new();
                for (from, tag) in order {
                    let Some((letters, index)) = channels.get_mut(&(from, tag)).and_then(Iterator::next)
                    else {
                        unreachable!("the order has one entry for each message")
                    };
                    let mut receive = Box::pin(world.recv(from, tag));
                    match dice.random_range(0..8) {
                        0 => receive = Box::pin(world.recv(from, tag)),
                        1 => world.sleep(Duration::from_micros(dice.random_range(0..500))).await,
                        2 => {
                            if let Poll::Ready(received) = poll_once(&mut receive) {
                                letters.check(index, received);
                                continue;
                            }
                            receive = Box::pin(world.recv(from, tag));
                        }
                        _ => {}
                    }
                    receives.push(async move { letters.check(index, receive.await) });
                }
                receives.shuffle(&mut dice);
                join_all(receives).await;
            };
            join(send_all, receive_all).await;
        }
    });
}

/// Several threads use one rank at the same time, each under a tag of its own.
///
/// Contract: [`Transport`] is `Sync`.
pub fn threads_share_a_rank(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let next_thread = std::sync::atomic::AtomicU32::new(0);
        crate::run_world_within(patience, vec![world; 3], |world| {
            let thread = next_thread.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move {
                let (tag, from, to) = (Tag::new(0, thread), left(&world), right(&world));
                for round in 0..100 {
                    let word = super::payload(round, 100);
                    let received = world.recv(from, tag);
                    world.send(to, tag, word.clone()).await.expect("a send completes");
                    same_bytes(&received.await.expect("a message arrives"), &word, "the message");
                }
            }
        });
    });
}

/// The messages of a run, in the order of their sends: which letters, and which of them.
fn plan(seed: u64, size: usize) -> Vec<(Letters, usize)> {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut counts = BTreeMap::new();
    (0..100 + 50 * size)
        .map(|_| {
            let [from, to] = [0; 2].map(|_| Rank::from_index(dice.random_range(0..size)));
            let number = dice.random_range(0..4_u32);
            let limit = [KIB, 50 * KIB, KIB, 400 * KIB][number as usize];
            let letters = Letters { from, to, tag: Tag::new(seed as u32, number), limit };
            let count: &mut usize = counts.entry((from, to, number)).or_default();
            *count += 1;
            (letters, *count - 1)
        })
        .collect()
}
