//! The I/O thread: it connects, reads, writes what callers could not, watches for silence, wakes
//! sleepers, and takes leave in the end.

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bootstrap::liveness::Detector;
use matching::{Aborts, gone};
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use transport::{Buffers, Rank};

use crate::Error;
use crate::link::Link;
use crate::mesh::{self, Peer, Plan};
use crate::options::Limits;
use crate::outbox::Outbox;
use crate::reader;
use crate::world::World;

/// For how long a leaving rank waits for messages to be received that nobody waits for any more.
const UNCLAIMED: Duration = Duration::from_secs(1);
/// For how long a leaving rank waits for its peers to close as well.
const LINGER: Duration = Duration::from_secs(2);

/// The running I/O thread; dropping it is the orderly end.
#[derive(Debug)]
pub(crate) struct Driver {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts the I/O thread and waits until all peers are connected. Without a plan: the only rank.
pub(crate) fn start(rank: Rank, limits: Limits, plan: Option<Plan>) -> Result<(Arc<World>, Driver), Error> {
    let (stop, stopped) = oneshot::channel();
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name(format!("thinwire-tcp-{rank}")).spawn(move || {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                runtime.block_on(run(rank, limits, plan, stopped, &sender));
                // A name that is still being resolved is not worth waiting for.
                runtime.shutdown_background();
            }
            // Nobody waits for it only if the caller's thread is gone.
            Err(error) => drop(sender.send(Err(Error::system("starting the I/O runtime")(error)))),
        }
    });
    let driver =
        Driver { stop: Some(stop), thread: Some(thread.map_err(Error::system("starting the I/O thread"))?) };
    let died =
        || Err(Error::System { detail: "the I/O thread".into(), source: std::io::ErrorKind::Other.into() });
    let world = receiver.recv().unwrap_or_else(|_| died())?;
    Ok((world, driver))
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A waker that runs on the I/O thread may hold the last handle: it cannot wait for itself.
        if let Some(thread) = self.thread.take().filter(|own| own.thread().id() != thread::current().id()) {
            // A panic there has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

async fn run(
    rank: Rank,
    limits: Limits,
    plan: Option<Plan>,
    stopped: oneshot::Receiver<()>,
    ready: &mpsc::Sender<Result<Arc<World>, Error>>,
) {
    let peers = match plan {
        Some(plan) => mesh::connect(plan).await,
        None => Ok(vec![None]),
    };
    let (world, sockets) = match peers {
        Ok(peers) => assemble(rank, limits, peers),
        Err(error) => {
            // Nobody waits for it only if the caller's thread is gone.
            let _ = ready.send(Err(error));
            return;
        }
    };
    let mut readers = Vec::new();
    for (link, socket) in sockets {
        let (reading, writing) = (Arc::clone(&link), Arc::clone(&link));
        let world = Arc::clone(&world);
        readers.push((link, tokio::spawn(async move { reader::read(&world, &reading, socket).await })));
        tokio::spawn(async move { write(&writing).await });
    }
    let (watched, timers) = (Arc::clone(&world), Arc::clone(&world.timers));
    tokio::spawn(async move { watch(&watched).await });
    tokio::spawn(async move { timers.run().await });
    let _ = ready.send(Ok(Arc::clone(&world)));

    // The sender is dropped, not used.
    let _ = stopped.await;
    take_leave(&world, readers).await;
    world.end();
}

fn assemble(
    rank: Rank,
    own: Limits,
    peers: Vec<Option<Peer>>,
) -> (Arc<World>, Vec<(Arc<Link>, OwnedReadHalf)>) {
    let (start, aborts, buffers) = (Instant::now(), Arc::new(Aborts::default()), Buffers::default());
    let (mut links, mut sockets) = (Vec::new(), Vec::new());
    for (number, peer) in (0..).zip(peers) {
        let Some(Peer { stream, limits: its }) = peer else {
            links.push(Arc::new(Link::to_self(rank, own, &aborts, &buffers)));
            continue;
        };
        let (reading, writing) = stream.into_split();
        let link = Arc::new(Link::to_peer(Rank(number), own, its, &aborts, &buffers, start, writing));
        sockets.push((Arc::clone(&link), reading));
        links.push(link);
    }
    let world = World { rank, links, own, aborts, timers: Arc::default(), start };
    (Arc::new(world), sockets)
}

async fn write(link: &Link) {
    if let Some(outbox) = &link.outbox {
        link.check(outbox.run().await);
    }
}

/// Sends heartbeats and ends the links that were silent for too long.
async fn watch(world: &World) {
    let mut detector = Detector::new(world.own.failure_timeout);
    for link in world.links.iter().filter(|link| link.outbox.is_some()) {
        detector.watch(link.peer, link.its_patience, world.start.elapsed());
    }
    while let Some(next) = detector.next() {
        sleep_until((world.start + next).into()).await;
        for (link, outbox) in world.links.iter().filter_map(|link| Some((link, link.outbox.as_ref()?))) {
            if outbox.is_over() {
                detector.forget(link.peer);
            }
            detector.heard(link.peer, outbox.heard_at());
            detector.sent(link.peer, outbox.sent_at());
        }
        let due = detector.poll(world.start.elapsed());
        let link = |rank: &Rank| world.links.get(rank.index());
        due.heartbeats.iter().filter_map(link).for_each(|link| link.heartbeat());
        due.lost.iter().filter_map(link).for_each(|link| link.silent());
    }
}

/// The orderly end: what was sent still arrives.
async fn take_leave(world: &World, readers: Vec<(Arc<Link>, tokio::task::JoinHandle<()>)>) {
    let gone = gone();
    // Nobody receives any more; the links still serve what was sent.
    world.links.iter().for_each(|link| link.change(|inbox| inbox.end(&gone)));
    // A peer that stands still is lost after the failure timeout, which ends its link. After an abort
    // nothing is worth that wait.
    let patience = if world.aborts.of_world() { LINGER } else { world.own.failure_timeout + LINGER };
    let mut farewells = JoinSet::new();
    for (link, reader) in readers {
        farewells.spawn(async move {
            if let Some(outbox) = &link.outbox {
                farewell(&link, outbox, patience).await;
            }
            // Until the peer has closed too, so that nothing of its unread becomes a reset.
            let _ = timeout(LINGER, reader).await;
        });
    }
    farewells.join_all().await;
}

async fn farewell(link: &Link, outbox: &Outbox, patience: Duration) {
    let _ = timeout(UNCLAIMED, outbox.flushed(true)).await;
    let _ = timeout(patience, outbox.flushed(false)).await;
    link.check(outbox.goodbye());
    let _ = timeout(LINGER, outbox.flushed(false)).await;
    outbox.close();
}
