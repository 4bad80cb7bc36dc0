//! Starting processes, watching them, and ending them.

pub(crate) mod children;
pub(crate) mod launch;
pub(crate) mod shown;
pub(crate) mod starter;
pub(crate) mod watch;
