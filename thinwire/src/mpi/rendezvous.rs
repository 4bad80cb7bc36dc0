//! Where ranks that mpirun has started meet over TCP: rank 0 listens, and tells the others where by MPI.

use std::env;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ::mpi::traits::{Communicator as _, Root as _};
use anyhow::{Context as _, ensure};
use bootstrap::{Config, DEFAULT_TIMEOUT, Method, Secret};
use serde::{Deserialize, Serialize};
use transport::Rank;

use super::World;
use crate::error::{Error, When as _};
use crate::process::starter;

/// Rank 0's variable for the name or address of its host in the network to be used.
const HOST: &str = "MASTER_ADDR";

/// What rank 0 tells the others.
#[derive(Serialize, Deserialize)]
struct Invitation {
    host: String,
    port: u16,
    secret: String,
}

/// How this rank finds the others. Every rank calls this.
pub(super) fn config(world: &World, timeout: Option<Duration>) -> Result<Config, Error> {
    let (rank, world_size) = (world.rank(), world.size());
    let one_host = world.split_shared(rank).size() == world_size;
    let listener = if rank == 0 { Some(listen(one_host).setup()?) } else { None };
    let own = listener.as_ref().map(invite).transpose()?;
    let Invitation { host, port, secret } = broadcast(world, own).setup()?;
    let method =
        listener.map_or(Method::Master { host, port }, |listener| Method::Listener(Arc::new(listener)));
    let mut config = Config::new(Rank(rank.unsigned_abs()), world_size.unsigned_abs() as usize, method);
    config.timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
    config.secret = Some(Secret::new(secret).setup()?);
    Ok(config)
}

/// Listens where the other ranks can reach this one.
fn listen(one_host: bool) -> anyhow::Result<TcpListener> {
    let host = match env::var(HOST) {
        Ok(host) => host,
        Err(_) if one_host => "127.0.0.1".into(),
        Err(_) => ::mpi::environment::processor_name().context("the name of this host")?,
    };
    let cannot =
        || format!("rank 0 cannot listen on {host}: {HOST} says where else, as in mpirun -x {HOST}=..");
    let listener = TcpListener::bind((host.as_str(), 0)).with_context(cannot)?;
    let address = listener.local_addr()?.ip();
    ensure!(
        one_host || !address.is_loopback(),
        "the ranks are on several hosts, and {host} is {address} on that of rank 0, where others cannot connect to: \
         set {HOST} to its address in their network, as in mpirun -x {HOST}=.."
    );
    Ok(listener)
}

fn invite(listener: &TcpListener) -> Result<Invitation, Error> {
    let address = listener.local_addr().setup()?;
    Ok(Invitation { host: address.ip().to_string(), port: address.port(), secret: starter::secret()? })
}

/// Gives every rank what rank 0 has.
fn broadcast(world: &World, own: Option<Invitation>) -> anyhow::Result<Invitation> {
    let root = world.process_at_rank(0);
    let mut bytes = own.map(|invitation| serde_json::to_vec(&invitation)).transpose()?.unwrap_or_default();
    let mut length = bytes.len();
    root.broadcast_into(&mut length);
    bytes.resize(length, 0);
    root.broadcast_into(&mut bytes[..]);
    serde_json::from_slice(&bytes).context("rank 0 sent no address to meet at")
}
