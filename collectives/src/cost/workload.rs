/// What is to be summed: `entries` of `dim` values on each of `ranks` ranks.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Workload {
    /// P, how many ranks take part.
    pub ranks: usize,
    /// N, how many positions a vector has.
    pub dim: u64,
    /// k, how many of them have an entry on one rank; at most `dim`.
    pub entries: u64,
    /// v, the bytes of a value.
    pub value: usize,
    /// Among how many positions the ranks' entries lie, uniformly and independently: `dim` if nothing is known,
    /// `entries` if all ranks have the same support, infinity if no two share an index.
    pub spread: f64,
}

impl Workload {
    /// Supports that lie uniformly. `entries` is cut down to `dim`.
    #[must_use]
    pub const fn uniform(ranks: usize, dim: u64, entries: u64, value: usize) -> Self {
        let entries = if entries < dim { entries } else { dim };
        Self { ranks, dim, entries, value, spread: dim as f64 }
    }

    /// With a union of so many entries over all ranks, as it was measured: between `entries` and `ranks` times that.
    #[must_use]
    pub fn with_union(mut self, union: f64) -> Self {
        let (least, most) = (self.entries as f64, self.entries as f64 * self.ranks as f64);
        self.spread = if union <= least {
            least
        } else if union >= most {
            f64::INFINITY
        } else {
            // The union grows with the spread, which is found by halving what it may be.
            let (mut low, mut high) = (least, least.max(1.0));
            let union_of = |spread| Self { spread, ..self }.union(self.ranks);
            while union_of(high) < union && high < 1e300 {
                high *= 2.0;
            }
            for _ in 0..60 {
                let middle = low.midpoint(high);
                if union_of(middle) < union { low = middle } else { high = middle }
            }
            high
        };
        self
    }

    /// E\[K\] of this many ranks: `M (1 - (1 - k/M)^ranks)` entries, with M the [spread](Self::spread), at most N.
    #[must_use]
    pub fn union(&self, ranks: usize) -> f64 {
        let (entries, ranks) = (self.entries as f64, ranks as f64);
        let union = if entries == 0.0 || self.spread <= entries {
            entries
        } else if self.spread.is_infinite() {
            ranks * entries
        } else {
            // By logarithms, which are exact where k/M is tiny.
            -self.spread * (ranks * (-entries / self.spread).ln_1p()).exp_m1()
        };
        union.min(self.dim as f64)
    }
}
