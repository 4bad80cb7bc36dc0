//! The state of a simulation: the clock, what is to happen, links and mailboxes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use transport::{Error, Rank, Scope, Tag};

use super::Record;
use super::ingress::Ingress;
use super::network::{Network, Time, duration};
use crate::mailbox::{Mailbox, Sending};

/// Maps that are the same in every run.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// When something happens: events of the same time in the order in which they were caused.
pub(super) type When = (Time, u64);

pub(crate) struct World {
    pub(super) network: Network,
    state: Mutex<State>,
}

struct State {
    now: Time,
    caused: u64,
    agenda: BTreeMap<When, Event>,
    /// By [link](Network::links).
    egress: Vec<Egress>,
    ingress: Vec<Ingoing>,
    /// By the receiver, then by the sender. Made when first needed.
    mailboxes: Vec<Map<u32, Mailbox>>,
    /// When the last message of a pair began to arrive, where latencies differ.
    last: Map<(u32, u32), Time>,
    /// Messages of each rank that are on their way.
    travelling: Vec<u32>,
    aborted: Vec<(Scope, Error)>,
    left: Vec<Leaving>,
    trace: Vec<Record>,
}

/// A link, as far as it goes out.
#[derive(Default)]
struct Egress {
    /// Until when it is occupied.
    until: Time,
    /// When the first of its messages begins to arrive, which is on the agenda; those after it, in their order, are not yet, so
    /// that the agenda is short.
    first: Option<When>,
    later: VecDeque<(When, Box<Message>)>,
}

/// A link, as far as it comes in, and when its next message is done.
#[derive(Default)]
struct Ingoing {
    ingress: Ingress,
    next: Option<When>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// Once its messages have arrived.
    Soon,
    Gone,
}

/// Small, since there are many of them in an order that changes.
enum Event {
    /// A message begins to arrive over its link.
    Head(Box<Message>),
    /// The next message that comes in over a link is done.
    Done(usize),
    /// A message is there.
    Arrived(Box<Message>),
    Wake(Waker),
}

/// On its way.
pub(super) struct Message {
    pub(super) from: u32,
    pub(super) to: u32,
    tag: Tag,
    payload: Bytes,
    delivery: Arc<Mutex<Delivery>>,
    posted: Time,
    sent: Time,
    /// When its last byte can be there at the earliest.
    tail: Time,
}

/// What a send and its message share.
pub(super) enum Delivery {
    Travels(Option<Waker>),
    /// From here on the mailbox knows.
    Arrived(Sending),
}

impl World {
    pub(super) fn new(network: &Network) -> Self {
        let links = network.links_in_all();
        let state = State {
            now: 0,
            caused: 0,
            agenda: BTreeMap::new(),
            egress: (0..links).map(|_| Egress::default()).collect(),
            ingress: (0..links).map(|_| Ingoing::default()).collect(),
            mailboxes: vec![Map::default(); network.ranks],
            last: Map::default(),
            travelling: vec![0; network.ranks],
            aborted: Vec::new(),
            left: vec![Leaving::No; network.ranks],
            trace: Vec::new(),
        };
        Self { network: network.clone(), state: Mutex::new(state) }
    }

    pub(super) fn now(&self) -> Time {
        self.lock().now
    }

    pub(super) fn check_rank(&self, rank: Rank) -> Result<(), Error> {
        Error::check_rank(rank, self.network.ranks)
    }

    /// The mailbox from a rank to another, both of this world.
    pub(super) fn mailbox(&self, from: Rank, to: Rank) -> Mailbox {
        self.lock().mailbox(&self.network, from.0, to.0)
    }

    /// Sends a message on its way.
    pub(super) fn post(&self, from: Rank, to: Rank, tag: Tag, payload: Bytes) -> Arc<Mutex<Delivery>> {
        let network = &self.network;
        let mut state = self.lock();
        let now = state.now;
        let delivery = Arc::new(Mutex::new(Delivery::Travels(None)));
        let bytes = payload.len();
        let (from, to) = (from.0, to.0);
        let mut message = Box::new(Message {
            from,
            to,
            tag,
            payload,
            delivery: Arc::clone(&delivery),
            posted: now,
            sent: now,
            tail: now.saturating_add(network.by_memory(bytes)),
        });
        if let Some(travelling) = state.travelling.get_mut(from as usize) {
            *travelling += 1;
        }
        let Some((link, _)) = network.links(from, to) else {
            state.plan(message.tail, Event::Arrived(message));
            return delivery;
        };
        let occupancy = network.occupancy(link, bytes);
        if let Some(Egress { until, .. }) = state.egress.get_mut(link) {
            message.sent = now.max(*until);
            *until = message.sent.saturating_add(occupancy);
        }
        let mut head = message.sent.saturating_add(network.latency(link, state.caused));
        if network.has_jitter() {
            let last = state.last.entry((from, to)).or_default();
            head = head.max(*last);
            *last = head;
        }
        message.tail = head.saturating_add(occupancy);
        state.plan_head(link, head, message);
        delivery
    }

    /// Wakes at a time, unless [`forget`](Self::forget) comes first; what was planned for this before wakes nobody else.
    pub(super) fn wake_at(&self, time: Time, planned: Option<When>, waker: &Waker) -> When {
        let mut state = self.lock();
        match planned.and_then(|when| Some((when, state.agenda.get_mut(&when)?))) {
            Some((when, Event::Wake(known))) => {
                known.clone_from(waker);
                // As if planned anew, since latencies are drawn by the number of what was planned before.
                state.caused += 1;
                when
            }
            _ => state.plan(time, Event::Wake(waker.clone())),
        }
    }

    pub(super) fn forget(&self, when: When) {
        self.lock().agenda.remove(&when);
    }

    /// Lets the next thing happen. False: there is nothing.
    pub(super) fn step(&self) -> bool {
        let mut state = self.lock();
        let Some((when, event)) = state.agenda.pop_first() else { return false };
        let now = when.0;
        state.now = now;
        match event {
            Event::Wake(waker) => {
                drop(state);
                waker.wake();
            }
            Event::Head(message) => {
                if let Some((out, link)) = self.network.links(message.from, message.to) {
                    state.plan_later(out, when);
                    let needs = self.network.occupancy(link, message.payload.len());
                    if let Some(ingoing) = state.ingress.get_mut(link) {
                        ingoing.ingress.join(now, message, needs);
                    }
                    state.plan_next(link);
                }
            }
            Event::Done(link) => {
                let done = state.ingress.get_mut(link).and_then(|ingoing| ingoing.ingress.leave(now));
                state.plan_next(link);
                match done {
                    Some(message) if message.tail > now => {
                        state.plan(message.tail, Event::Arrived(message));
                    }
                    Some(message) => self.arrive(state, *message),
                    None => {}
                }
            }
            Event::Arrived(message) => self.arrive(state, *message),
        }
        true
    }

    fn arrive(&self, mut state: MutexGuard<'_, State>, message: Message) {
        let Message { from, to, tag, payload, delivery, posted, sent, .. } = message;
        if self.network.traced {
            let [posted, sent, arrived] = [posted, sent, state.now].map(duration);
            let (from, to, bytes) = (Rank(from), Rank(to), payload.len());
            state.trace.push(Record { from, to, tag, bytes, posted, sent, arrived });
        }
        let mailbox = state.mailbox(&self.network, from, to);
        let sending = mailbox.send(tag, payload);
        let mut delivery = delivery.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = match std::mem::replace(&mut *delivery, Delivery::Arrived(sending)) {
            Delivery::Travels(waker) => waker,
            Delivery::Arrived(_) => None,
        };
        drop(delivery);
        if let Some(travelling) = state.travelling.get_mut(from as usize) {
            *travelling -= 1;
            if *travelling == 0 && state.left.get(from as usize) == Some(&Leaving::Soon) {
                state.depart(from);
            }
        }
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends operations in a scope, everywhere and at once.
    pub(super) fn abort(&self, by: Rank, scope: Scope, reason: &str) {
        let mut state = self.lock();
        if state.aborted.iter().any(|(known, _)| *known == scope) {
            return;
        }
        let error = Error::Aborted { by, scope, reason: reason.into() };
        state.aborted.push((scope, error.clone()));
        for mailbox in state.mailboxes.iter().flat_map(Map::values) {
            mailbox.abort(scope, &error);
        }
    }

    /// A rank has no handle any more.
    pub(super) fn leave(&self, rank: Rank) {
        let mut state = self.lock();
        if let Some(left) = state.left.get_mut(rank.index()) {
            *left = Leaving::Soon;
        }
        // Its own operations end at once, and nothing more can be sent to it.
        if let Some(incoming) = state.mailboxes.get_mut(rank.index()) {
            incoming.retain(|_, mailbox| {
                let in_use = !mailbox.is_empty();
                if in_use {
                    close_incoming(mailbox, rank);
                }
                in_use
            });
        }
        if state.travelling.get(rank.index()) == Some(&0) {
            state.depart(rank.0);
        }
    }

    /// What the receivers of this world wait for: who, from whom, under which tag.
    pub(super) fn waits(&self) -> Vec<(Rank, Rank, Tag)> {
        let state = self.lock();
        let mut waits = Vec::new();
        for (to, incoming) in state.mailboxes.iter().enumerate() {
            for (from, mailbox) in incoming {
                let tags = mailbox.waited_for().into_iter();
                waits.extend(tags.map(|tag| (Rank::from_index(to), Rank(*from), tag)));
            }
        }
        waits.sort_unstable();
        waits
    }

    pub(super) fn take_trace(&self) -> Vec<Record> {
        std::mem::take(&mut self.lock().trace)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of a rank leaves the state whole: it happens outside.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn plan(&mut self, time: Time, event: Event) -> When {
        let when = (time, self.caused);
        self.caused += 1;
        self.agenda.insert(when, event);
        when
    }

    /// Plans when a message that goes out over a link begins to arrive.
    fn plan_head(&mut self, link: usize, time: Time, message: Box<Message>) {
        let when = (time, self.caused);
        self.caused += 1;
        match self.egress.get_mut(link) {
            // Latencies that differ may bring it before those that left earlier.
            Some(Egress { first: Some(first), later, .. })
                if later.back().map_or(*first, |(last, _)| *last) < when =>
            {
                later.push_back((when, message));
                return;
            }
            Some(Egress { first: Some(_), .. }) => {}
            Some(Egress { first, .. }) => *first = Some(when),
            None => {}
        }
        self.agenda.insert(when, Event::Head(message));
    }

    /// Plans the message that goes out over a link after the one that begins to arrive now.
    fn plan_later(&mut self, link: usize, now: When) {
        let egress = self.egress.get_mut(link).filter(|egress| egress.first == Some(now));
        if let Some(Egress { first, later, .. }) = egress {
            let next = later.pop_front();
            *first = next.as_ref().map(|(when, _)| *when);
            self.agenda.extend(next.map(|(when, message)| (when, Event::Head(message))));
        }
    }

    /// Plans the end of the message that comes in over a link and is done next.
    fn plan_next(&mut self, link: usize) {
        let Some(ingoing) = self.ingress.get_mut(link) else { return };
        let (planned, next) = (ingoing.next.take(), ingoing.ingress.next());
        if let Some(planned) = planned {
            self.agenda.remove(&planned);
        }
        let next = next.map(|time| self.plan(time, Event::Done(link)));
        if let Some(ingoing) = self.ingress.get_mut(link) {
            ingoing.next = next;
        }
    }

    fn mailbox(&mut self, network: &Network, from: u32, to: u32) -> Mailbox {
        let known = self.mailboxes.get(to as usize).and_then(|incoming| incoming.get(&from));
        if let Some(mailbox) = known {
            return mailbox.clone();
        }
        let mailbox = Mailbox::new(network.window);
        for (scope, error) in &self.aborted {
            mailbox.abort(*scope, error);
        }
        if self.left.get(to as usize).is_some_and(|left| *left != Leaving::No) {
            close_incoming(&mailbox, Rank(to));
        }
        if self.left.get(from as usize) == Some(&Leaving::Gone) {
            mailbox.close_receives(&lost(Rank(from)));
        }
        if let Some(incoming) = self.mailboxes.get_mut(to as usize) {
            incoming.insert(from, mailbox.clone());
        }
        mailbox
    }

    /// All that a leaver has sent has arrived: there will be no more.
    fn depart(&mut self, rank: u32) {
        if let Some(left) = self.left.get_mut(rank as usize) {
            *left = Leaving::Gone;
        }
        for mailbox in self.mailboxes.iter().filter_map(|incoming| incoming.get(&rank)) {
            mailbox.close_receives(&lost(Rank(rank)));
        }
    }
}

fn close_incoming(mailbox: &Mailbox, leaver: Rank) {
    mailbox.close_sends(&lost(leaver));
    drop(mailbox.drain());
    mailbox.close_receives(&Error::Backend {
        detail: "this rank has left: its last handle is gone".into(),
        source: None,
    });
}

fn lost(rank: Rank) -> Error {
    Error::peer_lost(rank, "it has left")
}
