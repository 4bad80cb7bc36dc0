use std::cmp::Reverse;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sparse_core::{ErrorKind, SparseVec, at_least, top_k, top_k_into, top_k_per_bucket, top_k_per_layer};

use crate::samples::{Sample, assert_same, assert_same_vec, check, dense, sparse};

crate::for_each_type!(
    top_k_equals_the_sorting_oracle,
    selecting_to_used_memory_is_selecting,
    splitting_equals_the_sorting_oracle,
    splitting_loses_nothing,
    selecting_twice_is_selecting_once,
    a_threshold_takes_what_reaches_it,
    layers_and_buckets_are_selected_from_alone,
);

/// The positions of the k largest, by sorting; in increasing order.
fn largest<T: Sample>(values: &[T], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].compare_magnitudes(values[a]).then(a.cmp(&b)));
    order.truncate(k);
    order.sort_unstable();
    order
}

/// k at the ends, about the middle, and beyond.
fn any_k() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![Just(None), Just(Some(0.0)), Just(Some(2.0)), (0.0..1.0).prop_map(Some)]
}

fn k_of(len: usize, part: Option<f64>) -> usize {
    part.map_or(1, |part| (len as f64 * part) as usize)
}

fn top_k_equals_the_sorting_oracle<T: Sample>(runner: &mut TestRunner) {
    check(runner, (dense::<T>(), any_k()), |(values, part)| {
        let k = k_of(values.len(), part);
        let expected: Vec<usize> =
            largest(&values, k).into_iter().filter(|&at| !values[at].is_zero()).collect();
        let top = top_k(&values, k).unwrap();
        prop_assert_eq!(top.dim(), values.len() as u64);
        prop_assert_eq!(top.indices().iter().map(|&index| index as usize).collect::<Vec<_>>(), expected);
        assert_same(top.values(), &top.indices().iter().map(|&at| values[at as usize]).collect::<Vec<_>>())
    });
}

fn selecting_to_used_memory_is_selecting<T: Sample>(runner: &mut TestRunner) {
    check(runner, (dense::<T>(), any_k(), sparse::<T>()), |(values, part, mut used)| {
        let k = k_of(values.len(), part);
        top_k_into(&values, k, &mut used).unwrap();
        assert_same_vec(&used, &top_k(&values, k).unwrap())
    });
}

fn splitting_equals_the_sorting_oracle<T: Sample>(runner: &mut TestRunner) {
    check(runner, (dense::<T>(), any_k()), |(values, part)| {
        // Gaps between the indices, and explicit zeros.
        let indices: Vec<u32> = (0..values.len() as u32).map(|i| 3 * i + 1).collect();
        let dim = 3 * values.len() as u64;
        let k = k_of(values.len(), part);
        let positions = largest(&values, k);
        let (kept, dropped) = SparseVec::new(dim, indices.clone(), values.clone()).unwrap().top_k(k);
        let expected = positions.iter().map(|&at| indices[at]).collect();
        let values = positions.iter().map(|&at| values[at]).collect();
        assert_same_vec(&kept, &SparseVec::new(dim, expected, values).unwrap())?;
        prop_assert_eq!(dropped.nnz(), indices.len() - kept.nnz());
        Ok(())
    });
}

fn splitting_loses_nothing<T: Sample>(runner: &mut TestRunner) {
    check(runner, (sparse::<T>(), any_k()), |(vec, part)| {
        let (kept, dropped) = vec.clone().top_k(k_of(vec.nnz(), part));
        prop_assert_eq!(dropped.dim(), vec.dim());
        let mut entries: Vec<(u32, T)> = kept.iter().chain(dropped.iter()).collect();
        entries.sort_by_key(|&(index, _)| index);
        let (indices, values): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        assert_same_vec(&SparseVec::new(vec.dim(), indices, values).unwrap(), &vec)
    });
}

fn selecting_twice_is_selecting_once<T: Sample>(runner: &mut TestRunner) {
    check(runner, (dense::<T>(), any_k(), 0_usize..50), |(values, part, more)| {
        let k = k_of(values.len(), part);
        let once = top_k(&values, k).unwrap();
        assert_same_vec(&top_k(&values, k.saturating_add(more)).unwrap().top_k(k).0, &once)
    });
}

fn a_threshold_takes_what_reaches_it<T: Sample>(runner: &mut TestRunner) {
    check(runner, (dense::<T>(), any::<prop::sample::Index>(), 0_usize..65), |(values, at, skipped)| {
        // Wherever in a cache line the first lies.
        let values = &values[skipped.min(values.len())..];
        let least = if values.is_empty() { T::ZERO } else { values[at.index(values.len())] };
        let reaches = |value: &T| value.compare_magnitudes(least).is_ge() && !value.is_zero();
        let expected: Vec<u32> =
            (0..).zip(values).filter(|(_, value)| reaches(value)).map(|(index, _)| index).collect();
        let large = at_least(values, least).unwrap();
        prop_assert_eq!(large.indices(), &expected);
        prop_assert!(large.iter().all(|(index, value)| value.same(values[index as usize])));
        Ok(())
    });
}

fn layers_and_buckets_are_selected_from_alone<T: Sample>(runner: &mut TestRunner) {
    check(runner, (dense::<T>(), 1_usize..9, 0_usize..4), |(values, bucket, k)| {
        let parts: Vec<_> = values.chunks(bucket).map(|part| top_k(part, k).unwrap()).collect();
        let layers: Vec<_> = values.chunks(bucket).map(|part| (part.len(), k)).collect();
        let mut at = 0;
        let mut expected = Vec::new();
        for part in &parts {
            expected.extend(part.indices().iter().map(|index| index + at));
            at += part.dim() as u32;
        }
        let by_bucket = top_k_per_bucket(&values, bucket, k).unwrap();
        prop_assert_eq!(by_bucket.indices(), &expected);
        assert_same_vec(&top_k_per_layer(&values, &layers).unwrap(), &by_bucket)?;
        let more = [&layers[..], &[(1, 1)]].concat();
        prop_assert_eq!(
            top_k_per_layer(&values, &more).map_err(|error| error.kind()).err(),
            Some(ErrorKind::DimensionMismatch)
        );
        Ok(())
    });
}

#[test]
fn nan_ranks_above_infinity_and_ties_go_to_the_lowest_index() {
    let values = [1.0, f32::INFINITY, -f32::NAN, f32::NAN, f32::NEG_INFINITY, 1.0];
    let indices = |k| top_k(&values, k).unwrap().into_parts().0;
    assert_eq!(indices(1), [2]);
    assert_eq!(indices(2), [2, 3]);
    assert_eq!(indices(3), [1, 2, 3]);
    assert_eq!(indices(5), [0, 1, 2, 3, 4]);
}

#[test]
fn the_most_negative_integer_is_the_largest() {
    assert_eq!(top_k(&[i64::MAX, i64::MIN, -i64::MAX], 1).unwrap().indices(), [1]);
    assert_eq!(top_k(&[i32::MAX, i32::MIN, -i32::MAX], 2).unwrap().indices(), [0, 1]);
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn a_large_gradient_is_selected_exactly() {
    // Enough values for several blocks and digits, most of them alike.
    let values: Vec<f32> = (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32).collect();
    let mut order: Vec<u32> = (0..200_000).collect();
    order.sort_by_key(|&i| (Reverse(values[i as usize] as u64), i));
    for k in [1, 200, 2000, 100_000, 199_999] {
        let mut expected = order[..k].to_vec();
        expected.retain(|&i| values[i as usize] != 0.0);
        expected.sort_unstable();
        assert_eq!(top_k(&values, k).unwrap().indices(), expected);
    }
}

/// Values by a simple generator, so that a failure repeats.
fn noise(len: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

fn assert_exact<T: Sample>(name: &str, values: &[T]) {
    for k in [1, 2, 17, values.len() / 1000, values.len() / 100, values.len() / 9, values.len() / 8 + 1] {
        let expected: Vec<usize> =
            largest(values, k).into_iter().filter(|&at| !values[at].is_zero()).collect();
        let top = top_k(values, k).unwrap();
        let found: Vec<usize> = top.indices().iter().map(|&index| index as usize).collect();
        assert!(found == expected, "{name}, k = {k}: {} entries, {} expected", found.len(), expected.len());
        assert!(top.iter().all(|(index, value)| value.same(values[index as usize])), "{name}, k = {k}");
    }
}

/// Long enough to be sampled; of shapes that a sample tells the truth about, or does not.
pub(crate) fn shapes() -> Vec<(&'static str, Vec<f32>)> {
    let floats = uniform();
    let with = |change: &dyn Fn(usize, f32) -> f32| -> Vec<f32> {
        floats.iter().enumerate().map(|(at, &value)| change(at, value)).collect()
    };
    let mut sorted = floats.clone();
    sorted.sort_by(f32::total_cmp);
    let reversed: Vec<f32> = sorted.iter().rev().copied().collect();
    vec![
        ("uniform", floats.clone()),
        ("just long enough", floats[..1 << 14].to_vec()),
        ("longer", [&floats[..], &floats].concat()),
        ("sorted", sorted),
        ("reversed", reversed),
        ("equal", with(&|_, _| -1.5)),
        ("two values", with(&|_, value| if value > 0.0 { 1.0 } else { -2.0 })),
        ("a few large", with(&|at, _| if at % 997 == 0 { 3.0 } else { 0.5 })),
        ("large only where no sample is taken", with(&|at, value| if at > LEN - 50 { 1e9 } else { value })),
        ("mostly zeros", with(&|at, value| if at % 800 == 3 { value } else { -0.0 })),
        ("zeros", with(&|_, _| 0.0)),
        ("half not numbers", with(&|at, value| if at % 2 == 0 { f32::NAN } else { value })),
        ("not numbers", with(&|at, _| f32::from_bits(0x7f80_0001 + at as u32))),
        ("infinities", with(&|at, _| if at % 3 == 0 { f32::NEG_INFINITY } else { f32::MAX })),
        ("denormal", with(&|at, _| f32::from_bits(1 + at as u32 % 50))),
        ("large at one end", with(&|at, value| if at < LEN / 50 { value * 1e6 } else { value })),
    ]
}

pub(crate) const LEN: usize = 20_000;

pub(crate) fn uniform() -> Vec<f32> {
    noise(LEN).map(|bits| (bits >> 40) as f32 / 1e5 - 80.0).collect()
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn top_k_of_long_vectors_equals_the_sorting_oracle() {
    for (name, values) in shapes() {
        assert_exact(name, &values);
    }
    let floats = uniform();
    assert_exact("f64", &floats.iter().map(|&value| f64::from(value)).collect::<Vec<_>>());
    assert_exact("bf16", &floats.iter().map(|&value| half::bf16::from_f32(value)).collect::<Vec<_>>());
    assert_exact("f16", &floats.iter().map(|&value| half::f16::from_f32(value * 1e3)).collect::<Vec<_>>());
    assert_exact("i32", &noise(LEN).map(|bits| bits as i32).collect::<Vec<_>>());
    assert_exact(
        "extreme i32",
        &noise(LEN).map(|bits| [i32::MIN, i32::MAX][bits as usize % 2]).collect::<Vec<_>>(),
    );
    assert_exact("i64", &noise(LEN).map(|bits| bits as i64).collect::<Vec<_>>());
    assert_exact("extreme i64", &noise(LEN).map(|bits| [i64::MIN, 7][bits as usize % 2]).collect::<Vec<_>>());
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn splitting_is_exact_where_a_sample_misleads() {
    // Values that lie at even distances are small, large or alike, or not numbers, which are alike whatever their bits.
    let at_distance: [fn(f32) -> f32; 4] =
        [|value| value / 1e3, |value| value * 1e3, |_| 1.0, |_| f32::from_bits(0x7f80_0001)];
    for (len, change) in [8192, 20_000, 1 << 17].into_iter().flat_map(|len| at_distance.map(|f| (len, f))) {
        for (distance, others_too) in
            [(2, false), (len / 1024, false), (len / 4096, false), (2, true), (8, true)]
        {
            let values: Vec<f32> = noise(len)
                .map(|bits| (bits >> 40) as f32)
                .enumerate()
                .map(|(at, value)| match at % distance.max(1) {
                    0 => change(value),
                    _ if others_too => f32::NAN,
                    _ => value,
                })
                .collect();
            let indices: Vec<u32> = (0..len as u32).collect();
            let entries = SparseVec::new(len as u64, indices, values.clone()).unwrap();
            for k in [1, len / 9, len / 2, len * 3 / 4, len - len / 8 + 1, len - 1] {
                let expected: Vec<u32> = largest(&values, k).into_iter().map(|at| at as u32).collect();
                assert!(
                    entries.clone().top_k(k).0.indices() == expected,
                    "{k} of {len}, distance {distance}"
                );
            }
        }
    }
}
