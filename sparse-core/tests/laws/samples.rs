//! What the laws are tried on: values that tie, cancel, overflow and are not numbers, all of them often.

use std::any::Any;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::ops::{Range, RangeInclusive};

use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sparse_core::{Element, SparseVec};

/// A type of values, with its awkward values and naive arithmetic.
pub(crate) trait Sample: Element {
    /// Few, so that ties are frequent.
    fn alphabet() -> Vec<Self>;
    fn from_seed(bits: u64) -> Self;
    /// Values whose sums are exact in any order and never overflow.
    fn small(value: i8) -> Self;
    fn compare_magnitudes(self, other: Self) -> Ordering;
    /// The left fold in the accumulator type, rounded once; `None` if that overflows.
    fn sum(values: &[Self]) -> Option<Self>;
    fn is_zero(self) -> bool {
        self == Self::ZERO
    }
    /// Bit for bit, except that one NaN is as good as another.
    fn same(self, other: Self) -> bool {
        bytemuck::bytes_of(&self) == bytemuck::bytes_of(&other) || (self.is_nan() && other.is_nan())
    }
}

macro_rules! float_sample {
    ($type:ident, $bits:ident, $acc:ident) => {
        impl Sample for $type {
            fn alphabet() -> Vec<Self> {
                let max = Self::MAX;
                let tiny = Self::from_bits(1);
                let from = <Self as Element>::from_f32;
                let mut values = vec![from(0.0), from(1.0), from(1.5), from(3.0), tiny, Self::MIN_POSITIVE, max];
                values.extend([Self::INFINITY, Self::NAN, Self::from_bits(Self::NAN.to_bits() | 1)]);
                let negative = values.iter().map(|&value| -value).collect::<Vec<_>>();
                values.extend(negative);
                values
            }
            fn from_seed(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            fn small(value: i8) -> Self {
                Element::from_f32(f32::from(value))
            }
            fn compare_magnitudes(self, other: Self) -> Ordering {
                let (a, b) = (self.to_f64().abs(), other.to_f64().abs());
                a.partial_cmp(&b).unwrap_or(self.is_nan().cmp(&other.is_nan()))
            }
            fn sum(values: &[Self]) -> Option<Self> {
                let widened = values.iter().map(|&value| $acc::from(value));
                widened.reduce(|sum, value| sum + value).map(|sum| float_sample!(@round $type, sum))
            }
        }
    };
    (@round f16, $sum:expr) => { f16::from_f32($sum) };
    (@round bf16, $sum:expr) => { bf16::from_f32($sum) };
    (@round $type:ident, $sum:expr) => { $sum };
}

macro_rules! integer_sample {
    ($type:ident) => {
        impl Sample for $type {
            fn alphabet() -> Vec<Self> {
                vec![0, 1, -1, 2, -2, Self::MAX, Self::MIN, Self::MIN + 1, Self::MAX / 2, 1 << 20]
            }
            fn from_seed(bits: u64) -> Self {
                bits as Self
            }
            fn small(value: i8) -> Self {
                Self::from(value)
            }
            fn compare_magnitudes(self, other: Self) -> Ordering {
                i128::from(self).abs().cmp(&i128::from(other).abs())
            }
            fn sum(values: &[Self]) -> Option<Self> {
                values.iter().map(|&value| i128::from(value)).sum::<i128>().try_into().ok()
            }
        }
    };
}

float_sample!(f32, u32, f32);
float_sample!(f64, u64, f64);
float_sample!(f16, u16, f32);
float_sample!(bf16, u16, f32);
integer_sample!(i32);
integer_sample!(i64);

pub(crate) fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })
}

/// Runs a law on everything that the strategy gives.
pub(crate) fn check<V: Debug + 'static>(
    runner: &mut TestRunner,
    strategy: impl Strategy<Value = V> + 'static,
    law: impl Fn(V) -> Result<(), TestCaseError>,
) {
    check_cases(runner, &cases(strategy.boxed()), &|Case(input, _)| law(*input.downcast().unwrap()));
}

fn cases<V: Debug + 'static>(strategy: BoxedStrategy<V>) -> BoxedStrategy<Case> {
    strategy.prop_map(|input| Case(Box::new(input), |f, input| input.downcast_ref::<V>().fmt(f))).boxed()
}

/// The test runner is large, and compiled once for all laws and types this way.
fn check_cases(
    runner: &mut TestRunner,
    cases: &BoxedStrategy<Case>,
    law: &dyn Fn(Case) -> Result<(), TestCaseError>,
) {
    if let Err(error) = runner.run(cases, law) {
        panic!("{error}");
    }
}

/// Any input, and how to show it.
struct Case(Box<dyn Any>, fn(&mut fmt::Formatter<'_>, &dyn Any) -> fmt::Result);

impl Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1(f, &*self.0)
    }
}

/// Any value: mostly of the alphabet, sometimes any bits.
pub(crate) fn value<T: Sample>(code: u64) -> T {
    let alphabet = T::alphabet();
    if code % 5 == 4 { T::from_seed(code / 5) } else { alphabet[(code / 5) as usize % alphabet.len()] }
}

/// Values whose sums are exact, in whatever order.
pub(crate) fn small_value<T: Sample>(code: u64) -> T {
    T::small((code % 19) as i8 - 9)
}

/// Codes to make values of: strategies of codes are compiled once for all types.
pub(crate) fn code() -> BoxedStrategy<u64> {
    any::<u64>().boxed()
}

/// Some values.
pub(crate) fn values<T: Sample>(len: Range<usize>) -> BoxedStrategy<Vec<T>> {
    codes(len).prop_map(|codes| codes.into_iter().map(value).collect()).boxed()
}

fn codes(len: Range<usize>) -> BoxedStrategy<Vec<u64>> {
    proptest::collection::vec(code(), len).boxed()
}

/// Short vectors that shrink well, and long ones that are cheap to make.
pub(crate) fn dense<T: Sample>() -> BoxedStrategy<Vec<T>> {
    let most = if cfg!(miri) { 1500 } else { 6000 };
    let long = (0_usize..most, code(), 0_u32..5).prop_map(|(len, seed, style)| long(len, seed, style));
    prop_oneof![4 => values(0..100), 1 => long].boxed()
}

pub(crate) fn long<T: Sample>(len: usize, seed: u64, style: u32) -> Vec<T> {
    let alphabet = T::alphabet();
    let pick = |bits: u64| match style {
        0 => T::from_seed(bits),
        1 => alphabet[bits as usize % alphabet.len()],
        // Close together, so that one digit of the magnitude does not tell them apart.
        2 => T::from_seed(0x0101_0101_0101_0101 ^ (bits & 0x1ff)),
        3 if !bits.is_multiple_of(100) => T::ZERO,
        3 => T::from_seed(bits >> 8),
        _ => T::small(7),
    };
    numbers(seed).map(pick).take(len).collect()
}

/// The splitmix64 generator.
pub(crate) fn numbers(mut state: u64) -> impl Iterator<Item = u64> {
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// Vectors of one dimension. Their indices are crowded, spread or clustered; the dimension is
/// anything up to 2^32.
pub(crate) fn sparse_vecs<T: Sample>(
    count: RangeInclusive<usize>,
    value: fn(u64) -> T,
) -> BoxedStrategy<Vec<SparseVec<T>>> {
    let vecs = entries(count).prop_map(move |(dim, vecs)| {
        let vecs = vecs.into_iter().map(|entries| {
            let (indices, codes): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
            SparseVec::new(dim, indices, codes.into_iter().map(value).collect()).unwrap()
        });
        vecs.collect()
    });
    vecs.boxed()
}

pub(crate) fn sparse<T: Sample>() -> BoxedStrategy<SparseVec<T>> {
    sparse_vecs(1..=1, value).prop_map(|mut vecs| vecs.remove(0)).boxed()
}

type Entries = BTreeMap<u32, u64>;

fn entries(count: RangeInclusive<usize>) -> BoxedStrategy<(u64, Vec<Entries>)> {
    let dim = prop_oneof![Just(0), Just(1), 2_u64..40, 1000_u64..50_000, Just(1 << 32)];
    let vecs = dim.prop_flat_map(move |dim| {
        let start = if dim == 0 { 0..1 } else { 0..dim };
        let run = (start.clone(), 1_u64..4, codes(0..40)).prop_map(|(start, step, codes)| {
            codes.into_iter().enumerate().map(|(i, code)| (start + i as u64 * step, code)).collect()
        });
        let scattered = proptest::collection::vec((start, code()), 0..40);
        let end = (0_u64..50, code()).prop_map(move |(back, code)| vec![(dim.wrapping_sub(back), code)]);
        let one = prop_oneof![Just(Vec::new()), scattered, run, end].prop_map(move |entries| {
            let within = entries.into_iter().filter(|&(index, _)| index < dim);
            within.map(|(index, code)| (index as u32, code)).collect::<Entries>()
        });
        (Just(dim), proptest::collection::vec(one, count.clone()))
    });
    vecs.boxed()
}

/// Bit-for-bit equality of slices up to NaN payloads.
pub(crate) fn assert_same<T: Sample>(left: &[T], right: &[T]) -> Result<(), TestCaseError> {
    prop_assert_eq!(left.len(), right.len());
    for (at, (&l, &r)) in left.iter().zip(right).enumerate() {
        prop_assert!(l.same(r), "at {at}: {l:?} and {r:?}");
    }
    Ok(())
}

/// The same for sparse vectors.
pub(crate) fn assert_same_vec<T: Sample>(
    left: &SparseVec<T>,
    right: &SparseVec<T>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(left.dim(), right.dim());
    prop_assert_eq!(left.indices(), right.indices());
    assert_same(left.values(), right.values())
}

/// Seed and style of some vectors that take several ranges, with many ties and NaN in some, and a k.
pub(crate) fn long_vectors() -> impl Strategy<Value = (usize, Vec<(u64, u32)>, usize)> {
    let k = prop_oneof![0_usize..3, 3_usize..3000, 0_usize..200_000];
    (0_usize..200_000, prop::collection::vec((code(), 0_u32..5), 3), k)
}

pub(crate) fn runner_of_few(runner: &TestRunner) -> TestRunner {
    TestRunner::new(ProptestConfig { cases: 8, ..runner.config().clone() })
}

pub(crate) fn assert_same_bits<T: Sample>(
    found: &SparseVec<T>,
    expected: &SparseVec<T>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!((found.dim(), found.indices()), (expected.dim(), expected.indices()));
    prop_assert_eq!(
        bytemuck::cast_slice::<T, u8>(found.values()),
        bytemuck::cast_slice::<T, u8>(expected.values())
    );
    Ok(())
}
