use std::time::Duration;

use crate::Error;
use crate::frame::MAX_PART;

/// How a transport behaves. The ranks of a world may differ: each says what it can take.
///
/// ```
/// use std::time::Duration;
/// use transport_tcp::Options;
///
/// let patient = Options { failure_timeout: Duration::from_secs(60), ..Options::default() };
/// # assert_eq!(patient.eager_window, 4 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// A peer of which nothing at all was heard for longer than this is lost. Default: 10 s.
    ///
    /// Heartbeats fill the gaps between messages, and a message in progress counts. A peer that dies is
    /// noticed at once all the same; this is for one that stops, or whose network does.
    pub failure_timeout: Duration,
    /// How many bytes each peer may send before this rank receives them; the bound of what arrives
    /// unexpected. A message costs its length and 64 bytes. Default: 4 MiB; at most 2 GiB.
    ///
    /// What does not fit waits at the sender until it is received, which costs one round trip more.
    pub eager_window: u64,
    /// The longest message that this rank sends or takes, in bytes. Default: 16 GiB.
    pub max_message: u64,
    /// How many messages beyond the window each peer may have waiting for this rank to receive them.
    /// Default: 1,048,576.
    pub max_waiting: u32,
}

/// Below this, heartbeats would be all that a rank does.
pub(crate) const SHORTEST_TIMEOUT: Duration = Duration::from_millis(10);

impl Default for Options {
    fn default() -> Self {
        Self {
            failure_timeout: Duration::from_secs(10),
            eager_window: 4 << 20,
            max_message: 16 << 30,
            max_waiting: 1 << 20,
        }
    }
}

impl Options {
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let wrong = |detail: String| Err(Error::Options { detail });
        if self.failure_timeout < SHORTEST_TIMEOUT {
            let (given, shortest) = (self.failure_timeout, SHORTEST_TIMEOUT);
            return wrong(format!("a failure timeout of {given:?} is below {shortest:?}"));
        }
        if self.eager_window > 2 << 30 {
            return wrong(format!("an eager window of {} bytes exceeds 2 GiB", self.eager_window));
        }
        Ok(())
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            window: self.eager_window,
            max_message: self.max_message,
            max_announced: self.max_waiting,
            failure_timeout: self.failure_timeout,
        }
    }
}

/// What a rank can take from its peers; they learn it when they connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) window: u64,
    pub(crate) max_message: u64,
    pub(crate) max_announced: u32,
    pub(crate) failure_timeout: Duration,
}

impl Limits {
    pub(crate) const fn of_inbox(self) -> matching::Limits {
        let Self { window, max_message, max_announced, .. } = self;
        matching::Limits { window, max_message, max_announced, max_part: MAX_PART as u64 }
    }
}
