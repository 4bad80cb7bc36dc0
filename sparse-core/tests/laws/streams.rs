use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sparse_core::{Error, SparseVec, Stream, add_assign, dense_is_shorter};

use crate::samples::{Sample, assert_same, assert_same_vec, check, dense, sparse_vecs, value, values};

crate::for_each_type!(
    a_sum_goes_dense_exactly_at_the_delta,
    every_form_gives_the_same_sum,
    slicing_then_concatenating_is_identity_of_values,
    concatenating_sparse_parts_goes_dense_exactly_at_the_delta,
    conversions_keep_the_values,
);

/// Where the published delta lies, as a part of the dimension: v / (4 + v) for v bytes a value.
fn delta<T: Sample>() -> (u64, u64) {
    match size_of::<T>() {
        2 => (1, 3),
        4 => (1, 2),
        _ => (2, 3),
    }
}

fn first<T: Sample>(dim: u64, nnz: u64) -> Stream<T> {
    SparseVec::new(dim, (0..nnz as u32).collect(), vec![T::small(1); nnz as usize]).unwrap().into()
}

fn a_sum_goes_dense_exactly_at_the_delta<T: Sample>(runner: &mut TestRunner) {
    check(runner, (0_u64..100, 0.0..=1.0_f64, 0.0..=1.0_f64), |(dim, a, b)| {
        let (a, b) = ((dim as f64 * a) as u64, (dim as f64 * b) as u64);
        let (part, whole) = delta::<T>();
        let expected = (a + b) * whole >= dim * part;
        prop_assert_eq!(first::<T>(dim, a).merge(first(dim, b)).unwrap().is_dense(), expected);
        prop_assert_eq!(dense_is_shorter::<T>(a + b, dim), expected);
        Ok(())
    });
}

fn every_form_gives_the_same_sum<T: Sample>(runner: &mut TestRunner) {
    check(runner, (values::<T>(0..100), any::<[bool; 2]>()), |(both, [left_dense, right_dense])| {
        let (left, right) = both.split_at(both.len() / 2);
        let right = &right[..left.len()];
        // -0.0 is no entry of the sparse form, so it is none of the dense form either.
        let plain = |values: &[T]| SparseVec::from_dense(values).unwrap().to_dense();
        let (left, right) = (plain(left), plain(right));
        let mut expected = left.clone();
        let added = add_assign(&mut expected, &right);
        let form = |values: &[T], dense| match dense {
            true => Stream::Dense(values.to_vec()),
            false => SparseVec::from_dense(values).unwrap().into(),
        };
        match form(&left, left_dense).merge(form(&right, right_dense)) {
            Ok(sum) => {
                prop_assert!(added.is_ok());
                prop_assert!(sum.is_dense() || !(left_dense || right_dense));
                assert_same(&sum.into_dense(), &expected)
            }
            Err(error) => {
                prop_assert_eq!(Err(error), added);
                Ok(())
            }
        }
    });
}

fn slicing_then_concatenating_is_identity_of_values<T: Sample>(runner: &mut TestRunner) {
    let cuts = proptest::collection::vec((0.0..=1.0_f64, any::<bool>()), 0..5);
    check(runner, (dense::<T>(), cuts), |(values, cuts)| {
        let sparse = Stream::from(SparseVec::from_dense(&values).unwrap());
        let values = sparse.to_dense();
        let dense = Stream::Dense(values.clone());
        let mut bounds: Vec<(u64, bool)> =
            cuts.into_iter().map(|(part, dense)| ((values.len() as f64 * part) as u64, dense)).collect();
        bounds.extend([(0, false), (values.len() as u64, true)]);
        bounds.sort_unstable();
        let parts = bounds.windows(2).map(|pair| {
            let form = if pair[0].1 { &dense } else { &sparse };
            form.slice(pair[0].0..pair[1].0)
        });
        let whole = Stream::concat(parts.collect()).unwrap();
        prop_assert_eq!(whole.dim(), values.len() as u64);
        assert_same(&whole.into_dense(), &values)
    });
}

fn concatenating_sparse_parts_goes_dense_exactly_at_the_delta<T: Sample>(runner: &mut TestRunner) {
    check(runner, sparse_vecs::<T>(0..=3, value), |vecs| {
        let dim: u64 = vecs.iter().map(SparseVec::dim).sum();
        let entries: usize = vecs.iter().map(SparseVec::nnz).sum();
        let parts: Vec<Stream<T>> = vecs.iter().cloned().map(Stream::from).collect();
        match Stream::concat(parts) {
            Err(error) => prop_assert_eq!(error, Error::DimensionTooLarge { dim }),
            Ok(Stream::Sparse(vec)) => {
                prop_assert!(!dense_is_shorter::<T>(entries as u64, dim));
                assert_same_vec(&vec, &SparseVec::concat(&vecs).unwrap())?;
            }
            Ok(Stream::Dense(values)) => {
                prop_assert!(dense_is_shorter::<T>(entries as u64, dim));
                assert_same(&values, &SparseVec::concat(&vecs).unwrap().to_dense())?;
            }
        }
        Ok(())
    });
}

fn conversions_keep_the_values<T: Sample>(runner: &mut TestRunner) {
    check(runner, dense::<T>(), |values| {
        let sparse = SparseVec::from_dense(&values).unwrap();
        let stream = Stream::from(sparse.clone());
        prop_assert_eq!((stream.dim(), stream.nnz()), (values.len() as u64, sparse.nnz()));
        assert_same(&stream.to_dense(), &sparse.to_dense())?;
        assert_same(&stream.clone().into_dense(), &sparse.to_dense())?;
        assert_same_vec(&stream.into_sparse().unwrap(), &sparse)?;
        let stream = Stream::Dense(values.clone());
        prop_assert_eq!((stream.dim(), stream.nnz()), (values.len() as u64, values.len()));
        assert_same(&stream.to_dense(), &values)?;
        assert_same_vec(&stream.into_sparse().unwrap(), &sparse)
    });
}

#[test]
fn the_delta_does_not_overflow_at_the_largest_dimension() {
    assert!(!dense_is_shorter::<f64>(1, 1 << 32));
    assert!(dense_is_shorter::<f64>(u64::MAX, u64::MAX));
}

#[test]
fn streams_of_other_dimensions_are_refused() {
    let forms = |dim: usize| [Stream::Dense(vec![1.0_f32; dim]), first(dim as u64, 1)];
    for left in forms(4) {
        for right in forms(5) {
            assert_eq!(left.clone().merge(right), Err(Error::DimensionMismatch { left: 4, right: 5 }));
        }
    }
}

#[test]
#[should_panic(expected = "is not within 0..3")]
fn a_slice_beyond_a_dense_stream_panics_as_slices_do() {
    let _ = Stream::Dense(vec![0_i32; 3]).slice(2..4);
}
