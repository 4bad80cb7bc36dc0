//! Checkpoints.

use sparse_sgd::ErrorKind;

use super::*;

#[test]
fn a_loaded_state_goes_on_as_if_never_interrupted() {
    for method in methods() {
        for momentum in [0.0, 0.9] {
            let config = Config { momentum, ..rich(method.clone()) };
            let run_with = |interrupt: bool| {
                run(3, async |transport| {
                    let mut worker = Worker::new(transport, config.clone());
                    for step in 0..6 {
                        if interrupt && step == 3 {
                            let state = worker.optimizer.state();
                            let communicator = worker.optimizer.communicator().clone();
                            worker.optimizer = Optimizer::new(communicator, config.clone()).unwrap();
                            worker.optimizer.load_state(state).unwrap();
                        }
                        let gradient = gradient(worker.rank(), step, ENTRIES);
                        worker.step(&gradient, 0.1).await.unwrap();
                    }
                    worker.bits()
                })
            };
            assert_eq!(run_with(true), run_with(false), "{config:?}");
        }
    }
}

#[test]
fn a_state_fixes_the_parameters() {
    run(1, async |transport| {
        let mut worker = Worker::new(transport, rich(Method::Gtopk(GtopkAlgorithm::Tree)));
        let state = OptimizerState {
            steps: 5,
            parameters: vec![("w".into(), ENTRIES)],
            residual: vec![1.0; ENTRIES],
            velocity: vec![0.5; ENTRIES],
            ..OptimizerState::default()
        };
        worker.optimizer.load_state(state.clone()).unwrap();
        assert_eq!(worker.optimizer.state(), state);
        assert_eq!(worker.optimizer.residual(), [1.0; ENTRIES]);
        let error = worker.step(&[0.0; ENTRIES], 0.1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ParameterChanged);
        assert_eq!(worker.optimizer.state(), state);
    });
}

#[test]
fn a_state_of_another_configuration_is_refused_and_changes_nothing() {
    let dense = || Method::Dense(DenseAlgorithm::Ring);
    let sparse = || Method::Sparse(SparseAlgorithm::TopkAllgather);
    let states = [dense(), sparse()].map(|method| {
        run(1, async |transport| {
            let mut worker = Worker::new(transport, rich(method.clone()));
            worker.step(&[1.0; ENTRIES], 0.1).await.unwrap();
            worker.optimizer.state()
        })
        .remove(0)
    });
    let without_momentum = || Config { momentum: 0.0, ..rich(sparse()) };
    let [of_dense, of_sparse] = states;
    for (config, wrong) in
        [(rich(dense()), &of_sparse), (rich(sparse()), &of_dense), (without_momentum(), &of_sparse)]
    {
        run(1, async |transport| {
            let mut worker = Worker::new(transport, config.clone());
            worker.step(&[1.0; ENTRIES], 0.1).await.unwrap();
            let before = worker.bits();
            let error = worker.optimizer.load_state(wrong.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::State);
            assert_eq!(worker.bits(), before);
        });
    }
}
