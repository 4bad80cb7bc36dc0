//! What is under way in MPI, and how it moves on. Everything here happens under one lock.
//!
//! Small messages are received into slots that are always posted, so that the latency path is one test of the first
//! slot. A long message follows its header on a second channel: the header says how long it is, so its receive is
//! posted to memory of the right size, and MPI's own rendezvous moves it there without a copy.

mod arrivals;
pub(crate) mod leave;
mod sends;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use matching::{Completion, Effects};
use transport::{Error, Rank, Scope, Tag};

use crate::MpiError;
use crate::frame::Frame;
use crate::raw::{BulkRecv, BulkSend, Comm, Memory, Slot, SmallSend};
use crate::world::{Later, World};

/// How many small messages can arrive before the engine turns again; more wait in MPI.
const SLOTS: usize = 64;
/// What is under way beside the slots is looked at in every so many turns even when messages keep coming.
const BUSY_TURNS: u32 = 8;

pub(crate) struct Engine {
    comm: Comm,
    max_piece: usize,
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
    /// Small messages of threads that may not call MPI: to whom, and how long.
    waiting: VecDeque<(Rank, Memory, usize)>,
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

impl Engine {
    /// Begins to receive.
    pub(crate) fn start(comm: Comm, terms: &[Terms], max_piece: usize) -> Result<Self, MpiError> {
        let mut slots: Vec<_> = (0..SLOTS).map(|_| Slot::new()).collect();
        slots.iter_mut().try_for_each(|slot| slot.post(comm))?;
        let peer = |terms: &Terms| Peer {
            terms: *terms,
            room: terms.window,
            announced: HashMap::new(),
            next_id: 0,
            over: None,
            left: false,
        };
        Ok(Self {
            comm,
            max_piece,
            slots,
            front: 0,
            empty: 0,
            turns: 0,
            peers: terms.iter().map(peer).collect(),
            small: VecDeque::new(),
            spare: Vec::new(),
            waiting: VecDeque::new(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            closed: false,
        })
    }

    /// Takes one message if one has come, otherwise looks after the rest. True if anything happened.
    pub(crate) fn turn(&mut self, world: &World, later: &mut Later) -> bool {
        if self.closed {
            return false;
        }
        self.try_turn(world, later).unwrap_or_else(|error| {
            self.fail(world, &error, later);
            true
        })
    }

    fn try_turn(&mut self, world: &World, later: &mut Later) -> Result<bool, MpiError> {
        let arrived = self.take_small(world, later)?;
        self.turns = self.turns.wrapping_add(1);
        if arrived && !self.turns.is_multiple_of(BUSY_TURNS) {
            return Ok(true);
        }
        self.post_slots()?;
        self.flush_waiting(world, later);
        self.reap_small(world, later);
        let received = self.take_bulk(world, later);
        let sent = self.reap_bulk(world, later);
        Ok(arrived || received || sent)
    }

    fn take_small(&mut self, world: &World, later: &mut Later) -> Result<bool, MpiError> {
        let Some(slot) = self.slots.get_mut(self.front) else { return Ok(false) };
        let Some((from, bytes)) = slot.test()? else { return Ok(false) };
        let arrived = Frame::decode(bytes).map(|(credit, frame)| (credit, frame.to_owned()));
        self.front = (self.front + 1) % SLOTS;
        self.empty += 1;
        if self.empty >= SLOTS / 2 {
            self.post_slots()?;
        }
        self.handle(world, Rank(from), arrived, later)?;
        Ok(true)
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
    pub(crate) fn abort(&mut self, world: &World, by: Rank, scope: Scope, reason: &str, later: &mut Later) {
        if !world.aborts.note(scope, by, reason) {
            return;
        }
        tracing::debug!(%scope, by = by.0, reason, "aborted");
        for (rank, inbox) in (0..).map(Rank).zip(&world.inboxes) {
            self.settle(world, rank, inbox.abort(scope), later);
            if let Some(peer) = self.peers.get_mut(rank.index()) {
                for (_, message) in peer.announced.extract_if(|_, message| scope.covers(message.tag)) {
                    later.sent.push((message.sent, world.aborts.of(message.tag).map_or(Ok(()), Err)));
                }
            }
            self.tell_abort(world, rank, by, scope, reason, later);
        }
        // What MPI has begun to send goes on, but nobody waits for it any more.
        for outgoing in self.outgoing.iter_mut().filter(|outgoing| scope.covers(outgoing.tag)) {
            let outcome = world.aborts.of(outgoing.tag).map_or(Ok(()), Err);
            later.sent.extend(outgoing.sent.take().map(|sent| (sent, outcome)));
        }
    }

    /// Does what an inbox could not do under its lock.
    fn settle(&mut self, world: &World, peer: Rank, effects: Effects, later: &mut Later) {
        let Effects { wake, fetch, credit, sent } = effects;
        later.wake.extend(wake);
        later.sent.extend(sent);
        if peer != world.rank && (world.owe(peer, credit) || !fetch.is_empty()) {
            self.request(world, peer, &fetch, later);
        }
    }

    /// Ends all operations with a peer. The first error counts.
    fn lose(&mut self, world: &World, rank: Rank, error: &Error, later: &mut Later) {
        let Some(peer) = self.peers.get_mut(rank.index()) else { return };
        if peer.over.is_none() {
            peer.over = Some(error.clone());
            tracing::debug!(peer = rank.0, %error, "lost");
        }
        let announced = peer.announced.drain().map(|(_, message)| message.sent);
        later.sent.extend(announced.map(|sent| (sent, Err(error.clone()))));
        for outgoing in self.outgoing.iter_mut().filter(|outgoing| outgoing.to == rank) {
            later.sent.extend(outgoing.sent.take().map(|sent| (sent, Err(error.clone()))));
        }
        if let Some(inbox) = world.inboxes.get(rank.index()) {
            self.settle(world, rank, inbox.end(error), later);
        }
    }

    /// A call of MPI failed that concerns no single peer: nothing goes on.
    fn fail(&mut self, world: &World, error: &MpiError, later: &mut Later) {
        let error = Error::backend(error.to_string(), error.clone());
        for rank in (0..self.peers.len()).map(Rank::from_index) {
            self.lose(world, rank, &error, later);
        }
        self.closed = true;
    }
}
