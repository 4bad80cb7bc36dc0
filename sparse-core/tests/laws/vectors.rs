use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sparse_core::{Duplicates, Error, ErrorKind, SparseVec};

use crate::samples::{Sample, assert_same, assert_same_vec, check, code, dense, sparse, value};

crate::for_each_type!(
    from_dense_drops_zeros_only,
    unsorted_entries_are_sorted_and_summed_in_order,
    duplicates_are_refused_where_that_was_asked,
    slicing_then_concatenating_is_identity,
    slices_hold_what_the_dense_slice_holds,
    looking_up_finds_the_entries_only,
);

fn from_dense_drops_zeros_only<T: Sample>(runner: &mut TestRunner) {
    check(runner, dense::<T>(), |values| {
        let vec = SparseVec::from_dense(&values).unwrap();
        prop_assert!(vec.values().iter().all(|value| !value.is_zero()));
        // Adding zero turns -0.0 into 0.0 and changes nothing else.
        let expected: Vec<T> = values.iter().map(|&value| T::ZERO.add(value).0).collect();
        assert_same(&vec.to_dense(), &expected)
    });
}

fn pairs<T: Sample>(len: Range<usize>) -> BoxedStrategy<Vec<(u32, T)>> {
    let codes = proptest::collection::vec((0_u32..30, code()), len);
    codes.prop_map(|codes| codes.into_iter().map(|(index, code)| (index, value(code))).collect()).boxed()
}

fn unsorted_entries_are_sorted_and_summed_in_order<T: Sample>(runner: &mut TestRunner) {
    check(runner, pairs::<T>(0..60), |pairs| {
        let mut groups = BTreeMap::<u32, Vec<T>>::new();
        for &(index, value) in &pairs {
            groups.entry(index).or_default().push(value);
        }
        let sums = groups.iter().map(|(&index, values)| T::sum(values).ok_or(index));
        match (sums.collect::<Result<Vec<T>, u32>>(), SparseVec::from_unsorted(30, pairs, Duplicates::Sum)) {
            (Ok(sums), Ok(vec)) => {
                assert_same_vec(&vec, &SparseVec::new(30, groups.into_keys().collect(), sums).unwrap())
            }
            (sums, vec) => {
                let overflow =
                    sums.err().map(|index| Error::Overflow { index: index.into(), dtype: T::DTYPE });
                prop_assert!(overflow.is_some());
                prop_assert_eq!(vec.err(), overflow);
                Ok(())
            }
        }
    });
}

fn duplicates_are_refused_where_that_was_asked<T: Sample>(runner: &mut TestRunner) {
    check(runner, pairs::<T>(0..8), |pairs| {
        let indices: Vec<u32> = pairs.iter().map(|pair| pair.0).collect();
        let twice = |&&index: &&u32| indices.iter().filter(|&&other| other == index).count() > 1;
        let expected = indices.iter().filter(twice).min().map(|&index| Error::DuplicateIndex { index });
        prop_assert_eq!(SparseVec::from_unsorted(30, pairs, Duplicates::Refuse).err(), expected);
        Ok(())
    });
}

fn slicing_then_concatenating_is_identity<T: Sample>(runner: &mut TestRunner) {
    let cuts = proptest::collection::vec(0.0..=1.0_f64, 0..5);
    check(runner, (sparse::<T>(), cuts), |(vec, cuts)| {
        let mut bounds: Vec<u64> = cuts.into_iter().map(|part| (vec.dim() as f64 * part) as u64).collect();
        bounds.extend([0, vec.dim()]);
        bounds.sort_unstable();
        let parts: Vec<_> = bounds.windows(2).map(|pair| vec.slice(pair[0]..pair[1])).collect();
        for part in &parts {
            SparseVec::new(part.dim(), part.indices().to_vec(), part.values().to_vec()).unwrap();
        }
        assert_same_vec(&SparseVec::concat(&parts).unwrap(), &vec)
    });
}

fn slices_hold_what_the_dense_slice_holds<T: Sample>(runner: &mut TestRunner) {
    check(runner, (dense::<T>(), 0.0..=1.0_f64, 0.0..=1.0_f64), |(values, a, b)| {
        let bound = |part: f64| (values.len() as f64 * part) as usize;
        let range = bound(a.min(b))..bound(a.max(b));
        let vec = SparseVec::from_dense(&values).unwrap();
        let slice = vec.slice(range.start as u64..range.end as u64);
        assert_same_vec(&slice, &SparseVec::from_dense(&values[range]).unwrap())
    });
}

fn looking_up_finds_the_entries_only<T: Sample>(runner: &mut TestRunner) {
    check(runner, (sparse::<T>(), any::<u32>()), |(vec, other)| {
        for (index, value) in vec.iter() {
            prop_assert!(vec.get(index).is_some_and(|found| found.same(value)));
        }
        prop_assert_eq!(vec.get(other).is_some(), vec.indices().contains(&other));
        Ok(())
    });
}

#[test]
fn what_is_not_a_sparse_vector_is_refused() {
    let refused = |dim, indices: &[u32], values: &[f32]| {
        SparseVec::new(dim, indices.to_vec(), values.to_vec()).unwrap_err()
    };
    let long = (1 << 32) + 1;
    assert_eq!(refused(long, &[], &[]), Error::DimensionTooLarge { dim: long });
    assert_eq!(refused(9, &[1, 2], &[1.0]), Error::LengthMismatch { indices: 2, values: 1 });
    assert_eq!(refused(9, &[9], &[1.0]), Error::IndexOutOfRange { index: 9, dim: 9 });
    assert_eq!(refused(0, &[0], &[1.0]), Error::IndexOutOfRange { index: 0, dim: 0 });
    let repeated = Error::NotIncreasing { position: 2, index: 5, previous: 5 };
    assert_eq!(refused(9, &[1, 5, 5], &[1.0; 3]), repeated);
    assert_eq!(refused(9, &[5, 1], &[1.0; 2]).kind(), ErrorKind::NotIncreasing);
    assert!(SparseVec::<f32>::empty(1 << 32).is_ok());
    assert!(SparseVec::<f32>::empty(long).is_err());
    let pairs = vec![(3, 1.0_f32)];
    assert!(SparseVec::from_unsorted(3, pairs.clone(), Duplicates::Sum).is_err());
    assert!(SparseVec::from_unsorted(long, pairs, Duplicates::Sum).is_err());
    let half = SparseVec::<f32>::empty(1 << 31).unwrap();
    assert!(SparseVec::concat(&[half.clone(), half.clone()]).is_ok());
    assert!(SparseVec::concat(&[half.clone(), half, SparseVec::empty(1).unwrap()]).is_err());
}

#[test]
fn the_last_index_of_the_largest_dimension_is_usable() {
    let vec = SparseVec::new(1 << 32, vec![0, u32::MAX], vec![1_i32, 2]).unwrap();
    let end = vec.slice((1 << 32) - 1..1 << 32);
    assert_eq!((end.dim(), end.indices(), end.values()), (1, &[0][..], &[2][..]));
    assert_eq!(vec.slice(1 << 32..1 << 32).dim(), 0);
}

#[test]
#[should_panic(expected = "is not within 0..3")]
fn a_slice_beyond_the_dimension_panics_as_slices_do() {
    let _ = SparseVec::<f32>::empty(3).unwrap().slice(1..4);
}
