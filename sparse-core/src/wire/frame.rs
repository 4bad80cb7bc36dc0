//! Vectors, values and bytes from frames.

use bytemuck::Pod;
use bytes::Bytes;

use super::{BodyKind, Fingerprint};
use crate::error::{check_dim, check_same_dim};
use crate::{DType, Element, Error, SparseVec, SparseView, Stream};

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

    pub(super) fn check_length(&self) -> Result<(), Error> {
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
pub(super) fn take<P: Pod>(bytes: &[u8], little_endian: impl Fn(P) -> P) -> impl ExactSizeIterator<Item = P> {
    bytes.chunks_exact(size_of::<P>()).map(move |chunk| little_endian(bytemuck::pod_read_unaligned(chunk)))
}
