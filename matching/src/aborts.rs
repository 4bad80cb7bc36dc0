use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use transport::{Error, Rank, Scope, Tag};

/// The longest reason of an abort that travels, in bytes.
pub const MAX_REASON: usize = 1024;

/// Why operations fail after the transport was dropped.
#[must_use]
pub fn gone() -> Error {
    Error::Backend { detail: "the transport has been dropped on this rank".into(), source: None }
}

/// As much of a reason as travels.
#[must_use]
pub fn shorten(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.get(..end).unwrap_or_default()
}

/// What has been aborted on this rank, and by whom first.
#[derive(Debug, Default)]
pub struct Aborts {
    /// Whether there is anything in the table: all that the normal case has to look at.
    any: AtomicBool,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    world: Option<Error>,
    contexts: HashMap<u32, Error>,
}

impl Aborts {
    /// Notes an abort. False if the scope was aborted before: the first one wins.
    pub fn note(&self, scope: Scope, by: Rank, reason: &str) -> bool {
        let error = Error::Aborted { by, scope, reason: reason.to_owned() };
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.world.is_some() {
            return false;
        }
        match scope {
            Scope::World => table.world = Some(error),
            Scope::Context(context) if table.contexts.contains_key(&context) => return false,
            Scope::Context(context) => {
                table.contexts.insert(context, error);
            }
        }
        self.any.store(true, Ordering::Release);
        true
    }

    /// Why operations with this tag have ended, if they have.
    pub fn of(&self, tag: Tag) -> Option<Error> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.contexts.get(&tag.context).or(table.world.as_ref()).cloned()
    }

    /// Whether the world is over.
    pub fn of_world(&self) -> bool {
        self.table.read().unwrap_or_else(PoisonError::into_inner).world.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(shorten("why"), "why");
        let long = "\u{1F980}".repeat(300);
        assert_eq!(shorten(&long).len(), MAX_REASON);
        assert_eq!(shorten(&format!("a{long}")).len(), MAX_REASON - 3);
    }

    #[test]
    fn the_first_abort_of_a_scope_wins() {
        let aborts = Aborts::default();
        let of = |context| aborts.of(Tag::new(context, 0)).map(|error| error.to_string());
        assert_eq!(of(1), None);
        assert!(aborts.note(Scope::Context(1), Rank(2), "first"));
        assert!(!aborts.note(Scope::Context(1), Rank(0), "second"));
        assert_eq!((of(1), of(2)), (Some("rank 2 aborted context 1: first".into()), None));
        assert!(aborts.note(Scope::World, Rank(3), "all"));
        assert!(
            !aborts.note(Scope::World, Rank(4), "again") && !aborts.note(Scope::Context(2), Rank(4), "late")
        );
        assert_eq!(of(1), Some("rank 2 aborted context 1: first".into()));
        assert_eq!(of(2), Some("rank 3 aborted the world: all".into()));
    }
}
