//! Any bytes as coded indices: nothing panics, what comes out is a support, and its encoding is those very bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sparse_core::codec::{self, Codec};

/// Stands before the indices, so that an error is seen to leave it alone.
const BEFORE: u32 = 77;

fuzz_target!(|input: &[u8]| {
    let Some((&[d0, d1, d2, d3, shift, c0, c1, c2, b0, b1], bytes)) = input.split_first_chunk() else {
        return;
    };
    // Dimensions of every size, up to 2^32 and beyond.
    let dim = u64::from(u32::from_le_bytes([d0, d1, d2, d3])) << (shift % 4);
    let count = u32::from_le_bytes([c0, c1, c2, 0]) as usize;
    let base = u32::from_le_bytes([0, b0, b1, 0]);

    let mut found = vec![BEFORE];
    let decoded = codec::decode(bytes, dim, count, base, &mut found);
    assert_eq!(found[0], BEFORE);
    let indices = &found[1..];
    if decoded.is_err() {
        assert!(indices.is_empty());
        return;
    }
    assert_eq!(indices.len(), count);
    assert!(indices.is_sorted_by(|a, b| a < b));
    assert!(indices.first().is_none_or(|&first| first >= base));
    assert!(indices.last().is_none_or(|&last| u64::from(last - base) < dim));

    let code = bytes.first().copied().and_then(Codec::from_code).expect("it was decoded");
    let mut again = Vec::new();
    assert!(codec::encode_as(code, dim, indices, base, &mut again));
    assert_eq!(again, bytes, "another encoding of the same indices by {code:?}");
    assert!(codec::encoded_len(dim, indices, base) <= bytes.len());
});
