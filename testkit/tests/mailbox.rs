//! The mailbox against a naive model of it: a list of messages, a list of receives and a window.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use proptest::prelude::*;
use testkit::{MESSAGE_COST, Mailbox, Receiving, Sending};
use transport::{Error, Scope, Tag, block_on};

const WINDOW: usize = 10 * MESSAGE_COST;

/// What is done to a mailbox. The last number of a receive chooses among those that are posted.
#[derive(Clone, Debug)]
enum Step {
    Send { tag: u32, length: usize },
    Receive { tag: u32 },
    PollReceive(usize),
    DropReceive(usize),
}

fn step() -> impl Strategy<Value = Step> {
    // Some messages exceed the whole window.
    let length = prop_oneof![3 => Just(0), 6 => 0..4 * MESSAGE_COST, 1 => Just(WINDOW)];
    prop_oneof![
        6 => (0..3_u32, length).prop_map(|(tag, length)| Step::Send { tag, length }),
        4 => (0..3_u32).prop_map(|tag| Step::Receive { tag }),
        4 => any::<usize>().prop_map(Step::PollReceive),
        2 => any::<usize>().prop_map(Step::DropReceive),
    ]
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A future, and whether it was woken since it was last pending.
struct Watched<F> {
    future: Pin<Box<F>>,
    flag: Option<Arc<Flag>>,
}

impl<F: Future> Watched<F> {
    fn new(future: F) -> Self {
        Self { future: Box::pin(future), flag: None }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        let flag = Arc::new(Flag::default());
        let outcome = self.future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&flag))));
        let woken = self.flag.replace(flag).is_none_or(|flag| flag.0.load(Ordering::Relaxed));
        assert!(outcome.is_pending() || woken, "a future became ready and nobody was woken");
        outcome
    }
}

struct Message {
    tag: u32,
    payload: Bytes,
    send: Watched<Sending>,
    completed: bool,
    /// Whether a receive has been posted for it, even if that was dropped again.
    was_matched: bool,
}

impl Message {
    fn cost(&self) -> usize {
        self.payload.len() + MESSAGE_COST
    }
}

struct Model {
    mailbox: Mailbox,
    messages: Vec<Message>,
    receives: Vec<(u32, Watched<Receiving>)>,
}

impl Model {
    fn step(&mut self, number: usize, step: &Step) {
        match *step {
            Step::Send { tag, length } => {
                let payload = Bytes::from(vec![number as u8; length]);
                let send = Watched::new(self.mailbox.send(Tag::new(0, tag), payload.clone()));
                self.messages.push(Message { tag, payload, send, completed: false, was_matched: false });
            }
            Step::Receive { tag } => {
                self.receives.push((tag, Watched::new(self.mailbox.recv(Tag::new(0, tag)))));
            }
            Step::PollReceive(choice) if !self.receives.is_empty() => {
                let index = choice % self.receives.len();
                match (self.message_of(index), self.receives[index].1.poll()) {
                    (Some(message), Poll::Ready(Ok(payload))) => {
                        assert_eq!(payload, self.messages[message].payload, "its turn is another message's");
                        self.receives.remove(index);
                        assert!(self.messages.remove(message).completed);
                    }
                    (None, Poll::Pending) => {}
                    (message, polled) => panic!("message {message:?} was due, not {polled:?}"),
                }
            }
            Step::DropReceive(choice) if !self.receives.is_empty() => {
                drop(self.receives.remove(choice % self.receives.len()));
            }
            Step::PollReceive(_) | Step::DropReceive(_) => {}
        }
    }

    /// The n-th receive of a tag belongs to its n-th message.
    fn message_of(&self, receive: usize) -> Option<usize> {
        let tag = self.receives[receive].0;
        let position = self.receives[..receive].iter().filter(|(other, _)| *other == tag).count();
        let mut of_tag = (0..self.messages.len()).filter(|message| self.messages[*message].tag == tag);
        of_tag.nth(position)
    }

    fn check(&mut self) {
        for message in self.messages.iter_mut().filter(|message| !message.completed) {
            message.completed = matches!(message.send.poll(), Poll::Ready(Ok(())));
        }
        let matched: Vec<_> = (0..self.receives.len()).filter_map(|index| self.message_of(index)).collect();
        for message in &matched {
            let message = &mut self.messages[*message];
            assert!(message.completed, "a receive is posted for it, but the send waits");
            message.was_matched = true;
        }
        let unmatched = || (0..self.messages.len()).filter(|index| !matched.contains(index));
        let held = || unmatched().map(|index| &self.messages[index]).filter(|message| message.completed);
        let fresh: usize = held().filter(|message| !message.was_matched).map(Message::cost).sum();
        assert!(fresh <= WINDOW, "{fresh} bytes are more than the window");

        let used: usize = held().map(Message::cost).sum();
        let waiting = |tag| self.messages.iter().position(|message| message.tag == tag && !message.completed);
        let first = (0..3).filter_map(waiting).filter(|index| self.messages[*index].cost() <= WINDOW).min();
        if let Some(first) = first {
            assert!(used + self.messages[first].cost() > WINDOW, "there is room, but the send waits");
        }
        for tag in 0..3 {
            let mut of_tag = self.messages.iter().filter(|message| message.tag == tag);
            assert!(of_tag.by_ref().is_sorted_by_key(|message| !message.completed), "sends overtake");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_mailbox_is_two_lists_and_a_window(steps in prop::collection::vec(step(), 0..150)) {
        let mut model = Model { mailbox: Mailbox::new(WINDOW), messages: Vec::new(), receives: Vec::new() };
        for (number, step) in steps.iter().enumerate() {
            model.step(number, step);
            model.check();
        }
        // All that is left is what the model says, and then the mailbox is as new.
        model.receives.clear();
        let mut drained = model.mailbox.drain();
        drained.sort_by_key(|(tag, _)| *tag);
        model.messages.sort_by_key(|message| message.tag);
        let left = model.messages.iter().map(|message| (Tag::new(0, message.tag), message.payload.clone()));
        prop_assert_eq!(drained, left.collect::<Vec<_>>());
        prop_assert!(block_on(model.mailbox.send(Tag::new(0, 0), vec![0; WINDOW - MESSAGE_COST].into())).is_ok());
    }
}

fn failure(detail: &str) -> Error {
    Error::Backend { detail: detail.into(), source: None }
}

fn reason<R: std::fmt::Debug>(outcome: Poll<Result<R, Error>>) -> String {
    match outcome {
        Poll::Ready(Err(Error::Backend { detail, .. })) => detail,
        other => format!("{other:?}"),
    }
}

#[test]
fn closed_sends_fail_and_what_was_accepted_stays() {
    let (mailbox, tag) = (Mailbox::new(WINDOW), Tag::new(0, 0));
    block_on(mailbox.send(tag, Bytes::from_static(b"first"))).unwrap();
    let mut waiting = Watched::new(mailbox.send(tag, vec![0; WINDOW].into()));
    assert!(waiting.poll().is_pending());
    mailbox.close_sends(&failure("closed"));
    mailbox.close_sends(&failure("closed again"));
    assert_eq!(reason(waiting.poll()), "closed");
    assert_eq!(reason(Watched::new(mailbox.send(tag, Bytes::new())).poll()), "closed");
    assert_eq!(block_on(mailbox.recv(tag)).unwrap(), "first");
    assert!(Watched::new(mailbox.recv(tag)).poll().is_pending());
}

#[test]
fn closed_receives_fail_once_the_messages_are_taken() {
    let (mailbox, tag) = (Mailbox::new(WINDOW), Tag::new(0, 0));
    let (mut first, mut second) = (Watched::new(mailbox.recv(tag)), Watched::new(mailbox.recv(tag)));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    block_on(mailbox.send(tag, Bytes::from_static(b"last"))).unwrap();
    mailbox.close_receives(&failure("closed"));
    assert_eq!(reason(second.poll()), "closed");
    assert!(matches!(first.poll(), Poll::Ready(Ok(last)) if last == "last"));
    assert_eq!(reason(Watched::new(mailbox.recv(tag)).poll()), "closed");
}

#[test]
fn an_abort_frees_the_window() {
    let mailbox = Mailbox::new(WINDOW);
    let (doomed, fine) = (Tag::new(1, 0), Tag::new(2, 0));
    block_on(mailbox.send(doomed, vec![0; WINDOW - MESSAGE_COST].into())).unwrap();
    let mut ends = Watched::new(mailbox.send(doomed, Bytes::new()));
    let mut goes_on = Watched::new(mailbox.send(fine, Bytes::new()));
    let mut receive = Watched::new(mailbox.recv(Tag::new(1, 1)));
    assert!(ends.poll().is_pending() && goes_on.poll().is_pending() && receive.poll().is_pending());
    assert!(mailbox.abort(Scope::Context(1), &failure("aborted")));
    assert!(!mailbox.abort(Scope::Context(1), &failure("aborted again")));
    assert_eq!(reason(ends.poll()), "aborted");
    assert_eq!(reason(receive.poll()), "aborted");
    assert!(matches!(goes_on.poll(), Poll::Ready(Ok(()))));
    assert_eq!(reason(Watched::new(mailbox.recv(doomed)).poll()), "aborted");
    assert_eq!(block_on(mailbox.recv(fine)).unwrap(), Bytes::new());
}

#[test]
fn a_peer_is_asked_for_as_many_messages_as_are_missing() {
    let (mailbox, tag) = (Mailbox::new(usize::MAX), Tag::new(0, 0));
    assert!(!mailbox.ask(tag), "nobody receives");
    let first = mailbox.recv(tag);
    assert!(mailbox.ask(tag) && !mailbox.ask(tag));
    drop(first);
    let second = mailbox.recv(tag);
    assert!(!mailbox.ask(tag), "the message that the first one asked for is still on its way");
    block_on(mailbox.send(tag, Bytes::from_static(b"hello"))).unwrap();
    assert!(!mailbox.ask(tag), "it is here");
    assert_eq!(block_on(second).unwrap(), "hello");
    let _third = mailbox.recv(tag);
    assert!(mailbox.ask(tag));
}

#[test]
fn what_the_peer_wants_is_taken_in_order() {
    let (mailbox, tag) = (Mailbox::new(0), Tag::new(0, 0));
    let mut sends = [1_u8, 2, 3].map(|word| Watched::new(mailbox.send(tag, vec![word].into())));
    assert_eq!(mailbox.take(tag), None, "nobody wants it");
    mailbox.want(tag);
    mailbox.want(tag);
    assert!(matches!(
        sends.each_mut().map(Watched::poll),
        [Poll::Ready(Ok(())), Poll::Ready(Ok(())), Poll::Pending]
    ));
    assert_eq!([mailbox.take(tag), mailbox.take(tag)], [Some(vec![1].into()), Some(vec![2].into())]);
    assert_eq!(mailbox.take(tag), None);
}
