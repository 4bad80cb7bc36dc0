//! What every networked back end does alike: match messages with receives, and bound what arrives unasked.
//!
//! An [`Inbox`] holds the messages of one peer to this rank and the receives that wait for them. It does no I/O:
//! a back end tells it what arrives, and does what the returned [`Effects`] say.
//!
//! # The protocol
//!
//! A message is sent at once (*eager*) while it fits the window of bytes that its receiver grants each peer for what
//! was not received yet; [`Effects::credit`] gives room back. Otherwise only its *announcement* is sent, in its place
//! among the others of its tag; the receiver asks for it when a receive stands opposite ([`Effects::fetch`]), and it
//! follows in parts. So no tag ever blocks another one, and what arrives unexpected is bounded.
//!
//! ```
//! use std::sync::Arc;
//! use std::task::{Context, Poll, Waker};
//!
//! use matching::{Inbox, Limits};
//! use transport::{Buffers, Tag};
//!
//! let limits = Limits { window: 1 << 20, max_message: 1 << 30, max_announced: 100, max_part: 1 << 20 };
//! let (mut inbox, tag) = (Inbox::new(limits, Arc::default(), Buffers::default()), Tag::new(0, 7));
//!
//! // Five bytes arrive, then somebody receives.
//! let mut payload = inbox.expect(tag, 5)?.unwrap();
//! payload.extend(b"hello");
//! let _ = inbox.deliver(tag, payload);
//! let (ticket, _) = inbox.post(tag);
//! let Poll::Ready((received, effects)) = inbox.poll(tag, ticket, &Context::from_waker(Waker::noop())) else {
//!     panic!("it has arrived");
//! };
//! assert_eq!(received.unwrap(), "hello");
//! assert_eq!(effects.credit, 5 + matching::MESSAGE_COST);
//! # Ok::<(), String>(())
//! ```

#![forbid(unsafe_code)]

mod aborts;
mod completion;
mod inbox;

pub use aborts::{Aborts, MAX_REASON, gone, shorten};
pub use completion::{Completion, Posted, lock, register};
pub use inbox::{Effects, Inbox, Limits, MESSAGE_COST};
