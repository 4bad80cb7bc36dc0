//! Data-parallel training with sparse gradients: error feedback, momentum correction, clipping, density
//! warm-up, and one [`step`](Optimizer::step) over flat slices that any framework can call.
//!
//! Each of P workers holds a replica of the parameters and a share of the data. In each step a worker
//! computes its gradient, and [`Optimizer::step`] averages the gradients and updates the values in place.
//! How the gradients travel is the [`Method`]:
//!
//! | method | sends per step | the update is |
//! |---|---|---|
//! | [`Method::Dense`] | all N entries | the average gradient's |
//! | [`Method::Sparse`] | each rank's k largest | the sum of all selections: up to P k entries |
//! | [`Method::Gtopk`] | each rank's k largest, merged | the k largest of that sum, exactly or nearly |
//!
//! What is not sent waits in a *residual* on its rank and is added to the next gradient (*error
//! feedback*), so nothing is lost: with [`PutBack::Conserving`], all updates and all residuals together
//! are the sum of all gradients, up to the rounding of sums. With momentum, each rank gathers its
//! *velocity* in the residual in place of the bare gradient (*momentum correction*).
//!
//! From *Deep Gradient Compression* (Lin et al., ICLR 2018) and *A Distributed Synchronous SGD Algorithm
//! with Global Top-k Sparsification for Low Bandwidth Networks* (Shi et al., ICDCS 2019).
//!
//! # Example
//! Four workers in one process fit a linear model, with a tenth of the entries and with all of them:
//!
//! ```
//! use sparse_sgd::{
//!     Communicator, Config, DenseAlgorithm, DensitySchedule, Error, GtopkAlgorithm, Method, Optimizer,
//!     Parameter,
//! };
//! use transport::Transport;
//!
//! const FEATURES: usize = 50;
//!
//! /// The weights that the data was made with.
//! fn truth(feature: usize) -> f32 {
//!     feature as f32 / FEATURES as f32 - 0.5
//! }
//!
//! /// Trains on this rank's rows; returns the largest error of a weight, and the bytes sent.
//! async fn train<T: Transport>(transport: T, method: Method) -> Result<(f32, u64), Error> {
//!     let mut state = u64::from(transport.rank().0) + 1;
//!     let mut noise = move || {
//!         state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
//!         (state >> 40) as f32 / (1 << 23) as f32 - 1.0
//!     };
//!     let rows: Vec<Vec<f32>> = (0..200).map(|_| (0..FEATURES).map(|_| noise()).collect()).collect();
//!     let target = |row: &[f32]| 1.0 + row.iter().enumerate().map(|(i, x)| x * truth(i)).sum::<f32>();
//!
//!     let density = DensitySchedule::warm_up(0.1, 50)?;
//!     let config = Config { clip_norm: Some(10.0), ..Config::new(method, density) };
//!     let mut optimizer = Optimizer::new(Communicator::new(transport), config)?;
//!     let (mut weight, mut bias) = (vec![0.0; FEATURES], [0.0]);
//!     let mut bytes = 0;
//!     for _ in 0..400 {
//!         let (mut weight_gradient, mut bias_gradient) = (vec![0.0; FEATURES], [0.0]);
//!         for row in &rows {
//!             let output = bias[0] + row.iter().zip(&weight).map(|(x, w)| x * w).sum::<f32>();
//!             let error = (output - target(row)) / rows.len() as f32;
//!             weight_gradient.iter_mut().zip(row).for_each(|(g, x)| *g += error * x);
//!             bias_gradient[0] += error;
//!         }
//!         let mut parameters = [
//!             Parameter { name: "weight", values: &mut weight, gradient: &weight_gradient },
//!             Parameter { name: "bias", values: &mut bias, gradient: &bias_gradient },
//!         ];
//!         bytes += optimizer.step(&mut parameters, 0.1).await?.bytes_sent;
//!     }
//!     optimizer.check_replicas([("weight", &weight[..]), ("bias", &bias)]).await?;
//!     let error = weight.iter().enumerate().map(|(i, w)| (w - truth(i)).abs()).fold(0.0, f32::max);
//!     Ok((error, bytes))
//! }
//!
//! let run = |method: Method| {
//!     testkit::run_world(testkit::local_world(4), |transport| train(transport, method.clone()))
//! };
//! for method in [Method::Gtopk(GtopkAlgorithm::Butterfly), Method::Dense(DenseAlgorithm::Ring)] {
//!     for result in run(method) {
//!         let (error, bytes) = result?;
//!         assert!(error < 0.01 && bytes > 0, "{error}");
//!     }
//! }
//! # Ok::<(), Error>(())
//! ```

#![forbid(unsafe_code)]

mod clip;
mod config;
mod density;
mod error;
mod feedback;
mod fusion;
mod model;
mod optimizer;
mod parameter;
mod replicas;
mod report;
mod state;
mod update;

pub use config::{Config, Method};
pub use density::DensitySchedule;
pub use error::{Error, ErrorKind};
pub use feedback::Feedback;
pub use fusion::{Bucket, FusionPlan, LayerwiseStep, Limits};
pub use optimizer::Optimizer;
pub use parameter::Parameter;
pub use replicas::parameters_hash;
pub use report::StepReport;
pub use state::OptimizerState;

// What an optimizer is made of.
pub use collectives::{Communicator, DenseAlgorithm, GtopkAlgorithm, PutBack, SparseAlgorithm};
