//! The thinwire program; see its `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    thinwire::main()
}
