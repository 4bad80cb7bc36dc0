//! One host's incoming link, shared evenly by the pairs of ranks that have something to receive.
//!
//! Processor sharing by virtual work: while `n` flows are served, each gets `1/n` of the link, so the work done for any
//! of them grows alike. A message that needs `w` is done when it has grown by `w` since its turn began; the order of the ends does
//! not change by who comes later.

use std::collections::{BTreeMap, HashMap};

use super::network::Time;
use super::world::Message;
use crate::mailbox::Line;

#[derive(Default)]
pub(super) struct Ingress {
    /// The messages of each pair of ranks, of which the first is served.
    flows: HashMap<(u32, u32), Line<Job>>,
    /// Which flow's message ends at which work; the second number makes the keys unique, and the order that of arrival.
    ends: BTreeMap<(Work, u64), (u32, u32)>,
    /// Work done for each flow since the link was last idle, at `since`.
    work: f64,
    since: Time,
    arrivals: u64,
}

/// A non-negative number, by its bits, which are in the same order.
type Work = u64;

struct Job {
    message: Box<Message>,
    needs: Time,
}

impl Ingress {
    /// A message begins to arrive.
    pub(super) fn join(&mut self, now: Time, message: Box<Message>, needs: Time) {
        self.advance(now);
        let flow = (message.from, message.to);
        let queue = self.flows.entry(flow).or_default();
        queue.push_back(Job { message, needs });
        if queue.len() == 1 {
            self.begin(flow, needs);
        }
    }

    /// When the next message is done, if nothing joins before.
    pub(super) fn next(&self) -> Option<Time> {
        let ((end, _), _) = self.ends.first_key_value()?;
        let rest = (f64::from_bits(*end) - self.work).max(0.0) * self.ends.len() as f64;
        Some(self.since + rest.round() as Time)
    }

    /// Takes the message that is done [now](Self::next).
    pub(super) fn leave(&mut self, now: Time) -> Option<Box<Message>> {
        let ((end, _), flow) = self.ends.pop_first()?;
        (self.work, self.since) = (f64::from_bits(end), now);
        let queue = self.flows.get_mut(&flow)?;
        let done = queue.pop_front()?;
        match queue.get(0).map(|job| job.needs) {
            Some(needs) => self.begin(flow, needs),
            None => drop(self.flows.remove(&flow)),
        }
        if self.ends.is_empty() {
            self.work = 0.0;
        }
        Some(done.message)
    }

    fn begin(&mut self, flow: (u32, u32), needs: Time) {
        self.arrivals += 1;
        self.ends.insert(((self.work + needs as f64).to_bits(), self.arrivals), flow);
    }

    fn advance(&mut self, now: Time) {
        if let Some(((end, _), _)) = self.ends.first_key_value() {
            let done = self.work + (now - self.since) as f64 / self.ends.len() as f64;
            self.work = done.min(f64::from_bits(*end));
        }
        self.since = now;
    }
}
