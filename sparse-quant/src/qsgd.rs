use crate::{Error, Quantizer, Seed};

/// QSGD: a sign and a level of 2, 4 or 8 bits together, and a scale for each bucket of values.
///
/// With `b` bits there are `s = 2^(b-1) - 1` levels above zero (1, 7, 127). In a bucket of scale `c` the
/// values `c * l / s` for `l` from `-s` to `s` are representable, and come back as they are. A value
/// between two of them becomes one or the other, at random, so that the mean is the value (to one part
/// in 2^32 of the step between them): the result is *unbiased*, and off by less than `c / s`. A bucket
/// of zeros comes back as zeros.
///
/// A value takes `b / 8` bytes and a bucket 4 more. The cost is linear, about a random number a value.
///
/// On the wire: for each bucket the scale (`f32`, little endian), then the codes from the low bits of
/// each byte up; a code is the level, with the sign in its highest bit. The last bucket may be short,
/// the last byte of a bucket is padded with zeros.
///
/// From Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
/// 2017; without the entropy code, as SparCML uses it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Qsgd {
    bits: u32,
    bucket: usize,
    norm: Norm,
}

/// What the scale of a bucket is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Norm {
    /// The largest magnitude. The default: the variance of the rounding grows with the scale, and this
    /// is the smallest scale that carries all values. Against [`L2`](Norm::L2) it is smaller by about
    /// the square root of the bucket's length where the values are alike in magnitude.
    #[default]
    Max,
    /// The Euclidean norm, as in the paper: its bound on the expected number of values that are not
    /// zero needs it. The smaller the values against the norm, the more of them become zero.
    L2,
}

impl Qsgd {
    /// A quantizer of `bits` (2, 4 or 8) a value and a scale for every `bucket` values.
    ///
    /// Usual buckets are 128 to 1024. Small ones are more precise: their largest values differ less.
    ///
    /// # Errors
    /// [`Error::Parameter`] for other bits, or a bucket of 0 or more than `u32::MAX`.
    pub fn new(bits: u32, bucket: usize, norm: Norm) -> Result<Self, Error> {
        if !matches!(bits, 2 | 4 | 8) {
            return Err(Error::Parameter {
                name: "bits",
                value: bits.into(),
                expected: "2, 4 or 8 are possible",
            });
        }
        if bucket == 0 || u32::try_from(bucket).is_err() {
            let expected = "1 to 4294967295 values are possible";
            return Err(Error::Parameter { name: "bucket", value: bucket as u64, expected });
        }
        Ok(Self { bits, bucket, norm })
    }

    /// Bits a value.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Values a bucket.
    #[must_use]
    pub fn bucket(&self) -> usize {
        self.bucket
    }

    /// What the scales are.
    #[must_use]
    pub fn norm(&self) -> Norm {
        self.norm
    }

    /// The number of levels above zero.
    #[must_use]
    pub fn levels(&self) -> u32 {
        (1 << (self.bits - 1)) - 1
    }

    fn codes_per_byte(&self) -> usize {
        8 / self.bits as usize
    }

    /// Appends the bytes of the first `len` codes; the others are 0.
    fn pack(&self, codes: &[u8; BLOCK], len: usize, out: &mut Vec<u8>) {
        let bytes = len.div_ceil(self.codes_per_byte());
        match self.bits {
            2 => out
                .extend(codes.as_chunks().0[..bytes].iter().map(|[a, b, c, d]| a | b << 2 | c << 4 | d << 6)),
            4 => out.extend(codes.as_chunks().0[..bytes].iter().map(|[a, b]| a | b << 4)),
            _ => out.extend_from_slice(&codes[..bytes]),
        }
    }

    /// The values of a bucket's codes over its scale, one for each code.
    fn fractions(&self) -> [f32; 256] {
        let (levels, sign) = (self.levels(), 1 << (self.bits - 1));
        let mut fractions = [0.0; 256];
        for level in 1..=levels {
            let fraction = level as f32 / levels as f32;
            fractions[level as usize] = fraction;
            fractions[(sign | level) as usize] = -fraction;
        }
        fractions
    }
}

impl Default for Qsgd {
    /// 4 bits, buckets of 512, [`Norm::Max`].
    fn default() -> Self {
        Self { bits: 4, bucket: 512, norm: Norm::Max }
    }
}

impl Quantizer for Qsgd {
    fn code(&self) -> u64 {
        const KIND: u64 = 1;
        let norm = match self.norm {
            Norm::Max => 0,
            Norm::L2 => 1,
        };
        KIND << 56 | norm << 48 | u64::from(self.bits) << 40 | self.bucket as u64
    }

    fn encoded_len(&self, values: usize) -> usize {
        let bytes = |values: usize| SCALE + values.div_ceil(self.codes_per_byte());
        let tail = values % self.bucket;
        values / self.bucket * bytes(self.bucket) + if tail > 0 { bytes(tail) } else { 0 }
    }

    fn quantize(&self, values: &[f32], seed: Seed, out: &mut Vec<u8>) -> Result<(), Error> {
        Error::check_finite(values)?;
        out.reserve(self.encoded_len(values.len()));
        let fractions = self.fractions();
        for (number, bucket) in (0..).zip(values.chunks(self.bucket)) {
            let scale = self.norm.of(bucket);
            out.extend_from_slice(&scale.to_le_bytes());
            if scale == 0.0 {
                out.resize(out.len() + bucket.len().div_ceil(self.codes_per_byte()), 0);
                continue;
            }
            let grid = Grid::new(scale, self.levels(), &fractions);
            let mut numbers = seed.numbers(number);
            for values in bucket.chunks(BLOCK) {
                let mut codes = [0; BLOCK];
                for ((code, value), random) in codes.iter_mut().zip(values).zip(&mut numbers) {
                    let level = grid.round(value.abs(), random);
                    let sign = u8::from(value.is_sign_negative() && level > 0) << (self.bits - 1);
                    *code = sign | level;
                }
                self.pack(&codes, values.len(), out);
            }
        }
        Ok(())
    }

    fn dequantize(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
        Error::check_length(self.encoded_len(out.len()), bytes.len())?;
        let bytes = bytes.chunks(self.encoded_len(self.bucket));
        for (number, bytes) in bytes.clone().enumerate() {
            check_scale(number, bytes)?;
        }
        let fractions = self.fractions();
        let mask = ((1_u16 << self.bits) - 1) as u8;
        for (values, bytes) in out.chunks_mut(self.bucket).zip(bytes) {
            let Some((&scale, codes)) = bytes.split_first_chunk::<SCALE>() else { continue };
            let scale = f32::from_le_bytes(scale);
            for (values, &byte) in values.chunks_mut(self.codes_per_byte()).zip(codes) {
                for (shift, value) in (0..8).step_by(self.bits as usize).zip(values) {
                    *value = scale * fractions[usize::from(byte >> shift & mask)];
                }
            }
        }
        Ok(())
    }
}

/// Values that are rounded before their codes are packed; a multiple of the codes in a byte.
const BLOCK: usize = 64;

/// Bytes of a scale.
const SCALE: usize = 4;

fn check_scale(bucket: usize, bytes: &[u8]) -> Result<(), Error> {
    match bytes.first_chunk::<SCALE>().map(|&bytes| f32::from_le_bytes(bytes)) {
        Some(scale) if scale.is_finite() && scale.is_sign_positive() => Ok(()),
        Some(scale) => Err(Error::Malformed { detail: format!("the scale of bucket {bucket} is {scale}") }),
        None => Err(Error::Malformed { detail: format!("bucket {bucket} has no scale") }),
    }
}

impl Norm {
    /// The scale of finite values: not less than any magnitude, and finite.
    fn of(self, values: &[f32]) -> f32 {
        match self {
            Self::Max => values.iter().fold(0.0, |max, value| max.max(value.abs())),
            Self::L2 => {
                // One after the other, so that the rounding is the same everywhere. The squares are exact.
                let squares = values.iter().map(|&value| f64::from(value) * f64::from(value));
                (squares.fold(0.0, |sum, square| sum + square).sqrt() as f32).min(f32::MAX)
            }
        }
    }
}

/// The representable magnitudes of a bucket.
struct Grid {
    /// By level; what [`dequantize`](Quantizer::dequantize) makes of them, to the bit.
    points: [f32; 128],
    levels: usize,
    levels_per_unit: f64,
}

impl Grid {
    fn new(scale: f32, levels: u32, fractions: &[f32; 256]) -> Self {
        let mut points = [0.0; 128];
        for (point, fraction) in points.iter_mut().zip(fractions).take(levels as usize + 1) {
            *point = scale * fraction;
        }
        Self { points, levels: levels as usize, levels_per_unit: f64::from(levels) / f64::from(scale) }
    }

    /// One of the two levels about a magnitude: the upper one for that part of all random numbers which
    /// the magnitude is of the way from the lower point to the upper.
    fn round(&self, magnitude: f32, random: u32) -> u8 {
        let point = |level: usize| self.points[level % 128];
        // The points are rounded, so the division may miss the right interval by one.
        let guess = ((f64::from(magnitude) * self.levels_per_unit) as usize).min(self.levels - 1);
        let lower = if point(guess) > magnitude {
            guess - 1
        } else {
            guess + usize::from(guess + 1 < self.levels && point(guess + 1) <= magnitude)
        };
        let (from, to) = (f64::from(point(lower)), f64::from(point(lower + 1)));
        let draw = f64::from(random) / 4_294_967_296.0;
        (lower + usize::from(draw * (to - from) < f64::from(magnitude) - from)) as u8
    }
}
