//! The contract's laws, over the loopback interface.

mod common;

testkit::conformance_suite!(ipv4, common::world);
