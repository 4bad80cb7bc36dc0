//! Laws of the quantizers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use proptest::prelude::*;
use sparse_quant::{Error, ErrorKind, Norm, Qsgd, Quantizer, Seed};

const SEED: Seed = Seed { seed: 7, step: 11, rank: 3 };

fn qsgd() -> impl Strategy<Value = Qsgd> {
    let bits = prop::sample::select(vec![2, 4, 8]);
    let norm = prop::sample::select(vec![Norm::Max, Norm::L2]);
    (bits, 1_usize..40, norm).prop_map(|(bits, bucket, norm)| Qsgd::new(bits, bucket, norm).unwrap())
}

fn seed() -> impl Strategy<Value = Seed> {
    (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(seed, step, rank)| Seed { seed, step, rank })
}

/// Finite values of all sizes, neighbours in one vector often of one size.
fn values() -> impl Strategy<Value = Vec<f32>> {
    let any_size = any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |value| value.is_finite());
    let tiny = (0_u32..40).prop_map(f32::from_bits);
    let large = prop::sample::select(vec![f32::MAX, f32::MIN, f32::MAX / 2.0]);
    let value = prop_oneof![4 => -1.0_f32..1.0, 1 => Just(-0.0), 1 => any_size];
    prop_oneof![
        6 => prop::collection::vec(value, 0..100),
        1 => prop::collection::vec(tiny, 0..100),
        1 => prop::collection::vec(large, 0..100),
    ]
}

fn quantize(quantizer: &dyn Quantizer, values: &[f32], seed: Seed) -> Vec<u8> {
    let mut out = Vec::new();
    quantizer.quantize(values, seed, &mut out).unwrap();
    out
}

fn dequantize(quantizer: &dyn Quantizer, bytes: &[u8], len: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; len];
    quantizer.dequantize(bytes, &mut out).unwrap();
    out
}

/// The scale of a bucket as documented.
fn scale(quantizer: &Qsgd, bucket: &[f32]) -> f64 {
    let magnitudes = bucket.iter().map(|&value| f64::from(value.abs()));
    match quantizer.norm() {
        Norm::Max => magnitudes.fold(0.0, f64::max),
        Norm::L2 => magnitudes.map(|value| value * value).sum::<f64>().sqrt().min(f32::MAX.into()),
    }
}

proptest! {
    #[test]
    fn the_length_is_exact(quantizer in qsgd(), values in values(), seed in seed()) {
        let bytes = quantize(&quantizer, &values, seed);
        prop_assert_eq!(bytes.len(), quantizer.encoded_len(values.len()));
        let of_buckets = values.chunks(quantizer.bucket()).map(|bucket| {
            4 + (bucket.len() * quantizer.bits() as usize).div_ceil(8)
        });
        prop_assert_eq!(bytes.len(), of_buckets.sum::<usize>());
    }

    #[test]
    fn a_value_is_off_by_at_most_a_step(quantizer in qsgd(), values in values(), seed in seed()) {
        let restored = dequantize(&quantizer, &quantize(&quantizer, &values, seed), values.len());
        let buckets = values.chunks(quantizer.bucket()).zip(restored.chunks(quantizer.bucket()));
        for (bucket, restored) in buckets {
            let step = scale(&quantizer, bucket) / f64::from(quantizer.levels());
            // The points of the grid are rounded to f32.
            let step = step * (1.0 + 1e-5) + f64::from(f32::from_bits(1));
            for (&value, &back) in bucket.iter().zip(restored) {
                prop_assert!((f64::from(value) - f64::from(back)).abs() <= step, "{value} became {back}");
                prop_assert!(back == 0.0 || back.is_sign_negative() == value.is_sign_negative());
            }
        }
    }

    #[test]
    fn a_representable_vector_comes_back_as_it_is(
        quantizer in qsgd(),
        scale in prop_oneof![0.0..f32::MAX, 0.0_f32..1.0, (0_u32..2000).prop_map(f32::from_bits)],
        codes in prop::collection::vec(any::<u8>(), 1..40),
        seed in seed(),
    ) {
        // One bucket whose first value is the scale itself.
        let quantizer = Qsgd::new(quantizer.bits(), 200, Norm::Max).unwrap();
        let mut bytes = scale.to_le_bytes().to_vec();
        bytes.extend(&codes);
        bytes[4] = bytes[4] & !((1_u16 << quantizer.bits()) - 1) as u8 | quantizer.levels() as u8;
        let values = dequantize(&quantizer, &bytes, codes.len() * 8 / quantizer.bits() as usize);
        prop_assert_eq!(values[0], scale);
        let again = dequantize(&quantizer, &quantize(&quantizer, &values, seed), values.len());
        prop_assert_eq!(again, values);
    }

    #[test]
    fn a_lone_value_is_its_own_norm(quantizer in qsgd(), value in -1e30_f32..1e30, seed in seed()) {
        let values = [&[value][..], &vec![0.0; quantizer.bucket() - 1]].concat();
        prop_assert_eq!(dequantize(&quantizer, &quantize(&quantizer, &values, seed), values.len()), values);
    }

    #[test]
    fn zeros_stay_zeros(quantizer in qsgd(), len in 0_usize..100, seed in seed()) {
        for zero in [0.0, -0.0] {
            let bytes = quantize(&quantizer, &vec![zero; len], seed);
            prop_assert_eq!(bytes.iter().find(|&&byte| byte != 0), None);
            prop_assert_eq!(dequantize(&quantizer, &bytes, len), vec![0.0; len]);
        }
    }

    #[test]
    fn a_bucket_depends_on_nothing_but_itself_and_its_number(
        quantizer in qsgd(),
        values in values(),
        seed in seed(),
    ) {
        let bytes = quantize(&quantizer, &values, seed);
        let whole = values.len() / quantizer.bucket();
        for buckets in 0..=whole {
            let part = quantize(&quantizer, &values[..buckets * quantizer.bucket()], seed);
            prop_assert_eq!(&part, &bytes[..part.len()]);
        }
    }

    #[test]
    fn what_is_not_finite_is_named(
        quantizer in qsgd(),
        values in values(),
        at in any::<prop::sample::Index>(),
        bad in prop::sample::select(vec![f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
    ) {
        let mut values = values;
        values.push(1.0);
        let position = at.index(values.len());
        values[position] = bad;
        values.push(f32::INFINITY);
        let mut out = vec![1, 2, 3];
        match quantizer.quantize(&values, SEED, &mut out) {
            Err(Error::NotFinite { position: found, value }) => {
                prop_assert_eq!((found, value.to_bits()), (position, bad.to_bits()));
            }
            other => prop_assert!(false, "{other:?}"),
        }
        prop_assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn any_bytes_give_values_within_their_scale_or_an_error(
        quantizer in qsgd(),
        len in 0_usize..60,
        bytes in prop::collection::vec(any::<u8>(), 400),
        more in 0_usize..3,
    ) {
        let exact = quantizer.encoded_len(len);
        let mut out = vec![0.5; len];
        let refused = quantizer.dequantize(&bytes[..exact + 1 + more], &mut out);
        prop_assert_eq!(refused, Err(Error::Length { expected: exact, found: exact + 1 + more }));
        let bytes = &bytes[..exact];
        let scales: Vec<f32> = bytes
            .chunks(quantizer.encoded_len(quantizer.bucket()))
            .map(|bytes| f32::from_le_bytes(bytes[..4].try_into().unwrap()))
            .collect();
        let good = scales.iter().all(|scale| scale.is_finite() && scale.is_sign_positive());
        match quantizer.dequantize(bytes, &mut out) {
            Ok(()) => {
                prop_assert!(good);
                for (values, &scale) in out.chunks(quantizer.bucket()).zip(&scales) {
                    prop_assert!(values.iter().all(|value| value.abs() <= scale));
                }
            }
            Err(error) => {
                prop_assert!(!good);
                prop_assert_eq!(error.kind(), ErrorKind::Malformed);
                prop_assert_eq!(out, vec![0.5; len]);
            }
        }
    }
}

#[test]
fn rounding_is_unbiased() {
    let values = [1.0, -0.9, 0.5, 0.333, -0.25, 0.1, 0.01, -0.001, 0.0, 0.7, -0.07];
    let rounds = 4000;
    for bits in [2, 4, 8] {
        for norm in [Norm::Max, Norm::L2] {
            let quantizer = Qsgd::new(bits, 4, norm).unwrap();
            let mut sums = [0.0_f64; 11];
            for step in 0..rounds {
                let bytes = quantize(&quantizer, &values, Seed { step, ..SEED });
                for (sum, value) in sums.iter_mut().zip(dequantize(&quantizer, &bytes, values.len())) {
                    *sum += f64::from(value);
                }
            }
            for (at, (sum, &value)) in sums.iter().zip(&values).enumerate() {
                let bucket = values.chunks(4).nth(at / 4).unwrap();
                let step = scale(&quantizer, bucket) / f64::from(quantizer.levels());
                // The largest deviation that one rounding can have is half a step.
                let standard_error = step / 2.0 / (rounds as f64).sqrt();
                let mean = sum / rounds as f64;
                let bias = (mean - f64::from(value)).abs();
                assert!(bias <= 4.0 * standard_error, "{bits} bits, {norm:?}: {value} has mean {mean}");
            }
        }
    }
}

#[test]
fn the_rounding_of_neighbours_is_independent() {
    // Halfway values round up or down with even odds; together they must take all combinations.
    let quantizer = Qsgd::new(2, 3, Norm::Max).unwrap();
    let mut seen = std::collections::BTreeMap::<Vec<u8>, u32>::new();
    for step in 0..1000 {
        let bytes = quantize(&quantizer, &[1.0, 0.5, -0.5, 1.0, 0.5, -0.5], Seed { step, ..SEED });
        *seen.entry([&bytes[4..5], &bytes[9..]].concat()).or_default() += 1;
    }
    assert_eq!(seen.len(), 16);
    assert!(seen.values().all(|&count| (35..=95).contains(&count)), "{seen:?}");
}

#[test]
fn the_bytes_are_the_same_on_every_machine() {
    let values: Vec<f32> = (0..10).map(|i| (i - 4) as f32 * 0.3).collect();
    let bytes = |bits, norm| quantize(&Qsgd::new(bits, 8, norm).unwrap(), &values, SEED);
    assert_eq!(bytes(2, Norm::Max), GOLDEN_2);
    assert_eq!(bytes(4, Norm::Max), GOLDEN_4);
    assert_eq!(bytes(8, Norm::Max), GOLDEN_8);
    assert_eq!(bytes(8, Norm::L2), GOLDEN_8_L2);
    assert_eq!(SEED.numbers(5).take(3).collect::<Vec<_>>(), GOLDEN_NUMBERS);
}

// From an implementation of the documentation in another language.
const GOLDEN_NUMBERS: [u32; 3] = [767_226_098, 1_323_836_935, 3_224_443_370];
const GOLDEN_2: [u8; 11] = [154, 153, 153, 63, 207, 80, 0, 0, 192, 63, 5];
const GOLDEN_4: [u8; 13] = [154, 153, 153, 63, 223, 171, 32, 100, 0, 0, 192, 63, 118];
const GOLDEN_8: [u8; 18] = [154, 153, 153, 63, 255, 223, 191, 160, 0, 32, 64, 96, 0, 0, 192, 63, 102, 127];
const GOLDEN_8_L2: [u8; 18] =
    [128, 183, 254, 63, 204, 185, 166, 148, 0, 19, 39, 58, 70, 225, 245, 63, 80, 99];

#[test]
fn seed_step_rank_and_bucket_all_matter() {
    let numbers = |seed: Seed, bucket| seed.numbers(bucket).take(4).collect::<Vec<_>>();
    let all = [
        numbers(SEED, 0),
        numbers(SEED, 1),
        numbers(Seed { seed: 8, ..SEED }, 0),
        numbers(Seed { step: 12, ..SEED }, 0),
        numbers(Seed { rank: 4, ..SEED }, 0),
        // The parts of the key do not run into each other.
        numbers(Seed { seed: SEED.step, step: SEED.seed, ..SEED }, 0),
        numbers(Seed { rank: 0, step: SEED.step | 3 << 32, ..SEED }, 0),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
    assert_eq!(numbers(SEED, 1), all[1]);
}

#[test]
fn codes_tell_parameters_apart() {
    let mut codes = Vec::new();
    for bits in [2, 4, 8] {
        for bucket in [1, 2, 512, u32::MAX as usize] {
            for norm in [Norm::Max, Norm::L2] {
                let quantizer: Arc<dyn Quantizer> = Arc::new(Qsgd::new(bits, bucket, norm).unwrap());
                assert!(!codes.contains(&quantizer.code()));
                assert_eq!(quantizer.code() >> 56, 1);
                codes.push(quantizer.code());
            }
        }
    }
}

#[test]
fn impossible_parameters_are_refused() {
    for bits in [0, 1, 3, 5, 7, 9, 16, 32] {
        assert_eq!(Qsgd::new(bits, 512, Norm::Max).unwrap_err().kind(), ErrorKind::Parameter);
    }
    for bucket in [0, u32::MAX as usize + 1] {
        assert_eq!(Qsgd::new(4, bucket, Norm::Max).unwrap_err().kind(), ErrorKind::Parameter);
    }
    let default = Qsgd::default();
    assert_eq!(Qsgd::new(default.bits(), default.bucket(), default.norm()), Ok(default));
    let message = Qsgd::new(3, 512, Norm::Max).unwrap_err().to_string();
    assert_eq!(message, "bits cannot be 3: 2, 4 or 8 are possible");
}
