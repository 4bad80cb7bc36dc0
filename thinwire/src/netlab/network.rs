//! The hosts, the bridge between them, and the token buckets on their links.
//!
//! A packet passes two buckets, that of its sender's link and that of its receiver's, each with tokens for
//! [`BURST_SECONDS`] at the link's rate: so much passes at once after a pause. Packets are handed over in groups of
//! up to half of that, as a network card does, since two at a time would cost more of the processor than the
//! emulation is worth.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::owner::{self, Owner};
use super::tools::batch;
use crate::rate::Rate;

/// For how long a bucket that is full lets through what comes.
///
/// Less than a timer on a busy machine may be late by would lose throughput; more would make short messages faster than
/// the link.
const BURST_SECONDS: f64 = 0.0005;
/// The longest packet, with its Ethernet header; a bucket must have room for two.
const PACKET: u64 = 1514;
/// The most that is handed over at once, whatever the rate: the kernel's own limit.
const MAX_GROUP: u64 = 65_536;
/// How many bytes wait at a link before more are dropped: what ports of switches of this speed have.
const QUEUE: u64 = 1 << 20;

/// A network of hosts, taken down when it is dropped.
#[derive(Debug)]
pub(super) struct Network {
    owner: Owner,
    /// What was made, in turn.
    namespaces: Vec<String>,
}

impl Network {
    /// Makes as many hosts, each linked at this rate.
    pub(super) fn new(hosts: usize, rate: Rate) -> anyhow::Result<Self> {
        let mut network = Self { owner: Owner::this()?, namespaces: Vec::new() };
        let switch = network.add("switch")?;
        batch("ip", Some(&switch), SWITCH)?;
        let (mut ports, mut shaped) = (String::new(), String::new());
        for host in 0..hosts {
            let namespace = network.add(&host.to_string())?;
            let port = format!("host{host}");
            let _ = writeln!(ports, "link add name {port} type veth peer name eth0 netns {namespace}");
            ports.push_str(&end_of_link(&port, rate, "master switch"));
            shaped.push_str(&bucket(&port, rate));
        }
        batch("ip", Some(&switch), &ports)?;
        batch("tc", Some(&switch), &shaped)?;
        for host in 0..hosts {
            let link = end_of_link("eth0", rate, "");
            let addresses = format!("address add {}/16 dev eth0\nlink set dev lo up\n", address(host));
            let namespace = network.namespace(host);
            batch("ip", Some(&namespace), &format!("{link}{addresses}"))?;
            batch("tc", Some(&namespace), &bucket("eth0", rate))?;
        }
        Ok(network)
    }

    /// The namespace of a host.
    pub(super) fn namespace(&self, host: usize) -> String {
        self.owner.name(&host.to_string())
    }

    fn add(&mut self, part: &str) -> anyhow::Result<String> {
        let name = self.owner.name(part);
        // Before it is made: if that fails half way, it is removed all the same.
        self.namespaces.push(name.clone());
        batch("ip", None, &format!("netns add {name}\n"))?;
        Ok(name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            if let Err(error) = owner::remove(namespace) {
                eprintln!("thinwire: warning: the namespace {namespace} is left: {error:#}");
            }
        }
    }
}

/// Where a host is. All labs have the same addresses, each in a network of its own.
pub(super) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 77, 0, 1).to_bits() + host as u32)
}

/// Forwards from the start, and sends nothing of its own.
const SWITCH: &str = "link add name switch type bridge stp_state 0 mcast_snooping 0\n\
                      link set dev switch addrgenmode none up\n";

fn end_of_link(device: &str, rate: Rate, more: &str) -> String {
    let group = (burst(rate) / 2).min(MAX_GROUP);
    format!("link set dev {device} gso_max_size {group}\nlink set dev {device} addrgenmode none {more} up\n")
}

fn bucket(device: &str, rate: Rate) -> String {
    format!("qdisc add dev {device} root tbf rate {rate} burst {}b limit {QUEUE}b\n", burst(rate))
}

/// How many bytes a bucket holds.
fn burst(rate: Rate) -> u64 {
    rate.bytes_in(BURST_SECONDS).max(2 * PACKET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_addresses_of_their_own() {
        assert_eq!(address(0).to_string(), "10.77.0.1");
        assert_eq!(address(255).to_string(), "10.77.1.0");
    }

    #[test]
    fn a_bucket_holds_half_a_millisecond_and_two_packets_at_least() {
        let burst = |rate: &str| burst(rate.parse().unwrap());
        assert_eq!([burst("1gbit"), burst("100mbit"), burst("10mbit")], [62_500, 6_250, 3028]);
    }
}
