use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Element, SparseVec, Stream};

/// Memory of long vectors, used again: what one result occupied serves the next once it is [put](Memory::put) back.
///
/// Fresh memory costs a page fault every 4 KiB, which takes about as long as to sum what it holds. Functions that end in `_in`
/// take what they need from here, and put back what they no longer need; the others are the same with fresh memory. Of each type and
/// each power of two in length it keeps no more vectors than were in use at one time. Short ones are left to the allocator.
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
pub struct Memory(Mutex<Classes>);

/// A [`Class`] for each type of value and each power of two in length.
type Classes = BTreeMap<(TypeId, u32), Box<dyn Any + Send>>;

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

    /// A vector that nobody uses, with room for so many values and not much more: the tightest. Counts a new one otherwise.
    fn spare<T: Send + 'static>(&self, room: usize) -> Option<Vec<T>> {
        if !is_long::<T>(room) {
            return None;
        }
        let mut classes = lock(&self.0);
        let least = room.ilog2();
        let found = (least..=least + WASTE).find_map(|class| {
            let class = classes.get_mut(&(TypeId::of::<T>(), class))?.downcast_mut::<Class<T>>()?;
            class.take(room)
        });
        if found.is_none()
            && let Some(class) = class_of::<T>(&mut classes, rounded::<T>(room))
        {
            class.lend();
        }
        found
    }
}

/// Vectors of about the same length.
struct Class<T> {
    spares: Vec<Vec<T>>,
    /// How many somebody uses, and the most there have been: no more are kept.
    lent: usize,
    most: usize,
}

impl<T> Class<T> {
    fn take(&mut self, room: usize) -> Option<Vec<T>> {
        let fits = self.spares.iter().enumerate().filter(|(_, spare)| spare.capacity() >= room);
        let (tightest, _) = fits.min_by_key(|(_, spare)| spare.capacity())?;
        let spare = self.spares.swap_remove(tightest);
        self.lend();
        Some(spare)
    }

    fn lend(&mut self) {
        self.lent += 1;
        self.most = self.most.max(self.lent);
        self.spares.truncate(self.most - self.lent);
    }

    fn put(&mut self, spent: Vec<T>) {
        self.lent = self.lent.saturating_sub(1);
        self.spares.push(spent);
        if self.lent + self.spares.len() > self.most {
            // The largest stay: they serve for all.
            let smallest = (0..self.spares.len()).rev().min_by_key(|at| self.spares[*at].capacity());
            smallest.map(|smallest| self.spares.swap_remove(smallest));
        }
    }
}

/// That of vectors with room for so many values.
fn class_of<T: Send + 'static>(classes: &mut Classes, room: usize) -> Option<&mut Class<T>> {
    let none = || Box::new(Class::<T> { spares: Vec::new(), lent: 0, most: 0 });
    classes.entry((TypeId::of::<T>(), room.ilog2())).or_insert_with(|| none()).downcast_mut()
}

fn is_long<T>(room: usize) -> bool {
    room.saturating_mul(size_of::<T>()) >= LONG
}

/// Shorter vectors, in bytes, are left to the allocator, which is good at them.
const LONG: usize = 16 << 10;
/// A vector of more than so many powers of two above the room that is needed is not used.
const WASTE: u32 = 2;

/// Somewhat more room, so that what is a little longer next time fits too.
fn rounded<T>(room: usize) -> usize {
    if !is_long::<T>(room) {
        return room;
    }
    let step = 1 << (room.ilog2().saturating_sub(3));
    room.saturating_add(step / 2).checked_next_multiple_of(step).unwrap_or(room)
}

impl<T: Send + 'static> Reusable for Vec<T> {
    fn put_to(self, memory: &Memory) {
        if is_long::<T>(self.capacity())
            && let Some(class) = class_of(&mut lock(&memory.0), self.capacity())
        {
            class.put(self);
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
fn lock(classes: &Mutex<Classes>) -> MutexGuard<'_, Classes> {
    classes.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn what_came_from_elsewhere_is_not_kept() {
        let memory = Memory::new();
        let (elsewhere, own) = (vec![7_u8; LONG], memory.any(LONG, 0_u8));
        memory.put(own);
        memory.put(elsewhere);
        let taken = (memory.any(LONG, 0_u8), memory.any(LONG, 0_u8));
        assert_eq!((taken.0[0], taken.1[0]), (0, 0));
    }

    proptest! {
        #[test]
        fn no_more_spares_than_were_in_use_at_one_time(rooms in vec((LONG..9 * LONG, 0..4_usize), 1..60)) {
            let memory = Memory::new();
            let (mut held, mut most) = (Vec::new(), BTreeMap::new());
            for (room, puts) in rooms {
                held.push(memory.empty::<u8>(room));
                let mut in_use = BTreeMap::<_, usize>::new();
                held.iter().for_each(|vector| *in_use.entry(vector.capacity().ilog2()).or_default() += 1);
                for (class, number) in in_use {
                    let most = most.entry(class).or_insert(0);
                    *most = number.max(*most);
                }
                held.drain(..puts.min(held.len())).for_each(|vector| memory.put(vector));
                for ((_, class), spares) in &*lock(&memory.0) {
                    let spares = spares.downcast_ref::<Class<u8>>().unwrap();
                    let lent = held.iter().filter(|vector| vector.capacity().ilog2() == *class).count();
                    prop_assert_eq!((spares.lent, spares.most), (lent, most[class]));
                    prop_assert!(spares.spares.len() + lent <= spares.most);
                }
            }
        }
    }
}
