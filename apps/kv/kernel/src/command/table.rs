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

/// It is carried out at once for all others, if it has few keys.
pub(super) const TOGETHER: u16 = 128;

/// It is carried out though the client has not given the password.
pub(super) const FOR_ALL: u16 = 64;

/// Any number of arguments.
const MANY: u8 = u8::MAX;
/// As many as somebody may need who repeats none: a command reads all of them in one turn.
const FEW: u8 = 64;

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
/// and last key and the step between keys, what COMMAND DOCS shows of it (its group, the version of
/// Redis in which it came, a summary), what README.md says behind its name, if anything, and what
/// executes it.
macro_rules! with_commands {
    ($with:ident) => {
        $with! {
            (cx, name, arguments)
            PING(0, MANY; FAST; 0 0 0; connection "1.0.0" "Returns PONG, or its argument.") => server::ping(cx, name, arguments)?;
            ECHO(1, 1; FAST; 0 0 0; connection "1.0.0" "Returns its argument.") => server::echo(cx, arguments)?;
            QUIT(0, MANY; FAST | AT_ONCE | FOR_ALL; 0 0 0; connection "1.0.0" "Closes the connection.") => session::quit(cx);
            RESET(0, 0; FAST | AT_ONCE | FOR_ALL; 0 0 0; connection "6.2.0" "Resets the connection.") => session::reset(cx)?;
            AUTH(1, MANY; FAST | FOR_ALL; 0 0 0; connection "1.0.0" "Authenticates the connection.") => session::auth(cx, arguments);
            SELECT(1, 1; FAST; 0 0 0; connection "1.0.0" "Changes the selected database.") => session::select(cx, arguments);
            HELLO(0, FEW; FAST | FOR_ALL; 0 0 0; connection "6.0.0" "Selects the protocol.") "(2, 3; AUTH, SETNAME)" => session::hello(cx, arguments)?;
            CLIENT(1, FEW; 0; 0 0 0; connection "2.4.0" "Shows connections, ends them, and sets what belongs to this one.") "ID/INFO/LIST/KILL/GETNAME/SETNAME/SETINFO/NO-EVICT/NO-TOUCH/REPLY" => session::client(cx, arguments)?;
            MULTI(0, 0; FAST | AT_ONCE; 0 0 0; transactions "1.2.0" "Starts a transaction.") => transaction::multi(cx);
            EXEC(0, 0; AT_ONCE; 0 0 0; transactions "1.2.0" "Executes all commands in a transaction.") => Outcome::Exec;
            DISCARD(0, 0; FAST | AT_ONCE; 0 0 0; transactions "2.0.0" "Discards a transaction.") => transaction::discard(cx)?;
            UNWATCH(0, 0; FAST; 0 0 0; transactions "2.2.0" "Forgets about watched keys.") => session::unwatch(cx);
            COMMAND(0, MANY; 0; 0 0 0; server "2.8.13" "Shows the commands of the server.") "(INFO, COUNT, LIST, DOCS, GETKEYS)" => catalog::command(cx, arguments)?;
            CONFIG(1, FEW; 0; 0 0 0; server "2.0.0" "Shows and sets the configuration.") "GET/SET" => server::config(cx, arguments);
            FUNCTION(1, FEW; 0; 0 0 0; scripting "7.0.0" "Removes all functions, of which there are none.") "FLUSH" => server::function(cx, arguments);
            INFO(0, FEW; 0; 0 0 0; server "1.0.0" "Shows information and statistics about the server.") => info::info(cx, arguments)?;
            DBSIZE(0, 0; READ | FAST; 0 0 0; server "1.0.0" "Returns the number of keys in the database.") => server::dbsize(cx);
            FLUSHALL(0, FEW; WRITE | ALONE; 0 0 0; server "1.0.0" "Removes all keys from all databases.") => server::flush(cx, arguments, true)?;
            FLUSHDB(0, FEW; WRITE | ALONE; 0 0 0; server "1.0.0" "Removes all keys from the database.") => server::flush(cx, arguments, false)?;
            TIME(0, 0; FAST; 0 0 0; server "2.6.0" "Returns the server's time.") => server::time(cx);
            GET(1, 1; READ | FAST; 1 1 1; string "1.0.0" "Returns the value of a key.") => strings::get(cx, arguments)?;
            SET(2, FEW; WRITE | MEMORY; 1 1 1; string "1.0.0" "Sets the value of a key.") "(EX, PX, EXAT, PXAT, KEEPTTL, NX, XX, GET)" => set::set(cx, name, arguments)?;
            SETEX(3, 3; WRITE | MEMORY; 1 1 1; string "2.0.0" "Sets the value and expiration time of a key, in seconds.") => set::set_expiring(cx, name, arguments, 1000)?;
            PSETEX(3, 3; WRITE | MEMORY; 1 1 1; string "2.6.0" "Sets the value and expiration time of a key, in milliseconds.") => set::set_expiring(cx, name, arguments, 1)?;
            SETNX(2, 2; WRITE | MEMORY | FAST; 1 1 1; string "1.0.0" "Sets the value of a key only when the key does not exist.") => set::setnx(cx, arguments)?;
            GETSET(2, 2; WRITE | MEMORY | FAST; 1 1 1; string "1.0.0" "Returns the previous value of a key after setting it to a new value.") => set::getset(cx, arguments)?;
            GETDEL(1, 1; WRITE | FAST; 1 1 1; string "6.2.0" "Returns the value of a key after deleting the key.") => set::get_and(cx, name, arguments, true)?;
            GETEX(1, FEW; WRITE | FAST; 1 1 1; string "6.2.0" "Returns the value of a key after setting its expiration time.") => set::get_and(cx, name, arguments, false)?;
            MGET(1, MANY; READ | FAST | TOGETHER; 1 -1 1; string "1.0.0" "Returns the values of several keys.") => strings::mget(cx, arguments)?;
            MSET(2, MANY; WRITE | MEMORY | TOGETHER; 1 -1 2; string "1.0.1" "Sets the values of several keys.") => many::mset(cx, name, arguments)?;
            MSETNX(2, MANY; WRITE | MEMORY; 1 -1 2; string "1.0.1" "Sets the values of several keys only when none of them exists.") => many::msetnx(cx, name, arguments)?;
            APPEND(2, 2; WRITE | MEMORY | FAST; 1 1 1; string "2.0.0" "Appends bytes to the value of a key.") => parts::append(cx, arguments)?;
            STRLEN(1, 1; READ | FAST; 1 1 1; string "2.2.0" "Returns the length of the value of a key.") => parts::strlen(cx, arguments)?;
            GETRANGE(3, 3; READ; 1 1 1; string "2.4.0" "Returns a part of the value of a key.") => parts::getrange(cx, arguments)?;
            SUBSTR(3, 3; READ; 1 1 1; string "1.0.0" "Returns a part of the value of a key.") => parts::getrange(cx, arguments)?;
            SETRANGE(3, 3; WRITE | MEMORY; 1 1 1; string "2.2.0" "Overwrites a part of the value of a key.") => parts::setrange(cx, arguments)?;
            SETBIT(3, 3; WRITE | MEMORY; 1 1 1; bitmap "2.2.0" "Sets or clears a bit of the value of a key.") => parts::setbit(cx, arguments)?;
            GETBIT(2, 2; READ | FAST; 1 1 1; bitmap "2.2.0" "Returns a bit of the value of a key.") => parts::getbit(cx, arguments)?;
            BITCOUNT(1, FEW; READ; 1 1 1; bitmap "2.6.0" "Counts the set bits of the value of a key.") => parts::bitcount(cx, arguments)?;
            INCR(1, 1; WRITE | MEMORY | FAST; 1 1 1; string "1.0.0" "Increments the integer value of a key by one.") => strings::add(cx, arguments, 1, false)?;
            DECR(1, 1; WRITE | MEMORY | FAST; 1 1 1; string "1.0.0" "Decrements the integer value of a key by one.") => strings::add(cx, arguments, -1, false)?;
            INCRBY(2, 2; WRITE | MEMORY | FAST; 1 1 1; string "1.0.0" "Increments the integer value of a key by a number.") => strings::add(cx, arguments, 1, true)?;
            DECRBY(2, 2; WRITE | MEMORY | FAST; 1 1 1; string "1.0.0" "Decrements the integer value of a key by a number.") => strings::add(cx, arguments, -1, true)?;
            INCRBYFLOAT(2, 2; WRITE | MEMORY | FAST; 1 1 1; string "2.6.0" "Increments the decimal value of a key by a number.") => strings::add_decimal(cx, arguments)?;
            DEL(1, MANY; WRITE | TOGETHER; 1 -1 1; generic "1.0.0" "Deletes keys.") => keys::count(cx, arguments, true)?;
            UNLINK(1, MANY; WRITE | FAST | TOGETHER; 1 -1 1; generic "4.0.0" "Deletes keys.") => keys::count(cx, arguments, true)?;
            EXISTS(1, MANY; READ | FAST | TOGETHER; 1 -1 1; generic "1.0.0" "Returns how many of the keys exist.") => keys::count(cx, arguments, false)?;
            TOUCH(1, MANY; READ | FAST | TOGETHER; 1 -1 1; generic "3.2.1" "Returns how many of the keys exist after counting them as used.") => keys::count(cx, arguments, false)?;
            TYPE(1, 1; READ | FAST; 1 1 1; generic "1.0.0" "Returns the type of the value of a key.") => keys::type_of(cx, arguments)?;
            OBJECT(1, FEW; READ; 2 2 1; generic "2.2.3" "Shows how Redis would keep a key.") "ENCODING/REFCOUNT/FREQ/IDLETIME" => keys::object(cx, arguments)?;
            KEYS(1, 1; READ | ALONE; 0 0 0; generic "1.0.0" "Returns all keys that match a pattern.") => walk::keys(cx, arguments)?;
            RANDOMKEY(0, 0; READ | ALONE; 0 0 0; generic "1.0.0" "Returns a random key of the database.") => walk::random(cx)?;
            SCAN(1, FEW; READ | ALONE; 0 0 0; generic "2.8.0" "Returns some of the keys, from a cursor on.") "(MATCH, COUNT, TYPE)" => walk::scan(cx, arguments)?;
            COPY(2, FEW; WRITE | MEMORY; 1 2 1; generic "6.2.0" "Copies the value of a key to a new key.") => transfer::copy(cx, arguments)?;
            MOVE(2, 2; WRITE | FAST; 1 1 1; generic "1.0.0" "Moves a key to another database.") => transfer::move_key(cx, arguments)?;
            RENAME(2, 2; WRITE; 1 2 1; generic "1.0.0" "Renames a key and overwrites the destination.") => transfer::rename(cx, arguments, false)?;
            RENAMENX(2, 2; WRITE | FAST; 1 2 1; generic "1.0.0" "Renames a key only when the new name does not exist.") => transfer::rename(cx, arguments, true)?;
            EXPIRE(2, FEW; WRITE | FAST; 1 1 1; generic "1.0.0" "Sets the expiration time of a key in seconds.") => expiry::expire(cx, arguments, name, 1000, false)?;
            PEXPIRE(2, FEW; WRITE | FAST; 1 1 1; generic "2.6.0" "Sets the expiration time of a key in milliseconds.") => expiry::expire(cx, arguments, name, 1, false)?;
            EXPIREAT(2, FEW; WRITE | FAST; 1 1 1; generic "1.2.0" "Sets the expiration time of a key to a Unix time in seconds.") => expiry::expire(cx, arguments, name, 1000, true)?;
            PEXPIREAT(2, FEW; WRITE | FAST; 1 1 1; generic "2.6.0" "Sets the expiration time of a key to a Unix time in milliseconds.") => expiry::expire(cx, arguments, name, 1, true)?;
            EXPIRETIME(1, 1; READ | FAST; 1 1 1; generic "7.0.0" "Returns the expiration time of a key as a Unix time in seconds.") => expiry::expire_time(cx, arguments, 1000)?;
            PEXPIRETIME(1, 1; READ | FAST; 1 1 1; generic "7.0.0" "Returns the expiration time of a key as a Unix time in milliseconds.") => expiry::expire_time(cx, arguments, 1)?;
            TTL(1, 1; READ | FAST; 1 1 1; generic "1.0.0" "Returns the remaining time to live of a key in seconds.") => expiry::ttl(cx, arguments, 1000)?;
            PTTL(1, 1; READ | FAST; 1 1 1; generic "2.6.0" "Returns the remaining time to live of a key in milliseconds.") => expiry::ttl(cx, arguments, 1)?;
            PERSIST(1, 1; WRITE | FAST; 1 1 1; generic "2.2.0" "Removes the expiration time of a key.") => expiry::persist(cx, arguments)?;
            VADD(4, MANY; WRITE | MEMORY | ALONE; 1 1 1; vector_set "8.0.0" "Adds a vector to a set, or replaces it.") => add::vadd(cx, arguments)?;
            VSIM(3, MANY; READ | ALONE; 1 1 1; vector_set "8.0.0" "Returns the vectors of a set that are nearest to one.") => similar::vsim(cx, arguments)?;
            VREM(2, 2; WRITE | ALONE; 1 1 1; vector_set "8.0.0" "Removes a vector from a set.") => vectors::vrem(cx, arguments)?;
            VCARD(1, 1; READ | FAST | ALONE; 1 1 1; vector_set "8.0.0" "Returns the number of vectors of a set.") => vectors::size(cx, arguments, false)?;
            VDIM(1, 1; READ | FAST | ALONE; 1 1 1; vector_set "8.0.0" "Returns how many numbers the vectors of a set have.") => vectors::size(cx, arguments, true)?;
            VEMB(2, MANY; READ | FAST | ALONE; 1 1 1; vector_set "8.0.0" "Returns the numbers of a vector of a set.") => vectors::vemb(cx, arguments)?;
            WATCH(1, MANY; FAST | AT_ONCE; 1 -1 1; transactions "2.2.0" "Is refused.") "(refused)" => session::watch(cx);
        }
    };
}
pub(super) use with_commands;

macro_rules! rows {
    (
        ($cx:ident, $name:ident, $arguments:ident)
        $($command:ident($min:literal, $max:expr; $flags:expr; $first:literal $last:literal $step:literal;
            $group:ident $since:literal $summary:literal)
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

        impl Command {
            /// What it does, the version of Redis in which it came, and its group.
            #[cfg_attr(target_arch = "nvptx64", inline(never))]
            pub(super) const fn docs(self) -> [&'static str; 3] {
                match self {
                    $(Self::$command => [$summary, $since, stringify!($group)],)+
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
