//! The commands.

mod add;
mod keys;
mod server;
mod similar;
mod strings;
mod vectors;

use crate::reply::Reply;
use crate::resp::Arguments;
use crate::service::{Resume, own};
use crate::store::{MAX_KEY, Store};
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Connections, Context, Counters};

/// How far a command came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its answer is in the writer.
    Done,
    /// There is no room for the next part of the answer: the same command is executed again when there is.
    Unfinished,
    /// The connection ends.
    Quit,
}

/// What commands work with.
pub(crate) struct Cx<'a, 't, G: Group> {
    pub(crate) reply: Reply<'a, 't, G>,
    pub(crate) context: Context,
    pub(crate) store: &'a Store,
    pub(crate) resume: &'a mut Resume,
    pub(crate) counters: &'a mut Counters,
    /// Connections of all blocks.
    pub(crate) connections: Connections,
    /// The command takes long: other connections have their turns before the next one.
    pub(crate) ends_turn: bool,
}

impl<'a, G: Group> Cx<'a, '_, G> {
    pub(crate) fn g(&self) -> &'a G {
        self.reply.g
    }

    /// A key, if it is one that can be kept; else the answer is given.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn key<'t>(&mut self, arguments: &mut Arguments<'t>) -> Option<Bytes<'t>> {
        let key = arguments.next().unwrap_or(Bytes::EMPTY);
        if key.len() <= MAX_KEY {
            return Some(key);
        }
        self.reply.error(b"key is too long");
        None
    }

    pub(crate) fn count_read(&mut self, is_hit: bool) {
        self.counters.own[if is_hit { own::HITS } else { own::MISSES }] += 1;
    }
}

/// The name of a command in lower case, as a number: 8 bytes at most. 0: it is none, or longer.
const fn code(name: &[u8]) -> u64 {
    let (mut code, mut at) = (0, 0);
    while at < name.len() {
        code = code << 8 | name[at] as u64;
        at += 1;
    }
    code
}

fn code_of(name: Bytes<'_>) -> u64 {
    if name.len() > 8 {
        return 0;
    }
    let (mut code, mut at) = (0, 0);
    while at < name.len() {
        code = code << 8 | name.get(at).to_ascii_lowercase() as u64;
        at += 1;
    }
    code
}

macro_rules! names {
    ($($constant:ident = $name:literal;)*) => { $(const $constant: u64 = code($name);)* };
}

names! {
    PING = b"ping"; ECHO = b"echo"; QUIT = b"quit"; SELECT = b"select"; COMMAND = b"command"; CONFIG = b"config";
    CLIENT = b"client"; INFO = b"info"; DBSIZE = b"dbsize"; FLUSHALL = b"flushall"; FLUSHDB = b"flushdb";
    GET = b"get"; SET = b"set"; MGET = b"mget"; MSET = b"mset"; APPEND = b"append"; STRLEN = b"strlen";
    INCR = b"incr"; DECR = b"decr"; INCRBY = b"incrby"; DECRBY = b"decrby";
    DEL = b"del"; UNLINK = b"unlink"; EXISTS = b"exists"; EXPIRE = b"expire"; PEXPIRE = b"pexpire"; TTL = b"ttl";
    VADD = b"vadd"; VSIM = b"vsim"; VREM = b"vrem"; VCARD = b"vcard"; VDIM = b"vdim"; VEMB = b"vemb";
    HELLO = b"hello"; PTTL = b"pttl"; PERSIST = b"persist";
}

/// Executes a request, or goes on with it.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(crate) fn execute<G: Group>(cx: &mut Cx<'_, '_, G>, request: Arguments<'_>) -> Result<Outcome> {
    let mut arguments = request;
    // An empty request has no answer.
    let Some(name) = arguments.next() else { return Ok(Outcome::Done) };
    let command = code_of(name);
    // How many arguments it takes, at least and at most.
    let (least, most) = match command {
        PING => (0, 1),
        ECHO | SELECT | GET | STRLEN | INCR | DECR | TTL | PTTL | PERSIST => (1, 1),
        QUIT | COMMAND | INFO | HELLO => (0, usize::MAX),
        CONFIG | CLIENT | MGET | DEL | UNLINK | EXISTS => (1, usize::MAX),
        DBSIZE => (0, 0),
        FLUSHALL | FLUSHDB => (0, usize::MAX),
        SET | MSET | EXPIRE | PEXPIRE => (2, usize::MAX),
        APPEND | INCRBY | DECRBY | VREM => (2, 2),
        VADD => (4, usize::MAX),
        VSIM => (3, usize::MAX),
        VEMB => (2, usize::MAX),
        VCARD | VDIM => (1, 1),
        _ => {
            unknown(cx, name, arguments);
            return Ok(Outcome::Done);
        }
    };
    if arguments.len() < least
        || arguments.len() > most
        || (command == MSET && !arguments.len().is_multiple_of(2))
    {
        cx.reply.wrong_count(name, None);
        return Ok(Outcome::Done);
    }
    let outcome = match command {
        PING => server::ping(cx, arguments)?,
        ECHO => server::echo(cx, arguments)?,
        QUIT => server::quit(cx),
        SELECT => server::select(cx, arguments),
        COMMAND => server::command(cx, arguments),
        CONFIG => server::config(cx, arguments),
        CLIENT => server::client(cx, arguments)?,
        INFO => server::info(cx),
        HELLO => server::hello(cx, arguments),
        DBSIZE => server::dbsize(cx),
        FLUSHALL | FLUSHDB => server::flush(cx, arguments)?,
        GET => strings::get(cx, arguments)?,
        SET => strings::set(cx, arguments)?,
        MGET => strings::mget(cx, arguments)?,
        MSET => strings::mset(cx, arguments)?,
        APPEND => strings::append(cx, arguments)?,
        STRLEN => strings::strlen(cx, arguments)?,
        INCR => strings::add(cx, arguments, 1, false)?,
        DECR => strings::add(cx, arguments, -1, false)?,
        INCRBY => strings::add(cx, arguments, 1, true)?,
        DECRBY => strings::add(cx, arguments, -1, true)?,
        DEL | UNLINK => keys::count(cx, arguments, true)?,
        EXISTS => keys::count(cx, arguments, false)?,
        EXPIRE => keys::expire(cx, arguments, name, 1000)?,
        PEXPIRE => keys::expire(cx, arguments, name, 1)?,
        VADD => add::vadd(cx, arguments)?,
        VSIM => similar::vsim(cx, arguments)?,
        VREM => vectors::vrem(cx, arguments)?,
        VCARD => vectors::size(cx, arguments, false)?,
        VDIM => vectors::size(cx, arguments, true)?,
        VEMB => vectors::vemb(cx, arguments)?,
        TTL => keys::ttl(cx, arguments, 1000)?,
        PTTL => keys::ttl(cx, arguments, 1)?,
        _ => keys::persist(cx, arguments)?,
    };
    if outcome != Outcome::Unfinished {
        cx.counters.own[own::COMMANDS] += 1;
    }
    Ok(outcome)
}

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
