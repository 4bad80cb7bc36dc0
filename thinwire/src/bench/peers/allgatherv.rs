use std::time::Instant;

use ::mpi::datatype::PartitionMut;
use ::mpi::traits::{Communicator as _, CommunicatorCollectives as _};
use anyhow::{Context as _, ensure};
use sparse_core::SparseVec;

use crate::bench::contender::{Contender, Lap, Outcome, View};
use crate::mpi::{self, World};

/// An allgather of sparse vectors by MPI and a local sum: what `topk_allgather` does, with MPI's communication.
///
/// The ranks tell each other how much they have (MPI_Allgather), then the entries (MPI_Allgatherv): of each rank the
/// indices, then the bits of the values.
pub(super) struct Allgatherv<'a> {
    world: &'a World,
    input: &'a SparseVec<f32>,
    /// Own words, and those of all ranks one after the other.
    words: Vec<u32>,
    gathered: Vec<u32>,
    counts: Vec<i32>,
    sum: Option<SparseVec<f32>>,
}

impl<'a> Allgatherv<'a> {
    pub(super) fn new(world: &'a World, input: &'a SparseVec<f32>) -> anyhow::Result<Self> {
        let ranks = world.size().unsigned_abs() as usize;
        let words = 2 * input.nnz();
        ensure!(
            i32::try_from(words * ranks).is_ok(),
            "MPI counts the words of all ranks' entries in 31 bits, and {ranks} times {words} are more"
        );
        Ok(Self {
            world,
            input,
            words: Vec::with_capacity(words),
            gathered: vec![0; words * ranks],
            counts: vec![0; ranks],
            sum: None,
        })
    }

    fn allgather(&mut self) -> anyhow::Result<SparseVec<f32>> {
        self.words.clear();
        self.words.extend_from_slice(self.input.indices());
        self.words.extend(self.input.values().iter().map(|value| value.to_bits()));
        let own = i32::try_from(self.words.len())?;
        self.world.all_gather_into(&own, &mut self.counts[..]);

        let mut total = 0_i32;
        let mut starts = Vec::with_capacity(self.counts.len());
        for count in &self.counts {
            starts.push(total);
            total = total.checked_add(*count).context("MPI counts all ranks' words in 31 bits")?;
        }
        self.gathered.resize(usize::try_from(total)?, 0);
        let mut gathered = PartitionMut::new(&mut self.gathered[..], &self.counts[..], starts);
        self.world.all_gather_varcount_into(&self.words[..], &mut gathered);

        let mut rest = &self.gathered[..];
        let mut parts = Vec::with_capacity(self.counts.len());
        for count in &self.counts {
            let (words, after) = rest.split_at(count.unsigned_abs() as usize);
            let (indices, values) = words.split_at(words.len() / 2);
            let values = values.iter().map(|bits| f32::from_bits(*bits)).collect();
            parts.push(SparseVec::new(self.input.dim(), indices.to_vec(), values)?);
            rest = after;
        }
        Ok(sparse_core::reduce(&parts)?)
    }
}

impl Contender for Allgatherv<'_> {
    fn name(&self) -> &str {
        "mpi_allgatherv_topk"
    }

    fn is_dense(&self) -> bool {
        false
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn prepare(&mut self) {
        self.sum = None;
    }

    fn run(&mut self) -> anyhow::Result<Lap> {
        let begun = Instant::now();
        self.sum = Some(self.allgather()?);
        Ok(Lap { elapsed: begun.elapsed(), traffic: None })
    }

    fn progress(&self) -> bool {
        mpi::progress(self.world);
        true
    }

    fn outcome(&self) -> anyhow::Result<Outcome<'_>> {
        Ok(Outcome::Sum(View::Sparse(self.sum.as_ref().context("nothing has been summed yet")?)))
    }
}
