use std::collections::VecDeque;

/// A queue that needs no memory of its own until there are two.
///
/// Most queues between two of thousands of ranks hold one thing at most, and there are millions of them.
#[derive(Debug)]
pub(crate) struct Line<T> {
    /// None: nor is there one behind it.
    first: Option<T>,
    rest: VecDeque<T>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { first: None, rest: VecDeque::new() }
    }
}

impl<T> Line<T> {
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        match place.checked_sub(1) {
            None => self.first.as_ref(),
            Some(place) => self.rest.get(place),
        }
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        match place.checked_sub(1) {
            None => self.first.as_mut(),
            Some(place) => self.rest.get_mut(place),
        }
    }

    /// Where that with this key is, if keys increase.
    pub(crate) fn place_of<K: Ord>(&self, key: &K, key_of: impl Fn(&T) -> K) -> Option<usize> {
        if key_of(self.first.as_ref()?) == *key {
            return Some(0);
        }
        self.rest.binary_search_by_key(key, key_of).ok().map(|place| place + 1)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.rest)
    }

    pub(crate) fn push_back(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.rest.push_back(item);
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        std::mem::replace(&mut self.first, self.rest.pop_front())
    }

    pub(crate) fn remove(&mut self, place: usize) -> Option<T> {
        match place.checked_sub(1) {
            None => self.pop_front(),
            Some(place) => self.rest.remove(place),
        }
    }

    /// Takes all from this place on; there are as many before it.
    pub(crate) fn drain(&mut self, from: usize) -> impl Iterator<Item = T> + '_ {
        let first = if from == 0 { self.first.take() } else { None };
        first.into_iter().chain(self.rest.drain(from.saturating_sub(1)..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_line_is_a_queue(steps in prop::collection::vec((0..4, 0..6_usize), 0..60)) {
            let (mut line, mut queue) = (Line::default(), VecDeque::new());
            for (key, (step, place)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        line.push_back(key);
                        queue.push_back(key);
                    }
                    2 => prop_assert_eq!(line.remove(place), queue.remove(place)),
                    _ if place == 0 => prop_assert_eq!(line.pop_front(), queue.pop_front()),
                    _ => {
                        let from = place.min(queue.len());
                        prop_assert_eq!(line.drain(from).collect::<Vec<_>>(), queue.drain(from..).collect::<Vec<_>>());
                    }
                }
                prop_assert_eq!((line.len(), line.is_empty()), (queue.len(), queue.is_empty()));
                prop_assert!(line.iter_mut().eq(queue.iter_mut()));
                for place in 0..queue.len() + 2 {
                    prop_assert_eq!(line.get(place), queue.get(place));
                    prop_assert_eq!(line.get_mut(place), queue.get_mut(place));
                }
                for sought in 0..=key {
                    prop_assert_eq!(line.place_of(&sought, |key| *key), queue.iter().position(|key| *key == sought));
                }
            }
        }
    }
}
