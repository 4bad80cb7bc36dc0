//! Global top-k in a hierarchy.
//!
//! Steps of the truncating algorithms: the algorithm runs inside each group; it runs again among the groups' first ranks, for what
//! their groups have found; each of these broadcasts the result in its group. Cost: what the algorithm costs for g ranks inside
//! and for as many ranks as there are groups across, and `ceil(log2 g) (alpha + k b beta)` inside.
//!
//! Steps of the exact one: as the hierarchical allreduce, but across the groups the exact k largest of each shard are found, and of
//! these every rank keeps the k largest. Sums inside groups are not truncated. Cost: as there, with at most k entries of each shard
//! in the last phase.
//!
//! Put-back: what a group dropped returns to its ranks as it does from the algorithm; what was dropped of a group's k largest
//! returns to rank `i mod g` of the group for index `i`, but for partial sums that merges across dropped inside the global
//! set, which return to the first ranks.

use bytes::Bytes;
use sparse_core::{Element, SparseVec, Stream};
use transport::Transport;

use super::layout::Layout;
use super::part::Part;
use crate::error::Error;
use crate::gtopk::put_back::put_back;
use crate::gtopk::{GlobalTopk, GtopkAlgorithm, Partial, PutBack, decode_partial, partial};
use crate::in_flight::InFlight;
use crate::reduce_scatter::split;
use crate::{allgather, broadcast, decode};

pub(super) async fn gtopk<T: Transport, E: Element>(
    operation: &InFlight<T>,
    layout: &Layout,
    input: &SparseVec<E>,
    k: usize,
    algorithm: GtopkAlgorithm,
    mode: PutBack,
) -> Result<GlobalTopk<E>, Error> {
    let memory = operation.memory();
    let invalid = |source| Error::value(operation.rank(), source);
    if algorithm == GtopkAlgorithm::Exact {
        let mut sum = exact_sum(operation, layout, input, k).await?;
        let put_back = put_back(input, &sum, Vec::new(), mode, memory).map_err(invalid)?;
        operation.reduce_values(sum.values_mut());
        return Ok(GlobalTopk { sum, put_back });
    }
    let inside = Part::new(operation, layout.inside(), layout.place(), 0);
    let of_group = inside.run(partial(inside.operation(), input, k, algorithm)).await?;
    let of_all = match layout.across() {
        Some(members) if layout.place() == 0 => {
            let across = Part::new(operation, &members, layout.group(), 0);
            Some(across.run(partial(across.operation(), &of_group.kept, k, algorithm)).await?)
        }
        _ => None,
    };
    let (mut sum, dropped) = spread(&inside, of_all, input.dim(), k).await?;
    let put_back = match mode {
        PutBack::Paper => put_back(input, &sum, Vec::new(), mode, memory),
        PutBack::Conserving => {
            let mut own = of_group.kept.view().to_vec_in(memory);
            own.retain(|index, _| index as usize % layout.inside().len() == layout.place());
            let inside = put_back(input, &of_group.kept, of_group.dropped, mode, memory).map_err(invalid)?;
            let across = put_back(&own, &sum, dropped, mode, memory).map_err(invalid)?;
            let returned = sparse_core::reduce_views_in(&[inside.view(), across.view()], memory);
            [own, inside, across].into_iter().for_each(|part| memory.put(part));
            returned
        }
    };
    memory.put(of_group.kept);
    operation.reduce_values(sum.values_mut());
    Ok(GlobalTopk { sum, put_back: put_back.map_err(invalid)? })
}

/// Gives what a group's first rank has found to all of the group; what that dropped stays with it.
async fn spread<T: Transport, E: Element>(
    inside: &Part<T>,
    of_all: Option<Partial<E>>,
    dim: u64,
    k: usize,
) -> Result<(SparseVec<E>, Vec<SparseVec<E>>), Error> {
    let inner = inside.operation();
    let message = of_all.as_ref().map_or_else(Bytes::new, |partial| inner.sparse(partial.kept.view()));
    let received = async {
        let (from, frame) = broadcast::down(inner, 0, message).await?;
        decode_partial(frame, from, dim, k, inner.memory())
    };
    let sum = inside.run(received).await?;
    let dropped = of_all.map(|partial| {
        inner.memory().put(partial.kept);
        partial.dropped
    });
    Ok((sum, dropped.unwrap_or_default()))
}

async fn exact_sum<T: Transport, E: Element>(
    operation: &InFlight<T>,
    layout: &Layout,
    input: &SparseVec<E>,
    k: usize,
) -> Result<SparseVec<E>, Error> {
    let inside = Part::new(operation, layout.inside(), layout.place(), 0);
    let (ranges, memory) = (layout.ranges(input.dim()), operation.memory());
    let shard = inside.run(split::sum_own_range(inside.operation(), input, &ranges)).await?;
    let largest = match layout.across() {
        Some(members) => {
            let across = Part::new(operation, &members, layout.group(), ranges[layout.place()].start);
            let largest =
                across.run(partial(across.operation(), &shard, k, GtopkAlgorithm::Exact)).await?.kept;
            memory.put(shard);
            largest
        }
        None => shard,
    };
    let inner = inside.operation();
    let gather = async {
        let blocks = allgather::bruck(inner, inner.spent_stream(Stream::Sparse(largest))).await?;
        let parts = blocks.into_iter().zip(&ranges).enumerate().map(|(owner, (block, range))| {
            decode::sparse(inner.open(owner, block)?, owner, range.end - range.start, memory)
        });
        let parts = parts.collect::<Result<Vec<_>, Error>>()?;
        let whole = SparseVec::concat_in(&parts, memory);
        parts.into_iter().for_each(|part| memory.put(part));
        whole.map_err(|source| Error::value(inner.rank(), source))
    };
    let (sum, rest) = inside.run(gather).await?.top_k_in(k, memory);
    memory.put(rest);
    Ok(sum)
}
