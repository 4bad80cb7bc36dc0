use proptest::prelude::*;
use sparse_core::codec::{self, Codec};
use sparse_core::{Error, ErrorKind};

use crate::samples::{check, numbers, runner};

/// A dimension and indices below it that increase strictly: none, all, one, runs, uniform, skewed.
type Support = (u64, Vec<u32>);

fn support() -> BoxedStrategy<Support> {
    let dim = prop_oneof![Just(0), Just(1), 2_u64..600, 1000_u64..50_000, Just((1 << 32) - 1), Just(1 << 32)];
    (dim, any::<u64>(), 0_u32..8).prop_map(|(dim, seed, shape)| (dim, indices(dim, seed, shape))).boxed()
}

fn indices(dim: u64, seed: u64, shape: u32) -> Vec<u32> {
    let mut numbers = numbers(seed);
    let mut below = |bound: u64| numbers.next().unwrap() % bound.max(1);
    let few = 1 + below(700);
    let mut found: Vec<u64> = match shape {
        0 => Vec::new(),
        1 => (dim.saturating_sub(700 + few)..dim).collect(),
        2 => vec![if few % 2 == 0 { below(dim) } else { dim.saturating_sub(1) }],
        3 => {
            let long = 1 + below(300);
            (0..few / 50 + 1).map(|_| below(dim)).flat_map(|start| start..start + long).collect()
        }
        4 => (0..few).map(|_| below(dim)).collect(),
        5 => (0..few).map(|_| below(dim) >> below(32)).collect(),
        // A third or so of the positions, with every gap.
        6 => (0..dim.min(3000)).filter(|_| below(3) == 0).collect(),
        _ => (0..few).map(|i| dim.saturating_sub(1 + i * i)).collect(),
    };
    found.retain(|&index| index < dim);
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|index| index as u32).collect()
}

fn coded(codec: Codec, (dim, indices): &Support) -> Option<Vec<u8>> {
    coded_from(codec, *dim, indices, 0)
}

/// Nothing for runs too long for their codec, and for bitmaps too long for a test.
fn coded_from(codec: Codec, dim: u64, indices: &[u32], base: u32) -> Option<Vec<u8>> {
    if codec == Codec::Bitmap && dim > 1 << 16 {
        return None;
    }
    let mut bytes = Vec::new();
    codec::encode_as(codec, dim, indices, base, &mut bytes).then_some(bytes)
}

fn decoded(bytes: &[u8], dim: u64, count: usize) -> Result<Vec<u32>, Error> {
    let decode = |base| {
        let mut found = vec![7, 7];
        let decoded = codec::decode(bytes, dim, count, base, &mut found);
        assert_eq!(found.len(), if decoded.is_ok() { 2 + count } else { 2 });
        assert_eq!(found[..2], [7, 7]);
        decoded.map(|()| found.split_off(2))
    };
    let found = decode(0);
    // As far up as they fit, they are the same.
    if let Some(base) = (1_u64 << 32).checked_sub(dim).and_then(|base| u32::try_from(base).ok()) {
        let raised = found.clone().map(|found| found.iter().map(|index| index + base).collect::<Vec<_>>());
        assert_eq!(decode(base), raised);
        if let Some(more) = base.checked_add(1) {
            assert_eq!(decode(more), Err(Error::DimensionTooLarge { dim: (1 << 32) + 1 }));
        }
    }
    found
}

#[test]
fn decoding_inverts_encoding_by_every_codec() {
    check(&mut runner(), support(), |support| {
        for codec in Codec::ALL {
            let Some(bytes) = coded(codec, &support) else {
                prop_assert!(matches!(codec, Codec::Runs | Codec::Bitmap));
                continue;
            };
            prop_assert_eq!(Codec::from_code(bytes[0]), Some(codec));
            let found = decoded(&bytes, support.0, support.1.len());
            prop_assert_eq!(found.as_ref(), Ok(&support.1), "{:?}", codec);
        }
        Ok(())
    });
}

#[test]
fn the_shortest_is_chosen_and_its_length_foretold() {
    check(&mut runner(), support(), |support| {
        let mut bytes = vec![1, 2, 3];
        let codec = codec::encode(support.0, &support.1, 0, &mut bytes);
        let bytes = &bytes[3..];
        let chosen = coded(codec, &support);
        prop_assert_eq!(chosen.as_deref(), Some(bytes));
        prop_assert_eq!(codec::encoded_len(support.0, &support.1, 0), bytes.len());
        for other in Codec::ALL.into_iter().filter_map(|codec| coded(codec, &support)) {
            prop_assert!(bytes.len() <= other.len());
        }
        prop_assert!(bytes.len() <= 1 + 4 * support.1.len());
        Ok(())
    });
}

#[test]
fn a_part_is_coded_as_a_vector_of_its_own() {
    check(&mut runner(), (support(), any::<u32>()), |((dim, indices), base)| {
        let dim = dim.min((1 << 32) - u64::from(base));
        let own: Vec<u32> = indices.into_iter().filter(|&index| u64::from(index) < dim).collect();
        let shifted: Vec<u32> = own.iter().map(|index| index + base).collect();
        for codec in Codec::ALL {
            prop_assert_eq!(coded_from(codec, dim, &shifted, base), coded_from(codec, dim, &own, 0));
        }
        Ok(())
    });
}

/// Whatever was decoded is a support, and its codec makes just these bytes of it.
fn is_refused_or_canonical(bytes: &[u8], dim: u64, count: usize) -> Result<(), TestCaseError> {
    match decoded(bytes, dim, count) {
        Ok(found) => {
            prop_assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(found.last().is_none_or(|&last| u64::from(last) < dim));
            let codec = Codec::from_code(bytes[0]).unwrap();
            let again = coded(codec, &(dim, found));
            prop_assert_eq!(again.as_deref(), Some(bytes));
        }
        Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Malformed),
    }
    Ok(())
}

#[test]
fn any_bytes_are_refused_or_are_the_only_encoding() {
    let dim = prop_oneof![0_u64..40, 100_u64..5000, Just(1 << 32)];
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..60),
        proptest::collection::vec(prop_oneof![Just(0_u8), Just(0xff), 0_u8..5], 0..12),
    ];
    check(&mut runner(), (bytes, 0_u8..6, dim, 0_usize..200), |(mut bytes, code, dim, count)| {
        if let Some(first) = bytes.first_mut() {
            *first = code;
        }
        for count in [count, count % 8, 0, usize::MAX] {
            is_refused_or_canonical(&bytes, dim, count)?;
        }
        Ok(())
    });
}

#[test]
fn changed_encodings_are_refused_or_the_only_encoding_of_another() {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    check(&mut runner(), (support(), changes), |(support, changes)| {
        for mut bytes in Codec::ALL.into_iter().filter_map(|codec| coded(codec, &support)) {
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = if byte % 2 == 0 { bytes[at] ^ (1 << (byte / 2 % 8)) } else { *byte };
                is_refused_or_canonical(&bytes, support.0, support.1.len())?;
            }
        }
        Ok(())
    });
}

#[test]
fn cut_or_extended_encodings_and_other_counts_are_refused() {
    check(&mut runner(), (support(), any::<prop::sample::Index>(), any::<u8>()), |(support, at, byte)| {
        let (dim, indices) = &support;
        for bytes in Codec::ALL.into_iter().filter_map(|codec| coded(codec, &support)) {
            let cut = &bytes[..at.index(bytes.len())];
            prop_assert!(decoded(cut, *dim, indices.len()).is_err());
            for more in [0, byte] {
                let extended = [&bytes[..], &[more]].concat();
                prop_assert!(decoded(&extended, *dim, indices.len()).is_err());
            }
            // With another count the same bytes may be those of other indices, but never of the wrong number.
            is_refused_or_canonical(&bytes, *dim, indices.len() + 1)?;
            is_refused_or_canonical(&bytes, *dim, indices.len().saturating_sub(1))?;
            // Indices that are too large are refused whatever else fits.
            if let Some(&last) = indices.last() {
                is_refused_or_canonical(&bytes, u64::from(last), indices.len())?;
            }
        }
        Ok(())
    });
}

#[test]
fn nothing_is_allocated_for_more_than_the_bytes_can_hold() {
    for codec in Codec::ALL {
        let mut found = Vec::new();
        assert!(codec::decode(&[codec.code(), 1, 0, 0, 0, 0xff], 1 << 32, 1 << 31, 0, &mut found).is_err());
        assert_eq!(found.capacity(), 0);
    }
    assert!(matches!(decoded(&[0], (1 << 32) + 1, 0), Err(Error::DimensionTooLarge { .. })));
}

/// log2 C(n, k), by the terms of the product.
fn entropy(n: u64, k: u64) -> f64 {
    (1..=k).map(|i| ((n - k + i) as f64 / i as f64).log2()).sum()
}

fn uniform(dim: u64, count: usize) -> Vec<u32> {
    let mut taken = vec![false; dim as usize];
    let places = numbers(1).map(|number| (number % dim) as usize);
    places.filter(|&place| !std::mem::replace(&mut taken[place], true)).take(count).for_each(drop);
    (0..dim as u32).filter(|&index| taken[index as usize]).collect()
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn uniform_supports_cost_little_more_than_their_entropy() {
    let dim = 1 << 22;
    for (count, most) in [(419, 1.04), (4194, 1.055), (41_943, 1.065), (419_430, 1.10), (2 << 20, 1.001)] {
        let indices = uniform(dim, count);
        let bits = 8.0 * codec::encoded_len(dim, &indices, 0) as f64;
        let ratio = bits / entropy(dim, count as u64);
        println!("{count} of {dim}: {:.3} bits an index, {ratio:.4} times the entropy", bits / count as f64);
        assert!((1.0..most).contains(&ratio), "{count} of {dim}: {ratio}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn clustered_supports_cost_far_less_than_uniform_ones() {
    let dim = 1 << 22;
    let rows = uniform(dim / 64, 655).into_iter().flat_map(|row| row * 64..row * 64 + 64).collect();
    let runs = uniform(dim / 1000, 40).into_iter().flat_map(|run| run * 1000 + 3..run * 1000 + 900).collect();
    let one = (700_000..1_200_000).collect();
    // All in a hundredth of the vector: half of it, at random.
    let crowd = uniform(dim / 100, 20_000).into_iter().map(|index| index + 1_000_000).collect();
    let supports: [(&str, Vec<u32>, f64); 4] =
        [("rows", rows, 0.06), ("runs", runs, 0.01), ("one run", one, 0.02), ("crowd", crowd, 0.5)];
    for (name, indices, most) in supports {
        let bits = 8.0 * codec::encoded_len(dim, &indices, 0) as f64;
        let ratio = bits / entropy(dim, indices.len() as u64);
        println!(
            "{name}: {:.3} bits an index, {ratio:.4} times the uniform entropy",
            bits / indices.len() as f64
        );
        assert!(ratio < most, "{name}: {ratio}");
    }
}
