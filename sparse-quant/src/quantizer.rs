use std::fmt::Debug;

use crate::{Error, Seed};

/// Values to fewer bytes and back.
///
/// # For callers
/// All ranks use the same quantizer: compare [`code`](Quantizer::code). Who sends quantized values uses
/// the dequantized ones himself, or replicas drift.
///
/// # For implementers
/// - **Exact lengths.** [`quantize`](Quantizer::quantize) appends exactly
///   [`encoded_len`](Quantizer::encoded_len) bytes, whatever the values; no values make no bytes.
/// - **Deterministic.** The bytes depend on the parameters, the values and the seed alone, and are the
///   same on every machine: random numbers from [`Seed::numbers`], sums in a fixed order, no fused or
///   approximate operations, little endian.
/// - **Unbiased,** if the documentation says so: the mean over all seeds of what comes back is the
///   value.
/// - **Values that cannot be carried** (NaN, infinity) are an error that names the position.
/// - **Bytes come from strangers.** [`dequantize`](Quantizer::dequantize) never panics, checks the
///   length and whatever would make nonsense of the values.
/// - **All or nothing.** On an error `out` is as before.
pub trait Quantizer: Send + Sync + Debug {
    /// Identifies the quantizer with all its parameters: equal codes mean the same bytes for the same
    /// values and seed. The kind is in the highest byte; from 0x80 they are free for other crates.
    fn code(&self) -> u64;

    /// How many bytes this many values take.
    fn encoded_len(&self, values: usize) -> usize;

    /// Appends the bytes of the values.
    ///
    /// # Errors
    /// [`Error::NotFinite`].
    fn quantize(&self, values: &[f32], seed: Seed, out: &mut Vec<u8>) -> Result<(), Error>;

    /// Overwrites `out` with the values of the bytes.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Malformed`].
    fn dequantize(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Error>;
}
