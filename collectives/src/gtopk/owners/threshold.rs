//! How many of each owner's largest sums can be among the k largest of all, from a few magnitudes of each owner.
//!
//! All sums have a place in one order: larger magnitudes first, of equal ones that of the lower index, which is the
//! lower owner's, whose ranges increase, and within an owner the one before. So an owner's sum is known by its
//! magnitude, its owner and its rank among the owner's, and there are no ties.

use std::cmp::Reverse;

use sparse_core::{Element, Memory};

/// What an owner tells of its candidates, its at most k largest sums: how many there are, and the magnitudes at
/// [`steps`] of their order.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Marks {
    /// The steps and the magnitudes there, the largest first.
    marks: Vec<(usize, u64)>,
}

/// The place of a sum in the order of all: what is up to it survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Cut {
    magnitude: Reverse<u64>,
    owner: usize,
    /// So many of the owner's come no later.
    count: usize,
}

impl Marks {
    /// Linear time, but for the logarithm of the number of steps.
    pub(super) fn of<E: Element>(candidates: &[E], k: usize, ranks: usize, memory: &Memory) -> Self {
        let mut magnitudes = memory.empty(candidates.len());
        magnitudes.extend(candidates.iter().map(|value| value.magnitude()));
        let steps = steps(candidates.len(), k, ranks);
        settle(&mut magnitudes, 0, &steps);
        let at = |step: usize| magnitudes.get(step - 1).map(|magnitude| (step, *magnitude));
        let marks = steps.into_iter().filter_map(at).collect();
        memory.put(magnitudes);
        Self { marks }
    }

    /// How many candidates there are.
    fn count(&self) -> usize {
        self.marks.last().map_or(0, |(step, _)| *step)
    }

    /// The owner's marks in the order of all sums.
    fn places(&self, owner: usize) -> impl Iterator<Item = Cut> + '_ {
        self.marks.iter().map(move |(count, magnitude)| Cut {
            magnitude: Reverse(*magnitude),
            owner,
            count: *count,
        })
    }

    /// So many of the owner's are certain to come no later than the cut.
    pub(super) fn up_to(&self, owner: usize, cut: Option<Cut>) -> usize {
        let certain = self.places(owner).take_while(|place| cut.is_none_or(|cut| *place <= cut));
        certain.last().map_or(0, |place| place.count)
    }

    pub(super) fn to_bytes<E: Element>(&self) -> Vec<u8> {
        let count = self.count() as u64;
        let magnitudes = self
            .marks
            .iter()
            .flat_map(|(_, magnitude)| magnitude.to_le_bytes().into_iter().take(width::<E>()));
        count.to_le_bytes().into_iter().chain(magnitudes).collect()
    }

    pub(super) fn from_bytes<E: Element>(bytes: &[u8], k: usize, ranks: usize) -> Result<Self, String> {
        let Some((count, magnitudes)) = bytes.split_first_chunk() else {
            return Err(format!("{} bytes where magnitudes belong", bytes.len()));
        };
        let count = u64::from_le_bytes(*count);
        let Some(count) = usize::try_from(count).ok().filter(|count| *count <= k) else {
            return Err(format!("{count} candidates where at most {k} belong"));
        };
        let steps = steps(count, k, ranks);
        if magnitudes.len() != steps.len() * width::<E>() {
            let (length, steps) = (magnitudes.len(), steps.len());
            return Err(format!("{length} bytes of magnitudes, not {steps} of {} bytes", width::<E>()));
        }
        let read = |bytes: &[u8]| bytes.iter().rev().fold(0, |high, low| high << 8 | u64::from(*low));
        let magnitudes: Vec<_> = magnitudes.chunks(width::<E>()).map(read).collect();
        if magnitudes.is_sorted_by(|a, b| a >= b) {
            Ok(Self { marks: steps.into_iter().zip(magnitudes).collect() })
        } else {
            Err("magnitudes that increase".into())
        }
    }
}

/// A place in the order of all sums that k of them do not pass, and few more: `None` where there are no more than k.
pub(super) fn cut(owners: &[Marks], k: usize) -> Option<Cut> {
    if owners.iter().map(Marks::count).sum::<usize>() <= k {
        return None;
    }
    let mut places: Vec<_> =
        owners.iter().enumerate().flat_map(|(owner, marks)| marks.places(owner)).collect();
    places.sort_unstable();
    let mut certain = vec![0; owners.len()];
    let mut sum = 0;
    places.into_iter().find(|place| {
        if let Some(before) = certain.get_mut(place.owner) {
            sum += place.count - std::mem::replace(before, place.count);
        }
        sum >= k
    })
}

impl Cut {
    /// How many of an owner's candidates come no later.
    pub(super) fn count<E: Element>(self, owner: usize, candidates: &[E]) -> usize {
        if owner == self.owner {
            return self.count;
        }
        let Reverse(least) = self.magnitude;
        let ties = owner < self.owner;
        let survives = |magnitude| magnitude > least || ties && magnitude == least;
        candidates.iter().filter(|candidate| survives(candidate.magnitude())).count()
    }
}

/// Where an owner of `count` candidates marks their order: up to `count`, and close to each other about `k / ranks`,
/// which is its share of the k where owners are alike. A gap costs half as many entries beyond the k, on average.
pub(super) fn steps(count: usize, k: usize, ranks: usize) -> Vec<usize> {
    let share = k.div_ceil(ranks).max(1);
    // Half of what the share varies by where chance decides.
    let fine = (share.isqrt() / 2).max(1);
    // The more ranks, the fewer marks: those of all ranks reach every rank.
    let growth = (k / (128 * ranks)).clamp(2, 8);
    let gap = |distance: usize| fine.max(distance / growth);
    let below = std::iter::successors(Some(share), |step| step.checked_sub(gap(share - step)));
    let above = std::iter::successors(Some(share + fine), |step| Some(step + gap(step - share)));
    let mut steps: Vec<_> = below.filter(|step| (1..count).contains(step)).collect();
    steps.reverse();
    steps.extend(above.take_while(|step| *step < count));
    steps.extend((count > 0).then_some(count));
    steps
}

/// Brings the magnitudes to the places that they have in decreasing order, at these steps, counted from `before`.
fn settle(magnitudes: &mut [u64], before: usize, steps: &[usize]) {
    let Some((step, later)) = steps.get(steps.len() / 2..).and_then(<[usize]>::split_first) else { return };
    let (larger, _, smaller) = magnitudes.select_nth_unstable_by(step - before - 1, |a, b| b.cmp(a));
    settle(larger, before, &steps[..steps.len() / 2]);
    settle(smaller, *step, later);
}

/// Bytes of a magnitude.
const fn width<E: Element>() -> usize {
    E::MAGNITUDE_BITS.div_ceil(8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Owners' candidates, at most k of each, with many ties.
    fn owners(k: usize) -> impl Strategy<Value = Vec<Vec<i32>>> {
        let value = prop_oneof![-3_i32..3, any::<i32>()];
        prop::collection::vec(prop::collection::vec(value, 0..=k), 1..9)
    }

    proptest! {
        #[test]
        fn the_k_largest_survive_and_few_others((k, owners) in (1_usize..300).prop_flat_map(|k| (Just(k), owners(k)))) {
            let ranks = owners.len();
            let marks: Vec<_> = owners.iter().map(|values| Marks::of(values, k, ranks, &Memory::new())).collect();
            let cut = cut(&marks, k);
            let counts: Vec<_> = owners.iter().enumerate().map(|(owner, values)| {
                cut.map_or(values.len(), |cut| cut.count(owner, values))
            }).collect();

            // By a sort of all, whose ties stay in the order of the owners and of the values.
            let places = owners.iter().enumerate().flat_map(|(owner, values)| values.iter().map(move |v| (owner, *v)));
            let mut places: Vec<_> = places.collect();
            places.sort_by_key(|(_, value)| Reverse(value.magnitude()));
            for (owner, count) in counts.iter().enumerate() {
                let needed = places.iter().take(k).filter(|place| place.0 == owner).count();
                prop_assert!(*count >= needed, "{count} of {needed} of owner {owner}");
                prop_assert!(marks[owner].up_to(owner, cut) <= *count);
                // Fewer than lie between two marks.
                let above = marks[owner].marks.iter().map(|mark| mark.0).find(|step| step > count);
                prop_assert!(above.is_none_or(|above| marks[owner].up_to(owner, cut) < above));
            }
            let certain: usize = marks.iter().enumerate().map(|(owner, marks)| marks.up_to(owner, cut)).sum();
            prop_assert!(cut.is_none() || certain >= k);
        }

        #[test]
        fn marks_are_read_as_they_were_written(k in 0_usize..2000, ranks in 1_usize..20, values: Vec<f32>) {
            let values = &values[..values.len().min(k)];
            let marks = Marks::of(values, k, ranks, &Memory::new());
            prop_assert_eq!(Marks::from_bytes::<f32>(&marks.to_bytes::<f32>(), k, ranks), Ok(marks));
        }

        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), k in 0..=1_usize << 32, ranks in 1_usize..20) {
            if let Ok(marks) = Marks::from_bytes::<f64>(&bytes, k, ranks) {
                cut(&[marks.clone(), marks], k);
            }
        }
    }

    #[test]
    fn steps_increase_to_the_count_and_are_few() {
        for (count, k, ranks) in
            [(0, 10, 3), (1, 1, 1), (7, 10, 3), (10_000, 10_000, 8), (1 << 24, 1 << 24, 4)]
        {
            let steps = steps(count, k, ranks);
            assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
            assert_eq!(steps.last().copied().unwrap_or(0), count);
            assert!(steps.len() < 150, "{}", steps.len());
        }
    }

    #[test]
    fn of_equal_magnitudes_the_lower_owner_s_survive() {
        let owners = [[5_i32, -5, 5, 5], [5, 9, 5, 5]];
        let marks: Vec<_> = owners.iter().map(|values| Marks::of(values, 4, 2, &Memory::new())).collect();
        let cut = cut(&marks, 4).unwrap();
        assert_eq!(
            owners.iter().enumerate().map(|(o, values)| cut.count(o, values)).collect::<Vec<_>>(),
            [3, 1]
        );
    }
}
