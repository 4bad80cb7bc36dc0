//! Codecs for indices on the wire: the support of a sparse vector in about its entropy.
//!
//! | code | codec | bytes after the code, for `k` indices below `n` |
//! |---|---|---|
//! | 0 | [`Raw`](Codec::Raw) | `4 k`, each a little-endian `u32` |
//! | 1 | [`Bitmap`](Codec::Bitmap) | `n / 8` |
//! | 2 | [`Blocks`](Codec::Blocks) | for each 128 indices 1, and their gaps at the width of the widest |
//! | 3 | [`EliasFano`](Codec::EliasFano) | `k (2 + log2(n / k)) / 8` or a little less |
//! | 4 | [`Runs`](Codec::Runs) | 4, and Elias-Fano of where each run of neighbours starts and ends |
//!
//! An encoding is a code and what that codec makes of the indices; its length follows from its contents, the
//! dimension and the number of indices, which the receiver knows. [`encode`] takes the shortest, found exactly by
//! one pass over the indices. Uniform supports come within about a tenth of the entropy log2 C(n, k), clustered ones
//! far below.
//!
//! Each codec has exactly one encoding of a support, and [`decode`] accepts no other.
//!
//! ```
//! use sparse_core::codec::{self, Codec};
//!
//! let rows: Vec<u32> = (128..192).chain(640..704).collect();
//! let mut bytes = Vec::new();
//! assert_eq!(codec::encode(1024, &rows, 0, &mut bytes), Codec::Runs);
//! assert_eq!(bytes.len(), codec::encoded_len(1024, &rows, 0));
//! assert!(bytes.len() < 12);
//!
//! let mut found = Vec::new();
//! codec::decode(&bytes, 1024, rows.len(), 0, &mut found)?;
//! assert_eq!(found, rows);
//! # Ok::<(), sparse_core::Error>(())
//! ```

mod bitmap;
mod blocks;
mod elias_fano;
mod pack;
mod runs;

use crate::error::check_dim;
use crate::sparse_vec::check_indices;
use crate::{Error, arch};
use elias_fano::Shape;

/// How indices are coded; [`code`](Self::code) is the first byte of an encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Codec {
    /// The indices themselves. The shortest when they are very few in a large dimension.
    Raw,
    /// A bit for each position. The shortest where more than a third are taken.
    Bitmap,
    /// The gaps between indices, bit-packed in blocks of 128. The shortest where the density changes.
    Blocks,
    /// Low bits packed, high bits in unary. The shortest for uniform supports.
    EliasFano,
    /// The starts and ends of runs of neighbours. The shortest for whole rows.
    Runs,
}

impl Codec {
    /// All of them, by code.
    pub const ALL: [Self; 5] = [Self::Raw, Self::Bitmap, Self::Blocks, Self::EliasFano, Self::Runs];

    /// The first byte of an encoding.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Bitmap => 1,
            Self::Blocks => 2,
            Self::EliasFano => 3,
            Self::Runs => 4,
        }
    }

    /// The codec with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Raw),
            1 => Some(Self::Bitmap),
            2 => Some(Self::Blocks),
            3 => Some(Self::EliasFano),
            4 => Some(Self::Runs),
            _ => None,
        }
    }
}

/// More indices than this for each byte are never encoded, nor accepted: what decoding allocates is bounded by
/// what was received.
pub const MOST_PER_BYTE: usize = 1024;

/// Appends the shortest encoding of `index - base` for each of the indices, and says which it is.
///
/// At most `1 + 4 k` bytes for `k` indices. One cheap pass finds the shortest, another writes it.
///
/// # Panics
/// Unless the indices less `base` increase strictly and are below `dim`, and that is at most 2^32, the bytes
/// mean nothing, or it panics.
pub fn encode(dim: u64, indices: &[u32], base: u32, out: &mut Vec<u8>) -> Codec {
    let scan = Scan::of(dim, indices, base);
    let (len, codec) = scan.shortest();
    scan.write(codec, len, indices, base, out);
    codec
}

/// The length of what [`encode`] appends. One cheap pass over the indices.
///
/// # Panics
/// As [`encode`].
#[must_use]
pub fn encoded_len(dim: u64, indices: &[u32], base: u32) -> usize {
    Scan::of(dim, indices, base).shortest().0
}

/// About the length of what [`encode`] appends for so many indices, at most `dim`, that lie uniformly: that of the
/// shortest codec whose length does not depend on where they lie. O(1).
///
/// For planning: a few indices may take a byte or two less, clustered ones far less, and none take more.
///
/// ```
/// use sparse_core::codec;
///
/// let every_hundredth: Vec<u32> = (0..1_000).map(|i| i * 100).collect();
/// assert!(codec::encoded_len(100_000, &every_hundredth, 0) <= codec::expected_len(100_000, 1_000));
/// ```
#[must_use]
pub fn expected_len(dim: u64, count: usize) -> usize {
    let scan = Scan { dim, count, blocks: 0, runs: 0 };
    let codecs = [Codec::Raw, Codec::Bitmap, Codec::EliasFano];
    codecs.into_iter().filter_map(|codec| scan.len(codec)).min().unwrap_or(1 + 4 * count)
}

/// Room enough for [`encode`] to append any so many indices without new memory.
#[must_use]
pub fn room(count: usize) -> usize {
    1 + 4 * count + pack::SLACK
}

/// [`encode`] by this codec, whatever its length.
///
/// Returns false, and appends nothing, when that would hold more than [`MOST_PER_BYTE`], as only very long runs
/// can.
///
/// # Panics
/// As [`encode`].
pub fn encode_as(codec: Codec, dim: u64, indices: &[u32], base: u32, out: &mut Vec<u8>) -> bool {
    let scan = Scan::of(dim, indices, base);
    let len = scan.len(codec);
    if let Some(len) = len {
        scan.write(codec, len, indices, base, out);
    }
    len.is_some()
}

/// Appends the `count` indices that `bytes`, all of them, encode, each plus `base`: strictly increasing, and below
/// `dim + base`.
///
/// One pass, which checks too. Allocates room for `count` indices once these bytes can hold them.
///
/// # Errors
/// [`Error::Malformed`] if that is not what the bytes are, [`Error::DimensionTooLarge`] if `dim + base` is; `out` is
/// then as before.
pub fn decode(bytes: &[u8], dim: u64, count: usize, base: u32, out: &mut Vec<u32>) -> Result<(), Error> {
    check_dim(dim.saturating_add(base.into()))?;
    let Some((&code, body)) = bytes.split_first() else {
        return Err(Error::malformed("coded indices: no byte"));
    };
    let codec = Codec::from_code(code)
        .ok_or_else(|| Error::malformed(format!("coded indices: there is no codec {code}")))?;
    if count as u64 > dim || !may_hold(codec, body.len(), count) {
        let len = body.len();
        return Err(Error::malformed(format!("coded indices: {count} below {dim} in {len} bytes")));
    }
    let start = out.len();
    let decoded = read(codec, body, dim, count, base, out);
    if decoded.is_err() {
        out.truncate(start);
    }
    decoded
}

/// Whether a body of this length can be one of so many indices, roughly; bounds what is allocated for it.
fn may_hold(codec: Codec, len: usize, count: usize) -> bool {
    match codec {
        Codec::Raw => count.checked_mul(4) == Some(len),
        Codec::Bitmap | Codec::EliasFano => count.div_ceil(8) <= len,
        Codec::Blocks => count.div_ceil(blocks::BLOCK) <= len,
        Codec::Runs => count.div_ceil(MOST_PER_BYTE) <= len,
    }
}

fn read(
    codec: Codec,
    body: &[u8],
    dim: u64,
    count: usize,
    base: u32,
    out: &mut Vec<u32>,
) -> Result<(), Error> {
    let start = out.len();
    match codec {
        Codec::Raw => {
            out.extend(body.as_chunks().0.iter().map(|&index| u32::from_le_bytes(index)));
            check_indices(dim, &out[start..])
                .map_err(|error| Error::malformed(format!("coded indices: {error}")))?;
            out[start..].iter_mut().for_each(|index| *index += base);
            Ok(())
        }
        Codec::Bitmap => bitmap::read(body, dim, count, base, out),
        Codec::Blocks => blocks::read(body, dim, count, base, out),
        Codec::EliasFano if count == 0 => {
            if body.is_empty() {
                Ok(())
            } else {
                Err(elias_fano::wrong_count())
            }
        }
        Codec::EliasFano => elias_fano::read(Shape::new(dim, count), body, count, base, out),
        Codec::Runs => {
            let ends = runs::read_ends(body, dim, count)?;
            out.reserve(count);
            runs::expand(&ends, base, out);
            Ok(())
        }
    }
}

/// What the lengths of all encodings follow from.
struct Scan {
    dim: u64,
    count: usize,
    /// The length of all blocks.
    blocks: usize,
    runs: usize,
}

impl Scan {
    fn of(dim: u64, indices: &[u32], base: u32) -> Self {
        debug_assert!(dim <= 1 << 32 && indices.first().is_none_or(|&first| first >= base));
        debug_assert!(check_indices(dim + u64::from(base), indices).is_ok());
        arch::fastest(
            #[inline(always)]
            || Self::of_all(dim, indices, base),
        )
    }

    #[inline(always)]
    fn of_all(dim: u64, indices: &[u32], base: u32) -> Self {
        let mut scan = Self { dim, count: indices.len(), blocks: 0, runs: 0 };
        // So that the first index starts a run even if it skips nothing.
        scan.runs = usize::from(indices.first() == Some(&base));
        let mut before = base.wrapping_sub(1);
        for block in indices.chunks(blocks::BLOCK) {
            let first = blocks::gap(before, block[0]);
            let (mut any, mut skips) = (first, u32::from(first != 0));
            for (&before, &index) in block.iter().zip(&block[1..]) {
                let gap = blocks::gap(before, index);
                any |= gap;
                skips += u32::from(gap != 0);
            }
            before = block[block.len() - 1];
            scan.blocks += blocks::block_len(block.len(), u32::BITS - any.leading_zeros());
            scan.runs += skips as usize;
        }
        scan
    }

    /// Of the shortest the fastest.
    fn shortest(&self) -> (usize, Codec) {
        let mut best = (1 + 4 * self.count, Codec::Raw);
        for codec in [Codec::Bitmap, Codec::EliasFano, Codec::Blocks, Codec::Runs] {
            if let Some(len) = self.len(codec)
                && len < best.0
            {
                best = (len, codec);
            }
        }
        best
    }

    /// The length of an encoding, or `None` if it would hold too much.
    fn len(&self, codec: Codec) -> Option<usize> {
        let len = match codec {
            Codec::Raw => 4 * self.count,
            Codec::Bitmap => bitmap::len(self.dim),
            Codec::Blocks => self.blocks,
            Codec::EliasFano if self.count == 0 => 0,
            Codec::EliasFano => Shape::new(self.dim, self.count).len(self.count),
            Codec::Runs => runs::len(self.dim, self.runs),
        };
        may_hold(codec, len, self.count).then_some(1 + len)
    }

    fn write(&self, codec: Codec, len: usize, indices: &[u32], base: u32, out: &mut Vec<u8>) {
        out.push(codec.code());
        let (start, end) = (out.len(), out.len() + len - 1);
        if codec == Codec::Raw {
            out.extend(indices.iter().flat_map(|index| (index - base).to_le_bytes()));
            return;
        }
        out.resize(end + pack::SLACK, 0);
        let body = &mut out[start..];
        match codec {
            Codec::Raw => {}
            Codec::Bitmap => bitmap::write(indices, base, body),
            Codec::Blocks => blocks::write(indices, base, body),
            Codec::EliasFano if indices.is_empty() => {}
            Codec::EliasFano => elias_fano::write(Shape::new(self.dim, self.count), indices, base, body),
            Codec::Runs => runs::write(self.dim, indices, base, self.runs, body),
        }
        out.truncate(end);
    }
}
