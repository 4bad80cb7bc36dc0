//! The matching engine of a back end: one sender's messages to one receiver, keyed by tag.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use transport::{Error, Scope, Tag};

use self::tags::Tags;

mod line;
mod tags;

pub(crate) use line::Line;

/// What a queued message costs the window beside its payload, in bytes.
///
/// So that the window bounds the number of empty messages as well.
pub const MESSAGE_COST: usize = 128;

/// One direction of one pair of ranks: messages, posted receives, and how they find each other.
///
/// Both ends may be in one process (then a pair of ranks shares one), or a back end keeps one at the
/// receiver and feeds it with [`send`](Mailbox::send) what arrives from the network. It implements the
/// part of [the contract](transport::Transport) that is tedious to get right:
///
/// - Both operations are posted at the call. Per tag, the n-th receive still waiting belongs to the
///   n-th message still queued, whichever came first and in whatever order the futures are polled.
/// - A receive dropped before it returned its message takes none: the later ones move up.
/// - A dropped send still delivers.
/// - A send completes when a receive is posted for it, or at once while the messages that no receive
///   is posted for fit the window together. Tags share the window, but never wait for each other.
/// - The ends can be closed with an error of their own, and a [`Scope`] can be aborted.
///
/// A back end may also keep one at each end, and let messages cross on demand: the receiver
/// [asks](Mailbox::ask), the sender notes what the peer [wants](Mailbox::want) and [takes](Mailbox::take)
/// it. Then a slow receiver fills the memory of nobody but the sender, up to the window.
///
/// Payloads are moved, never copied. Every operation takes one short lock; wakers run after it.
///
/// ```
/// use bytes::Bytes;
/// use testkit::Mailbox;
/// use transport::{Tag, block_on};
///
/// let mailbox = Mailbox::new(1 << 20);
/// let (first, second) = (mailbox.recv(Tag::new(0, 7)), mailbox.recv(Tag::new(0, 7)));
/// block_on(mailbox.send(Tag::new(0, 7), Bytes::from_static(b"hello")))?;
/// drop(first);
/// assert_eq!(block_on(second)?, "hello");
/// # Ok::<(), transport::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mailbox {
    state: Arc<Mutex<State>>,
}

impl Mailbox {
    /// An empty mailbox whose unexpected messages are bounded by `window` bytes.
    ///
    /// A message costs its length and [`MESSAGE_COST`].
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self { state: Arc::new(Mutex::new(State { window, ..State::default() })) }
    }

    /// Posts a message. The future resolves when a receive is posted for it or the window has room.
    pub fn send(&self, tag: Tag, payload: Bytes) -> Sending {
        let mut wake = Vec::new();
        let sending = self.lock().post_message(tag, payload, &mut wake);
        wake_all(wake);
        sending
    }

    /// Posts a receive for the next message of this tag that no earlier receive takes.
    pub fn recv(&self, tag: Tag) -> Receiving {
        let mut wake = Vec::new();
        let id = self.lock().post_receive(tag, &mut wake);
        wake_all(wake);
        Receiving { mailbox: self.clone(), tag, id: Some(id) }
    }

    /// Ends sending: waiting sends are withdrawn and fail, later ones fail, all with `error`.
    ///
    /// Messages whose send completed stay. The first call wins.
    pub fn close_sends(&self, error: &Error) {
        let mut wake = Vec::new();
        self.lock().close_sends(error, &mut wake);
        wake_all(wake);
    }

    /// Ends receiving: receives for which no message is queued fail with `error`, now and later.
    ///
    /// The first call wins.
    pub fn close_receives(&self, error: &Error) {
        let mut wake = Vec::new();
        self.lock().close_receives(error, &mut wake);
        wake_all(wake);
    }

    /// Posts a receive on behalf of a peer; [`take`](Mailbox::take) returns its message. Not to be mixed
    /// with [`recv`](Mailbox::recv) under one tag.
    pub fn want(&self, tag: Tag) {
        let mut wake = Vec::new();
        self.lock().post_receive(tag, &mut wake);
        wake_all(wake);
    }

    /// The message of the oldest receive that was posted with [`want`](Mailbox::want), once it is here.
    pub fn take(&self, tag: Tag) -> Option<Bytes> {
        self.lock().take(tag)
    }

    /// Whether to ask the peer for a message of this tag: if more receives are posted than messages are
    /// here or were asked for. Counts as asked if so, until a message of the tag arrives.
    ///
    /// Asked for in this way, no more messages arrive unexpected than receives were dropped.
    pub fn ask(&self, tag: Tag) -> bool {
        self.lock().ask(tag)
    }

    /// Takes all messages, those of a tag in their order. Sends that wait complete.
    pub fn drain(&self) -> Vec<(Tag, Bytes)> {
        let mut wake = Vec::new();
        let messages = self.lock().drain(Scope::World, &Ok(()), &mut wake);
        wake_all(wake);
        messages
    }

    /// Ends every operation in `scope`, pending and later, with `error`; drops its messages.
    ///
    /// The first abort of a scope wins; returns whether this is the first.
    pub fn abort(&self, scope: Scope, error: &Error) -> bool {
        let mut wake = Vec::new();
        let first = self.lock().abort(scope, error, &mut wake);
        wake_all(wake);
        first
    }

    /// The tags under which receives wait for a message.
    pub(crate) fn waited_for(&self) -> Vec<Tag> {
        let state = self.lock();
        let waited = state.tags.iter().filter(|(_, queue)| queue.receivers.len() > queue.messages.len());
        waited.map(|(tag, _)| tag).collect()
    }

    /// Whether it holds neither messages nor receives.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().tags.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way through a change, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The future of [`Mailbox::send`]; dropping it does not withdraw the message.
#[derive(Debug)]
#[must_use = "a send that is not awaited still delivers, but nobody learns of its failure"]
pub struct Sending(Progress);

impl Sending {
    const DONE: Self = Self(Progress::Finished(Some(Ok(()))));

    fn failed(error: Error) -> Self {
        Self(Progress::Finished(Some(Err(error))))
    }
}

impl Future for Sending {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Progress::Finished(outcome) => match outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => Poll::Pending,
            },
            Progress::Waiting(receipt) => {
                let mut receipt = receipt.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(outcome) = receipt.outcome.take() {
                    return Poll::Ready(outcome);
                }
                register(&mut receipt.waker, context);
                Poll::Pending
            }
        }
    }
}

/// The future of [`Mailbox::recv`]; dropping it leaves its message to the next receive.
#[derive(Debug)]
#[must_use = "a receive that is not awaited takes no message"]
pub struct Receiving {
    mailbox: Mailbox,
    tag: Tag,
    /// `None` once it has returned.
    id: Option<u64>,
}

impl Future for Receiving {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(id) = self.id else { return Poll::Pending };
        let outcome = self.mailbox.lock().poll_receive(self.tag, id, context);
        if outcome.is_ready() {
            self.id = None;
        }
        outcome
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let waker = self.mailbox.lock().withdraw_receive(self.tag, id);
        wake_all(waker);
    }
}

/// How far a send has come.
#[derive(Debug)]
enum Progress {
    Finished(Option<Result<(), Error>>),
    Waiting(Arc<Mutex<Receipt>>),
}

/// What a waiting send and its message share.
#[derive(Debug, Default)]
struct Receipt {
    outcome: Option<Result<(), Error>>,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct State {
    tags: Tags<Queue>,
    window: usize,
    /// The cost of all messages that are accepted and that no receive is posted for.
    used: usize,
    /// The first waiting message of every tag, by age, unless it exceeds the whole window.
    waiting: BTreeMap<u64, Tag>,
    next_id: u64,
    sends_closed: Option<Error>,
    receives_closed: Option<Error>,
    aborted: Vec<(Scope, Error)>,
}

/// One tag's messages and receives; `messages[i]` belongs to `receivers[i]`.
#[derive(Debug, Default)]
struct Queue {
    messages: Line<Message>,
    /// So many messages at the front have completed sends; the rest wait for room.
    accepted: usize,
    /// In the order of their ids.
    receivers: Line<Receiver>,
    /// How many messages the peer was asked for that have not come yet.
    asked: usize,
}

#[derive(Debug)]
struct Message {
    id: u64,
    payload: Bytes,
    receipt: Option<Arc<Mutex<Receipt>>>,
}

#[derive(Debug)]
struct Receiver {
    id: u64,
    waker: Option<Waker>,
}

impl State {
    fn post_message(&mut self, tag: Tag, payload: Bytes, wake: &mut Vec<Waker>) -> Sending {
        if let Some(error) = self.abort_of(tag).or(self.sends_closed.as_ref()) {
            return Sending::failed(error.clone());
        }
        let id = self.new_id();
        let mut message = Message { id, payload, receipt: None };
        let cost = message.cost();
        let queue = self.tags.get_or_default(tag);
        queue.asked = queue.asked.saturating_sub(1);
        let position = queue.messages.len();
        if let Some(receiver) = queue.receivers.get_mut(position) {
            wake.extend(receiver.waker.take());
        } else if queue.accepted == position && fits(self.used, cost, self.window) {
            self.used += cost;
        } else {
            let receipt = Arc::new(Mutex::new(Receipt::default()));
            message.receipt = Some(Arc::clone(&receipt));
            if queue.accepted == position && cost <= self.window {
                self.waiting.insert(id, tag);
            }
            queue.messages.push_back(message);
            return Sending(Progress::Waiting(receipt));
        }
        queue.messages.push_back(message);
        queue.accepted += 1;
        Sending::DONE
    }

    fn post_receive(&mut self, tag: Tag, wake: &mut Vec<Waker>) -> u64 {
        let id = self.new_id();
        if self.abort_of(tag).is_some() {
            return id;
        }
        let queue = self.tags.get_or_default(tag);
        let position = queue.receivers.len();
        queue.receivers.push_back(Receiver { id, waker: None });
        if position < queue.accepted {
            self.used -= queue.messages.get(position).map_or(0, Message::cost);
        } else if position < queue.messages.len() {
            self.accept_first_waiting(tag, wake);
        }
        self.release(wake);
        id
    }

    fn poll_receive(&mut self, tag: Tag, id: u64, context: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
        if let Some(error) = self.abort_of(tag) {
            return Poll::Ready(Err(error.clone()));
        }
        let Some(queue) = self.tags.get_mut(tag) else { return Poll::Pending };
        let Some(position) = queue.position(id) else { return Poll::Pending };
        let message = queue.messages.remove(position);
        if message.is_none() && self.receives_closed.is_none() {
            if let Some(receiver) = queue.receivers.get_mut(position) {
                register(&mut receiver.waker, context);
            }
            return Poll::Pending;
        }
        queue.receivers.remove(position);
        let outcome = match (message, &self.receives_closed) {
            (Some(message), _) => {
                queue.accepted -= 1;
                Poll::Ready(Ok(message.payload))
            }
            (None, Some(error)) => Poll::Ready(Err(error.clone())),
            (None, None) => Poll::Pending,
        };
        self.forget_if_empty(tag);
        outcome
    }

    fn withdraw_receive(&mut self, tag: Tag, id: u64) -> Option<Waker> {
        let queue = self.tags.get_mut(tag)?;
        let position = queue.position(id)?;
        queue.receivers.remove(position);
        let (messages, receivers) = (queue.messages.len(), queue.receivers.len());
        let mut waker = None;
        if position < messages {
            // Its message moves to the next receive, that one's to the one after, and so on.
            if let Some(last) = queue.receivers.get_mut(messages - 1) {
                waker = last.waker.take();
            } else if let Some(unclaimed) = queue.messages.get(receivers) {
                self.used += unclaimed.cost();
            }
        }
        self.forget_if_empty(tag);
        waker
    }

    /// Completes the oldest waiting sends while there is room.
    fn release(&mut self, wake: &mut Vec<Waker>) {
        while let Some(tag) = self.waiting.first_key_value().map(|(_, tag)| *tag) {
            let cost = self.tags.get(tag).and_then(Queue::first_waiting).map_or(0, Message::cost);
            if !fits(self.used, cost, self.window) {
                return;
            }
            self.used += cost;
            self.accept_first_waiting(tag, wake);
        }
    }

    /// Completes the send of a tag's first waiting message; the tag's next one becomes the first.
    fn accept_first_waiting(&mut self, tag: Tag, wake: &mut Vec<Waker>) {
        let Some(queue) = self.tags.get_mut(tag) else { return };
        let Some(message) = queue.messages.get_mut(queue.accepted) else { return };
        self.waiting.remove(&message.id);
        wake.extend(message.complete(Ok(())));
        queue.accepted += 1;
        if let Some(next) = queue.first_waiting().filter(|next| next.cost() <= self.window) {
            self.waiting.insert(next.id, tag);
        }
    }

    fn close_sends(&mut self, error: &Error, wake: &mut Vec<Waker>) {
        if self.sends_closed.is_some() {
            return;
        }
        self.sends_closed = Some(error.clone());
        self.waiting.clear();
        for (_, queue) in self.tags.iter_mut() {
            for mut message in queue.messages.drain(queue.accepted) {
                wake.extend(message.complete(Err(error.clone())));
            }
        }
        self.forget_empty();
    }

    fn close_receives(&mut self, error: &Error, wake: &mut Vec<Waker>) {
        if self.receives_closed.is_none() {
            self.receives_closed = Some(error.clone());
            // They find out why when they are polled, unless there is a message after all.
            let receivers = self.tags.iter_mut().flat_map(|(_, queue)| queue.receivers.iter_mut());
            wake.extend(receivers.filter_map(|receiver| receiver.waker.take()));
        }
    }

    fn abort(&mut self, scope: Scope, error: &Error, wake: &mut Vec<Waker>) -> bool {
        if self.aborted.iter().any(|(known, _)| *known == scope) {
            return false;
        }
        self.aborted.push((scope, error.clone()));
        let _dropped = self.drain(scope, &Err(error.clone()), wake);
        for mut queue in self.tags.extract_if(|tag, _| scope.covers(tag)) {
            wake.extend(queue.receivers.drain(0).filter_map(|receiver| receiver.waker));
        }
        true
    }

    fn take(&mut self, tag: Tag) -> Option<Bytes> {
        let queue = self.tags.get_mut(tag).filter(|queue| !queue.receivers.is_empty())?;
        let message = queue.messages.pop_front()?;
        queue.receivers.pop_front();
        queue.accepted -= 1;
        self.forget_if_empty(tag);
        Some(message.payload)
    }

    fn ask(&mut self, tag: Tag) -> bool {
        let Some(queue) = self.tags.get_mut(tag) else { return false };
        let missing = queue.receivers.len() > queue.messages.len() + queue.asked;
        queue.asked += usize::from(missing);
        missing
    }

    /// Takes all messages in `scope`; the sends that wait end with `outcome`.
    fn drain(
        &mut self,
        scope: Scope,
        outcome: &Result<(), Error>,
        wake: &mut Vec<Waker>,
    ) -> Vec<(Tag, Bytes)> {
        let mut drained = Vec::new();
        for (tag, queue) in self.tags.iter_mut().filter(|(tag, _)| scope.covers(*tag)) {
            for (position, mut message) in queue.messages.drain(0).enumerate() {
                if position >= queue.accepted {
                    self.waiting.remove(&message.id);
                    wake.extend(message.complete(outcome.clone()));
                } else if position >= queue.receivers.len() {
                    self.used -= message.cost();
                }
                drained.push((tag, message.payload));
            }
            queue.accepted = 0;
        }
        self.forget_empty();
        self.release(wake);
        drained
    }

    fn abort_of(&self, tag: Tag) -> Option<&Error> {
        self.aborted.iter().find(|(scope, _)| scope.covers(tag)).map(|(_, error)| error)
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn forget_if_empty(&mut self, tag: Tag) {
        if self.tags.get(tag).is_some_and(Queue::is_empty) {
            self.tags.remove(tag);
        }
    }

    fn forget_empty(&mut self) {
        self.tags.extract_if(|_, queue| queue.is_empty()).for_each(drop);
    }
}

impl Queue {
    fn position(&self, receiver: u64) -> Option<usize> {
        self.receivers.place_of(&receiver, |receiver| receiver.id)
    }

    fn first_waiting(&self) -> Option<&Message> {
        self.messages.get(self.accepted)
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.receivers.is_empty() && self.asked == 0
    }
}

impl Message {
    fn cost(&self) -> usize {
        self.payload.len().saturating_add(MESSAGE_COST)
    }

    /// Tells the send, if it waits.
    fn complete(&mut self, outcome: Result<(), Error>) -> Option<Waker> {
        let receipt = self.receipt.take()?;
        let mut receipt = receipt.lock().unwrap_or_else(PoisonError::into_inner);
        receipt.outcome = Some(outcome);
        receipt.waker.take()
    }
}

fn fits(used: usize, cost: usize, window: usize) -> bool {
    used.checked_add(cost).is_some_and(|total| total <= window)
}

fn register(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(known) => known.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}

fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
