use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sparse_core::{DType, Element};

use crate::samples::{Sample, check, code, value, values};

crate::for_each_type!(
    magnitude_orders_as_absolute_values_do,
    magnitude_keeps_to_its_bits,
    addition_is_the_sum_of_two,
    addition_commutes_bit_for_bit,
    accumulating_then_narrowing_is_the_sum,
    conversion_to_f32_and_back_keeps_small_numbers,
    dividing_undoes_multiplying,
    a_quotient_is_rounded_once_and_nan_is_one,
);

fn magnitude_orders_as_absolute_values_do<T: Sample>(runner: &mut TestRunner) {
    check(runner, (code(), code()), |(a, b)| {
        let (a, b) = (value::<T>(a), value::<T>(b));
        prop_assert_eq!(a.magnitude().cmp(&b.magnitude()), a.compare_magnitudes(b));
        prop_assert_eq!(a.magnitude() == 0, a.is_zero());
        Ok(())
    });
}

fn magnitude_keeps_to_its_bits<T: Sample>(runner: &mut TestRunner) {
    check(runner, code(), |a| {
        let a = value::<T>(a);
        prop_assert!(u128::from(a.magnitude()) < 1 << T::MAGNITUDE_BITS);
        Ok(())
    });
}

fn addition_is_the_sum_of_two<T: Sample>(runner: &mut TestRunner) {
    check(runner, (code(), code()), |(a, b)| {
        let (a, b) = (value::<T>(a), value::<T>(b));
        let (sum, overflowed) = a.add(b);
        prop_assert_eq!(overflowed, T::sum(&[a, b]).is_none());
        prop_assert!(T::CAN_OVERFLOW || !overflowed);
        prop_assert!(T::sum(&[a, b]).is_none_or(|expected| sum.same(expected)));
        Ok(())
    });
}

fn addition_commutes_bit_for_bit<T: Sample>(runner: &mut TestRunner) {
    // Any bits, so that NaN of different payloads meet.
    check(runner, (any::<u64>(), any::<u64>()), |(a, b)| {
        let from_bits = |bits: u64| bytemuck::pod_read_unaligned::<T>(&bits.to_ne_bytes()[..size_of::<T>()]);
        let with_nan =
            |bits: u64| from_bits(if bits.is_multiple_of(2) { bits | 0x7ff0_7ff0_7ff0_7ff0 } else { bits });
        let (a, b) = (with_nan(a), with_nan(b));
        let (ab, ba) = (std::hint::black_box(a).add(b).0, std::hint::black_box(b).add(a).0);
        prop_assert_eq!(bytemuck::bytes_of(&ab), bytemuck::bytes_of(&ba));
        Ok(())
    });
}

fn accumulating_then_narrowing_is_the_sum<T: Sample>(runner: &mut TestRunner) {
    check(runner, values::<T>(1..6), |values| {
        let acc = values[1..].iter().fold(values[0].widen(), |acc, value| value.accumulate(acc));
        match (T::narrow(acc), T::sum(&values)) {
            ((sum, false), Some(expected)) => prop_assert!(sum.same(expected), "{sum:?}, {expected:?}"),
            (narrowed, expected) => prop_assert!(narrowed.1 && expected.is_none()),
        }
        Ok(())
    });
}

fn dividing_undoes_multiplying<T: Sample>(runner: &mut TestRunner) {
    check(runner, (-15_i8..=15, 1_u32..=16), |(number, count)| {
        let product = <T as Element>::from_f32(f32::from(number) * count as f32);
        prop_assert!(product.divide(count).same(T::small(number)));
        Ok(())
    });
}

/// The bits of an element of eight bytes.
fn as_i64<T: Sample>(value: T) -> i64 {
    bytemuck::pod_read_unaligned(bytemuck::bytes_of(&value))
}

fn a_quotient_is_rounded_once_and_nan_is_one<T: Sample>(runner: &mut TestRunner) {
    check(runner, (code(), 1_u32..100, any::<u64>()), |(a, count, bits)| {
        let a = value::<T>(a);
        let (quotient, exact) = (a.divide(count), a.to_f64() / f64::from(count));
        match T::DTYPE {
            DType::F64 => prop_assert!(exact.is_nan() || quotient.to_f64() == exact),
            DType::F32 | DType::F16 | DType::Bf16 => {
                prop_assert!(quotient.same(<T as Element>::from_f32(exact as f32)));
            }
            DType::I32 => prop_assert!(quotient.to_f64() == exact.trunc()),
            // Which f64 does not hold.
            DType::I64 => {
                let (a, quotient) = (as_i64(a), as_i64(quotient));
                prop_assert_eq!(quotient, a / i64::from(count));
            }
        }
        let any = bytemuck::pod_read_unaligned::<T>(
            &(bits | 0x7ff0_7ff0_7ff0_7ff0).to_ne_bytes()[..size_of::<T>()],
        );
        if any.is_nan() {
            let (one, quotient) = (any.add(any).0, any.divide(count));
            prop_assert_eq!(bytemuck::bytes_of(&quotient), bytemuck::bytes_of(&one));
        }
        Ok(())
    });
}

fn conversion_to_f32_and_back_keeps_small_numbers<T: Sample>(runner: &mut TestRunner) {
    check(runner, any::<i8>(), |number| {
        let value = <T as Element>::from_f32(f32::from(number));
        prop_assert!(value.same(T::small(number)));
        prop_assert_eq!(Element::to_f32(value), f32::from(number));
        prop_assert_eq!(Element::to_f64(value), f64::from(number));
        Ok(())
    });
}

#[test]
fn codes_are_those_of_the_wire() {
    let table = DType::ALL.map(|dtype| (dtype.code(), dtype.name(), dtype.size()));
    let expected =
        [(1, "f32", 4), (2, "f64", 8), (3, "f16", 2), (4, "bf16", 2), (5, "i32", 4), (6, "i64", 8)];
    assert_eq!(table, expected);
    for code in 0..=u8::MAX {
        assert_eq!(DType::from_code(code).map(DType::code), (1..=6).contains(&code).then_some(code));
    }
}

#[test]
fn integers_clamp_what_does_not_fit() {
    assert_eq!(<i32 as Element>::from_f32(1e20), i32::MAX);
    assert_eq!(<i64 as Element>::from_f32(f32::NEG_INFINITY), i64::MIN);
    assert_eq!(<i32 as Element>::from_f32(f32::NAN), 0);
}
