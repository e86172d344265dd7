//! The commands: the table of all, and a file for each family.
//!
//! | file | holds |
//! |---|---|
//! | `keys`, `transfer`, `walk` | commands on keys; from key to key; through a database |
//! | `strings`, `parts` | commands on values; on parts of them |
//! | `set`, `many` | SET and its relatives; MSET and MSETNX |
//! | `expiry` | times, and commands about them |
//! | `vectors`, `add`, `similar` | sets of vectors; VADD; VSIM |
//! | `server`, `info`, `catalog` | commands about the server; INFO; COMMAND |
//! | `session`, `clients` | commands about the connection; about all of them |
//! | `transaction` | MULTI, EXEC, DISCARD |
//! | `table` | the table |

mod add;
mod catalog;
mod clients;
mod expiry;
mod info;
mod keys;
mod many;
mod parts;
mod server;
mod session;
mod set;
mod similar;
mod strings;
mod table;
mod transaction;
mod transfer;
mod vectors;
mod walk;

use crate::own;
use crate::password::Password;
use crate::reply::Reply;
use crate::resp::{Arguments, Mark};
use crate::rest::Rest;
use crate::session::{Session, Transaction};
use crate::store::{MAX_KEY, Store};
use gpunet_device::{Group, Result};
use gpunet_serve::{Backlogs, Bytes, Connections, Context, Counters, Key, Roll};
use table::{AT_ONCE, Command, FOR_ALL, TOGETHER, with_commands};

/// Bytes around a value: `$`, its length, two line ends.
pub(crate) const FRAME: usize = 32;

/// Keys, or buckets with keys, that a command looks at before other connections have their turns.
/// A command with so many keys or fewer happens at once for all others.
const KEYS_OF_A_TURN: usize = 256;

/// How far a command came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its answer is in the writer.
    Done,
    /// There is no room for the next part of the answer, or the command has had its share of the
    /// time: it is executed again when there is room, and other connections have had their turns.
    Unfinished,
    /// The connection ends.
    Quit,
    /// It ends at once, because somebody uses its client to attack the server.
    Attack,
    /// EXEC: its commands are to be carried out. [`execute`] does it and not `run`, which carries
    /// them out: of functions that call each other nobody knows how much stack a GPU's thread
    /// needs.
    Exec,
}

/// How far the answer to the present request is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resume {
    /// Parts of the answer that are in the writer, or sent.
    pub(crate) step: usize,
    /// If some are done: the arguments that are left, and how many were there.
    pub(crate) mark: Mark,
    pub(crate) count: u32,
    pub(crate) rest: Rest,
}

/// What commands work with.
pub(crate) struct Cx<'a, 't, G: Group> {
    pub(crate) reply: Reply<'a, 't, G>,
    pub(crate) context: Context,
    pub(crate) store: &'a Store,
    pub(crate) resume: &'a mut Resume,
    pub(crate) session: &'a mut Session,
    /// Bytes of memory that the request itself takes.
    pub(crate) held: usize,
    pub(crate) counters: &'a mut Counters,
    /// Connections of all blocks: how many, what each is, and the place of this one among them.
    pub(crate) connections: Connections,
    pub(crate) roll: &'a Roll,
    pub(crate) place: usize,
    pub(crate) backlogs: &'a Backlogs,
    pub(crate) password: &'a Password,
    /// Nanoseconds from 1970 to now.
    pub(crate) unix_ns: u64,
    /// It is carried out by EXEC, which holds the buckets of all its keys: nothing is unfinished.
    pub(crate) is_transaction: bool,
    /// The block holds the buckets of all keys of the command, or of the transaction.
    pub(crate) holds_keys: bool,
    /// The command takes long: other connections have their turns before the next one.
    pub(crate) ends_turn: bool,
}

/// What is known of a key.
pub(crate) struct Found {
    pub(crate) is_there: bool,
    pub(crate) is_structure: bool,
    /// How long its value is, if that is a string.
    pub(crate) len: usize,
    /// When it expires by the device's clock; 0: never.
    pub(crate) expires: u64,
}

impl<'a, G: Group> Cx<'a, '_, G> {
    pub(crate) fn g(&self) -> &'a G {
        self.reply.g
    }

    /// A key, if it is one that can be kept; else the answer is given.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn key<'t>(&mut self, arguments: &mut Arguments<'t>) -> Option<Key<'t>> {
        let key = arguments.next().unwrap_or(Bytes::EMPTY);
        if key.len() <= MAX_KEY {
            return Some(self.key_of(key));
        }
        self.reply.error(b"key is too long");
        None
    }

    /// A key of the connection's database.
    pub(crate) fn key_of<'t>(&self, bytes: Bytes<'t>) -> Key<'t> {
        let key = Key::in_space(bytes, self.session.database as u32);
        if self.holds_keys { key.held() } else { key }
    }

    /// What is known of the key that is the next argument; `None` if the answer is given: it can be
    /// none.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn look_up(&mut self, arguments: &mut Arguments<'_>) -> Result<Option<Found>> {
        let Some(key) = self.key(arguments) else { return Ok(None) };
        let locked = self.store.map.lock(self.g(), &self.context, key)?;
        let found = Found {
            is_there: locked.value().is_some(),
            is_structure: locked.is_structure(),
            len: locked.value().map_or(0, |value| value.len()),
            expires: locked.expires(),
        };
        locked.unlock()?;
        Ok(Some(found))
    }

    /// Makes room for so many bytes of an answer, at most
    /// [`Writer::capacity`](gpunet_serve::Writer::capacity). Returns whether there is room; in a
    /// transaction there always is.
    pub(crate) fn make_room(&mut self, len: usize) -> Result<bool> {
        let (g, out) = (self.reply.g, &mut self.reply.out);
        if self.is_transaction {
            out.force_room(g, len)?;
            return Ok(true);
        }
        out.make_room(g, len)
    }

    /// Goes on with the arguments that are left.
    pub(crate) fn go_on(&self, arguments: &mut Arguments<'_>) {
        if self.resume.step > 0 {
            arguments.go_on(self.resume.mark);
        }
    }

    /// Leaves arguments for another turn.
    pub(crate) fn leave(&mut self, arguments: &Arguments<'_>) -> Outcome {
        (self.resume.step, self.resume.mark) = (self.resume.step.max(1), arguments.mark());
        Outcome::Unfinished
    }

    /// How large a chunk of the memory for requests the client gets.
    pub(crate) fn most(&self) -> usize {
        self.store.most_for(self.reply.g, self.held + self.session.held(self.store))
    }

    /// Tells all blocks what the connection's session is.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn show_session(&self) {
        self.roll.set(self.reply.g, self.place, 0, clients::Shown::of(self.session).word());
    }

    pub(crate) fn count_read(&mut self, is_hit: bool) {
        self.counters.own[if is_hit { own::HITS } else { own::MISSES }] += 1;
    }
}

/// Executes a request, or goes on with it.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(crate) fn execute<G: Group>(cx: &mut Cx<'_, '_, G>, request: Bytes<'_>) -> Result<Outcome> {
    let mut arguments = Arguments::of(request);
    // An empty request has no answer.
    let Some(name) = arguments.next() else { return Ok(Outcome::Done) };
    let Some(command) = Command::of(name) else {
        // What a browser sends if it is made to speak with the server.
        if name.eq_ignore_case(b"post") || name.eq_ignore_case(b"host:") {
            return Ok(Outcome::Attack);
        }
        transaction::abort(cx);
        unknown(cx, name, arguments);
        return Ok(Outcome::Done);
    };
    let row = command.row();
    if !row.takes(arguments.len()) {
        if command == Command::EXEC {
            return transaction::discard_wrong(cx);
        }
        transaction::abort(cx);
        cx.reply.wrong_count(name, None);
        return Ok(Outcome::Done);
    }
    if cx.password.is_set() && !cx.session.is_let_in() && row.flags & FOR_ALL == 0 {
        cx.reply.raw(b"-NOAUTH Authentication required.\r\n");
        return Ok(Outcome::Done);
    }
    if cx.session.transaction != Transaction::None && row.flags & AT_ONCE == 0 {
        return transaction::queue(cx, &row, request);
    }
    let mut outcome = match row.flags & TOGETHER {
        0 => run(cx, command, name, arguments)?,
        _ => transaction::run_together(cx, command, name, arguments)?,
    };
    if outcome == Outcome::Exec {
        outcome = transaction::exec(cx)?;
    }
    if outcome != Outcome::Unfinished {
        cx.counters.own[own::COMMANDS] += 1;
    }
    Ok(outcome)
}

macro_rules! dispatch {
    (
        ($cx:ident, $name:ident, $arguments:ident)
        $($command:ident($($row:tt)+) $($supported:literal)? => $execution:expr;)+
    ) => {
        /// Carries out a command with as many arguments as it takes.
        #[cfg_attr(target_arch = "nvptx64", inline(never))]
        fn run<G: Group>(
            $cx: &mut Cx<'_, '_, G>,
            command: Command,
            $name: Bytes<'_>,
            $arguments: Arguments<'_>,
        ) -> Result<Outcome> {
            Ok(match command {
                $(Command::$command => $execution,)+
            })
        }
    };
}

with_commands!(dispatch);

#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn unknown<G: Group>(cx: &mut Cx<'_, '_, G>, name: Bytes<'_>, mut arguments: Arguments<'_>) {
    cx.reply.raw(b"-ERR unknown command '");
    cx.reply.quoted(name, 128, false);
    cx.reply.raw(b"', with args beginning with: ");
    // As Redis: until the arguments have 128 bytes with their quotes.
    let mut len = 0;
    while len < 128
        && let Some(argument) = arguments.next()
    {
        let most = 128 - len;
        cx.reply.raw(b"'");
        cx.reply.quoted(argument, most, false);
        cx.reply.raw(b"' ");
        len += argument.len().min(most) + 3;
    }
    cx.reply.raw(b"\r\n");
}
