use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use transport::Tag;

/// What each tag has; one tag alone needs no memory of its own.
///
/// Its order is the same in every run.
#[derive(Debug)]
pub(super) struct Tags<V> {
    first: Option<(Tag, V)>,
    others: HashMap<Tag, V, BuildHasherDefault<DefaultHasher>>,
}

impl<V> Default for Tags<V> {
    fn default() -> Self {
        Self { first: None, others: HashMap::default() }
    }
}

impl<V> Tags<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    pub(super) fn get(&self, tag: Tag) -> Option<&V> {
        match &self.first {
            Some((first, value)) if *first == tag => Some(value),
            _ => self.others.get(&tag),
        }
    }

    pub(super) fn get_mut(&mut self, tag: Tag) -> Option<&mut V> {
        match &mut self.first {
            Some((first, value)) if *first == tag => Some(value),
            _ => self.others.get_mut(&tag),
        }
    }

    pub(super) fn get_or_default(&mut self, tag: Tag) -> &mut V
    where
        V: Default,
    {
        if self.first.is_none() && !self.others.contains_key(&tag) {
            self.first = Some((tag, V::default()));
        }
        match &mut self.first {
            Some((first, value)) if *first == tag => value,
            _ => self.others.entry(tag).or_default(),
        }
    }

    pub(super) fn remove(&mut self, tag: Tag) {
        if self.first.take_if(|(first, _)| *first == tag).is_none() {
            self.others.remove(&tag);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Tag, &V)> {
        let first = self.first.iter().map(|(tag, value)| (*tag, value));
        first.chain(self.others.iter().map(|(tag, value)| (*tag, value)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Tag, &mut V)> {
        let first = self.first.iter_mut().map(|(tag, value)| (*tag, value));
        first.chain(self.others.iter_mut().map(|(tag, value)| (*tag, value)))
    }

    /// Takes out what `is_taken` says.
    pub(super) fn extract_if(&mut self, is_taken: impl Fn(Tag, &V) -> bool) -> impl Iterator<Item = V> {
        let first = self.first.take_if(|(tag, value)| is_taken(*tag, value));
        let others = self.others.extract_if(move |tag, value| is_taken(*tag, value));
        first.into_iter().chain(others).map(|(_, value)| value)
    }
}
