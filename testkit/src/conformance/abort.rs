//! Abort: at once here, soon everywhere, and nothing beyond its scope.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use transport::{AnyTransport, Error, Rank, Scope, Tag, Transport};

use super::{KIB, Letters, MIB, left, meet_all, on_each_rank, payload, ranks, right};

/// An abort of a context ends its pending and later operations on every rank, with the rank and the reason
/// of the first abort; receives that wait and messages that lie in other contexts stay.
///
/// Contract: [`abort`](Transport::abort) with [`Scope::Context`].
pub fn an_abort_ends_its_context_on_every_rank(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let (me, from, to) = (world.rank(), left(&world), right(&world));
        let abort = Abort { by: middle(&world), scope: Scope::Context(5), reason: "the loss is NaN" };
        let (waits, lies) = (Tag::new(6, 1), Tag::new(4, 1));
        let letters = |from, to| Letters { from, to, tag: lies, limit: 30 * KIB };
        let waiting = world.recv(from, waits);
        let lying: Vec<_> =
            (0..10).map(|index| world.send(to, lies, letters(me, to).number(index))).collect();

        let pending = Pending::post(&world, 5);
        meet_all(&world, Tag::new(0, 1)).await;
        if me == abort.by {
            abort.raise(&world);
        }
        pending.end_with(abort).await;
        world.abort(abort.scope, "an abort that comes second");
        abort.expect(&world.recv(from, Tag::new(5, 77)).await.map(drop));
        abort.expect(&world.send(to, Tag::new(5, 77), Bytes::new()).await);

        world.send(to, waits, Bytes::from_static(b"still here")).await.expect("other contexts send");
        assert_eq!(waiting.await.expect("other contexts receive"), "still here");
        for index in 0..10 {
            letters(from, me).check(index, world.recv(from, lies).await);
        }
        assert!(join_all(lying).await.iter().all(Result::is_ok), "sends of other contexts complete");
        meet_all(&world, Tag::new(0, 2)).await;
    });
}

/// An abort of the world ends every pending and later operation on every rank.
///
/// Contract: [`abort`](Transport::abort) with [`Scope::World`]; it returns within a second, whatever the
/// state of the network: here, large messages are stuck in both directions.
pub fn an_abort_of_the_world_ends_everything(world: Vec<AnyTransport>, patience: Duration) {
    on_each_rank(world, patience, |world| async move {
        let abort = Abort { by: middle(&world), scope: Scope::World, reason: "out of memory" };
        let pending = [Pending::post(&world, 1), Pending::post(&world, 2)];
        // By messages of their own, since the abort may overtake them: no rank waits for all to be here.
        if world.rank() == abort.by {
            let ready: Vec<_> = ranks(&world).map(|from| world.recv(from, Tag::new(0, 1))).collect();
            let told = world.send(abort.by, Tag::new(0, 1), Bytes::new());
            told.await.expect("a signal passes the backlog");
            assert!(join_all(ready).await.iter().all(Result::is_ok), "all ranks are ready");
            abort.raise(&world);
        } else {
            let told = world.send(abort.by, Tag::new(0, 1), Bytes::new()).await;
            told.or_else(|error| if error.peer() == Some(abort.by) { Ok(()) } else { Err(error) })
                .expect("a signal passes the backlog");
        }
        for pending in pending {
            pending.end_with(abort).await;
        }
        world.abort(abort.scope, "an abort that comes second");
        for context in [0, 1, u32::MAX] {
            abort.expect(&world.recv(left(&world), Tag::new(context, 77)).await.map(drop));
            abort.expect(&world.send(right(&world), Tag::new(context, 77), Bytes::new()).await);
        }
    });
}

/// A rank that gives up and leaves as soon as it learns of an abort does not seem lost to the others, even
/// to those that have not heard of the abort from its origin yet.
///
/// Contract: *A rank passes on an abort that it learns of.*
pub fn who_leaves_after_an_abort_is_not_lost(world: Vec<AnyTransport>, patience: Duration) {
    // Not `on_each_rank`: here each rank leaves when its part is over.
    crate::run_world_within(patience, world, |world| async move {
        let abort = Abort { by: middle(&world), scope: Scope::Context(5), reason: "the shapes differ" };
        let receives: Vec<_> = ranks(&world).map(|from| world.recv(from, Tag::new(5, 1))).collect();
        meet_all(&world, Tag::new(0, 1)).await;
        if world.rank() == abort.by {
            abort.raise(&world);
        }
        for outcome in join_all(receives).await {
            abort.expect(&outcome.map(drop));
        }
    });
}

#[derive(Clone, Copy)]
struct Abort {
    by: Rank,
    scope: Scope,
    reason: &'static str,
}

impl Abort {
    fn raise<T: Transport>(self, world: &T) {
        let begun = world.now();
        world.abort(self.scope, self.reason);
        assert!(world.now() - begun < Duration::from_secs(1), "abort returns within a second");
    }

    #[track_caller]
    fn expect(self, outcome: &Result<(), Error>) {
        let right = matches!(outcome, Err(Error::Aborted { by, scope, reason })
            if *by == self.by && *scope == self.scope && reason == self.reason);
        let Self { by, scope, reason } = self;
        assert!(right, "rank {by} aborted {scope} ({reason}), but an operation ends with {outcome:?}");
    }
}

/// Operations of one context that no peer answers.
struct Pending<R, S> {
    receives: Vec<R>,
    sends: Vec<S>,
}

impl Pending<(), ()> {
    /// Receives from all ranks, and to the right more than a back end accepts unasked.
    fn post<T: Transport>(
        world: &T,
        context: u32,
    ) -> Pending<
        impl Future<Output = Result<Bytes, Error>> + use<T>,
        impl Future<Output = Result<(), Error>> + use<T>,
    > {
        let large = payload(0, MIB);
        let receives = ranks(world).map(|from| world.recv(from, Tag::new(context, 1))).collect();
        let sends = (0..256).map(|_| world.send(right(world), Tag::new(context, 2), large.clone())).collect();
        Pending { receives, sends }
    }
}

impl<R, S> Pending<R, S>
where
    R: Future<Output = Result<Bytes, Error>>,
    S: Future<Output = Result<(), Error>>,
{
    async fn end_with(self, abort: Abort) {
        for receive in self.receives {
            abort.expect(&receive.await.map(drop));
        }
        let failed: Vec<_> = join_all(self.sends).await.into_iter().filter(Result::is_err).collect();
        assert!(!failed.is_empty(), "all sends completed, though nobody received");
        failed.into_iter().for_each(|outcome| abort.expect(&outcome));
    }
}

/// Neither the first nor the last rank, where there is one.
fn middle<T: Transport>(world: &T) -> Rank {
    Rank::from_index(world.world_size() / 2)
}
