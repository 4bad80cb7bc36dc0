//! Any bytes as a frame: nothing panics, and what comes out as a vector is one.
//!
//! `cargo +nightly fuzz run open_frame`, in the directory of the crate.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sparse_core::wire::{self, Frame};
use sparse_core::{Element, SparseVec, Stream};

fuzz_target!(|bytes: &[u8]| {
    // Spares the fuzzer the search for the magic bytes and the version.
    let bytes = [b"TW\x02", bytes].concat();
    let Ok(frame) = wire::open(Bytes::from(bytes)) else { return };
    use_up::<f32>(&frame);
    use_up::<f64>(&frame);
    use_up::<i32>(&frame);
});

fn use_up<T: Element>(frame: &Frame) {
    // The dimension that the frame claims, and the one that fits its count.
    for dim in [frame.fingerprint.dim, frame.count] {
        match frame.clone().into_stream::<T>(dim) {
            Ok(Stream::Sparse(vec)) => {
                let dim = vec.dim();
                let (indices, values) = vec.into_parts();
                assert!(SparseVec::new(dim, indices, values).is_ok());
            }
            Ok(Stream::Dense(mut values)) => {
                assert_eq!(values.len() as u64, dim);
                assert!(frame.copy_dense_into(&mut values).is_ok());
            }
            Err(_) => {}
        }
    }
}
