//! The transport keeps the contract.

use std::os::unix::net::UnixStream;

use transport::Rank;
use unix_transport::UnixTransport;

testkit::conformance_suite!(unix, world);

/// A world whose ranks are threads of this process.
fn world(size: usize) -> Vec<UnixTransport> {
    let (mut writers, mut readers) = (ends(size), ends(size));
    for writers in &mut writers {
        for readers in &mut readers {
            let (writer, reader) = UnixStream::pair().unwrap();
            writers.push(writer);
            readers.push(reader);
        }
    }
    let connections = readers.into_iter().zip(writers).map(|(from, to)| from.into_iter().zip(to).collect());
    let ranks = connections.enumerate();
    ranks.map(|(rank, connections)| UnixTransport::new(Rank::from_index(rank), connections)).collect()
}

/// A place for each rank's ends of its connections.
fn ends(size: usize) -> Vec<Vec<UnixStream>> {
    (0..size).map(|_| Vec::new()).collect()
}
