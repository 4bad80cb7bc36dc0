use crate::Error;

/// How a transport behaves. The ranks of a world may differ: each says what it can take.
///
/// ```
/// use transport_mpi::Options;
///
/// let modest = Options { eager_window: 1 << 20, ..Options::default() };
/// # assert_eq!(modest.max_message, 16 << 30);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
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
    /// MPI counts in 32 bits: a longer message goes in pieces of at most so many bytes. Default: 1 GiB; at least
    /// 4 KiB, at most 2^31 - 1 bytes. The smallest of all ranks counts.
    pub max_piece: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { eager_window: 4 << 20, max_message: 16 << 30, max_waiting: 1 << 20, max_piece: 1 << 30 }
    }
}

impl Options {
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let wrong = |detail: String| Err(Error::Options { detail });
        if self.eager_window > 2 << 30 {
            return wrong(format!("an eager window of {} bytes exceeds 2 GiB", self.eager_window));
        }
        if !(4096..=i32::MAX as u32).contains(&self.max_piece) {
            return wrong(format!("pieces of {} bytes are not between 4096 and 2^31 - 1", self.max_piece));
        }
        Ok(())
    }
}
