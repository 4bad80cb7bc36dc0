//! Quantizers for gradients: fewer bits per value on the wire, right on average.
//!
//! [`Quantizer`] is the interface, [`Qsgd`] the implementation of Alistarh et al., "QSGD", 2017: 2, 4 or
//! 8 bits a value and one scale per bucket of values, by stochastic rounding whose mean is the value.
//!
//! ```
//! use sparse_quant::{Norm, Qsgd, Quantizer, Seed};
//!
//! # fn main() -> Result<(), sparse_quant::Error> {
//! let quantizer = Qsgd::new(4, 512, Norm::Max)?;
//! let gradient: Vec<f32> = (0..1000).map(|i| (i as f32).sin()).collect();
//!
//! let mut bytes = Vec::new();
//! quantizer.quantize(&gradient, Seed { seed: 42, step: 0, rank: 3 }, &mut bytes)?;
//! assert_eq!(bytes.len(), quantizer.encoded_len(1000));
//! assert_eq!(bytes.len(), 2 * 4 + 1000 / 2); // two scales, half a byte a value
//!
//! let mut restored = vec![0.0; 1000];
//! quantizer.dequantize(&bytes, &mut restored)?;
//! for (x, q) in gradient.iter().zip(&restored) {
//!     assert!((x - q).abs() <= 1.0 / 7.0);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Rules that hold everywhere
//! - **The same bytes everywhere.** The random numbers are ChaCha8 of ([`Seed`], bucket); the
//!   arithmetic is that of IEEE 754, in a fixed order, without fused operations.
//! - **NaN is loud.** What a quantizer cannot carry is an error that names the position.
//! - **Bytes are checked.** No input makes [`dequantize`](Quantizer::dequantize) panic.
//!
//! # To add a quantizer
//! Implement [`Quantizer`] for a type that holds the parameters, and keep the promises listed there.
//! This one keeps the upper half of each value, rounded towards zero:
//!
//! ```
//! use sparse_quant::{Error, Quantizer, Seed};
//!
//! #[derive(Debug)]
//! struct UpperHalf;
//!
//! impl Quantizer for UpperHalf {
//!     fn code(&self) -> u64 {
//!         0x80 << 56 // kinds from 0x80 are free for other crates
//!     }
//!
//!     fn encoded_len(&self, values: usize) -> usize {
//!         2 * values
//!     }
//!
//!     fn quantize(&self, values: &[f32], _: Seed, out: &mut Vec<u8>) -> Result<(), Error> {
//!         Error::check_finite(values)?;
//!         out.extend(values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()));
//!         Ok(())
//!     }
//!
//!     fn dequantize(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
//!         Error::check_length(self.encoded_len(out.len()), bytes.len())?;
//!         for (value, pair) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
//!             *value = f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let mut bytes = Vec::new();
//! UpperHalf.quantize(&[1.0, -2.5], Seed { seed: 0, step: 0, rank: 0 }, &mut bytes)?;
//! let mut restored = [0.0; 2];
//! UpperHalf.dequantize(&bytes, &mut restored)?;
//! assert_eq!(restored, [1.0, -2.5]);
//! # Ok::<(), Error>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod qsgd;
mod quantizer;
mod seed;

pub use error::{Error, ErrorKind};
pub use qsgd::{Norm, Qsgd};
pub use quantizer::Quantizer;
pub use seed::Seed;
