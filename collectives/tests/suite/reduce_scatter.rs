//! Reduce-scatter: the ranges tile the sum, on every world; and errors on every rank.

use std::time::Duration;

use collectives::{Communicator, Error, ErrorKind, Options};
use half::{bf16, f16};
use sparse_core::{DType, Element, SparseVec, dense_is_shorter};
use testkit::run_world;
use testkit::support::{Shape, world};
use transport::{AnyTransport, Rank, Transport};

use crate::common::dims;
use crate::worlds::{in_virtual_time, local_world};

fn communicator(transport: AnyTransport) -> Communicator<AnyTransport> {
    Communicator::with_options(transport, Options::default().deadline(Duration::from_secs(20)))
}

/// Either reduce-scatter, with the result as dense values.
async fn part<E: Element>(
    communicator: &Communicator<impl Transport>,
    input: &SparseVec<E>,
    dense: bool,
) -> Result<Vec<E>, Error> {
    if dense {
        let range = communicator.range(input.dim());
        let mut output = vec![E::from_f32(77.0); (range.end - range.start) as usize];
        communicator.reduce_scatter_dense(&input.to_dense(), &mut output).await?;
        return Ok(output);
    }
    let sum = communicator.reduce_scatter(input).await?;
    let stays_sparse = !dense_is_shorter::<E>(sum.nnz() as u64, sum.dim());
    assert!(sum.is_dense() || stays_sparse);
    Ok(sum.into_dense())
}

/// Half a unit in the last place of 1.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::EPSILON) / 2.0,
        DType::F64 => f64::EPSILON / 2.0,
        DType::F16 => f16::EPSILON.to_f64() / 2.0,
        DType::Bf16 => bf16::EPSILON.to_f64() / 2.0,
        DType::I32 | DType::I64 => 0.0,
    }
}

fn check<E: Element>() {
    for ranks in 1..=9 {
        let worlds: Vec<(Shape, Vec<SparseVec<E>>)> = dims(ranks)
            .into_iter()
            .flat_map(|dim| Shape::ALL.map(|shape| (shape, world(shape, ranks, dim, dim + 1))))
            .collect();
        let parts = run_world(local_world(ranks), |transport| {
            let worlds = &worlds;
            async move {
                let communicator = communicator(transport);
                let mut parts = Vec::new();
                for (_, inputs) in worlds {
                    let input = &inputs[communicator.rank().index()];
                    for dense in [false, true] {
                        parts.push(part(&communicator, input, dense).await.unwrap());
                    }
                }
                parts
            }
        });
        for (case, (shape, inputs)) in worlds.iter().enumerate() {
            let dim = inputs[0].dim() as usize;
            let (mut exact, mut magnitude) = (vec![0.0; dim], vec![0.0; dim]);
            for (at, value) in inputs.iter().flat_map(SparseVec::iter) {
                exact[at as usize] += value.to_f64();
                magnitude[at as usize] += value.to_f64().abs();
            }
            for dense in [false, true] {
                let of_rank = |rank: usize| &parts[rank][2 * case + usize::from(dense)];
                let name = format!("P = {ranks}, N = {dim}, {shape:?}, {}, dense: {dense}", E::DTYPE);
                for rank in 0..ranks {
                    assert_eq!(
                        of_rank(rank).len(),
                        dim * (rank + 1) / ranks - dim * rank / ranks,
                        "{name}, rank {rank}"
                    );
                }
                let whole: Vec<E> = (0..ranks).flat_map(|rank| of_rank(rank).clone()).collect();
                for (at, value) in whole.iter().enumerate() {
                    // The sparse sum is rounded once, but the oracle's own sums are rounded too.
                    let bound = ranks as f64 * epsilon(E::DTYPE) * magnitude[at];
                    let error = (value.to_f64() - exact[at]).abs();
                    assert!(error <= bound, "{name}: {value:?} at {at} where {} belongs", exact[at]);
                }
            }
        }
    }
}

#[test]
fn the_ranges_tile_the_sum_of_floats() {
    check::<f32>();
    check::<f64>();
}

#[test]
fn the_ranges_tile_the_sum_of_halves() {
    check::<f16>();
    check::<bf16>();
}

#[test]
fn the_ranges_tile_the_sum_of_integers() {
    check::<i32>();
    check::<i64>();
}

#[test]
fn a_sparse_range_has_the_bits_of_a_reduction_in_rank_order() {
    for ranks in 1..=9 {
        let inputs: &Vec<SparseVec<f32>> = &world(Shape::Skewed, ranks, 500, 8);
        let sum = sparse_core::reduce(inputs).unwrap();
        let sum = &sum;
        run_world(local_world(ranks), |transport| async move {
            let communicator = communicator(transport);
            let found = communicator.reduce_scatter(&inputs[communicator.rank().index()]).await.unwrap();
            assert_eq!(found.into_sparse().unwrap(), sum.slice(communicator.range(500)));
        });
    }
}

fn ones<E: Element>(dim: u64) -> SparseVec<E> {
    SparseVec::new(dim, vec![0], vec![E::from_f32(1.0)]).unwrap()
}

#[test]
fn another_dimension_dtype_or_operation_is_an_error_on_every_rank() {
    for ranks in 2..=9 {
        for odd in 0..ranks {
            for dense in [false, true] {
                for fault in 0..3 {
                    let errors = run_world(local_world(ranks), |transport| async move {
                        let communicator = communicator(transport);
                        let is_odd = communicator.rank().index() == odd;
                        let result = match (fault, is_odd) {
                            (0, true) => part(&communicator, &ones::<f32>(101), dense).await.map(drop),
                            (1, true) => part(&communicator, &ones::<i32>(100), dense).await.map(drop),
                            (2, true) => part(&communicator, &ones::<f32>(100), !dense).await.map(drop),
                            _ => part(&communicator, &ones::<f32>(100), dense).await.map(drop),
                        };
                        result.unwrap_err()
                    });
                    for error in errors {
                        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
                        assert!(error.to_string().contains(&format!("rank {odd}")), "{error}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_lost_rank_is_named_on_every_other() {
    for ranks in 2..=9 {
        for lost in 0..ranks {
            for dense in [false, true] {
                run_world(testkit::local_world(ranks), |transport| async move {
                    if transport.rank().index() == lost {
                        transport.kill(Rank::from_index(lost));
                        return;
                    }
                    let error = part(&communicator(AnyTransport::new(transport)), &ones::<f32>(100), dense)
                        .await
                        .unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
                    assert!(error.to_string().contains(&format!("rank {lost}")), "{error}");
                });
            }
        }
    }
}

#[test]
fn a_silent_rank_runs_into_the_deadline_of_the_others() {
    for ranks in 2..=4 {
        for dense in [false, true] {
            let of_rank = |transport: AnyTransport| async move {
                let options = Options::default().deadline(Duration::from_millis(60));
                let communicator = Communicator::with_options(transport, options);
                if communicator.rank() == Rank(1) {
                    communicator.transport().sleep(Duration::from_millis(200)).await;
                    return communicator.barrier().await.unwrap_err();
                }
                part(&communicator, &ones::<f32>(10), dense).await.unwrap_err()
            };
            for error in in_virtual_time(ranks, |world| run_world(world, of_rank)) {
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            }
        }
    }
}

#[test]
fn an_overflow_is_an_error_on_every_rank() {
    for ranks in 2..=9 {
        for dense in [false, true] {
            let errors = run_world(local_world(ranks), |transport| async move {
                let communicator = communicator(transport);
                let value = if communicator.rank().0 < 2 { i32::MAX } else { 1 };
                let input = SparseVec::new(50, vec![20], vec![value]).unwrap();
                // A rank whose range is sound may have ended: then the next call tells.
                match part(&communicator, &input, dense).await {
                    Ok(_) => communicator.barrier().await.unwrap_err(),
                    Err(error) => error,
                }
            });
            for error in errors {
                let cause = if let Error::Poisoned { cause } = &error { cause.kind() } else { error.kind() };
                assert_eq!(cause, ErrorKind::Value, "{error}");
                assert!(error.to_string().contains("at index 20 overflows"), "{error}");
            }
        }
    }
}

#[test]
fn an_output_of_another_length_is_refused() {
    run_world(local_world(3), |transport| async move {
        let communicator = communicator(transport);
        let refused = communicator.reduce_scatter_dense(&[1.0_f32; 10], &mut [0.0; 10]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert_eq!(communicator.traffic(), collectives::Traffic::default());
        communicator.barrier().await.unwrap();
    });
}
