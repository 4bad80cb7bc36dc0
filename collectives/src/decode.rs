//! From a peer's frame to its vector, with the peer named where that fails.

use sparse_core::wire::Frame;
use sparse_core::{Element, ErrorKind, SparseVec, SparseView, Stream, dense_is_shorter};

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

/// A sparse vector where it was received, or a copy where it cannot be read there.
pub(crate) enum Sparse<'a, E> {
    There(SparseView<'a, E>),
    Copied(SparseVec<E>),
}

impl<E: Element> Sparse<'_, E> {
    pub(crate) fn view(&self) -> SparseView<'_, E> {
        match self {
            Self::There(view) => *view,
            Self::Copied(vector) => vector.view(),
        }
    }
}

/// [`sparse`], without a copy where that is possible.
pub(crate) fn sparse_view<E: Element>(frame: &Frame, from: usize, dim: u64) -> Result<Sparse<'_, E>, Error> {
    match frame.sparse_view(dim).map_err(|source| Error::malformed(from, source))? {
        Some(view) => Ok(Sparse::There(view)),
        None => sparse(frame.clone(), from, dim).map(Sparse::Copied),
    }
}

/// Vectors of all ranks, by rank: the others' where they were received, the own one as it is.
pub(crate) fn by_rank<'a, E: Element>(
    others: &'a [(usize, Frame)],
    rank: usize,
    own: SparseView<'a, E>,
) -> Result<Vec<Sparse<'a, E>>, Error> {
    let vectors = others.iter().map(|(from, frame)| sparse_view(frame, *from, own.dim()));
    let mut vectors = vectors.collect::<Result<Vec<_>, _>>()?;
    vectors.insert(rank, Sparse::There(own));
    Ok(vectors)
}

/// Adds a dense vector to `sum`.
pub(crate) fn add_dense<E: Element>(
    frame: &Frame,
    from: usize,
    rank: usize,
    sum: &mut [E],
) -> Result<(), Error> {
    frame.add_dense_into(sum).map_err(|source| value_or_malformed(source, from, rank))
}

/// Why the vector of `from` could not be added on this `rank`.
pub(crate) fn value_or_malformed(source: sparse_core::Error, from: usize, rank: usize) -> Error {
    match source.kind() {
        ErrorKind::Overflow => Error::value(rank, source),
        _ => Error::malformed(from, source),
    }
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
