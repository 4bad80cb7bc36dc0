use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sparse_core::{SparseVec, TopK, clear, top_k};

use crate::samples::{Sample, assert_same_bits, check, long, long_vectors, runner_of_few};
use crate::selection::{LEN, shapes, uniform};

crate::for_each_type!(a_vector_of_any_type_is_taken_from);

/// Parts to which a vector is cut: empty ones, and longer than what is looked at together.
fn sizes() -> impl Iterator<Item = usize> {
    (0..).map(|i| i * i % 3000)
}

fn assert_seen<T: Sample>(
    selection: &mut TopK<T>,
    values: &[T],
    k: usize,
    used: &mut SparseVec<T>,
) -> Result<(), TestCaseError> {
    selection.start(values.len(), k);
    let (mut rest, mut sizes) = (values, sizes());
    while !rest.is_empty() {
        let part;
        (part, rest) = rest.split_at(sizes.next().unwrap().min(rest.len()));
        selection.see(part);
    }
    selection.finish_into(values, used).unwrap();
    assert_same_bits(used, &top_k(values, k).unwrap())
}

/// Whatever is computed here, and if `sees` not all is.
fn assert_taken<T: Sample>(
    selection: &mut TopK<T>,
    values: &[T],
    k: usize,
    sees: bool,
    used: &mut SparseVec<T>,
) -> Result<(), TestCaseError> {
    selection.start(values.len(), k);
    let mut left = vec![T::ZERO; values.len()];
    let (mut rest, mut sizes) = ((&mut left[..], values), sizes());
    while !rest.1.is_empty() {
        let size = sizes.next().unwrap().min(rest.1.len());
        let (written, from);
        ((written, rest.0), (from, rest.1)) = (rest.0.split_at_mut(size), rest.1.split_at(size));
        if sees && size % 2 == 1 {
            written.copy_from_slice(from);
            selection.see(written);
        } else {
            let mut computed = 0;
            selection.compute(written, |at, block| {
                assert_eq!(at, computed, "the blocks follow each other");
                computed += block.len();
                block.copy_from_slice(&from[at..computed]);
            });
            prop_assert_eq!(computed, size);
        }
    }
    selection.take_into(&mut left, used).unwrap();
    let (expected, mut others) = (top_k(values, k).unwrap(), values.to_vec());
    assert_same_bits(used, &expected)?;
    clear(&mut others, &expected).unwrap();
    prop_assert!(bytemuck::cast_slice::<T, u8>(&left) == bytemuck::cast_slice::<T, u8>(&others));
    Ok(())
}

fn a_vector_of_any_type_is_taken_from<T: Sample>(runner: &mut TestRunner) {
    if cfg!(miri) {
        return; // takes it too long; see below
    }
    check(&mut runner_of_few(runner), (long_vectors(), any::<bool>()), |((len, vectors, k), sees)| {
        let (mut selection, mut used) = (TopK::new(), SparseVec::default());
        vectors.into_iter().flat_map(|vector| [vector, vector]).try_for_each(|(seed, style)| {
            assert_taken::<T>(&mut selection, &long(len, seed, style), k, sees, &mut used)
        })
    });
}

#[test]
fn from_the_second_step_on_candidates_are_set_to_zero_in_blocks_of_whole_cache_lines() {
    let (values, mut selection) = (&uniform()[..1 << 14], TopK::new());
    for _ in 0..2 {
        assert_taken(&mut selection, values, 20, true, &mut SparseVec::default()).unwrap();
    }
    // A few less do not change that.
    selection.start(values.len(), 15);
    let (mut computed, mut whole) = (vec![0.0; values.len()], 0);
    selection.compute(&mut computed, |at, block| {
        whole += usize::from(block.len() == 64 && block.as_ptr().addr() % 64 == 0);
        block.copy_from_slice(&values[at..][..block.len()]);
    });
    assert!(computed.iter().filter(|value| **value == 0.0).count() >= 15);
    assert!(whole >= values.len() / 64 - 1);
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn a_selection_by_parts_equals_top_k_whatever_the_vector_before_was() {
    let shapes: Vec<_> = shapes().into_iter().filter(|(_, values)| values.len() == LEN).collect();
    for k in [0, 1, 20, 200, LEN / 8, LEN / 2, LEN, LEN + 1] {
        let mut used = SparseVec::default();
        let (mut seen, mut taken, mut mixed) = (TopK::new(), TopK::new(), TopK::new());
        // Each shape twice, so that its own threshold meets it, and that of another.
        for (name, values) in shapes.iter().flat_map(|shape| [shape, shape]) {
            assert_seen(&mut seen, values, k, &mut used)
                .and_then(|()| assert_taken(&mut taken, values, k, false, &mut used))
                .and_then(|()| assert_taken(&mut mixed, values, k, true, &mut used))
                .unwrap_or_else(|error| panic!("{name}, k = {k}: {error}"));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn a_selection_by_parts_begins_anew_with_another_vector() {
    let mut selection = TopK::new();
    for (len, k) in
        [(LEN, 200), (LEN, 150), (LEN, 80), (LEN, 20), (LEN / 2, 20), (0, 20), (LEN, 2000), (LEN, 0)]
    {
        let values = &uniform()[..len];
        for _ in 0..2 {
            selection.start(len, k);
            selection.see(&values[..len / 2]);
            // A step that failed.
            selection.start(len, k);
            selection.see(values);
            assert_eq!(selection.finish(values), top_k(values, k));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn a_vector_larger_than_caches_is_taken_from_as_it_is_written() {
    const LARGE: usize = (9 << 20) / 4;
    let mut state = 1_u64;
    let values: Vec<f32> = (0..LARGE)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 - 1e7
        })
        .collect();
    let (mut selection, mut used) = (TopK::new(), SparseVec::default());
    for k in [2000, 2000, 2001, 2001] {
        selection.start(LARGE, k);
        let mut left = vec![f32::NAN; LARGE];
        let (first, second) = left.split_at_mut(LARGE / 3);
        selection.write(first, |at, block| block.copy_from_slice(&values[at..][..block.len()]));
        let (from, mut doubled) = (&values[LARGE / 3..], vec![0.0; LARGE - LARGE / 3]);
        selection.write_with(second, &mut doubled, |at, block, others| {
            block.copy_from_slice(&from[at..][..block.len()]);
            others.iter_mut().zip(block).for_each(|(other, value)| *other = 2.0 * *value);
        });
        assert!(doubled.iter().zip(from).all(|(doubled, value)| *doubled == 2.0 * value));
        selection.take_into(&mut left, &mut used).unwrap();
        let (expected, mut others) = (top_k(&values, k).unwrap(), values.clone());
        assert_same_bits(&used, &expected).unwrap();
        clear(&mut others, &expected).unwrap();
        assert!(left == others);
    }
}

#[test]
#[should_panic(expected = "take what is to stay out")]
fn what_was_taken_out_is_not_forgotten() {
    let (mut values, mut selection) = (vec![1.0_f32; 9], TopK::new());
    selection.start(9, 1);
    selection.compute(&mut values, |_, _| ());
    let _ = selection.finish(&values);
}
