//! The hosts, the bridge between them, and the token buckets on their links.
//!
//! A packet passes two buckets, that of its sender's link and that of its receiver's, each with tokens for a burst at the
//! link's rate: so much passes at once after a pause. Packets are handed over in groups of up to half of that, as a
//! network card does: the kernel sets a timer for each group and wakes the processor, and what is late by less than a group
//! takes is caught up.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::owner::{self, Owner};
use super::tools::batch;
use crate::rate::Rate;

/// The longest packet, with its Ethernet header; a bucket must have room for two.
const PACKET: u64 = 1514;
/// The most that is handed over at once, whatever the rate: the kernel's own limit.
const MAX_GROUP: u64 = 65_536;
/// The most bytes that `tc` takes for a bucket are some more.
const MAX_TOKENS: u64 = 1 << 30;
/// How many bytes wait at a link before more are dropped: what ports of switches of this speed have.
const QUEUE: u64 = 1 << 20;

/// A link of a host, either way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) rate: Rate,
    /// For how long a bucket that is full lets through what comes.
    pub(super) burst: Duration,
}

/// A network of hosts, taken down when it is dropped.
#[derive(Debug)]
pub(super) struct Network {
    owner: Owner,
    /// What was made, in turn.
    namespaces: Vec<String>,
}

impl Network {
    /// Makes as many hosts, each with such a link.
    pub(super) fn new(hosts: usize, link: Link) -> anyhow::Result<Self> {
        let mut network = Self { owner: Owner::this()?, namespaces: Vec::new() };
        let switch = network.add("switch")?;
        batch("ip", Some(&switch), SWITCH)?;
        let (mut ports, mut shaped) = (String::new(), String::new());
        for host in 0..hosts {
            let namespace = network.add(&host.to_string())?;
            let port = format!("host{host}");
            let _ = writeln!(ports, "link add name {port} type veth peer name eth0 netns {namespace}");
            ports.push_str(&link.end(&port, "master switch"));
            shaped.push_str(&link.bucket(&port));
        }
        batch("ip", Some(&switch), &ports)?;
        batch("tc", Some(&switch), &shaped)?;
        for host in 0..hosts {
            let end = link.end("eth0", "");
            let addresses = format!("address add {}/16 dev eth0\nlink set dev lo up\n", address(host));
            let namespace = network.namespace(host);
            batch("ip", Some(&namespace), &format!("{end}{addresses}"))?;
            batch("tc", Some(&namespace), &link.bucket("eth0"))?;
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

impl Link {
    fn end(self, device: &str, more: &str) -> String {
        let group = (self.tokens() / 2).min(MAX_GROUP);
        format!(
            "link set dev {device} gso_max_size {group}\nlink set dev {device} addrgenmode none {more} up\n"
        )
    }

    fn bucket(self, device: &str) -> String {
        let (rate, tokens) = (self.rate, self.tokens());
        format!("qdisc add dev {device} root tbf rate {rate} burst {tokens}b limit {QUEUE}b\n")
    }

    /// How many bytes a bucket holds.
    fn tokens(self) -> u64 {
        self.rate.bytes_in(self.burst.as_secs_f64()).clamp(2 * PACKET, MAX_TOKENS)
    }
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
    fn a_bucket_holds_a_burst_and_two_packets_at_least() {
        let tokens =
            |rate: &str, us| Link { rate: rate.parse().unwrap(), burst: Duration::from_micros(us) }.tokens();
        assert_eq!(["1gbit", "100mbit", "10mbit"].map(|rate| tokens(rate, 500)), [62_500, 6_250, 3028]);
        assert_eq!([0, 2000].map(|us| tokens("100mbit", us)), [3028, 25_000]);
    }
}
