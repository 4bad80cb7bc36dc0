use std::fmt;
use std::hint::black_box;

use crate::Error;

/// What the ranks of one job know and strangers do not, given to each by its starter.
///
/// Sent to rank 0 in the clear and compared in constant time; see the crate's documentation for what
/// that protects against.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The longest secret, in bytes.
    pub const MAX: usize = 64;

    /// A secret of 1 to 64 bytes without NUL.
    ///
    /// # Errors
    /// [`Error::Config`] when it is empty, longer, or contains NUL.
    pub fn new(secret: impl Into<String>) -> Result<Self, Error> {
        let secret = secret.into();
        if secret.is_empty() || secret.len() > Self::MAX || secret.contains('\0') {
            let detail = format!("the secret must have 1 to {} bytes, none of them NUL", Self::MAX);
            return Err(Error::Config { detail });
        }
        Ok(Self(secret))
    }

    /// The secret as it travels: padded with NUL, which it cannot contain.
    pub(crate) fn padded(secret: Option<&Self>) -> [u8; Self::MAX] {
        let mut padded = [0; Self::MAX];
        let bytes = secret.map_or(&[][..], |secret| secret.0.as_bytes());
        for (slot, byte) in padded.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        padded
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// 128 random bits that rank 0 draws for each job: the password of its data connections.
///
/// Known to all ranks after [`Rendezvous::exchange`](crate::Rendezvous::exchange) and to nobody else.
#[derive(Clone)]
pub struct JobToken([u8; 16]);

impl JobToken {
    /// Draws a token from the system's random source.
    ///
    /// # Errors
    /// [`Error::Io`] when the system has no randomness to give.
    pub fn random() -> Result<Self, Error> {
        let mut bytes = [0; 16];
        fill_random(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The token that another rank sent.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The token as it is sent to another rank of the job.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Whether somebody presented this very token; takes the same time wherever it differs.
    #[must_use]
    pub fn matches(&self, presented: &[u8]) -> bool {
        constant_time_eq(&self.0, presented)
    }
}

impl fmt::Debug for JobToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobToken(..)")
    }
}

pub(crate) fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
    a.len() == b.len() && differing == 0
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|error| Error::Io {
        detail: "drawing random bytes".into(),
        source: std::io::Error::other(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn constant_time_comparison_is_comparison(
            a in proptest::collection::vec(0..3_u8, 0..5),
            b in proptest::collection::vec(0..3_u8, 0..5),
        ) {
            prop_assert_eq!(constant_time_eq(&a, &b), a == b);
        }
    }

    #[test]
    fn tokens_differ_and_stay_out_of_logs() {
        let (one, other) = (JobToken::random().unwrap(), JobToken::random().unwrap());
        assert!(one.matches(one.as_bytes()) && !one.matches(other.as_bytes()) && !one.matches(&[]));
        assert_eq!(format!("{one:?} {:?}", Secret::new("hush").unwrap()), "JobToken(..) Secret(..)");
    }

    #[test]
    fn a_secret_is_bounded() {
        assert!(Secret::new("x".repeat(64)).is_ok());
        for bad in [String::new(), "x".repeat(65), "a\0b".into()] {
            assert!(Secret::new(bad).is_err());
        }
    }
}
