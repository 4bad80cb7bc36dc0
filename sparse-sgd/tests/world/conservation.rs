//! Nothing is lost: what reached the values and what waits in residuals is all that was computed.

use super::*;

const STEPS: u64 = 100;

/// Per entry: the sum of all gradients, and the sum of all updates and residuals. Whole numbers, so exact.
fn totals(size: usize, config: &Config) -> (Vec<i64>, Vec<i64>) {
    let outputs = run(size, async |transport| {
        let mut worker = Worker::new(transport, config.clone());
        let (mut computed, mut applied) = (vec![0; ENTRIES], vec![0; ENTRIES]);
        for step in 0..STEPS {
            let gradient = whole_gradient(worker.rank(), step, ENTRIES);
            // From zero, and times P: the values become the negated sum, up to the rounding of 1/P.
            worker.values = vec![0.0; ENTRIES];
            worker.step(&gradient, size as f32).await.unwrap();
            for i in 0..ENTRIES {
                computed[i] += gradient[i] as i64;
                applied[i] -= worker.values[i].round() as i64;
            }
        }
        let residual: Vec<_> = worker.optimizer.residual().iter().map(|v| *v as i64).collect();
        (computed, applied, residual)
    });
    let mut computed = vec![0; ENTRIES];
    let mut kept = outputs[0].1.clone();
    for (gradient, applied, residual) in &outputs {
        assert_eq!(applied, &outputs[0].1);
        for i in 0..ENTRIES {
            computed[i] += gradient[i];
            kept[i] += residual[i];
        }
    }
    (computed, kept)
}

#[test]
fn conserving_gtopk_loses_nothing_in_a_hundred_steps() {
    for size in 1..=9 {
        for method in methods().into_iter().filter(|m| matches!(m, Method::Gtopk(_))) {
            let config = Config::new(method.clone(), constant(0.1));
            let (computed, kept) = totals(size, &config);
            assert_eq!(kept, computed, "{method:?} on {size}");
        }
    }
}

#[test]
fn sums_of_selections_lose_nothing_in_a_hundred_steps() {
    for size in [1, 3, 4, 9] {
        for method in methods().into_iter().filter(|m| matches!(m, Method::Sparse(_))) {
            let (computed, kept) = totals(size, &Config::new(method.clone(), constant(0.1)));
            assert_eq!(kept, computed, "{method:?} on {size}");
        }
    }
}

#[test]
fn paper_mode_loses_what_is_dropped_on_the_way() {
    // With two ranks there is one merge, and what it drops is not in the result: nothing is lost yet.
    for (size, lossless) in [(1, true), (2, true), (4, false), (8, false)] {
        for algorithm in [GtopkAlgorithm::Tree, GtopkAlgorithm::Butterfly, GtopkAlgorithm::Exact] {
            let config =
                Config { put_back: PutBack::Paper, ..Config::new(Method::Gtopk(algorithm), constant(0.1)) };
            let (computed, kept) = totals(size, &config);
            // Exact sums are dropped whole.
            let lossless = lossless || algorithm == GtopkAlgorithm::Exact;
            assert_eq!(kept == computed, lossless, "{algorithm:?} on {size}");
        }
    }
}
