//! What waits to be written, and in which order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use matching::{Completion, MESSAGE_COST};
use transport::{Error, Scope, Tag};

use crate::batch::{Batch, Encoded, MAX_FRAMES};
use crate::frame::{Header, Kind, MAX_PART};

/// How many bytes are gathered for one write, unless a single frame is longer.
const BATCH_BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Control frames, which overtake.
    pub(super) urgent: VecDeque<Header>,
    /// Reasons of the aborts among them, in their order.
    pub(super) reasons: VecDeque<Bytes>,
    /// Eager messages and announcements, in the order of the sends.
    pub(super) queue: VecDeque<(Header, Bytes)>,
    /// Announced messages that the peer has asked for; their parts take turns with the queue.
    pub(super) transfers: VecDeque<Transfer>,
    /// Announced messages that the peer has not asked for, by id.
    pub(super) announced: HashMap<u64, Announced>,
    pub(super) next_id: u64,
    /// Frames being written, which cannot be overtaken.
    pub(super) batch: Batch,
    /// Somebody is writing, with the batch in hand.
    pub(super) writing: bool,
    /// The writer task has taken over.
    pub(super) taken_over: bool,
    /// Whether the next frame is a part of a transfer, if there is one.
    pub(super) transfer_next: bool,
    /// What is left of the peer's window.
    pub(super) room: u64,
    /// What this rank has consumed of its own window and the peer does not know yet.
    pub(super) owed: u64,
    /// Why nothing can be sent any more.
    pub(super) over: Option<Error>,
}

#[derive(Debug)]
pub(super) struct Announced {
    pub(super) tag: Tag,
    pub(super) payload: Bytes,
    pub(super) sent: Arc<Completion>,
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) id: u64,
    pub(super) message: Announced,
    pub(super) written: usize,
}

impl State {
    pub(super) fn is_flushed(&self) -> bool {
        let nothing_waits = self.urgent.is_empty() && self.queue.is_empty() && self.transfers.is_empty();
        nothing_waits && self.batch.is_empty() && !self.writing
    }

    /// Drops what belongs to an aborted scope and returns the messages whose sends wait.
    pub(super) fn drop_scope(&mut self, scope: Scope) -> Vec<Announced> {
        // Announcements stay: their ids have to arrive without a gap.
        self.queue.retain(|(header, _)| {
            let dropped = header.kind == Kind::Eager && scope.covers(header.tag);
            if dropped {
                self.room += header.length + MESSAGE_COST;
            }
            !dropped
        });
        let covered = self.announced.extract_if(|_, message| scope.covers(message.tag));
        let mut ended: Vec<Announced> = covered.map(|(_, message)| message).collect();
        for transfer in std::mem::take(&mut self.transfers) {
            if scope.covers(transfer.message.tag) {
                ended.push(transfer.message);
            } else {
                self.transfers.push_back(transfer);
            }
        }
        ended
    }

    /// Drops everything and returns the receipts of the sends that wait. A batch in hand is given up by
    /// the one who writes it.
    pub(super) fn clear(&mut self) -> Vec<Arc<Completion>> {
        let mut ended: Vec<_> = self.announced.drain().map(|(_, message)| message.sent).collect();
        ended.extend(self.transfers.drain(..).map(|transfer| transfer.message.sent));
        self.urgent.clear();
        self.reasons.clear();
        self.queue.clear();
        self.batch.clear(|sent| ended.push(sent));
        ended
    }

    /// Takes the next frames, if the last are written: the urgent ones, then the queue and the
    /// transfers in turn.
    pub(super) fn fill_batch(&mut self) {
        let mut bytes = 0;
        if !self.batch.is_empty() {
            return;
        }
        while self.batch.len() < MAX_FRAMES && bytes < BATCH_BYTES {
            let Some((mut header, payload, sent)) = self.next_frame() else { break };
            header.credit = u32::try_from(self.owed).unwrap_or(u32::MAX);
            self.owed -= u64::from(header.credit);
            bytes += payload.len();
            self.batch.push(Encoded { header: header.encode(), payload, sent });
        }
    }

    fn next_frame(&mut self) -> Option<(Header, Bytes, Option<Arc<Completion>>)> {
        if let Some(header) = self.urgent.pop_front() {
            let payload = if header.kind == Kind::Abort { self.reasons.pop_front() } else { None };
            return Some((header, payload.unwrap_or_default(), None));
        }
        self.transfer_next = !self.transfer_next;
        if (self.transfer_next || self.queue.is_empty())
            && let Some(part) = self.next_part()
        {
            return Some(part);
        }
        self.queue.pop_front().map(|(header, payload)| (header, payload, None))
    }

    /// Of several transfers, each gets its turn.
    fn next_part(&mut self) -> Option<(Header, Bytes, Option<Arc<Completion>>)> {
        let mut transfer = self.transfers.pop_front()?;
        let Announced { tag, payload, sent } = &transfer.message;
        let end = payload.len().min(transfer.written + MAX_PART);
        let part = payload.slice(transfer.written..end);
        let header =
            Header { tag: *tag, id: transfer.id, length: part.len() as u64, ..Header::new(Kind::Part) };
        let last = (end == payload.len()).then(|| Arc::clone(sent));
        if last.is_none() {
            transfer.written = end;
            self.transfers.push_back(transfer);
        }
        Some((header, part, last))
    }
}
