use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Element, SparseVec, Stream};

/// Memory of long vectors, used again: what one result occupied serves the next once it is [put](Memory::put) back.
///
/// Fresh memory costs a page fault every 4 KiB, which takes about as long as to sum what it holds. Functions that end in `_in`
/// take what they need from here, and put back what they no longer need; the others are the same with fresh memory. Of each type and
/// each factor of four in length it keeps as many vectors as were in use at one time. Short ones are left to the allocator.
///
/// ```
/// use sparse_core::{Memory, SparseVec, merge_in};
///
/// let vector = |from: u32| SparseVec::new(1 << 20, (from..from + 9_000).collect(), vec![1.0_f32; 9_000]);
/// let (memory, left, right) = (Memory::new(), vector(0)?, vector(4_500)?);
/// let sum = merge_in(&left, &right, &memory)?;
/// let address = sum.values().as_ptr();
/// memory.put(sum);
/// assert_eq!(merge_in(&left, &right, &memory)?.values().as_ptr(), address);
/// # Ok::<(), sparse_core::Error>(())
/// ```
#[derive(Default)]
pub struct Memory(Mutex<Spares>);

/// Of each type of element the vectors that nobody uses.
type Spares = BTreeMap<TypeId, Box<dyn Any + Send>>;

/// What a [`Memory`] takes back.
pub trait Reusable {
    /// Puts the memory back.
    fn put_to(self, memory: &Memory);
}

impl Memory {
    /// No memory yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Keeps the memory of what is no longer needed.
    pub fn put(&self, spent: impl Reusable) {
        spent.put_to(self);
    }

    /// `len` values, whatever they are: `new` where there was no memory.
    #[must_use]
    pub fn any<T: Copy + Send + 'static>(&self, len: usize, new: T) -> Vec<T> {
        let mut values = self.spare(len).unwrap_or_else(|| vec![new; rounded::<T>(len)]);
        values.resize(len, new);
        values
    }

    /// `len` times this value.
    #[must_use]
    pub fn filled<T: Copy + Send + 'static>(&self, len: usize, value: T) -> Vec<T> {
        match self.spare(len) {
            Some(mut values) => {
                values.clear();
                values.resize(len, value);
                values
            }
            // Zeros are given by the system: nobody writes them.
            None => self.any(len, value),
        }
    }

    /// No values, and room for so many.
    #[must_use]
    pub fn empty<T: Send + 'static>(&self, room: usize) -> Vec<T> {
        let mut values = self.spare(room).unwrap_or_else(|| Vec::with_capacity(rounded::<T>(room)));
        values.clear();
        values
    }

    /// A vector that nobody uses, with room for so many values and not much more: the tightest.
    fn spare<T: Send + 'static>(&self, room: usize) -> Option<Vec<T>> {
        if room.saturating_mul(size_of::<T>()) < LONG {
            return None;
        }
        let mut spares = lock(&self.0);
        let spares = spares.get_mut(&TypeId::of::<T>())?.downcast_mut::<Vec<Vec<T>>>()?;
        let most = room.saturating_mul(WASTE);
        let by_room = spares.iter().enumerate().map(|(at, spare)| (spare.capacity(), at));
        match by_room.clone().filter(|(has, _)| (room..=most).contains(has)).min() {
            Some((_, tightest)) => Some(spares.swap_remove(tightest)),
            None => {
                // Something longer takes the place of the longest that is too short.
                if let Some((_, longest)) = by_room.filter(|(has, _)| *has < room).max() {
                    spares.swap_remove(longest);
                }
                None
            }
        }
    }
}

/// Shorter vectors, in bytes, are left to the allocator, which is good at them.
const LONG: usize = 16 << 10;
/// A vector of more than so many times the room that is needed is not used.
const WASTE: usize = 4;

/// Somewhat more room, so that what is a little longer next time fits too.
fn rounded<T>(room: usize) -> usize {
    if room.saturating_mul(size_of::<T>()) < LONG {
        return room;
    }
    let step = 1 << (room.ilog2().saturating_sub(3));
    room.checked_next_multiple_of(step).unwrap_or(room)
}

impl<T: Send + 'static> Reusable for Vec<T> {
    fn put_to(self, memory: &Memory) {
        if self.capacity().saturating_mul(size_of::<T>()) < LONG {
            return;
        }
        let mut spares = lock(&memory.0);
        let none = || Box::<Vec<Self>>::default();
        let spares = spares.entry(TypeId::of::<T>()).or_insert_with(|| none());
        if let Some(spares) = spares.downcast_mut::<Vec<Self>>() {
            spares.push(self);
        }
    }
}

impl<T: Element> Reusable for SparseVec<T> {
    fn put_to(self, memory: &Memory) {
        let (indices, values) = self.into_parts();
        memory.put(indices);
        memory.put(values);
    }
}

impl<T: Element> Reusable for Stream<T> {
    fn put_to(self, memory: &Memory) {
        match self {
            Self::Sparse(vector) => memory.put(vector),
            Self::Dense(values) => memory.put(values),
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// What no panic leaves half-changed.
fn lock(spares: &Mutex<Spares>) -> MutexGuard<'_, Spares> {
    spares.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn what_was_put_back_is_taken_again() {
        let memory = Memory::new();
        let first: Vec<f32> = memory.any(10_000, 1.0);
        let address = first.as_ptr();
        memory.put(first);
        // Of another type, and much shorter.
        let others = (memory.any(10_000, 1_u32), memory.any(2_000, 1.0_f32));
        assert!(others.0.as_ptr().cast() != address && others.1.as_ptr() != address);
        let mut again: Vec<f32> = memory.any(9_000, 1.0);
        assert_eq!((again.as_ptr(), again.len()), (address, 9_000));
        again.fill(7.0);
        memory.put(again);
        let zeros: Vec<f32> = memory.filled(10_000, 0.0);
        assert_eq!((zeros.as_ptr(), zeros.iter().all(|zero| *zero == 0.0)), (address, true));
        memory.put(zeros);
        let empty: Vec<f32> = memory.empty(10_000);
        assert_eq!((empty.as_ptr(), empty.len()), (address, 0));
    }

    proptest! {
        #[test]
        fn there_are_no_more_spares_than_were_in_use_at_one_time(rooms in vec((LONG..3 * LONG, 0..4_usize), 1..60)) {
            let memory = Memory::new();
            let (mut held, mut most) = (Vec::new(), 0);
            for (room, puts) in rooms {
                held.push(memory.empty::<u8>(room));
                most = most.max(held.len());
                held.drain(..puts.min(held.len())).for_each(|vector| memory.put(vector));
                let spares = lock(&memory.0).get(&TypeId::of::<u8>()).map_or(0, |spares| {
                    spares.downcast_ref::<Vec<Vec<u8>>>().map_or(0, Vec::len)
                });
                prop_assert!(spares + held.len() <= most, "{spares} and {} of {most}", held.len());
            }
        }
    }
}
