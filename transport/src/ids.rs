use std::fmt;

/// A process of the world, from 0 to `world_size - 1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank at this position in `0..world_size`.
    ///
    /// # Panics
    /// If `index` does not fit a `u32`; no world is that large.
    #[must_use]
    #[track_caller]
    pub const fn from_index(index: usize) -> Self {
        assert!(index <= u32::MAX as usize, "a rank fits 32 bits");
        Self(index as u32)
    }

    /// The position in `0..world_size`, for indexing.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a message is matched by, beside its sender and its receiver.
///
/// A tag is a *context* (one communicator's messages never meet another's) and a number within it.
/// Back ends with narrower tags than 64 bits fold it and carry the whole tag beside the payload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag {
    /// The communication context, in the sense of MPI.
    pub context: u32,
    /// The number within the context.
    pub number: u32,
}

impl Tag {
    /// The tag `number` of `context`.
    #[must_use]
    pub const fn new(context: u32, number: u32) -> Self {
        Self { context, number }
    }

    /// The tag as one number: the context in the high half.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        (self.context as u64) << 32 | self.number as u64
    }

    /// The inverse of [`Tag::to_u64`].
    #[must_use]
    pub const fn from_u64(bits: u64) -> Self {
        Self { context: (bits >> 32) as u32, number: bits as u32 }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.context, self.number)
    }
}

/// What an [`abort`](crate::Transport::abort) ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// Every operation whose tag is of this context, now and later. Other contexts go on.
    Context(u32),
    /// Every operation, now and later: the world is over.
    World,
}

impl Scope {
    /// Whether operations with this tag end with the scope.
    #[must_use]
    pub const fn covers(self, tag: Tag) -> bool {
        match self {
            Self::Context(context) => context == tag.context,
            Self::World => true,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context(context) => write!(f, "context {context}"),
            Self::World => f.write_str("the world"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_survives_its_number() {
        for tag in [Tag::new(0, 0), Tag::new(1, u32::MAX), Tag::new(u32::MAX, 1)] {
            assert_eq!(Tag::from_u64(tag.to_u64()), tag);
        }
        assert_eq!(Tag::new(1, 2).to_u64(), 0x1_0000_0002);
    }

    #[test]
    fn a_scope_covers_its_own_tags_only() {
        assert!(Scope::World.covers(Tag::new(3, 1)));
        assert!(Scope::Context(3).covers(Tag::new(3, 1)));
        assert!(!Scope::Context(3).covers(Tag::new(4, 3)));
    }
}
