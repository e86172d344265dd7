//! Commands about all connections: CLIENT LIST, INFO and KILL. They read the roll, into which each
//! block writes what its own are.

use super::{Cx, KEYS_OF_A_TURN, Outcome};
use crate::resp::Arguments;
use crate::rest::Rest;
use crate::session::{Session, Transaction};
use gpunet_device::abi::addr::AF_INET;
use gpunet_device::{Group, Result, SockAddr};
use gpunet_serve::{Bytes, Enrolled, Line, OWN_WORDS, Queue, SpillError};

/// Bytes of a name that others see.
const NAME: usize = 8 * (OWN_WORDS - 1);

/// What others see of a session, in a word of the roll.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    database: u8,
    is_resp3: bool,
    /// Requests that wait for EXEC; -1: there is no transaction.
    queued: i32,
}

impl Shown {
    pub(super) fn of(session: &Session) -> Self {
        let is_open = session.transaction != Transaction::None;
        let queued = if is_open { session.queued as i32 } else { -1 };
        Self { database: session.database, is_resp3: session.is_resp3(), queued }
    }

    pub(super) const fn word(self) -> u64 {
        self.database as u64 | (self.is_resp3 as u64) << 8 | ((self.queued + 1) as u64) << 32
    }

    const fn from_word(word: u64) -> Self {
        Self { database: word as u8, is_resp3: word >> 8 & 1 != 0, queued: (word >> 32) as i32 - 1 }
    }
}

/// Tells all blocks the connection's name, as far as there is room.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn show_name<G: Group>(cx: &Cx<'_, '_, G>, name: Bytes<'_>) {
    let mut at = 1;
    while at < OWN_WORDS {
        cx.roll.set(cx.reply.g, cx.place, at, name.skip(8 * (at - 1)).word(0));
        at += 1;
    }
}

/// An address as Redis writes it.
struct Address {
    text: [u8; 56],
    len: usize,
}

impl Address {
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn of(peer: &SockAddr) -> Self {
        let mut line = Self { text: [0; 56], len: 0 };
        if peer.family == AF_INET {
            line.dotted(peer, 0);
        } else {
            line.push(b'[');
            line.groups(peer);
            line.push(b']');
        }
        line.push(b':');
        line.number(peer.port as usize, 10);
        line
    }

    /// The groups of an IPv6 address, without the longest run of zeros.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn groups(&mut self, peer: &SockAddr) {
        let group = |at: usize| (peer.ip[2 * at] as usize) << 8 | peer.ip[2 * at + 1] as usize;
        let (mut start, mut len, mut zeros, mut at) = (8, 1, 0, 0);
        while at < 8 {
            zeros = if group(at) == 0 { zeros + 1 } else { 0 };
            if zeros > len {
                (start, len) = (at + 1 - zeros, zeros);
            }
            at += 1;
        }
        let is_mapped = start == 0 && len == 5 && group(5) == 0xffff;
        at = 0;
        while at < 8 {
            if at == start {
                self.push(b':');
                self.push(b':');
                at += len;
                continue;
            }
            if at > 0 && at != start + len {
                self.push(b':');
            }
            if is_mapped && at == 6 {
                return self.dotted(peer, 12);
            }
            self.number(group(at), 16);
            at += 1;
        }
    }

    fn dotted(&mut self, peer: &SockAddr, from: usize) {
        let mut at = from;
        while at < from + 4 {
            if at > from {
                self.push(b'.');
            }
            self.number(peer.ip[at] as usize, 10);
            at += 1;
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn number(&mut self, number: usize, base: usize) {
        let mut unit = 1;
        while number / unit >= base {
            unit *= base;
        }
        while unit > 0 {
            self.push(b"0123456789abcdef"[number / unit % base]);
            unit /= base;
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn push(&mut self, byte: u8) {
        if let Some(end) = self.text.get_mut(self.len) {
            *end = byte;
            self.len += 1;
        }
    }

    fn bytes(&self) -> Bytes<'_> {
        Bytes::from(&self.text).first(self.len)
    }
}

/// Lines that are collected in the memory for requests.
struct Lines<'s, 'a, 't, G: Group> {
    cx: &'s Cx<'a, 't, G>,
    queue: Queue,
    ended: core::result::Result<(), SpillError>,
}

impl<G: Group> Lines<'_, '_, '_, G> {
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn text(&mut self, text: Bytes<'_>) {
        if self.ended.is_ok() && !text.is_empty() {
            let (g, requests) = (self.cx.reply.g, &self.cx.store.requests);
            let most = self.cx.most().saturating_sub(self.queue.held());
            self.ended = self.queue.append(g, &self.cx.context, requests, text, most);
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn field(&mut self, name: &'static [u8], number: i64) {
        self.text(Line::new().text(name).number(number).bytes());
    }
}

/// Appends the line of a connection. Returns whether there is memory for it.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn append<G: Group>(
    cx: &Cx<'_, '_, G>,
    queue: &mut Queue,
    client: &Enrolled,
    is_own: bool,
    command: &'static [u8],
) -> Result<bool> {
    let shown = Shown::from_word(client.own[0]);
    let seconds = |since: u64| (cx.context.now.saturating_sub(since) / 1_000_000_000) as i64;
    // Of another client only its own block knows the memory.
    let (held, queued, waiting, kept) = match is_own {
        true => (cx.held, cx.session.queue.held(), cx.reply.out.waiting(), cx.session.held(cx.store)),
        false => (0, 0, 0, 0),
    };
    let mut lines = Lines { cx, queue: *queue, ended: Ok(()) };
    lines.field(b"id=", client.id as i64);
    lines.text(b" addr=".into());
    lines.text(Address::of(&client.peer).bytes());
    lines.text(b" name=".into());
    if is_own {
        let name = cx.session.name;
        lines.text(name.bytes(&cx.store.requests));
    } else {
        let mut at = 0;
        while at < NAME {
            let bytes = client.own[1 + at / 8].to_le_bytes();
            let word = Bytes::from(&bytes);
            lines.text(word.first(word.find(0, 0).unwrap_or(8)));
            at += 8;
        }
    }
    lines.field(b" age=", seconds(client.since));
    lines.field(b" idle=", seconds(client.active));
    lines.text(if shown.queued >= 0 { b" flags=x".into() } else { b" flags=N".into() });
    lines.field(b" db=", shown.database as i64);
    lines.field(b" sub=0 psub=0 ssub=0 multi=", shown.queued as i64);
    lines.field(b" qbuf=", held as i64);
    lines.field(b" qbuf-free=0 argv-mem=0 multi-mem=", queued as i64);
    lines.field(b" obl=0 oll=0 omem=", waiting as i64);
    lines.field(b" tot-mem=", (held + kept + waiting) as i64);
    lines.text(b" cmd=".into());
    lines.text(command.into());
    lines.field(b" user=default redir=-1 resp=", if shown.is_resp3 { 3 } else { 2 });
    lines.text(b"\n".into());
    *queue = lines.queue;
    match lines.ended {
        Ok(()) => Ok(true),
        Err(SpillError::NoMemory) => Ok(false),
        Err(SpillError::Over(error)) => Err(error),
    }
}

/// Goes on with lines that were collected, or puts all of them in a transaction.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn send<G: Group>(cx: &mut Cx<'_, '_, G>) -> Result<Outcome> {
    let (g, context, store) = (cx.reply.g, cx.context, cx.store);
    if cx.reply.is_muted {
        cx.resume.rest.clear(g, &context, store)?;
    }
    if let Rest::Keys { keys, .. } = cx.resume.rest
        && cx.is_transaction
    {
        let mut queued = keys.first(&store.requests);
        while let Some(some) = queued {
            cx.reply.force(some.bytes)?;
            queued = some.next(&store.requests);
        }
        cx.resume.rest.clear(g, &context, store)?;
    }
    match cx.resume.rest.send(g, &context, store, cx.reply.out)? {
        true => Ok(Outcome::Done),
        false => Ok(Outcome::Unfinished),
    }
}

/// Ends the lines that are collected, and begins to answer with them.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn answer<G: Group>(cx: &mut Cx<'_, '_, G>, mut lines: Queue) -> Result<Outcome> {
    let (g, context, store) = (cx.reply.g, cx.context, cx.store);
    let (len, most) = (lines.len(), cx.most());
    cx.resume.rest = Rest::Keys { keys: lines, sent: 0 };
    match lines.append(g, &context, &store.requests, Bytes::from(b"\r\n"), most) {
        Ok(()) => {}
        Err(SpillError::NoMemory) => return no_memory(cx),
        Err(SpillError::Over(error)) => return Err(error),
    }
    cx.resume.rest = Rest::Keys { keys: lines, sent: 0 };
    cx.reply.text_head(len);
    cx.resume.step = usize::MAX;
    send(cx)
}

fn no_memory<G: Group>(cx: &mut Cx<'_, '_, G>) -> Result<Outcome> {
    cx.resume.rest.clear(cx.reply.g, &cx.context, cx.store)?;
    cx.reply.no_memory();
    Ok(Outcome::Done)
}

/// `CLIENT INFO`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn info<G: Group>(cx: &mut Cx<'_, '_, G>) -> Result<Outcome> {
    if cx.resume.step > 0 {
        return send(cx);
    }
    let mut lines = Queue::default();
    let Some(client) = cx.roll.get(cx.reply.g, cx.place) else { return no_memory(cx) };
    match append(cx, &mut lines, &client, true, b"client|info")? {
        true => answer(cx, lines),
        false => no_memory(cx),
    }
}

/// `CLIENT LIST [TYPE normal|master|replica|pubsub] [ID id ..]`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn list<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    cx.ends_turn = true;
    if cx.resume.step == usize::MAX {
        return send(cx);
    }
    let (mut ids, mut is_normal) = (None, true);
    match arguments.next() {
        None => {}
        Some(option) if option.eq_ignore_case(b"type") && arguments.len() == 1 => {
            match normal(cx, arguments.next().unwrap_or(Bytes::EMPTY)) {
                Some(normal) => is_normal = normal,
                None => return Ok(Outcome::Done),
            }
        }
        Some(option) if option.eq_ignore_case(b"id") && !arguments.is_empty() => {
            ids = Some(arguments);
            while let Some(id) = arguments.next() {
                if id.number().is_none_or(|id| id < 1) {
                    cx.reply.error(b"Invalid client ID");
                    return Ok(Outcome::Done);
                }
            }
        }
        Some(_) => {
            cx.reply.syntax();
            return Ok(Outcome::Done);
        }
    }
    let mut lines = match cx.resume.rest {
        Rest::Keys { keys, .. } => keys,
        _ => Queue::default(),
    };
    let (mut place, mut looks) = (cx.resume.step, 0);
    while place < cx.roll.places() && is_normal {
        if looks == KEYS_OF_A_TURN && !cx.is_transaction {
            cx.resume.rest = Rest::Keys { keys: lines, sent: 0 };
            cx.resume.step = place;
            return Ok(Outcome::Unfinished);
        }
        if let Some(client) = cx.roll.get(cx.reply.g, place)
            && ids.is_none_or(|ids| is_one_of(ids, client.id))
        {
            looks += 1;
            let is_own = place == cx.place;
            let command: &[u8] = if is_own { b"client|list" } else { b"NULL" };
            if !append(cx, &mut lines, &client, is_own, command)? {
                cx.resume.rest = Rest::Keys { keys: lines, sent: 0 };
                return no_memory(cx);
            }
        }
        place += 1;
    }
    answer(cx, lines)
}

/// Returns whether clients of this type are the ones that there are; answers if there is no such
/// type.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn normal<G: Group>(cx: &mut Cx<'_, '_, G>, kind: Bytes<'_>) -> Option<bool> {
    let is = |name: &'static [u8]| kind.eq_ignore_case(name);
    if is(b"normal") || is(b"master") || is(b"replica") || is(b"slave") || is(b"pubsub") {
        return Some(is(b"normal"));
    }
    cx.reply.raw(b"-ERR Unknown client type '");
    cx.reply.quoted(kind, 128, false);
    cx.reply.raw(b"'\r\n");
    None
}

fn is_one_of(mut ids: Arguments<'_>, id: u64) -> bool {
    while let Some(other) = ids.next() {
        if other.number() == Some(id as i64) {
            return true;
        }
    }
    false
}

/// `CLIENT KILL addr`, or with one or more of `ID id`, `TYPE type`, `USER name`, `ADDR addr` and
/// `SKIPME yes|no`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn kill<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let (is_old, mut skips_own) = (arguments.len() == 1, arguments.len() != 1);
    let (mut id, mut addr, mut is_any) = (None, None, true);
    if is_old {
        addr = arguments.next();
    } else if arguments.is_empty() {
        cx.reply.wrong_count(Bytes::from(b"client"), Some(Bytes::from(b"kill")));
        return Ok(Outcome::Done);
    }
    while let Some(option) = arguments.next() {
        let Some(value) = arguments.next() else {
            cx.reply.syntax();
            return Ok(Outcome::Done);
        };
        if option.eq_ignore_case(b"id") {
            id = value.number().filter(|id| *id > 0);
            if id.is_none() {
                cx.reply.error(b"client-id should be greater than 0");
                return Ok(Outcome::Done);
            }
        } else if option.eq_ignore_case(b"addr") {
            addr = Some(value);
        } else if option.eq_ignore_case(b"type") {
            match normal(cx, value) {
                Some(is_normal) => is_any &= is_normal,
                None => return Ok(Outcome::Done),
            }
        } else if option.eq_ignore_case(b"user") && value == b"default" {
        } else if option.eq_ignore_case(b"user") {
            cx.reply.raw(b"-ERR No such user '");
            cx.reply.quoted(value, 128, false);
            cx.reply.raw(b"'\r\n");
            return Ok(Outcome::Done);
        } else if option.eq_ignore_case(b"skipme")
            && (value.eq_ignore_case(b"yes") || value.eq_ignore_case(b"no"))
        {
            skips_own = value.eq_ignore_case(b"yes");
        } else {
            cx.reply.syntax();
            return Ok(Outcome::Done);
        }
    }
    let (mut place, mut killed) = (0, 0);
    while place < cx.roll.places() && is_any {
        if let Some(client) = cx.roll.get(cx.reply.g, place)
            && !(skips_own && place == cx.place)
            && id.is_none_or(|id| id == client.id as i64)
            && addr.is_none_or(|addr| addr == Address::of(&client.peer).bytes())
        {
            cx.roll.end(cx.reply.g, place, client.id);
            killed += 1;
        }
        place += 1;
    }
    match (is_old, killed) {
        (true, 0) => cx.reply.error(b"No such client"),
        (true, _) => cx.reply.ok(),
        (false, _) => cx.reply.integer(killed),
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_library_writes_them() {
        for text in [
            "127.0.0.1:6379",
            "0.0.0.0:0",
            "[::1]:65535",
            "[::]:1",
            "[2001:db8::a:0:1f]:80",
            "[1:0:2:3:4:5:6:7]:1",
            "[1:2:3:4:5:6::]:1",
            "[0:1::2]:1",
            "[fe80::1:2:3:4]:1",
            "[::ffff:192.168.0.1]:1",
            "[::fffe:c0a8:1]:1",
        ] {
            let parsed: std::net::SocketAddr = text.parse().unwrap();
            let found = Address::of(&SockAddr::from(parsed));
            let bytes = found.bytes();
            let found: Vec<u8> = (0..bytes.len()).map(|at| bytes.get(at)).collect();
            assert_eq!(String::from_utf8(found).unwrap(), parsed.to_string(), "{text}");
        }
    }

    #[test]
    fn a_session_is_shown_as_it_is() {
        for queued in [-1, 0, 65_536] {
            let shown = Shown::from_word(Shown { database: 15, is_resp3: queued == 0, queued }.word());
            assert_eq!((shown.database, shown.is_resp3, shown.queued), (15, queued == 0, queued));
        }
    }
}
