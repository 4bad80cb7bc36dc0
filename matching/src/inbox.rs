//! One peer's messages to this rank: matching, and what bounds the unexpected ones.
//!
//! Per tag, `messages[i]` belongs to `receivers[i]`. Nothing is bound for good before a receiver is
//! polled and takes its message, so a receiver that is dropped before simply makes way: the later
//! ones move up. A message too large for the window keeps its place while it is only announced; it
//! is fetched as soon as a receiver stands opposite.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use transport::{Buffers, Error, Rank, Scope, Tag};

use crate::aborts::Aborts;
use crate::completion::{Completion, Posted, register};

/// What a message costs the window beside its payload, in bytes, so that the window bounds the number
/// of empty messages as well.
pub const MESSAGE_COST: u64 = 64;

/// How many empty queues are kept for the next tags.
const SPARE: usize = 16;

/// By how much the buffer of a fetched message grows at least, while the message is longer.
const GROWTH: u64 = 8 << 20;

/// What bounds the messages of one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes that may arrive before they are received, [`MESSAGE_COST`] for each message included.
    pub window: u64,
    /// The longest message, in bytes.
    pub max_message: u64,
    /// How many messages may be announced and not received.
    pub max_announced: u32,
    /// The longest part of an announced message, in bytes.
    pub max_part: u64,
}

/// One peer's messages to this rank, matched with its receives. Locks nothing: whoever shares it does.
#[derive(Debug)]
pub struct Inbox {
    limits: Limits,
    aborts: Arc<Aborts>,
    buffers: Buffers,
    state: State,
}

/// What has to be done after a call, when no lock is held any more: it runs the code of others.
#[derive(Default, Debug)]
#[must_use]
pub struct Effects {
    /// Wake these.
    pub wake: Vec<Waker>,
    /// Ask the peer for these announced messages.
    pub fetch: Vec<u64>,
    /// Give back so much of the window.
    pub credit: u64,
    /// Sends to oneself that have come to an end.
    pub sent: Vec<(Arc<Completion>, Result<(), Error>)>,
}

#[derive(Debug, Default)]
struct State {
    /// A receive whose tag has no queue: most are posted alone, and their message then needs none.
    lone: Option<(Tag, Receiver)>,
    tags: FxHashMap<Tag, Queue>,
    /// Empty queues: a tag is rarely used twice, and its queue should not be allocated each time.
    spare: Vec<Queue>,
    /// The announced messages that were asked for, by id.
    fetching: FxHashMap<u64, Fetching>,
    /// The cost of the eager messages that no receiver has taken.
    held: u64,
    /// How many announced messages are queued.
    announced: u32,
    /// The id of the next announced message.
    next_id: u64,
    next_ticket: u64,
    /// Why nothing more will arrive.
    over: Option<Error>,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Message>,
    /// In the order of their tickets.
    receivers: VecDeque<Receiver>,
}

#[derive(Debug)]
struct Message {
    body: Body,
    /// What it costs the window.
    cost: u64,
    /// Of a send to oneself that waits.
    sent: Option<Arc<Completion>>,
}

#[derive(Debug)]
enum Body {
    Whole(Bytes),
    Announced { id: u64, length: u64, asked_for: bool },
}

#[derive(Debug)]
struct Receiver {
    ticket: u64,
    waker: Option<Waker>,
}

/// An announced message on its way.
#[derive(Debug)]
struct Fetching {
    tag: Tag,
    rest: u64,
    buffer: Vec<u8>,
}

impl Inbox {
    /// An empty inbox; `aborts` and `buffers` are those of the whole rank.
    #[must_use]
    pub fn new(limits: Limits, aborts: Arc<Aborts>, buffers: Buffers) -> Self {
        Self { limits, aborts, buffers, state: State::default() }
    }

    // Receivers.

    /// Posts a receiver and returns its ticket.
    pub fn post(&mut self, tag: Tag) -> (u64, Effects) {
        let mut effects = Effects::default();
        let ticket = self.state.next_ticket;
        self.state.next_ticket += 1;
        let receiver = Receiver { ticket, waker: None };
        if self.state.lone.is_none() && !self.state.tags.contains_key(&tag) {
            self.state.lone = Some((tag, receiver));
            return (ticket, effects);
        }
        let queue = self.state.queue(tag);
        queue.receivers.push_back(receiver);
        let position = queue.receivers.len() - 1;
        self.state.match_up(tag, position, &mut effects);
        (ticket, effects)
    }

    /// Takes the message of this ticket, or notes whom to wake.
    pub fn poll(
        &mut self,
        tag: Tag,
        ticket: u64,
        context: &Context<'_>,
    ) -> Poll<(Result<Bytes, Error>, Effects)> {
        if let Some(taken) = self.take(tag, ticket) {
            return Poll::Ready(taken);
        }
        if let Some(receiver) = self.state.receiver(tag, ticket) {
            register(&mut receiver.waker, context);
        }
        Poll::Pending
    }

    /// Takes the message of this ticket if it has arrived; for back ends whose futures wake themselves.
    pub fn take(&mut self, tag: Tag, ticket: u64) -> Option<(Result<Bytes, Error>, Effects)> {
        let Self { aborts, state, .. } = self;
        let mut effects = Effects::default();
        if let Some(error) = aborts.of(tag) {
            state.remove_receiver(tag, ticket, &mut effects);
            return Some((Err(error), effects));
        }
        if let Some((queue, position)) = state.find_receiver(tag, ticket)
            && let Some(Message { body: Body::Whole(_), .. }) = queue.messages.get(position)
            && let Some(Message { body: Body::Whole(payload), cost, .. }) = queue.messages.remove(position)
        {
            queue.receivers.remove(position);
            state.forget_if_empty(tag);
            state.held -= cost;
            effects.credit = cost;
            return Some((Ok(payload), effects));
        }
        let error = state.over.clone()?;
        state.remove_receiver(tag, ticket, &mut effects);
        Some((Err(error), effects))
    }

    /// Takes back a receiver that has not returned its message.
    pub fn withdraw(&mut self, tag: Tag, ticket: u64) -> Effects {
        let mut effects = Effects::default();
        self.state.remove_receiver(tag, ticket, &mut effects);
        effects
    }

    // Messages.

    /// Makes room for an eager message that begins to arrive, and gives the buffer for it. `None`: drop it and give
    /// its cost back, its context is aborted.
    ///
    /// # Errors
    /// How the peer broke the protocol.
    pub fn expect(&mut self, tag: Tag, length: u64) -> Result<Option<Vec<u8>>, String> {
        let Self { limits, aborts, buffers, state } = self;
        let cost = state.room_for(length, limits.window)?;
        if aborts.of(tag).is_some() {
            return Ok(None);
        }
        state.held += cost;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(Some(buffers.take(length).unwrap_or_else(|| Vec::with_capacity(length))))
    }

    /// Takes in an eager message that was [`expect`](Self::expect)ed, of a context that was not aborted then.
    pub fn deliver(&mut self, tag: Tag, payload: Vec<u8>) -> Effects {
        let Self { aborts, buffers, state, .. } = self;
        let mut effects = Effects::default();
        let cost = payload.len() as u64 + MESSAGE_COST;
        if state.over.is_some() || aborts.of(tag).is_some() {
            state.held -= cost;
            effects.credit = cost;
        } else {
            let body = Body::Whole(buffers.seal(payload));
            state.push(tag, Message { body, cost, sent: None }, &mut effects);
        }
        effects
    }

    /// Takes in an eager message that is here already: [`expect`](Self::expect) and [`deliver`](Self::deliver) in one.
    ///
    /// # Errors
    /// How the peer broke the protocol.
    pub fn arrive(&mut self, tag: Tag, payload: Bytes) -> Result<Effects, String> {
        let Self { limits, aborts, state, .. } = self;
        let mut effects = Effects::default();
        let cost = state.room_for(payload.len() as u64, limits.window)?;
        if state.over.is_some() || aborts.of(tag).is_some() {
            effects.credit = cost;
        } else {
            state.held += cost;
            state.push(tag, Message { body: Body::Whole(payload), cost, sent: None }, &mut effects);
        }
        Ok(effects)
    }

    /// Whether an eager message of this length, which is here already, is the next of this ticket's receiver, and
    /// nothing else is waiting for it. If so the receiver is gone, and the message goes to it past the inbox; its cost
    /// is to be given back.
    #[inline]
    pub fn hand_over(&mut self, tag: Tag, ticket: u64, length: u64) -> bool {
        let Self { limits, aborts, state, .. } = self;
        state.is_lone(ticket)
            && state.over.is_none()
            && aborts.of(tag).is_none()
            && state.room_for(length, limits.window).is_ok()
            && state.lone.take_if(|(its, _)| *its == tag).is_some()
    }

    /// Takes in the announcement of a message.
    ///
    /// # Errors
    /// How the peer broke the protocol.
    pub fn announce(&mut self, tag: Tag, length: u64, id: u64) -> Result<Effects, String> {
        let Self { limits, aborts, state, .. } = self;
        let mut effects = Effects::default();
        state.take_id(id)?;
        let limit = limits.max_message;
        if length > limit {
            return Err(format!("it announced a message of {length} bytes, the limit is {limit}"));
        }
        if state.over.is_some() || aborts.of(tag).is_some() {
            return Ok(effects);
        }
        if state.announced >= limits.max_announced {
            return Err(format!("it announced more than {} messages", limits.max_announced));
        }
        state.announced += 1;
        let body = Body::Announced { id, length, asked_for: false };
        state.push(tag, Message { body, cost: 0, sent: None }, &mut effects);
        Ok(effects)
    }

    /// Takes in the announcement of a message that fits the window and follows unasked, in parts. False: its parts
    /// are to be dropped, and its cost given back; its context is aborted, or nothing is received any more.
    ///
    /// For back ends where a long message comes by another way than its announcement, and may be overtaken.
    ///
    /// # Errors
    /// How the peer broke the protocol.
    pub fn expect_pushed(&mut self, tag: Tag, length: u64, id: u64) -> Result<bool, String> {
        let Self { limits, aborts, state, .. } = self;
        state.take_id(id)?;
        let cost = state.room_for(length, limits.window)?;
        if state.over.is_some() || aborts.of(tag).is_some() {
            return Ok(false);
        }
        state.held += cost;
        state.announced += 1;
        state.fetching.insert(id, Fetching { tag, rest: length, buffer: Vec::new() });
        let body = Body::Announced { id, length, asked_for: true };
        // Nobody is woken and nothing is fetched before it has arrived.
        state.push(tag, Message { body, cost, sent: None }, &mut Effects::default());
        Ok(true)
    }

    /// Gives the buffer to which a part of an announced message is to be appended, with room for it. `None`:
    /// drop the part, its context is aborted.
    ///
    /// # Errors
    /// How the peer broke the protocol, or that there is no memory.
    pub fn expect_part(&mut self, tag: Tag, id: u64, length: u64) -> Result<Option<Vec<u8>>, String> {
        let Self { limits, aborts, buffers, state } = self;
        let Some(fetching) = state.fetching.get_mut(&id) else {
            // The abort may have overtaken it.
            if aborts.of(tag).is_some() || state.over.is_some() {
                return Ok(None);
            }
            return Err(format!("it sent a part of message {id}, which was not asked for"));
        };
        if length > fetching.rest || length > limits.max_part {
            return Err(format!(
                "it sent {length} bytes of message {id}, of which {} are missing",
                fetching.rest
            ));
        }
        let mut buffer = std::mem::take(&mut fetching.buffer);
        if buffer.capacity() == 0 {
            let rest = usize::try_from(fetching.rest).unwrap_or(usize::MAX);
            buffer = buffers.take(rest).unwrap_or_default();
        }
        if ((buffer.capacity() - buffer.len()) as u64) < length {
            // Grows with what has arrived, not with what was promised.
            let growth = GROWTH.max(buffer.len() as u64).min(fetching.rest).max(length);
            let growth = usize::try_from(growth).unwrap_or(usize::MAX);
            let refused = |_| format!("there is no memory for the {length} next bytes of message {id}");
            buffer.try_reserve_exact(growth).map_err(refused)?;
        }
        Ok(Some(buffer))
    }

    /// Takes back the buffer, with the part appended.
    pub fn part_arrived(&mut self, id: u64, length: u64, buffer: Vec<u8>) -> Effects {
        let mut effects = Effects::default();
        // Gone if its context was aborted meanwhile.
        let Some(fetching) = self.state.fetching.get_mut(&id) else { return effects };
        fetching.rest = fetching.rest.saturating_sub(length);
        fetching.buffer = buffer;
        if fetching.rest == 0 {
            self.state.finish_fetching(id, &self.buffers, &mut effects);
        }
        effects
    }

    /// A message to oneself, this `rank`. `Some`: it waits until a receiver is posted for it.
    pub fn post_own(&mut self, rank: Rank, tag: Tag, payload: Bytes) -> (Posted, Effects) {
        let Self { limits, aborts, state, .. } = self;
        let mut effects = Effects::default();
        let (length, limit) = (payload.len() as u64, limits.max_message);
        if length > limit {
            return (Err(Error::TooLarge { peer: rank, length, limit }), effects);
        }
        if let Some(error) = aborts.of(tag).or_else(|| state.over.clone()) {
            return (Err(error), effects);
        }
        let cost = length + MESSAGE_COST;
        let (cost, sent) = if cost <= limits.window.saturating_sub(state.held) {
            (cost, None)
        } else {
            (0, Some(Arc::new(Completion::default())))
        };
        state.held += cost;
        state.push(tag, Message { body: Body::Whole(payload), cost, sent: sent.clone() }, &mut effects);
        (Ok(sent), effects)
    }

    // Ends.

    /// Drops what belongs to an aborted scope. The scope has been noted before.
    pub fn abort(&mut self, scope: Scope) -> Effects {
        let Self { aborts, state, .. } = self;
        let mut effects = Effects::default();
        state.fetching.retain(|_, fetching| !scope.covers(fetching.tag));
        let State { lone, tags, held, announced, .. } = &mut *state;
        let lone = lone.as_mut().filter(|(tag, _)| scope.covers(*tag));
        effects.wake.extend(lone.and_then(|(_, receiver)| receiver.waker.take()));
        for (tag, queue) in tags.iter_mut().filter(|(tag, _)| scope.covers(**tag)) {
            for message in queue.messages.drain(..) {
                *held -= message.cost;
                effects.credit += message.cost;
                *announced -= u32::from(matches!(message.body, Body::Announced { .. }));
                let outcome = aborts.of(*tag).map_or(Ok(()), Err);
                effects.sent.extend(message.sent.map(|sent| (sent, outcome)));
            }
            effects.wake.extend(queue.receivers.iter_mut().filter_map(|receiver| receiver.waker.take()));
        }
        tags.retain(|_, queue| !queue.is_empty());
        effects
    }

    /// Nothing more will arrive. What has arrived whole, with nothing missing before it, stays.
    pub fn end(&mut self, error: &Error) -> Effects {
        let mut effects = Effects::default();
        if self.state.over.is_some() {
            return effects;
        }
        self.state.over = Some(error.clone());
        self.state.fetching.clear();
        self.state.announced = 0;
        effects.wake.extend(self.state.lone.as_mut().and_then(|(_, receiver)| receiver.waker.take()));
        for queue in self.state.tags.values_mut() {
            let whole = |message: &Message| matches!(message.body, Body::Whole(_));
            let arrived = queue.messages.iter().take_while(|message| whole(message)).count();
            let lost: u64 = queue.messages.drain(arrived..).map(|message| message.cost).sum();
            effects.credit += lost;
            let waiting = queue.messages.iter_mut().filter_map(|message| message.sent.take());
            effects.sent.extend(waiting.map(|sent| (sent, Err(error.clone()))));
            effects.wake.extend(queue.receivers.iter_mut().filter_map(|receiver| receiver.waker.take()));
        }
        self.state.held -= effects.credit;
        effects
    }
}

impl State {
    /// What an eager message of this length costs, if the window has room for it.
    fn room_for(&self, length: u64, window: u64) -> Result<u64, String> {
        let cost = length.saturating_add(MESSAGE_COST);
        if cost > window.saturating_sub(self.held) {
            let held = self.held;
            return Err(format!(
                "it sent {length} bytes unasked, with {held} of the window of {window} in use"
            ));
        }
        Ok(cost)
    }

    fn take_id(&mut self, id: u64) -> Result<(), String> {
        if id != self.next_id {
            return Err(format!("it announced message {id} where {} comes next", self.next_id));
        }
        self.next_id += 1;
        Ok(())
    }

    /// The queue of a tag, with every receiver of the tag.
    fn queue(&mut self, tag: Tag) -> &mut Queue {
        let lone = self.lone.take_if(|(its, _)| *its == tag);
        let Self { tags, spare, .. } = self;
        let queue = tags.entry(tag).or_insert_with(|| spare.pop().unwrap_or_default());
        queue.receivers.extend(lone.map(|(_, receiver)| receiver));
        queue
    }

    fn push(&mut self, tag: Tag, message: Message, effects: &mut Effects) {
        let queue = self.queue(tag);
        queue.messages.push_back(message);
        let position = queue.messages.len() - 1;
        self.match_up(tag, position, effects);
    }

    /// Looks at the pair at this position: a whole message wakes its receiver and completes its send,
    /// an announced one is asked for.
    fn match_up(&mut self, tag: Tag, position: usize, effects: &mut Effects) {
        let Some(queue) = self.tags.get_mut(&tag) else { return };
        let (Some(message), Some(receiver)) =
            (queue.messages.get_mut(position), queue.receivers.get_mut(position))
        else {
            return;
        };
        match &mut message.body {
            Body::Whole(_) => {
                effects.wake.extend(receiver.waker.take());
                effects.sent.extend(message.sent.take().map(|sent| (sent, Ok(()))));
            }
            Body::Announced { asked_for: true, .. } => {}
            Body::Announced { id, length, asked_for } => {
                *asked_for = true;
                effects.fetch.push(*id);
                self.fetching.insert(*id, Fetching { tag, rest: *length, buffer: Vec::new() });
            }
        }
    }

    fn finish_fetching(&mut self, id: u64, buffers: &Buffers, effects: &mut Effects) {
        let Some(Fetching { tag, buffer, .. }) = self.fetching.remove(&id) else { return };
        let Some(queue) = self.tags.get_mut(&tag) else { return };
        let is_it = |message: &Message| matches!(message.body, Body::Announced { id: its, .. } if its == id);
        let Some(position) = queue.messages.iter().position(is_it) else { return };
        if let Some(message) = queue.messages.get_mut(position) {
            message.body = Body::Whole(buffers.seal(buffer));
        }
        self.announced -= 1;
        self.match_up(tag, position, effects);
    }

    fn is_lone(&self, ticket: u64) -> bool {
        self.lone.as_ref().is_some_and(|(_, receiver)| receiver.ticket == ticket)
    }

    fn receiver(&mut self, tag: Tag, ticket: u64) -> Option<&mut Receiver> {
        if self.is_lone(ticket) {
            return self.lone.as_mut().map(|(_, receiver)| receiver);
        }
        let (queue, position) = self.find_receiver(tag, ticket)?;
        queue.receivers.get_mut(position)
    }

    /// The queue in which a receiver that is not lone stands, and where.
    fn find_receiver(&mut self, tag: Tag, ticket: u64) -> Option<(&mut Queue, usize)> {
        if self.is_lone(ticket) {
            return None;
        }
        let queue = self.tags.get_mut(&tag)?;
        let position = queue.receivers.binary_search_by_key(&ticket, |receiver| receiver.ticket).ok()?;
        Some((queue, position))
    }

    fn remove_receiver(&mut self, tag: Tag, ticket: u64, effects: &mut Effects) {
        if self.is_lone(ticket) {
            self.lone = None;
        }
        let Some((queue, position)) = self.find_receiver(tag, ticket) else { return };
        queue.receivers.remove(position);
        // The later ones have moved up, each to another message.
        for moved in position..queue.receivers.len().min(queue.messages.len()) {
            self.match_up(tag, moved, effects);
        }
        self.forget_if_empty(tag);
    }

    fn forget_if_empty(&mut self, tag: Tag) {
        if self.tags.get(&tag).is_some_and(Queue::is_empty)
            && let Some(queue) = self.tags.remove(&tag)
            && self.spare.len() < SPARE
        {
            self.spare.push(queue);
        }
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.receivers.is_empty()
    }
}

#[cfg(test)]
mod tests;
