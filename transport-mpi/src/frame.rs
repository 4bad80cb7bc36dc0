//! The small messages by which ranks talk: 16 bytes of header, then what the kind says. No I/O here.

use bytes::Bytes;
use transport::{Rank, Scope, Tag};

/// Kind (4 bytes), credit (4), tag (8), all little endian.
pub(crate) const HEADER: usize = 16;

/// The longest small message. A payload up to [`INLINE`] travels in one.
pub(crate) const SMALL: usize = 4096;

/// The longest payload that travels with its header.
pub(crate) const INLINE: usize = SMALL - HEADER;

/// What a small message says; payloads are borrowed or owned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frame<P> {
    /// A whole message that fits the receiver's window.
    Eager { tag: Tag, payload: P },
    /// A message that fits the window, too long for a small one: it follows as bulk.
    Pushed { tag: Tag, length: u64, id: u64 },
    /// A message that does not fit the window, in its place among the others.
    Announce { tag: Tag, length: u64, id: u64 },
    /// The receiver wants the announced message of this id.
    Fetch { id: u64 },
    /// A message that was fetched: it follows as bulk.
    Body { tag: Tag, length: u64, id: u64 },
    /// Nothing but room given back in the window.
    Credit,
    /// A rank aborted a scope.
    Abort { by: Rank, scope: Scope, reason: P },
    /// The sender leaves the world; nothing follows.
    Goodbye,
}

impl<'a> Frame<&'a [u8]> {
    /// Writes the frame into a buffer of [`SMALL`] bytes and returns its length.
    pub(crate) fn encode(&self, credit: u32, buffer: &mut [u8; SMALL]) -> usize {
        let empty: &[u8] = &[];
        let lengths = |length: u64, id: u64| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice([length, id].map(u64::to_le_bytes).as_flattened());
            bytes
        };
        let two;
        let (kind, tag, rest) = match *self {
            Frame::Eager { tag, payload } => (1, tag, payload),
            Frame::Pushed { tag, length, id } => {
                two = lengths(length, id);
                (2, tag, &two[..])
            }
            Frame::Announce { tag, length, id } => {
                two = lengths(length, id);
                (3, tag, &two[..])
            }
            Frame::Fetch { id } => (4, Tag::from_u64(id), empty),
            Frame::Body { tag, length, id } => {
                two = lengths(length, id);
                (5, tag, &two[..])
            }
            Frame::Credit => (6, Tag::new(0, 0), empty),
            Frame::Abort { by, scope: Scope::Context(context), reason } => {
                (7, Tag::new(context, by.0), reason)
            }
            Frame::Abort { by, scope: Scope::World, reason } => (8, Tag::new(0, by.0), reason),
            Frame::Goodbye => (9, Tag::new(0, 0), empty),
        };
        let first = kind | u64::from(credit) << 32;
        let rest = rest.get(..INLINE).unwrap_or(rest);
        buffer[..8].copy_from_slice(&first.to_le_bytes());
        buffer[8..HEADER].copy_from_slice(&tag.to_u64().to_le_bytes());
        buffer[HEADER..HEADER + rest.len()].copy_from_slice(rest);
        HEADER + rest.len()
    }

    /// The credit and the frame that a small message carries.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<(u32, Self), String> {
        let short = || format!("it sent {} bytes where a header has {HEADER}", bytes.len());
        let (first, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
        let (tag, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        let (first, tag) = (u64::from_le_bytes(*first), Tag::from_u64(u64::from_le_bytes(*tag)));
        let (kind, credit) = (first as u32, (first >> 32) as u32);
        let lengths = || match rest.as_chunks::<8>() {
            ([length, id], []) => Ok((u64::from_le_bytes(*length), u64::from_le_bytes(*id))),
            _ => Err(format!("it sent a frame of kind {kind} with {} bytes", rest.len())),
        };
        let empty = |frame| {
            let length = rest.len();
            if length == 0 {
                Ok(frame)
            } else {
                Err(format!("it sent {length} bytes with a frame of kind {kind}"))
            }
        };
        let frame = match kind {
            1 => Frame::Eager { tag, payload: rest },
            2 => lengths().map(|(length, id)| Frame::Pushed { tag, length, id })?,
            3 => lengths().map(|(length, id)| Frame::Announce { tag, length, id })?,
            4 => empty(Frame::Fetch { id: tag.to_u64() })?,
            5 => lengths().map(|(length, id)| Frame::Body { tag, length, id })?,
            6 => empty(Frame::Credit)?,
            7 => Frame::Abort { by: Rank(tag.number), scope: Scope::Context(tag.context), reason: rest },
            8 => Frame::Abort { by: Rank(tag.number), scope: Scope::World, reason: rest },
            9 => empty(Frame::Goodbye)?,
            _ => return Err(format!("it sent a frame of the unknown kind {kind}")),
        };
        Ok((credit, frame))
    }

    /// The same frame with a copy of its payload.
    pub(crate) fn to_owned(self) -> Frame<Bytes> {
        match self {
            Frame::Eager { tag, payload } => Frame::Eager { tag, payload: Bytes::copy_from_slice(payload) },
            Frame::Abort { by, scope, reason } => {
                Frame::Abort { by, scope, reason: Bytes::copy_from_slice(reason) }
            }
            Frame::Pushed { tag, length, id } => Frame::Pushed { tag, length, id },
            Frame::Announce { tag, length, id } => Frame::Announce { tag, length, id },
            Frame::Fetch { id } => Frame::Fetch { id },
            Frame::Body { tag, length, id } => Frame::Body { tag, length, id },
            Frame::Credit => Frame::Credit,
            Frame::Goodbye => Frame::Goodbye,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use matching::MAX_REASON;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn scope() -> impl Strategy<Value = Scope> {
        prop_oneof![Just(Scope::World), any::<u32>().prop_map(Scope::Context)]
    }

    proptest! {
        #[test]
        fn a_frame_survives_its_bytes(
            credit: u32, tag: u64, length: u64, id: u64, by: u32, scope in scope(), text in vec(any::<u8>(), 0..=INLINE)
        ) {
            let tag = Tag::from_u64(tag);
            let (by, reason) = (Rank(by), &text[..text.len().min(MAX_REASON)]);
            for frame in [
                Frame::Eager { tag, payload: &text[..] },
                Frame::Pushed { tag, length, id },
                Frame::Announce { tag, length, id },
                Frame::Fetch { id },
                Frame::Body { tag, length, id },
                Frame::Credit,
                Frame::Abort { by, scope, reason },
                Frame::Goodbye,
            ] {
                let mut buffer = [0; SMALL];
                let length = frame.encode(credit, &mut buffer);
                prop_assert_eq!(Frame::decode(&buffer[..length]), Ok((credit, frame)));
            }
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in vec(any::<u8>(), 0..64)) {
            if let Ok((credit, frame)) = Frame::decode(&bytes) {
                let mut buffer = [0; SMALL];
                let length = frame.encode(credit, &mut buffer);
                prop_assert_eq!(Frame::decode(&buffer[..length]).unwrap(), (credit, frame));
            }
        }
    }
}
