//! The queue of the control thread: one queue for each attachment. Users take turns, and so do the
//! attachments of a user. What lies in it are messages; the control slots of devices are
//! `gpunet_abi::control`'s.
//!
//! An attachment that sends many messages waits for its own; the other attachments of its user wait
//! for one turn of it, and other users for one turn of the user. What belongs to no attachment (a
//! liveness check, the end, a new attachment) goes before everything else.

use crate::model::message::Message;
use gpunet_core::ids::AttachmentId;
use gpunet_device::cpu::spin_yield::are_cores_few;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long the messages of one attachment are served before those of the next user. A request
/// takes 2 to 20 us. A hundred turns take less than a person notices, and a sixtieth of the
/// shortest heartbeat.
const TURN: Duration = Duration::from_micros(250);

/// How long the control thread looks for the next message before it sleeps, where there are cores
/// enough: a connection takes several messages one after the other, and each wake-up costs 10 to 50
/// us in a virtual machine.
const SPIN: Duration = Duration::from_micros(50);

/// Makes the queue, and its two ends.
pub(crate) fn control_queue() -> (ControlSender, ControlReceiver) {
    let queue = Arc::new(Queue::default());
    let spin = if are_cores_few() { Duration::ZERO } else { SPIN };
    (ControlSender(queue.clone()), ControlReceiver { queue, spin, last: None })
}

/// The sending end.
#[derive(Clone, Debug)]
pub(crate) struct ControlSender(Arc<Queue>);

/// The control thread's end. Dropping it drops all queued messages.
#[derive(Debug)]
pub(crate) struct ControlReceiver {
    queue: Arc<Queue>,
    spin: Duration,
    /// When there was a message last.
    last: Option<Instant>,
}

/// The control thread has ended and takes no more messages.
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
    /// The user of each attachment.
    users: HashMap<AttachmentId, u32>,
    /// Queued messages by user; `None` for those of no user, such as operators' questions.
    others: HashMap<Option<u32>, Waiting>,
    /// The users that have messages; the first one has its turn.
    turns: VecDeque<Option<u32>>,
    /// Its turn; `None` before it has begun.
    turn: Option<Turn>,
    asleep: bool,
    closed: bool,
}

/// A turn of a user.
#[derive(Clone, Copy)]
struct Turn {
    ends: Instant,
    /// Which of its attachments was served last.
    attachment: AttachmentId,
}

/// The queued messages of one user.
#[derive(Default)]
struct Waiting {
    /// By attachment. No queue is empty.
    messages: HashMap<AttachmentId, VecDeque<Message>>,
    /// The attachments that have messages; the first one has the user's turn.
    turns: VecDeque<AttachmentId>,
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
        self.push(message, true)
    }

    /// Sends a message for which the control thread need not wake up: it finds it when it wakes up
    /// for something else, or when [`ControlSender::wake`] is called.
    ///
    /// # Errors
    /// [`Closed`]: it is dropped.
    pub(crate) fn leave(&self, message: Message) -> Result<(), Closed> {
        self.push(message, false)
    }

    fn push(&self, message: Message, wakes: bool) -> Result<(), Closed> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(Closed);
        }
        // A client that has died is no longer served, however many requests it has left.
        let moot = match &message {
            Message::Gone { attachment, .. } => state.take_moot(*attachment),
            _ => VecDeque::new(),
        };
        state.push(message);
        let wakes = wakes && std::mem::take(&mut state.asleep);
        drop(state);
        // Not under the lock: dropping a message wakes the task that waits for its answer, and that
        // task may use the queue.
        drop(moot);
        if wakes {
            self.0.wake.notify_one();
        }
        Ok(())
    }

    /// Wakes the control thread if it sleeps.
    pub(crate) fn wake(&self) {
        if std::mem::take(&mut self.0.lock().asleep) {
            self.0.wake.notify_one();
        }
    }

    /// Forgets the user of an attachment.
    pub(crate) fn forget(&self, attachment: AttachmentId) {
        self.0.lock().users.remove(&attachment);
    }

    /// Returns whether the control thread has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

impl ControlReceiver {
    /// The next message. Yields to other tasks of the thread once in a while.
    pub(crate) async fn recv(&mut self) -> Message {
        loop {
            tokio::task::coop::consume_budget().await;
            let now = Instant::now();
            let spins = self.last.is_some_and(|last| now.duration_since(last) < self.spin);
            let message = {
                let mut state = self.queue.lock();
                let message = state.pop(now);
                state.asleep = message.is_none() && !spins;
                message
            };
            match message {
                Some(message) => {
                    self.last = Some(now);
                    return message;
                }
                // In between the thread runs its other tasks, and it takes events without waiting
                // for them.
                None if spins => tokio::task::yield_now().await,
                None => self.queue.wake.notified().await,
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.queue.lock();
        state.first.is_empty() && state.turns.is_empty()
    }

    /// The next message, if there is one.
    #[cfg(test)]
    pub(crate) fn try_recv(&mut self) -> Option<Message> {
        self.queue.lock().pop(Instant::now())
    }
}

impl Drop for ControlReceiver {
    fn drop(&mut self) {
        let left = {
            let mut state = self.queue.lock();
            state.closed = true;
            (
                std::mem::take(&mut state.first),
                std::mem::take(&mut state.others),
                std::mem::take(&mut state.turns),
            )
        };
        // Dropping a message wakes the task that waits for its answer, and that task may use the
        // queue.
        drop(left);
    }
}

impl State {
    fn push(&mut self, message: Message) {
        if let Message::Attach(state) = &message {
            self.users.insert(state.id, state.client.uid);
        }
        let Some(attachment) = message.attachment() else { return self.first.push_back(message) };
        let user = self.users.get(&attachment).copied();
        let waiting = self.others.entry(user).or_default();
        if waiting.turns.is_empty() {
            self.turns.push_back(user);
        }
        let queue = waiting.messages.entry(attachment).or_insert_with(|| {
            waiting.turns.push_back(attachment);
            VecDeque::new()
        });
        queue.push_back(message);
    }

    /// Takes out of an attachment's queue what serves only a program that lives.
    fn take_moot(&mut self, attachment: AttachmentId) -> VecDeque<Message> {
        let user = self.users.get(&attachment).copied();
        let queue = self.others.get_mut(&user).and_then(|waiting| waiting.messages.get_mut(&attachment));
        let Some(queue) = queue else { return VecDeque::new() };
        // It stays in its place, even if it is empty now: the end of the program comes into it at
        // once.
        let (moot, left) = std::mem::take(queue).into_iter().partition(Message::dies_with_program);
        *queue = left;
        moot
    }

    fn pop(&mut self, now: Instant) -> Option<Message> {
        if let Some(message) = self.first.pop_front() {
            return Some(message);
        }
        if let Some(turn) = self.turn.take_if(|turn| turn.ends <= now) {
            let waiting = self.others.get_mut(self.turns.front()?)?;
            if waiting.turns.front() == Some(&turn.attachment) {
                waiting.turns.rotate_left(1);
            }
            self.turns.rotate_left(1);
        }
        let waiting = self.others.get_mut(self.turns.front()?)?;
        let attachment = *waiting.turns.front()?;
        self.turn.get_or_insert(Turn { ends: now + TURN, attachment }).attachment = attachment;
        let queue = waiting.messages.get_mut(&attachment)?;
        let message = queue.pop_front();
        if queue.is_empty() {
            waiting.messages.remove(&attachment);
            waiting.turns.pop_front();
        }
        if waiting.turns.is_empty() {
            self.turns.pop_front();
            self.turn = None;
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_abi::control::{Op, Request};
    use gpunet_core::ids::{HostRequestId, RequestId};
    use std::task::Poll;

    fn state(messages: impl IntoIterator<Item = Message>) -> State {
        let mut state = State::default();
        messages.into_iter().for_each(|message| state.push(message));
        state
    }

    fn abandon(attachment: u32, control: u32) -> Message {
        Message::Abandon { attachment: AttachmentId(attachment), id: RequestId::Device { control, seq: 0 } }
    }

    fn taken(message: Option<Message>) -> Option<(u32, u32)> {
        match message? {
            Message::Abandon { attachment, id } => Some((attachment.0, id.control()?)),
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
        // Its turn continues, and then ends.
        assert_eq!(taken(state.pop(start + TURN / 2)), Some((1, 1)));
        assert_eq!(taken(state.pop(start + TURN)), Some((2, 0)));
        assert_eq!(taken(state.pop(start + TURN)), Some((3, 0)));
        for control in 2..1000 {
            assert_eq!(taken(state.pop(start + TURN)), Some((1, control)), "in order");
        }
        assert!(state.pop(start + TURN).is_none());
        assert!(state.turns.is_empty() && state.turn.is_none());
        assert!(state.others.values().all(|waiting| waiting.messages.is_empty() && waiting.turns.is_empty()));
    }

    #[test]
    fn who_has_many_attachments_waits_for_itself() {
        let start = Instant::now();
        let mut state = State { users: HashMap::from([(AttachmentId(8), 4242)]), ..State::default() };
        for user in [1, 2, 3] {
            state.users.insert(AttachmentId(user), 1000);
        }
        let many = [1, 1, 2, 2, 3, 3].into_iter().enumerate();
        many.for_each(|(control, attachment)| state.push(abandon(attachment, control as u32)));
        (0..3).for_each(|control| state.push(abandon(8, control)));
        // Each is served so slowly that its turn ends.
        let mut order =
            (0..).map_while(|n| taken(state.pop(start + n * TURN))).map(|(attachment, _)| attachment);
        assert_eq!(order.by_ref().collect::<Vec<_>>(), [1, 8, 2, 8, 3, 8, 1, 2, 3]);
    }

    #[test]
    fn a_turn_begins_when_it_is_ones_turn() {
        let start = Instant::now();
        let mut state = State {
            users: HashMap::from([(AttachmentId(1), 1000), (AttachmentId(2), 4242)]),
            ..State::default()
        };
        for (attachment, control) in [(1, 0), (2, 0), (2, 1), (1, 1)] {
            state.push(abandon(attachment, control));
        }
        assert_eq!(taken(state.pop(start)), Some((1, 0)));
        let later = start + 2 * TURN;
        assert_eq!(taken(state.pop(later)), Some((2, 0)));
        assert_eq!(taken(state.pop(later + TURN / 2)), Some((2, 1)));
        assert_eq!(taken(state.pop(later)), Some((1, 1)));
    }

    #[test]
    fn who_has_died_is_not_served_any_more_and_its_closes_are() {
        let ask = |attachment, op, control| Message::Ask {
            attachment: AttachmentId(attachment),
            id: HostRequestId::new(control),
            request: Box::new(Request::new(op, control, 1, 0)),
            answer: Box::new(|_| panic!("nobody is answered")),
        };
        let requests = |attachment| {
            let ops = [Op::Connect, Op::SetOptions, Op::Bind, Op::Close, Op::Accept];
            (0..1000).map(move |n| ask(attachment, ops[n as usize % ops.len()], n))
        };
        let mut state = state(requests(1).chain([abandon(1, 0)]).chain(requests(2)));
        let (sender, _receiver) = control_queue();
        std::mem::swap(&mut *sender.0.lock(), &mut state);
        let gone = || Message::Gone { attachment: AttachmentId(1), done: Box::new(|()| {}) };
        sender.send(gone()).unwrap();
        let mut state = std::mem::take(&mut *sender.0.lock());
        let now = Instant::now();
        let mut left = HashMap::from([(1, Vec::new()), (2, Vec::new())]);
        while let Some(message) = state.pop(now) {
            let op = match &message {
                Message::Ask { request, .. } => Op::from_raw(request.op),
                Message::Gone { .. } => None,
                _ => panic!("an abandon is left"),
            };
            left.get_mut(&message.attachment().unwrap().0).unwrap().push(op);
        }
        assert_eq!(left[&2].len(), 1000);
        assert_eq!(left[&1].len(), 401);
        assert!(left[&1].chunks(2).take(200).all(|pair| pair == [Some(Op::SetOptions), Some(Op::Close)]));
        assert_eq!(left[&1].last(), Some(&None), "and its end comes after them");
        // Also if it had asked for nothing, or for nothing that is left.
        for waits in [0, 1] {
            let mut state = State::default();
            (0..waits).for_each(|n| state.push(abandon(1, n)));
            drop(state.take_moot(AttachmentId(1)));
            state.push(gone());
            assert!(matches!(state.pop(now), Some(Message::Gone { .. })));
            assert!(state.pop(now).is_none() && state.turns.is_empty());
        }
    }

    #[test]
    fn what_is_left_wakes_nobody_and_is_found_by_whoever_is_woken() {
        let (sender, mut receiver) = control_queue();
        receiver.spin = Duration::ZERO;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for wakes in [false, true] {
                let mut next = Box::pin(receiver.recv());
                let sleeps = std::future::poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending()));
                assert!(sleeps.await && sender.0.lock().asleep);
                sender.leave(abandon(1, 0)).unwrap();
                sender.leave(abandon(1, 1)).unwrap();
                assert!(sender.0.lock().asleep);
                if wakes {
                    sender.wake()
                } else {
                    sender.send(abandon(1, 2)).unwrap()
                }
                assert!(!sender.0.lock().asleep);
                assert_eq!(taken(Some(next.as_mut().await)), Some((1, 0)));
                drop(next);
                assert_eq!(taken(receiver.try_recv()), Some((1, 1)));
                assert_eq!(receiver.try_recv().is_some(), !wakes);
            }
        });
    }

    #[test]
    fn a_message_is_found_and_the_end_is_known() {
        for spin in [Duration::ZERO, SPIN, Duration::from_secs(60)] {
            let (sender, mut receiver) = control_queue();
            receiver.spin = spin;
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let sending = sender.clone();
            let send = move || {
                (0..1000).try_for_each(|n| {
                    if n % 100 == 0 {
                        // Time to spin, and to go to sleep.
                        std::thread::sleep(2 * SPIN);
                    }
                    sending.send(abandon(n % 7, n))
                })
            };
            let thread = std::thread::spawn(send);
            let got: Vec<_> = (0..1000).map(|_| taken(Some(runtime.block_on(receiver.recv())))).collect();
            thread.join().unwrap().unwrap();
            for attachment in 0..7 {
                let own = got.iter().flatten().filter(|(from, _)| *from == attachment);
                assert!(own.is_sorted_by_key(|(_, control)| *control));
            }
            assert!(!sender.is_closed());
            drop(receiver);
            assert!(sender.is_closed() && sender.send(Message::Ping).is_err());
        }
    }
}
