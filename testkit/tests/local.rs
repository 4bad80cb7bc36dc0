//! The in-process back end keeps the contract, with its own window and with none.

use testkit::{LocalTransport, local_world, local_world_with_window};
use transport::Transport;

#[allow(clippy::needless_pass_by_value, reason = "the suite hands the handle over")]
fn kill(transport: LocalTransport) {
    transport.kill(transport.rank());
}

testkit::conformance_suite!(in_process, local_world, kill = kill);
testkit::conformance_suite!(without_a_window, |size| local_world_with_window(size, 0));
