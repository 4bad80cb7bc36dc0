//! Any bytes as a small message of transport-mpi: nothing panics, and what comes out is written as the same again.

#![no_main]

#[allow(dead_code, reason = "only the codec of the crate's own file is used")]
#[path = "../../transport-mpi/src/frame.rs"]
mod frame;

use frame::{Frame, SMALL};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // What arrives is at most as long as the slot that it arrives in.
    let bytes = &bytes[..bytes.len().min(SMALL)];
    let Ok((credit, frame)) = Frame::decode(bytes) else { return };
    let mut buffer = [0; SMALL];
    let length = frame.encode(credit, &mut buffer);
    assert_eq!(Frame::decode(&buffer[..length]), Ok((credit, frame)));
});
