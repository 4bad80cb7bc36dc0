//! From a peer's frame to its vector, with the peer named where that fails.

use sparse_core::wire::{BodyKind, Frame, SparseBody};
use sparse_core::{Element, Memory, SparseVec, SparseView, Stream, dense_is_shorter};

use crate::error::Error;

/// A stream of this dimension.
pub(crate) fn stream<E: Element>(
    frame: Frame,
    from: usize,
    dim: u64,
    memory: &Memory,
) -> Result<Stream<E>, Error> {
    frame.into_stream_in(dim, memory).map_err(|source| Error::malformed(from, source))
}

/// A sparse vector of this dimension.
pub(crate) fn sparse<E: Element>(
    frame: Frame,
    from: usize,
    dim: u64,
    memory: &Memory,
) -> Result<SparseVec<E>, Error> {
    match stream(frame, from, dim, memory)? {
        Stream::Sparse(vector) => Ok(vector),
        Stream::Dense(_) => Err(Error::malformed(from, "a dense vector where a sparse one belongs")),
    }
}

/// [`sparse`], with the values where they were received.
fn sparse_body<'f, E: Element>(
    frame: &'f Frame,
    from: usize,
    dim: u64,
    memory: &Memory,
) -> Result<SparseBody<'f, E>, Error> {
    frame.sparse_in(dim, memory).map_err(|source| Error::malformed(from, source))
}

/// The vectors of the other ranks, of this dimension.
pub(crate) fn sparse_bodies<'f, E: Element>(
    frames: &'f [(usize, Frame)],
    dim: u64,
    memory: &Memory,
) -> Result<Vec<SparseBody<'f, E>>, Error> {
    frames.iter().map(|(from, frame)| sparse_body(frame, *from, dim, memory)).collect()
}

/// Vectors of all ranks, by rank: those of the others, and the own one.
pub(crate) fn by_rank<'a, E: Element>(
    others: &'a [SparseBody<'_, E>],
    rank: usize,
    own: SparseView<'a, E>,
) -> Vec<SparseView<'a, E>> {
    let mut views: Vec<_> = others.iter().map(SparseBody::view).collect();
    views.insert(rank, own);
    views
}

/// Copies a dense vector to `values`.
pub(crate) fn copy_dense<E: Element>(frame: &Frame, from: usize, values: &mut [E]) -> Result<(), Error> {
    frame.copy_dense_into(values).map_err(|source| Error::malformed(from, source))
}

/// A sum in its shorter form.
pub(crate) fn shorter<E: Element>(sum: SparseVec<E>, memory: &Memory) -> Stream<E> {
    let is_dense = dense_is_shorter::<E>(sum.nnz() as u64, sum.dim());
    let sum = Stream::Sparse(sum);
    if is_dense { Stream::Dense(sum.into_dense_in(memory)) } else { sum }
}

/// Sums of neighbouring ranges as one stream, from the frames of each: its dimension, and the rank it came from. The form
/// depends on the frames alone.
pub(crate) fn concat<E: Element>(
    parts: Vec<(u64, Frame, usize)>,
    rank: usize,
    memory: &Memory,
) -> Result<Stream<E>, Error> {
    let is_sparse = |frame: &Frame| frame.kind == BodyKind::Sparse;
    let dim = parts.iter().map(|(dim, ..)| dim).sum();
    let entries: u64 =
        parts.iter().map(|(_, frame, _)| frame).filter(|f| is_sparse(f)).map(|f| f.count).sum();
    if parts.iter().all(|(_, frame, _)| is_sparse(frame)) && !dense_is_shorter::<E>(entries, dim) {
        let mut whole = SparseVec::with_room(entries as usize, memory);
        for (dim, frame, from) in parts {
            let appended = frame.append_sparse_to(dim, &mut whole);
            appended.map_err(|source| Error::malformed(from, source))?;
        }
        return Ok(Stream::Sparse(whole));
    }
    let streams = parts.into_iter().map(|(dim, frame, from)| stream(frame, from, dim, memory));
    Stream::concat_in(streams.collect::<Result<_, _>>()?, memory).map_err(|source| Error::value(rank, source))
}
