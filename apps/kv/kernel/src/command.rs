//! The commands: the table of all, and a file for each family.
//!
//! | file | holds |
//! |---|---|
//! | `keys`, `strings` | commands on keys; on values |
//! | `vectors`, `add`, `similar` | sets of vectors; VADD; VSIM |
//! | `server` | commands about the server and the connection |

mod add;
mod keys;
mod server;
mod similar;
mod strings;
mod vectors;

use crate::own;
use crate::reply::Reply;
use crate::resp::Arguments;
use crate::store::{MAX_KEY, Store};
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Connections, Context, Counters, Pin};

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

/// How far the answer to the present request is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resume {
    /// Parts of the answer that are in the writer, or sent.
    pub(crate) step: usize,
    /// A value that is being sent from where it lies, and how many bytes of it are sent.
    pub(crate) sending: Option<(Pin, usize)>,
    /// The connection's `CLIENT ID`; 0: it has none yet.
    pub(crate) id: u64,
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
const fn code(name: &str) -> u64 {
    assert!(name.len() <= 8, "a command's name is too long for its number");
    let (mut code, mut at) = (0, 0);
    while at < name.len() {
        code = code << 8 | name.as_bytes()[at].to_ascii_lowercase() as u64;
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

/// The table of commands becomes one `match`, and the list that a test compares with README.md.
///
/// A line has a command's name, a pattern of how many arguments it takes, what README.md says behind its name, if anything, and what
/// executes it.
macro_rules! commands {
    (
        ($cx:ident, $name:ident, $arguments:ident)
        $($command:ident($($count:tt)+) $($supported:literal)? => $execution:expr;)+
    ) => {
        $(const $command: u64 = code(stringify!($command));)+

        #[cfg(test)]
        const DOCUMENTED: &[&str] = &[$(concat!(stringify!($command) $(, " ", $supported)?)),+];

        /// Executes a request, or goes on with it.
        #[cfg_attr(target_arch = "nvptx64", inline(never))]
        pub(crate) fn execute<G: Group>(
            $cx: &mut Cx<'_, '_, G>,
            mut $arguments: Arguments<'_>,
        ) -> Result<Outcome> {
            // An empty request has no answer.
            let Some($name) = $arguments.next() else { return Ok(Outcome::Done) };
            let outcome = match code_of($name) {
                $($command if matches!($arguments.len(), $($count)+) => $execution,)+
                $($command)|+ => {
                    $cx.reply.wrong_count($name, None);
                    return Ok(Outcome::Done);
                }
                _ => {
                    unknown($cx, $name, $arguments);
                    return Ok(Outcome::Done);
                }
            };
            if outcome != Outcome::Unfinished {
                $cx.counters.own[own::COMMANDS] += 1;
            }
            Ok(outcome)
        }
    };
}

commands! {
    (cx, name, arguments)
    PING(0..=1) => server::ping(cx, arguments)?;
    ECHO(1) => server::echo(cx, arguments)?;
    QUIT(_) => server::quit(cx);
    SELECT(1) "(0)" => server::select(cx, arguments);
    HELLO(_) "(2)" => server::hello(cx, arguments);
    COMMAND(_) "(empty)" => server::command(cx, arguments);
    CONFIG(1..) "GET" => server::config(cx, arguments);
    CLIENT(1..) "ID/GETNAME/SETINFO" => server::client(cx, arguments)?;
    INFO(_) => server::info(cx);
    DBSIZE(0) => server::dbsize(cx);
    FLUSHALL(_) => server::flush(cx, arguments)?;
    FLUSHDB(_) => server::flush(cx, arguments)?;
    GET(1) => strings::get(cx, arguments)?;
    SET(2..) "(EX, PX, NX, XX)" => strings::set(cx, arguments)?;
    MGET(1..) => strings::mget(cx, arguments)?;
    MSET(2.. if arguments.len().is_multiple_of(2)) => strings::mset(cx, arguments)?;
    APPEND(2) => strings::append(cx, arguments)?;
    STRLEN(1) => strings::strlen(cx, arguments)?;
    INCR(1) => strings::add(cx, arguments, 1, false)?;
    DECR(1) => strings::add(cx, arguments, -1, false)?;
    INCRBY(2) => strings::add(cx, arguments, 1, true)?;
    DECRBY(2) => strings::add(cx, arguments, -1, true)?;
    DEL(1..) => keys::count(cx, arguments, true)?;
    UNLINK(1..) => keys::count(cx, arguments, true)?;
    EXISTS(1..) => keys::count(cx, arguments, false)?;
    EXPIRE(2..) => keys::expire(cx, arguments, name, 1000)?;
    PEXPIRE(2..) => keys::expire(cx, arguments, name, 1)?;
    TTL(1) => keys::ttl(cx, arguments, 1000)?;
    PTTL(1) => keys::ttl(cx, arguments, 1)?;
    PERSIST(1) => keys::persist(cx, arguments)?;
    VADD(4..) => add::vadd(cx, arguments)?;
    VSIM(3..) => similar::vsim(cx, arguments)?;
    VREM(2) => vectors::vrem(cx, arguments)?;
    VCARD(1) => vectors::size(cx, arguments, false)?;
    VDIM(1) => vectors::size(cx, arguments, true)?;
    VEMB(2..) => vectors::vemb(cx, arguments)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_lists_the_commands_of_the_table() {
        let readme = include_str!("../../README.md");
        let (_, section) = readme.split_once("## Commands\n\n").unwrap();
        let (list, _) = section.split_once(".\n").unwrap();
        assert_eq!(list.replace('\n', " "), DOCUMENTED.join(", "));
    }
}
