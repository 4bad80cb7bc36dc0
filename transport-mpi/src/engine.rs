//! What is under way in MPI, and how it moves on. One thread at a time does so.
//!
//! Small messages are received into slots that are always posted, so that the latency path is one test of the first
//! slot. A long message follows its header on a second channel: the header says how long it is, so its receive is
//! posted to memory of the right size, and MPI's own rendezvous moves it there without a copy.

mod arrivals;
pub(crate) mod leave;
mod sends;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use matching::{Aborts, Completion, Effects, Inbox, Limits, MESSAGE_COST};
use transport::{Buffers, Error, Rank, Scope, Tag};

use crate::MpiError;
use crate::frame::Frame;
use crate::raw::{BulkRecv, BulkSend, Comm, Memory, Slot, SmallSend};

/// How many small messages can arrive before the engine turns again; more wait in MPI.
const SLOTS: usize = 64;
/// How often a pending future tries to make progress before it lets others have the thread.
const TURNS: usize = 16;
/// What is under way beside the slots is looked at in every so many turns even when messages keep coming.
const BUSY_TURNS: u32 = 8;

pub(crate) struct Engine {
    comm: Comm,
    rank: Rank,
    max_piece: usize,
    /// What of the window may be consumed before the peer is told by a message of its own.
    owed_limit: u64,
    aborts: Arc<Aborts>,
    /// What must wait until nobody uses this.
    pub(crate) later: Later,
    slots: Vec<Slot>,
    /// The slot that the next message comes to.
    front: usize,
    /// How many slots before it are to be posted again.
    empty: usize,
    turns: u32,
    peers: Vec<Peer>,
    /// With their receivers.
    small: VecDeque<(Rank, SmallSend)>,
    spare: Vec<Memory>,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    /// MPI can no longer be used here.
    closed: bool,
}

/// What a peer can take, as it said at the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) window: u64,
    pub(crate) max_message: u64,
    pub(crate) max_announced: u32,
}

struct Peer {
    /// Of this rank itself: what it sends to itself.
    inbox: Inbox,
    /// What of the window was consumed and the peer does not know yet.
    owed: u64,
    terms: Terms,
    /// What is left of its window.
    room: u64,
    /// Messages that it has not asked for, by id.
    announced: HashMap<u64, Announced>,
    next_id: u64,
    /// Why nothing can be sent to it any more.
    over: Option<Error>,
    /// It has said goodbye: nothing follows what is under way.
    left: bool,
}

struct Announced {
    tag: Tag,
    payload: Bytes,
    sent: Arc<Completion>,
}

/// A long message to a peer.
struct Outgoing {
    to: Rank,
    tag: Tag,
    send: BulkSend,
    sent: Option<Arc<Completion>>,
}

/// A long message from a peer.
struct Incoming {
    from: Rank,
    id: u64,
    length: u64,
    recv: BulkRecv,
    /// Nobody wants it any more; so much of the window is then free again.
    unwanted: Option<u64>,
}

/// The receive that is looked after just now: its message need not pass through the inbox.
#[derive(Clone, Copy)]
struct Wanted {
    from: Rank,
    tag: Tag,
    ticket: u64,
}

/// What came of a turn.
enum Turn {
    Idle,
    Moved,
    /// The message that was wanted.
    Received(Bytes),
}

impl Engine {
    /// Begins to receive.
    pub(crate) fn start(
        comm: Comm,
        rank: Rank,
        limits: Limits,
        terms: &[Terms],
        max_piece: usize,
    ) -> Result<Self, MpiError> {
        let mut slots: Vec<_> = (0..SLOTS).map(|_| Slot::new()).collect();
        slots.iter_mut().try_for_each(|slot| slot.post(comm))?;
        let (aborts, buffers) = (Arc::new(Aborts::default()), Buffers::default());
        let peer = |terms: &Terms| Peer {
            inbox: Inbox::new(limits, Arc::clone(&aborts), buffers.clone()),
            owed: 0,
            terms: *terms,
            room: terms.window,
            announced: HashMap::new(),
            next_id: 0,
            over: None,
            left: false,
        };
        Ok(Self {
            comm,
            rank,
            max_piece,
            owed_limit: (limits.window / 4).max(1),
            later: Later::default(),
            slots,
            front: 0,
            empty: 0,
            turns: 0,
            peers: terms.iter().map(peer).collect(),
            aborts,
            small: VecDeque::new(),
            spare: Vec::new(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            closed: false,
        })
    }

    /// Posts a receive and returns its ticket.
    pub(crate) fn post(&mut self, from: Rank, tag: Tag) -> u64 {
        let Some(peer) = self.peers.get_mut(from.index()) else { return 0 };
        let (ticket, effects) = peer.inbox.post(tag);
        self.settle(from, effects);
        ticket
    }

    /// Takes the message of this ticket, if it has arrived.
    fn take(&mut self, from: Rank, tag: Tag, ticket: u64) -> Option<Result<Bytes, Error>> {
        let (outcome, effects) = self.peers.get_mut(from.index())?.inbox.take(tag, ticket)?;
        self.settle(from, effects);
        Some(outcome)
    }

    /// Takes back a receive that has not returned its message.
    pub(crate) fn withdraw(&mut self, from: Rank, tag: Tag, ticket: u64) {
        self.change(from, |inbox| inbox.withdraw(tag, ticket));
    }

    /// Takes the message of a receive; if it has not arrived, makes progress for a short while.
    pub(crate) fn receive(&mut self, from: Rank, tag: Tag, ticket: u64) -> Option<Result<Bytes, Error>> {
        if let Some(outcome) = self.take(from, tag, ticket) {
            return Some(outcome);
        }
        for _ in 0..TURNS {
            match self.turn(Some(Wanted { from, tag, ticket })) {
                Turn::Idle => {}
                Turn::Moved => {
                    if let Some(outcome) = self.take(from, tag, ticket) {
                        return Some(outcome);
                    }
                }
                Turn::Received(payload) => return Some(Ok(payload)),
            }
        }
        None
    }

    /// Makes progress for a short while.
    pub(crate) fn progress(&mut self) {
        let moved = |engine: &mut Self| !matches!(engine.turn(None), Turn::Idle);
        (0..TURNS).any(|_| moved(self));
    }

    /// Takes one message if one has come, otherwise looks after the rest.
    fn turn(&mut self, wanted: Option<Wanted>) -> Turn {
        if self.closed {
            return Turn::Idle;
        }
        self.try_turn(wanted).unwrap_or_else(|error| {
            self.fail(&error);
            Turn::Moved
        })
    }

    fn try_turn(&mut self, wanted: Option<Wanted>) -> Result<Turn, MpiError> {
        let turn = self.take_small(wanted)?;
        self.turns = self.turns.wrapping_add(1);
        if !matches!(turn, Turn::Idle) && !self.turns.is_multiple_of(BUSY_TURNS) {
            return Ok(turn);
        }
        self.post_slots()?;
        self.reap_small();
        let received = self.take_bulk();
        let sent = self.reap_bulk();
        Ok(if matches!(turn, Turn::Idle) && (received || sent) { Turn::Moved } else { turn })
    }

    fn take_small(&mut self, wanted: Option<Wanted>) -> Result<Turn, MpiError> {
        let Some(slot) = self.slots.get_mut(self.front) else { return Ok(Turn::Idle) };
        let Some((from, bytes)) = slot.test()? else { return Ok(Turn::Idle) };
        let from = Rank(from);
        self.front = (self.front + 1) % SLOTS;
        self.empty += 1;
        let arrived = Frame::decode(bytes);
        if let Ok((credit, Frame::Eager { tag, payload })) = arrived
            && let Some(Wanted { ticket, .. }) =
                wanted.filter(|wanted| wanted.from == from && wanted.tag == tag)
            && let Some(peer) = self.peers.get_mut(from.index())
            && u64::from(credit) <= peer.terms.window - peer.room
            && peer.inbox.hand_over(tag, ticket, payload.len() as u64)
        {
            let payload = Bytes::copy_from_slice(payload);
            peer.room += u64::from(credit);
            self.owe(from, payload.len() as u64 + MESSAGE_COST);
            return Ok(Turn::Received(payload));
        }
        let arrived = arrived.map(|(credit, frame)| (credit, frame.to_owned()));
        if self.empty >= SLOTS / 2 {
            self.post_slots()?;
        }
        self.handle(from, arrived)?;
        Ok(Turn::Moved)
    }

    fn post_slots(&mut self) -> Result<(), MpiError> {
        for back in (1..=self.empty).rev() {
            if let Some(slot) = self.slots.get_mut((self.front + SLOTS - back) % SLOTS) {
                slot.post(self.comm)?;
            }
        }
        self.empty = 0;
        Ok(())
    }

    /// Ends a scope that a rank aborted, and passes it on.
    pub(crate) fn abort(&mut self, by: Rank, scope: Scope, reason: &str) {
        if !self.aborts.note(scope, by, reason) {
            return;
        }
        tracing::debug!(%scope, by = by.0, reason, "aborted");
        let aborts = Arc::clone(&self.aborts);
        let outcome = |tag| aborts.of(tag).map_or(Ok(()), Err);
        for rank in self.ranks() {
            self.change(rank, |inbox| inbox.abort(scope));
            if let Some(peer) = self.peers.get_mut(rank.index()) {
                for (_, message) in peer.announced.extract_if(|_, message| scope.covers(message.tag)) {
                    self.later.sent.push((message.sent, outcome(message.tag)));
                }
            }
            self.tell(rank, Frame::Abort { by, scope, reason: reason.as_bytes() });
        }
        // What MPI has begun to send goes on, but nobody waits for it any more.
        for outgoing in self.outgoing.iter_mut().filter(|outgoing| scope.covers(outgoing.tag)) {
            self.later.sent.extend(outgoing.sent.take().map(|sent| (sent, outcome(outgoing.tag))));
        }
    }

    fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.peers.len()).map(Rank::from_index)
    }

    /// Lets something happen to an inbox, and does what follows from it.
    fn change(&mut self, peer: Rank, f: impl FnOnce(&mut Inbox) -> Effects) {
        if let Some(its) = self.peers.get_mut(peer.index()) {
            let effects = f(&mut its.inbox);
            self.settle(peer, effects);
        }
    }

    /// Does what follows from a change of an inbox.
    fn settle(&mut self, peer: Rank, effects: Effects) {
        let Effects { wake, fetch, credit, sent } = effects;
        self.later.wake.extend(wake);
        self.later.sent.extend(sent);
        if peer == self.rank {
            return;
        }
        for id in fetch {
            self.tell(peer, Frame::Fetch { id });
        }
        self.owe(peer, credit);
    }

    /// Notes room in the window that can be given back, and tells the peer if it is much.
    fn owe(&mut self, peer: Rank, credit: u64) {
        let Some(its) = self.peers.get_mut(peer.index()) else { return };
        its.owed += credit;
        if its.owed >= self.owed_limit {
            self.tell(peer, Frame::Credit);
        }
    }

    /// Ends all operations with a peer. The first error counts.
    fn lose(&mut self, rank: Rank, error: &Error) {
        let Some(peer) = self.peers.get_mut(rank.index()) else { return };
        if peer.over.is_none() {
            peer.over = Some(error.clone());
            tracing::debug!(peer = rank.0, %error, "lost");
        }
        let announced = peer.announced.drain().map(|(_, message)| message.sent);
        self.later.sent.extend(announced.map(|sent| (sent, Err(error.clone()))));
        for outgoing in self.outgoing.iter_mut().filter(|outgoing| outgoing.to == rank) {
            self.later.sent.extend(outgoing.sent.take().map(|sent| (sent, Err(error.clone()))));
        }
        self.change(rank, |inbox| inbox.end(error));
    }

    /// A call of MPI failed that concerns no single peer: nothing goes on.
    fn fail(&mut self, error: &MpiError) {
        let error = Error::backend(error.to_string(), error.clone());
        for rank in self.ranks() {
            self.lose(rank, &error);
        }
        self.closed = true;
    }
}

/// What must wait until nobody uses the engine, since it runs code of others.
#[derive(Default)]
pub(crate) struct Later {
    wake: Vec<Waker>,
    sent: Vec<(Arc<Completion>, Result<(), Error>)>,
}

impl Later {
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Self> {
        let any = !self.wake.is_empty() || !self.sent.is_empty();
        any.then(|| std::mem::take(self))
    }

    pub(crate) fn run(self) {
        self.sent.into_iter().for_each(|(sent, outcome)| sent.complete(outcome));
        self.wake.into_iter().for_each(Waker::wake);
    }
}
