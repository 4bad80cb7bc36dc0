//! Laws of the crate, checked against naive oracles for every type of values.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod codecs;
mod elements;
mod frames;
#[cfg(not(miri))] // which objects to a dependency of rayon
mod parallel;
mod random;
mod samples;
mod selection;
mod streaming;
mod streams;
mod sums;
mod vectors;

/// Instantiates a generic law as a test of each type of values.
///
/// A law is a function `fn law<T: Sample>(runner: &mut TestRunner)`; its tests are `law::f32` and so on.
macro_rules! for_each_type {
    ($($law:ident),* $(,)?) => { $(
        mod $law {
            #[test]
            fn f32() {
                super::$law::<f32>(&mut crate::samples::runner());
            }
            #[test]
            fn f64() {
                super::$law::<f64>(&mut crate::samples::runner());
            }
            #[test]
            fn f16() {
                super::$law::<half::f16>(&mut crate::samples::runner());
            }
            #[test]
            fn bf16() {
                super::$law::<half::bf16>(&mut crate::samples::runner());
            }
            #[test]
            fn i32() {
                super::$law::<i32>(&mut crate::samples::runner());
            }
            #[test]
            fn i64() {
                super::$law::<i64>(&mut crate::samples::runner());
            }
        }
    )* };
}
pub(crate) use for_each_type;
