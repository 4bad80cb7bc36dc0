//! The thinwire program, as a library so that tests can use its parts.
//!
//! `thinwire train` trains real models with several workers and compares how their gradients travel;
//! `thinwire bench` measures the sums alone, and `thinwire sim` simulates them over thousands of ranks; `thinwire launch`
//! starts a command once a rank, and `thinwire netlab` once a host of an emulated network. Everything else is behind
//! [`main`]; see `thinwire --help`.

#![cfg_attr(not(feature = "mpi"), forbid(unsafe_code))]
#![cfg_attr(feature = "mpi", deny(unsafe_code))]

mod algorithm;
mod bench;
mod cli;
pub mod data;
mod error;
mod mpi;
mod netlab;
mod output;
mod plan;
mod process;
mod ranks;
mod rate;
mod sim;
mod tasks;
mod train;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

pub use error::{Error, ErrorKind};

use crate::cli::{Bench, Cli, Command};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    // Warnings of the libraries; THINWIRE_LOG shows more or less.
    let filter = EnvFilter::try_from_env("THINWIRE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn run() -> Result<(), Error> {
    let command = Cli::parse().command;
    let command = match command {
        Some(command) => command,
        None => match Cli::try_parse_from(["thinwire", "train"]).map(|cli| cli.command) {
            Ok(Some(command)) => command,
            Ok(None) => return Ok(()),
            Err(error) => error.exit(),
        },
    };
    match command {
        Command::Train(args) => train::train(&args),
        Command::Bench(Bench::Allreduce(args)) => bench::allreduce(&args),
        Command::Bench(Bench::Overlap(args)) => bench::overlap(&args),
        Command::Bench(Bench::Kernels(args)) => bench::kernels(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Launch(args) => process::launch::launch(&args),
        Command::Netlab(args) => netlab::netlab(&args),
    }
}

/// Says why the program stops, as its last words.
fn complain(error: &Error) {
    let mut stderr = std::io::stderr().lock();
    let _ = match error {
        Error::Child { report, .. } => {
            // A worker that was ended may have left its progress bar in this line.
            let line = if stderr.is_terminal() { "\n" } else { "" };
            stderr.write_all(line.as_bytes()).and_then(|()| stderr.write_all(report))
        }
        Error::Interrupted { .. } => Ok(()),
        _ => writeln!(stderr, "thinwire: error: {error}"),
    };
}
