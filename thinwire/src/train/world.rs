//! What each rank of a world does.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use collectives::Communicator;
use serde::{Deserialize, Serialize};
use sparse_sgd::{Config, DensitySchedule, Limits, Optimizer, StepReport, parameters_hash};
use transport::{AnyTransport, Rank, block_on};

use crate::error::{Error, When as _};
use crate::output::progress::Progress;
use crate::plan::{Plan, Run};
use crate::ranks;
use crate::tasks::{Data, Task, Test};
use crate::train::outcome::{Curve, Outcome};

/// Trains every run of the plan, one after the other, on the ranks of one world.
///
/// Every rank calls this with the same plan; all get the same outcomes, but for the test, which only rank
/// 0 makes.
pub(crate) fn train(
    communicator: &Communicator<AnyTransport>,
    plan: &Plan,
    data: &[Data],
    progress: &mut Progress,
) -> Result<Vec<Outcome>, Error> {
    ranks::agree(communicator, terms(plan, data))?;
    let mut outcomes = Vec::new();
    for run in &plan.runs {
        let data = data.iter().find(|data| data.task() == run.task).context("a task without data").run()?;
        let name = || format!("{} by {}", run.task.name(), run.algorithm);
        outcomes.push(train_one(communicator, run, plan.seed, data, progress).with_context(name).run()?);
    }
    Ok(outcomes)
}

/// What all ranks must have in common, in words.
fn terms(plan: &Plan, data: &[Data]) -> String {
    let checksums: Vec<_> = data.iter().map(|data| format!("{:016x}", data.checksum())).collect();
    format!("{} on data {}", plan.terms(), checksums.join(" and "))
}

fn train_one(
    communicator: &Communicator<AnyTransport>,
    run: &Run,
    seed: u64,
    data: &Data,
    progress: &mut Progress,
) -> anyhow::Result<Outcome> {
    let (rank, ranks) = (communicator.rank(), communicator.world_size());
    let mut task = data.begin(run, seed, rank.index(), ranks);
    begin_alike(communicator, &mut *task)?;
    let recipe = task.recipe();
    let schedule = Schedule::new(run, task.steps_per_epoch(), recipe.warm_up_epochs);
    let config = Config {
        momentum: recipe.momentum,
        clip_norm: recipe.clip_norm,
        fusion: run.fusion_bytes.map(Limits::bytes),
        ..Config::new(
            run.algorithm.method(seed)?,
            DensitySchedule::warm_up(run.density, schedule.warm_up as u64)?,
        )
    };
    let mut optimizer = Optimizer::new(communicator.clone(), config)?;
    let mut record = Record::default();
    let mut hash = parameters_hash(task.parameters());
    let names: Vec<_> =
        task.parameters().iter().map(|(name, values)| ((*name).to_owned(), values.len())).collect();
    let shapes: Vec<_> = names.iter().map(|(name, len)| (&name[..], *len)).collect();
    progress.begin(run, schedule.steps());
    let begun = Instant::now();
    for epoch in 0..run.epochs {
        for step in 0..schedule.per_epoch {
            let at = || format!("epoch {} of {}, step {step}", epoch + 1, run.epochs);
            let rate = run.learning_rate * schedule.rate_factor(record.losses.len(), recipe.final_rate);
            let finite = |loss: f32| {
                ensure!(
                    loss.is_finite(),
                    "{}: the loss on rank {rank} is {loss}; a smaller --learning-rate may help",
                    at()
                );
                Ok(loss)
            };
            let before = Instant::now();
            let (loss, compute, report) = if run.fusion_bytes.is_some() {
                let mut by_layer = optimizer.begin(&shapes)?;
                let mut ready = |layer, gradient: &[f32]| Ok(by_layer.ready(layer, gradient)?);
                let loss = finite(task.gradient(epoch, step, &mut ready).with_context(at)?)?;
                let both = before.elapsed();
                let report = block_on(by_layer.finish(&mut task.values_mut(), rate)).with_context(at)?;
                // What was selected while gradients came is in the report.
                (loss, both.saturating_sub(report.select), report)
            } else {
                let loss = finite(task.gradient(epoch, step, &mut |_, _| Ok(())).with_context(at)?)?;
                let compute = before.elapsed();
                (loss, compute, task.update(&mut optimizer, rate).with_context(at)?)
            };
            record.add(loss, compute, &report);
            progress.step(loss);
        }
        hash = block_on_check(&optimizer, &*task).with_context(|| format!("after epoch {}", epoch + 1))?;
        progress.epoch(epoch + 1);
    }
    record.wall_s = begun.elapsed().as_secs_f64();
    let test = if rank == Rank(0) { Some(task.test()?) } else { None };
    let records = ranks::exchange(communicator, &record)?;
    let outcome = outcome(run, &schedule, &records, hash, test.as_ref());
    progress.end(&outcome);
    Ok(outcome)
}

/// Gives every rank the first values of rank 0.
fn begin_alike(communicator: &Communicator<AnyTransport>, task: &mut dyn Task) -> anyhow::Result<()> {
    let own: Vec<u8> = task
        .parameters()
        .iter()
        .flat_map(|(_, values)| values.iter().flat_map(|v| v.to_le_bytes()))
        .collect();
    let expected = own.len();
    let first = block_on(communicator.broadcast(Rank(0), Bytes::from(own)))?;
    ensure!(first.len() == expected, "rank 0 has a model of {} bytes, not {expected}", first.len());
    let (words, _) = first.as_chunks::<4>();
    let mut words = words.iter();
    for values in task.values_mut() {
        values.iter_mut().zip(&mut words).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
    }
    Ok(())
}

fn block_on_check(optimizer: &Optimizer<AnyTransport>, task: &dyn Task) -> anyhow::Result<u64> {
    Ok(block_on(optimizer.check_replicas(task.parameters()))?)
}

/// How the steps of a run are laid out.
struct Schedule {
    per_epoch: usize,
    epochs: u32,
    /// Steps before the density is the run's. At most half of the steps, so that some are left to measure.
    warm_up: usize,
}

impl Schedule {
    fn new(run: &Run, per_epoch: usize, warm_up_epochs: u32) -> Self {
        let warm_up = (per_epoch * warm_up_epochs as usize).min(per_epoch * run.epochs as usize / 2);
        Self { per_epoch, epochs: run.epochs, warm_up }
    }

    fn steps(&self) -> usize {
        self.per_epoch * self.epochs as usize
    }

    /// From 1 at the first step down to `last` at the end.
    fn rate_factor(&self, step: usize, last: f32) -> f32 {
        1.0 - (1.0 - last) * (step as f32 / self.steps().max(1) as f32)
    }
}

/// What one rank measured, step by step.
#[derive(Serialize, Deserialize, Default)]
struct Record {
    losses: Vec<f32>,
    bytes: Vec<u64>,
    densities: Vec<f64>,
    compute_s: f64,
    select_s: f64,
    communicate_s: f64,
    update_s: f64,
    wall_s: f64,
}

impl Record {
    fn add(&mut self, loss: f32, compute: Duration, report: &StepReport) {
        self.losses.push(loss);
        self.bytes.push(report.bytes_sent);
        self.densities.push(report.density);
        self.compute_s += compute.as_secs_f64();
        self.select_s += report.select.as_secs_f64();
        self.communicate_s += report.communicate.as_secs_f64();
        self.update_s += report.update.as_secs_f64();
    }
}

fn outcome(run: &Run, schedule: &Schedule, records: &[Record], hash: u64, test: Option<&Test>) -> Outcome {
    let mean = |f: fn(&Record) -> f64| records.iter().map(f).sum::<f64>() / records.len().max(1) as f64;
    let after_warm_up = |bytes: &[u64]| {
        let bytes = bytes.get(schedule.warm_up..).unwrap_or_default();
        bytes.iter().sum::<u64>() as f64 / bytes.len().max(1) as f64
    };
    let largest = |f: &dyn Fn(&Record) -> f64| records.iter().map(f).fold(0.0, f64::max);
    let curve = Curve::new(records.iter().map(|r| (&r.losses[..], &r.bytes[..])));
    Outcome {
        task: run.task.name(),
        algorithm: run.algorithm.name,
        density: if run.algorithm.is_dense() { 1.0 } else { density(schedule, records) },
        workers: records.len(),
        accuracy: test.map(Test::accuracy),
        bytes_per_worker_step: largest(&|r| after_warm_up(&r.bytes)),
        bytes_per_worker: largest(&|r| r.bytes.iter().sum::<u64>() as f64),
        wall_s: largest(&|r| r.wall_s),
        compute_s: mean(|r| r.compute_s),
        select_s: mean(|r| r.select_s),
        communicate_s: mean(|r| r.communicate_s),
        update_s: mean(|r| r.update_s),
        speedup_over_dense: None,
        epochs: run.epochs,
        steps: schedule.steps(),
        loss: curve.final_loss(schedule.per_epoch),
        parameters_hash: format!("{hash:016x}"),
        predictions_hash: test.map(|test| format!("{:016x}", predictions_hash(&test.predicted))),
        is_dense: run.algorithm.is_dense(),
        curve,
    }
}

/// The density that was asked for after the warm-up, or the mean where the gradients decide.
fn density(schedule: &Schedule, records: &[Record]) -> f64 {
    let after = |r: &'_ Record| r.densities.get(schedule.warm_up..).unwrap_or_default().to_vec();
    let all: Vec<f64> = records.iter().flat_map(after).collect();
    match all.first() {
        Some(first) if all.iter().all(|density| density == first) => *first,
        _ => all.iter().sum::<f64>() / all.len().max(1) as f64,
    }
}

fn predictions_hash(predicted: &[u8]) -> u64 {
    let values: Vec<f32> = predicted.iter().map(|class| f32::from(*class)).collect();
    parameters_hash([("predictions", &values[..])])
}
