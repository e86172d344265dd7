//! MULTI, EXEC and DISCARD: commands that are carried out at once for all others.

use super::table::{ALONE, Command, Row};
use super::{Cx, KEYS_OF_A_TURN, Outcome, Resume, run};
use crate::own;
use crate::reply::ROOM;
use crate::resp::{self, Arguments, Parsed, Progress};
use crate::session::{Database, Transaction};
use gpunet_device::{Group, Result};
use gpunet_kv_vectors::Map;
use gpunet_serve::{Bytes, Hold, Key, MAX_HELD, Queue, Queued, SpillError};

pub(super) fn multi<G: Group>(cx: &mut Cx<'_, '_, G>) -> Outcome {
    match cx.session.transaction {
        Transaction::None => {
            cx.session.transaction = Transaction::Open;
            cx.show_session();
            cx.reply.ok();
        }
        _ => cx.reply.error(b"MULTI calls can not be nested"),
    }
    Outcome::Done
}

pub(super) fn discard<G: Group>(cx: &mut Cx<'_, '_, G>) -> Result<Outcome> {
    if cx.session.transaction == Transaction::None {
        cx.reply.error(b"DISCARD without MULTI");
    } else {
        cx.session.end_transaction(cx.reply.g, &cx.context, cx.store)?;
        cx.show_session();
        cx.reply.ok();
    }
    Ok(Outcome::Done)
}

/// An EXEC with arguments, which Redis takes for the end of the transaction.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn discard_wrong<G: Group>(cx: &mut Cx<'_, '_, G>) -> Result<Outcome> {
    cx.session.end_transaction(cx.reply.g, &cx.context, cx.store)?;
    cx.show_session();
    cx.reply.raw(
        b"-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n",
    );
    Ok(Outcome::Done)
}

/// A command was wrong: EXEC will carry out none.
pub(super) fn abort<G: Group>(cx: &mut Cx<'_, '_, G>) {
    if cx.session.transaction == Transaction::Open {
        cx.session.transaction = Transaction::Aborted;
    }
}

/// Bytes of the requests of a transaction, and how many they are, at most. EXEC carries them out in
/// one turn: while it holds the buckets of their keys, a block that served another connection could
/// come to wait for itself.
const MAX_TRANSACTION: usize = 64 << 20;
const MAX_QUEUED: u32 = MAX_HELD as u32;

/// Queues a request.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn queue<G: Group>(cx: &mut Cx<'_, '_, G>, row: &Row, request: Bytes<'_>) -> Result<Outcome> {
    if row.flags & ALONE != 0 {
        abort(cx);
        cx.reply.error(b"Command not allowed inside a transaction");
        return Ok(Outcome::Done);
    }
    if cx.session.queue.len() + request.len() > MAX_TRANSACTION || cx.session.queued >= MAX_QUEUED {
        abort(cx);
        cx.reply.error(b"too big transaction");
        return Ok(Outcome::Done);
    }
    // Of one that fails nothing is kept.
    if cx.session.transaction == Transaction::Open {
        let most = cx.most();
        match cx.session.queue.append(cx.reply.g, &cx.context, &cx.store.requests, request, most) {
            Ok(()) => {
                cx.session.queued += 1;
                cx.show_session();
            }
            Err(SpillError::NoMemory) => {
                abort(cx);
                cx.reply.no_memory();
                return Ok(Outcome::Done);
            }
            Err(SpillError::Over(error)) => return Err(error),
        }
    }
    cx.reply.raw(b"+QUEUED\r\n");
    Ok(Outcome::Done)
}

/// The requests of a queue.
struct Requests<'q> {
    map: &'q Map,
    queued: Option<Queued<'q>>,
    rest: Bytes<'q>,
}

impl<'q> Requests<'q> {
    fn of(map: &'q Map, queue: &'q Queue) -> Self {
        let queued = queue.first(map);
        Self { map, queued, rest: queued.map_or(Bytes::EMPTY, |queued| queued.bytes) }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn next(&mut self) -> Option<(Command, Bytes<'q>, Arguments<'q>)> {
        if self.rest.is_empty() {
            self.queued = self.queued?.next(self.map);
            self.rest = self.queued?.bytes;
        }
        // They were complete when they were queued.
        let Parsed::Complete(len) = resp::parse(self.rest, &mut Progress::default()) else { return None };
        let mut arguments = Arguments::of(self.rest.first(len));
        self.rest = self.rest.skip(len);
        let name = arguments.next()?;
        Some((Command::of(name)?, name, arguments))
    }
}

/// Returns whether a command has a key that may be in another database.
fn goes_elsewhere(command: Command) -> bool {
    matches!(command, Command::COPY | Command::MOVE)
}

/// The key of COPY or MOVE that is in a database which it names, if it names one.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn elsewhere(command: Command, mut arguments: Arguments<'_>) -> Option<Key<'_>> {
    if command == Command::COPY {
        let _ = arguments.next();
    }
    let (to, mut found) = (arguments.next()?, None);
    while !arguments.is_empty() {
        if let Database::Is(number) = Database::of(arguments) {
            found = Some(Key::in_space(to, number as u32));
        }
        let _ = arguments.next();
    }
    found
}

/// Carries out a command while it holds the buckets of all its keys, unless it has many, or one. If
/// there is no memory for that, it does without.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn run_together<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    command: Command,
    name: Bytes<'_>,
    arguments: Arguments<'_>,
) -> Result<Outcome> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    let row = command.row();
    let (first, count) = row.keys(arguments.len());
    // One block does nothing else meanwhile.
    let is_held = g.count() > 1 && count > 1 && count <= KEYS_OF_A_TURN && cx.resume.step == 0;
    let hold = if is_held { map.keys_to_hold(g, &context, count)? } else { None };
    let Some(mut hold) = hold else { return run(cx, command, name, arguments) };
    add_keys(cx, &mut hold, arguments.after(first), (count, row.step), cx.session.database);
    map.hold(g, &context, &hold)?;
    cx.holds_keys = true;
    let outcome = run(cx, command, name, arguments);
    cx.holds_keys = false;
    map.release(g, &context, hold)?;
    outcome
}

/// Adds the next keys of the arguments to those whose buckets are to be held.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn add_keys<G: Group>(
    cx: &Cx<'_, '_, G>,
    hold: &mut Hold,
    mut arguments: Arguments<'_>,
    (count, step): (usize, i8),
    database: u8,
) {
    let mut left = count;
    while left > 0 {
        let key = arguments.next().unwrap_or(Bytes::EMPTY);
        cx.store.map.add_to_hold(cx.g(), hold, &Key::in_space(key, database as u32));
        arguments = arguments.after(step as usize - 1);
        left -= 1;
    }
}

/// Carries out what is queued, while it holds the buckets of all its keys.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn exec<G: Group>(cx: &mut Cx<'_, '_, G>) -> Result<Outcome> {
    let (g, context, store) = (cx.g(), cx.context, cx.store);
    let (state, count) = (cx.session.transaction, cx.session.queued);
    // The queue is this one's now, whatever the commands do to the session.
    let mut queue = core::mem::take(&mut cx.session.queue);
    cx.session.end_transaction(g, &context, store)?;
    cx.show_session();
    match state {
        Transaction::None => cx.reply.error(b"EXEC without MULTI"),
        Transaction::Aborted => {
            cx.reply.raw(b"-EXECABORT Transaction discarded because of previous errors.\r\n");
        }
        Transaction::Open => carry_out(cx, &queue, count as usize)?,
    }
    queue.clear(g, &context, &store.requests)?;
    Ok(Outcome::Done)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn carry_out<G: Group>(cx: &mut Cx<'_, '_, G>, queue: &Queue, count: usize) -> Result<()> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    let waiting = &cx.store.requests;
    let (mut requests, mut keys) = (Requests::of(waiting, queue), 0);
    while let Some((command, _, arguments)) = requests.next() {
        keys += command.row().keys(arguments.len()).1 + usize::from(goes_elsewhere(command));
    }
    if keys > MAX_HELD {
        cx.reply.raw(b"-EXECABORT Transaction discarded because it has too many keys.\r\n");
        return Ok(());
    }
    let Some(mut hold) = map.keys_to_hold(g, &context, keys)? else {
        cx.reply.no_memory();
        return Ok(());
    };
    let (mut requests, mut database) = (Requests::of(waiting, queue), cx.session.database);
    while let Some((command, _, arguments)) = requests.next() {
        let row = command.row();
        if command == Command::SELECT
            && let Database::Is(number) = Database::of(arguments)
        {
            database = number;
        }
        if goes_elsewhere(command)
            && let Some(to) = elsewhere(command, arguments)
        {
            map.add_to_hold(g, &mut hold, &to);
        }
        let (first, count) = row.keys(arguments.len());
        add_keys(cx, &mut hold, arguments.after(first), (count, row.step), database);
    }
    map.hold(g, &context, &hold)?;
    (cx.is_transaction, cx.holds_keys) = (true, true);
    let done = carry_out_held(cx, Requests::of(waiting, queue), count);
    (cx.is_transaction, cx.holds_keys) = (false, false);
    map.release(g, &context, hold)?;
    done
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn carry_out_held<G: Group>(cx: &mut Cx<'_, '_, G>, mut requests: Requests<'_>, count: usize) -> Result<()> {
    cx.make_room(ROOM)?;
    cx.reply.array(count);
    while let Some((command, name, arguments)) = requests.next() {
        cx.make_room(ROOM)?;
        let outcome = run(cx, command, name, arguments)?;
        debug_assert!(outcome == Outcome::Done, "a transaction waits for nothing");
        *cx.resume = Resume::default();
        cx.counters.own[own::COMMANDS] += 1;
    }
    Ok(())
}
