//! After an error everything is as before the call.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sparse_sgd::ErrorKind;

use super::*;

/// A worker after three steps, once all ranks are there: an abort overtakes messages, and would end the
/// third step of a rank that is late.
async fn warmed_up(transport: LocalTransport, config: Config) -> Worker {
    let mut worker = Worker::new(transport, config);
    for step in 0..3 {
        let gradient = gradient(worker.rank(), step, ENTRIES);
        worker.step(&gradient, 0.1).await.unwrap();
    }
    worker.everyone().await;
    worker
}

#[test]
fn a_rank_with_another_shape_changes_nothing_on_any_rank() {
    for method in methods() {
        run(4, async |transport| {
            let mut worker = warmed_up(transport, rich(method.clone())).await;
            let before = worker.bits();
            let gradient = gradient(worker.rank(), 3, ENTRIES);
            // Rank 2 was restarted with a model that has one entry more.
            let error = if worker.rank() == 2 {
                let communicator = worker.optimizer.communicator().clone();
                let mut other = Optimizer::new(communicator, worker.optimizer.config().clone()).unwrap();
                let (mut values, gradient) = ([0.0; ENTRIES + 1], [1.0; ENTRIES + 1]);
                let parameter = Parameter { name: "w", values: &mut values, gradient: &gradient };
                let error = other.step(&mut [parameter], 0.1).await.unwrap_err();
                assert_eq!(values, [0.0; ENTRIES + 1]);
                assert_eq!((other.steps(), other.state()), (0, OptimizerState::default()));
                error
            } else {
                worker.step(&gradient, 0.1).await.unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::Collective, "{error}");
            assert_eq!(worker.bits(), before, "{method:?}");
        });
    }
}

#[test]
fn a_rank_that_leaves_changes_nothing_on_the_others() {
    for method in methods() {
        run(4, async |transport| {
            let mut worker = warmed_up(transport, rich(method.clone())).await;
            if worker.rank() == 2 {
                return;
            }
            let before = worker.bits();
            let gradient = gradient(worker.rank(), 3, ENTRIES);
            let error = worker.step(&gradient, 0.1).await.unwrap_err();
            assert_eq!((error.kind(), error.peer()), (ErrorKind::Collective, Some(transport::Rank(2))));
            assert_eq!(worker.bits(), before, "{method:?}");
        });
    }
}

#[test]
fn a_call_that_is_refused_changes_nothing_and_the_next_one_works() {
    for method in methods() {
        let refused_then_not = |refuse: bool| {
            run(3, async |transport| {
                let mut worker = warmed_up(transport, rich(method.clone())).await;
                let gradient = gradient(worker.rank(), 3, ENTRIES);
                let before = worker.bits();
                if refuse {
                    let mut kinds = vec![worker.step(&gradient, f32::NAN).await.unwrap_err().kind()];
                    let mut wrong = parameters(&mut worker.values, &gradient);
                    wrong[3].gradient = &gradient[..1];
                    kinds.push(worker.optimizer.step(&mut wrong, 0.1).await.unwrap_err().kind());
                    let mut wrong = parameters(&mut worker.values, &gradient);
                    wrong[0].name = "renamed";
                    kinds.push(worker.optimizer.step(&mut wrong, 0.1).await.unwrap_err().kind());
                    let mut wrong = parameters(&mut worker.values, &gradient);
                    wrong.pop();
                    kinds.push(worker.optimizer.step(&mut wrong, 0.1).await.unwrap_err().kind());
                    assert_eq!(
                        kinds,
                        [
                            ErrorKind::Setting,
                            ErrorKind::GradientLength,
                            ErrorKind::ParameterChanged,
                            ErrorKind::ParameterCount
                        ]
                    );
                    assert_eq!(worker.bits(), before);
                }
                worker.step(&gradient, 0.1).await.unwrap();
                worker.bits()
            })
        };
        assert_eq!(refused_then_not(true), refused_then_not(false));
    }
}

#[test]
fn a_step_that_is_dropped_changes_nothing() {
    for method in methods() {
        run(2, async |transport| {
            let mut worker = warmed_up(transport, rich(method.clone())).await;
            let before = worker.bits();
            if worker.rank() == 0 {
                // The other rank stays but does not take part: one poll leaves the step in the middle.
                let gradient = gradient(0, 3, ENTRIES);
                let poll = pin!(worker.step(&gradient, 0.1)).poll(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(poll, Poll::Pending));
            }
            worker.everyone().await;
            assert_eq!(worker.bits(), before);
        });
    }
}

#[test]
fn a_first_step_that_fails_fixes_nothing() {
    run(1, async |transport| {
        let mut worker = Worker::new(transport, rich(Method::Gtopk(GtopkAlgorithm::Tree)));
        worker.step(&[1.0; ENTRIES], f32::INFINITY).await.unwrap_err();
        let (mut values, gradient) = ([0.0; 2], [1.0; 2]);
        let wrong = Parameter { name: "other", values: &mut values, gradient: &gradient[..1] };
        worker.optimizer.step(&mut [wrong], 0.1).await.unwrap_err();
        let other = Parameter { name: "other", values: &mut values, gradient: &gradient };
        worker.optimizer.step(&mut [other], 0.1).await.unwrap();
        let error = worker.step(&[1.0; ENTRIES], 0.1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ParameterChanged);
    });
}
