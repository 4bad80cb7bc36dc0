//! Frames: what the vectors look like on the wire.
//!
//! Little endian, whatever the machine. A header of [`HEADER`] bytes:
//!
//! | bytes | field |
//! |---|---|
//! | 0, 1 | `"TW"` |
//! | 2 | [`VERSION`] |
//! | 3 | kind of the body: 0 empty, 1 dense, 2 sparse, 3 opaque |
//! | 4 | type of the values ([`DType::code`]) |
//! | 5, 6, 7 | operation, algorithm, mode: codes of the caller |
//! | 8 .. 16 | dimension of the whole collective |
//! | 16 .. 24 | parameter: k, density or whatever else all ranks must agree on |
//! | 24 .. 32 | count: entries, values or bytes of the body |
//!
//! Bytes 4 to 24 are the [`Fingerprint`]. Then the body: sparse, all indices as `u32` and after them
//! all values, `4 + size` bytes an entry; dense, all values; opaque, any bytes; empty, none.
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
//! assert_eq!(bytes.len(), wire::HEADER + 2 * 8);
//!
//! let frame = wire::open(bytes)?;
//! assert_eq!(frame.fingerprint, fingerprint);
//! assert_eq!(frame.into_stream::<f32>(1000)?.into_sparse()?, sent);
//! # Ok(())
//! # }
//! ```

use bytemuck::Pod;
use bytes::Bytes;

use crate::error::{check_dim, check_same_dim};
use crate::{DType, Element, Error, SparseVec, SparseView, Stream};

/// Bytes before the body.
pub const HEADER: usize = 32;

/// The version that this crate writes and accepts.
pub const VERSION: u8 = 1;

const MAGIC: [u8; 2] = *b"TW";

/// What all ranks of a collective must agree on; travels in every frame.
///
/// But for `dtype` the codes mean nothing to this crate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint {
    /// The type of the values, as [`DType::code`].
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
    /// Indices, then values.
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

/// A stream as a frame, in the form that it has.
///
/// The header says `T`'s type whatever `fingerprint.dtype` says; so do the other encoders of values.
#[must_use]
pub fn encode<T: Element>(fingerprint: &Fingerprint, stream: &Stream<T>) -> Bytes {
    match stream {
        Stream::Sparse(vec) => encode_sparse(fingerprint, vec),
        Stream::Dense(values) => encode_dense(fingerprint, values),
    }
}

/// A sparse vector as a frame of `HEADER + nnz * (4 + size)` bytes.
#[must_use]
pub fn encode_sparse<T: Element>(fingerprint: &Fingerprint, vec: &SparseVec<T>) -> Bytes {
    let mut out = Vec::with_capacity(sparse_len::<T>(vec.nnz()));
    write_sparse(&mut out, fingerprint, &vec.view());
    out.into()
}

/// Dense values as a frame of `HEADER + len * size` bytes.
#[must_use]
pub fn encode_dense<T: Element>(fingerprint: &Fingerprint, values: &[T]) -> Bytes {
    let mut out = Vec::with_capacity(HEADER + size_of_val(values));
    write_dense(&mut out, fingerprint, values);
    out.into()
}

/// Any bytes as a frame.
#[must_use]
pub fn encode_opaque(fingerprint: &Fingerprint, body: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(HEADER + body.len());
    write_opaque(&mut out, fingerprint, &[body]);
    out.into()
}

/// A frame that is only a header.
#[must_use]
pub fn encode_empty(fingerprint: &Fingerprint) -> Bytes {
    let mut out = Vec::with_capacity(HEADER);
    write_header(&mut out, fingerprint, BodyKind::Empty, 0);
    out.into()
}

/// The length of the frame of a sparse vector with so many entries.
#[must_use]
pub fn sparse_len<T: Element>(nnz: usize) -> usize {
    HEADER + nnz * (4 + size_of::<T>())
}

/// [`encode_sparse`] of a borrowed vector, to the end of a buffer.
pub fn write_sparse<T: Element>(out: &mut Vec<u8>, fingerprint: &Fingerprint, view: &SparseView<'_, T>) {
    let fingerprint = Fingerprint { dtype: T::DTYPE.code(), ..*fingerprint };
    write_header(out, &fingerprint, BodyKind::Sparse, view.nnz());
    let (indices, base) = view.shifted_indices();
    if base == 0 {
        put(out, indices, u32::to_le);
    } else {
        let start = out.len();
        out.resize(start + size_of_val(indices), 0);
        for (bytes, index) in out[start..].as_chunks_mut::<4>().0.iter_mut().zip(indices) {
            *bytes = (index - base).to_le_bytes();
        }
    }
    put(out, view.values(), T::little_endian);
}

/// [`encode_dense`] to the end of a buffer.
pub fn write_dense<T: Element>(out: &mut Vec<u8>, fingerprint: &Fingerprint, values: &[T]) {
    let fingerprint = Fingerprint { dtype: T::DTYPE.code(), ..*fingerprint };
    write_header(out, &fingerprint, BodyKind::Dense, values.len());
    put(out, values, T::little_endian);
}

/// `left + right` as a dense frame, to the end of a buffer, without an intermediate vector; `right` is a received dense
/// frame.
///
/// # Errors
/// As [`Frame::add_dense_into`]; the buffer then ends in part of a frame.
pub fn write_dense_sum<T: Element>(
    out: &mut Vec<u8>,
    fingerprint: &Fingerprint,
    left: &[T],
    right: &Frame,
) -> Result<(), Error> {
    let fingerprint = Fingerprint { dtype: T::DTYPE.code(), ..*fingerprint };
    let mut right = right.dense_values_for::<T>(left.len())?;
    write_header(out, &fingerprint, BodyKind::Dense, left.len());
    let mut sums = [T::ZERO; 256];
    for (block, left) in left.chunks(sums.len()).enumerate() {
        let mut overflow = None;
        for (at, ((sum, left), right)) in sums.iter_mut().zip(left).zip(&mut right).enumerate() {
            let overflowed;
            (*sum, overflowed) = left.add(right);
            if overflowed {
                overflow = overflow.or(Some(at));
            }
        }
        if let Some(at) = overflow {
            return Err(Error::Overflow { index: (block * sums.len() + at) as u64, dtype: T::DTYPE });
        }
        put(out, &sums[..left.len()], T::little_endian);
    }
    Ok(())
}

/// [`encode_opaque`] of these bytes one after the other, to the end of a buffer.
pub fn write_opaque(out: &mut Vec<u8>, fingerprint: &Fingerprint, body: &[&[u8]]) {
    write_header(out, fingerprint, BodyKind::Opaque, body.iter().map(|part| part.len()).sum());
    body.iter().for_each(|part| out.extend_from_slice(part));
}

fn write_header(out: &mut Vec<u8>, fingerprint: &Fingerprint, kind: BodyKind, count: usize) {
    let Fingerprint { dtype, operation, algorithm, mode, dim, parameter } = *fingerprint;
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, kind.code(), dtype, operation, algorithm, mode]);
    for word in [dim, parameter, count as u64] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn put<P: Pod>(out: &mut Vec<u8>, values: &[P], little_endian: impl Fn(P) -> P) {
    if cfg!(target_endian = "little") {
        out.extend_from_slice(bytemuck::cast_slice(values));
    } else {
        put_each(out, values, little_endian);
    }
}

fn put_each<P: Pod>(out: &mut Vec<u8>, values: &[P], little_endian: impl Fn(P) -> P) {
    for &value in values {
        out.extend_from_slice(bytemuck::bytes_of(&little_endian(value)));
    }
}

/// A received frame whose header and length have been checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Frame {
    /// What the sender takes part in: compare it with one's own before anything else.
    pub fingerprint: Fingerprint,
    /// What the body is.
    pub kind: BodyKind,
    /// Entries of a sparse body, values of a dense one, bytes of an opaque one.
    pub count: u64,
    /// The body, sharing the memory of the received bytes.
    pub body: Bytes,
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
    let kind = BodyKind::from_code(kind)
        .ok_or_else(|| Error::malformed(format!("there is no kind of body {kind}")))?;
    let [dim, parameter, count] = read_words(words);
    let fingerprint = Fingerprint { dtype, operation, algorithm, mode, dim, parameter };
    let frame = Frame { fingerprint, kind, count, body: bytes.split_off(HEADER) };
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

impl Frame {
    /// The body of values as a stream of dimension `dim`; an empty body as one without entries.
    ///
    /// `dim` is that of this body, which may be a part of the collective's.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the body is not such a stream, [`Error::Unexpected`] for an opaque body
    /// or another type, [`Error::DimensionMismatch`] for a dense body of another length,
    /// [`Error::DimensionTooLarge`].
    pub fn into_stream<T: Element>(self, dim: u64) -> Result<Stream<T>, Error> {
        match self.kind {
            BodyKind::Empty => SparseVec::empty(dim).map(Stream::Sparse),
            BodyKind::Dense => {
                let values = self.values::<T>()?;
                check_dim(dim)?;
                check_same_dim(dim, values.len() as u64)?;
                Ok(Stream::Dense(values.collect()))
            }
            BodyKind::Sparse => {
                let (indices, values) = self.entries::<T>()?;
                SparseVec::new(dim, indices.collect(), values.collect())
                    .map(Stream::Sparse)
                    .map_err(|error| Error::malformed(format!("sparse body: {error}")))
            }
            BodyKind::Opaque => Err(self.unexpected("values")),
        }
    }

    /// The entries of a sparse body in the received bytes themselves; `None` where the machine cannot read them there
    /// (an odd address, another order of bytes), or the body is not sparse: use
    /// [`into_stream`](Self::into_stream).
    ///
    /// # Errors
    /// As [`into_stream`](Self::into_stream).
    pub fn sparse_view<T: Element>(&self, dim: u64) -> Result<Option<SparseView<'_, T>>, Error> {
        if self.kind != BodyKind::Sparse || cfg!(target_endian = "big") {
            return Ok(None);
        }
        self.check_dtype::<T>()?;
        self.check_length()?;
        let entries = self.body.len() / (4 + size_of::<T>());
        let (indices, values) = self.body.split_at(entries * 4);
        let (Ok(indices), Ok(values)) = (bytemuck::try_cast_slice(indices), bytemuck::try_cast_slice(values))
        else {
            return Ok(None);
        };
        let view = SparseView::new(dim, indices, values);
        view.map(Some).map_err(|error| Error::malformed(format!("sparse body: {error}")))
    }

    /// The bytes of an opaque body, without a copy.
    ///
    /// # Errors
    /// [`Error::Unexpected`] for another kind of body.
    pub fn into_opaque(self) -> Result<Bytes, Error> {
        if self.kind == BodyKind::Opaque { Ok(self.body) } else { Err(self.unexpected("an opaque body")) }
    }

    /// `dst[i] += body[i]` from a dense body, without an intermediate vector.
    ///
    /// # Errors
    /// [`Error::Unexpected`] for another kind or type, [`Error::DimensionMismatch`],
    /// [`Error::Overflow`]; `dst` is then unchanged.
    pub fn add_dense_into<T: Element>(&self, dst: &mut [T]) -> Result<(), Error> {
        if T::CAN_OVERFLOW {
            let sums = dst.iter().zip(self.dense_values_for::<T>(dst.len())?);
            if let Some(at) = sums.map(|(left, right)| left.add(right)).position(|(_, overflowed)| overflowed)
            {
                return Err(Error::Overflow { index: at as u64, dtype: T::DTYPE });
            }
        }
        let values = self.dense_values_for(dst.len())?;
        for (left, right) in dst.iter_mut().zip(values) {
            *left = left.add(right).0;
        }
        Ok(())
    }

    /// `dst[i] = body[i]` from a dense body.
    ///
    /// # Errors
    /// [`Error::Unexpected`] for another kind or type, [`Error::DimensionMismatch`].
    pub fn copy_dense_into<T: Element>(&self, dst: &mut [T]) -> Result<(), Error> {
        let values = self.dense_values_for(dst.len())?;
        for (slot, value) in dst.iter_mut().zip(values) {
            *slot = value;
        }
        Ok(())
    }

    fn dense_values_for<T: Element>(&self, len: usize) -> Result<impl ExactSizeIterator<Item = T>, Error> {
        if self.kind != BodyKind::Dense {
            return Err(self.unexpected("a dense body"));
        }
        let values = self.values::<T>()?;
        check_same_dim(len as u64, values.len() as u64)?;
        Ok(values)
    }

    /// The values of a dense body.
    fn values<T: Element>(&self) -> Result<impl ExactSizeIterator<Item = T>, Error> {
        self.check_dtype::<T>()?;
        Ok(take(&self.body, T::little_endian))
    }

    /// The indices and values of a sparse body.
    fn entries<T: Element>(
        &self,
    ) -> Result<(impl ExactSizeIterator<Item = u32>, impl ExactSizeIterator<Item = T>), Error> {
        self.check_dtype::<T>()?;
        self.check_length()?;
        let entries = self.body.len() / (4 + size_of::<T>());
        let (indices, values) = self.body.split_at(entries * 4);
        Ok((take(indices, u32::to_le), take(values, T::little_endian)))
    }

    fn check_dtype<T: Element>(&self) -> Result<(), Error> {
        if self.fingerprint.dtype == T::DTYPE.code() { Ok(()) } else { Err(self.unexpected(T::DTYPE.name())) }
    }

    fn check_length(&self) -> Result<(), Error> {
        let size = || {
            DType::from_code(self.fingerprint.dtype)
                .map(|dtype| dtype.size() as u64)
                .ok_or_else(|| Error::malformed(format!("there is no type {}", self.fingerprint.dtype)))
        };
        let each = match self.kind {
            BodyKind::Empty => 0,
            BodyKind::Dense => size()?,
            BodyKind::Sparse => 4 + size()?,
            BodyKind::Opaque => 1,
        };
        let claimed = self.count.checked_mul(each);
        let empty_but_counted = self.kind == BodyKind::Empty && self.count != 0;
        if claimed != Some(self.body.len() as u64) || empty_but_counted {
            let (count, kind, len) = (self.count, self.kind.name(), self.body.len());
            return Err(Error::malformed(format!("{kind} of {count} has {len} bytes")));
        }
        Ok(())
    }

    fn unexpected(&self, expected: &str) -> Error {
        let dtype = DType::from_code(self.fingerprint.dtype).map_or("unknown values", DType::name);
        let found = match self.kind {
            BodyKind::Empty | BodyKind::Opaque => self.kind.name().to_owned(),
            BodyKind::Dense | BodyKind::Sparse => format!("{} of {dtype}", self.kind.name()),
        };
        Error::Unexpected { found, expected: expected.to_owned() }
    }
}

/// Reads values that may lie at any address; compiles to a plain copy on little-endian machines.
fn take<P: Pod>(bytes: &[u8], little_endian: impl Fn(P) -> P) -> impl ExactSizeIterator<Item = P> {
    bytes.chunks_exact(size_of::<P>()).map(move |chunk| little_endian(bytemuck::pod_read_unaligned(chunk)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::sealed::Sealed;

    #[test]
    fn values_one_by_one_are_the_bytes_of_all_together() {
        let values = [1.5_f64, f64::NAN, -0.0, 1e300];
        let (mut together, mut each) = (Vec::new(), Vec::new());
        put(&mut together, &values, f64::little_endian);
        put_each(&mut each, &values, f64::little_endian);
        assert_eq!(together, values.map(f64::to_le_bytes).concat());
        assert_eq!(each, together);
        assert!(take(&each, f64::little_endian).map(f64::to_bits).eq(values.map(f64::to_bits)));
    }
}
