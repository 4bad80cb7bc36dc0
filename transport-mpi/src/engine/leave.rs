//! The orderly end.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use matching::lock;
use transport::{Error, Rank};

use super::Engine;
use crate::world::World;

/// For how long a leaving rank waits for messages to be received that nobody waits for any more.
const UNCLAIMED: Duration = Duration::from_secs(1);
/// For how long it waits until what it sent is out.
const FLUSH: Duration = Duration::from_secs(10);
/// For how long MPI's end waits for the goodbyes of the others.
const LINGER: Duration = Duration::from_secs(2);

/// Transports that were dropped, whose communicators are still in use by others: what a peer sends to a rank that has
/// left must not meet the next communicator that MPI gives the same number.
static PARKED: Mutex<Vec<Arc<World>>> = Mutex::new(Vec::new());

/// Takes leave of the others: what was sent still arrives.
pub(crate) fn leave(world: &Arc<World>, why: &Error) {
    if let Err(error) = say_farewell(world, why) {
        tracing::warn!(%error, "the last handle of a transport was dropped: messages may be lost");
    }
    let why = why.clone();
    world.ask(move |engine| engine.ranks().for_each(|rank| engine.lose(rank, &why)));
    lock(&PARKED).push(Arc::clone(world));
    sweep();
}

fn say_farewell(world: &World, why: &Error) -> Result<(), Error> {
    let in_a_hurry = world.with_engine(|engine| {
        engine.ranks().for_each(|rank| engine.change(rank, |inbox| inbox.end(why)));
        engine.aborts.of_world()
    })?;
    let patience = if in_a_hurry { Duration::ZERO } else { UNCLAIMED };
    turn_until(world, patience, |engine| engine.peers.iter().all(|peer| peer.announced.is_empty()))?;
    turn_until(world, if in_a_hurry { LINGER } else { FLUSH }, Engine::is_flushed)?;
    world.with_engine(Engine::say_goodbye)?;
    turn_until(world, LINGER, Engine::is_flushed)
}

/// Frees the communicators that nobody uses any more.
pub(crate) fn sweep() {
    let parked = std::mem::take(&mut *lock(&PARKED));
    // What this thread may not use stays for the one that may.
    let is_used = |world: &Arc<World>| {
        world.with_engine(Engine::progress).is_err()
            || !matches!(world.with_engine(Engine::close_if_unused), Ok(true))
    };
    let used: Vec<_> = parked.into_iter().filter(is_used).collect();
    lock(&PARKED).extend(used);
}

/// MPI is about to end: waits a little for the goodbyes of the others.
pub(crate) fn last_sweep() {
    let until = Instant::now() + LINGER;
    while !lock(&PARKED).is_empty() && Instant::now() < until {
        sweep();
        thread::yield_now();
    }
    for world in std::mem::take(&mut *lock(&PARKED)) {
        world.ask(Engine::close);
    }
}

fn turn_until(world: &World, patience: Duration, done: impl Fn(&Engine) -> bool) -> Result<(), Error> {
    let until = Instant::now() + patience;
    loop {
        if world.with_engine(|engine| engine.closed || done(engine))? {
            return Ok(());
        }
        world.with_engine(Engine::progress)?;
        if Instant::now() >= until {
            return Ok(());
        }
        thread::yield_now();
    }
}

impl Engine {
    /// Whether everything that can still be sent is out.
    fn is_flushed(&self) -> bool {
        let reachable = |to: Rank| self.peers.get(to.index()).is_some_and(|peer| peer.over.is_none());
        self.small.is_empty() && !self.outgoing.iter().any(|outgoing| reachable(outgoing.to))
    }

    /// Frees the communicator if every peer has left and nothing is under way.
    fn close_if_unused(&mut self) -> bool {
        let own = self.peers.iter().filter(|peer| !peer.left).count();
        if !self.closed
            && own <= 1
            && self.small.is_empty()
            && self.outgoing.is_empty()
            && self.incoming.is_empty()
        {
            self.close();
        }
        self.closed
    }

    /// Ends what is under way and frees the communicator, if all of it can be ended.
    fn close(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        let slots = self.slots.iter_mut().try_for_each(crate::raw::Slot::cancel);
        let incoming = self.incoming.iter_mut().try_for_each(|incoming| incoming.recv.cancel());
        let busy = !self.small.is_empty() || !self.outgoing.is_empty();
        // With sends under way it is left to MPI; their buffers stay as well.
        let freed = slots.and(incoming).and_then(|()| if busy { Ok(()) } else { self.comm.free() });
        if let Err(error) = freed {
            tracing::warn!(%error, "a communicator could not be freed");
        }
        self.outgoing.clear();
        self.small.clear();
        self.incoming.clear();
    }
}
