//! How far a run is: a bar on a terminal, a line an epoch elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::plan::Run;
use crate::train::Outcome;

/// Shows the progress of one run after the other on standard error.
pub(crate) struct Progress {
    /// Whether this rank shows anything.
    shown: bool,
    bar: ProgressBar,
    name: String,
    epochs: u32,
    loss: Option<f64>,
}

impl Progress {
    /// For the rank that speaks for all.
    pub(crate) fn shown() -> Self {
        Self { shown: true, ..Self::silent() }
    }

    /// For the other ranks.
    pub(crate) fn silent() -> Self {
        Self { shown: false, bar: ProgressBar::hidden(), name: String::new(), epochs: 0, loss: None }
    }

    pub(crate) fn begin(&mut self, run: &Run, steps: usize) {
        if !self.shown {
            return;
        }
        self.name = format!("{} {}", run.task.name(), run.algorithm);
        (self.epochs, self.loss) = (run.epochs, None);
        // Draws nothing where standard error is no terminal.
        self.bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{prefix:30} {bar:30} {pos:>5}/{len} steps  {msg}") {
            self.bar.set_style(style.progress_chars("━╸─"));
        }
        self.bar.set_prefix(self.name.clone());
    }

    /// After each step, with this rank's loss.
    pub(crate) fn step(&mut self, loss: f32) {
        if !self.shown {
            return;
        }
        // A batch's loss jumps about; what is shown is their decaying mean.
        let loss = self.loss.map_or(f64::from(loss), |mean| 0.95 * mean + 0.05 * f64::from(loss));
        self.loss = Some(loss);
        self.bar.inc(1);
        if self.bar.position().is_multiple_of(8) {
            self.bar.set_message(format!("loss {loss:.4}"));
        }
    }

    /// After an epoch, counted from 1.
    pub(crate) fn epoch(&self, epoch: u32) {
        if self.shown && self.bar.is_hidden() {
            let loss = self.loss.unwrap_or_default();
            let elapsed = seconds(self.bar.elapsed());
            eprintln!("{}: epoch {epoch} of {}, loss {loss:.4}, {elapsed}", self.name, self.epochs);
        }
    }

    pub(crate) fn end(&mut self, outcome: &Outcome) {
        if !self.shown {
            return;
        }
        let accuracy =
            outcome.accuracy.map_or(String::new(), |share| format!("accuracy {:.2} %, ", 100.0 * share));
        let summary = format!("{accuracy}{}", seconds(Duration::from_secs_f64(outcome.wall_s)));
        if self.bar.is_hidden() {
            eprintln!("{}: {summary}", self.name);
        }
        self.bar.finish_with_message(summary);
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
