//! Latency and throughput between two processes on the loopback interface:
//! `cargo run --release -p transport-tcp --example pingpong`

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bootstrap::{Config, Method};
use bytes::Bytes;
use transport::{Rank, Tag, Transport, block_on};
use transport_tcp::{Options, TcpTransport};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    if let Some(config) = Config::from_env()? {
        return measure(&TcpTransport::connect(&config, &Options::default())?);
    }
    // This process is rank 0 and starts the other one.
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port().to_string();
    let mut other = Command::new(std::env::current_exe()?)
        .envs([("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)])
        .spawn()?;
    let config = Config::new(Rank(0), 2, Method::Listener(Arc::new(listener)));
    measure(&TcpTransport::connect(&config, &Options::default())?)?;
    other.wait()?;
    Ok(())
}

fn measure(world: &TcpTransport) -> Outcome {
    for (size, rounds) in
        [(8, 20_000), (1 << 10, 10_000), (64 << 10, 3_000), (1 << 20, 400), (4 << 20, 100), (64 << 20, 10)]
    {
        let mut halves = Vec::new();
        for _ in 0..5 {
            halves.push(ping_pong(world, size, rounds / 5)? / 2);
        }
        halves.sort();
        report(world, "there and back", size, &halves);
    }
    for (size, rounds) in [(1 << 20, 200), (64 << 20, 6)] {
        let mut times = Vec::new();
        for _ in 0..5 {
            times.push(exchange(world, size, rounds / 2)?);
        }
        times.sort();
        report(world, "both at once", size, &times);
    }
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(stream(world, 100, 20_000)?);
    }
    times.sort();
    report(world, "one after the other", 100, &times);
    Ok(())
}

fn report(world: &TcpTransport, what: &str, size: usize, times: &[Duration]) {
    if world.rank() == Rank(0) {
        let (best, median) = (times[0], times[times.len() / 2]);
        let rate = size as f64 / best.as_secs_f64() / 1e9;
        println!("{what:>20} {size:>9} bytes: best {best:>10.1?}, median {median:>10.1?}, {rate:>6.2} GB/s");
    }
}

/// The time of one round.
fn ping_pong(world: &TcpTransport, size: usize, rounds: u32) -> Result<Duration, transport::Error> {
    let (tag, peer, payload) = (Tag::new(0, 1), Rank(1 - world.rank().0), Bytes::from(vec![1; size]));
    let begun = Instant::now();
    for _ in 0..rounds {
        if world.rank() == Rank(0) {
            block_on(world.send(peer, tag, payload.clone()))?;
        }
        block_on(world.recv(peer, tag))?;
        if world.rank() == Rank(1) {
            block_on(world.send(peer, tag, payload.clone()))?;
        }
    }
    Ok(begun.elapsed() / rounds)
}

/// The time in which both ranks send and receive one message.
fn exchange(world: &TcpTransport, size: usize, rounds: u32) -> Result<Duration, transport::Error> {
    let (tag, peer, payload) = (Tag::new(0, 1), Rank(1 - world.rank().0), Bytes::from(vec![1; size]));
    let begun = Instant::now();
    for _ in 0..rounds {
        let received = world.recv(peer, tag);
        let sent = world.send(peer, tag, payload.clone());
        block_on(sent)?;
        block_on(received)?;
    }
    Ok(begun.elapsed() / rounds)
}

/// The time per message when rank 0 sends many.
fn stream(world: &TcpTransport, size: usize, count: u32) -> Result<Duration, transport::Error> {
    let (tag, payload) = (Tag::new(0, 1), Bytes::from(vec![1; size]));
    let begun = Instant::now();
    if world.rank() == Rank(0) {
        let sends: Vec<_> = (0..count).map(|_| world.send(Rank(1), tag, payload.clone())).collect();
        for send in sends {
            block_on(send)?;
        }
        block_on(world.recv(Rank(1), tag))?;
    } else {
        for _ in 0..count {
            block_on(world.recv(Rank(0), tag))?;
        }
        block_on(world.send(Rank(0), tag, payload))?;
    }
    Ok(begun.elapsed() / count)
}
