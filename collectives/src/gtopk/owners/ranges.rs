//! Ranges of the index space that hold equal counts of entries, cut alike on all ranks from samples of each.

use std::ops::Range;

use bytes::Buf;

use crate::topology;

/// How many indices a rank tells at most: enough to cut ranges a few per cent from even, and few beside k entries.
pub(super) fn samples(k: usize, ranks: usize) -> usize {
    (k / (32 * ranks)).clamp(8, 64)
}

/// What a rank tells of where its entries are.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sample {
    /// How many entries it has.
    nnz: u64,
    /// The indices of some, at equal distances in their order.
    indices: Vec<u32>,
}

impl Sample {
    /// At most `most` of these indices. Those of different ranks are staggered, so that together they tell more where
    /// the ranks' entries lie alike.
    pub(super) fn of(indices: &[u32], rank: usize, ranks: usize, most: usize) -> Self {
        let (nnz, taken) = (indices.len() as u128, indices.len().min(most) as u128);
        let place = |i: u128| (i * ranks as u128 + rank as u128) * nnz / (taken * ranks as u128);
        let sampled = (0..taken).filter_map(|i| indices.get(place(i) as usize).copied());
        Self { nnz: nnz as u64, indices: sampled.collect() }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let indices = self.indices.iter().flat_map(|index| index.to_le_bytes());
        self.nnz.to_le_bytes().into_iter().chain(indices).collect()
    }

    pub(super) fn from_bytes(mut bytes: &[u8], dim: u64, most: usize) -> Result<Self, String> {
        let length = bytes.len();
        let nnz = bytes
            .try_get_u64_le()
            .map_err(|_| format!("{length} bytes where a sample of indices belongs"))?;
        let (parts, rest) = bytes.as_chunks::<4>();
        let indices: Vec<_> = parts.iter().map(|part| u32::from_le_bytes(*part)).collect();
        let is_increasing = indices.windows(2).all(|pair| pair[0] < pair[1]);
        let is_inside = nnz <= dim && indices.last().is_none_or(|last| u64::from(*last) < dim);
        if !rest.is_empty() || indices.len() as u64 != nnz.min(most as u64) || !is_increasing || !is_inside {
            let count = indices.len();
            return Err(format!(
                "no sample of {nnz} increasing indices below {dim}: {count} in {length} bytes"
            ));
        }
        Ok(Self { nnz, indices })
    }
}

/// As many ranges as there are samples, which tile the dimension.
pub(super) fn balanced(dim: u64, samples: &[Sample]) -> Vec<Range<u64>> {
    let owners = samples.len();
    // An index stands for as many entries of its rank, in fractions.
    let weight = |sample: &Sample| (u128::from(sample.nnz) << 16) / sample.indices.len().max(1) as u128;
    let weighed = |sample| {
        let weight = weight(sample);
        sample.indices.iter().map(move |index| (u64::from(*index) + 1, weight))
    };
    let mut points: Vec<(u64, u128)> = samples.iter().flat_map(weighed).collect();
    if points.is_empty() {
        return topology::ranges(dim, owners);
    }
    points.sort_unstable();
    // From the weight of each to that of all before it and itself.
    let mut total = 0;
    for (_, weight) in &mut points {
        total += *weight;
        *weight = total;
    }
    points.insert(0, (0, 0));
    let entries = samples.iter().map(|sample| sample.nnz).sum();
    let knots = knots(&points, by_chance(points.len() - 1, total, entries, owners));
    let mut cuts = Vec::with_capacity(owners);
    for ends in knots.windows(2) {
        let ((from, before), (past, after)) = (ends[0], ends[1]);
        while cuts.len() + 1 < owners {
            let wanted = total * (cuts.len() + 1) as u128 / owners as u128;
            if wanted > after {
                break;
            }
            // No weight is wanted that is not above the one before, but where all are 0.
            let share = (u128::from(past - from) * (wanted - before)).checked_div(after - before);
            cuts.push(from + share.unwrap_or_default() as u64);
        }
    }
    let starts = [0].into_iter().chain(cuts.iter().copied());
    starts.zip(cuts.iter().copied().chain([dim])).map(|(start, end)| start..end).collect()
}

/// By how much the samples may be off from where the entries lie, in their weight, though these lie evenly.
///
/// A rank's quantile is off by up to half a square root of its entries; of so many samples as the ranks have within that
/// distance, about a quarter, at random, are on the wrong side of a place. Not more than half a sample of each rank.
fn by_chance(samples: usize, total: u128, entries: u64, ranks: usize) -> f64 {
    let (samples, ranks) = (samples as f64, ranks as f64);
    let near = samples * 0.5 / (entries as f64 / ranks).max(1.0).sqrt();
    let off = (1.0 + 5.0 * (0.56 * near).sqrt()).min(ranks / 2.0);
    total as f64 / samples * off
}

/// Of the points of a line that rises from left to right, those between which it is straight, but for this much.
///
/// Where each sample counted, ranges would be as uneven as the few samples in each; where samples lie evenly but for chance, so
/// do the entries. After Douglas and Peucker, "Algorithms for the reduction of the number of points", 1973.
fn knots(points: &[(u64, u128)], tolerance: f64) -> Vec<(u64, u128)> {
    let line: Vec<_> = points.iter().map(|(place, weight)| (*place as f64, *weight as f64)).collect();
    let mut is_knot = vec![false; points.len()];
    let mut parts = vec![(0, points.len() - 1, 0)];
    while let Some((first, last, depth)) = parts.pop() {
        (is_knot[first], is_knot[last]) = (true, true);
        if depth == DEEPEST {
            is_knot[first..last].fill(true);
            continue;
        }
        let ((from, before), (past, after)) = (line[first], line[last]);
        let slope = if past > from { (after - before) / (past - from) } else { 0.0 };
        let off = |at: usize| (before + (line[at].0 - from) * slope - line[at].1).abs();
        let worst = (first + 1..last).map(|at| (off(at), at)).max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((off, at)) = worst
            && off > tolerance
        {
            parts.extend([(first, at, depth + 1), (at, last, depth + 1)]);
        }
    }
    let knots = points.iter().zip(is_knot).filter(|(_, is_knot)| *is_knot);
    knots.map(|(point, _)| *point).collect()
}

/// How often a part is parted: beyond that all of its points count, so that the time is linear.
const DEEPEST: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Supports of some ranks, all within a part of the dimension.
    fn supports() -> impl Strategy<Value = (u64, Vec<Vec<u32>>)> {
        (1_u32..5000, 1_u32..20, 1_usize..10).prop_flat_map(|(width, part, ranks)| {
            let support = prop::collection::btree_set(0..width, 0..(width as usize).min(600));
            let support = support.prop_map(move |set| set.into_iter().map(|at| at + part * width).collect());
            (Just(u64::from(width) * 20), prop::collection::vec(support, ranks))
        })
    }

    fn sampled(supports: &[Vec<u32>], most: usize) -> Vec<Sample> {
        let ranks = supports.len();
        supports.iter().enumerate().map(|(rank, support)| Sample::of(support, rank, ranks, most)).collect()
    }

    proptest! {
        #[test]
        fn ranges_tile_the_dimension_with_no_load_a_sample_of_each_rank_off(
            (dim, supports) in supports(),
            most in 8_usize..64,
        ) {
            let ranks = supports.len();
            let ranges = balanced(dim, &sampled(&supports, most));
            prop_assert_eq!(ranges.len(), ranks);
            prop_assert_eq!((ranges[0].start, ranges[ranks - 1].end), (0, dim));
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            let entries: usize = supports.iter().map(Vec::len).sum();
            // Each end of a range is off by a sample's entries of each rank at most, and an index may be all ranks'.
            let off: usize = supports.iter().map(|support| 2 * support.len().div_ceil(most)).sum();
            for range in &ranges {
                let inside = |index: &&u32| range.contains(&u64::from(**index));
                let load = supports.iter().flatten().filter(inside).count();
                prop_assert!(load <= entries / ranks + off + 2 * ranks, "{load} of {entries} in {range:?}");
            }
        }

        #[test]
        fn a_sample_is_read_as_it_was_written((dim, supports) in supports(), most in 8_usize..64) {
            for sample in sampled(&supports, most) {
                prop_assert!(sample.indices.len() <= most);
                prop_assert_eq!(Sample::from_bytes(&sample.to_bytes(), dim, most), Ok(sample));
            }
        }

        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), dim in 0_u64..1 << 33) {
            if let Ok(sample) = Sample::from_bytes(&bytes, dim, 8) {
                balanced(dim, &[sample.clone(), sample]);
            }
        }
    }

    #[test]
    fn without_entries_the_ranges_are_of_equal_length() {
        let samples = sampled(&[vec![], vec![]], 8);
        assert_eq!(balanced(11, &samples), [0..5, 5..11]);
    }

    #[test]
    fn entries_of_different_ranks_at_different_ends_are_shared_evenly() {
        let ranges = balanced(1000, &sampled(&[(0..100).collect(), (900..1000).collect()], 8));
        assert!(ranges[0].end >= 88 && ranges[0].end <= 912, "{ranges:?}");
    }
}
