use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use sparse_core::{SparseVec, TopK, top_k, top_k_into_parallel};

use crate::samples::{Sample, check, code, long};

crate::for_each_type!(any_number_of_threads_selects_the_same, any_number_of_threads_sees_the_same);

fn pools() -> [ThreadPool; 4] {
    [1, 2, 3, 8].map(|threads| ThreadPoolBuilder::new().num_threads(threads).build().unwrap())
}

/// Seed and style of some vectors that take several ranges, with many ties and NaN in some, and a k.
fn long_vectors() -> impl Strategy<Value = (usize, Vec<(u64, u32)>, usize)> {
    let k = prop_oneof![0_usize..3, 3_usize..3000, 0_usize..200_000];
    (0_usize..200_000, proptest::collection::vec((code(), 0_u32..5), 3), k)
}

fn runner_of_few(runner: &TestRunner) -> TestRunner {
    TestRunner::new(ProptestConfig { cases: 8, ..runner.config().clone() })
}

fn assert_same_bits<T: Sample>(found: &SparseVec<T>, expected: &SparseVec<T>) -> Result<(), TestCaseError> {
    prop_assert_eq!((found.dim(), found.indices()), (expected.dim(), expected.indices()));
    prop_assert_eq!(
        bytemuck::cast_slice::<T, u8>(found.values()),
        bytemuck::cast_slice::<T, u8>(expected.values())
    );
    Ok(())
}

fn any_number_of_threads_selects_the_same<T: Sample>(runner: &mut TestRunner) {
    let pools = pools();
    check(&mut runner_of_few(runner), long_vectors(), |(len, vectors, k)| {
        let values: Vec<T> = long(len, vectors[0].0, vectors[0].1);
        let (expected, mut largest) = (top_k(&values, k).unwrap(), SparseVec::default());
        pools.iter().try_for_each(|pool| {
            pool.install(|| top_k_into_parallel(&values, k, &mut largest)).unwrap();
            assert_same_bits(&largest, &expected)
        })
    });
}

fn any_number_of_threads_sees_the_same<T: Sample>(runner: &mut TestRunner) {
    let pools = pools();
    check(&mut runner_of_few(runner), long_vectors(), |(len, vectors, k)| {
        let mut serial = TopK::new();
        let mut parallel = pools.each_ref().map(|_| TopK::new());
        // Each vector twice, so that its own threshold meets it, and that of another.
        for (seed, style) in vectors.into_iter().flat_map(|vector| [vector, vector]) {
            let values: Vec<T> = long(len, seed, style);
            serial.start(len, k);
            values.chunks(1000).for_each(|part| serial.see(part));
            let seen = serial.clone();
            let expected = serial.finish(&values).unwrap();
            assert_same_bits(&expected, &top_k(&values, k).unwrap())?;
            for (pool, selection) in pools.iter().zip(&mut parallel) {
                selection.start(len, k);
                pool.install(|| selection.see_parallel(values.par_chunks(10_000)));
                // All that it knows, in a form that is compared in time.
                if k < 300 {
                    prop_assert_eq!(format!("{seen:?}"), format!("{selection:?}"));
                }
                assert_same_bits(&selection.finish(&values).unwrap(), &expected)?;
            }
        }
        Ok(())
    });
}
