//! `thinwire launch`.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use anyhow::Context as _;

use crate::cli::LaunchArgs;
use crate::error::{Error, When as _};
use crate::process::shown::Shown;
use crate::process::starter::world;

/// Starts the command once a rank, shows what the ranks print, and ends them all when one fails.
pub(crate) fn launch(args: &LaunchArgs) -> Result<(), Error> {
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Error::setup("there is no command to start"));
    };
    let port = match args.master_port {
        Some(port) => port,
        None => free_port().context("no port is free").setup()?,
    };
    let mut ranks = Shown::new()?;
    for rank in 0..args.workers {
        let mut command = Command::new(program);
        command.args(arguments).envs(world(rank, args.workers, "127.0.0.1", port));
        let context = || format!("cannot start {}", program.display());
        ranks.spawn(&mut command).with_context(context).setup()?;
    }
    ranks.wait("rank")
}

/// A port that was free a moment ago. The command has to bind it itself, so it cannot be kept.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
