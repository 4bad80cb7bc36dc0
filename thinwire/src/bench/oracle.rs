//! What the ranks must end with, computed on each of them from all inputs.

use std::hash::Hasher as _;
use std::iter;

use collectives::GlobalTopk;
use sparse_core::{Duplicates, Error, SparseVec, Stream};
use twox_hash::XxHash3_64;

use super::contender::{Outcome, View};

/// The exact sum of all ranks' inputs.
pub(super) struct Oracle {
    sum: Stream<f32>,
}

impl Oracle {
    /// Holds one input at a time, beside a sum that takes no more memory than a dense vector.
    pub(super) fn new(
        dim: u64,
        inputs: impl Iterator<Item = Result<SparseVec<f32>, Error>>,
    ) -> Result<Self, Error> {
        let (mut pairs, mut dense): (Vec<(u32, f32)>, Vec<f32>) = (Vec::new(), Vec::new());
        for input in inputs {
            let input = input?;
            // A pair is as long as two values.
            if dense.is_empty() && 2 * (pairs.len() + input.nnz()) as u64 >= dim {
                dense.resize(dim as usize, 0.0);
                std::mem::take(&mut pairs).into_iter().for_each(|(at, value)| dense[at as usize] += value);
            }
            if dense.is_empty() {
                pairs.extend(input.iter());
            } else {
                input.iter().for_each(|(at, value)| dense[at as usize] += value);
            }
        }
        let sum = if dense.is_empty() {
            Stream::Sparse(SparseVec::from_unsorted(dim, pairs, Duplicates::Sum)?)
        } else {
            Stream::Dense(dense)
        };
        Ok(Self { sum })
    }

    /// What is wrong with a rank's result, as far as the rank can tell alone.
    pub(super) fn check(&self, outcome: Outcome<'_>, input: &SparseVec<f32>) -> Result<(), String> {
        match outcome {
            Outcome::Sum(sum) => self.compare(sum, 0.0),
            Outcome::Rounded(sum, levels) => {
                // A bucket has steps of its own; those of the largest value are the widest. A millionth more
                // for the rounding of the steps themselves.
                let largest = entries(View::from(&self.sum)).fold(0.0, |max, (_, value)| value.max(max));
                self.compare(sum, largest / levels as f32 * (1.0 + 1e-6))
            }
            Outcome::Topk(result) => check_topk(result, input, true),
            Outcome::TopkByRange(result) => check_topk(result, input, false),
        }
    }

    /// What is wrong with a global top-k given what returns to each rank ([`returned`]): it must be
    /// exactly what is missing in the result.
    pub(super) fn check_returned(
        &self,
        result: &SparseVec<f32>,
        returned: &[Vec<f32>],
    ) -> Result<(), String> {
        if let Some(rank) = returned.iter().position(|values| values.len() != result.nnz()) {
            return Err(format!("rank {rank} tells of {} entries", returned[rank].len()));
        }
        for (place, (index, value)) in result.iter().enumerate() {
            let total = returned.iter().filter_map(|values| values.get(place)).fold(value, |sum, v| sum + v);
            let exact = self.at(index);
            if total != exact {
                return Err(format!(
                    "at position {index} it is {value}, with what returns {total}, not {exact}"
                ));
            }
        }
        Ok(())
    }

    /// A value that was zero stays zero; others may be off by `within`.
    fn compare(&self, sum: View<'_>, within: f32) -> Result<(), String> {
        let (dim, found) = (self.sum.dim(), sum.dim());
        if found != dim {
            return Err(format!("it has dimension {found}, not {dim}"));
        }
        let is_right = |exact: f32, got: f32| exact == got || exact != 0.0 && (got - exact).abs() <= within;
        match pair(entries(View::from(&self.sum)), entries(sum))
            .find(|&(_, exact, got)| !is_right(exact, got))
        {
            None => Ok(()),
            Some((at, exact, got)) if within == 0.0 => {
                Err(format!("at position {at} it is {got}, not {exact}"))
            }
            Some((at, exact, got)) => {
                Err(format!("at position {at} it is {got}, not {exact} within {within}"))
            }
        }
    }

    fn at(&self, index: u32) -> f32 {
        match &self.sum {
            Stream::Dense(values) => values.get(index as usize).copied(),
            Stream::Sparse(vector) => vector.get(index),
        }
        .unwrap_or(0.0)
    }
}

/// The parts of a rank's contribution to entries of the result that return to it, by the result's indices.
pub(super) fn returned(result: &GlobalTopk<f32>) -> Vec<f32> {
    let indices = result.sum.indices().iter();
    indices.map(|index| result.put_back.get(*index).unwrap_or(0.0)).collect()
}

/// A hash of the bits of a result that all ranks must share.
pub(super) fn hash(outcome: Outcome<'_>) -> u64 {
    let mut hasher = XxHash3_64::new();
    let mut write = |words: &mut dyn Iterator<Item = u32>| {
        words.for_each(|word| hasher.write(&word.to_le_bytes()));
    };
    match outcome {
        Outcome::Sum(View::Dense(values)) | Outcome::Rounded(View::Dense(values), _) => {
            write(&mut values.iter().map(|value| value.to_bits()));
        }
        Outcome::Sum(View::Sparse(vector))
        | Outcome::Rounded(View::Sparse(vector), _)
        | Outcome::Topk(GlobalTopk { sum: vector, .. })
        | Outcome::TopkByRange(GlobalTopk { sum: vector, .. }) => {
            write(&mut vector.indices().iter().copied());
            write(&mut vector.values().iter().map(|value| value.to_bits()));
        }
    }
    hasher.finish()
}

/// What holds for a global top-k of positive values: as many entries as a rank brings; what is not among
/// them returns to its rank, and is no larger than any of them, since a sum of positive values only grows from
/// one merge to the next and so does the smallest that is kept. If not all are the largest, there may be fewer, and larger ones
/// return.
fn check_topk(result: &GlobalTopk<f32>, input: &SparseVec<f32>, largest: bool) -> Result<(), String> {
    let GlobalTopk { sum, put_back } = result;
    let is_wrong_count = if largest { sum.nnz() != input.nnz() } else { sum.nnz() > input.nnz() };
    if sum.dim() != input.dim() || is_wrong_count {
        let (dim, nnz) = (sum.dim(), sum.nnz());
        return Err(format!("it has {nnz} entries of {dim}, not {} of {}", input.nnz(), input.dim()));
    }
    let smallest = sum.values().iter().fold(f32::INFINITY, |min, value| min.min(*value));
    let outside = |(index, _): &(u64, f32)| u32::try_from(*index).is_ok_and(|index| sum.get(index).is_none());
    let own = entries(View::Sparse(input)).filter(outside);
    let back = entries(View::Sparse(put_back)).filter(outside);
    for (at, brought, back) in pair(own, back) {
        if back != brought {
            return Err(format!("{back} returns at position {at}, not {brought}"));
        }
        if largest && brought > smallest {
            return Err(format!("at position {at} it lacks {brought}, though it has {smallest}"));
        }
    }
    Ok(())
}

/// The entries that are not zero, in order.
fn entries(view: View<'_>) -> Box<dyn Iterator<Item = (u64, f32)> + '_> {
    let is_entry = |(_, value): &(u64, f32)| *value != 0.0;
    match view {
        View::Dense(values) => Box::new((0..).zip(values.iter().copied()).filter(is_entry)),
        View::Sparse(vector) => {
            Box::new(vector.iter().map(|(index, value)| (index.into(), value)).filter(is_entry))
        }
    }
}

/// Both vectors' values wherever one of them has an entry.
fn pair(
    left: impl Iterator<Item = (u64, f32)>,
    right: impl Iterator<Item = (u64, f32)>,
) -> impl Iterator<Item = (u64, f32, f32)> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    iter::from_fn(move || {
        let at = match (left.peek(), right.peek()) {
            (Some((a, _)), Some((b, _))) => *a.min(b),
            (Some((at, _)), None) | (None, Some((at, _))) => *at,
            (None, None) => return None,
        };
        let left = left.next_if(|(index, _)| *index == at).map_or(0.0, |(_, value)| value);
        let right = right.next_if(|(index, _)| *index == at).map_or(0.0, |(_, value)| value);
        Some((at, left, right))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(dim: u64, entries: &[(u32, f32)]) -> SparseVec<f32> {
        let (indices, values) = entries.iter().copied().unzip();
        SparseVec::new(dim, indices, values).unwrap()
    }

    /// Two ranks' inputs whose sum is {1: 2, 3: 7, 5: 4} in few or many dimensions, which decide how the
    /// oracle holds it.
    fn worlds() -> [(Oracle, [SparseVec<f32>; 2]); 2] {
        [8, 1000].map(|dim| {
            let inputs = [vector(dim, &[(1, 2.0), (3, 3.0)]), vector(dim, &[(3, 4.0), (5, 4.0)])];
            let oracle = Oracle::new(dim, inputs.iter().cloned().map(Ok)).unwrap();
            assert_eq!(oracle.sum.is_dense(), dim == 8);
            (oracle, inputs)
        })
    }

    #[test]
    fn a_wrong_sum_is_found_with_its_position() {
        for (oracle, [input, _]) in worlds() {
            let dim = input.dim();
            let check = |entries: &[(u32, f32)]| {
                let sum = vector(dim, entries);
                let sparse = oracle.check(Outcome::Sum(View::Sparse(&sum)), &input);
                let dense = oracle.check(Outcome::Sum(View::Dense(&sum.to_dense())), &input);
                assert_eq!(sparse, dense);
                sparse
            };
            assert_eq!(check(&[(1, 2.0), (3, 7.0), (5, 4.0)]), Ok(()));
            assert_eq!(check(&[(0, 0.0), (1, 2.0), (3, 7.0), (5, 4.0)]), Ok(()));
            let fault = |text: &str| Err(text.to_owned());
            assert_eq!(check(&[(1, 2.0), (3, 6.0), (5, 4.0)]), fault("at position 3 it is 6, not 7"));
            assert_eq!(check(&[(3, 7.0), (5, 4.0)]), fault("at position 1 it is 0, not 2"));
            let more = [(1, 2.0), (3, 7.0), (5, 4.0), (7, 1.0)];
            assert_eq!(check(&more), fault("at position 7 it is 1, not 0"));
            assert!(check(&[(1, f32::NAN), (3, 7.0), (5, 4.0)]).is_err());
            let other = oracle.check(Outcome::Sum(View::Dense(&[])), &input);
            assert_eq!(other, Err(format!("it has dimension 0, not {dim}")));
        }
    }

    #[test]
    fn a_rounded_sum_is_held_to_its_steps() {
        for (oracle, [input, _]) in worlds() {
            let check = |entries: &[(u32, f32)]| {
                oracle.check(Outcome::Rounded(View::Sparse(&vector(input.dim(), entries)), 7), &input)
            };
            assert_eq!(check(&[(1, 1.0), (3, 7.0), (5, 5.0)]), Ok(()));
            assert!(check(&[(1, 1.0), (3, 7.0), (5, 5.5)]).unwrap_err().contains("at position 5"));
            assert!(check(&[(1, 1.0), (2, 0.5), (3, 7.0), (5, 5.0)]).unwrap_err().contains("at position 2"));
        }
    }

    #[test]
    fn a_global_topk_loses_nothing_and_misses_nothing_large() {
        for (oracle, [input, _]) in worlds() {
            let dim = input.dim();
            let topk = |sum: &[(u32, f32)], put_back: &[(u32, f32)]| GlobalTopk {
                sum: vector(dim, sum),
                put_back: vector(dim, put_back),
            };
            let check = |result: &GlobalTopk<f32>| oracle.check(Outcome::Topk(result), &input);
            let right = topk(&[(3, 7.0), (5, 4.0)], &[(1, 2.0)]);
            assert_eq!(check(&right), Ok(()));
            assert!(check(&topk(&[(3, 7.0)], &[(1, 2.0)])).unwrap_err().contains("1 entries"));
            assert!(check(&topk(&[(3, 7.0), (5, 4.0)], &[])).unwrap_err().contains("position 1"));
            assert!(check(&topk(&[(1, 2.0), (5, 2.0)], &[(3, 3.0)])).unwrap_err().contains("lacks 3"));
            let by_range = |result: &GlobalTopk<f32>| oracle.check(Outcome::TopkByRange(result), &input);
            assert_eq!(by_range(&topk(&[(1, 2.0), (5, 2.0)], &[(3, 3.0)])), Ok(()));
            assert_eq!(by_range(&topk(&[(5, 4.0)], &[(1, 2.0), (3, 3.0)])), Ok(()));
            assert!(by_range(&topk(&[(5, 4.0)], &[(1, 2.0)])).unwrap_err().contains("position 3"));

            assert_eq!(oracle.check_returned(&right.sum, &[vec![0.0, 0.0], vec![0.0, 0.0]]), Ok(()));
            let partly = vector(dim, &[(3, 3.0), (5, 4.0)]);
            assert_eq!(oracle.check_returned(&partly, &[vec![0.0, 0.0], vec![4.0, 0.0]]), Ok(()));
            let lost = oracle.check_returned(&partly, &[vec![0.0, 0.0], vec![3.0, 0.0]]);
            assert!(lost.unwrap_err().contains("at position 3"));
            assert!(oracle.check_returned(&partly, &[vec![0.0]]).unwrap_err().contains("rank 0"));
        }
    }

    #[test]
    fn a_hash_tells_bits_apart() {
        let hash_of = |values: &[f32]| hash(Outcome::Sum(View::Dense(values)));
        assert_eq!(hash_of(&[1.0, 0.0]), hash_of(&[1.0, 0.0]));
        assert_ne!(hash_of(&[1.0, 0.0]), hash_of(&[1.0, -0.0]));
        assert_ne!(hash_of(&[1.0, 0.0]), hash_of(&[0.0, 1.0]));
        let sparse = |at| hash(Outcome::Sum(View::Sparse(&vector(9, &[(at, 1.0)]))));
        assert_ne!(sparse(1), sparse(2));
    }
}
