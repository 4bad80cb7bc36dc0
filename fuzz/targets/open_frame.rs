//! Any bytes as a frame of `sparse_core::wire`: nothing panics, and what comes out as a vector is one.

#![no_main]

use bytes::Bytes;
use half::{bf16, f16};
use libfuzzer_sys::fuzz_target;
use sparse_core::wire::{self, BodyKind, Frame};
use sparse_core::{Element, SparseVec, Stream};

fuzz_target!(|bytes: &[u8]| {
    // Spares the fuzzer the search for the magic bytes and the version.
    let bytes = [b"TW", &[wire::VERSION][..], bytes].concat();
    let Ok(frame) = wire::open(Bytes::from(bytes)) else { return };
    use_up::<f32>(&frame);
    use_up::<f64>(&frame);
    use_up::<f16>(&frame);
    use_up::<bf16>(&frame);
    use_up::<i32>(&frame);
    use_up::<i64>(&frame);
    assert!(frame.pieces.is_power_of_two() && frame.pieces <= wire::MAX_PIECES);
    assert_eq!(frame.clone().into_opaque().is_ok(), frame.kind == BodyKind::Opaque);
});

fn use_up<T: Element>(frame: &Frame) {
    // The dimension that the frame claims, and the one that fits its count.
    for dim in [frame.fingerprint.dim, frame.count] {
        match frame.clone().into_stream::<T>(dim) {
            Ok(Stream::Sparse(vec)) => {
                assert_eq!(vec.dim(), dim);
                if frame.kind == BodyKind::Sparse {
                    let body = frame.sparse::<T>(dim).expect("a sparse body is one either way");
                    assert!(body.view().iter().map(|(index, _)| index).eq(vec.indices().iter().copied()));
                }
                let (indices, values) = vec.into_parts();
                assert_eq!(indices.len() as u64, frame.count);
                assert!(SparseVec::new(dim, indices, values).is_ok());
            }
            Ok(Stream::Dense(mut values)) => {
                assert_eq!(values.len() as u64, dim);
                assert!(frame.copy_dense_into(&mut values).is_ok());
                // Twice the value may overflow.
                let _ = frame.add_dense_into(&mut values);
            }
            Err(_) => assert!(frame.sparse::<T>(dim).is_err()),
        }
    }
}
