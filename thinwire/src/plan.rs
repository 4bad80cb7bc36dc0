use std::path::{Path, PathBuf};

use crate::algorithm::Algorithm;
use crate::cli::{TaskName, TrainArgs};
use crate::error::Error;

/// What is to be trained and how: the options, checked against each other and completed.
///
/// All ranks of a world have the same one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plan {
    pub(crate) runs: Vec<Run>,
    pub(crate) seed: u64,
    /// Not part of what has to agree: each rank may keep the file elsewhere. Its contents count.
    pub(crate) data: Option<PathBuf>,
}

/// One training of one task with one algorithm.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Run {
    pub(crate) task: TaskName,
    pub(crate) algorithm: Algorithm,
    pub(crate) density: f64,
    pub(crate) epochs: u32,
    /// Examples of one worker at one step.
    pub(crate) batch: usize,
    pub(crate) learning_rate: f32,
    /// Up to how many bytes of layers are summed together, each bucket while the next is computed; all at the end if none.
    pub(crate) fusion_bytes: Option<usize>,
}

/// What a task is trained with unless told otherwise.
struct Defaults {
    algorithms: &'static [&'static str],
    epochs: u32,
    batch: u32,
    learning_rate: f32,
}

const DENSITY: f64 = 0.01;

const fn defaults(task: TaskName) -> Defaults {
    match task {
        TaskName::Mnist => Defaults {
            algorithms: &["dense", "topk_allgather", "gtopk"],
            epochs: 8,
            batch: 32,
            learning_rate: 0.05,
        },
        TaskName::Spam => Defaults {
            algorithms: &["dense_recursive_doubling", "dense_ring", "ssar_recursive_doubling"],
            epochs: 6,
            batch: 8,
            learning_rate: 30.0,
        },
    }
}

impl Plan {
    /// Refuses options that contradict each other.
    pub(crate) fn new(args: &TrainArgs) -> Result<Self, Error> {
        let tasks = tasks(args)?;
        let mut runs = Vec::new();
        for &task in &tasks {
            let defaults = defaults(task);
            for algorithm in algorithms(args, task, &defaults)? {
                runs.push(Run {
                    task,
                    algorithm,
                    density: args.density.unwrap_or(DENSITY),
                    epochs: args.epochs.unwrap_or(defaults.epochs),
                    batch: args.batch.unwrap_or(defaults.batch) as usize,
                    learning_rate: args.learning_rate.unwrap_or(defaults.learning_rate),
                    // The other task has one layer, with a sparse gradient.
                    fusion_bytes: args.fusion_bytes.filter(|_| task == TaskName::Mnist),
                });
            }
        }
        Ok(Self { runs, seed: args.seed, data: args.data.clone() })
    }

    /// The tasks, each once, in the order of their runs.
    pub(crate) fn tasks(&self) -> Vec<TaskName> {
        TaskName::ALL.into_iter().filter(|task| self.runs.iter().any(|run| run.task == *task)).collect()
    }

    /// What all ranks must have in common, in words.
    pub(crate) fn terms(&self) -> String {
        let runs: Vec<_> = self.runs.iter().map(Run::terms).collect();
        format!("{} with seed {}", runs.join(", "), self.seed)
    }

    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }
}

impl Run {
    fn terms(&self) -> String {
        let Self { task, algorithm, density, epochs, batch, learning_rate, fusion_bytes } = self;
        let task = task.name();
        let fusion = fusion_bytes.map_or(String::new(), |bytes| format!(", buckets of {bytes} bytes"));
        format!(
            "{task} by {algorithm} (density {density}, {epochs} epochs, batch {batch}, rate {learning_rate}{fusion})"
        )
    }
}

fn tasks(args: &TrainArgs) -> Result<Vec<TaskName>, Error> {
    let asked = |task| args.tasks.contains(&task);
    let tasks: Vec<_> = if !args.tasks.is_empty() {
        TaskName::ALL.into_iter().filter(|&task| asked(task)).collect()
    } else if args.data.is_some() {
        vec![TaskName::Spam]
    } else if args.algorithms.iter().any(|algorithm| algorithm.is_truncating())
        || args.density.is_some()
        || args.fusion_bytes.is_some()
    {
        // What only mnist can use says which task is meant.
        vec![TaskName::Mnist]
    } else {
        TaskName::ALL.to_vec()
    };
    if args.data.is_some() && !tasks.contains(&TaskName::Spam) {
        return Err(Error::setup("--data is a file for the task spam: add --task spam, or leave --task out"));
    }
    if args.density.is_some() && !tasks.contains(&TaskName::Mnist) {
        return Err(Error::setup(
            "--density does not apply to spam: its gradients are sparse by nature and are summed exactly, \
             without a selection",
        ));
    }
    if args.fusion_bytes.is_some() && !tasks.contains(&TaskName::Mnist) {
        return Err(Error::setup("--fusion-bytes does not apply to spam: its model has but one layer"));
    }
    Ok(tasks)
}

/// The algorithms for a task, each name once, in the order given.
fn algorithms(args: &TrainArgs, task: TaskName, defaults: &Defaults) -> Result<Vec<Algorithm>, Error> {
    let mut algorithms: Vec<Algorithm> = Vec::new();
    let default = || defaults.algorithms.iter().map(|name| name.parse().map_err(Error::setup));
    let given = || args.algorithms.iter().copied().map(Ok);
    let wanted: Box<dyn Iterator<Item = Result<Algorithm, Error>>> =
        if args.algorithms.is_empty() { Box::new(default()) } else { Box::new(given()) };
    for algorithm in wanted {
        let algorithm = algorithm?;
        if task == TaskName::Spam && algorithm.is_truncating() {
            return Err(Error::setup(format!(
                "{algorithm} cannot train spam: that task's gradients are sparse by nature and are summed \
                 exactly, while {algorithm} keeps only the largest entries of a sum; use \
                 ssar_recursive_doubling, or --task mnist"
            )));
        }
        if !algorithms.contains(&algorithm) {
            algorithms.push(algorithm);
        }
    }
    Ok(algorithms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn plan(options: &[&str]) -> Result<Plan, String> {
        let cli = Cli::try_parse_from([&["thinwire", "train"], options].concat()).unwrap();
        let Some(Command::Train(args)) = cli.command else { panic!("another command") };
        Plan::new(&args).map_err(|error| error.to_string())
    }

    fn runs(options: &[&str]) -> Vec<(&'static str, &'static str)> {
        plan(options).unwrap().runs.iter().map(|run| (run.task.name(), run.algorithm.name)).collect()
    }

    #[test]
    fn without_options_both_tasks_run_with_their_own_algorithms() {
        let runs = runs(&[]);
        assert_eq!(runs[..3], [("mnist", "dense"), ("mnist", "topk_allgather"), ("mnist", "gtopk")]);
        assert!(runs[3..].iter().all(|(task, _)| *task == "spam"));
        assert!(runs.contains(&("spam", "ssar_recursive_doubling")));
    }

    #[test]
    fn options_choose_the_task_that_can_use_them() {
        assert_eq!(runs(&["--algorithm", "gtopk"]), [("mnist", "gtopk")]);
        assert_eq!(plan(&["--density", "0.5"]).unwrap().tasks(), [TaskName::Mnist]);
        assert_eq!(plan(&["--fusion-bytes", "1M"]).unwrap().tasks(), [TaskName::Mnist]);
        assert_eq!(plan(&["--data", "x"]).unwrap().tasks(), [TaskName::Spam]);
        assert_eq!(
            runs(&["--algorithm", "dense", "--algorithm", "dense"]),
            [("mnist", "dense"), ("spam", "dense")]
        );
        let both = ["--task", "spam", "--task", "mnist", "--density", "0.5", "--algorithm", "topk"];
        assert_eq!(runs(&both), [("mnist", "topk"), ("spam", "topk")]);
    }

    #[test]
    fn what_does_not_fit_a_task_is_refused_with_the_reason() {
        for (options, says) in [
            (&["--task", "spam", "--algorithm", "gtopk_tree"][..], "gtopk_tree cannot train spam"),
            (&["--task", "spam", "--density", "0.1"], "--density does not apply to spam"),
            (&["--task", "spam", "--fusion-bytes", "1M"], "--fusion-bytes does not apply to spam"),
            (&["--task", "mnist", "--data", "x"], "--data is a file for the task spam"),
            (&["--data", "x", "--algorithm", "gtopk"], "gtopk cannot train spam"),
        ] {
            let error = plan(options).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn terms_tell_plans_apart() {
        let terms = |options: &[&str]| plan(options).unwrap().terms();
        assert_eq!(terms(&[]), terms(&["--plot", "elsewhere.svg"]));
        for other in [&["--seed", "2"][..], &["--epochs", "1"], &["--batch", "9"], &["--learning-rate", "3"]]
        {
            assert_ne!(terms(&[]), terms(other));
        }
        assert_ne!(terms(&["--fusion-bytes", "1M"]), terms(&["--fusion-bytes", "2M"]));
    }
}
