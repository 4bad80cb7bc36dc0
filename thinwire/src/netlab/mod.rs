//! `thinwire netlab`: a command on every host of an emulated network.
//!
//! A host is a network namespace, its link a veth pair to a bridge, and the link's rate a token bucket at each end. The
//! bridge has a namespace of its own, so nothing is added to that of the machine: its addresses, routes, firewall and
//! bridge settings are never touched, and labs never meet. See [`network`].

mod network;
mod owner;
mod tools;

use std::process::Command;

use anyhow::Context as _;

use crate::cli::NetlabArgs;
use crate::error::{Error, When as _};
use crate::process::shown::Shown;
use crate::process::starter::{NOT_INHERITED, world};

use network::{Link, Network, address};

/// Where rank 0 listens: in a network of its own every port is free.
const PORT: u16 = 29_500;

/// Makes the network, runs the command on every host, and takes the network down again.
pub(crate) fn netlab(args: &NetlabArgs) -> Result<(), Error> {
    tools::check().run()?;
    // First, so that a signal cannot end this process while the network is there.
    let mut hosts = Shown::new()?;
    owner::sweep().context("cannot clear what a killed netlab left").run()?;
    let network = Network::new(args.hosts, Link { rate: args.rate, burst: args.burst }).run()?;
    let master = address(0).to_string();
    for host in 0..args.hosts {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &network.namespace(host)]).args(&args.command);
        NOT_INHERITED.iter().for_each(|name| _ = command.env_remove(name));
        command.envs(world(host, args.hosts, &master, PORT));
        // A machine of its own.
        command.envs([("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")]);
        hosts.spawn(&mut command).with_context(|| format!("cannot start host {host}")).run()?;
    }
    match hosts.wait("host") {
        Err(Error::Child { report, .. }) => Err(Error::Child { code: 1, report }),
        outcome => outcome,
    }
}
