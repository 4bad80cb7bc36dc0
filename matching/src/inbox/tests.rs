use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use proptest::collection::vec;
use proptest::prelude::*;
use transport::{Rank, Scope};

use super::*;

const TAG: Tag = Tag::new(1, 1);
const WINDOW: u64 = 10_000;

fn inbox() -> Inbox {
    let limits = Limits { window: WINDOW, max_message: 1 << 40, max_announced: 100, max_part: 1 << 20 };
    Inbox::new(limits, Arc::default(), Buffers::default())
}

fn poll(inbox: &mut Inbox, ticket: u64) -> Poll<(Result<Bytes, Error>, Effects)> {
    inbox.poll(TAG, ticket, &Context::from_waker(Waker::noop()))
}

fn take(inbox: &mut Inbox) -> Option<Bytes> {
    let (ticket, _) = inbox.post(TAG);
    match poll(inbox, ticket) {
        Poll::Ready((outcome, _)) => Some(outcome.unwrap()),
        Poll::Pending => {
            let _ = inbox.withdraw(TAG, ticket);
            None
        }
    }
}

fn gone() -> Error {
    Error::peer_lost(Rank(7), "gone")
}

/// What may happen; the numbers choose among what there is.
#[derive(Clone, Debug)]
enum Event {
    Deliver,
    Announce,
    /// A fetched message arrives.
    Arrive(usize),
    Post,
    Withdraw(usize),
    Poll(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Deliver),
        2 => Just(Event::Announce),
        3 => (0..8_usize).prop_map(Event::Arrive),
        3 => Just(Event::Post),
        2 => (0..8_usize).prop_map(Event::Withdraw),
        3 => (0..8_usize).prop_map(Event::Poll),
    ]
}

/// Somebody who has polled a receiver in vain and waits to be woken.
#[derive(Default)]
struct Sleeper(AtomicBool);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The matching in one line: the n-th receiver that waits belongs to the n-th message that lies there.
#[derive(Default)]
struct Model {
    /// Number, and for an announced message its id until it has arrived.
    messages: Vec<(u64, Option<u64>)>,
    receivers: Vec<(u64, Arc<Sleeper>)>,
    fetched: Vec<u64>,
    sent: u64,
    announced: u64,
    credit: u64,
}

impl Model {
    fn see(&mut self, effects: Effects) {
        effects.wake.into_iter().for_each(Waker::wake);
        self.credit += effects.credit;
        self.fetched.extend(effects.fetch);
    }

    /// A message with a receiver opposite is asked for if it is announced, and nobody sleeps beside it
    /// if it is whole.
    fn check_pairs(&self) {
        for ((_, id), (_, sleeper)) in self.messages.iter().zip(&self.receivers) {
            match id {
                Some(id) => assert!(self.fetched.contains(id), "message {id} has a receiver"),
                None => assert!(!sleeper.0.load(Ordering::Relaxed), "a whole message wakes its receiver"),
            }
        }
        assert!(self.fetched.iter().all(|id| *id < self.announced));
    }
}

fn arrive(inbox: &mut Inbox, id: u64, number: u64) -> Effects {
    let mut effects = Effects::default();
    for part in number.to_le_bytes().chunks(3) {
        let mut buffer = inbox.expect_part(TAG, id, part.len() as u64).unwrap().unwrap();
        buffer.extend_from_slice(part);
        effects = inbox.part_arrived(id, part.len() as u64, buffer);
    }
    effects
}

proptest! {
    #[test]
    fn the_nth_receiver_gets_the_nth_message(events in vec(event(), 0..80)) {
        let (mut inbox, mut model) = (inbox(), Model::default());
        for event in events {
            match event {
                Event::Deliver => {
                    prop_assert!(inbox.expect(TAG, 8).unwrap().is_some());
                    model.messages.push((model.sent, None));
                    model.see(inbox.deliver(TAG, model.sent.to_le_bytes().to_vec()));
                    model.sent += 1;
                }
                Event::Announce => {
                    model.messages.push((model.sent, Some(model.announced)));
                    model.see(inbox.announce(TAG, 8, model.announced).unwrap());
                    model.sent += 1;
                    model.announced += 1;
                }
                Event::Arrive(choice) => {
                    let coming = |(_, id): &&mut (u64, Option<u64>)| id.is_some_and(|id| model.fetched.contains(&id));
                    if let Some((number, id)) = model.messages.iter_mut().filter(coming).nth(choice) {
                        let effects = arrive(&mut inbox, id.take().unwrap(), *number);
                        model.see(effects);
                    }
                }
                Event::Post => {
                    let (ticket, effects) = inbox.post(TAG);
                    model.receivers.push((ticket, Arc::default()));
                    model.see(effects);
                }
                Event::Withdraw(choice) if choice < model.receivers.len() => {
                    let (ticket, _) = model.receivers.remove(choice);
                    model.see(inbox.withdraw(TAG, ticket));
                }
                Event::Poll(choice) if choice < model.receivers.len() => {
                    let (ticket, sleeper) = model.receivers[choice].clone();
                    let waker = Waker::from(Arc::clone(&sleeper));
                    let polled = inbox.poll(TAG, ticket, &Context::from_waker(&waker));
                    match (polled, model.messages.get(choice).copied()) {
                        (Poll::Ready((received, effects)), Some((number, None))) => {
                            prop_assert_eq!(&received.unwrap()[..], &number.to_le_bytes()[..]);
                            model.see(effects);
                            model.receivers.remove(choice);
                            model.messages.remove(choice);
                        }
                        (polled, expected) => {
                            prop_assert!(polled.is_pending() && expected.is_none_or(|(_, id)| id.is_some()));
                            sleeper.0.store(true, Ordering::Relaxed);
                        }
                    }
                }
                Event::Withdraw(_) | Event::Poll(_) => {}
            }
            model.check_pairs();
        }
        // Everything that is left comes in order, to receivers posted now.
        for (ticket, _) in std::mem::take(&mut model.receivers) {
            model.see(inbox.withdraw(TAG, ticket));
        }
        for (number, id) in std::mem::take(&mut model.messages) {
            let (ticket, effects) = inbox.post(TAG);
            model.see(effects);
            if let Some(id) = id {
                model.see(arrive(&mut inbox, id, number));
            }
            let Poll::Ready((received, effects)) = poll(&mut inbox, ticket) else { panic!("message {number} is lost") };
            model.see(effects);
            prop_assert_eq!(&received.unwrap()[..], &number.to_le_bytes()[..]);
        }
        // All room is given back, nothing stays behind.
        prop_assert_eq!(model.credit, (model.sent - model.announced) * (8 + MESSAGE_COST));
        let state = &inbox.state;
        prop_assert!(state.tags.is_empty() && state.fetching.is_empty());
        prop_assert_eq!((state.held, state.announced), (0, 0));
    }
}

#[test]
fn the_window_bounds_what_comes_unasked() {
    let mut inbox = inbox();
    let mut accepted = 0;
    while inbox.expect(TAG, 0).is_ok() {
        let _ = inbox.deliver(TAG, Vec::new());
        accepted += 1;
    }
    assert_eq!(accepted, WINDOW / MESSAGE_COST);
    assert_eq!(take(&mut inbox), Some(Bytes::new()));
    assert!(inbox.expect(TAG, 0).unwrap().is_some());
    assert!(inbox.expect(TAG, u64::MAX).unwrap_err().contains("of the window of 10000 in use"));
}

#[test]
fn a_promised_length_is_not_allocated() {
    let mut inbox = inbox();
    let _ = inbox.announce(TAG, 1 << 40, 0).unwrap();
    let (_, effects) = inbox.post(TAG);
    assert_eq!(effects.fetch, [0]);
    let buffer = inbox.expect_part(TAG, 0, 10).unwrap().unwrap();
    assert!(buffer.capacity() as u64 <= GROWTH);
}

#[test]
fn broken_rules_are_told() {
    let mut inbox = inbox();
    assert!(inbox.announce(TAG, 5, 1).unwrap_err().contains("announced message 1 where 0 comes next"));
    assert!(inbox.announce(TAG, (1 << 40) + 1, 0).unwrap_err().contains("the limit is 1099511627776"));
    assert!(inbox.expect_part(TAG, 0, 5).unwrap_err().contains("not asked for"));
    for id in 1..=100 {
        let _ = inbox.announce(TAG, 5, id).unwrap();
    }
    assert!(inbox.announce(TAG, 5, 101).unwrap_err().contains("more than 100 messages"));
    let _ = inbox.post(TAG);
    assert!(inbox.expect_part(TAG, 1, 6).unwrap_err().contains("of which 5 are missing"));
}

#[test]
fn what_arrived_whole_outlives_the_peer() {
    let mut inbox = inbox();
    let deliver = |inbox: &mut Inbox, word: &'static [u8]| {
        assert!(inbox.expect(TAG, word.len() as u64).unwrap().is_some());
        let _ = inbox.deliver(TAG, word.to_vec());
    };
    deliver(&mut inbox, b"first");
    deliver(&mut inbox, b"second");
    let _ = inbox.announce(TAG, 5, 0).unwrap();
    deliver(&mut inbox, b"after a gap");
    let _ = inbox.end(&gone());
    let _ = inbox.end(&Error::peer_lost(Rank(8), "the second end does not count"));
    assert_eq!((take(&mut inbox), take(&mut inbox)), (Some("first".into()), Some("second".into())));
    let (next, after) = (inbox.post(TAG).0, inbox.post(TAG).0);
    for ticket in [after, next] {
        let Poll::Ready((Err(error), _)) = poll(&mut inbox, ticket) else { panic!("it is over") };
        assert_eq!(error.peer(), Some(Rank(7)));
    }
}

#[test]
fn an_abort_drops_its_context_only() {
    let mut inbox = inbox();
    let other = Tag::new(2, 1);
    for tag in [TAG, other] {
        assert!(inbox.expect(tag, 1).unwrap().is_some());
        let _ = inbox.deliver(tag, b"x".to_vec());
        let _ = inbox.announce(tag, 5, u64::from(tag.context) - 1).unwrap();
    }
    let tickets: Vec<u64> = (0..3).map(|_| inbox.post(TAG).0).collect();
    assert!(inbox.aborts.note(Scope::Context(1), Rank(3), "why"));
    assert_eq!(inbox.abort(Scope::Context(1)).credit, 1 + MESSAGE_COST);
    for ticket in tickets {
        assert!(matches!(
            poll(&mut inbox, ticket),
            Poll::Ready((Err(Error::Aborted { by: Rank(3), .. }), _))
        ));
    }
    // What still arrives for it is dropped; the peer may not have heard yet.
    assert_eq!(inbox.expect(TAG, 1), Ok(None));
    assert_eq!(inbox.expect_part(TAG, 0, 5), Ok(None));
    assert!(inbox.announce(TAG, 5, 2).unwrap().fetch.is_empty());
    let (ticket, _) = inbox.post(other);
    assert!(inbox.poll(other, ticket, &Context::from_waker(Waker::noop())).is_ready());
    let state = &inbox.state;
    assert_eq!((state.held, state.announced, state.tags.len()), (0, 1, 1));
}
