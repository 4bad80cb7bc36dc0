//! What comes in.

use bytes::Bytes;
use matching::MESSAGE_COST;
use transport::{Error, Rank, Tag};

use super::{Engine, Incoming};
use crate::MpiError;
use crate::frame::Frame;
use crate::raw::BulkRecv;
use crate::world::{Later, World};

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
        world: &World,
        from: Rank,
        arrived: Result<(u32, Frame<Bytes>), String>,
        later: &mut Later,
    ) -> Result<(), MpiError> {
        let done = match arrived {
            Ok((credit, frame)) => self.act(world, from, credit, frame, later),
            Err(violation) => Err(violation.into()),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Trouble::Mpi(error)) => Err(error),
            Err(Trouble::Violation(detail)) => {
                self.lose(world, from, &Error::Protocol { peer: from, detail }, later);
                Ok(())
            }
        }
    }

    fn act(
        &mut self,
        world: &World,
        from: Rank,
        credit: u32,
        frame: Frame<Bytes>,
        later: &mut Later,
    ) -> Result<(), Trouble> {
        let Some((inbox, peer)) = world.inboxes.get(from.index()).zip(self.peers.get_mut(from.index()))
        else {
            return Ok(());
        };
        peer.room += u64::from(credit);
        if peer.room > peer.terms.window {
            return Err(format!("it gave back {credit} bytes of its window that were not used").into());
        }
        match frame {
            Frame::Eager { tag, payload } => {
                let effects = inbox.arrive(tag, payload)?;
                self.settle(world, from, effects, later);
            }
            Frame::Pushed { tag, length, id } => {
                let wanted = inbox.expect_pushed(tag, length, id)?;
                let unwanted = (!wanted).then_some(length + MESSAGE_COST);
                self.take(world, from, tag, length, id, unwanted, later)?;
            }
            Frame::Announce { tag, length, id } => {
                let effects = inbox.announce(tag, length, id)?;
                self.settle(world, from, effects, later);
            }
            Frame::Fetch { id } => self.fetched(world, from, id, later),
            Frame::Body { tag, length, id } => self.take(world, from, tag, length, id, None, later)?,
            Frame::Credit => {}
            Frame::Abort { by, scope, reason } => {
                world.inbox(by).map_err(|error| format!("it passed on an abort, but {error}"))?;
                self.abort(world, by, scope, &String::from_utf8_lossy(&reason), later);
            }
            Frame::Goodbye => {
                peer.left = true;
                self.take_leave_of(world, from, later);
            }
        }
        Ok(())
    }

    /// Receives a long message, of which the header has arrived.
    #[allow(clippy::too_many_arguments, reason = "it is one header")]
    fn take(
        &mut self,
        world: &World,
        from: Rank,
        tag: Tag,
        length: u64,
        id: u64,
        unwanted: Option<u64>,
        later: &mut Later,
    ) -> Result<(), Trouble> {
        let Some(inbox) = world.inboxes.get(from.index()) else { return Ok(()) };
        let size = usize::try_from(length).map_err(|_| format!("it sends {length} bytes"))?;
        let buffer = match unwanted {
            Some(_) => None,
            None => inbox.expect_part(tag, id, length)?,
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
            self.finish(world, incoming, later);
        } else {
            self.incoming.push(incoming);
        }
        Ok(())
    }

    /// Looks whether long messages have arrived.
    pub(super) fn take_bulk(&mut self, world: &World, later: &mut Later) -> bool {
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
                Ok(_) => self.finish(world, incoming, later),
                Err(error) => self.lose_to(world, from, &error, later),
            }
            self.take_leave_of(world, from, later);
        }
        any
    }

    fn finish(&mut self, world: &World, incoming: Incoming, later: &mut Later) {
        let Incoming { from, id, length, recv, unwanted } = incoming;
        let Some(inbox) = world.inboxes.get(from.index()) else { return };
        match unwanted {
            None => {
                let effects = inbox.part_arrived(id, length, recv.into_buffer());
                self.settle(world, from, effects, later);
            }
            Some(cost) => {
                if world.owe(from, cost) {
                    self.request(world, from, &[], later);
                }
            }
        }
    }

    /// Ends the operations with a peer that has said goodbye, once everything it sent is here.
    fn take_leave_of(&mut self, world: &World, rank: Rank, later: &mut Later) {
        let left = self.peers.get(rank.index()).is_some_and(|peer| peer.left);
        if left && !self.incoming.iter().any(|incoming| incoming.from == rank) {
            // It may have received the last of these just before.
            self.reap_bulk(world, later);
            self.lose(world, rank, &Error::peer_lost(rank, "it has left"), later);
        }
    }
}
