//! Recursive doubling: `log2 P (alpha + n beta)` for a power of two.
//!
//! Otherwise ranks are folded into their neighbours, and the others run ahead of these: their next messages arrive beside
//! those that are still awaited, and the two share a link. How long that takes follows no short formula, so
//! it is followed message by message: O(P log P) of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Cost, Link};
use crate::topology::Fold;

/// The message of a round is the sum over two runs of ranks, the second of which may have none; its bytes are `size`
/// of their lengths.
pub(super) fn cost(ranks: usize, link: &Link, size: impl Fn(usize, usize) -> f64) -> Cost {
    let fold = Fold::new(ranks);
    let held = Held { extra: fold.extra() };
    let bytes_of = |position, run| {
        let (low, high) = held.halves(position, run);
        size(low, high)
    };
    let bytes: f64 = (0..fold.rounds()).map(|round| bytes_of(0, 1 << round)).sum();
    let result = bytes_of(0, 1 << fold.rounds());
    let network = if fold.extra() == 0 {
        (0..fold.rounds()).map(|round| link.message(bytes_of(0, 1 << round))).sum()
    } else {
        let needs = |position, round: u32| link.occupancy(bytes_of(position, 1 << round));
        let handed = link.occupancy(size(1, 0));
        let ends = Rounds::new(fold, link.alpha, handed, needs).run();
        let back = ends.iter().take(fold.extra()).map(|end| end + link.message(result));
        back.chain(ends.iter().copied()).fold(0.0, f64::max)
    };
    let back = fold.extra() > 0;
    Cost {
        rounds: fold.longest_chain(),
        messages: u64::from(fold.rounds()) + u64::from(back),
        bytes: bytes + if back { result } else { 0.0 },
        network,
        ..Cost::default()
    }
}

/// How many ranks' sums positions hold: those before `extra` have two ranks.
struct Held {
    extra: usize,
}

impl Held {
    /// Of the run of so many positions around this one: its lower and its upper half.
    fn halves(&self, position: usize, run: usize) -> (usize, usize) {
        let first = position & !(run - 1);
        let ranks = |first: usize, run: usize| run + self.extra.saturating_sub(first).min(run);
        if run == 1 {
            (1, ranks(first, 1) - 1)
        } else {
            (ranks(first, run / 2), ranks(first + run / 2, run / 2))
        }
    }
}

/// The round in which a folded rank's sum is awaited.
const HANDED: u32 = 63;

/// The rounds of all positions, each of which goes on once its message has arrived and its partner's is there.
struct Rounds<F> {
    fold: Fold,
    alpha: f64,
    /// For how long the message of a position in a round occupies a link.
    needs: F,
    positions: Vec<Position>,
    /// What happens when, by the bits of the time, which are in its order.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    caused: u64,
}

#[derive(Clone, Default)]
struct Position {
    round: u32,
    sent: bool,
    /// A bit for each round whose message is here.
    received: u64,
    end: f64,
    arriving: Vec<Arriving>,
    /// Work done for each of those that arrive, at `since`.
    work: f64,
    since: f64,
    /// The number of the event that is the end of the first of these.
    next: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begins { to: usize, from: usize, round: u32, needs: u64 },
    Ends { at: usize },
}

#[derive(Clone, Copy)]
struct Arriving {
    from: usize,
    round: u32,
    /// Done once the work has grown to this.
    until: f64,
}

impl<F: Fn(usize, u32) -> f64> Rounds<F> {
    fn new(fold: Fold, alpha: f64, handed: f64, needs: F) -> Self {
        let positions = vec![Position::default(); 1 << fold.rounds()];
        let mut rounds = Self { fold, alpha, needs, positions, events: BinaryHeap::new(), caused: 0 };
        for position in 0..rounds.positions.len() {
            if position < fold.extra() {
                rounds.positions[position].round = HANDED;
                rounds.positions[position].sent = true;
                let needs = handed.to_bits();
                rounds.plan(alpha, Event::Begins { to: position, from: position, round: HANDED, needs });
            } else {
                rounds.send(position, 0.0);
            }
        }
        rounds
    }

    /// When each position has the sum of all.
    fn run(mut self) -> Vec<f64> {
        while let Some(Reverse((time, number, event))) = self.events.pop() {
            let now = f64::from_bits(time);
            match event {
                Event::Begins { to, from, round, needs } => {
                    let there = &mut self.positions[to];
                    there.advance(now);
                    let until = there.work + f64::from_bits(needs);
                    there.arriving.push(Arriving { from, round, until });
                    self.plan_end(to);
                }
                Event::Ends { at } if self.positions[at].next == number => {
                    let there = &mut self.positions[at];
                    there.advance(now);
                    let Some(first) = there.first() else { continue };
                    let Arriving { from, round, until } = there.arriving.swap_remove(first);
                    there.work = until;
                    there.received |= 1 << round;
                    self.plan_end(at);
                    if round != HANDED {
                        self.positions[from].sent = true;
                        self.go_on(from, now);
                    }
                    self.go_on(at, now);
                }
                Event::Ends { .. } => {}
            }
        }
        self.positions.into_iter().map(|position| position.end).collect()
    }

    fn go_on(&mut self, at: usize, now: f64) {
        let position = &mut self.positions[at];
        if position.sent && position.received >> position.round & 1 == 1 {
            position.round = if position.round == HANDED { 0 } else { position.round + 1 };
            position.end = now;
            if position.round < self.fold.rounds() {
                self.send(at, now);
            } else {
                // There is no such round.
                position.round = HANDED - 1;
            }
        }
    }

    fn send(&mut self, from: usize, now: f64) {
        let round = self.positions[from].round;
        self.positions[from].sent = false;
        let needs = (self.needs)(from, round).to_bits();
        self.plan(now + self.alpha, Event::Begins { to: from ^ (1 << round), from, round, needs });
    }

    fn plan_end(&mut self, at: usize) {
        let position = &self.positions[at];
        if let Some(first) = position.first() {
            let rest = (position.arriving[first].until - position.work).max(0.0);
            let time = position.since + rest * position.arriving.len() as f64;
            self.positions[at].next = self.plan(time, Event::Ends { at });
        }
    }

    fn plan(&mut self, time: f64, event: Event) -> u64 {
        self.caused += 1;
        self.events.push(Reverse((time.to_bits(), self.caused, event)));
        self.caused
    }
}

impl Position {
    fn advance(&mut self, now: f64) {
        self.work += (now - self.since) / self.arriving.len().max(1) as f64;
        self.since = now;
    }

    /// Which of those that arrive is done first.
    fn first(&self) -> Option<usize> {
        (0..self.arriving.len()).min_by(|a, b| self.arriving[*a].until.total_cmp(&self.arriving[*b].until))
    }
}
