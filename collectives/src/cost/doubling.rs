//! Recursive doubling: `log2 P (alpha + n beta)` for a power of two, less what pieces save of the latencies.
//!
//! Otherwise ranks are folded into their neighbours, and the others run ahead of these: their next messages arrive beside
//! those that are still awaited, and the two share a link. How long that takes follows no short formula, so
//! it is followed message by message: O(P log P) of them, times the pieces.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{Cost, Link};
use crate::doubling::MOST_PIECES;
use crate::topology::Fold;

/// The least that is worth a message of its own, in bytes.
const PIECE: f64 = 65_536.0;

/// How many pieces of a round are followed one by one, over all ranks.
const FOLLOWED: usize = 4096;

/// Into how many pieces a vector of so many bytes is cut, the merging of which takes so many seconds: what is merged
/// after the last has come, `work / pieces`, and what messages cost, `pieces overhead`, together take the least.
pub(super) fn pieces(bytes: f64, work: f64, link: &Link) -> usize {
    let most = (bytes / PIECE).min(MOST_PIECES as f64);
    let best = if link.overhead > 0.0 { (work / link.overhead).sqrt().min(most) } else { most };
    1 << best.max(1.0).log2() as u32
}

/// The message of a round is the sum over two runs of ranks, the second of which may have none; each of its `pieces` takes
/// `size` bytes of their lengths.
pub(super) fn cost(ranks: usize, link: &Link, pieces: usize, size: impl Fn(usize, usize) -> f64) -> Cost {
    let fold = Fold::new(ranks);
    let held = Held { extra: fold.extra() };
    let bytes_of = |position, run| {
        let (low, high) = held.halves(position, run);
        size(low, high)
    };
    let piece_bytes: f64 = (0..fold.rounds()).map(|round| bytes_of(0, 1 << round)).sum();
    let result = bytes_of(0, 1 << fold.rounds());
    let network = if fold.extra() == 0 {
        let (mut free, mut ready) = (0.0_f64, vec![0.0_f64; pieces]);
        for round in 0..fold.rounds() {
            let needs = link.occupancy(bytes_of(0, 1 << round));
            for ready in &mut ready {
                free = free.max(*ready) + needs;
                *ready = free + link.alpha;
            }
        }
        ready.last().copied().unwrap_or_default()
    } else {
        // Among many ranks, several pieces as one: alike enough, and fewer to follow.
        let coarser = pieces.min((FOLLOWED >> fold.rounds()).max(1));
        let together = (pieces / coarser) as f64;
        let needs = |position, round: u32| together * link.occupancy(bytes_of(position, 1 << round));
        let handed = together * link.occupancy(size(1, 0));
        Rounds::new(fold, link.alpha, coarser, handed, needs).run()
    };
    let back = fold.extra() > 0;
    let messages = u64::from(fold.rounds()) + u64::from(back);
    Cost {
        rounds: fold.longest_chain(),
        messages: messages * pieces as u64,
        bytes: pieces as f64 * (piece_bytes + if back { result } else { 0.0 }),
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

/// The rounds of all positions, each of which goes on with a piece once it has arrived. What a folded rank hands over is that
/// of round 0, and what its neighbour hands back that of the last.
struct Rounds<F> {
    fold: Fold,
    alpha: f64,
    pieces: usize,
    /// For how long a piece of a position's in a round, counted from 0 without the folded ranks', occupies a link.
    needs: F,
    positions: Vec<Position>,
    /// What happens when, by the bits of the time, which are in its order.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    caused: u64,
}

#[derive(Clone, Default)]
struct Position {
    /// What is awaited next.
    round: usize,
    piece: usize,
    /// By round, the pieces that are here.
    received: Vec<usize>,
    /// When its link is free to send.
    free: f64,
    /// When its result, or that of the rank folded into it, is whole.
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
    Begins { to: usize, round: usize, needs: u64 },
    Ends { at: usize },
}

/// The pieces of one round, which come from one rank, one after the other.
#[derive(Clone)]
struct Arriving {
    round: usize,
    /// The first is done once the work has grown to this.
    until: f64,
    /// What the others need.
    others: VecDeque<f64>,
}

impl<F: Fn(usize, u32) -> f64> Rounds<F> {
    fn new(fold: Fold, alpha: f64, pieces: usize, handed: f64, needs: F) -> Self {
        let rounds = fold.rounds() as usize + 1;
        let position = Position { received: vec![0; rounds], ..Position::default() };
        let positions = vec![position; 1 << fold.rounds()];
        let mut all = Self { fold, alpha, pieces, needs, positions, events: BinaryHeap::new(), caused: 0 };
        for position in 0..all.positions.len() {
            for piece in 0..pieces {
                if position < fold.extra() {
                    let needs = handed.to_bits();
                    let begins = handed * piece as f64 + alpha;
                    all.plan(begins, Event::Begins { to: position, round: 0, needs });
                } else {
                    all.positions[position].round = 1;
                    all.send(position, 1, 0.0);
                }
            }
        }
        all
    }

    /// When the last rank has the sum of all.
    fn run(mut self) -> f64 {
        while let Some(Reverse((time, number, event))) = self.events.pop() {
            let now = f64::from_bits(time);
            match event {
                Event::Begins { to, round, needs } => {
                    let there = &mut self.positions[to];
                    there.advance(now);
                    let needs = f64::from_bits(needs);
                    match there.arriving.iter_mut().find(|arriving| arriving.round == round) {
                        Some(arriving) => arriving.others.push_back(needs),
                        None => {
                            let until = there.work + needs;
                            there.arriving.push(Arriving { round, until, others: VecDeque::new() });
                        }
                    }
                    self.plan_end(to);
                }
                Event::Ends { at } if self.positions[at].next == number => {
                    let there = &mut self.positions[at];
                    there.advance(now);
                    let Some(first) = there.first() else { continue };
                    let done = &mut there.arriving[first];
                    let round = done.round;
                    there.work = done.until;
                    match done.others.pop_front() {
                        Some(needs) => done.until += needs,
                        None => drop(there.arriving.swap_remove(first)),
                    }
                    there.received[round] += 1;
                    self.plan_end(at);
                    self.go_on(at, now);
                }
                Event::Ends { .. } => {}
            }
        }
        self.positions.iter().map(|position| position.end).fold(0.0, f64::max)
    }

    fn go_on(&mut self, at: usize, now: f64) {
        while let position = &mut self.positions[at]
            && position.received.get(position.round).is_some_and(|received| *received > position.piece)
        {
            position.end = position.end.max(now);
            let next = position.round + 1;
            position.piece += 1;
            if position.piece == self.pieces {
                (position.round, position.piece) = (next, 0);
            }
            self.send(at, next, now);
        }
    }

    /// Sends a piece in this round, or in the one after the last to the folded rank if there is one.
    fn send(&mut self, from: usize, round: usize, now: f64) {
        let needs = (self.needs)(from, round as u32 - 1);
        let is_last = round > self.fold.rounds() as usize;
        let position = &mut self.positions[from];
        if is_last && from >= self.fold.extra() {
            return;
        }
        let begins = position.free.max(now);
        position.free = begins + needs;
        if is_last {
            position.end = position.end.max(position.free + self.alpha);
        } else {
            let to = from ^ (1 << (round - 1));
            self.plan(begins + self.alpha, Event::Begins { to, round, needs: needs.to_bits() });
        }
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
