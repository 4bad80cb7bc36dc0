//! Barrier by dissemination.

use std::future::Future;

use transport::Transport;

use crate::call::{Call, Operation};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::in_flight::Check;

impl<T: Transport> Communicator<T> {
    /// Returns once every rank has called it. Dissemination: `ceil(log2 P) alpha`.
    ///
    /// # Errors
    /// What every operation can meet.
    pub fn barrier(&self) -> impl Future<Output = Result<(), Error>> + Send {
        let begun = self.begin(Call::plain(Operation::Barrier, 0));
        async move {
            let operation = begun?;
            // The check that every rank made the same call is a barrier.
            let result = operation.drive(Check::Everyone, std::future::ready(Ok(()))).await;
            operation.finish(result)
        }
    }
}
