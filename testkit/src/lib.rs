//! The in-process back end for collectives, and what tests them.
//!
//! - [`local_world`]: an in-process world, also fit for applications; [`run_world`]: a thread per rank.
//! - [`Mailbox`]: the matching engine behind it, for other back ends.

#![forbid(unsafe_code)]

pub mod conformance;
mod counted;
pub mod faults;
mod local;
mod mailbox;
pub mod oracle;
mod random;
mod run_world;
pub mod strategies;
pub mod support;
mod timer;

pub use counted::{Counted, Counts};
pub use local::{DEFAULT_WINDOW, LocalTransport, local_world, local_world_with_window};
pub use mailbox::{MESSAGE_COST, Mailbox, Receiving, Sending};
pub use run_world::{run_world, run_world_within};
pub use timer::Sleep;

/// What the macros name.
#[doc(hidden)]
pub mod __private {
    pub use transport::Transport;
}
