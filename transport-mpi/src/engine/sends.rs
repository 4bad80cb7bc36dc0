//! What goes out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use matching::{Completion, MESSAGE_COST, Posted};
use transport::{Error, Rank, Scope, Tag};

use super::{Announced, Engine, Outgoing};
use crate::MpiError;
use crate::frame::{Frame, INLINE, SMALL};
use crate::raw::{BulkSend, Memory, SmallSend};
use crate::world::{Later, World};

/// How many buffers for small messages are kept.
const SPARE: usize = 256;

impl Engine {
    /// Sends a message, or announces it. `Some`: it is under way and will be complete some time.
    pub(crate) fn send(
        &mut self,
        world: &World,
        to: Rank,
        tag: Tag,
        payload: Bytes,
        later: &mut Later,
    ) -> Posted {
        if let Some(error) = world.aborts.of(tag) {
            return Err(error);
        }
        let world_size = self.peers.len();
        let peer = self.peers.get_mut(to.index()).ok_or(Error::NoSuchRank { rank: to, world_size })?;
        if let Some(error) = &peer.over {
            return Err(error.clone());
        }
        let (length, limit) = (payload.len() as u64, peer.terms.max_message);
        if length > limit {
            return Err(Error::TooLarge { peer: to, length, limit });
        }
        let cost = length.saturating_add(MESSAGE_COST);
        if cost <= peer.room {
            peer.room -= cost;
            if payload.len() <= INLINE {
                self.tell(world, to, Frame::Eager { tag, payload: &payload }, later);
                return Ok(None);
            }
            let (id, sent) = (peer.next_id, Arc::new(Completion::default()));
            peer.next_id += 1;
            self.tell(world, to, Frame::Pushed { tag, length, id }, later);
            self.send_bulk(world, to, tag, payload, Arc::clone(&sent), later);
            return Ok(Some(sent));
        }
        if peer.announced.len() >= peer.terms.max_announced as usize {
            let waiting = peer.announced.len();
            let detail = format!("{waiting} messages are waiting for rank {to}: receive some");
            return Err(Error::Unsupported { detail });
        }
        let (id, sent) = (peer.next_id, Arc::new(Completion::default()));
        peer.next_id += 1;
        peer.announced.insert(id, Announced { tag, payload, sent: Arc::clone(&sent) });
        self.tell(world, to, Frame::Announce { tag, length, id }, later);
        Ok(Some(sent))
    }

    /// Asks for announced messages, and gives back room in the window.
    pub(crate) fn request(&mut self, world: &World, peer: Rank, fetch: &[u64], later: &mut Later) {
        for &id in fetch {
            self.tell(world, peer, Frame::Fetch { id }, later);
        }
        let owes = |owed: &std::sync::atomic::AtomicU64| owed.load(Ordering::Relaxed) >= world.owed_limit;
        if world.owed.get(peer.index()).is_some_and(owes) {
            self.tell(world, peer, Frame::Credit, later);
        }
    }

    /// Sends a message that the peer has asked for.
    pub(super) fn fetched(&mut self, world: &World, to: Rank, id: u64, later: &mut Later) {
        // Gone if its context was aborted meanwhile.
        let message = self.peers.get_mut(to.index()).and_then(|peer| peer.announced.remove(&id));
        if let Some(Announced { tag, payload, sent }) = message {
            self.tell(world, to, Frame::Body { tag, length: payload.len() as u64, id }, later);
            self.send_bulk(world, to, tag, payload, sent, later);
        }
    }

    pub(super) fn tell_abort(
        &mut self,
        world: &World,
        to: Rank,
        by: Rank,
        scope: Scope,
        reason: &str,
        later: &mut Later,
    ) {
        self.tell(world, to, Frame::Abort { by, scope, reason: reason.as_bytes() }, later);
    }

    pub(super) fn say_goodbye(&mut self, world: &World, later: &mut Later) {
        for rank in (0..self.peers.len()).map(Rank::from_index) {
            self.tell(world, rank, Frame::Goodbye, later);
        }
    }

    /// Sends a small message, with what is owed, unless the peer is gone.
    fn tell(&mut self, world: &World, to: Rank, frame: Frame<&[u8]>, later: &mut Later) {
        // Who has left waits for the goodbyes of the others before it gives its communicator back.
        let is_goodbye = frame == Frame::Goodbye;
        let gone =
            self.peers.get(to.index()).is_none_or(|peer| peer.over.is_some() && !(is_goodbye && peer.left));
        if gone || self.closed || to == world.rank {
            return;
        }
        let mut credit = 0;
        if let Some(owed) = world.owed.get(to.index())
            && owed.load(Ordering::Relaxed) > 0
        {
            // Only this lock's holder takes from it; others add.
            let all = owed.load(Ordering::Relaxed);
            credit = u32::try_from(all).unwrap_or(u32::MAX);
            owed.fetch_sub(u64::from(credit), Ordering::Relaxed);
        }
        let mut memory = self.spare.pop().unwrap_or_else(|| Box::new([0; SMALL]));
        let length = frame.encode(credit, &mut memory);
        if !self.waiting.is_empty() || world.check_thread().is_err() {
            self.waiting.push_back((to, memory, length));
            return;
        }
        self.start_small(world, to, memory, length, later);
    }

    fn send_bulk(
        &mut self,
        world: &World,
        to: Rank,
        tag: Tag,
        payload: Bytes,
        sent: Arc<Completion>,
        later: &mut Later,
    ) {
        if payload.is_empty() {
            later.sent.push((sent, Ok(())));
            return;
        }
        match BulkSend::start(self.comm, to.0, payload, self.max_piece) {
            Ok(send) => self.outgoing.push(Outgoing { to, tag, send, sent: Some(sent) }),
            Err(error) => {
                later.sent.push((sent, Err(lost(to, &error))));
                self.lose_to(world, to, &error, later);
            }
        }
    }

    pub(super) fn lose_to(&mut self, world: &World, to: Rank, error: &MpiError, later: &mut Later) {
        self.lose(world, to, &lost(to, error), later);
    }

    /// Sends what threads left that may not call MPI.
    pub(super) fn flush_waiting(&mut self, world: &World, later: &mut Later) {
        while let Some((to, memory, length)) = self.waiting.pop_front() {
            self.start_small(world, to, memory, length, later);
        }
    }

    fn start_small(&mut self, world: &World, to: Rank, memory: Memory, length: usize, later: &mut Later) {
        match SmallSend::start(self.comm, to.0, memory, length) {
            Ok(send) => self.small.push_back((to, send)),
            Err(error) => self.lose_to(world, to, &error, later),
        }
    }

    /// Takes back the memory of small messages that are out.
    pub(super) fn reap_small(&mut self, world: &World, later: &mut Later) {
        while let Some((to, send)) = self.small.front_mut() {
            let (to, done) = (*to, send.test());
            if let Ok(false) = done {
                break;
            }
            let memory = self.small.pop_front().and_then(|(_, send)| send.into_memory());
            if self.spare.len() < SPARE {
                self.spare.extend(memory);
            }
            if let Err(error) = done {
                self.lose_to(world, to, &error, later);
            }
        }
    }

    /// Completes the long messages that are out.
    pub(super) fn reap_bulk(&mut self, world: &World, later: &mut Later) -> bool {
        let (mut position, mut any) = (0, false);
        while let Some(outgoing) = self.outgoing.get_mut(position) {
            let done = outgoing.send.test();
            if let Ok(false) = done {
                position += 1;
                continue;
            }
            any = true;
            let Outgoing { to, sent, .. } = self.outgoing.remove(position);
            let outcome = done.as_ref().map(drop).map_err(|error| lost(to, error));
            later.sent.extend(sent.map(|sent| (sent, outcome)));
            if let Err(error) = done {
                self.lose_to(world, to, &error, later);
            }
        }
        any
    }
}

fn lost(peer: Rank, error: &MpiError) -> Error {
    Error::PeerLost { peer, detail: error.to_string(), source: Some(Arc::new(error.clone())) }
}
