//! What a step says that it did.

use super::*;

#[test]
fn warm_up_lowers_the_density_step_by_step() {
    let density = DensitySchedule::warm_up_from(0.5, 0.05, 5).unwrap();
    for method in methods().into_iter().filter(|m| !matches!(m, Method::Dense(_))) {
        let reports = run(3, async |transport| {
            let mut worker = Worker::new(transport, Config::new(method.clone(), density));
            let mut reports = Vec::new();
            for step in 0..8 {
                let gradient = gradient(worker.rank(), step, ENTRIES);
                reports.push(worker.step(&gradient, 0.1).await.unwrap());
            }
            reports
        });
        for reports in reports {
            for (step, report) in (0..).zip(&reports) {
                assert_eq!(report.density, density.density(step));
                assert_eq!(report.k, density.selected(step, ENTRIES));
                // Nothing but the padding of an already sent entry is zero here.
                assert_eq!(report.nnz_selected, report.k);
                let most = if matches!(method, Method::Gtopk(_)) { report.k } else { ENTRIES };
                assert!((1..=most).contains(&report.nnz_result), "{report:?}");
            }
            // 37 entries at 50 %, falling by a factor of 10^(1/5) a step to 5 %.
            assert_eq!(reports.iter().map(|r| r.k).collect::<Vec<_>>(), [19, 12, 7, 5, 3, 2, 2, 2]);
        }
    }
}

#[test]
fn a_report_counts_the_bytes_that_the_communicator_counts() {
    for method in methods() {
        run(4, async |transport| {
            let mut worker = Worker::new(transport, rich(method.clone()));
            for step in 0..3 {
                let before = worker.optimizer.communicator().traffic().bytes_sent;
                let gradient = gradient(worker.rank(), step, ENTRIES);
                let report = worker.step(&gradient, 0.1).await.unwrap();
                let after = worker.optimizer.communicator().traffic().bytes_sent;
                assert!(report.bytes_sent > 0);
                assert_eq!(report.bytes_sent, after - before);
            }
        });
    }
}

#[test]
fn a_dense_step_reports_all_entries() {
    run(2, async |transport| {
        let mut worker = Worker::new(transport, rich(Method::Dense(DenseAlgorithm::Ring)));
        let report = worker.step(&[0.0; ENTRIES], 0.1).await.unwrap();
        assert_eq!((report.density, report.k), (1.0, ENTRIES));
        assert_eq!((report.nnz_selected, report.nnz_result), (ENTRIES, ENTRIES));
    });
}

#[test]
fn fewer_entries_than_k_are_sent_where_the_rest_is_zero() {
    for method in methods().into_iter().filter(|m| !matches!(m, Method::Dense(_))) {
        run(3, async |transport| {
            let mut worker = Worker::new(transport, Config::new(method.clone(), constant(1.0)));
            let mut gradient = [0.0; ENTRIES];
            gradient[worker.rank() as usize] = 1.0;
            let report = worker.step(&gradient, 0.1).await.unwrap();
            assert_eq!((report.k, report.nnz_selected), (ENTRIES, 1));
        });
    }
}
