//! Any bytes as what a peer sends over TCP, with receives in between: nothing panics, no more is taken in or kept than the
//! limits grant, and no more room is given back than was taken.

#![no_main]

#[allow(dead_code, reason = "only the codec of the crate's own file is used")]
#[path = "../../transport-tcp/src/frame.rs"]
mod frame;

use std::sync::Arc;

use frame::{Decoder, Header, Kind, Step};
use libfuzzer_sys::fuzz_target;
use matching::{Aborts, Effects, Inbox, Limits, MESSAGE_COST};
use transport::{Buffers, Rank, Scope, Tag};

const LIMITS: Limits = Limits { window: 2048, max_message: 4096, max_announced: 4, max_part: 512 };

fuzz_target!(|input: &[u8]| {
    let Some((&[size, receives], mut bytes)) = input.split_first_chunk() else { return };
    let mut peer = Peer::new();
    // Like the socket's reads, which may end anywhere.
    let size = usize::from(size).max(1);
    for bit in 0.. {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        if peer.read(piece).is_err() {
            return;
        }
        if receives >> (bit % 8) & 1 == 1 {
            peer.receive(bit);
        }
    }
});

/// What a reader of transport-tcp has of one peer, without the sockets.
struct Peer {
    decoder: Decoder,
    current: Header,
    inbox: Inbox,
    aborts: Arc<Aborts>,
    /// Posted, not received.
    tickets: Vec<(Tag, u64)>,
    /// What may still arrive unasked.
    granted: u64,
}

impl Peer {
    fn new() -> Self {
        let aborts = Arc::<Aborts>::default();
        let inbox = Inbox::new(LIMITS, Arc::clone(&aborts), Buffers::default());
        let current = Header::new(Kind::Heartbeat);
        Self { decoder: Decoder::new(), current, inbox, aborts, tickets: vec![], granted: LIMITS.window }
    }

    fn read(&mut self, mut input: &[u8]) -> Result<(), String> {
        loop {
            match self.decoder.step(&mut input).map_err(|violation| violation.to_string())? {
                Step::Starved => return Ok(()),
                Step::Header(header) => self.begin(&header)?,
                Step::Payload(payload) => self.finish(payload)?,
                Step::Skipped if self.current.kind == Kind::Eager => {
                    self.apply(&Effects { credit: self.current.length + MESSAGE_COST, ..Effects::default() });
                }
                Step::Skipped => {}
            }
        }
    }

    fn begin(&mut self, header: &Header) -> Result<(), String> {
        assert_eq!(Header::decode(&header.encode()), Ok(*header));
        self.current = *header;
        let into = match header.kind {
            Kind::Eager => {
                let into = self.inbox.expect(header.tag, header.length)?;
                let cost = header.length + MESSAGE_COST;
                self.granted = self.granted.checked_sub(cost).expect("more was taken in than the window");
                into
            }
            Kind::Part => self.inbox.expect_part(header.tag, header.id, header.length)?,
            Kind::Abort => Some(Vec::new()),
            Kind::Announce => {
                let effects = self.inbox.announce(header.tag, header.length, header.id)?;
                self.apply(&effects);
                return Ok(());
            }
            Kind::Fetch | Kind::Credit | Kind::Heartbeat | Kind::Goodbye => return Ok(()),
        };
        assert!(into.as_ref().is_none_or(|into| into.capacity() as u64 <= 2 * LIMITS.max_message));
        match into {
            // No bytes follow: it is complete.
            Some(payload) if header.payload() == 0 => return self.finish(payload),
            None if header.payload() == 0 => {}
            Some(into) => self.decoder.collect(header, into),
            None => self.decoder.skip(header),
        }
        Ok(())
    }

    fn finish(&mut self, payload: Vec<u8>) -> Result<(), String> {
        let Header { kind, tag, length, id, .. } = self.current;
        let effects = match kind {
            Kind::Eager => self.inbox.deliver(tag, payload),
            Kind::Part => self.inbox.part_arrived(id, length, payload),
            Kind::Abort => {
                let scope = if id == 1 { Scope::World } else { Scope::Context(tag.context) };
                self.aborts.note(scope, Rank(tag.number), &String::from_utf8_lossy(&payload));
                self.inbox.abort(scope)
            }
            kind => return Err(format!("a payload with {kind:?}")),
        };
        self.apply(&effects);
        Ok(())
    }

    /// Posts a receive of the last tag that was seen, takes what is there, or gives up an old receive.
    fn receive(&mut self, turn: u32) {
        let tag = self.current.tag;
        let (ticket, effects) = self.inbox.post(tag);
        self.apply(&effects);
        self.tickets.push((tag, ticket));
        if turn % 3 == 2 {
            let (tag, ticket) = self.tickets.remove(0);
            let effects = self.inbox.withdraw(tag, ticket);
            self.apply(&effects);
        }
        for (tag, ticket) in std::mem::take(&mut self.tickets) {
            match self.inbox.take(tag, ticket) {
                Some((received, effects)) => {
                    assert!(received.is_err() || effects.credit <= LIMITS.window);
                    self.apply(&effects);
                }
                None => self.tickets.push((tag, ticket)),
            }
        }
    }

    fn apply(&mut self, effects: &Effects) {
        self.granted += effects.credit;
        assert!(self.granted <= LIMITS.window, "more was given back than taken");
        assert!(effects.fetch.len() <= LIMITS.max_announced as usize);
    }
}
