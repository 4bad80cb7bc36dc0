//! What comes in.

use bytes::Bytes;
use matching::MESSAGE_COST;
use transport::{Error, Rank, Tag};

use super::{Engine, Incoming};
use crate::MpiError;
use crate::frame::Frame;
use crate::raw::BulkRecv;

/// Why a small message could not be acted on.
pub(super) enum Trouble {
    /// The peer broke the protocol.
    Violation(String),
    Mpi(MpiError),
}

impl From<String> for Trouble {
    fn from(detail: String) -> Self {
        Self::Violation(detail)
    }
}

impl From<MpiError> for Trouble {
    fn from(error: MpiError) -> Self {
        Self::Mpi(error)
    }
}

impl Engine {
    /// Acts on a small message.
    pub(super) fn handle(
        &mut self,
        from: Rank,
        arrived: Result<(u32, Frame<Bytes>), String>,
    ) -> Result<(), MpiError> {
        let done = match arrived {
            Ok((credit, frame)) => self.act(from, credit, frame),
            Err(violation) => Err(violation.into()),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Trouble::Mpi(error)) => Err(error),
            Err(Trouble::Violation(detail)) => {
                self.lose(from, &Error::Protocol { peer: from, detail });
                Ok(())
            }
        }
    }

    fn act(&mut self, from: Rank, credit: u32, frame: Frame<Bytes>) -> Result<(), Trouble> {
        let world_size = self.peers.len();
        let Some(peer) = self.peers.get_mut(from.index()) else { return Ok(()) };
        peer.room += u64::from(credit);
        if peer.room > peer.terms.window {
            return Err(format!("it gave back {credit} bytes of its window that were not used").into());
        }
        match frame {
            Frame::Eager { tag, payload } => {
                let effects = peer.inbox.arrive(tag, payload)?;
                self.settle(from, effects);
            }
            Frame::Pushed { tag, length, id } => {
                let wanted = peer.inbox.expect_pushed(tag, length, id)?;
                let unwanted = (!wanted).then_some(length + MESSAGE_COST);
                self.receive_bulk(from, tag, length, id, unwanted)?;
            }
            Frame::Announce { tag, length, id } => {
                let effects = peer.inbox.announce(tag, length, id)?;
                self.settle(from, effects);
            }
            Frame::Fetch { id } => self.fetched(from, id),
            Frame::Body { tag, length, id } => self.receive_bulk(from, tag, length, id, None)?,
            Frame::Credit => {}
            Frame::Abort { by, scope, reason } => {
                if by.index() >= world_size {
                    return Err(format!("it passed on an abort of rank {by}, of {world_size} ranks").into());
                }
                self.abort(by, scope, &String::from_utf8_lossy(&reason));
            }
            Frame::Goodbye => {
                peer.left = true;
                self.take_leave_of(from);
            }
        }
        Ok(())
    }

    /// Receives a long message, of which the header has arrived.
    fn receive_bulk(
        &mut self,
        from: Rank,
        tag: Tag,
        length: u64,
        id: u64,
        unwanted: Option<u64>,
    ) -> Result<(), Trouble> {
        let Some(peer) = self.peers.get_mut(from.index()) else { return Ok(()) };
        let size = usize::try_from(length).map_err(|_| format!("it sends {length} bytes"))?;
        let buffer = match unwanted {
            Some(_) => None,
            None => peer.inbox.expect_part(tag, id, length)?,
        };
        // What nobody wants must be received all the same, or the sender could never end.
        let unwanted = unwanted.or_else(|| buffer.is_none().then_some(0));
        let buffer = match buffer {
            Some(buffer) => buffer,
            None => {
                let mut buffer = Vec::new();
                buffer
                    .try_reserve_exact(size)
                    .map_err(|_| format!("there is no memory for {length} bytes"))?;
                buffer
            }
        };
        let recv = BulkRecv::start(self.comm, from.0, buffer, size, self.max_piece)?;
        let incoming = Incoming { from, id, length, recv, unwanted };
        if size == 0 {
            self.finish(incoming);
        } else {
            self.incoming.push(incoming);
        }
        Ok(())
    }

    /// Looks whether long messages have arrived.
    pub(super) fn take_bulk(&mut self) -> bool {
        let (mut position, mut any) = (0, false);
        while let Some(incoming) = self.incoming.get_mut(position) {
            let arrived = incoming.recv.test();
            if let Ok(false) = arrived {
                position += 1;
                continue;
            }
            any = true;
            let incoming = self.incoming.remove(position);
            let from = incoming.from;
            match arrived {
                Ok(_) => self.finish(incoming),
                Err(error) => self.lose_to(from, &error),
            }
            self.take_leave_of(from);
        }
        any
    }

    fn finish(&mut self, incoming: Incoming) {
        let Incoming { from, id, length, recv, unwanted } = incoming;
        match unwanted {
            None => self.change(from, |inbox| inbox.part_arrived(id, length, recv.into_buffer())),
            Some(cost) => self.owe(from, cost),
        }
    }

    /// Ends the operations with a peer that has said goodbye, once everything it sent is here.
    fn take_leave_of(&mut self, rank: Rank) {
        let left = self.peers.get(rank.index()).is_some_and(|peer| peer.left);
        if left && !self.incoming.iter().any(|incoming| incoming.from == rank) {
            // It may have received the last of these just before.
            self.reap_bulk();
            self.lose(rank, &Error::peer_lost(rank, "it has left"));
        }
    }
}
