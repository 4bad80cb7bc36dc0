//! The failure detector: who was silent for too long, and whom to reassure.
//!
//! Neither TCP, MPI nor libfabric reports by itself that a peer has stopped without closing. So every
//! rank lets each peer hear from it at least every quarter of the bound, and takes a peer for lost that
//! was not heard at all for longer than the bound. Any traffic counts, heartbeats only fill the gaps.
//!
//! [`Detector`] does no I/O and has no clock: the caller passes the time since some fixed moment.
//!
//! ```
//! use std::time::Duration;
//! use bootstrap::liveness::Detector;
//! use transport::Rank;
//!
//! let at = Duration::from_secs;
//! let mut detector = Detector::new(at(8));
//! detector.watch(Rank(1), at(8), at(0));
//!
//! assert_eq!(detector.next(), Some(at(2)));
//! assert_eq!(detector.poll(at(2)).heartbeats, [Rank(1)]); // nothing sent for a quarter of the bound
//! detector.heard(Rank(1), at(3));
//! for second in [4, 6, 8, 10] {
//!     assert_eq!(detector.poll(at(second)).lost, []);
//! }
//! assert_eq!(detector.poll(at(11) + Duration::from_nanos(1)).lost, [Rank(1)]); // 8 s after the last word
//! assert_eq!(detector.next(), None);
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use transport::Rank;

/// The failure detector of one rank, over the peers that it [`watch`](Detector::watch)es.
///
/// Every operation costs O(log P), [`poll`](Detector::poll) and [`next`](Detector::next) O(P).
#[derive(Clone, Debug)]
pub struct Detector {
    bound: Duration,
    peers: BTreeMap<Rank, Peer>,
    /// When [`Detector::poll`] should have been called next.
    expected: Option<Duration>,
}

/// What is to be done now.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[must_use]
pub struct Due {
    /// Send these a heartbeat; it counts as [`sent`](Detector::sent).
    pub heartbeats: Vec<Rank>,
    /// These were silent for longer than the bound. They are not watched any more.
    pub lost: Vec<Rank>,
}

#[derive(Clone, Debug)]
struct Peer {
    heard: Duration,
    sent: Duration,
    /// How long the connection to it may be idle.
    idle: Duration,
}

impl Detector {
    /// A detector that takes a peer for lost after more than `bound` without a word.
    #[must_use]
    pub const fn new(bound: Duration) -> Self {
        Self { bound, peers: BTreeMap::new(), expected: None }
    }

    /// Watches a peer from `now` on, as if something had just been sent to it and heard from it.
    ///
    /// `its_bound` is the bound that the peer's own detector has: heartbeats are sent at a quarter of
    /// the smaller of the two.
    pub fn watch(&mut self, peer: Rank, its_bound: Duration, now: Duration) {
        self.peers.insert(peer, Peer { heard: now, sent: now, idle: its_bound.min(self.bound) / 4 });
        self.expected = self.next();
    }

    /// Watches a peer no longer: it has left, or was lost in another way.
    pub fn forget(&mut self, peer: Rank) {
        self.peers.remove(&peer);
    }

    /// Something arrived from the peer.
    pub fn heard(&mut self, peer: Rank, at: Duration) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.heard = peer.heard.max(at);
        }
    }

    /// Something was sent to the peer.
    pub fn sent(&mut self, peer: Rank, at: Duration) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.sent = peer.sent.max(at);
        }
    }

    /// What is due at `now`. Call it at [`next`](Detector::next), or earlier.
    ///
    /// When it is called much later than that, this process itself was stopped or starved, and what
    /// the peers said meanwhile may still wait unread: the delay is not counted as their silence.
    pub fn poll(&mut self, now: Duration) -> Due {
        let late = self.expected.map_or(Duration::ZERO, |expected| now.saturating_sub(expected));
        if late > self.bound / 4 {
            for peer in self.peers.values_mut() {
                peer.heard = peer.heard.max((peer.heard + late).min(now));
            }
        }
        let mut due = Due::default();
        let bound = self.bound;
        self.peers.retain(|&rank, peer| {
            if now.saturating_sub(peer.heard) > bound {
                due.lost.push(rank);
                return false;
            }
            if now.saturating_sub(peer.sent) >= peer.idle {
                peer.sent = now;
                due.heartbeats.push(rank);
            }
            true
        });
        self.expected = self.next();
        due
    }

    /// When something will be due next, unless something is heard or sent before. `None` when nobody
    /// is watched.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        let lost_after = self.bound.saturating_add(Duration::from_nanos(1));
        let next =
            |peer: &Peer| peer.sent.saturating_add(peer.idle).min(peer.heard.saturating_add(lost_after));
        self.peers.values().map(next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const BOUND: u64 = 1_000;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn watching(peers: u32) -> Detector {
        let mut detector = Detector::new(ms(BOUND));
        (0..peers).for_each(|peer| detector.watch(Rank(peer), ms(BOUND), ms(0)));
        detector
    }

    /// Polls whenever something is due, up to and including `until`.
    fn poll_until(detector: &mut Detector, until: Duration) -> Vec<(Duration, Due)> {
        let mut all = Vec::new();
        while let Some(next) = detector.next().filter(|next| *next <= until) {
            all.push((next, detector.poll(next)));
        }
        all
    }

    proptest! {
        #[test]
        fn a_peer_is_lost_just_after_its_last_word_and_the_bound(gaps in vec(0..=BOUND, 0..20)) {
            let mut detector = watching(1);
            let mut now = 0;
            for gap in gaps {
                now += gap;
                let before = poll_until(&mut detector, ms(now));
                prop_assert!(before.iter().all(|(_, due)| due.lost.is_empty()));
                detector.heard(Rank(0), ms(now));
            }
            let after = poll_until(&mut detector, ms(now + 10 * BOUND));
            let (at, due) = after.last().unwrap();
            prop_assert_eq!(&due.lost, &[Rank(0)]);
            prop_assert_eq!(*at, ms(now + BOUND) + Duration::from_nanos(1));
        }

        #[test]
        fn the_line_is_never_idle_for_longer_than_a_quarter(sends in vec(0..600_u64, 0..20)) {
            let mut detector = watching(1);
            let (mut now, mut times) = (0, vec![ms(0)]);
            for gap in sends {
                now += gap;
                for (at, due) in poll_until(&mut detector, ms(now)) {
                    times.extend(due.heartbeats.iter().map(|_| at));
                }
                detector.heard(Rank(0), ms(now));
                detector.sent(Rank(0), ms(now));
                times.push(ms(now));
            }
            prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= ms(BOUND / 4)));
        }

        #[test]
        fn two_detectors_keep_each_other_alive(latency in 1..BOUND / 2, skew in 0..BOUND / 8) {
            let (mut one, mut other) = (watching(1), watching(1));
            let mut on_the_way: Vec<(u64, bool)> = Vec::new();
            for now in 0..20 * BOUND {
                on_the_way.retain(|&(arrival, to_one)| {
                    if arrival == now {
                        if to_one { &mut one } else { &mut other }.heard(Rank(0), ms(now));
                    }
                    arrival > now
                });
                for (detector, to_one) in [(&mut one, false), (&mut other, true)] {
                    if detector.next().is_some_and(|next| next + ms(skew) <= ms(now)) {
                        let due = detector.poll(ms(now));
                        prop_assert!(due.lost.is_empty());
                        on_the_way.extend(due.heartbeats.iter().map(|_| (now + latency, to_one)));
                    }
                }
            }
        }

        #[test]
        fn a_stalled_poller_blames_nobody_at_once(stall in BOUND..100 * BOUND) {
            let mut detector = watching(3);
            poll_until(&mut detector, ms(BOUND / 2));
            let wake = ms(BOUND / 2 + stall);
            prop_assert_eq!(detector.poll(wake).lost, &[]);
            // But those that stay silent are lost soon after.
            let lost: Vec<Rank> = poll_until(&mut detector, wake + ms(BOUND)).into_iter().flat_map(|(_, due)| due.lost).collect();
            prop_assert_eq!(lost, &[Rank(0), Rank(1), Rank(2)]);
        }
    }

    #[test]
    fn a_lost_or_forgotten_peer_is_not_mentioned_again() {
        let mut detector = watching(2);
        detector.forget(Rank(1));
        let mentioned: Vec<Due> =
            poll_until(&mut detector, ms(50 * BOUND)).into_iter().map(|(_, due)| due).collect();
        assert_eq!(mentioned.iter().filter(|due| due.lost == [Rank(0)]).count(), 1);
        assert!(mentioned.iter().all(|due| !due.heartbeats.contains(&Rank(1))));
        assert_eq!(detector.next(), None);
    }

    #[test]
    fn a_less_patient_peer_is_reassured_more_often() {
        let mut detector = Detector::new(ms(BOUND));
        detector.watch(Rank(0), ms(BOUND / 10), ms(0));
        assert_eq!(detector.next(), Some(ms(BOUND / 40)));
    }
}
