//! Any bytes as quantized values: nothing panics, an error leaves the values alone, and what comes out is finite.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sparse_quant::{ErrorKind, Norm, Qsgd, Quantizer as _};

fuzz_target!(|input: &[u8]| {
    let Some((&[bits, norm, b0, b1, n0, n1], bytes)) = input.split_first_chunk() else { return };
    let norm = if norm % 2 == 0 { Norm::Max } else { Norm::L2 };
    let bucket = usize::from(u16::from_le_bytes([b0, b1])).max(1);
    let quantizer = Qsgd::new(2 << (bits % 3), bucket, norm).expect("2, 4 or 8 bits, and a bucket");

    let mut values = vec![7.0_f32; u16::from_le_bytes([n0, n1]).into()];
    match quantizer.dequantize(bytes, &mut values) {
        Ok(()) => {
            assert_eq!(bytes.len(), quantizer.encoded_len(values.len()));
            assert!(values.iter().all(|value| value.is_finite()));
        }
        Err(error) => {
            assert!(values.iter().all(|&value| value == 7.0));
            let fits = bytes.len() == quantizer.encoded_len(values.len());
            assert_eq!(error.kind() == ErrorKind::Length, !fits);
        }
    }
});
