//! Sparse split and dense allgather: SparCML's DSAR_Split_allgather.
//!
//! Steps: as the sparse split, but owners hold their range dense, and the allgather goes round the
//! ring, each rank passing on the bytes it got. The second phase may be quantized; then the owner
//! too uses what its quantized bytes decode to, so all ranks get the same bits.
//! Cost: `2(P-1) alpha + k b beta + N(P-1)/P v beta`, `v` in quantized bytes where quantized.

use bytes::Bytes;
use sparse_core::{Accumulator, Element, SparseVec, Stream, wire};
use sparse_quant::{Quantizer, Seed};
use transport::Transport;

use crate::allgather;
use crate::decode;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::reduce_scatter::split;
use crate::topology::{ranges, slice_range};

pub(super) async fn allreduce<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Stream<E>, Error> {
    let own = sum_own_range(operation, input).await?;
    let message = operation.dense(&own);
    operation.memory().put(own);
    gather(operation, input, message, |owner, frame, range| decode::copy_dense(&frame, owner, range)).await
}

pub(super) async fn allreduce_quantized<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    quantizer: &dyn Quantizer,
    seed: u64,
    step: u64,
) -> Result<Stream<E>, Error> {
    let rank = operation.rank();
    let memory = operation.memory();
    let sum = sum_own_range(operation, input).await?;
    let mut own = memory.empty(sum.len());
    own.extend(sum.iter().map(|value| value.to_f32()));
    memory.put(sum);
    let mut bytes = memory.empty(quantizer.encoded_len(own.len()));
    // Every owner of a range draws for itself, also where several groups of owners quantize at once.
    let seed = Seed { seed, step, rank: operation.rank_in_whole() as u32 };
    quantizer.quantize(&own, seed, &mut bytes).map_err(|source| {
        let start = slice_range(input.dim() as usize, operation.world_size(), rank).start;
        Error::value(rank, format!("{source}, in the range that starts at index {start}"))
    })?;
    let message = operation.opaque(&[&bytes]);
    memory.put(bytes);
    let mut decoded = own;
    let output = gather(operation, input, message, |owner, frame, range| {
        let bytes = frame.into_opaque().map_err(|source| Error::malformed(owner, source))?;
        decoded.resize(range.len(), 0.0);
        quantizer.dequantize(&bytes, &mut decoded).map_err(|source| Error::malformed(owner, source))?;
        for (value, decoded) in range.iter_mut().zip(&decoded) {
            *value = E::from_f32(*decoded);
        }
        Ok(())
    })
    .await?;
    memory.put(decoded);
    Ok(output)
}

async fn sum_own_range<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
) -> Result<Vec<E>, Error> {
    let (rank, ranks) = (operation.rank(), operation.world_size());
    let ranges = ranges(input.dim(), ranks);
    let received = split::to_owners(operation, input, &ranges).await?;
    let own = input.view_of(ranges[rank].clone());
    let memory = operation.memory();
    let others = decode::sparse_bodies(&received, own.dim(), memory)?;
    let mut sum = Accumulator::new_in(own.dim() as usize, memory);
    let refused = |source| operation.refused(source, ranges[rank].start);
    for part in decode::by_rank(&others, rank, own) {
        sum.add_view(&part).map_err(refused)?;
    }
    others.into_iter().for_each(|body| memory.put(body));
    sum.finish_in(memory).map_err(refused)
}

/// The ring allgather of one message per rank; `decode` writes an owner's message to its range.
async fn gather<T: Transport, E: Element>(
    operation: &InFlight<T>,
    input: &SparseVec<E>,
    message: Bytes,
    mut decode: impl FnMut(usize, wire::Frame, &mut [E]) -> Result<(), Error>,
) -> Result<Stream<E>, Error> {
    let ranks = operation.world_size();
    let mut output = operation.memory().any(input.dim() as usize, E::ZERO);
    let len = output.len();
    allgather::ring(operation, message, |owner, frame| {
        decode(owner, frame, &mut output[slice_range(len, ranks, owner)])
    })
    .await?;
    Ok(Stream::Dense(output))
}
