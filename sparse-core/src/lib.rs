//! Sparse vectors for gradients: exact top-k selection, merging, the sparse-or-dense stream, checked
//! wire formats.
//!
//! - [`SparseVec`]: strictly increasing `u32` indices beside their values, of a dimension up to 2^32.
//! - [`top_k`]: the k entries of largest magnitude, exactly, in linear time.
//! - [`top_k_per_layer`], [`top_k_per_bucket`], [`at_least`], [`random_k`]: other ways to choose.
//! - [`TopK`]: the same, step after step, by whoever passes over the vector anyway.
//! - [`merge`] and [`reduce`]: sums of two or many sparse vectors in a fixed operand order, so that the
//!   same inputs give the same bits everywhere.
//! - [`Stream`]: a sum that is sparse until the dense form is the shorter one, and dense from then on.
//! - [`Accumulator`], [`scatter_add`], [`add_assign`]: sums into dense memory; [`clear`] takes entries out of it.
//! - [`codec`]: indices on the wire in about their entropy.
//! - [`wire`]: little-endian frames with a version and a fingerprint, every byte of which is checked.
//!
//! With the feature `rayon`, `top_k_into_parallel` and `TopK::see_parallel` use the threads of a pool, and give the same
//! bits; nothing else does.
//!
//! The crate knows no ranks, no transport and no clock.
//!
//! Its loops are compiled for every processor of the architecture and once more for newer ones, chosen at run time; all
//! give the same bits. `SPARSE_CORE_ISA=portable` in the environment chooses the former, `avx2` nothing newer than that.
//!
//! # Rules that hold everywhere
//! - **NaN is loud.** Selection ranks every NaN above every number; sums propagate it.
//! - **Ties go to the lowest index.**
//! - **-0.0 is zero** where zeros are dropped ([`SparseVec::from_dense`], [`top_k`]). Zeros that arise by
//!   cancellation in a sum are kept: dropping them would need another pass and change no result.
//! - **Halves are added in `f32`,** integers without wrapping: an overflow is [`Error::Overflow`] and
//!   names the index.
//!
//! ```
//! use sparse_core::{SparseVec, Stream, merge, top_k};
//!
//! # fn main() -> Result<(), sparse_core::Error> {
//! let a = top_k(&[0.5_f32, -4.0, 0.0, 3.0, 0.1], 2)?;
//! let b = SparseVec::new(5, vec![3, 4], vec![1.0, 1.0])?;
//! let sum = merge(&a, &b)?;
//! assert_eq!(sum.indices(), [1, 3, 4]);
//! assert_eq!(sum.values(), [-4.0, 4.0, 1.0]);
//!
//! // Four entries cost more than five dense values: the stream has gone dense.
//! let stream = Stream::from(a).merge(Stream::from(b))?;
//! assert!(stream.is_dense());
//! assert_eq!(stream.into_dense(), sum.to_dense());
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod arch;
pub mod codec;
mod collect;
mod cut;
mod dense;
mod element;
mod error;
mod layers;
mod memory;
mod merge;
#[cfg(feature = "rayon")]
mod parallel;
mod pass;
mod random;
mod reduce;
mod select;
mod sparse_vec;
mod stream;
mod streaming;
mod view;
pub mod wire;

pub use dense::{Accumulator, add_assign, clear, divide, scatter_add};
pub use element::{DType, Element};
pub use error::{Error, ErrorKind};
pub use layers::{top_k_per_bucket, top_k_per_layer};
pub use memory::{Memory, Reusable};
pub use merge::{merge, merge_in};
#[cfg(feature = "rayon")]
pub use parallel::top_k_into_parallel;
pub use random::{Draw, random_k};
pub use reduce::{reduce, reduce_views, reduce_views_in};
pub use select::{at_least, top_k, top_k_into};
pub use sparse_vec::{Duplicates, SparseVec};
pub use stream::{Stream, dense_is_shorter};
pub use streaming::TopK;
pub use view::SparseView;
