//! Gradients that are sparse by nature.

use sparse_core::SparseVec;
use sparse_sgd::ErrorKind;

use super::*;

/// A few entries in places that depend on rank and step; none on rank 1.
fn sparse_gradient(rank: u64, step: u64, dim: usize) -> SparseVec<f32> {
    let values = gradient(rank, step, dim);
    let (indices, values) = (0..)
        .zip(values)
        .filter(|(i, _)| rank != 1 && hash(rank, step, 77 + u64::from(*i)).is_multiple_of(16))
        .unzip();
    SparseVec::new(dim as u64, indices, values).unwrap()
}

fn train(method: &Method, size: usize, dim: usize) -> Vec<u32> {
    let replicas = run(size, async |transport| {
        let config = rich(method.clone());
        let mut optimizer = Optimizer::new(Communicator::new(transport), config).unwrap();
        let rank = u64::from(optimizer.communicator().rank().0);
        let mut values = gradient(99, 0, dim);
        for step in 0..6 {
            let gradient = sparse_gradient(rank, step, dim);
            let report = optimizer.step_sparse("w", &mut values, &gradient, 0.3).await.unwrap();
            assert_eq!((report.k, report.nnz_selected), (gradient.nnz(), gradient.nnz()));
        }
        assert_eq!((optimizer.steps(), optimizer.residual().len()), (0, 0));
        assert_eq!(optimizer.state().sparse_steps, 6);
        bits(&values)
    });
    all_equal(&replicas);
    replicas[0].clone()
}

#[test]
fn sparse_and_dense_end_with_the_same_bits() {
    for size in 1..=9 {
        for dim in [0, 1, 8, 300] {
            assert_eq!(
                train(&Method::Sparse(SparseAlgorithm::SsarRecursiveDoubling), size, dim),
                train(&Method::Dense(DenseAlgorithm::RecursiveDoubling), size, dim),
                "dimension {dim} on {size}"
            );
        }
    }
}

#[test]
fn every_method_sums_exactly_and_only_touches_the_union() {
    let (size, dim) = (4, 300);
    let mut oracle: Vec<f64> = gradient(99, 0, dim).into_iter().map(f64::from).collect();
    let mut touched = vec![false; dim];
    for step in 0..6 {
        for rank in 0..size {
            for (index, value) in sparse_gradient(rank, step, dim).iter() {
                oracle[index as usize] -= f64::from(0.3_f32) * f64::from(value) / size as f64;
                touched[index as usize] = true;
            }
        }
    }
    assert!(touched.contains(&true) && touched.contains(&false));
    let start = bits(&gradient(99, 0, dim));
    for method in methods().into_iter().filter(|m| !matches!(m, Method::Gtopk(_))) {
        let end = train(&method, size as usize, dim);
        let values: Vec<f32> = end.iter().map(|b| f32::from_bits(*b)).collect();
        assert_close(&values, &oracle, &format!("{method:?}"));
        assert!((0..dim).all(|i| touched[i] || end[i] == start[i]), "{method:?}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let gradient = SparseVec::new(3, vec![1], vec![1.0]).unwrap();
    for (method, len, kind) in [
        (Method::Gtopk(GtopkAlgorithm::Tree), 3, ErrorKind::Unsupported),
        (Method::Sparse(SparseAlgorithm::TopkAllgather), 4, ErrorKind::GradientLength),
        (Method::Dense(DenseAlgorithm::Ring), 2, ErrorKind::GradientLength),
    ] {
        run(2, async |transport| {
            let config = Config::new(method.clone(), constant(0.1));
            let mut optimizer = Optimizer::new(Communicator::new(transport), config).unwrap();
            let mut values = vec![1.0; len];
            let error = optimizer.step_sparse("embedding", &mut values, &gradient, 0.3).await.unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(kind == ErrorKind::Unsupported || error.to_string().contains("`embedding`"), "{error}");
            assert_eq!(values, vec![1.0; len]);
            assert_eq!(optimizer.state().sparse_steps, 0);
            assert_eq!(optimizer.communicator().traffic().bytes_sent, 0);
        });
    }
}
