//! From a peer's frame to its vector, with the peer named where that fails.

use sparse_core::wire::Frame;
use sparse_core::{Element, ErrorKind, SparseVec, Stream, dense_is_shorter};

use crate::error::Error;

/// A stream of this dimension.
pub(crate) fn stream<E: Element>(frame: Frame, from: usize, dim: u64) -> Result<Stream<E>, Error> {
    frame.into_stream(dim).map_err(|source| Error::malformed(from, source))
}

/// A sparse vector of this dimension.
pub(crate) fn sparse<E: Element>(frame: Frame, from: usize, dim: u64) -> Result<SparseVec<E>, Error> {
    match stream(frame, from, dim)? {
        Stream::Sparse(vector) => Ok(vector),
        Stream::Dense(_) => Err(Error::malformed(from, "a dense vector where a sparse one belongs")),
    }
}

/// Adds a dense vector to `sum`.
pub(crate) fn add_dense<E: Element>(
    frame: &Frame,
    from: usize,
    rank: usize,
    sum: &mut [E],
) -> Result<(), Error> {
    frame.add_dense_into(sum).map_err(|source| match source.kind() {
        ErrorKind::Overflow => Error::value(rank, source),
        _ => Error::malformed(from, source),
    })
}

/// Copies a dense vector to `values`.
pub(crate) fn copy_dense<E: Element>(frame: &Frame, from: usize, values: &mut [E]) -> Result<(), Error> {
    frame.copy_dense_into(values).map_err(|source| Error::malformed(from, source))
}

/// A sum in its shorter form.
pub(crate) fn shorter<E: Element>(sum: SparseVec<E>) -> Stream<E> {
    if dense_is_shorter::<E>(sum.nnz() as u64, sum.dim()) {
        Stream::Dense(sum.to_dense())
    } else {
        Stream::Sparse(sum)
    }
}
