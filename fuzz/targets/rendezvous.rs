//! Any bytes as what ranks say at the rendezvous: nothing panics, and what comes out is written as the same again.

#![no_main]

#[allow(dead_code, reason = "only the codec of the crate's own file is used")]
#[path = "../../bootstrap/src/wire.rs"]
mod wire;

// What that file knows from its crate.
use bootstrap::{JobToken, Roster, Secret};
use libfuzzer_sys::fuzz_target;
use wire::{BadHello, Hello, MAX_BLOB, Reply, decode_blob, encode_blob};

fuzz_target!(|input: &[u8]| {
    let Some((&world_size, bytes)) = input.split_first() else { return };
    let world_size = usize::from(world_size);

    match Hello::decode(bytes) {
        Ok(hello) => assert_eq!(hello.encode(), bytes[..Hello::SIZE]),
        Err(BadHello::Stranger | BadHello::Version(_)) => {}
    }
    if let Ok(Some(blob)) = decode_blob(bytes) {
        assert!(blob.len() <= MAX_BLOB);
        assert_eq!(encode_blob(blob), bytes);
    }
    let Some((header, body)) = bytes.split_at_checked(Reply::HEADER) else { return };
    let Ok((kind, length)) = Reply::decode_header(header, world_size) else { return };
    let Some(body) = body.get(..length) else { return };
    if let Ok(reply) = Reply::decode_body(kind, body, world_size) {
        if let Reply::Roster(roster) = &reply {
            assert_eq!(roster.blobs.len(), world_size);
        }
        // Text that is not UTF-8 becomes longer, so the bytes may differ once.
        let once = reply.encode();
        let (header, body) = once.split_at(Reply::HEADER);
        let (kind, _) = Reply::decode_header(header, usize::MAX).expect("its own header");
        assert_eq!(Reply::decode_body(kind, body, world_size).expect("its own body").encode(), once);
    }
});
