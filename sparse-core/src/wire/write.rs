//! Frames from vectors, values and bytes.

use bytemuck::Pod;
use bytes::Bytes;

use super::{BodyKind, Fingerprint, Frame, HEADER, MAGIC, MAX_PIECES, VERSION};
use crate::{Element, Error, SparseVec, SparseView, Stream, codec};

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

/// A sparse vector as a frame of [`sparse_len`] bytes.
#[must_use]
pub fn encode_sparse<T: Element>(fingerprint: &Fingerprint, vec: &SparseVec<T>) -> Bytes {
    let mut out = Vec::with_capacity(sparse_room::<T>(vec.nnz()));
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

/// The length of the frame of a sparse vector: `HEADER + nnz * size` and what its indices take,
/// [`codec::encoded_len`]. One cheap pass over them.
#[must_use]
pub fn sparse_len<T: Element>(view: &SparseView<'_, T>) -> usize {
    let (indices, base) = view.shifted_indices();
    HEADER + size_of_val(view.values()) + codec::encoded_len(view.dim(), indices, base)
}

/// Room enough to write the frame of any sparse vector with so many entries.
#[must_use]
pub fn sparse_room<T: Element>(nnz: usize) -> usize {
    HEADER + nnz * size_of::<T>() + codec::room(nnz)
}

/// [`encode_sparse`] of a borrowed vector, to the end of a buffer.
pub fn write_sparse<T: Element>(out: &mut Vec<u8>, fingerprint: &Fingerprint, view: &SparseView<'_, T>) {
    let fingerprint = Fingerprint { dtype: T::DTYPE.code(), ..*fingerprint };
    write_header(out, &fingerprint, BodyKind::Sparse, view.nnz());
    put(out, view.values(), T::little_endian);
    let (indices, base) = view.shifted_indices();
    codec::encode(view.dim(), indices, base, out);
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

/// Marks a frame, just written to an empty buffer, as one of the pieces of a vector that comes in so many of them.
///
/// # Panics
/// Unless that is a power of two of at most [`MAX_PIECES`](super::MAX_PIECES), and there is a frame.
pub fn mark_piece(frame: &mut [u8], pieces: usize) {
    assert!(pieces.is_power_of_two() && pieces <= MAX_PIECES, "a vector in {pieces} pieces");
    frame[KIND] = frame[KIND] & 0xf | (pieces.ilog2() as u8) << 4;
}

/// Where a frame has the kind of its body.
const KIND: usize = 3;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::sealed::Sealed;
    use crate::wire::frame::take;

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
