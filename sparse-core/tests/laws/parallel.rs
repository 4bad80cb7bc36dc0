use proptest::prop_assert_eq;
use proptest::test_runner::TestRunner;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use sparse_core::{SparseVec, TopK, top_k, top_k_into_parallel};

use crate::samples::{Sample, assert_same_bits, check, long, long_vectors, runner_of_few};

crate::for_each_type!(any_number_of_threads_selects_the_same, any_number_of_threads_sees_the_same);

fn pools() -> [ThreadPool; 4] {
    [1, 2, 3, 8].map(|threads| ThreadPoolBuilder::new().num_threads(threads).build().unwrap())
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
