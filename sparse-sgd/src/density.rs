use crate::Error;

/// Which share of the entries a step selects, from 0 (exclusive) to 1, as a function of the step.
///
/// Early in training gradients change fast, and a residual that waits for long is stale when it is
/// sent. A warm-up therefore starts dense and lowers the density exponentially, as in *Deep Gradient
/// Compression* (Lin et al., 2018).
///
/// The same step gives the same bits on every machine, so all ranks select the same number of entries:
/// no function of the platform's mathematics library is used.
///
/// ```
/// use sparse_sgd::DensitySchedule;
///
/// // From 25 % to 0.1 % over 1000 steps, then constant.
/// let schedule = DensitySchedule::warm_up(0.001, 1000)?;
/// assert_eq!(schedule.density(0), 0.25);
/// assert!((schedule.density(500) - 0.0158).abs() < 1e-4); // the geometric mean
/// assert_eq!(schedule.density(1000), 0.001);
/// # Ok::<(), sparse_sgd::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DensitySchedule {
    start: f64,
    last: f64,
    steps: u64,
}

impl DensitySchedule {
    /// Where [`DensitySchedule::warm_up`] starts: 25 %, the first stage of Deep Gradient Compression.
    pub const WARM_UP_START: f64 = 0.25;

    /// The same density at every step.
    ///
    /// # Errors
    /// [`Error::Density`] if it is not in (0, 1].
    pub fn constant(density: f64) -> Result<Self, Error> {
        Self::warm_up_from(density, density, 0)
    }

    /// From [`WARM_UP_START`](Self::WARM_UP_START) down to `density` over `steps` steps; constant if
    /// `density` is above that start.
    ///
    /// # Errors
    /// [`Error::Density`] if it is not in (0, 1].
    pub fn warm_up(density: f64, steps: u64) -> Result<Self, Error> {
        // `max` would turn a NaN into the start.
        let start = if density > Self::WARM_UP_START { density } else { Self::WARM_UP_START };
        Self::warm_up_from(start, density, steps)
    }

    /// From `start` at step 0 to `density` at step `steps`, by the same factor at each step, and
    /// constant from then on.
    ///
    /// # Errors
    /// [`Error::Density`] if one of them is not in (0, 1].
    pub fn warm_up_from(start: f64, density: f64, steps: u64) -> Result<Self, Error> {
        for given in [start, density] {
            if !(given > 0.0 && given <= 1.0) {
                return Err(Error::Density { given });
            }
        }
        Ok(Self { start, last: density, steps })
    }

    /// The density of a step, counted from 0.
    #[must_use]
    pub fn density(&self, step: u64) -> f64 {
        if step >= self.steps {
            return self.last;
        }
        let (low, high) =
            if self.start < self.last { (self.start, self.last) } else { (self.last, self.start) };
        // Clamped, because the rounding of the power must not leave the interval.
        (self.start * power(self.last / self.start, step as f64 / self.steps as f64)).clamp(low, high)
    }

    /// How many of `entries` a step selects: the nearest whole number to `entries` times its density,
    /// at least 1, at most `entries` (so 0 of 0).
    #[must_use]
    pub fn selected(&self, step: u64, entries: usize) -> usize {
        let wanted = (entries as f64 * self.density(step)).round() as usize;
        wanted.max(1).min(entries)
    }

    /// The density once the warm-up is over.
    #[must_use]
    pub const fn final_density(&self) -> f64 {
        self.last
    }

    /// The number of steps after which the density is constant.
    #[must_use]
    pub const fn warm_up_steps(&self) -> u64 {
        self.steps
    }
}

/// `base` to the power of `exponent` in [0, 1), by square roots for the exponent's binary digits.
///
/// Unlike `powf`, whose last bits depend on the platform, this uses only operations that IEEE 754 rounds
/// correctly. Stops when the root is 1 or the exponent's 53 bits are used up.
fn power(base: f64, exponent: f64) -> f64 {
    let (mut root, mut rest, mut result) = (base, exponent, 1.0);
    while rest > 0.0 && root != 1.0 {
        root = root.sqrt();
        rest *= 2.0;
        if rest >= 1.0 {
            rest -= 1.0;
            result *= root;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn power_is_the_power(base in 1e-9..1e9_f64, exponent in 0.0..1.0_f64) {
            let oracle = base.powf(exponent);
            prop_assert!((power(base, exponent) - oracle).abs() <= 1e-13 * oracle);
        }

        #[test]
        fn warm_up_falls_by_the_same_factor_at_each_step(
            start in 0.01..=1.0_f64, share in 0.001..=1.0_f64, steps in 1..2000_u64
        ) {
            let schedule = DensitySchedule::warm_up_from(start, start * share, steps).unwrap();
            prop_assert_eq!(schedule.density(0), start);
            prop_assert_eq!(schedule.density(steps), start * share);
            prop_assert_eq!(schedule.density(u64::MAX), start * share);
            let factor = share.powf(1.0 / steps as f64);
            for step in 0..steps {
                let ratio = schedule.density(step + 1) / schedule.density(step);
                prop_assert!((ratio - factor).abs() < 1e-12, "step {}: {} is not {}", step, ratio, factor);
            }
        }

        #[test]
        fn selected_is_the_nearest_count_and_never_none_of_some(
            entries in 1..100_000_000_usize, density in 1e-9..=1.0_f64
        ) {
            let selected = DensitySchedule::constant(density).unwrap().selected(7, entries);
            prop_assert!((1..=entries).contains(&selected));
            prop_assert!(selected == 1 || (selected as f64 - entries as f64 * density).abs() <= 0.5);
        }
    }

    #[test]
    fn selected_takes_all_at_density_one_and_none_of_nothing() {
        let all = DensitySchedule::constant(1.0).unwrap();
        for entries in [0, 1, 2, 1000, 1 << 32] {
            assert_eq!(all.selected(0, entries), entries);
        }
        let few = DensitySchedule::constant(0.01).unwrap();
        assert_eq!([0, 1, 49, 149, 150, 1000].map(|n| few.selected(0, n)), [0, 1, 1, 1, 2, 10]);
    }

    #[test]
    fn warm_up_has_the_stages_of_the_paper() {
        // 25 %, 6.25 %, 1.5625 %, 0.4 %, 0.1 % of Deep Gradient Compression: a factor of 4 an epoch.
        let schedule = DensitySchedule::warm_up(1.0 / 1024.0, 4).unwrap();
        for (epoch, stage) in [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.000_976_562_5].into_iter().enumerate()
        {
            assert!((schedule.density(epoch as u64) - stage).abs() < 1e-15);
        }
    }

    #[test]
    fn warm_up_to_more_than_its_start_is_constant() {
        let schedule = DensitySchedule::warm_up(0.5, 100).unwrap();
        assert_eq!([0, 50, 100].map(|step| schedule.density(step)), [0.5; 3]);
    }

    #[test]
    fn densities_outside_zero_to_one_are_refused() {
        for bad in [0.0, -0.0, -0.1, 1.000_001, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for result in [
                DensitySchedule::constant(bad),
                DensitySchedule::warm_up(bad, 10),
                DensitySchedule::warm_up_from(bad, 0.5, 10),
                DensitySchedule::warm_up_from(0.5, bad, 10),
            ] {
                assert_eq!(result.unwrap_err().kind(), ErrorKind::Density);
            }
        }
        let message = DensitySchedule::constant(1.5).unwrap_err().to_string();
        assert_eq!(message, "density 1.5 is not in (0, 1]");
    }
}
