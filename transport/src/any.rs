use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{Error, Rank, Scope, Tag, Transport};

/// A transport chosen at run time; cheap to clone, every clone the same rank.
///
/// Costs one allocation and one indirect call an operation.
///
/// ```
/// use transport::{AnyTransport, Transport};
///
/// fn describe<T: Transport>(transport: T) -> String {
///     let any = AnyTransport::new(transport);
///     format!("rank {} of {}", any.rank(), any.world_size())
/// }
/// ```
#[derive(Clone)]
pub struct AnyTransport(Arc<dyn Erased>);

impl AnyTransport {
    /// Erases the back end's type.
    pub fn new<T: Transport>(transport: T) -> Self {
        Self(Arc::new(transport))
    }
}

impl fmt::Debug for AnyTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyTransport")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .finish_non_exhaustive()
    }
}

impl Transport for AnyTransport {
    fn rank(&self) -> Rank {
        self.0.erased_rank()
    }

    fn world_size(&self) -> usize {
        self.0.erased_world_size()
    }

    fn send(
        &self,
        to: Rank,
        tag: Tag,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.0.erased_send(to, tag, payload)
    }

    fn recv(&self, from: Rank, tag: Tag) -> impl Future<Output = Result<Bytes, Error>> + Send + use<> {
        self.0.erased_recv(from, tag)
    }

    fn abort(&self, scope: Scope, reason: &str) {
        self.0.erased_abort(scope, reason);
    }

    fn now(&self) -> Duration {
        self.0.erased_now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.0.erased_sleep(duration)
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The object-safe twin of [`Transport`]; its names differ so that a call is never ambiguous.
trait Erased: Send + Sync {
    fn erased_rank(&self) -> Rank;
    fn erased_world_size(&self) -> usize;
    fn erased_send(&self, to: Rank, tag: Tag, payload: Bytes) -> Boxed<Result<(), Error>>;
    fn erased_recv(&self, from: Rank, tag: Tag) -> Boxed<Result<Bytes, Error>>;
    fn erased_abort(&self, scope: Scope, reason: &str);
    fn erased_now(&self) -> Duration;
    fn erased_sleep(&self, duration: Duration) -> Boxed<()>;
}

impl<T: Transport> Erased for T {
    fn erased_rank(&self) -> Rank {
        self.rank()
    }

    fn erased_world_size(&self) -> usize {
        self.world_size()
    }

    fn erased_send(&self, to: Rank, tag: Tag, payload: Bytes) -> Boxed<Result<(), Error>> {
        Box::pin(self.send(to, tag, payload))
    }

    fn erased_recv(&self, from: Rank, tag: Tag) -> Boxed<Result<Bytes, Error>> {
        Box::pin(self.recv(from, tag))
    }

    fn erased_abort(&self, scope: Scope, reason: &str) {
        self.abort(scope, reason);
    }

    fn erased_now(&self) -> Duration {
        self.now()
    }

    fn erased_sleep(&self, duration: Duration) -> Boxed<()> {
        Box::pin(self.sleep(duration))
    }
}
