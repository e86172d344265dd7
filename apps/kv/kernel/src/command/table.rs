//! The table of all commands.

use crate::resp::lower;
use gpunet_serve::Bytes;

/// It changes keys.
pub(super) const WRITE: u16 = 1;
/// It reads keys.
pub(super) const READ: u16 = 2;
/// It needs memory.
pub(super) const MEMORY: u16 = 4;
/// It takes no longer the more keys there are.
pub(super) const FAST: u16 = 8;
/// It is carried out though a transaction is open.
pub(super) const AT_ONCE: u16 = 16;
/// It is not taken by a transaction: it may wait for others, or uses more than the keys that it
/// names.
pub(super) const ALONE: u16 = 32;

/// It is carried out though the client has not given the password.
pub(super) const FOR_ALL: u16 = 64;

/// Any number of arguments.
const MANY: u8 = u8::MAX;

/// What is known of a command besides what executes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Arguments behind the name: the fewest and the most.
    min: u8,
    max: u8,
    pub(super) flags: u16,
    /// Its first key, counted from the name; 0: it has none. Its last one, which from the end is
    /// negative. From one key to the next.
    pub(super) first: i8,
    pub(super) last: i8,
    pub(super) step: i8,
}

impl Row {
    pub(super) fn takes(&self, arguments: usize) -> bool {
        arguments >= self.min as usize && (self.max == MANY || arguments <= self.max as usize)
    }

    /// How many words a request has, as Redis says it: at least so many if it is negative.
    pub(super) const fn arity(&self) -> i64 {
        let words = self.min as i64 + 1;
        if self.min == self.max { words } else { -words }
    }

    /// The keys of a request with so many arguments behind the name: the first one, counted from
    /// those, and how many there are.
    pub(super) fn keys(&self, arguments: usize) -> (usize, usize) {
        let last =
            if self.last < 0 { arguments as isize + 1 + self.last as isize } else { self.last as isize };
        let (first, step) = (self.first as isize, self.step as isize);
        if first == 0 || last < first {
            return (0, 0);
        }
        (first as usize - 1, ((last - first) / step + 1) as usize)
    }
}

/// The name of a command in lower case, as a number, the first byte lowest: 16 bytes at most.
const fn code(name: &str) -> u128 {
    assert!(name.len() <= 16, "a command's name is too long for its number");
    let (mut code, mut at) = (0, name.len());
    while at > 0 {
        at -= 1;
        code = code << 8 | name.as_bytes()[at].to_ascii_lowercase() as u128;
    }
    code
}

/// 0: it is none, or longer.
fn code_of(name: Bytes<'_>) -> u128 {
    if name.len() > 16 {
        return 0;
    }
    lower(name.word(0)) as u128 | (lower(name.word(8)) as u128) << 64
}

/// The table of commands, for the macro `$with`: it becomes the numbers of their names and their
/// rows here, the one `match` that carries them out in `command`, and the list that a test compares
/// with README.md.
///
/// A line has a command's name, the fewest and the most arguments it takes, its flags, its first
/// and last key and the step between keys, what README.md says behind its name, if anything, and
/// what executes it.
macro_rules! with_commands {
    ($with:ident) => {
        $with! {
            (cx, name, arguments)
            PING(0, MANY; FAST; 0 0 0) => server::ping(cx, name, arguments)?;
            ECHO(1, 1; FAST; 0 0 0) => server::echo(cx, arguments)?;
            QUIT(0, MANY; FAST | AT_ONCE | FOR_ALL; 0 0 0) => session::quit(cx);
            RESET(0, 0; FAST | AT_ONCE | FOR_ALL; 0 0 0) => session::reset(cx)?;
            AUTH(1, MANY; FAST | FOR_ALL; 0 0 0) => session::auth(cx, arguments);
            SELECT(1, 1; FAST; 0 0 0) => session::select(cx, arguments);
            HELLO(0, MANY; FAST | FOR_ALL; 0 0 0) "(2, 3; AUTH, SETNAME)" => session::hello(cx, arguments)?;
            CLIENT(1, MANY; 0; 0 0 0) "ID/GETNAME/SETNAME/SETINFO/NO-EVICT/NO-TOUCH" => session::client(cx, arguments)?;
            MULTI(0, 0; FAST | AT_ONCE; 0 0 0) => transaction::multi(cx);
            EXEC(0, 0; AT_ONCE; 0 0 0) => Outcome::Exec;
            DISCARD(0, 0; FAST | AT_ONCE; 0 0 0) => transaction::discard(cx)?;
            UNWATCH(0, 0; FAST; 0 0 0) => session::unwatch(cx);
            COMMAND(0, MANY; 0; 0 0 0) "(INFO, COUNT, LIST, GETKEYS)" => server::command(cx, arguments)?;
            CONFIG(1, MANY; 0; 0 0 0) "GET/SET" => server::config(cx, arguments);
            FUNCTION(1, MANY; 0; 0 0 0) "FLUSH" => server::function(cx, arguments);
            INFO(0, MANY; 0; 0 0 0) => server::info(cx, arguments)?;
            DBSIZE(0, 0; READ | FAST; 0 0 0) => server::dbsize(cx);
            FLUSHALL(0, MANY; WRITE | ALONE; 0 0 0) => server::flush(cx, arguments, true)?;
            FLUSHDB(0, MANY; WRITE | ALONE; 0 0 0) => server::flush(cx, arguments, false)?;
            GET(1, 1; READ | FAST; 1 1 1) => strings::get(cx, arguments)?;
            SET(2, MANY; WRITE | MEMORY; 1 1 1) "(EX, PX, EXAT, PXAT, KEEPTTL, NX, XX, GET)" => set::set(cx, name, arguments)?;
            SETEX(3, 3; WRITE | MEMORY; 1 1 1) => set::set_expiring(cx, name, arguments, 1000)?;
            PSETEX(3, 3; WRITE | MEMORY; 1 1 1) => set::set_expiring(cx, name, arguments, 1)?;
            SETNX(2, 2; WRITE | MEMORY | FAST; 1 1 1) => set::setnx(cx, arguments)?;
            GETSET(2, 2; WRITE | MEMORY | FAST; 1 1 1) => set::getset(cx, arguments)?;
            GETDEL(1, 1; WRITE | FAST; 1 1 1) => set::get_and(cx, name, arguments, true)?;
            GETEX(1, MANY; WRITE | FAST; 1 1 1) => set::get_and(cx, name, arguments, false)?;
            MGET(1, MANY; READ | FAST; 1 -1 1) => strings::mget(cx, arguments)?;
            MSET(2, MANY; WRITE | MEMORY; 1 -1 2) => set::mset(cx, name, arguments)?;
            APPEND(2, 2; WRITE | MEMORY | FAST; 1 1 1) => strings::append(cx, arguments)?;
            STRLEN(1, 1; READ | FAST; 1 1 1) => strings::strlen(cx, arguments)?;
            INCR(1, 1; WRITE | MEMORY | FAST; 1 1 1) => strings::add(cx, arguments, 1, false)?;
            DECR(1, 1; WRITE | MEMORY | FAST; 1 1 1) => strings::add(cx, arguments, -1, false)?;
            INCRBY(2, 2; WRITE | MEMORY | FAST; 1 1 1) => strings::add(cx, arguments, 1, true)?;
            DECRBY(2, 2; WRITE | MEMORY | FAST; 1 1 1) => strings::add(cx, arguments, -1, true)?;
            DEL(1, MANY; WRITE; 1 -1 1) => keys::count(cx, arguments, true)?;
            UNLINK(1, MANY; WRITE | FAST; 1 -1 1) => keys::count(cx, arguments, true)?;
            EXISTS(1, MANY; READ | FAST; 1 -1 1) => keys::count(cx, arguments, false)?;
            TOUCH(1, MANY; READ | FAST; 1 -1 1) => keys::count(cx, arguments, false)?;
            TYPE(1, 1; READ | FAST; 1 1 1) => keys::type_of(cx, arguments)?;
            KEYS(1, 1; READ | ALONE; 0 0 0) => keys::keys(cx, arguments)?;
            SCAN(1, MANY; READ | ALONE; 0 0 0) "(MATCH, COUNT, TYPE)" => keys::scan(cx, arguments)?;
            RENAME(2, 2; WRITE; 1 2 1) => keys::rename(cx, arguments, false)?;
            RENAMENX(2, 2; WRITE | FAST; 1 2 1) => keys::rename(cx, arguments, true)?;
            EXPIRE(2, MANY; WRITE | FAST; 1 1 1) => keys::expire(cx, arguments, name, 1000, false)?;
            PEXPIRE(2, MANY; WRITE | FAST; 1 1 1) => keys::expire(cx, arguments, name, 1, false)?;
            EXPIREAT(2, MANY; WRITE | FAST; 1 1 1) => keys::expire(cx, arguments, name, 1000, true)?;
            PEXPIREAT(2, MANY; WRITE | FAST; 1 1 1) => keys::expire(cx, arguments, name, 1, true)?;
            EXPIRETIME(1, 1; READ | FAST; 1 1 1) => keys::expire_time(cx, arguments, 1000)?;
            PEXPIRETIME(1, 1; READ | FAST; 1 1 1) => keys::expire_time(cx, arguments, 1)?;
            TTL(1, 1; READ | FAST; 1 1 1) => keys::ttl(cx, arguments, 1000)?;
            PTTL(1, 1; READ | FAST; 1 1 1) => keys::ttl(cx, arguments, 1)?;
            PERSIST(1, 1; WRITE | FAST; 1 1 1) => keys::persist(cx, arguments)?;
            VADD(4, MANY; WRITE | MEMORY | ALONE; 1 1 1) => add::vadd(cx, arguments)?;
            VSIM(3, MANY; READ | ALONE; 1 1 1) => similar::vsim(cx, arguments)?;
            VREM(2, 2; WRITE | ALONE; 1 1 1) => vectors::vrem(cx, arguments)?;
            VCARD(1, 1; READ | FAST | ALONE; 1 1 1) => vectors::size(cx, arguments, false)?;
            VDIM(1, 1; READ | FAST | ALONE; 1 1 1) => vectors::size(cx, arguments, true)?;
            VEMB(2, MANY; READ | FAST | ALONE; 1 1 1) => vectors::vemb(cx, arguments)?;
            WATCH(1, MANY; FAST | AT_ONCE; 1 -1 1) "(refused)" => session::watch(cx);
        }
    };
}
pub(super) use with_commands;

macro_rules! rows {
    (
        ($cx:ident, $name:ident, $arguments:ident)
        $($command:ident($min:literal, $max:expr; $flags:expr; $first:literal $last:literal $step:literal)
            $($supported:literal)? => $execution:expr;)+
    ) => {
        /// A command.
        #[allow(clippy::upper_case_acronyms, reason = "it is written as Redis writes it")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Command {
            $($command),+
        }

        mod codes {
            $(pub(super) const $command: u128 = super::code(stringify!($command));)+
        }

        impl Command {
            /// How many there are.
            pub(super) const COUNT: usize = [$(Self::$command),+].len();

            /// The commands by their numbers.
            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            pub(super) const fn nth(number: usize) -> Option<Self> {
                $(if number == Self::$command as usize {
                    return Some(Self::$command);
                })+
                None
            }

            /// Its name in lower case, as a number.
            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            pub(super) const fn code(self) -> u128 {
                match self {
                    $(Self::$command => codes::$command,)+
                }
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            pub(super) fn of(name: Bytes<'_>) -> Option<Self> {
                match code_of(name) {
                    $(codes::$command => Some(Self::$command),)+
                    _ => None,
                }
            }

            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            pub(super) const fn row(self) -> Row {
                match self {
                    $(Self::$command => Row {
                        min: $min,
                        max: $max,
                        flags: $flags,
                        first: $first,
                        last: $last,
                        step: $step,
                    },)+
                }
            }
        }

        #[cfg(test)]
        const DOCUMENTED: &[&str] = &[$(concat!(stringify!($command) $(, " ", $supported)?)),+];
    };
}

with_commands!(rows);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_lists_the_commands_of_the_table() {
        let readme = include_str!("../../../README.md");
        let (_, section) = readme.split_once("## Commands\n\n").unwrap();
        let (list, _) = section.split_once(".\n").unwrap();
        assert_eq!(list.replace('\n', " "), DOCUMENTED.join(", "));
    }
}
