//! What training with sparse gradients promises, with real processes over TCP.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::sync::LazyLock;

use common::{folder, names, stderr, stdout, thinwire, train};
use serde_json::Value;

/// The main job: both tasks, four workers, all defaults.
struct MainJob {
    results: Vec<Value>,
    stdout: String,
    stderr: String,
    picture: String,
    files: Vec<String>,
}

static MAIN_JOB: LazyLock<MainJob> = LazyLock::new(|| {
    let folder = folder();
    let output = thinwire(folder.path()).args(["train", "--json", "results.json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    MainJob {
        results: common::results(&folder.path().join("results.json")),
        stdout: stdout(&output),
        stderr: stderr(&output),
        picture: fs::read_to_string(folder.path().join("thinwire-train.svg")).unwrap(),
        files: names(folder.path()),
    }
});

fn result(task: &str, algorithm: &str) -> &'static Value {
    let is_it = |result: &&Value| result["task"] == task && result["algorithm"] == algorithm;
    MAIN_JOB.results.iter().find(is_it).unwrap()
}

fn number(result: &Value, key: &str) -> f64 {
    result[key].as_f64().unwrap_or_else(|| panic!("{key} of {result}"))
}

fn fewer_bytes(result: &Value, dense: &Value) -> f64 {
    number(dense, "bytes_per_worker_step") / number(result, "bytes_per_worker_step")
}

#[test]
fn mnist_by_topk_and_gtopk_is_as_accurate_as_dense_with_a_twentieth_of_the_bytes() {
    let dense = result("mnist", "dense");
    assert!(number(dense, "accuracy") > 0.95, "{dense}");
    for algorithm in ["topk_allgather", "gtopk"] {
        let sparse = result("mnist", algorithm);
        assert!(number(dense, "accuracy") - number(sparse, "accuracy") <= 0.01, "{sparse} after {dense}");
        assert!(fewer_bytes(sparse, dense) >= 20.0, "{sparse} after {dense}");
        assert_eq!(number(sparse, "density"), 0.01);
    }
}

#[test]
fn spam_by_a_sparse_sum_is_the_dense_run_with_a_tenth_of_the_bytes() {
    let sparse = result("spam", "ssar_recursive_doubling");
    assert!(number(sparse, "accuracy") > 0.97, "{sparse}");
    for algorithm in ["dense_recursive_doubling", "dense_ring"] {
        let dense = result("spam", algorithm);
        assert_eq!(sparse["predictions_hash"], dense["predictions_hash"], "{algorithm}");
        assert!(fewer_bytes(sparse, dense) >= 10.0, "{sparse} after {dense}");
    }
    let dense = result("spam", "dense_recursive_doubling");
    assert_eq!(sparse["parameters_hash"], dense["parameters_hash"]);
}

#[test]
fn results_have_the_promised_keys() {
    for result in &MAIN_JOB.results {
        for key in ["bytes_per_worker_step", "wall_s", "compute_s", "communicate_s", "update_s", "loss"] {
            assert!(number(result, key) > 0.0, "{key}: {result}");
        }
        let parts: f64 =
            ["compute_s", "select_s", "communicate_s", "update_s"].map(|k| number(result, k)).iter().sum();
        assert!(parts <= number(result, "wall_s") && parts > 0.8 * number(result, "wall_s"), "{result}");
        assert_eq!(result["workers"], 4);
        assert_eq!(result["parameters_hash"].as_str().map(str::len), Some(16));
    }
}

#[test]
fn the_user_sees_progress_a_table_and_where_the_picture_is() {
    let MainJob { stdout, stderr, picture, files, .. } = &*MAIN_JOB;
    for part in [
        "accuracy",
        "speed-up",
        "topk_allgather",
        "ssar_recursive_doubling",
        "thinwire-train.svg",
        "results.json",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    assert!(stderr.contains("mnist gtopk: epoch 1 of "), "{stderr}");
    assert!(!stderr.contains('\r'), "no bars where there is no terminal");
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    for part in ["mnist: loss by step", "spam: loss by traffic", "gtopk"] {
        assert!(picture.contains(part), "{part}");
    }
    assert_eq!(*files, ["results.json", "thinwire-train.svg"]);
}

#[test]
fn threads_and_processes_end_with_the_same_parameters() {
    let options = [
        "--task",
        "mnist",
        "--task",
        "spam",
        "--workers",
        "3",
        "--epochs",
        "1",
        "--batch",
        "400",
        "--algorithm",
        "dense",
        "--algorithm",
        "topk",
        "--algorithm",
        "ssar_split_allgather",
        "--algorithm",
        "dsar_qsgd4",
    ];
    let hashes = |transport: &str| {
        let folder = folder();
        let results = train(folder.path(), &[&options[..], &["--transport", transport]].concat());
        results.iter().map(|result| result["parameters_hash"].clone()).collect::<Vec<_>>()
    };
    let local = hashes("local");
    assert_eq!(local.len(), 8);
    assert_eq!(local, hashes("tcp"));
}

#[test]
fn layers_in_buckets_train_alike_on_all_ranks_and_over_every_transport() {
    let folder = folder();
    let hashes = |options: &[&str]| {
        let common = ["--task", "mnist", "--epochs", "1", "--batch", "400", "--workers", "3"];
        let algorithms = ["dense", "gtopk"].map(|name| ["--algorithm", name]);
        let results = train(folder.path(), &[&common[..], algorithms.as_flattened(), options].concat());
        results.iter().map(|result| result["parameters_hash"].clone()).collect::<Vec<_>>()
    };
    // The largest layer, of 1.6 MB, is alone, and what is above it is together.
    let buckets = hashes(&["--transport", "local", "--fusion-bytes", "1M"]);
    assert_eq!(buckets, hashes(&["--transport", "tcp", "--fusion-bytes", "1M"]));
    let whole = hashes(&["--transport", "local"]);
    assert!(whole.iter().zip(&buckets).all(|(whole, buckets)| whole != buckets));
    // One bucket, though each layer is handed over by itself.
    assert_eq!(whole, hashes(&["--transport", "local", "--fusion-bytes", "1G"]));
}

#[test]
fn every_algorithm_trains() {
    let (exact, truncating) = (
        [
            "dense_ring",
            "dense_recursive_doubling",
            "rabenseifner",
            "ssar_recursive_doubling",
            "ssar_split_allgather",
            "ssar_ring",
            "dsar_split_allgather",
            "dsar_qsgd8",
            "dsar_qsgd2",
        ],
        ["topk_allgather", "gtopk_tree", "gtopk_butterfly", "gtopk_exact", "oktopk", "spardl"],
    );
    let folder = folder();
    for (task, algorithms) in [("spam", &exact[..]), ("mnist", &truncating)] {
        // Where nothing is sent, one algorithm is much like another.
        for (workers, algorithms) in [("1", &algorithms[..2]), ("5", algorithms)] {
            let mut options =
                vec!["--transport", "local", "--task", task, "--epochs", "1", "--workers", workers];
            if task == "mnist" {
                options.extend(["--batch", "400", "--density", "0.001"]);
            }
            algorithms.iter().for_each(|algorithm| options.extend(["--algorithm", algorithm]));
            let results = train(folder.path(), &options);
            assert_eq!(results.len(), algorithms.len());
            let sends = |result: &Value| number(result, "bytes_per_worker_step") > 0.0;
            assert!(results.iter().all(|result| sends(result) == (workers != "1")));
        }
    }
}

#[test]
fn a_seed_decides_the_run() {
    let folder = folder();
    let run = |seed: &str| {
        let options = ["--transport", "local", "--task", "spam", "--epochs", "1", "--seed", seed];
        let results =
            train(folder.path(), &[&options[..], &["--algorithm", "ssar_recursive_doubling"]].concat());
        results[0]["parameters_hash"].clone()
    };
    let first = run("1");
    assert_eq!(first, run("1"));
    assert_ne!(first, run("2"));
}

#[test]
fn any_libsvm_file_can_be_learned() {
    let folder = folder();
    // The class is the sign of the second feature.
    let line = |i: u32| format!("+1 1:{} 3:5\n-1 1:{} 3:-5\n", i % 7, i % 5);
    fs::write(folder.path().join("rows"), (0..100).map(line).collect::<String>()).unwrap();
    let results = train(folder.path(), &["--data", "rows", "--workers", "2"]);
    assert_eq!(results.len(), 3);
    for result in results {
        assert_eq!((&result["task"], number(&result, "accuracy")), (&"spam".into(), 1.0));
    }
}
