use std::time::Duration;

use crate::random::mix;

/// Picoseconds: of 400 Gbit/s a byte takes 20.
pub(super) type Time = u64;

pub(super) const SECOND: f64 = 1e12;

/// How many ranks there are, where, and what connects them; see [the module](super).
///
/// Unless set, a message takes no time at all.
#[derive(Clone, Debug)]
pub struct Network {
    pub(super) ranks: usize,
    alpha: Time,
    overhead: Time,
    /// Picoseconds for a byte.
    beta: f64,
    ranks_per_host: usize,
    /// Within a host.
    memory: Memory,
    /// Within a host whose ranks have links to each other.
    inner: Option<Memory>,
    jitter: Time,
    stragglers: f64,
    slowdown: f64,
    magnified: f64,
    /// Bytes at the start of a message that are not magnified.
    head: usize,
    seed: u64,
    pub(super) window: usize,
    pub(super) traced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    alpha: Time,
    beta: f64,
}

impl Network {
    /// This many ranks, each on a host of its own.
    #[must_use]
    pub const fn new(ranks: usize) -> Self {
        Self {
            ranks,
            alpha: 0,
            overhead: 0,
            beta: 0.0,
            ranks_per_host: 1,
            memory: Memory { alpha: 0, beta: 0.0 },
            inner: None,
            jitter: 0,
            stragglers: 0.0,
            slowdown: 1.0,
            magnified: 1.0,
            head: 0,
            seed: 0,
            window: crate::DEFAULT_WINDOW,
            traced: false,
        }
    }

    /// The latency: from when a message begins to leave until it begins to arrive.
    #[must_use]
    pub fn alpha(mut self, alpha: Duration) -> Self {
        self.alpha = picoseconds(alpha);
        self
    }

    /// Bytes a second through each host's link, in each direction. Infinite: bytes take no time.
    ///
    /// # Panics
    /// Unless it is above 0.
    #[must_use]
    #[track_caller]
    pub fn rate(mut self, bytes_per_second: f64) -> Self {
        self.beta = beta(bytes_per_second);
        self
    }

    /// For how long each message occupies a link beside its bytes, at both ends.
    #[must_use]
    pub fn overhead(mut self, overhead: Duration) -> Self {
        self.overhead = picoseconds(overhead);
        self
    }

    /// So many ranks on each host, in the order of ranks; they share its link. Between them, a message takes `alpha` and
    /// passes at this rate, and does not wait for others.
    ///
    /// # Panics
    /// If a host has no ranks, or unless the rate is above 0.
    #[must_use]
    #[track_caller]
    pub fn hosts(mut self, ranks_per_host: usize, alpha: Duration, bytes_per_second: f64) -> Self {
        assert!(ranks_per_host > 0, "a host has at least one rank");
        self.ranks_per_host = ranks_per_host;
        self.memory = Memory { alpha: picoseconds(alpha), beta: beta(bytes_per_second) };
        self.inner = None;
        self
    }

    /// As [`hosts`](Self::hosts), but for messages inside a host each rank has a full-duplex link of its own with this latency and
    /// rate, which they occupy one after the other as those between hosts do; without overhead, jitter or stragglers.
    ///
    /// # Panics
    /// If a group has no ranks, or unless the rate is above 0.
    #[must_use]
    #[track_caller]
    pub fn groups(mut self, ranks_per_group: usize, alpha: Duration, bytes_per_second: f64) -> Self {
        self = self.hosts(ranks_per_group, Duration::ZERO, f64::INFINITY);
        self.inner = Some(Memory { alpha: picoseconds(alpha), beta: beta(bytes_per_second) });
        self
    }

    /// Adds between nothing and this to the latency of each message between hosts, drawn by the [seed](Self::seed).
    #[must_use]
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = picoseconds(most);
        self
    }

    /// Makes the links of a share of the hosts, drawn by the [seed](Self::seed), this many times slower.
    ///
    /// # Panics
    /// Unless the share is from 0 to 1, and the slowdown at least 1.
    #[must_use]
    #[track_caller]
    pub fn stragglers(mut self, share: f64, slowdown: f64) -> Self {
        assert!(
            (0.0..=1.0).contains(&share) && slowdown >= 1.0,
            "{share} of the hosts, {slowdown} times slower"
        );
        self.stragglers = share;
        self.slowdown = slowdown;
        self
    }

    /// Lets each byte beyond the first `head` of a message take as long as so many bytes: a model in small of
    /// messages that many times longer, for what does not fit this machine.
    ///
    /// # Panics
    /// Unless `times` is at least 0 and finite.
    #[must_use]
    #[track_caller]
    pub fn magnified(mut self, times: f64, head: usize) -> Self {
        assert!(times >= 0.0 && times.is_finite(), "magnified {times} times");
        self.magnified = times;
        self.head = head;
        self
    }

    /// Decides what is drawn by chance. 0 unless set.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Bytes that a pair of ranks holds unasked, as in [`local_world_with_window`](crate::local_world_with_window): a send
    /// beyond it waits for its receive.
    #[must_use]
    pub const fn window(mut self, bytes: usize) -> Self {
        self.window = bytes;
        self
    }

    /// Records all messages.
    #[must_use]
    pub const fn traced(mut self) -> Self {
        self.traced = true;
        self
    }

    /// The links over which a message leaves and arrives, if it goes over any: those of the hosts come first, then those of the ranks inside them.
    pub(super) const fn links(&self, from: u32, to: u32) -> Option<(usize, usize)> {
        let (here, there) = (from as usize / self.ranks_per_host, to as usize / self.ranks_per_host);
        if here != there {
            Some((here, there))
        } else if from != to && self.inner.is_some() {
            Some((self.hosts_in_all() + from as usize, self.hosts_in_all() + to as usize))
        } else {
            None
        }
    }

    pub(super) const fn links_in_all(&self) -> usize {
        self.hosts_in_all() + if self.inner.is_some() { self.ranks } else { 0 }
    }

    const fn hosts_in_all(&self) -> usize {
        self.ranks.div_ceil(self.ranks_per_host)
    }

    const fn inner_of(&self, link: usize) -> Option<Memory> {
        if link < self.hosts_in_all() { None } else { self.inner }
    }

    /// For how long a message occupies a link.
    pub(super) fn occupancy(&self, link: usize, bytes: usize) -> Time {
        let occupancy = match self.inner_of(link) {
            Some(inner) => self.length(bytes) * inner.beta,
            None => (self.overhead as f64 + self.length(bytes) * self.beta) * self.slowdown_of(link),
        };
        occupancy.round() as Time
    }

    /// From when a message begins to leave over a link until it begins to arrive; `number` tells the messages apart.
    pub(super) fn latency(&self, link: usize, number: u64) -> Time {
        if let Some(inner) = self.inner_of(link) {
            return inner.alpha;
        }
        let jitter = mix(mix(self.seed) ^ number);
        self.alpha + if self.jitter > 0 { jitter % (self.jitter + 1) } else { 0 }
    }

    pub(super) const fn has_jitter(&self) -> bool {
        self.jitter > 0
    }

    /// A message within a host, from its start to its end.
    pub(super) fn by_memory(&self, bytes: usize) -> Time {
        self.memory.alpha + (self.length(bytes) * self.memory.beta).round() as Time
    }

    fn length(&self, bytes: usize) -> f64 {
        let head = bytes.min(self.head);
        head as f64 + (bytes - head) as f64 * self.magnified
    }

    fn slowdown_of(&self, host: usize) -> f64 {
        let drawn = mix(mix(!self.seed) ^ host as u64) as f64 / u64::MAX as f64;
        if drawn < self.stragglers { self.slowdown } else { 1.0 }
    }
}

/// At most what a [`Time`] holds: half a year.
pub(super) fn picoseconds(duration: Duration) -> Time {
    Time::try_from(duration.as_nanos().saturating_mul(1000)).unwrap_or(Time::MAX)
}

pub(super) fn duration(time: Time) -> Duration {
    Duration::from_nanos(time / 1000)
}

#[track_caller]
fn beta(bytes_per_second: f64) -> f64 {
    assert!(bytes_per_second > 0.0, "a rate of {bytes_per_second} bytes a second");
    SECOND / bytes_per_second
}
