//! Error feedback with momentum correction: what a rank has not sent yet, and how that grows.
//!
//! From *Deep Gradient Compression* (Lin et al., 2018). With gradient g, momentum m, velocity u and
//! residual v, a step does u = m u + g, v = v + u, sends the largest entries of v, and clears v where it
//! was sent; with masking, u too.

use std::ops::Range;

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

/// Entries that are computed, and then looked at for large ones while they are in the cache.
const PART: usize = 1024;

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

    /// Adds `factor` times the gradients of a bucket, end to end, to what was not sent yet, and returns the `k` largest
    /// entries of the result. One pass over everything.
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
        let Selected { entries, mut selection, mut used } = std::mem::take(&mut self.buckets[bucket]);
        selection.start(entries.len(), k);
        let (mut parts, mut at) =
            (gradients.into_iter().flat_map(|gradient| gradient.chunks(PART)).peekable(), entries.start);
        while let Some(gradient) = parts.next() {
            let range = at..at + gradient.len();
            at = range.end;
            self.add(range.clone(), gradient, factor);
            let next = parts.peek().copied().unwrap_or_default();
            let state = [&self.residual, &self.next_residual, &self.velocity, &self.next_velocity];
            let [v, next_v, u, next_u] = state.map(|s| s.get(at..at + next.len()).unwrap_or_default());
            selection.see_before(&self.next_residual[range], &[next, v, next_v, u, next_u]);
        }
        let found = selection.finish_into(&self.next_residual[entries.clone()], &mut used);
        self.buckets[bucket] = Selected { entries, selection, used: SparseVec::default() };
        found.map(|()| used)
    }

    fn add(&mut self, range: Range<usize>, gradient: &[f32], factor: f32) {
        let momentum = self.momentum;
        let residual = self.residual[range.clone()].iter();
        let next = self.next_residual[range.clone()].iter_mut();
        if self.velocity.is_empty() {
            for ((next, v), g) in next.zip(residual).zip(gradient) {
                *next = v + factor * g;
            }
        } else {
            let velocity = self.velocity[range.clone()].iter().zip(&mut self.next_velocity[range]);
            for (((next, v), (u, next_u)), g) in next.zip(residual).zip(velocity).zip(gradient) {
                *next_u = momentum * u + factor * g;
                *next = v + *next_u;
            }
        }
    }

    /// Clears what was sent of a bucket, and takes back what came back. Work only on those entries.
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
        let residual = &mut self.next_residual[entries.clone()];
        clear(residual, &sent)?;
        if self.masking && !self.next_velocity.is_empty() {
            clear(&mut self.next_velocity[entries.clone()], &sent)?;
        }
        put_back.map_or(Ok(()), |put_back| scatter_add(residual, put_back))?;
        *used = sent;
        Ok(())
    }

    /// Makes what was accumulated, and settled in all buckets, the current state.
    pub fn commit(&mut self) {
        std::mem::swap(&mut self.residual, &mut self.next_residual);
        std::mem::swap(&mut self.velocity, &mut self.next_velocity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sparse_core::top_k;

    /// Gradient and, for each entry, whether it is sent and what comes back there.
    type Step = Vec<(f32, bool, Option<f32>)>;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let entry = (-9.0..9.0_f32, any::<bool>(), prop::option::of(-9.0..9.0_f32));
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
                    let selected = feedback.accumulate(bucket, [left, right], factor, k).unwrap();
                    prop_assert_eq!(&feedback.next_residual[entries.clone()], &v[entries.clone()]);
                    prop_assert_eq!(selected, top_k(&v[entries.clone()], k).unwrap());

                    let (step, v) = (&step[entries.clone()], &v[entries]);
                    let sent = sparse(step.iter().zip(v).map(|((_, sent, _), v)| sent.then_some(*v)));
                    let put_back = sparse(step.iter().map(|(.., back)| *back));
                    feedback.settle(bucket, sent, Some(&put_back)).unwrap();
                }
                feedback.commit();
                for (i, (_, sent, back)) in step.iter().enumerate() {
                    if *sent {
                        v[i] = 0.0;
                        u[i] = if masking { 0.0 } else { u[i] };
                    }
                    v[i] += back.unwrap_or(0.0);
                }
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
                feedback.accumulate(0, [&gradient[..]], 1.0, 1).unwrap();
                feedback.settle(0, sparse(step.iter().map(|_| None)), None).unwrap();
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
}
