//! Allreduce in a hierarchy: inside the groups, across them, inside again.
//!
//! Steps: with S ranks in the smallest group, the vector is cut into S shards, and the first S ranks of each group own one. Every
//! rank sends each shard straight to its owner in the group, who sums all parts in rank order; the owners of a shard, one of
//! each group, sum by any algorithm; Bruck's allgather spreads the sums inside each group. With S = 1 that is a reduce to a leader,
//! an allreduce of the leaders and a broadcast.
//! Cost, with `g` ranks in the group and `n` bytes of a shard: `alpha + (g-1) n beta` and `ceil(log2 g) alpha + (S-1) n beta` inside,
//! and what the algorithm costs across, for a shard over as many ranks as there are groups. Where a rank owns no shard, it sends S
//! shards, and owners pass on up to `ceil(log2 g)` times theirs; ranks that own none get empty messages, so that all hear of all.
//! Sums: in the order of ranks in each group, rounded once; across the groups as the algorithm has it, whose ranks are the groups
//! in the order of their lowest ranks. All ranks get the bytes of the same sums.

use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use super::layout::Layout;
use super::part::Part;
use crate::allreduce::{DenseAlgorithm, SparseAlgorithm, dense_sum, sparse_sum};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::reduce_scatter::split;
use crate::{allgather, decode};

pub(super) async fn dense<T: Transport, E: Element>(
    operation: &InFlight<T>,
    layout: &Layout,
    input: &[E],
    output: &mut [E],
    algorithm: DenseAlgorithm,
) -> Result<(), Error> {
    let inside = Part::new(operation, layout.inside(), layout.place(), 0);
    let (ranges, memory) = (layout.ranges(input.len() as u64), operation.memory());
    let mut shard = inside.run(split::sum_own_range_dense(inside.operation(), input, &ranges)).await?;
    if let Some(members) = layout.across() {
        let across = Part::new(operation, &members, layout.group(), ranges[layout.place()].start);
        let mut of_all = memory.any(shard.len(), E::ZERO);
        across.run(dense_sum(across.operation(), &shard, &mut of_all, algorithm)).await?;
        memory.put(std::mem::replace(&mut shard, of_all));
    }
    let inner = inside.operation();
    let gather = async {
        let message = inner.dense(&shard);
        memory.put(shard);
        let blocks = allgather::bruck(inner, message).await?;
        for (owner, (block, range)) in blocks.into_iter().zip(&ranges).enumerate() {
            let values = &mut output[range.start as usize..range.end as usize];
            decode::copy_dense(&inner.open(owner, block)?, owner, values)?;
        }
        Ok(())
    };
    inside.run(gather).await?;
    operation.reduce_values(output);
    Ok(())
}

pub(super) async fn sparse<T: Transport, E: Element>(
    operation: &InFlight<T>,
    layout: &Layout,
    input: &SparseVec<E>,
    algorithm: &SparseAlgorithm,
) -> Result<Stream<E>, Error> {
    let inside = Part::new(operation, layout.inside(), layout.place(), 0);
    let (ranges, memory) = (layout.ranges(input.dim()), operation.memory());
    let shard = inside.run(split::sum_own_range(inside.operation(), input, &ranges)).await?;
    let sum = match layout.across() {
        Some(members) => {
            let across = Part::new(operation, &members, layout.group(), ranges[layout.place()].start);
            let sum = across.run(sparse_sum(across.operation(), &shard, algorithm)).await?;
            memory.put(shard);
            sum
        }
        None => Stream::Sparse(shard),
    };
    let inner = inside.operation();
    let gather = async {
        let blocks = allgather::bruck(inner, inner.spent_stream(sum)).await?;
        let parts =
            blocks.into_iter().zip(&ranges).enumerate().map(|(owner, (block, range))| {
                Ok((range.end - range.start, inner.open(owner, block)?, owner))
            });
        decode::concat(parts.collect::<Result<_, Error>>()?, inner.rank(), memory)
    };
    Ok(operation.reduce_stream(inside.run(gather).await?))
}
