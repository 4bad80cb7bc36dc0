//! The thinwire program.

fn main() {}
