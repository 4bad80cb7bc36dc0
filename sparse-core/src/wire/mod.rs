//! Frames: what the vectors look like on the wire.
//!
//! Little endian, whatever the machine. A header of [`HEADER`] bytes:
//!
//! | bytes | field |
//! |---|---|
//! | 0, 1 | `"TW"` |
//! | 2 | [`VERSION`] |
//! | 3, low half | kind of the body: 0 empty, 1 dense, 2 sparse, 3 opaque |
//! | 3, high half | log2 of how many pieces, a frame each, the vector comes in ([`mark_piece`]) |
//! | 4 | type of the values ([`DType::code`](crate::DType::code)) |
//! | 5, 6, 7 | operation, algorithm, mode: codes of the caller |
//! | 8 .. 16 | dimension of the whole collective |
//! | 16 .. 24 | parameter: k, density or whatever else all ranks must agree on |
//! | 24 .. 32 | count: entries, values or bytes of the body |
//!
//! Bytes 4 to 24 are the [`Fingerprint`]. Then the body: sparse, all values and after them the indices in the
//! shortest [`codec`](crate::codec); dense, all values; opaque, any bytes; empty, none.
//!
//! A receiver calls [`open`], compares fingerprints, then takes the body out. No input makes any of
//! that panic, and none allocates more than a few times the bytes that were received.
//!
//! ```
//! use sparse_core::{SparseVec, wire};
//!
//! # fn main() -> Result<(), sparse_core::Error> {
//! let fingerprint = wire::Fingerprint::new::<f32>(1, 2, 0, 1000, 10);
//! let sent = SparseVec::new(1000, vec![3, 999], vec![0.5_f32, -1.0])?;
//! let bytes = wire::encode_sparse(&fingerprint, &sent);
//! assert_eq!(bytes.len(), wire::HEADER + 2 * 4 + 4); // two values; two indices and which codec they are in
//!
//! let frame = wire::open(bytes)?;
//! assert_eq!(frame.fingerprint, fingerprint);
//! assert_eq!(frame.into_stream::<f32>(1000)?.into_sparse()?, sent);
//! # Ok(())
//! # }
//! ```

mod frame;
mod write;

use bytes::Bytes;

pub use frame::{Frame, SparseBody};
pub use write::{
    encode, encode_dense, encode_empty, encode_opaque, encode_sparse, mark_piece, sparse_len, sparse_room,
    write_dense, write_dense_sum, write_opaque, write_sparse,
};

use crate::{Element, Error};

/// Bytes before the body.
pub const HEADER: usize = 32;

/// The version that this crate writes and accepts.
pub const VERSION: u8 = 3;

/// The most pieces that a vector comes in.
pub const MAX_PIECES: usize = 1 << 15;

const MAGIC: [u8; 2] = *b"TW";

/// What all ranks of a collective must agree on; travels in every frame.
///
/// But for `dtype` the codes mean nothing to this crate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint {
    /// The type of the values, as [`DType::code`](crate::DType::code).
    pub dtype: u8,
    /// Which collective.
    pub operation: u8,
    /// Which algorithm.
    pub algorithm: u8,
    /// Which of its modes.
    pub mode: u8,
    /// The dimension of the whole collective; a body may be a part of it.
    pub dim: u64,
    /// Whatever else must be the same on all ranks.
    pub parameter: u64,
}

impl Fingerprint {
    /// The fingerprint of a collective on values of type `T`.
    #[must_use]
    pub fn new<T: Element>(operation: u8, algorithm: u8, mode: u8, dim: u64, parameter: u64) -> Self {
        Self { dtype: T::DTYPE.code(), operation, algorithm, mode, dim, parameter }
    }
}

/// What the body of a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BodyKind {
    /// Nothing.
    Empty,
    /// Values.
    Dense,
    /// Values, then coded indices.
    Sparse,
    /// Bytes that mean something to the caller alone.
    Opaque,
}

impl BodyKind {
    const fn code(self) -> u8 {
        match self {
            Self::Empty => 0,
            Self::Dense => 1,
            Self::Sparse => 2,
            Self::Opaque => 3,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Empty,
            1 => Self::Dense,
            2 => Self::Sparse,
            3 => Self::Opaque,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Empty => "an empty body",
            Self::Dense => "a dense body",
            Self::Sparse => "a sparse body",
            Self::Opaque => "an opaque body",
        }
    }
}

/// Checks the header of a received frame, and that the body has exactly the length it claims. O(1).
///
/// # Errors
/// [`Error::Malformed`].
pub fn open(mut bytes: Bytes) -> Result<Frame, Error> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(Error::malformed(format!("{} bytes are shorter than a header", bytes.len())));
    };
    let &[m0, m1, version, kind, dtype, operation, algorithm, mode, ref words @ ..] = header;
    if [m0, m1] != MAGIC {
        return Err(Error::malformed("it does not start with the magic bytes"));
    }
    if version != VERSION {
        return Err(Error::malformed(format!("version {version}, this is version {VERSION}")));
    }
    let (kind, pieces) = (kind & 0xf, 1 << (kind >> 4));
    let kind = BodyKind::from_code(kind)
        .ok_or_else(|| Error::malformed(format!("there is no kind of body {kind}")))?;
    let [dim, parameter, count] = read_words(words);
    let fingerprint = Fingerprint { dtype, operation, algorithm, mode, dim, parameter };
    let frame = Frame { fingerprint, kind, pieces, count, body: bytes.split_off(HEADER) };
    frame.check_length()?;
    Ok(frame)
}

fn read_words(bytes: &[u8; 24]) -> [u64; 3] {
    let mut words = [0; 3];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}
