//! What goes out.

use std::sync::Arc;

use bytes::Bytes;
use matching::{Completion, MESSAGE_COST, Posted};
use transport::{Error, Rank, Tag};

use super::{Announced, Engine, Outgoing};
use crate::MpiError;
use crate::frame::{Frame, INLINE, SMALL};
use crate::raw::{BulkSend, Memory, SmallSend};

/// How many buffers for small messages are kept.
const SPARE: usize = 256;

impl Engine {
    /// Sends a message, or announces it. `Some`: it is under way and will be complete some time.
    pub(crate) fn send(&mut self, to: Rank, tag: Tag, payload: Bytes) -> Posted {
        if to == self.rank {
            return self.send_to_self(tag, payload);
        }
        if let Some(error) = self.aborts.of(tag) {
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
                self.tell(to, Frame::Eager { tag, payload: &payload });
                return Ok(None);
            }
            let (id, sent) = (peer.next_id, Arc::new(Completion::default()));
            peer.next_id += 1;
            self.tell(to, Frame::Pushed { tag, length, id });
            self.send_bulk(to, tag, payload, Arc::clone(&sent));
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
        self.tell(to, Frame::Announce { tag, length, id });
        Ok(Some(sent))
    }

    fn send_to_self(&mut self, tag: Tag, payload: Bytes) -> Posted {
        let (rank, world_size) = (self.rank, self.peers.len());
        let own = self.peers.get_mut(rank.index()).ok_or(Error::NoSuchRank { rank, world_size })?;
        let (posted, effects) = own.inbox.post_own(rank, tag, payload);
        self.settle(rank, effects);
        posted
    }

    /// Sends a message that the peer has asked for.
    pub(super) fn fetched(&mut self, to: Rank, id: u64) {
        // Gone if its context was aborted meanwhile.
        let message = self.peers.get_mut(to.index()).and_then(|peer| peer.announced.remove(&id));
        if let Some(Announced { tag, payload, sent }) = message {
            self.tell(to, Frame::Body { tag, length: payload.len() as u64, id });
            self.send_bulk(to, tag, payload, sent);
        }
    }

    pub(super) fn say_goodbye(&mut self) {
        for rank in self.ranks() {
            self.tell(rank, Frame::Goodbye);
        }
    }

    /// Sends a small message, with what is owed, unless the peer is gone.
    pub(super) fn tell(&mut self, to: Rank, frame: Frame<&[u8]>) {
        let Some(peer) = self.peers.get_mut(to.index()) else { return };
        // Who has left waits for the goodbyes of the others before it gives its communicator back.
        let gone = peer.over.is_some() && !(peer.left && matches!(frame, Frame::Goodbye));
        if gone || self.closed || to == self.rank {
            return;
        }
        let credit = u32::try_from(peer.owed).unwrap_or(u32::MAX);
        peer.owed -= u64::from(credit);
        let mut memory = self.spare.pop().unwrap_or_else(|| Box::new([0; SMALL]));
        let length = frame.encode(credit, &mut memory);
        self.start_small(to, memory, length);
    }

    fn send_bulk(&mut self, to: Rank, tag: Tag, payload: Bytes, sent: Arc<Completion>) {
        if payload.is_empty() {
            self.later.sent.push((sent, Ok(())));
            return;
        }
        match BulkSend::start(self.comm, to.0, payload, self.max_piece) {
            Ok(send) => self.outgoing.push(Outgoing { to, tag, send, sent: Some(sent) }),
            Err(error) => {
                self.later.sent.push((sent, Err(lost(to, &error))));
                self.lose_to(to, &error);
            }
        }
    }

    pub(super) fn lose_to(&mut self, to: Rank, error: &MpiError) {
        self.lose(to, &lost(to, error));
    }

    fn start_small(&mut self, to: Rank, memory: Memory, length: usize) {
        match SmallSend::start(self.comm, to.0, memory, length) {
            Ok(send) => self.small.push_back((to, send)),
            Err(error) => self.lose_to(to, &error),
        }
    }

    /// Takes back the memory of small messages that are out.
    pub(super) fn reap_small(&mut self) {
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
                self.lose_to(to, &error);
            }
        }
    }

    /// Completes the long messages that are out.
    pub(super) fn reap_bulk(&mut self) -> bool {
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
            self.later.sent.extend(sent.map(|sent| (sent, outcome)));
            if let Err(error) = done {
                self.lose_to(to, &error);
            }
        }
        any
    }
}

fn lost(peer: Rank, error: &MpiError) -> Error {
    Error::PeerLost { peer, detail: error.to_string(), source: Some(Arc::new(error.clone())) }
}
