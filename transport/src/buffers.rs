//! Memory of long messages, used again.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Shorter buffers are left to the allocator, which is good at them.
const LONG: usize = 16 << 10;

/// Memory for messages: what a message occupied serves the next one once nobody holds it any more.
///
/// Fresh memory costs a page fault every 4 KiB, which takes as long as to copy what it holds. Of each power of two in length no
/// more is kept than such messages have occupied at one time, so that long and short ones that take turns do not replace each other.
///
/// ```
/// let buffers = transport::Buffers::default();
/// let message = buffers.fill(1 << 20, |buffer| buffer.resize(1 << 20, 7));
/// let address = message.as_ptr();
/// drop(message);
/// assert_eq!(buffers.fill(1 << 20, |buffer| buffer.push(1)).as_ptr(), address);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Buffers(Arc<Mutex<Pools>>);

/// A [`Pool`] for each power of two in capacity.
type Pools = BTreeMap<u32, Pool>;

#[derive(Debug, Default)]
struct Pool {
    spare: Vec<Vec<u8>>,
    /// Bytes in `spare`.
    kept: usize,
    /// Bytes of messages that somebody holds, and the most there have been.
    lent: usize,
    most_lent: usize,
}

/// A message's memory, until its last reader drops it.
struct Lent {
    buffer: Vec<u8>,
    from: Buffers,
}

impl Buffers {
    /// An empty buffer with room for at least `length` bytes, if one is to be had without new memory.
    #[must_use]
    pub fn take(&self, length: usize) -> Option<Vec<u8>> {
        if length < LONG {
            return None;
        }
        let mut pools = lock(&self.0);
        let class = length.ilog2();
        // None that would waste more than it serves.
        (class..=class + 1).find_map(|class| pools.get_mut(&class)?.take(length..=length.saturating_mul(2)))
    }

    /// A message of at most about `length` bytes, written by `write` to an empty buffer.
    #[must_use]
    pub fn fill(&self, length: usize, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let mut buffer = self.take(length).unwrap_or_else(|| Vec::with_capacity(rounded(length)));
        write(&mut buffer);
        self.seal(buffer)
    }

    /// The message that a buffer has become.
    #[must_use]
    pub fn seal(&self, buffer: Vec<u8>) -> Bytes {
        if buffer.capacity() < LONG {
            return buffer.into();
        }
        let mut pools = lock(&self.0);
        let pool = pools.entry(buffer.capacity().ilog2()).or_default();
        pool.lent += buffer.capacity();
        pool.most_lent = pool.most_lent.max(pool.lent);
        let unused = pool.shrink();
        drop(pools);
        drop(unused);
        Bytes::from_owner(Lent { buffer, from: self.clone() })
    }
}

/// Somewhat more room, so that what is a little longer next time fits too.
fn rounded(length: usize) -> usize {
    if length < LONG {
        return length;
    }
    let step = 1 << (length.ilog2() - 3);
    length.saturating_add(step / 2).checked_next_multiple_of(step).unwrap_or(length)
}

/// What no panic leaves half-changed.
fn lock(pools: &Mutex<Pools>) -> MutexGuard<'_, Pools> {
    pools.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// The tightest of these capacities.
    fn take(&mut self, capacities: RangeInclusive<usize>) -> Option<Vec<u8>> {
        let fit = self.spare.iter().enumerate().filter(|(_, buffer)| capacities.contains(&buffer.capacity()));
        let (tightest, _) = fit.min_by_key(|(_, buffer)| buffer.capacity())?;
        let buffer = self.spare.swap_remove(tightest);
        self.kept -= buffer.capacity();
        Some(buffer)
    }

    /// Gives up what exceeds the most that messages have occupied.
    fn shrink(&mut self) -> Vec<Vec<u8>> {
        let mut unused = Vec::new();
        // The largest stay: they serve for all.
        while self.kept + self.lent > self.most_lent
            && let Some(smallest) = (0..self.spare.len()).rev().min_by_key(|at| self.spare[*at].capacity())
        {
            let buffer = self.spare.swap_remove(smallest);
            self.kept -= buffer.capacity();
            unused.push(buffer);
        }
        unused
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut pools = lock(&self.from.0);
        let pool = pools.entry(buffer.capacity().ilog2()).or_default();
        pool.lent -= buffer.capacity();
        pool.kept += buffer.capacity();
        pool.spare.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn a_message_takes_the_place_of_one_that_is_gone() {
        let buffers = Buffers::default();
        let message = buffers.seal(vec![7; LONG + 1]);
        let (address, part) = (message.as_ptr(), message.slice(5..));
        assert_eq!(buffers.take(LONG), None);
        drop(message);
        assert_eq!((buffers.take(LONG), &part[..]), (None, &[7; LONG - 4][..]));
        drop(part);
        let again = buffers.take(LONG).unwrap_or_default();
        assert_eq!((again.as_ptr(), again.len(), again.capacity()), (address, 0, LONG + 1));
    }

    #[test]
    fn short_messages_and_much_too_large_buffers_are_left_alone() {
        let buffers = Buffers::default();
        drop(buffers.seal(vec![1; LONG - 1]));
        drop(buffers.seal(vec![1; 8 * LONG]));
        assert_eq!((buffers.take(LONG - 1), buffers.take(LONG)), (None, None));
        assert!(buffers.take(4 * LONG).is_some());
    }

    #[test]
    fn messages_of_different_lengths_that_take_turns_keep_their_memory() {
        let buffers = Buffers::default();
        let addresses = || {
            [LONG, 8 * LONG, LONG]
                .map(|length| buffers.fill(length, |buffer| buffer.resize(length, 7)).as_ptr())
        };
        assert_eq!(addresses(), addresses());
    }

    proptest! {
        #[test]
        fn no_more_is_kept_than_was_in_use_at_one_time(lengths in vec((LONG..9 * LONG, 0..4_usize), 1..60)) {
            let buffers = Buffers::default();
            let (mut held, mut most) = (Vec::new(), BTreeMap::new());
            for (length, end) in lengths {
                let mut buffer = buffers.take(length).unwrap_or_else(|| Vec::with_capacity(length));
                prop_assert!(buffer.is_empty() && buffer.capacity() >= length);
                buffer.resize(length, end as u8);
                held.push((buffer.capacity(), buffers.seal(buffer)));
                for class in LONG.ilog2()..LONG.ilog2() + 5 {
                    let of_class = held.iter().map(|(capacity, _)| *capacity).filter(|one: &usize| one.ilog2() == class);
                    let (in_use, most) = (of_class.sum::<usize>(), most.entry(class).or_insert(0));
                    *most = in_use.max(*most);
                    let pools = lock(&buffers.0);
                    if let Some(pool) = pools.get(&class) {
                        prop_assert_eq!(pool.lent, in_use);
                        prop_assert!(pool.kept + pool.lent <= *most);
                        prop_assert_eq!(pool.kept, pool.spare.iter().map(Vec::capacity).sum::<usize>());
                    }
                }
                held.drain(..end.min(held.len()));
            }
        }
    }
}
