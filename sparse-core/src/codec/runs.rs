//! Runs of neighbours: how many there are, in 4 bytes, then where each starts and ends, by Elias-Fano.
//!
//! Where a run ends no other starts, so these positions increase strictly as indices do. Best for whole rows of a
//! matrix, whatever their length.

use super::elias_fano::{self, Shape, wrong_count};
use crate::Error;

/// Bytes before the ends.
const HEADER: usize = 4;

/// The bytes for so many runs.
pub(super) fn len(dim: u64, runs: usize) -> usize {
    HEADER + if runs == 0 { 0 } else { Shape::new(dim + 1, 2 * runs).len(2 * runs) }
}

/// Writes to the start of `out`, which is all 0 and longer than needed by `SLACK`.
pub(super) fn write(dim: u64, indices: &[u32], base: u32, runs: usize, out: &mut [u8]) {
    let (count, rest) = out.split_at_mut(HEADER);
    count.copy_from_slice(&(runs as u32).to_le_bytes());
    if runs > 0 {
        // An end at 2^32 wraps to 0 here, and back when its place is subtracted.
        let mut ends = Vec::with_capacity(2 * runs);
        for run in indices.chunk_by(|&before, &index| before.wrapping_add(1) == index) {
            ends.extend([run[0], run[run.len() - 1].wrapping_add(1)]);
        }
        elias_fano::write(Shape::new(dim + 1, 2 * runs), &ends, base, rest);
    }
}

/// Where the runs start and end, checked: between those are `count` positions.
pub(super) fn read_ends(bytes: &[u8], dim: u64, count: usize) -> Result<Vec<u32>, Error> {
    let Some((runs, bytes)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(Error::malformed("coded indices: runs without their number"));
    };
    let runs = u32::from_le_bytes(*runs) as usize;
    // Each end takes a bit at least: the allocation is bounded by the bytes.
    if runs > count || runs > bytes.len() * 4 || 2 * runs as u64 > dim + 1 || (runs == 0) != bytes.is_empty()
    {
        return Err(Error::malformed(format!("coded indices: {runs} runs in {} bytes", bytes.len())));
    }
    let mut ends = Vec::new();
    if runs > 0 {
        elias_fano::read(Shape::new(dim + 1, 2 * runs), bytes, 2 * runs, 0, &mut ends)?;
    }
    let found: u64 = ends.as_chunks().0.iter().map(|&[start, end]| u64::from(end.wrapping_sub(start))).sum();
    if found == count as u64 { Ok(ends) } else { Err(wrong_count()) }
}

/// Appends the positions in all runs, each and `base`.
pub(super) fn expand(ends: &[u32], base: u32, out: &mut Vec<u32>) {
    for &[start, end] in ends.as_chunks().0 {
        out.extend((0..end.wrapping_sub(start)).map(|i| start.wrapping_add(base).wrapping_add(i)));
    }
}
