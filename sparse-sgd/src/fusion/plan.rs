use std::ops::Range;
use std::time::Duration;

/// Up to where layers share a bucket, counted in bytes of their gradients: 4 for each entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// No bucket of more than one layer is larger. Default: 16 MiB.
    pub bytes: usize,
    /// Larger layers are cut into pieces of at most this (one entry at least), each a bucket of its own: the first is on its way while the
    /// next is selected from. Default: none is.
    pub cut: usize,
}

impl Limits {
    /// Buckets of up to so many bytes; no layer is cut.
    #[must_use]
    pub const fn bytes(bytes: usize) -> Self {
        Self { bytes, cut: usize::MAX }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::bytes(16 << 20)
    }
}

/// Layers that are summed together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Bucket {
    /// Its place in the layers' entries, end to end.
    pub entries: Range<usize>,
    /// The first and last layers with entries here, and all between.
    pub layers: Range<usize>,
}

/// Which layers share a bucket: adjacent ones, from the last layer, whose gradient comes first, to the first.
///
/// A bucket's number is its place in this order, which is also the order in which buckets are launched: it does not
/// depend on which gradients a rank has ready, so ranks never wait for each other with different sums. A layer that
/// alone is above the limit has a bucket of its own, so it waits for no other layer to be ready.
///
/// A pure function of its arguments. Ranks whose arguments are the same have the same plan; where they are not, the
/// first bucket that differs is an error on all ranks.
///
/// ```
/// use sparse_sgd::{FusionPlan, Limits};
///
/// // Weights and biases of three layers, in buckets of up to 4 kB.
/// let plan = FusionPlan::new(&[5000, 50, 900, 50, 500, 10], Limits::bytes(4000));
/// let layers: Vec<_> = plan.buckets().iter().map(|bucket| bucket.layers.clone()).collect();
/// assert_eq!(layers, [3..6, 1..3, 0..1]);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FusionPlan {
    buckets: Vec<Bucket>,
    /// Where each layer begins, and where the last ends.
    starts: Vec<usize>,
    /// The buckets that each layer is in.
    of_layer: Vec<Range<usize>>,
}

impl FusionPlan {
    /// Buckets as large as the limits allow, of layers with so many entries. Depends on nothing that is measured.
    #[must_use]
    pub fn new(lens: &[usize], limits: Limits) -> Self {
        let pieces = Piece::all(lens, limits);
        let mut ends = Vec::new();
        let mut bytes = 0_usize;
        for (at, piece) in pieces.iter().enumerate() {
            let alone = piece.is_cut || at > 0 && pieces[at - 1].is_cut;
            bytes = bytes.saturating_add(piece.bytes());
            if at > 0 && (alone || bytes > limits.bytes) {
                ends.push(at);
                bytes = piece.bytes();
            }
        }
        ends.push(pieces.len());
        Self::of_pieces(lens, &pieces, &ends)
    }

    /// The buckets with which the last sum ends first, within the limits: of layers with so many entries, each with the
    /// time after which its gradient is ready, given what the sum of a bucket of so many entries takes, in seconds.
    ///
    /// A larger bucket has less latency to pay, and waits longer for its last layer. After *MG-WFBP: Efficient Data
    /// Communication for Distributed Synchronous SGD Algorithms* (Shi et al., INFOCOM 2019), by dynamic programming, so no
    /// other choice of buckets ends earlier if sums follow each other on the link. O(L^2) for L layers.
    #[must_use]
    pub fn fastest(layers: &[(usize, Duration)], limits: Limits, seconds: impl Fn(usize) -> f64) -> Self {
        let lens: Vec<_> = layers.iter().map(|(len, _)| *len).collect();
        let pieces = Piece::all(&lens, limits);
        // Of the first so many pieces: when their sums end at best, and where their last bucket then begins.
        let mut best = vec![(0.0_f64, 0)];
        for end in 1..=pieces.len() {
            let (mut entries, mut ready, mut least) = (0_usize, Duration::ZERO, (f64::INFINITY, end - 1));
            for begin in (0..end).rev() {
                let piece = &pieces[begin];
                entries += piece.entries.len();
                ready = ready.max(layers[piece.layer].1);
                let many = end - begin > 1;
                if many
                    && (entries.saturating_mul(4) > limits.bytes || piece.is_cut || pieces[end - 1].is_cut)
                {
                    break;
                }
                let ends = best[begin].0.max(ready.as_secs_f64()) + seconds(entries);
                // Where two are alike the smaller bucket, which is ready earlier.
                if ends < least.0 {
                    least = (ends, begin);
                }
            }
            best.push(least);
        }
        let mut ends = vec![pieces.len()];
        while let Some((_, begin)) = ends.last().and_then(|end| best.get(*end))
            && *begin > 0
        {
            ends.push(*begin);
        }
        ends.reverse();
        Self::of_pieces(&lens, &pieces, &ends)
    }

    /// The buckets, in the order of their numbers. At least one, which is empty if there are no entries.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The buckets that a layer is in: none if it has no entries, several if it is cut.
    pub(crate) fn buckets_of(&self, layer: usize) -> Range<usize> {
        self.of_layer[layer].clone()
    }

    /// The layers of a bucket, each with which of its entries are there.
    pub(crate) fn parts(&self, bucket: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.buckets[bucket].layers.clone().map(move |layer| (layer, self.part(bucket, layer)))
    }

    /// Which of the entries of a layer are in one of its buckets.
    pub(crate) fn part(&self, bucket: usize, layer: usize) -> Range<usize> {
        let (entries, start) = (&self.buckets[bucket].entries, self.starts[layer]);
        entries.start.max(start) - start..entries.end.min(self.starts[layer + 1]) - start
    }

    /// Where those begin among the entries of the bucket.
    pub(crate) fn offset(&self, bucket: usize, layer: usize) -> usize {
        self.starts[layer].saturating_sub(self.buckets[bucket].entries.start)
    }

    /// Buckets of the pieces up to each of these ends.
    fn of_pieces(lens: &[usize], pieces: &[Piece], ends: &[usize]) -> Self {
        let begins = std::iter::once(&0).chain(ends);
        let entries = |pieces: &[Piece]| pieces.iter().map(|piece| piece.entries.len()).sum();
        Self::with(lens, begins.zip(ends).map(|(begin, end)| entries(&pieces[*begin..*end])))
    }

    /// Buckets of so many entries each, from the last entry to the first, of which there are as many as the layers have.
    pub(crate) fn with(lens: &[usize], buckets: impl Iterator<Item = usize>) -> Self {
        let starts = starts(lens);
        let (mut of_layer, mut end) = (vec![0..0; lens.len()], starts[lens.len()]);
        let bucket = |(number, len): (usize, usize)| {
            let entries = end - len..end;
            end = entries.start;
            // Layers without entries are in none.
            let first = starts[1..].partition_point(|end| *end <= entries.start);
            let layers = first..starts[..lens.len()].partition_point(|start| *start < entries.end).max(first);
            for layer in layers.clone().filter(|layer| lens[*layer] > 0) {
                let buckets: &mut Range<usize> = &mut of_layer[layer];
                let first = if Range::is_empty(buckets) { number } else { buckets.start };
                *buckets = first..number + 1;
            }
            Bucket { entries, layers }
        };
        let buckets = buckets.enumerate().map(bucket).collect();
        Self { buckets, starts, of_layer }
    }
}

/// A layer, or a part of a large one.
struct Piece {
    layer: usize,
    entries: Range<usize>,
    is_cut: bool,
}

impl Piece {
    /// Those of all layers that have entries, the last ones first.
    fn all(lens: &[usize], limits: Limits) -> Vec<Self> {
        let starts = starts(lens);
        let most = (limits.cut / 4).max(1);
        let mut pieces = Vec::new();
        for (layer, &len) in lens.iter().enumerate().rev().filter(|(_, len)| **len > 0) {
            let count = len.div_ceil(most);
            for piece in (0..count).rev() {
                // As even as can be. In 128 bits nothing overflows.
                let cut = |at: usize| starts[layer] + (len as u128 * at as u128 / count as u128) as usize;
                pieces.push(Self { layer, entries: cut(piece)..cut(piece + 1), is_cut: count > 1 });
            }
        }
        pieces
    }

    fn bytes(&self) -> usize {
        self.entries.len().saturating_mul(4)
    }
}

fn starts(lens: &[usize]) -> Vec<usize> {
    let ends = lens.iter().scan(0, |end, len| {
        *end += len;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lens() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(prop_oneof![0..3_usize, 0..40_usize, 50..400_usize], 0..14)
    }

    fn limits() -> impl Strategy<Value = Limits> {
        let cut = prop_oneof![Just(usize::MAX), 0..500_usize];
        (0..900_usize, cut).prop_map(|(bytes, cut)| Limits { bytes, cut })
    }

    fn check(plan: &FusionPlan, lens: &[usize], limits: Limits) -> Result<(), TestCaseError> {
        // From the last entry to the first, none left out and none twice.
        let mut end: usize = lens.iter().sum();
        for bucket in plan.buckets() {
            prop_assert_eq!(bucket.entries.end, end);
            end = bucket.entries.start;
        }
        prop_assert_eq!(end, 0);
        let mut seen = vec![0; lens.len()];
        for (number, bucket) in plan.buckets().iter().enumerate() {
            let mut len = 0;
            for (layer, part) in plan.parts(number) {
                prop_assert!(part.end <= lens[layer] && bucket.layers.contains(&layer));
                prop_assert!(part.is_empty() || plan.buckets_of(layer).contains(&number));
                len += part.len();
                seen[layer] += part.len();
            }
            prop_assert_eq!(len, bucket.entries.len());
            let most = if bucket.layers.len() > 1 { limits.bytes } else { limits.cut.max(4) };
            prop_assert!(4 * len <= most, "{:?} of {:?}", bucket, lens);
            prop_assert!(len > 0 || plan.buckets().len() == 1);
        }
        prop_assert_eq!(&seen, lens);
        for (layer, &len) in lens.iter().enumerate() {
            let whole = usize::from(len > 0);
            let count = if 4 * len > limits.cut.max(4) { 2..=len } else { whole..=whole };
            prop_assert!(count.contains(&plan.buckets_of(layer).len()));
        }
        Ok(())
    }

    /// When the last sum ends.
    fn end(plan: &FusionPlan, layers: &[(usize, Duration)], seconds: impl Fn(usize) -> f64) -> f64 {
        plan.buckets().iter().enumerate().fold(0.0, |end, (number, bucket)| {
            let readies = plan.parts(number).filter(|(_, part)| !part.is_empty());
            let ready = readies.map(|(layer, _)| layers[layer].1.as_secs_f64()).fold(0.0, f64::max);
            f64::max(end, ready) + seconds(bucket.entries.len())
        })
    }

    proptest! {
        #[test]
        fn every_entry_is_in_one_bucket_of_adjacent_layers_within_the_limits(
            lens in lens(), limits in limits(), readies in prop::collection::vec(0..99_u64, 14), alpha in 0..40_u32,
        ) {
            check(&FusionPlan::new(&lens, limits), &lens, limits)?;
            let readies = readies.into_iter().map(Duration::from_secs);
            let layers: Vec<_> = lens.iter().copied().zip(readies).collect();
            let seconds = |entries| f64::from(alpha) + entries as f64 / 16.0;
            check(&FusionPlan::fastest(&layers, limits, seconds), &lens, limits)?;
        }

        #[test]
        fn no_two_buckets_could_have_been_one(lens in lens(), bytes in 0..900_usize) {
            let plan = FusionPlan::new(&lens, Limits::bytes(bytes));
            for pair in plan.buckets().windows(2) {
                // The first layer of the next did not fit.
                let next = lens[pair[1].layers.end - 1];
                prop_assert!(4 * (pair[0].entries.len() + next) > bytes);
            }
        }

        #[test]
        fn no_other_buckets_end_earlier_than_the_fastest(
            layers in prop::collection::vec((1..40_usize, 0..60_u64), 1..8), bytes in 0..400_usize, alpha in 0..40_u32,
        ) {
            let layers: Vec<_> = layers.into_iter().map(|(len, ready)| (len, Duration::from_secs(ready))).collect();
            let lens: Vec<_> = layers.iter().map(|(len, _)| *len).collect();
            let limits = Limits::bytes(bytes);
            let seconds = |entries| f64::from(alpha) + entries as f64 / 4.0;
            let found = end(&FusionPlan::fastest(&layers, limits, seconds), &layers, seconds);
            // Each bit says whether a bucket ends before the next piece.
            let pieces = Piece::all(&lens, limits);
            for cuts in 0..1_u32 << (layers.len() - 1) {
                let mut ends: Vec<_> = (1..layers.len()).filter(|at| cuts >> (at - 1) & 1 == 1).collect();
                ends.push(layers.len());
                let other = FusionPlan::of_pieces(&lens, &pieces, &ends);
                let allowed = |b: &Bucket| b.layers.len() == 1 || 4 * b.entries.len() <= bytes;
                if other.buckets().iter().all(allowed) {
                    prop_assert!(found <= end(&other, &layers, seconds) + 1e-9);
                }
            }
        }
    }

    #[test]
    fn a_layer_above_the_limit_is_alone_and_may_be_cut() {
        let lens = [10, 100, 10, 10];
        let layers = |limits| -> Vec<_> {
            FusionPlan::new(&lens, limits)
                .buckets()
                .iter()
                .map(|b| (b.entries.clone(), b.layers.clone()))
                .collect()
        };
        assert_eq!(layers(Limits::bytes(200)), [(110..130, 2..4), (10..110, 1..2), (0..10, 0..1)]);
        let cut = layers(Limits { bytes: 200, cut: 160 });
        assert_eq!(cut, [(110..130, 2..4), (76..110, 1..2), (43..76, 1..2), (10..43, 1..2), (0..10, 0..1)]);
    }

    #[test]
    fn latency_fuses_and_waiting_parts() {
        let layers =
            [(10, Duration::from_secs(9)), (10, Duration::from_secs(1)), (10, Duration::from_secs(1))];
        let layers = |alpha: f64| -> Vec<_> {
            let plan =
                FusionPlan::fastest(&layers, Limits::default(), |entries| alpha + entries as f64 / 10.0);
            plan.buckets().iter().map(|b| b.layers.clone()).collect()
        };
        assert_eq!(layers(0.0), [2..3, 1..2, 0..1]);
        // What is ready at 1 is through by 9 in one or two buckets; three in one would end later.
        assert_eq!(layers(4.0), [1..3, 0..1]);
        assert_eq!(layers(20.0), std::slice::from_ref(&(0..3)));
    }
}
