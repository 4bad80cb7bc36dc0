//! The bytes of the rendezvous, encoded and decoded without I/O.
//!
//! A rank sends one fixed-size [`Hello`], then its address blob behind a 4-byte length. Rank 0 answers
//! with frames: a 12-byte header (magic, kind, length of the body), then the body. Numbers are little
//! endian. The first 12 bytes of a hello and the frames themselves stay as they are in all versions,
//! so that different versions can still tell each other.

use std::time::Duration;

use transport::Rank;

use crate::{JobToken, Roster, Secret};

/// The longest address that a rank may contribute, in bytes.
pub const MAX_BLOB: usize = 4096;

/// The longest text that rank 0 sends.
pub(crate) const MAX_TEXT: usize = 4096;

const HELLO_MAGIC: [u8; 8] = *b"thinwire";
const FRAME_MAGIC: [u8; 4] = *b"TWrv";
const VERSION: u32 = 1;

/// What a rank says first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) world_size: u32,
    pub(crate) rank: u32,
    /// How long this rank is still willing to wait, in milliseconds.
    pub(crate) patience: u32,
    /// Drawn once a process: the same in every attempt to join.
    pub(crate) nonce: u64,
    pub(crate) secret: [u8; Secret::MAX],
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BadHello {
    /// Not one of us.
    Stranger,
    /// One of us, of another version.
    Version(u32),
}

impl Hello {
    pub(crate) const SIZE: usize = 32 + Secret::MAX;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        bytes.extend_from_slice(&HELLO_MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.world_size.to_le_bytes());
        bytes.extend_from_slice(&self.rank.to_le_bytes());
        bytes.extend_from_slice(&self.patience.to_le_bytes());
        bytes.extend_from_slice(&self.nonce.to_le_bytes());
        bytes.extend_from_slice(&self.secret);
        bytes
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, BadHello> {
        let input = &mut bytes;
        if take::<8>(input).ok_or(BadHello::Stranger)? != HELLO_MAGIC {
            return Err(BadHello::Stranger);
        }
        let mut word = || take::<4>(input).map(u32::from_le_bytes).ok_or(BadHello::Stranger);
        let version = word()?;
        if version != VERSION {
            return Err(BadHello::Version(version));
        }
        let (world_size, rank, patience) = (word()?, word()?, word()?);
        let nonce = take::<8>(input).map(u64::from_le_bytes).ok_or(BadHello::Stranger)?;
        let secret = take::<{ Secret::MAX }>(input).ok_or(BadHello::Stranger)?;
        Ok(Self { world_size, rank, patience, nonce, secret })
    }
}

pub(crate) fn version_refused(theirs: u32) -> String {
    format!("it speaks version {theirs} of the rendezvous, rank 0 speaks version {VERSION}")
}

/// A blob as it travels to rank 0.
pub(crate) fn encode_blob(blob: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + blob.len());
    put_blob(&mut bytes, blob);
    bytes
}

/// The blob in what has arrived so far; `Ok(None)` while it is incomplete.
pub(crate) fn decode_blob(mut bytes: &[u8]) -> Result<Option<&[u8]>, String> {
    let Some(length) = take::<4>(&mut bytes).map(u32::from_le_bytes) else { return Ok(None) };
    let length = length as usize;
    if length > MAX_BLOB {
        return Err(format!("an address of {length} bytes exceeds the limit of {MAX_BLOB}"));
    }
    if bytes.len() > length {
        return Err(format!("{} bytes follow the address", bytes.len() - length));
    }
    Ok(Some(bytes).filter(|blob| blob.len() == length))
}

/// What rank 0 says.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The hello was accepted: send the address and wait.
    Welcome,
    /// This process is not taken in.
    Refused(String),
    /// The world is not complete and will not be.
    Missing { elapsed: Duration, ranks: Vec<Rank>, note: String },
    /// The rendezvous ended for another reason.
    Failed(String),
    /// Everybody's address and the token.
    Roster(Roster),
}

impl Reply {
    pub(crate) const HEADER: usize = 12;

    const WELCOME: u32 = 1;
    const REFUSED: u32 = 2;
    const MISSING: u32 = 3;
    const FAILED: u32 = 4;
    const ROSTER: u32 = 5;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind = match self {
            Self::Welcome => Self::WELCOME,
            Self::Refused(reason) => {
                body.extend_from_slice(cut(reason).as_bytes());
                Self::REFUSED
            }
            Self::Missing { elapsed, ranks, note } => {
                body.extend_from_slice(&millis(*elapsed).to_le_bytes());
                body.extend_from_slice(&(ranks.len() as u32).to_le_bytes());
                ranks.iter().for_each(|rank| body.extend_from_slice(&rank.0.to_le_bytes()));
                body.extend_from_slice(cut(note).as_bytes());
                Self::MISSING
            }
            Self::Failed(reason) => {
                body.extend_from_slice(cut(reason).as_bytes());
                Self::FAILED
            }
            Self::Roster(roster) => {
                body.extend_from_slice(roster.token.as_bytes());
                roster.blobs.iter().for_each(|blob| put_blob(&mut body, blob));
                Self::ROSTER
            }
        };
        let mut bytes = Vec::with_capacity(Self::HEADER + body.len());
        bytes.extend_from_slice(&FRAME_MAGIC);
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// The kind and the length of the body, bounded for a world of this size.
    pub(crate) fn decode_header(mut header: &[u8], world_size: usize) -> Result<(u32, usize), String> {
        let mut word = || take::<4>(&mut header).ok_or("the header is too short".to_owned());
        if word()? != FRAME_MAGIC {
            return Err("what answers there is not rank 0 of a thinwire world".into());
        }
        let (kind, length) = (u32::from_le_bytes(word()?), u32::from_le_bytes(word()?) as usize);
        let limit = match kind {
            Self::WELCOME => 0,
            Self::REFUSED | Self::FAILED => MAX_TEXT,
            Self::MISSING => world_size.saturating_mul(4).saturating_add(8 + MAX_TEXT),
            Self::ROSTER => world_size.saturating_mul(4 + MAX_BLOB).saturating_add(16),
            _ => return Err(format!("rank 0 sent a frame of the unknown kind {kind}")),
        };
        if length > limit {
            return Err(format!("rank 0 sent a frame of {length} bytes where {limit} are the limit"));
        }
        Ok((kind, length))
    }

    pub(crate) fn decode_body(kind: u32, mut body: &[u8], world_size: usize) -> Result<Self, String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let short = || "rank 0 sent a frame that ends too early".to_owned();
        Ok(match kind {
            Self::WELCOME => Self::Welcome,
            Self::REFUSED => Self::Refused(text(body)),
            Self::MISSING => {
                let mut word = || take::<4>(&mut body).map(u32::from_le_bytes).ok_or_else(short);
                let (elapsed, count) = (word()?, word()?);
                let ranks = (0..count).map(|_| word().map(Rank)).collect::<Result<_, _>>()?;
                Self::Missing { elapsed: Duration::from_millis(elapsed.into()), ranks, note: text(body) }
            }
            Self::FAILED => Self::Failed(text(body)),
            _ => {
                let token = JobToken::from_bytes(take::<16>(&mut body).ok_or_else(short)?);
                let mut blobs = Vec::with_capacity(world_size.min(body.len()));
                for _ in 0..world_size {
                    let length = take::<4>(&mut body).map(u32::from_le_bytes).ok_or_else(short)?;
                    let blob = body.split_at_checked(length as usize).ok_or_else(short)?;
                    blobs.push(blob.0.to_vec());
                    body = blob.1;
                }
                if !body.is_empty() {
                    return Err(format!("{} bytes follow the roster", body.len()));
                }
                Self::Roster(Roster { blobs, token })
            }
        })
    }
}

pub(crate) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn put_blob(bytes: &mut Vec<u8>, blob: &[u8]) {
    bytes.extend_from_slice(&(blob.len() as u32).to_le_bytes());
    bytes.extend_from_slice(blob);
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*head)
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn decode(bytes: &[u8], world_size: usize) -> Result<Reply, String> {
        let (header, body) = bytes.split_at_checked(Reply::HEADER).ok_or("short")?;
        let (kind, length) = Reply::decode_header(header, world_size)?;
        Reply::decode_body(kind, body.get(..length).ok_or("short")?, world_size)
    }

    fn reply(world_size: usize) -> impl Strategy<Value = Reply> {
        let text = "[a-zäöü ]{0,40}";
        prop_oneof![
            Just(Reply::Welcome),
            text.prop_map(Reply::Refused),
            text.prop_map(Reply::Failed),
            (any::<u32>(), vec(0..world_size as u32, 0..world_size), text).prop_map(
                |(elapsed, ranks, note)| {
                    let elapsed = Duration::from_millis(elapsed.into());
                    Reply::Missing { elapsed, ranks: ranks.into_iter().map(Rank).collect(), note }
                }
            ),
            (any::<[u8; 16]>(), vec(vec(any::<u8>(), 0..50), world_size)).prop_map(|(token, blobs)| {
                Reply::Roster(Roster { blobs, token: JobToken::from_bytes(token) })
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_hello_survives_the_wire(
            (world_size, rank, patience, nonce) in any::<(u32, u32, u32, u64)>(),
            secret in any::<[u8; 32]>(),
        ) {
            let mut padded = [0; 64];
            padded[..32].copy_from_slice(&secret);
            let hello = Hello { world_size, rank, patience, nonce, secret: padded };
            prop_assert_eq!(hello.encode().len(), Hello::SIZE);
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }

        #[test]
        fn a_reply_survives_the_wire(reply in reply(5)) {
            // Encoded again, since a token has no comparison that tells more than yes or no.
            prop_assert_eq!(decode(&reply.encode(), 5).unwrap().encode(), reply.encode());
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in vec(any::<u8>(), 0..200), kind in 0..7_u32, cut in 0..200_usize) {
            let _ = Hello::decode(&bytes);
            let _ = decode_blob(&bytes);
            let _ = decode(&bytes, 3);
            let _ = Reply::decode_body(kind, &bytes, 3);
            let roster = Reply::Roster(Roster { blobs: vec![vec![7; 40]; 3], token: JobToken::from_bytes([1; 16]) });
            let whole = roster.encode();
            prop_assert_eq!(decode(&whole[..cut.min(whole.len())], 3).is_ok(), cut >= whole.len());
        }

        #[test]
        fn a_blob_is_complete_at_its_last_byte(blob in vec(any::<u8>(), 0..50)) {
            let bytes = encode_blob(&blob);
            for end in 0..bytes.len() {
                prop_assert_eq!(decode_blob(&bytes[..end]), Ok(None));
            }
            prop_assert_eq!(decode_blob(&bytes), Ok(Some(&blob[..])));
            prop_assert!(decode_blob(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_allocated() {
        let mut bytes = Reply::Failed(String::new()).encode();
        bytes[8..12].copy_from_slice(&(MAX_TEXT as u32 + 1).to_le_bytes());
        assert!(Reply::decode_header(&bytes, 3).unwrap_err().contains("limit"));
        assert!(decode_blob(&(MAX_BLOB as u32 + 1).to_le_bytes()).unwrap_err().contains("limit"));
    }

    #[test]
    fn another_version_is_told_from_a_stranger() {
        let hello = Hello { world_size: 2, rank: 1, patience: 0, nonce: 0, secret: [0; 64] };
        let mut bytes = hello.encode();
        bytes[8] = 9;
        assert_eq!(Hello::decode(&bytes), Err(BadHello::Version(9)));
        bytes[0] = b'T';
        assert_eq!(Hello::decode(&bytes), Err(BadHello::Stranger));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "ä".repeat(MAX_TEXT);
        assert!(
            matches!(decode(&Reply::Failed(text).encode(), 1), Ok(Reply::Failed(cut)) if cut.len() == MAX_TEXT)
        );
    }
}
