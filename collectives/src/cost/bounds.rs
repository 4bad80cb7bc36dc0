//! What no algorithm can undercut: bytes that some rank must receive, whatever the order of the messages.
//!
//! They hold for values that do not compress, of which only sums are sent, and count no headers and no check. A
//! support has to be told in at least its entropy: log2 C(N, n) bits for `n` of N positions. The [`time`] of a bound is `alpha + bytes
//! beta`: the first of these bytes arrives after alpha, and they pass through one link.

use super::{Link, Workload};

/// Seconds in which a rank can receive so many bytes; 0 for no bytes.
#[must_use]
pub fn time(bytes: f64, link: &Link) -> f64 {
    if bytes > 0.0 { link.alpha + bytes * link.beta } else { 0.0 }
}

/// A dense sum: `2(P-1)/P N v`.
///
/// Of each value P-1 partial sums must be sent before one rank knows the sum, and P-1 more before all do: that is
/// shared by P ranks.
#[must_use]
pub fn dense(work: &Workload) -> f64 {
    let ranks = work.ranks.max(1) as f64;
    2.0 * (ranks - 1.0) / ranks * work.dim as f64 * work.value as f64
}

/// A sum of sparse vectors that lie as [`Workload::spread`] says, for K entries in the union of all supports and K' in that of P-1:
/// `max(K', k + K(P-2)/P) v`, and the entropy of the K' indices.
///
/// A rank must receive something for each index that another has, K' of them, and learn which these are. And of an index that `c`
/// ranks have, `c - 1` partial sums must be sent before one rank knows the sum and P-1 values more before all do; summed over the union
/// and shared by P ranks, that is `k + K(P-2)/P`. For full supports it is the bound of the dense sum.
#[must_use]
pub fn sparse_sum(work: &Workload) -> f64 {
    if work.ranks < 2 {
        return 0.0;
    }
    let ranks = work.ranks as f64;
    let (union, others) = (work.union(work.ranks), work.union(work.ranks - 1));
    let values = others.max(work.entries as f64 + union * (ranks - 2.0) / ranks);
    values * work.value as f64 + entropy(work.dim as f64, others)
}

/// The exact k largest entries of a sum: `2k(P-1)/P` values, and the entropy of k indices times `(P-1)/P`.
///
/// That is what the worst supports need, those that are the same on all ranks: then it is a dense sum of k values. (The entropy
/// is that of the indices that a rank does not own.) Supports that differ could do with less if it were known which entries
/// will be among the largest. After Li and Hoefler, "Near-optimal sparse allreduce", 2022.
#[must_use]
pub fn exact_topk(work: &Workload) -> f64 {
    let share = (work.ranks.max(1) as f64 - 1.0) / work.ranks.max(1) as f64;
    let entries = work.entries as f64;
    share * (2.0 * entries * work.value as f64 + entropy(work.dim as f64, entries))
}

/// Bytes of the entropy of `count` of `dim` positions: log2 C(dim, count) bits.
#[must_use]
pub fn entropy(dim: f64, count: f64) -> f64 {
    if count <= 0.0 || count >= dim {
        return 0.0;
    }
    let nats = ln_factorial(dim) - ln_factorial(count) - ln_factorial(dim - count);
    nats.max(0.0) / std::f64::consts::LN_2 / 8.0
}

/// ln(n!), by Stirling's series for n + 1 shifted up to where it is exact to 1e-10.
fn ln_factorial(n: f64) -> f64 {
    let (mut x, mut shift) = (n + 1.0, 0.0);
    while x < 16.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}
