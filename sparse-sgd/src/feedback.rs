//! Error feedback with momentum correction: what a rank has not sent yet, and how that grows.
//!
//! From *Deep Gradient Compression* (Lin et al., 2018). With gradient g, momentum m, velocity u and
//! residual v, a step does u = m u + g, v = v + u, sends the largest entries of v, and clears v where it
//! was sent; with masking, u too.

use std::ops::Range;

#[cfg(feature = "rayon")]
use rayon::prelude::*;
use sparse_core::{SparseVec, TopK, clear, scatter_add};

/// Residual and velocity of one rank over all parameters, end to end: what an [`Optimizer`](crate::Optimizer) with a sparse
/// method does before and after its sum, for training loops that make their own.
///
/// Each step is computed beside the state that it replaces, so a step that fails, or is not committed, has changed nothing:
/// four buffers of the parameters' length, two without momentum, allocated once, and room for up to 4 k entries that may
/// be among the k largest. The parameters are seen as buckets, from each of which entries are selected on their own.
///
/// ```
/// use sparse_sgd::Feedback;
///
/// let mut feedback = Feedback::new(4, 0.5, false);
/// // Half of the gradients: what clipping asks for.
/// let sent = feedback.accumulate(0, [&[8.0, 2.0][..], &[-4.0, 0.0]], 0.5, 1)?;
/// assert_eq!(sent.iter().collect::<Vec<_>>(), [(0, 4.0)]);
/// // Sum it over the ranks here; if that fails, accumulate again. Then:
/// feedback.settle(0, sent, None)?;
/// feedback.commit();
/// assert_eq!(feedback.residual(), [0.0, 1.0, -2.0, 0.0]);
/// assert_eq!(feedback.velocity(), [4.0, 1.0, -2.0, 0.0]);
/// # Ok::<(), sparse_sgd::Error>(())
/// ```
#[derive(Debug)]
pub struct Feedback {
    momentum: f32,
    masking: bool,
    residual: Vec<f32>,
    /// Empty without momentum.
    velocity: Vec<f32>,
    next_residual: Vec<f32>,
    next_velocity: Vec<f32>,
    buckets: Vec<Selected>,
}

/// A bucket and what is remembered about its selection.
#[derive(Debug, Default)]
struct Selected {
    entries: Range<usize>,
    selection: TopK<f32>,
    /// What the last step selected: memory for the next selection.
    used: SparseVec<f32>,
}

/// Entries that one of several threads computes, and then looks at for large ones while they are in the cache.
#[cfg(feature = "rayon")]
const SHARE: usize = 1 << 14;

impl Feedback {
    /// Of so many entries, in one bucket, with nothing gathered yet.
    #[must_use]
    pub fn new(entries: usize, momentum: f32, masking: bool) -> Self {
        let velocity = if momentum == 0.0 { 0 } else { entries };
        Self::with(momentum, masking, vec![0.0; entries], vec![0.0; velocity])
    }

    /// Goes on from this state. `velocity` is empty without momentum, else as long as `residual`.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn with(momentum: f32, masking: bool, residual: Vec<f32>, velocity: Vec<f32>) -> Self {
        let expected = if momentum == 0.0 { 0 } else { residual.len() };
        assert_eq!(velocity.len(), expected, "a velocity of another length than the residual");
        let (next_residual, next_velocity) = (vec![0.0; residual.len()], vec![0.0; velocity.len()]);
        let whole = Selected { entries: 0..residual.len(), ..Selected::default() };
        let buckets = vec![whole];
        Self { momentum, masking, residual, velocity, next_residual, next_velocity, buckets }
    }

    /// Selects from these buckets, which together are the parameters, from now on. A bucket's number is its place here.
    pub fn part(&mut self, buckets: impl Iterator<Item = Range<usize>>) {
        self.buckets = buckets.map(|entries| Selected { entries, ..Selected::default() }).collect();
    }

    /// What was not sent yet.
    #[must_use]
    pub fn residual(&self) -> &[f32] {
        &self.residual
    }

    /// The velocity; empty without momentum.
    #[must_use]
    pub fn velocity(&self) -> &[f32] {
        &self.velocity
    }

    /// Adds `factor` times the gradients of a bucket, end to end, to what was not sent yet, and takes the `k` largest
    /// entries out of the result, to be sent. One pass over everything.
    ///
    /// # Errors
    /// As [`top_k`](sparse_core::top_k).
    ///
    /// # Panics
    /// If there is no such bucket, or the gradients together are not as long.
    pub fn accumulate<'a>(
        &mut self,
        bucket: usize,
        gradients: impl IntoIterator<Item = &'a [f32]>,
        factor: f32,
        k: usize,
    ) -> Result<SparseVec<f32>, sparse_core::Error> {
        let Selected { entries, mut selection, used } = std::mem::take(&mut self.buckets[bucket]);
        selection.start(entries.len(), k);
        let (momentum, mut rest) = (self.momentum, self.state(entries.clone()));
        for gradient in gradients {
            let State { residual, velocity, next_residual, next_velocity } = rest.split_off(gradient.len());
            if velocity.is_empty() {
                selection.write(
                    next_residual,
                    #[inline(always)]
                    |at, next| add(next, &residual[at..], &gradient[at..], factor),
                );
            } else {
                selection.write_with(
                    next_residual,
                    next_velocity,
                    #[inline(always)]
                    |at, next, next_velocity| {
                        let velocity = (&velocity[at..], next_velocity);
                        add_with(momentum, next, &residual[at..], velocity, &gradient[at..], factor);
                    },
                );
            }
        }
        self.take(bucket, Selected { entries, selection, used })
    }

    /// Takes the k largest entries out of a bucket whose selection has seen them all.
    fn take(&mut self, bucket: usize, seen: Selected) -> Result<SparseVec<f32>, sparse_core::Error> {
        let Selected { entries, mut selection, mut used } = seen;
        let taken = selection.take_into(&mut self.next_residual[entries.clone()], &mut used);
        self.buckets[bucket] = Selected { entries, selection, used: SparseVec::default() };
        taken.map(|()| used)
    }

    /// [`accumulate`](Self::accumulate) by the threads of the rayon pool that this is called in: the same state and entries,
    /// bit for bit, however many there are.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate).
    ///
    /// # Panics
    /// As [`accumulate`](Self::accumulate).
    #[cfg(feature = "rayon")]
    pub fn accumulate_parallel<'a>(
        &mut self,
        bucket: usize,
        gradients: impl IntoIterator<Item = &'a [f32]>,
        factor: f32,
        k: usize,
    ) -> Result<SparseVec<f32>, sparse_core::Error> {
        let Selected { entries, mut selection, used } = std::mem::take(&mut self.buckets[bucket]);
        selection.start(entries.len(), k);
        let (momentum, mut rest) = (self.momentum, self.state(entries.clone()));
        let mut parts = Vec::with_capacity(entries.len() / SHARE + 1);
        for gradient in gradients.into_iter().flat_map(|gradient| gradient.chunks(SHARE)) {
            parts.push((rest.split_off(gradient.len()), gradient));
        }
        selection.see_parallel(
            parts.into_par_iter().map(|(state, gradient)| state.add(gradient, momentum, factor)),
        );
        self.take(bucket, Selected { entries, selection, used })
    }

    fn state(&mut self, entries: Range<usize>) -> State<'_> {
        let velocity = if self.velocity.is_empty() { 0..0 } else { entries.clone() };
        State {
            residual: &self.residual[entries.clone()],
            velocity: &self.velocity[velocity.clone()],
            next_residual: &mut self.next_residual[entries],
            next_velocity: &mut self.next_velocity[velocity],
        }
    }

    /// Ends the step of a bucket whose `sent` entries, which it gave, were summed; adds what came back to the residual. With
    /// masking, the velocity of what was sent begins anew. Work only on those entries.
    ///
    /// # Errors
    /// If a vector has another dimension than the bucket.
    ///
    /// # Panics
    /// If there is no such bucket.
    pub fn settle(
        &mut self,
        bucket: usize,
        sent: SparseVec<f32>,
        put_back: Option<&SparseVec<f32>>,
    ) -> Result<(), sparse_core::Error> {
        let Selected { entries, used, .. } = &mut self.buckets[bucket];
        if sent.dim() != entries.len() as u64 {
            let (left, right) = (entries.len() as u64, sent.dim());
            return Err(sparse_core::Error::DimensionMismatch { left, right });
        }
        if self.masking && !self.next_velocity.is_empty() {
            clear(&mut self.next_velocity[entries.clone()], &sent)?;
        }
        if let Some(put_back) = put_back {
            scatter_add(&mut self.next_residual[entries.clone()], put_back)?;
        }
        *used = sent;
        Ok(())
    }

    /// Makes what was accumulated, and settled in all buckets, the current state.
    pub fn commit(&mut self) {
        std::mem::swap(&mut self.residual, &mut self.next_residual);
        std::mem::swap(&mut self.velocity, &mut self.next_velocity);
    }
}

/// Part of the state, and of what replaces it. Without momentum there is no velocity.
struct State<'a> {
    residual: &'a [f32],
    velocity: &'a [f32],
    next_residual: &'a mut [f32],
    next_velocity: &'a mut [f32],
}

impl<'a> State<'a> {
    /// Takes the first entries apart.
    fn split_off(&mut self, len: usize) -> Self {
        let moving = if self.velocity.is_empty() { 0 } else { len };
        let (residual, velocity) = (self.residual.split_at(len), self.velocity.split_at(moving));
        let next_residual = std::mem::take(&mut self.next_residual).split_at_mut(len);
        let next_velocity = std::mem::take(&mut self.next_velocity).split_at_mut(moving);
        *self = Self {
            residual: residual.1,
            velocity: velocity.1,
            next_residual: next_residual.1,
            next_velocity: next_velocity.1,
        };
        Self {
            residual: residual.0,
            velocity: velocity.0,
            next_residual: next_residual.0,
            next_velocity: next_velocity.0,
        }
    }

    /// Computes the next state, and returns its residual.
    #[cfg(feature = "rayon")]
    fn add(self, gradient: &[f32], momentum: f32, factor: f32) -> &'a [f32] {
        if self.velocity.is_empty() {
            add(self.next_residual, self.residual, gradient, factor);
        } else {
            let velocity = (self.velocity, self.next_velocity);
            add_with(momentum, self.next_residual, self.residual, velocity, gradient, factor);
        }
        self.next_residual
    }
}

/// Computes the next residual.
#[inline(always)]
fn add(next: &mut [f32], residual: &[f32], gradient: &[f32], factor: f32) {
    for ((next, v), g) in next.iter_mut().zip(residual).zip(gradient) {
        *next = v + factor * g;
    }
}

/// Computes the next velocity, and the next residual with it.
#[inline(always)]
fn add_with(
    momentum: f32,
    next: &mut [f32],
    residual: &[f32],
    (velocity, next_velocity): (&[f32], &mut [f32]),
    gradient: &[f32],
    factor: f32,
) {
    let velocity = velocity.iter().zip(next_velocity);
    for (((next, v), (u, next_u)), g) in next.iter_mut().zip(residual).zip(velocity).zip(gradient) {
        *next_u = momentum * u + factor * g;
        *next = v + *next_u;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sparse_core::top_k;

    /// The gradient and what comes back, for each entry.
    type Step = Vec<(f32, Option<f32>)>;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let entry = (-9.0..9.0_f32, prop::option::of(-9.0..9.0_f32));
        (0..20_usize)
            .prop_flat_map(move |len| prop::collection::vec(prop::collection::vec(entry.clone(), len), 1..6))
    }

    fn sparse(dense: impl Iterator<Item = Option<f32>> + Clone) -> SparseVec<f32> {
        let dim = dense.clone().count() as u64;
        let (indices, values) = (0..).zip(dense).filter_map(|(i, v)| Some((i, v?))).unzip();
        SparseVec::new(dim, indices, values).unwrap()
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|v| v.to_bits()).collect()
    }

    proptest! {
        #[test]
        fn every_entry_follows_the_recurrence(
            steps in steps(), momentum in prop_oneof![Just(0.0), 0.1..1.0_f32], masking in any::<bool>(),
            factor in 0.1..1.0_f32, cut in 0..20_usize, end in 0..20_usize,
        ) {
            let len = steps[0].len();
            let velocity = vec![0.0; if momentum == 0.0 { 0 } else { len }];
            let mut feedback = Feedback::with(momentum, masking, vec![0.0; len], velocity);
            let buckets = [end.min(len)..len, 0..end.min(len)];
            feedback.part(buckets.iter().cloned());
            let (mut u, mut v) = (vec![0.0; len], vec![0.0; len]);
            for step in &steps {
                let gradient: Vec<f32> = step.iter().map(|(g, ..)| *g).collect();
                for i in 0..len {
                    u[i] = momentum * u[i] + factor * gradient[i];
                    v[i] += u[i];
                }
                for (bucket, entries) in buckets.iter().enumerate() {
                    let (entries, k) = (entries.clone(), entries.len() / 2);
                    let (left, right) = gradient[entries.clone()].split_at(cut.min(entries.len()));
                    let (v, u) = (&mut v[entries.clone()], &mut u[entries.clone()]);
                    let selected = feedback.accumulate(bucket, [left, right], factor, k).unwrap();
                    prop_assert_eq!(&selected, &top_k(v, k).unwrap());
                    selected.indices().iter().for_each(|&i| v[i as usize] = 0.0);
                    prop_assert_eq!(&feedback.next_residual[entries.clone()], &*v);

                    let put_back = sparse(step[entries].iter().map(|(_, back)| *back));
                    for &i in selected.indices().iter().filter(|_| masking) {
                        u[i as usize] = 0.0;
                    }
                    put_back.iter().for_each(|(i, back)| v[i as usize] += back);
                    feedback.settle(bucket, selected, Some(&put_back)).unwrap();
                }
                feedback.commit();
                prop_assert_eq!(feedback.residual(), &v);
                prop_assert_eq!(feedback.velocity(), if momentum == 0.0 { &[] } else { &u[..] });
            }
        }

        #[test]
        fn a_step_without_commit_changes_nothing(steps in steps(), momentum in prop_oneof![Just(0.0), Just(0.9_f32)]) {
            let len = steps[0].len();
            let velocity = vec![0.0; if momentum == 0.0 { 0 } else { len }];
            let mut feedback = Feedback::with(momentum, true, vec![0.0; len], velocity);
            for step in &steps {
                let gradient: Vec<f32> = step.iter().map(|(g, ..)| *g).collect();
                let sent = feedback.accumulate(0, [&gradient[..]], 1.0, 1).unwrap();
                feedback.settle(0, sent, None).unwrap();
                feedback.commit();
                let before = (bits(feedback.residual()), bits(feedback.velocity()));
                let mut again = || {
                    let selected = feedback.accumulate(0, [&gradient[..]], 1.0, len).unwrap();
                    (selected, bits(&feedback.next_residual))
                };
                let once = again();
                prop_assert_eq!(once, again());
                prop_assert_eq!(&before, &(bits(feedback.residual()), bits(feedback.velocity())));
            }
        }
    }
    #[test]
    fn any_number_of_threads_accumulates_the_same() {
        let len = 5 * SHARE + 77;
        // Few different values, so that many tie, and some that are not numbers.
        let gradient = |step: usize| -> Vec<f32> {
            let value = |i: usize| if i % 30_011 == step { f32::NAN } else { (i * 7919 % 101) as f32 };
            (0..len).map(|i| value(i * step) - 50.0).collect()
        };
        for (momentum, threads) in [(0.0, 1), (0.9, 2), (0.9, 3), (0.0, 8), (0.9, 8)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut both = [0; 2].map(|_| Feedback::new(len, momentum, true));
            both.iter_mut().for_each(|feedback| feedback.part([10..len, 0..10].into_iter()));
            for step in 1..5 {
                let gradient = gradient(step);
                for (bucket, entries, k) in [(0, 10..len, 500), (1, 0..10, 3)] {
                    let gradients = || {
                        [entries.start..entries.end / 3 + 5, entries.end / 3 + 5..entries.end]
                            .map(|part| &gradient[part])
                    };
                    let [serial, parallel] = &mut both;
                    let expected = serial.accumulate(bucket, gradients(), 0.5, k).unwrap();
                    let found =
                        pool.install(|| parallel.accumulate_parallel(bucket, gradients(), 0.5, k).unwrap());
                    assert_eq!(
                        (found.indices(), bits(found.values())),
                        (expected.indices(), bits(expected.values()))
                    );
                    assert!(found.nnz() == k);
                    serial.settle(bucket, expected, None).unwrap();
                    parallel.settle(bucket, found, None).unwrap();
                }
                both.iter_mut().for_each(Feedback::commit);
                let [serial, parallel] =
                    both.each_ref().map(|both| (bits(both.residual()), bits(both.velocity())));
                assert!(serial == parallel, "{threads} threads, momentum {momentum}, step {step}");
            }
        }
    }
}
