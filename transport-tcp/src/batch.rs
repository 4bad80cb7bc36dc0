//! Frames on their way into the socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;

use crate::frame::HEADER;
use matching::Completion;

/// How many frames at most are written at once.
pub(crate) const MAX_FRAMES: usize = 32;

/// A header and a payload per frame, to be written in this order, and how much of it is written.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    frames: VecDeque<Encoded>,
    /// How many bytes of the first frame are written.
    written: usize,
}

#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) header: [u8; HEADER],
    pub(crate) payload: Bytes,
    /// To be told when the frame is written.
    pub(crate) sent: Option<Arc<Completion>>,
}

impl Encoded {
    fn len(&self) -> usize {
        HEADER + self.payload.len()
    }
}

impl Batch {
    pub(crate) fn push(&mut self, frame: Encoded) {
        self.frames.push_back(frame);
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// What is left to write, for one vectored write.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; 2 * MAX_FRAMES]) -> usize {
        let mut skip = self.written;
        let mut filled = 0;
        let parts = self.frames.iter().flat_map(|frame| [&frame.header[..], &frame.payload[..]]);
        let left = parts.filter_map(|part| {
            let rest = part.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            (!rest.is_empty()).then_some(rest)
        });
        for (slot, rest) in slices.iter_mut().zip(left) {
            *slot = IoSlice::new(rest);
            filled += 1;
        }
        filled
    }

    /// Notes that so many bytes more were written; `sent` gets the receipts of frames that are done.
    pub(crate) fn advance(&mut self, written: usize, mut sent: impl FnMut(Arc<Completion>)) {
        self.written += written;
        while let Some(first) = self.frames.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            if let Some(receipt) = self.frames.pop_front().and_then(|frame| frame.sent) {
                sent(receipt);
            }
        }
    }

    /// Gives up what is left.
    pub(crate) fn clear(&mut self, mut unsent: impl FnMut(Arc<Completion>)) {
        self.written = 0;
        self.frames.drain(..).filter_map(|frame| frame.sent).for_each(&mut unsent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn partial_writes_lose_nothing(
            payloads in vec(vec(any::<u8>(), 0..100), 0..MAX_FRAMES),
            writes in vec(1..300_usize, 1..50),
        ) {
            let receipts: Vec<_> = payloads.iter().map(|_| Arc::new(Completion::default())).collect();
            let mut batch = Batch::default();
            let mut expected = Vec::new();
            for (number, (payload, receipt)) in payloads.iter().zip(&receipts).enumerate() {
                let header = [number as u8; HEADER];
                expected.extend_from_slice(&header);
                expected.extend_from_slice(payload);
                let sent = Some(Arc::clone(receipt));
                batch.push(Encoded { header, payload: payload.clone().into(), sent });
            }
            let (mut written, mut done) = (Vec::new(), 0);
            for size in writes.into_iter().cycle() {
                if batch.is_empty() {
                    break;
                }
                let mut slices = [IoSlice::new(&[]); 2 * MAX_FRAMES];
                let filled = batch.slices(&mut slices);
                let all: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
                let size = size.min(all.len());
                written.extend_from_slice(&all[..size]);
                batch.advance(size, |receipt| {
                    assert!(Arc::ptr_eq(&receipt, &receipts[done]), "receipts come in order");
                    done += 1;
                });
            }
            prop_assert_eq!(written, expected);
            prop_assert_eq!(done, payloads.len());
        }
    }
}
