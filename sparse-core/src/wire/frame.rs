//! Vectors, values and bytes from frames.

use std::borrow::Cow;

use bytemuck::Pod;
use bytes::Bytes;

use super::{BodyKind, Fingerprint};
use crate::error::{check_dim, check_same_dim};
use crate::{DType, Element, Error, Memory, Reusable, SparseVec, SparseView, Stream, codec};

/// A received frame whose header and length have been checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Frame {
    /// What the sender takes part in: compare it with one's own before anything else.
    pub fingerprint: Fingerprint,
    /// What the body is.
    pub kind: BodyKind,
    /// How many pieces, a frame each, the vector comes in: a power of two; 1 unless [marked](super::mark_piece).
    pub pieces: usize,
    /// Entries of a sparse body, values of a dense one, bytes of an opaque one.
    pub count: u64,
    /// The body, sharing the memory of the received bytes.
    pub body: Bytes,
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
        self.into_stream_in(dim, &Memory::new())
    }

    /// [`into_stream`](Self::into_stream), to memory that is used again.
    ///
    /// # Errors
    /// As [`into_stream`](Self::into_stream).
    pub fn into_stream_in<T: Element>(self, dim: u64, memory: &Memory) -> Result<Stream<T>, Error> {
        match self.kind {
            BodyKind::Empty => SparseVec::empty(dim).map(Stream::Sparse),
            BodyKind::Dense => {
                let values = self.values::<T>()?;
                check_dim(dim)?;
                check_same_dim(dim, values.len() as u64)?;
                let mut dense = memory.empty(values.len());
                dense.extend(values);
                Ok(Stream::Dense(dense))
            }
            BodyKind::Sparse => {
                self.check_length()?;
                let mut vector = SparseVec::with_room(self.count as usize, memory);
                self.append_sparse_to(dim, &mut vector)?;
                Ok(Stream::Sparse(vector))
            }
            BodyKind::Opaque => Err(self.unexpected("values")),
        }
    }

    /// The vector of a sparse body, of dimension `dim`, whose values stay in the received bytes if the machine can
    /// read them there.
    ///
    /// # Errors
    /// As [`into_stream`](Self::into_stream), and [`Error::Unexpected`] for a dense body.
    pub fn sparse<T: Element>(&self, dim: u64) -> Result<SparseBody<'_, T>, Error> {
        self.sparse_in(dim, &Memory::new())
    }

    /// [`sparse`](Self::sparse), to memory that is used again.
    ///
    /// # Errors
    /// As [`sparse`](Self::sparse).
    pub fn sparse_in<T: Element>(&self, dim: u64, memory: &Memory) -> Result<SparseBody<'_, T>, Error> {
        let (values, coded) = self.entries::<T>()?;
        let mut indices = memory.empty(self.count as usize);
        codec::decode(coded, dim, self.count as usize, 0, &mut indices)?;
        let in_place =
            if cfg!(target_endian = "little") { bytemuck::try_cast_slice(values).ok() } else { None };
        let values =
            in_place.map_or_else(|| Cow::Owned(take(values, T::little_endian).collect()), Cow::Borrowed);
        Ok(SparseBody { dim, indices, values })
    }

    /// Appends the vector of a sparse body, of dimension `dim`, to `whole`, as [`SparseVec::concat`] does.
    ///
    /// # Errors
    /// As [`sparse`](Self::sparse), of the dimension of the new whole too; `whole` is then as before.
    pub fn append_sparse_to<T: Element>(&self, dim: u64, whole: &mut SparseVec<T>) -> Result<(), Error> {
        let (values, coded) = self.entries::<T>()?;
        let count = self.count as usize;
        let decode = |base, indices: &mut Vec<u32>| codec::decode(coded, dim, count, base, indices);
        whole.append(dim, decode, take(values, T::little_endian))
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

    pub(super) fn dense_values_for<T: Element>(
        &self,
        len: usize,
    ) -> Result<impl ExactSizeIterator<Item = T>, Error> {
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

    /// The values and the coded indices of a sparse body.
    fn entries<T: Element>(&self) -> Result<(&[u8], &[u8]), Error> {
        if self.kind != BodyKind::Sparse {
            return Err(self.unexpected("a sparse body"));
        }
        self.check_dtype::<T>()?;
        self.check_length()?;
        Ok(self.body.split_at(self.count as usize * size_of::<T>()))
    }

    fn check_dtype<T: Element>(&self) -> Result<(), Error> {
        if self.fingerprint.dtype == T::DTYPE.code() { Ok(()) } else { Err(self.unexpected(T::DTYPE.name())) }
    }

    pub(super) fn check_length(&self) -> Result<(), Error> {
        let size = || {
            DType::from_code(self.fingerprint.dtype)
                .map(|dtype| dtype.size() as u64)
                .ok_or_else(|| Error::malformed(format!("there is no type {}", self.fingerprint.dtype)))
        };
        let (each, least, most) = match self.kind {
            BodyKind::Empty => (0, 0, 0),
            BodyKind::Dense => (size()?, 0, 0),
            // How long the indices are is seen when they are decoded.
            BodyKind::Sparse => (size()?, 1, u64::MAX),
            BodyKind::Opaque => (1, 0, 0),
        };
        let rest = self.count.checked_mul(each).and_then(|bytes| (self.body.len() as u64).checked_sub(bytes));
        let empty_but_counted = self.kind == BodyKind::Empty && self.count != 0;
        if !rest.is_some_and(|rest| (least..=most).contains(&rest)) || empty_but_counted {
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

/// The vector of a sparse body: its indices decoded, its values where they were received if that is possible.
#[derive(Clone, PartialEq, Debug)]
pub struct SparseBody<'a, T: Element> {
    dim: u64,
    indices: Vec<u32>,
    values: Cow<'a, [T]>,
}

impl<T: Element> SparseBody<'_, T> {
    /// The vector.
    #[must_use]
    pub fn view(&self) -> SparseView<'_, T> {
        SparseView::from_sorted(self.dim, &self.indices, &self.values)
    }
}

impl<T: Element> Reusable for SparseBody<'_, T> {
    fn put_to(self, memory: &Memory) {
        memory.put(self.indices);
        if let Cow::Owned(values) = self.values {
            memory.put(values);
        }
    }
}

/// Reads values that may lie at any address; compiles to a plain copy on little-endian machines.
pub(super) fn take<P: Pod>(bytes: &[u8], little_endian: impl Fn(P) -> P) -> impl ExactSizeIterator<Item = P> {
    bytes.chunks_exact(size_of::<P>()).map(move |chunk| little_endian(bytemuck::pod_read_unaligned(chunk)))
}
