//! What travels on a connection: a fixed header, then the payload. Encoded and decoded without I/O.

use std::fmt;

use matching::MAX_REASON;
use transport::Tag;

/// The size of every header.
pub(crate) const HEADER: usize = 32;

/// The longest part of an announced message, in bytes: as long as an abort may have to wait for it.
pub(crate) const MAX_PART: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A whole message that fits the receiver's window.
    Eager = 1,
    /// A message that does not fit: its tag, length and id, in its place among the others.
    Announce = 2,
    /// The receiver wants the announced message of this id.
    Fetch = 3,
    /// A part of an announced message.
    Part = 4,
    /// Nothing but what every header carries: room given back in the window.
    Credit = 5,
    /// A sign of life.
    Heartbeat = 6,
    /// A context (the tag's) or the world (if the id is 1) is aborted, for the reason given; the tag's
    /// number is the rank that began it.
    Abort = 7,
    /// The sender leaves the world; nothing follows.
    Goodbye = 8,
}

impl Kind {
    fn from_code(code: u32) -> Option<Self> {
        const ALL: [Kind; 8] = [
            Kind::Eager,
            Kind::Announce,
            Kind::Fetch,
            Kind::Part,
            Kind::Credit,
            Kind::Heartbeat,
            Kind::Abort,
            Kind::Goodbye,
        ];
        ALL.into_iter().find(|kind| *kind as u32 == code)
    }
}

/// Kind (4 bytes), credit (4), tag, length, id (8 each), all little endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Bytes of the receiving side's window that its application has consumed since the last header.
    pub(crate) credit: u32,
    pub(crate) tag: Tag,
    /// Of the payload that follows; of the announced message, where none follows.
    pub(crate) length: u64,
    /// Which announced message.
    pub(crate) id: u64,
}

impl Header {
    /// A header of this kind, the rest zero.
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, credit: 0, tag: Tag::new(0, 0), length: 0, id: 0 }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let first = self.kind as u64 | u64::from(self.credit) << 32;
        let words = [first, self.tag.to_u64(), self.length, self.id].map(u64::to_le_bytes);
        let mut bytes = [0; HEADER];
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Result<Self, Violation> {
        let mut words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        let mut word = || words.next().unwrap_or_default();
        let (first, tag, length, id) = (word(), word(), word(), word());
        let header = Self {
            kind: Kind::from_code(first as u32).ok_or(Violation::Kind(first as u32))?,
            credit: (first >> 32) as u32,
            tag: Tag::from_u64(tag),
            length,
            id,
        };
        let too_long = match header.kind {
            Kind::Abort => header.length > MAX_REASON as u64,
            Kind::Fetch | Kind::Credit | Kind::Heartbeat | Kind::Goodbye => header.length > 0,
            Kind::Part => header.length > MAX_PART as u64,
            Kind::Eager | Kind::Announce => false,
        };
        if too_long { Err(Violation::Length(header.kind, header.length)) } else { Ok(header) }
    }

    /// How many bytes follow the header.
    pub(crate) const fn payload(&self) -> u64 {
        match self.kind {
            Kind::Announce => 0,
            _ => self.length,
        }
    }
}

/// What cannot be a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    Kind(u32),
    Length(Kind, u64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "it sent a frame of the unknown kind {kind}"),
            Self::Length(kind, length) => write!(f, "it sent a frame of kind {kind:?} with {length} bytes"),
        }
    }
}

/// Cuts a stream of bytes, however it is split, into headers and payloads.
///
/// The payload's buffer comes from the caller, who has seen the header: so nothing is allocated on the
/// word of a length, and the parts of a long message come together without a copy.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
}

#[derive(Debug)]
enum State {
    Header {
        bytes: [u8; HEADER],
        filled: usize,
    },
    /// The header has been handed out, the caller has yet to say where the payload goes.
    Decide,
    Payload {
        into: Vec<u8>,
        rest: u64,
    },
    Skip {
        rest: u64,
    },
}

/// What the decoder found in its input.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The input is used up.
    Starved,
    /// A header. If a payload follows it: [`Decoder::collect`] or [`Decoder::skip`] next.
    Header(Header),
    /// The payload of the last header is complete: the buffer passed to `collect`, grown.
    Payload(Vec<u8>),
    /// The payload of the last header has been skipped.
    Skipped,
}

impl Decoder {
    pub(crate) const fn new() -> Self {
        Self { state: State::Header { bytes: [0; HEADER], filled: 0 } }
    }

    /// Takes from the front of `input` up to the next thing worth knowing.
    pub(crate) fn step(&mut self, input: &mut &[u8]) -> Result<Step, Violation> {
        match &mut self.state {
            State::Header { bytes, filled } => {
                let missing = bytes.get_mut(*filled..).unwrap_or_default();
                let taken = take(input, missing.len() as u64);
                for (slot, byte) in missing.iter_mut().zip(taken) {
                    *slot = *byte;
                }
                *filled += taken.len();
                if *filled < HEADER {
                    return Ok(Step::Starved);
                }
                let header = Header::decode(bytes)?;
                self.state = if header.payload() > 0 {
                    State::Decide
                } else {
                    State::Header { bytes: [0; HEADER], filled: 0 }
                };
                Ok(Step::Header(header))
            }
            State::Payload { into, rest } => {
                let taken = take(input, *rest);
                *rest -= taken.len() as u64;
                into.extend_from_slice(taken);
                if *rest > 0 {
                    return Ok(Step::Starved);
                }
                let payload = std::mem::take(into);
                *self = Self::new();
                Ok(Step::Payload(payload))
            }
            State::Skip { rest } => {
                *rest -= take(input, *rest).len() as u64;
                if *rest > 0 {
                    return Ok(Step::Starved);
                }
                *self = Self::new();
                Ok(Step::Skipped)
            }
            // Nobody wanted the payload of a header that had one: a defect of the caller. Waiting for
            // input that is never taken would spin, so it counts as the end of the input.
            State::Decide => Ok(Step::Starved),
        }
    }

    /// Appends the payload of this header, just handed out, to `into`.
    pub(crate) fn collect(&mut self, header: &Header, into: Vec<u8>) {
        self.state = State::Payload { into, rest: header.payload() };
    }

    /// Drops the payload of this header, just handed out.
    pub(crate) fn skip(&mut self, header: &Header) {
        self.state = State::Skip { rest: header.payload() };
    }

    /// Where the bytes that come next belong and how many of them, if that is a payload: a shortcut
    /// past [`step`](Self::step) for reading straight to its place. Report with
    /// [`read_directly`](Self::read_directly).
    pub(crate) const fn direct(&mut self) -> Option<(&mut Vec<u8>, u64)> {
        match &mut self.state {
            State::Payload { into, rest } => Some((into, *rest)),
            _ => None,
        }
    }

    /// So many bytes were appended to the buffer of [`direct`](Self::direct).
    pub(crate) const fn read_directly(&mut self, read: u64) {
        if let State::Payload { rest, .. } = &mut self.state {
            *rest = rest.saturating_sub(read);
        }
    }
}

fn take<'a>(input: &mut &'a [u8], at_most: u64) -> &'a [u8] {
    let length = usize::try_from(at_most).unwrap_or(usize::MAX).min(input.len());
    let (taken, rest) = input.split_at(length);
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Headers and their payloads as the sender writes them.
    fn frames() -> impl Strategy<Value = Vec<(Header, Vec<u8>)>> {
        let frame = (1..=8_u32, any::<(u32, u64, u64)>(), vec(any::<u8>(), 0..100));
        let frame = frame.prop_map(|(code, (credit, tag, id), payload)| {
            let kind = Kind::from_code(code).unwrap();
            let payload =
                if matches!(kind, Kind::Eager | Kind::Part | Kind::Abort) { payload } else { vec![] };
            let length = if kind == Kind::Announce { 12_345 } else { payload.len() as u64 };
            (Header { kind, credit, tag: Tag::from_u64(tag), length, id }, payload)
        });
        vec(frame, 0..10)
    }

    /// Feeds the pieces one after the other; collects every payload but those of odd ids.
    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, direct: bool) -> Result<Vec<Step>, Violation> {
        let (mut decoder, mut steps) = (Decoder::new(), Vec::new());
        for mut input in pieces {
            if let Some((into, rest)) = decoder.direct().filter(|_| direct) {
                let taken = take(&mut input, rest);
                into.extend_from_slice(taken);
                decoder.read_directly(taken.len() as u64);
            }
            loop {
                match decoder.step(&mut input)? {
                    Step::Starved => break,
                    Step::Header(header) => {
                        if header.payload() > 0 && header.id % 2 == 1 {
                            decoder.skip(&header);
                        } else if header.payload() > 0 {
                            decoder.collect(&header, Vec::new());
                        }
                        steps.push(Step::Header(header));
                    }
                    step => steps.push(step),
                }
            }
        }
        Ok(steps)
    }

    fn expected(frames: &[(Header, Vec<u8>)]) -> Vec<Step> {
        let steps = frames.iter().flat_map(|(header, payload)| {
            let then = (!payload.is_empty())
                .then(|| if header.id % 2 == 1 { Step::Skipped } else { Step::Payload(payload.clone()) });
            std::iter::once(Step::Header(*header)).chain(then)
        });
        steps.collect()
    }

    proptest! {
        #[test]
        fn frames_survive_any_split(frames in frames(), size in 1..200_usize, direct: bool) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(h, payload)| [&h.encode()[..], payload].concat()).collect();
            prop_assert_eq!(decode(bytes.chunks(size), direct).unwrap(), expected(&frames));
        }

        #[test]
        fn no_bytes_are_too_strange(mut bytes in vec(any::<u8>(), 0..300), kind in 0..10_u8, size in 1..100_usize) {
            let _ = decode(bytes.chunks(size), true);
            // The same with a kind that exists, so that it comes further.
            for header in bytes.chunks_mut(HEADER) {
                for (slot, byte) in header.iter_mut().zip([kind, 0, 0, 0]) {
                    *slot = byte;
                }
            }
            let _ = decode(bytes.chunks(size), true);
        }

        #[test]
        fn a_header_is_what_its_bytes_say(bytes in any::<[u8; HEADER]>(), kind in 1..=8_u8) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }

    #[test]
    fn impossible_headers_are_refused() {
        let encoded = |kind, length| Header { length, ..Header::new(kind) }.encode();
        assert_eq!(Header::decode(&[0; HEADER]), Err(Violation::Kind(0)));
        assert_eq!(Header::decode(&[9; HEADER]), Err(Violation::Kind(0x0909_0909)));
        for (kind, longest) in [
            (Kind::Abort, MAX_REASON as u64),
            (Kind::Part, MAX_PART as u64),
            (Kind::Fetch, 0),
            (Kind::Credit, 0),
            (Kind::Heartbeat, 0),
            (Kind::Goodbye, 0),
        ] {
            assert!(Header::decode(&encoded(kind, longest)).is_ok());
            assert_eq!(
                Header::decode(&encoded(kind, longest + 1)),
                Err(Violation::Length(kind, longest + 1))
            );
        }
        assert!(Header::decode(&encoded(Kind::Announce, u64::MAX)).is_ok());
    }
}
