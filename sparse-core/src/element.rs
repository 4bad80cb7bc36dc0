use std::fmt::{self, Debug};

use bytemuck::Pod;
use half::{bf16, f16};

/// A type of values: `f32`, `f64`, `f16`, `bf16`, `i32` or `i64`. Sealed.
///
/// ```
/// use sparse_core::{DType, Element};
///
/// assert_eq!(f32::DTYPE, DType::F32);
/// assert!(f32::NAN.magnitude() > f32::INFINITY.magnitude());
/// assert!((-2.0_f32).magnitude() > 1.0_f32.magnitude());
/// assert_eq!(Element::add(1_i32, 2), (3, false));
/// assert!(Element::add(i32::MAX, 1).1);
/// ```
pub trait Element: Pod + PartialEq + Debug + Send + Sync + sealed::Sealed {
    /// The run-time name of the type.
    const DTYPE: DType;

    /// Zero; `+0.0` for floats.
    const ZERO: Self;

    /// Whether sums can overflow with an error: integers only. Floats overflow to infinity.
    const CAN_OVERFLOW: bool;

    /// How many low bits of [`magnitude`](Element::magnitude) are ever set.
    const MAGNITUDE_BITS: u32;

    /// What sums of many values are kept in: `f32` for halves, the type itself for `f32` and `f64`,
    /// the next wider integer for integers.
    type Acc: Copy + PartialEq + Debug + Send + Sync + 'static;

    /// An order-preserving key of the absolute value. All NaN have one key, above every number's; both
    /// zeros have key 0.
    fn magnitude(self) -> u64;

    /// Whether this is not a number; never for integers.
    fn is_nan(self) -> bool;

    /// The sum, and whether it overflowed (then it is wrapped). Halves are added in `f32` and rounded.
    ///
    /// Commutative bit for bit: a sum that is NaN is always the same NaN. (Processors hand on the payload
    /// of one operand, and compilers swap operands.)
    fn add(self, other: Self) -> (Self, bool);

    /// The value as an accumulator; exact.
    fn widen(self) -> Self::Acc;

    /// `acc + self`; commutative bit for bit, as [`add`](Element::add).
    fn accumulate(self, acc: Self::Acc) -> Self::Acc;

    /// The accumulator rounded to this type, and whether it does not fit (then it is wrapped).
    fn narrow(acc: Self::Acc) -> (Self, bool);

    /// A `count`th of this, rounded once; halves are divided in `f32`. What is NaN becomes the one NaN of
    /// [`add`](Element::add). Integers are rounded towards zero.
    ///
    /// # Panics
    /// Of integers, if `count` is 0.
    #[must_use]
    fn divide(self, count: u32) -> Self;

    /// The nearest value to `value`. Integers: rounded towards zero and clamped, NaN to 0.
    fn from_f32(value: f32) -> Self;

    /// The nearest `f32`.
    fn to_f32(self) -> f32;

    /// The nearest `f64`; exact except for large `i64`.
    fn to_f64(self) -> f64;
}

/// The run-time name of an [`Element`] type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// Signed 32-bit integers.
    I32,
    /// Signed 64-bit integers.
    I64,
}

impl DType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 6] = [Self::F32, Self::F64, Self::F16, Self::Bf16, Self::I32, Self::I64];

    /// The number that stands for the type on the wire, 1 to 6. Fixed for ever.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::F32 => 1,
            Self::F64 => 2,
            Self::F16 => 3,
            Self::Bf16 => 4,
            Self::I32 => 5,
            Self::I64 => 6,
        }
    }

    /// The type of this code, if there is one.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::F32,
            2 => Self::F64,
            3 => Self::F16,
            4 => Self::Bf16,
            5 => Self::I32,
            6 => Self::I64,
            _ => return None,
        })
    }

    /// The type's name in Rust.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    /// Bytes per value.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(crate) mod sealed {
    use bytemuck::Pod;

    /// Keeps [`Element`](super::Element) closed, and holds what only this crate calls.
    pub trait Sealed: Sized {
        /// Swaps the bytes on big-endian machines: the wire is little endian. Its own inverse.
        fn little_endian(self) -> Self;

        /// Whether the magnitude is at least `low`, which must be one that occurs: the comparison in the type's own
        /// width, which vectorises.
        fn reaches(self, low: u64) -> bool;

        /// An integer of the same bits: where the compiler makes a branch of a choice between floats, of one between
        /// integers it makes none.
        type Bits: Pod;
    }
}

macro_rules! float {
    ($type:ident, $dtype:ident, $bits:ident, infinity: $infinity:expr) => {
        impl sealed::Sealed for $type {
            type Bits = $bits;

            #[inline]
            fn reaches(self, low: u64) -> bool {
                (self.to_bits() & ($bits::MAX >> 1)) >= low as $bits
            }

            #[inline]
            fn little_endian(self) -> Self {
                Self::from_bits(self.to_bits().to_le())
            }
        }

        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            const ZERO: Self = 0.0;
            const CAN_OVERFLOW: bool = false;
            const MAGNITUDE_BITS: u32 = $bits::BITS - 1;
            type Acc = Self;

            #[inline]
            fn magnitude(self) -> u64 {
                // Without its sign a float's bits order like the float; whatever is above infinity is NaN.
                u64::from((self.to_bits() & ($bits::MAX >> 1)).min($infinity + 1))
            }

            #[inline]
            fn is_nan(self) -> bool {
                self != self
            }

            #[inline]
            fn add(self, other: Self) -> (Self, bool) {
                (other.accumulate(self), false)
            }

            #[inline]
            fn widen(self) -> Self {
                self
            }

            #[inline]
            fn accumulate(self, acc: Self) -> Self {
                let sum = acc + self;
                if sum.is_nan() { Self::NAN } else { sum }
            }

            #[inline]
            fn narrow(acc: Self) -> (Self, bool) {
                (acc, false)
            }

            #[inline]
            fn divide(self, count: u32) -> Self {
                let quotient = self / count as Self;
                if quotient.is_nan() { Self::NAN } else { quotient }
            }

            #[inline]
            fn from_f32(value: f32) -> Self {
                value as Self
            }

            #[inline]
            fn to_f32(self) -> f32 {
                self as f32
            }

            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    };
}

macro_rules! half {
    ($type:ident, $dtype:ident) => {
        impl sealed::Sealed for $type {
            type Bits = u16;

            #[inline]
            fn reaches(self, low: u64) -> bool {
                (self.to_bits() & 0x7fff) >= low as u16
            }

            #[inline]
            fn little_endian(self) -> Self {
                Self::from_bits(self.to_bits().to_le())
            }
        }

        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            const ZERO: Self = Self::ZERO;
            const CAN_OVERFLOW: bool = false;
            const MAGNITUDE_BITS: u32 = 15;
            type Acc = f32;

            #[inline]
            fn magnitude(self) -> u64 {
                u64::from((self.to_bits() & 0x7fff).min(Self::INFINITY.to_bits() + 1))
            }

            #[inline]
            fn is_nan(self) -> bool {
                Self::is_nan(self)
            }

            #[inline]
            fn add(self, other: Self) -> (Self, bool) {
                Self::narrow(other.accumulate(self.widen()))
            }

            #[inline]
            fn widen(self) -> f32 {
                Self::to_f32(self)
            }

            #[inline]
            fn accumulate(self, acc: f32) -> f32 {
                Self::to_f32(self).accumulate(acc)
            }

            #[inline]
            fn narrow(acc: f32) -> (Self, bool) {
                (if acc.is_nan() { Self::NAN } else { Self::from_f32(acc) }, false)
            }

            #[inline]
            fn divide(self, count: u32) -> Self {
                Self::narrow(self.widen().divide(count)).0
            }

            #[inline]
            fn from_f32(value: f32) -> Self {
                Self::from_f32(value)
            }

            #[inline]
            fn to_f32(self) -> f32 {
                Self::to_f32(self)
            }

            #[inline]
            fn to_f64(self) -> f64 {
                Self::to_f64(self)
            }
        }
    };
}

macro_rules! integer {
    ($type:ident, $dtype:ident, acc: $acc:ident) => {
        impl sealed::Sealed for $type {
            type Bits = Self;

            #[inline]
            fn reaches(self, low: u64) -> bool {
                u64::from(self.unsigned_abs()) >= low
            }

            #[inline]
            fn little_endian(self) -> Self {
                self.to_le()
            }
        }

        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            const ZERO: Self = 0;
            const CAN_OVERFLOW: bool = true;
            const MAGNITUDE_BITS: u32 = Self::BITS;
            type Acc = $acc;

            #[inline]
            fn magnitude(self) -> u64 {
                u64::from(self.unsigned_abs())
            }

            #[inline]
            fn is_nan(self) -> bool {
                false
            }

            #[inline]
            fn add(self, other: Self) -> (Self, bool) {
                self.overflowing_add(other)
            }

            #[inline]
            fn widen(self) -> $acc {
                $acc::from(self)
            }

            #[inline]
            fn accumulate(self, acc: $acc) -> $acc {
                // Twice as wide: it takes more than 2^31 values to overflow.
                acc.wrapping_add($acc::from(self))
            }

            #[inline]
            fn narrow(acc: $acc) -> (Self, bool) {
                let value = acc as Self;
                (value, $acc::from(value) != acc)
            }

            #[inline]
            fn divide(self, count: u32) -> Self {
                ($acc::from(self) / $acc::from(count)) as Self
            }

            #[inline]
            fn from_f32(value: f32) -> Self {
                value as Self
            }

            #[inline]
            fn to_f32(self) -> f32 {
                self as f32
            }

            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    };
}

float!(f32, F32, u32, infinity: 0x7f80_0000);
float!(f64, F64, u64, infinity: 0x7ff0_0000_0000_0000);
half!(f16, F16);
half!(bf16, Bf16);
integer!(i32, I32, acc: i64);
integer!(i64, I64, acc: i128);
