//! Four processes meet in a directory and pass their words around a ring.
//!
//! `cargo run --example processes` starts them all.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs, io, process, thread};

use std::io::{Read, Write};
use transport::{Rank, Tag, Transport, block_on};
use unix_transport::UnixTransport;

const WORLD: usize = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let [_, directory, rank] = &env::args().collect::<Vec<_>>()[..] {
        return run_rank(Path::new(directory), rank.parse()?);
    }
    let directory = env::temp_dir().join(format!("ring-{}", process::id()));
    fs::create_dir(&directory)?;
    let start = |rank: usize| Command::new(env::current_exe()?).arg(&directory).arg(rank.to_string()).spawn();
    let ranks = (0..WORLD).map(start).collect::<io::Result<Vec<_>>>()?;
    for mut rank in ranks {
        assert!(rank.wait()?.success(), "a rank failed");
    }
    Ok(fs::remove_dir_all(directory)?)
}

fn run_rank(directory: &Path, rank: usize) -> Result<(), Box<dyn std::error::Error>> {
    let world = UnixTransport::new(Rank::from_index(rank), meet(directory, rank)?);
    let (left, right) = ((rank + WORLD - 1) % WORLD, (rank + 1) % WORLD);
    let mut word = format!("the word of rank {rank}").into();
    for step in 0..WORLD as u32 {
        let received = world.recv(Rank::from_index(left), Tag::new(0, step));
        block_on(world.send(Rank::from_index(right), Tag::new(0, step), word))?;
        word = block_on(received)?;
    }
    println!("rank {rank} has back: {}", String::from_utf8_lossy(&word));
    Ok(())
}

/// A connection from and one to every rank. A real back end would not wait for ever.
fn meet(directory: &Path, rank: usize) -> io::Result<Vec<(UnixStream, UnixStream)>> {
    let listener = UnixListener::bind(directory.join(rank.to_string()))?;
    let mut to = Vec::new();
    for peer in 0..WORLD {
        let mut stream = connect(&directory.join(peer.to_string()));
        stream.write_all(&[rank as u8])?;
        to.push(stream);
    }
    let mut from = Vec::new();
    for _ in 0..WORLD {
        let (mut stream, _) = listener.accept()?;
        let mut peer = [0];
        stream.read_exact(&mut peer)?;
        from.push((peer, stream));
    }
    from.sort_by_key(|(peer, _)| *peer);
    Ok(from.into_iter().map(|(_, stream)| stream).zip(to).collect())
}

fn connect(address: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(address) {
            Ok(stream) => return stream,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}
