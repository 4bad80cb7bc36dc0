use std::hash::Hasher as _;

use transport::Rank;
use twox_hash::XxHash3_64;

/// Values turned into bytes at a time: few enough for the first-level cache.
const BLOCK: usize = 1024;

/// A 64-bit hash (XXH3) of the parameters' names, lengths, order and the bits of their values.
///
/// The same on every machine, whatever its byte order. Two zeros of different sign, and two NaN of
/// different bits, are different. Takes a slice of [`Parameter`](crate::Parameter) or pairs of name and
/// values. One pass; not a defence against someone who seeks collisions.
///
/// ```
/// use sparse_sgd::parameters_hash;
///
/// let hash = parameters_hash([("w", &[1.0, 2.0][..]), ("b", &[0.5])]);
/// assert_ne!(hash, parameters_hash([("w", &[1.0][..]), ("b", &[2.0, 0.5])]));
/// ```
pub fn parameters_hash<'a, I>(parameters: I) -> u64
where
    I: IntoIterator,
    I::Item: Into<(&'a str, &'a [f32])>,
{
    let mut hasher = XxHash3_64::new();
    let mut block = [0_u8; 4 * BLOCK];
    for parameter in parameters {
        let (name, values) = parameter.into();
        // With the lengths in front, no two lists of parameters give the same bytes.
        for len in [name.len(), values.len()] {
            hasher.write(&(len as u64).to_le_bytes());
        }
        hasher.write(name.as_bytes());
        for values in values.chunks(BLOCK) {
            let (bytes, _) = block.as_chunks_mut::<4>();
            for (bytes, value) in bytes.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
            hasher.write(&block[..4 * values.len()]);
        }
    }
    hasher.finish()
}

/// The ranks whose block is not that of the largest group; where two groups are largest, not that of
/// rank 0. `blocks` has one block for each rank.
pub(crate) fn differing<B: AsRef<[u8]>>(blocks: &[B]) -> Vec<Rank> {
    let Some(first) = blocks.first().map(AsRef::as_ref) else { return Vec::new() };
    let mut sorted: Vec<&[u8]> = blocks.iter().map(AsRef::as_ref).collect();
    sorted.sort_unstable();
    let (mut reference, mut largest) = (first, 0);
    for group in sorted.chunk_by(|a, b| a == b) {
        if group.len() > largest {
            (reference, largest) = (group[0], group.len());
        } else if group.len() == largest {
            reference = first;
        }
    }
    (0..blocks.len()).filter(|&rank| blocks[rank].as_ref() != reference).map(Rank::from_index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = Vec<(String, Vec<f32>)>;

    fn hash(parameters: &Owned) -> u64 {
        parameters_hash(parameters.iter().map(|(name, values)| (name.as_str(), values.as_slice())))
    }

    /// Everything that the hash is of, in one string of bytes.
    fn bytes(parameters: &Owned) -> Vec<u8> {
        let mut all = Vec::new();
        for (name, values) in parameters {
            all.extend((name.len() as u64).to_le_bytes());
            all.extend((values.len() as u64).to_le_bytes());
            all.extend(name.bytes());
            all.extend(values.iter().flat_map(|v| v.to_bits().to_le_bytes()));
        }
        all
    }

    fn parameters() -> impl Strategy<Value = Owned> {
        let values = prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..9);
        prop::collection::vec(("[a-c]{0,3}", values), 0..4)
    }

    proptest! {
        #[test]
        fn hash_is_xxh3_of_the_little_endian_bytes(parameters in parameters()) {
            prop_assert_eq!(hash(&parameters), XxHash3_64::oneshot(&bytes(&parameters)));
        }

        #[test]
        fn hash_tells_any_flipped_bit(len in 1..3000_usize, at in any::<prop::sample::Index>(), bit in 0..32) {
            let before = vec![("w".to_owned(), vec![1.5_f32; len])];
            let mut after = before.clone();
            let value = &mut after[0].1[at.index(len)];
            *value = f32::from_bits(value.to_bits() ^ (1_u32 << bit));
            prop_assert_ne!(hash(&before), hash(&after));
        }

        #[test]
        fn differing_ranks_are_those_outside_the_largest_group(blocks in prop::collection::vec(0..4_u8, 1..10)) {
            let blocks: Vec<[u8; 1]> = blocks.into_iter().map(|b| [b]).collect();
            let size = |b: &[u8; 1]| blocks.iter().filter(|x| *x == b).count();
            let largest = blocks.iter().map(size).max().unwrap();
            let mut leaders: Vec<_> = blocks.iter().filter(|b| size(b) == largest).collect();
            leaders.sort_unstable();
            leaders.dedup();
            let reference = if let [only] = leaders[..] { only } else { &blocks[0] };
            let oracle: Vec<_> =
                (0..blocks.len()).filter(|&r| blocks[r] != *reference).map(Rank::from_index).collect();
            prop_assert_eq!(differing(&blocks), oracle);
        }
    }

    #[test]
    fn hash_depends_on_order_names_and_shapes() {
        let of = |parameters: &[(&str, &[f32])]| parameters_hash(parameters.iter().copied());
        let hashes = [
            of(&[]),
            of(&[("", &[])]),
            of(&[("", &[]), ("", &[])]),
            of(&[("a", &[1.0]), ("b", &[2.0])]),
            of(&[("b", &[2.0]), ("a", &[1.0])]),
            of(&[("a", &[2.0]), ("b", &[1.0])]),
            of(&[("a", &[1.0, 2.0])]),
            of(&[("a", &[1.0, 2.0]), ("b", &[])]),
            of(&[("ab", &[1.0, 2.0])]),
            of(&[("a", &[0.0])]),
            of(&[("a", &[-0.0])]),
        ];
        for (i, a) in hashes.iter().enumerate() {
            assert!(hashes[..i].iter().all(|b| a != b), "{i}");
        }
    }

    #[test]
    fn hash_is_the_same_on_every_machine() {
        // Computed once: a change here is a change of what users compare between machines.
        assert_eq!(
            parameters_hash([("w", &[1.0, -2.5, f32::NAN][..]), ("b", &[0.0])]),
            0xd16f_0233_44eb_6fc0
        );
    }

    #[test]
    fn a_majority_decides_and_a_tie_goes_to_rank_0() {
        let ranks = |blocks: &[&str]| differing(blocks).into_iter().map(|r| r.0).collect::<Vec<_>>();
        assert_eq!(ranks(&[]), []);
        assert_eq!(ranks(&["a"]), []);
        assert_eq!(ranks(&["a", "a", "a"]), []);
        assert_eq!(ranks(&["b", "a", "a"]), [0]);
        assert_eq!(ranks(&["a", "b", "a", "c"]), [1, 3]);
        assert_eq!(ranks(&["b", "a"]), [1]);
        assert_eq!(ranks(&["c", "a", "a", "b", "b"]), [1, 2, 3, 4]);
    }
}
