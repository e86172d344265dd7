//! The way to the control thread: a queue for each attachment, served in turn.
//!
//! An attachment that sends many messages waits for its own; the others wait for one turn of it. What belongs to no
//! attachment (a sign of life, the end, a new attachment) goes before everything else.

use crate::message::Message;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long messages of one attachment are served before those of the next. A request takes 2 to 20 us; the turns of a
/// hundred attachments take less than a person notices, and a sixtieth of the shortest heartbeat.
const TURN: Duration = Duration::from_micros(250);

/// Makes the queue, and its two ends.
pub(crate) fn control_queue() -> (ControlSender, ControlReceiver) {
    let queue = Arc::new(Queue::default());
    (ControlSender(queue.clone()), ControlReceiver(queue))
}

/// The end of everybody else.
#[derive(Clone, Debug)]
pub(crate) struct ControlSender(Arc<Queue>);

/// The control thread's end. Dropped, it takes everything that waits with it.
#[derive(Debug)]
pub(crate) struct ControlReceiver(Arc<Queue>);

/// The control thread takes no more messages.
#[derive(Debug)]
pub(crate) struct Closed;

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    wake: Notify,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("closed", &self.lock().closed).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    first: VecDeque<Message>,
    /// What waits, by attachment. None is empty.
    others: HashMap<u32, VecDeque<Message>>,
    /// Who has messages: the first one has its turn.
    turns: VecDeque<u32>,
    /// When that turn is over; `None` before it has begun.
    turn_ends: Option<Instant>,
    asleep: bool,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlSender {
    /// Sends a message; never waits.
    ///
    /// # Errors
    /// [`Closed`]: it is dropped.
    pub(crate) fn send(&self, message: Message) -> Result<(), Closed> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(Closed);
        }
        state.push(message);
        let wakes = std::mem::take(&mut state.asleep);
        drop(state);
        if wakes {
            self.0.wake.notify_one();
        }
        Ok(())
    }

    /// Returns whether the control thread has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

impl ControlReceiver {
    /// The next message. Gives other tasks of the thread a turn once in a while.
    pub(crate) async fn recv(&mut self) -> Message {
        loop {
            tokio::task::coop::consume_budget().await;
            let message = {
                let mut state = self.0.lock();
                let message = state.pop(Instant::now());
                state.asleep = message.is_none();
                message
            };
            match message {
                Some(message) => return message,
                None => self.0.wake.notified().await,
            }
        }
    }

    /// The next message, if there is one.
    #[cfg(test)]
    pub(crate) fn try_recv(&mut self) -> Option<Message> {
        self.0.lock().pop(Instant::now())
    }
}

impl Drop for ControlReceiver {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.lock();
            state.closed = true;
            (std::mem::take(&mut state.first), std::mem::take(&mut state.others))
        };
        // What waits for answers is told by this, and may look at the queue.
        drop(left);
    }
}

impl State {
    fn push(&mut self, message: Message) {
        let Some(attachment) = message.attachment() else { return self.first.push_back(message) };
        let queue = self.others.entry(attachment).or_default();
        if queue.is_empty() {
            self.turns.push_back(attachment);
        }
        queue.push_back(message);
    }

    fn pop(&mut self, now: Instant) -> Option<Message> {
        if let Some(message) = self.first.pop_front() {
            return Some(message);
        }
        if self.turn_ends.is_some_and(|end| end <= now) {
            self.turn_ends = None;
            if let Some(attachment) = self.turns.pop_front() {
                self.turns.push_back(attachment);
            }
        }
        let attachment = *self.turns.front()?;
        self.turn_ends.get_or_insert(now + TURN);
        let queue = self.others.get_mut(&attachment)?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.others.remove(&attachment);
            self.turns.pop_front();
            self.turn_ends = None;
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(messages: impl IntoIterator<Item = Message>) -> State {
        let mut state = State::default();
        messages.into_iter().for_each(|message| state.push(message));
        state
    }

    fn abandon(device: u32, control: u32) -> Message {
        Message::Abandon { device, control, seq: 0 }
    }

    fn taken(message: Option<Message>) -> Option<(u32, u32)> {
        match message? {
            Message::Abandon { device, control, .. } => Some((device, control)),
            Message::Ping => Some((9, 9)),
            _ => None,
        }
    }

    #[test]
    fn who_sends_much_waits_for_itself() {
        let start = Instant::now();
        let mut state = state((0..1000).map(|control| abandon(1, control)));
        assert_eq!(taken(state.pop(start)), Some((1, 0)));
        state.push(abandon(2, 0));
        state.push(abandon(3, 0));
        state.push(Message::Ping);
        assert_eq!(taken(state.pop(start)), Some((9, 9)));
        // Its turn goes on, and is over.
        assert_eq!(taken(state.pop(start + TURN / 2)), Some((1, 1)));
        assert_eq!(taken(state.pop(start + TURN)), Some((2, 0)));
        assert_eq!(taken(state.pop(start + TURN)), Some((3, 0)));
        for control in 2..1000 {
            assert_eq!(taken(state.pop(start + TURN)), Some((1, control)), "in order");
        }
        assert!(state.pop(start + TURN).is_none());
        assert!(state.others.is_empty() && state.turns.is_empty() && state.turn_ends.is_none());
    }

    #[test]
    fn a_turn_begins_when_it_is_ones_turn() {
        let start = Instant::now();
        let mut state = state([abandon(1, 0), abandon(2, 0), abandon(2, 1), abandon(1, 1)]);
        assert_eq!(taken(state.pop(start)), Some((1, 0)));
        let later = start + 2 * TURN;
        assert_eq!(taken(state.pop(later)), Some((2, 0)));
        assert_eq!(taken(state.pop(later + TURN / 2)), Some((2, 1)));
        assert_eq!(taken(state.pop(later)), Some((1, 1)));
    }

    #[test]
    fn a_message_wakes_and_the_end_is_known() {
        let (sender, mut receiver) = control_queue();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sending = sender.clone();
        let thread = std::thread::spawn(move || (0..1000).try_for_each(|n| sending.send(abandon(n % 7, n))));
        let got: Vec<_> = (0..1000).map(|_| taken(Some(runtime.block_on(receiver.recv())))).collect();
        thread.join().unwrap().unwrap();
        for device in 0..7 {
            let own = got.iter().flatten().filter(|(from, _)| *from == device);
            assert!(own.is_sorted_by_key(|(_, control)| *control));
        }
        assert!(!sender.is_closed());
        drop(receiver);
        assert!(sender.is_closed() && sender.send(Message::Ping).is_err());
    }
}
