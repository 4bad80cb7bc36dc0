//! What returns to a rank's residual: a pure function of what the rank saw.

use sparse_core::{Element, Memory, SparseVec, SparseView, reduce_views_in};

use super::PutBack;

/// Own entries outside the global set return whole. Of the dropped partial sums only those inside
/// the set matter: the rest consists of other ranks' entries that return there.
pub(crate) fn put_back<E: Element>(
    input: &SparseVec<E>,
    global: &SparseVec<E>,
    mut dropped: Vec<SparseVec<E>>,
    mode: PutBack,
    memory: &Memory,
) -> Result<SparseVec<E>, sparse_core::Error> {
    let mut own = input.view().to_vec_in(memory);
    retain(&mut own, global, false);
    match mode {
        PutBack::Paper => {
            dropped.into_iter().for_each(|dropped| memory.put(dropped));
            Ok(own)
        }
        PutBack::Conserving => {
            dropped.iter_mut().for_each(|dropped| retain(dropped, global, true));
            dropped.insert(0, own);
            let parts: Vec<_> = dropped.iter().map(SparseVec::view).filter(|part| part.nnz() > 0).collect();
            let returned = match &parts[..] {
                [] => SparseView::new(global.dim(), &[], &[]).map(|none| none.to_vec()),
                parts => reduce_views_in(parts, memory),
            };
            dropped.into_iter().for_each(|dropped| memory.put(dropped));
            returned
        }
    }
}

/// Leaves the entries of `vector` whose index is (or is not) an index of `set`.
fn retain<E: Element>(vector: &mut SparseVec<E>, set: &SparseVec<E>, inside: bool) {
    let mut set = set.indices();
    vector.retain(|index, _| {
        let below = set.iter().take_while(|&&member| member < index).count();
        set = &set[below..];
        (set.first() == Some(&index)) == inside
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(entries: &[(u32, i32)]) -> SparseVec<i32> {
        let (indices, values) = entries.iter().copied().unzip();
        SparseVec::new(10, indices, values).unwrap()
    }

    #[test]
    fn own_entries_outside_and_dropped_sums_inside_return() {
        let input = vector(&[(0, 1), (3, 2), (5, 3)]);
        let global = vector(&[(3, 50), (7, 60)]);
        let dropped = vec![vector(&[(0, 9), (7, 8)]), vector(&[(3, 4), (9, 5)])];
        let conserving = put_back(&input, &global, dropped.clone(), PutBack::Conserving, &Memory::new());
        assert_eq!(conserving, Ok(vector(&[(0, 1), (3, 4), (5, 3), (7, 8)])));
        let paper = put_back(&input, &global, dropped, PutBack::Paper, &Memory::new());
        assert_eq!(paper, Ok(vector(&[(0, 1), (5, 3)])));
    }
}
