//! What MPI itself makes of the same sum.
//!
//! Nothing of a transport over MPI moves while a collective of MPI keeps the thread, and nothing of MPI while one over
//! TCP does, even what others still wait for when the call has returned here. So one begins where the other has ended
//! on every rank ([`super::measure`]).

mod allgatherv;
mod allreduce;

use collectives::Communicator;
use sparse_core::SparseVec;
use transport::AnyTransport;

use super::contender::Contender;
use crate::error::{Error, When as _};
use crate::mpi::World;
use crate::mpi::tuned::Algorithms;
use crate::ranks;

use allgatherv::Allgatherv;
use allreduce::Allreduce;

/// Has one peer after the other measured. Every rank calls this alike.
///
/// Returns what is to be said about those that are missing.
pub(super) fn each(
    world: &World,
    communicator: &Communicator<AnyTransport>,
    input: &SparseVec<f32>,
    measure: &mut dyn FnMut(&mut dyn Contender) -> Result<(), Error>,
) -> Result<Option<String>, Error> {
    let found = Algorithms::find();
    let choices = found.as_ref().map(|algorithms| algorithms.choices.as_slice()).unwrap_or_default();
    let names: Vec<_> = choices.iter().map(|(_, name)| name.as_str()).collect();
    ranks::agree(communicator, format!("the algorithms of MPI: {}", names.join(", ")))?;

    measure(&mut Allreduce::new("default", world, input))?;
    if let Ok(algorithms) = &found {
        for (item, name) in choices {
            let own = algorithms.communicator(world, *item).map_err(anyhow::Error::msg).run()?;
            measure(&mut Allreduce::new(name, &own, input))?;
        }
    }
    measure(&mut Allgatherv::new(world, input).run()?)?;
    Ok(found
        .err()
        .map(|reason| format!("MPI_Allreduce was measured with its default algorithm only: {reason}")))
}
