//! The world that mpirun has started.

use crate::error::Error;
use crate::ranks::Entrance;

/// Does this rank's work in the world of MPI, which has to have as many ranks as the user asked for, if he did.
///
/// When the work fails, the whole world is ended, with the error's exit code: the others may wait for this rank where
/// nothing tells them that it is gone.
#[cfg(feature = "mpi")]
pub(crate) fn enter<R>(
    option: &str,
    asked: Option<usize>,
    work: impl FnOnce(Entrance<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    use ::mpi::traits::Communicator as _;
    use transport::{AnyTransport, Rank};
    use transport_mpi::{MpiTransport, Options};

    use crate::error::When as _;

    let universe = ::mpi::initialize().ok_or_else(|| Error::setup("MPI is initialised already"))?;
    let communicator = universe.world();
    let (rank, world_size) =
        (communicator.rank().unsigned_abs(), communicator.size().unsigned_abs() as usize);
    let work = || {
        if let Some(ranks) = asked.filter(|ranks| *ranks != world_size) {
            return Err(Error::setup(format!(
                "{option} {ranks} contradicts mpirun, which has started {world_size}: leave one of them out"
            )));
        }
        let connect =
            &mut || Ok(AnyTransport::new(MpiTransport::new(&communicator, &Options::default()).setup()?));
        work(Entrance { rank: Rank(rank), world_size, connect })
    };
    let result = work();
    if let Err(error) = &result
        && world_size > 1
    {
        crate::complain(error);
        communicator.abort(i32::from(error.exit_code()));
    }
    result
}

/// Without the feature there is no MPI.
#[cfg(not(feature = "mpi"))]
pub(crate) fn enter<R>(
    _option: &str,
    _asked: Option<usize>,
    _work: impl FnOnce(Entrance<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    Err(Error::setup(
        "this program was built without MPI: build it with `cargo build --release --features mpi`, on a machine with \
         an MPI (mpicc) and libclang",
    ))
}
