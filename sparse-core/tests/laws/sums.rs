use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sparse_core::{
    Accumulator, DType, Error, Memory, SparseVec, Stream, add_assign, clear, merge, merge_in, reduce,
    reduce_views, reduce_views_in, scatter_add,
};
use std::collections::BTreeMap;

use crate::samples::{
    Sample, assert_same, assert_same_vec, check, code, dense, numbers, small_value, sparse_vecs, value,
    values,
};

crate::for_each_type!(
    merge_equals_the_sum_of_each_index,
    merge_is_commutative_up_to_operand_order,
    memory_that_was_used_changes_no_result,
    long_vectors_merge_as_their_entries_do,
    reduce_equals_the_sequential_sum,
    reduce_of_one_is_identity,
    reduce_equals_merging_when_sums_are_exact,
    accumulating_equals_the_sequential_sum,
    scattering_equals_dense_addition,
    the_dense_form_is_the_sum_with_zeros,
    clearing_leaves_the_others_alone,
    failed_sums_change_nothing,
    operands_of_other_dimensions_are_refused,
);

/// The sum of each index that occurs, or the smallest index whose sum overflows.
fn sum_by_index<T: Sample>(parts: &[SparseVec<T>]) -> Result<SparseVec<T>, Error> {
    let mut groups = BTreeMap::<u32, Vec<T>>::new();
    for (index, value) in parts.iter().flat_map(SparseVec::iter) {
        groups.entry(index).or_default().push(value);
    }
    let overflow = |index| Error::Overflow { index: u64::from(index), dtype: T::DTYPE };
    let sums = groups.iter().map(|(&index, values)| T::sum(values).ok_or_else(|| overflow(index)));
    let sums = sums.collect::<Result<Vec<_>, _>>()?;
    Ok(SparseVec::new(parts[0].dim(), groups.into_keys().collect(), sums).unwrap())
}

fn assert_same_result<T: Sample>(
    found: Result<SparseVec<T>, Error>,
    expected: Result<SparseVec<T>, Error>,
) -> Result<(), TestCaseError> {
    match (found, expected) {
        (Ok(found), Ok(expected)) => assert_same_vec(&found, &expected),
        (found, expected) => {
            prop_assert_eq!(found.err(), expected.err());
            Ok(())
        }
    }
}

fn merge_equals_the_sum_of_each_index<T: Sample>(runner: &mut TestRunner) {
    check(runner, sparse_vecs::<T>(2..=2, value), |vecs| {
        assert_same_result(merge(&vecs[0], &vecs[1]), sum_by_index(&vecs))
    });
}

/// Long enough for the blocks that a merge goes by, of 4096 entries, two at a time.
fn long_vectors_merge_as_their_entries_do<T: Sample>(runner: &mut TestRunner) {
    let len = || prop_oneof![0_usize..3, 4090_usize..4100, 8186_usize..8199, 0_usize..20_000];
    let input = (len(), len(), 0_u32..6, code(), any::<bool>());
    let mut runner = TestRunner::new(ProptestConfig { cases: 24, ..runner.config().clone() });
    check(&mut runner, input, |(left, right, style, seed, loud)| {
        let skip = |one_in: u64| {
            let mut state = numbers(seed ^ one_in);
            move |at: &u32| *at > 0 && !state.next().unwrap().is_multiple_of(one_in)
        };
        let (left, right): (Vec<u32>, Vec<u32>) = match style {
            // Identical, one inside the other, mixed, in runs, apart, and many between two neighbours.
            0 => ((0..left as u32).collect(), (0..left as u32).collect()),
            1 => ((0..left as u32).collect(), (0..left as u32).filter(skip(3)).collect()),
            2 => ((0..).filter(skip(2)).take(left).collect(), (0..).filter(skip(3)).take(right).collect()),
            3 => {
                let runs = |from: u32| (from..).filter(|at| at / 70 % 2 == 0).map(|at| at * 3);
                (runs(0).take(left).collect(), runs(50).take(right).collect())
            }
            4 => ((0..left as u32).collect(), (0..right as u32).map(|at| at + left as u32).collect()),
            _ => (
                (0..left as u32).map(|at| at * 60_000).collect(),
                (0..right as u32).map(|at| at * 3).collect(),
            ),
        };
        // Half the time no sum overflows, so that all entries are looked at.
        let value = if loud { value::<T> } else { small_value };
        let vecs = [(left, 1), (right, 2)].map(|(indices, side)| {
            let values = numbers(seed ^ side).map(value).take(indices.len()).collect();
            SparseVec::new(1 << 32, indices, values).unwrap()
        });
        assert_same_result(merge(&vecs[0], &vecs[1]), sum_by_index(&vecs))
    });
}

fn memory_that_was_used_changes_no_result<T: Sample>(runner: &mut TestRunner) {
    // Long enough for their memory to be kept.
    let lengths = (4096_usize..12_000, 4096_usize..12_000);
    check(runner, (any::<u64>(), lengths), |(seed, (left, right))| {
        let memory = Memory::new();
        let dirty: Vec<_> =
            (0..4).map(|_| (memory.any(24_000, 7), memory.any(24_000, T::small(3)))).collect();
        dirty.into_iter().for_each(|(indices, values)| {
            memory.put(indices);
            memory.put(values);
        });
        let [left, right] = [(left, 1), (right, 2)].map(|(entries, side)| {
            let gaps = numbers(seed ^ side).map(|number| 1 + number as u32 % 5);
            let indices = gaps.scan(0, |at, gap| Some(std::mem::replace(at, *at + gap))).take(entries);
            let values = numbers(seed ^ side ^ 4).map(small_value).take(entries);
            SparseVec::<T>::new(1 << 16, indices.collect(), values.collect()).unwrap()
        });
        let merged = merge_in(&left, &right, &memory);
        assert_same_result(merged.clone(), merge(&left, &right))?;
        merged.into_iter().for_each(|sum| memory.put(sum));
        let views = [left.view(), right.view()];
        assert_same_result(reduce_views_in(&views, &memory), reduce_views(&views))?;
        let part = left.view_of(100..40_000);
        assert_same_result(Ok(part.to_vec_in(&memory)), Ok(part.to_vec()))?;
        let (in_used, in_new) = (left.clone().top_k_in(3000, &memory), left.clone().top_k(3000));
        assert_same_result(Ok(in_used.0), Ok(in_new.0))?;
        assert_same_result(Ok(in_used.1), Ok(in_new.1))?;
        let dense = left.to_dense_in(&memory);
        assert_same_result(
            SparseVec::from_dense_in(&dense, &memory),
            SparseVec::from_dense(&left.to_dense()),
        )?;
        memory.put(dense);
        let parts = [left.clone(), right.clone()];
        assert_same_result(SparseVec::concat_in(&parts, &memory), SparseVec::concat(&parts))?;
        let streams = || [&left, &right].map(|vec| Stream::Sparse(vec.clone()));
        let ([a, b], [c, d]) = (streams(), streams());
        assert_same_result(
            a.merge_in(b, &memory).and_then(Stream::into_sparse),
            c.merge(d).and_then(Stream::into_sparse),
        )?;
        let mut sums = [Accumulator::new_in(1 << 16, &memory), Accumulator::new(1 << 16)];
        for sum in &mut sums {
            sum.add_sparse(&left).unwrap();
            sum.add_sparse(&right).unwrap();
        }
        let [used, new] = sums;
        let found = used.finish_in(&memory).and_then(|sum| SparseVec::from_dense(&sum));
        assert_same_result(found, new.finish().and_then(|sum| SparseVec::from_dense(&sum)))
    });
}

fn merge_is_commutative_up_to_operand_order<T: Sample>(runner: &mut TestRunner) {
    check(runner, sparse_vecs::<T>(2..=2, value), |vecs| {
        assert_same_result(merge(&vecs[0], &vecs[1]), merge(&vecs[1], &vecs[0]))
    });
}

fn reduce_equals_the_sequential_sum<T: Sample>(runner: &mut TestRunner) {
    check(runner, sparse_vecs::<T>(1..=5, value), |vecs| {
        assert_same_result(reduce(&vecs), sum_by_index(&vecs))
    });
}

fn reduce_of_one_is_identity<T: Sample>(runner: &mut TestRunner) {
    check(runner, sparse_vecs::<T>(1..=1, value), |vecs| assert_same_vec(&reduce(&vecs).unwrap(), &vecs[0]));
}

fn reduce_equals_merging_when_sums_are_exact<T: Sample>(runner: &mut TestRunner) {
    check(runner, sparse_vecs::<T>(1..=5, small_value), |vecs| {
        let empty = SparseVec::empty(vecs[0].dim()).unwrap();
        let merged = vecs.iter().try_fold(empty, |sum, vec| merge(&sum, vec)).unwrap();
        assert_same_vec(&reduce(&vecs).unwrap(), &merged)
    });
}

/// A few dense vectors of one length.
fn dense_vecs<T: Sample>() -> BoxedStrategy<Vec<Vec<T>>> {
    let vecs = (values::<T>(4..280), 1_usize..5);
    vecs.prop_map(|(values, count)| {
        values.chunks_exact(values.len() / count).take(count).map(<[T]>::to_vec).collect()
    })
    .boxed()
}

fn accumulating_equals_the_sequential_sum<T: Sample>(runner: &mut TestRunner) {
    check(runner, (dense_vecs::<T>(), any::<[bool; 5]>()), |(vecs, as_sparse)| {
        let len = vecs[0].len();
        let mut sum = Accumulator::new(len);
        prop_assert_eq!((sum.len(), sum.is_empty()), (len, len == 0));
        for (values, as_sparse) in vecs.iter().zip(as_sparse) {
            if as_sparse {
                sum.add_sparse(&SparseVec::from_dense(values).unwrap()).unwrap();
            } else {
                sum.add_dense(values).unwrap();
            }
        }
        let column = |at: usize| vecs.iter().map(move |values| values[at]);
        let sums = (0..len).map(|at| T::sum(&[T::ZERO].into_iter().chain(column(at)).collect::<Vec<_>>()));
        match sums.clone().collect::<Option<Vec<T>>>() {
            Some(expected) => assert_same(&sum.finish().unwrap(), &expected),
            None => {
                let index = sums.clone().position(|sum| sum.is_none()).unwrap() as u64;
                prop_assert_eq!(sum.finish(), Err(Error::Overflow { index, dtype: T::DTYPE }));
                Ok(())
            }
        }
    });
}

fn scattering_equals_dense_addition<T: Sample>(runner: &mut TestRunner) {
    check(runner, dense_vecs::<T>(), |vecs| {
        let (first, last) = (&vecs[0], &vecs[vecs.len() - 1]);
        let (mut scattered, mut added) = (first.clone(), first.clone());
        let scattered_to = scatter_add(&mut scattered, &SparseVec::from_dense(last).unwrap());
        prop_assert_eq!(scattered_to, add_assign(&mut added, last));
        for ((&found, &expected), &right) in scattered.iter().zip(&added).zip(last) {
            // Adding a zero that is not an entry may make 0.0 of -0.0.
            prop_assert!(found.same(expected) || (right.is_zero() && found == expected));
        }
        Ok(())
    });
}

fn the_dense_form_is_the_sum_with_zeros<T: Sample>(runner: &mut TestRunner) {
    check(runner, values::<T>(0..70), |values| {
        // All values are entries, zeros of both signs among them.
        let indices = (0..values.len() as u32).collect();
        let vec = SparseVec::new(values.len() as u64, indices, values.clone()).unwrap();
        let mut sum = vec![T::ZERO; values.len()];
        add_assign(&mut sum, &values).unwrap();
        assert_same(&vec.to_dense(), &sum)
    });
}

fn clearing_leaves_the_others_alone<T: Sample>(runner: &mut TestRunner) {
    check(runner, (values::<T>(0..200), any::<[bool; 7]>()), |(values, which)| {
        let indices: Vec<u32> = (0..values.len() as u32).filter(|at| which[*at as usize % 7]).collect();
        let entries = SparseVec::new(values.len() as u64, indices.clone(), vec![T::ZERO; indices.len()]);
        let mut cleared = values.clone();
        clear(&mut cleared, &entries.unwrap()).unwrap();
        let expected = (0..).zip(&values).map(|(at, &v)| if which[at % 7] { T::ZERO } else { v });
        assert_same(&cleared, &expected.collect::<Vec<_>>())
    });
}

fn failed_sums_change_nothing<T: Sample>(runner: &mut TestRunner) {
    check(runner, dense_vecs::<T>(), |vecs| {
        let (first, last) = (&vecs[0], &vecs[vecs.len() - 1]);
        let expected = first.iter().zip(last).position(|(&a, &b)| T::sum(&[a, b]).is_none());
        let expected = expected.map(|at| Error::Overflow { index: at as u64, dtype: T::DTYPE });
        let mut sum = first.clone();
        let result = add_assign(&mut sum, last);
        prop_assert_eq!(result.clone().err(), expected.clone());
        if result.is_err() {
            assert_same(&sum, first)?;
            let vec = SparseVec::from_dense(last).unwrap();
            prop_assert_eq!(scatter_add(&mut sum, &vec).err(), expected);
            assert_same(&sum, first)?;
        }
        Ok(())
    });
}

fn operands_of_other_dimensions_are_refused<T: Sample>(runner: &mut TestRunner) {
    check(runner, (dense::<T>(), 1_u64..9), |(mut values, more)| {
        let before = values.clone();
        let left = values.len() as u64;
        let refused = Err(Error::DimensionMismatch { left, right: left + more });
        let other = SparseVec::<T>::empty(left + more).unwrap();
        let vec = SparseVec::from_dense(&values).unwrap();
        prop_assert_eq!(merge(&vec, &other).map(|_| ()), refused.clone());
        prop_assert_eq!(reduce(&[vec, other.clone()]).map(|_| ()), refused.clone());
        prop_assert_eq!(scatter_add(&mut values, &other), refused.clone());
        prop_assert_eq!(clear(&mut values, &other), refused.clone());
        prop_assert_eq!(add_assign(&mut values, &other.to_dense()), refused.clone());
        let mut sum = Accumulator::<T>::new(values.len());
        prop_assert_eq!(sum.add_sparse(&other), refused.clone());
        prop_assert_eq!(sum.add_dense(&other.to_dense()), refused);
        assert_same(&values, &before)
    });
}

#[test]
fn entries_that_cancel_stay_as_explicit_zeros() {
    let vec = |value| SparseVec::new(4, vec![2], vec![value]).unwrap();
    let sum = merge(&vec(1.5_f64), &vec(-1.5)).unwrap();
    assert_eq!((sum.indices(), sum.values()), (&[2][..], &[0.0][..]));
    assert_eq!(reduce(&[vec(1.5), vec(-1.5)]).unwrap(), sum);
}

#[test]
fn a_sum_of_nothing_has_no_dimension() {
    assert_eq!(reduce::<f32>(&[]), Err(Error::NothingToSum));
}

#[test]
fn halves_are_rounded_once() {
    // 256 + 1 + 1: each addition alone would be rounded back to 256 in bf16.
    let vec = |value: f32| SparseVec::new(1, vec![0], vec![half::bf16::from_f32(value)]).unwrap();
    let sum = reduce(&[vec(256.0), vec(1.0), vec(1.0)]).unwrap();
    assert_eq!(sum.values(), [half::bf16::from_f32(258.0)]);
}

#[test]
fn a_passing_overflow_does_not_matter_to_a_sum_of_many() {
    let vec = |value: i32| SparseVec::new(1, vec![0], vec![value]).unwrap();
    assert_eq!(reduce(&[vec(i32::MAX), vec(1), vec(-2)]).unwrap().values(), [i32::MAX - 1]);
}

/// Long enough for the chains and blocks in which a merge goes on.
#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn long_vectors_are_merged_entry_by_entry() {
    let vec = |from: u32, step: u32, len: u32| {
        // Steps vary, so that neither vector leads for long.
        let indices: Vec<u32> = (0..len).map(|i| from + i * step + (i * i) % step).collect();
        let values = indices.iter().map(|&index| index as i32 - 500).collect();
        SparseVec::new(1 << 20, indices, values).unwrap()
    };
    for (left, right) in [
        (vec(0, 3, 1000), vec(1, 3, 1000)),
        (vec(0, 3, 1000), vec(0, 3, 1000)),
        (vec(0, 7, 1000), vec(500, 2, 3000)),
        (vec(0, 1, 129), vec(64, 1, 128)),
        (vec(9000, 5, 700), vec(0, 5, 700)),
        (vec(0, 5, 64), vec(3, 4, 65)),
        (vec(0, 40_000, 20), vec(0, 2, 4000)),
        (vec(0, 2, 0), vec(0, 2, 1000)),
    ] {
        let mut expected: BTreeMap<u32, i32> = left.iter().collect();
        for (index, value) in right.iter() {
            *expected.entry(index).or_default() += value;
        }
        for sum in [merge(&left, &right), merge(&right, &left), reduce(&[left.clone(), right.clone()])] {
            assert_eq!(sum.unwrap().iter().collect::<BTreeMap<_, _>>(), expected);
        }
    }
}

#[test]
fn blocks_that_are_merged_in_turn_hold_each_index_once() {
    let every = |step: u32, len: u32| {
        let indices = (0..len).map(|i| i * step).collect();
        SparseVec::new(1 << 14, indices, (0..len as i32).collect()).unwrap()
    };
    let (left, right) = (every(2, 4200), every(3, 4300));
    let entry = |index: u32| {
        let value = |step: u32, len: u32| {
            (index.is_multiple_of(step) && index / step < len).then_some((index / step) as i32)
        };
        let values = [value(2, 4200), value(3, 4300)];
        values.iter().any(Option::is_some).then(|| (index, values.iter().flatten().sum::<i32>()))
    };
    let (indices, values): (Vec<u32>, Vec<i32>) = (0..1 << 14).filter_map(entry).unzip();
    let sum = merge(&left, &right).unwrap();
    assert_eq!((sum.indices(), sum.values()), (&indices[..], &values[..]));
}

#[test]
fn the_first_overflow_of_a_long_merge_is_named() {
    let indices: Vec<u32> = (0..1000).map(|i| 2 * i).collect();
    let values = |large: &[usize]| {
        (0..1000).map(|i| if large.contains(&i) { i32::MAX } else { 1 }).collect::<Vec<_>>()
    };
    for (large, first) in [(&[3_usize, 700][..], 6), (&[700, 701], 1400), (&[999], 1998), (&[500, 40], 80)] {
        let left = SparseVec::new(2000, indices.clone(), values(large)).unwrap();
        let right = SparseVec::new(2000, indices.clone(), values(&[])).unwrap();
        let expected = Err(Error::Overflow { index: first, dtype: DType::I32 });
        assert_eq!(merge(&left, &right), expected);
        assert_eq!(reduce(&[left.clone(), right.clone()]), expected);
    }
}
