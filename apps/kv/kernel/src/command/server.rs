//! Commands about the server and the connection.

use super::{Cx, Outcome};
use crate::own;
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Digits};

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn ping<G: Group>(cx: &mut Cx<'_, '_, G>, arguments: Arguments<'_>) -> Result<Outcome> {
    if arguments.is_empty() {
        cx.reply.raw(b"+PONG\r\n");
        return Ok(Outcome::Done);
    }
    echo(cx, arguments)
}

/// Answers with its argument, a piece at a time if it is long: `step` counts the bytes.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn echo<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let text = arguments.next().unwrap_or(Bytes::EMPTY);
    if cx.resume.step == 0 {
        cx.reply.bulk_head(text.len());
        // The first step is the head.
        cx.resume.step = 1;
    }
    loop {
        let rest = text.skip(cx.resume.step - 1);
        let (g, out) = (cx.reply.g, &mut cx.reply.out);
        let piece =
            if rest.len() + 2 <= out.room() { rest } else { rest.first(out.room().saturating_sub(2)) };
        out.put(g, piece);
        cx.resume.step += piece.len();
        if piece.len() == rest.len() {
            out.put(g, b"\r\n");
            return Ok(Outcome::Done);
        }
        out.flush(g)?;
        if out.is_pending() {
            return Ok(Outcome::Unfinished);
        }
    }
}

pub(super) fn quit<G: Group>(cx: &mut Cx<'_, '_, G>) -> Outcome {
    cx.reply.ok();
    Outcome::Quit
}

/// RESP2 is the only protocol.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn hello<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Outcome {
    match arguments.next().map(|version| version.number()) {
        Some(None) => cx.reply.error(b"Protocol version is not an integer or out of range"),
        Some(Some(version)) if version != 2 => cx.reply.raw(b"-NOPROTO unsupported protocol version\r\n"),
        _ if !arguments.is_empty() => cx.reply.syntax(),
        _ => {
            cx.reply.raw(b"*6\r\n$6\r\nserver\r\n$9\r\ngpunet-kv\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n");
            cx.reply.raw(b"$5\r\nproto\r\n:2\r\n");
        }
    }
    Outcome::Done
}

/// There is one database.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn select<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Outcome {
    match arguments.next().unwrap_or(Bytes::EMPTY).number() {
        Some(0) => cx.reply.ok(),
        Some(index) if i32::try_from(index).is_ok() => cx.reply.error(b"DB index is out of range"),
        _ => cx.reply.no_integer(),
    }
    Outcome::Done
}

/// Clients ask for the commands to help people with typing; there is no such help here.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn command<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Outcome {
    match arguments.next() {
        Some(sub) if sub.eq_ignore_case(b"count") => cx.reply.integer(0),
        _ => cx.reply.array(0),
    }
    Outcome::Done
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn config<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Outcome {
    let sub = arguments.next().unwrap_or(Bytes::EMPTY);
    if !sub.eq_ignore_case(b"get") {
        unknown_subcommand(cx, sub, b"CONFIG");
        return Outcome::Done;
    }
    if arguments.is_empty() {
        cx.reply.wrong_count(Bytes::from(b"config"), Some(sub));
        return Outcome::Done;
    }
    let mut found = 0;
    let mut names = arguments;
    while let Some(name) = names.next() {
        found += usize::from(is_setting(name));
    }
    // At most as many as there are settings, unless somebody asks for one again and again.
    let found = found.min(MOST_SETTINGS);
    cx.reply.array(2 * found);
    let mut left = found;
    while left > 0
        && let Some(name) = arguments.next()
    {
        if is_setting(name) {
            left -= 1;
            setting(cx, name);
        }
    }
    Outcome::Done
}

const MOST_SETTINGS: usize = 16;

fn is_setting(name: Bytes<'_>) -> bool {
    name.eq_ignore_case(b"save")
        || name.eq_ignore_case(b"appendonly")
        || name.eq_ignore_case(b"maxmemory")
        || name.eq_ignore_case(b"maxmemory-policy")
        || name.eq_ignore_case(b"databases")
}

fn setting<G: Group>(cx: &mut Cx<'_, '_, G>, name: Bytes<'_>) {
    cx.reply.bulk_head(name.len());
    cx.reply.quoted(name, name.len(), true);
    cx.reply.raw(b"\r\n");
    if name.eq_ignore_case(b"maxmemory") {
        cx.reply.bulk(Digits::of(cx.store.heap.len() as i64).bytes());
    } else if name.eq_ignore_case(b"maxmemory-policy") {
        cx.reply.bulk(Bytes::from(b"allkeys-lru"));
    } else if name.eq_ignore_case(b"databases") {
        cx.reply.bulk(Bytes::from(b"1"));
    } else if name.eq_ignore_case(b"appendonly") {
        cx.reply.bulk(Bytes::from(b"no"));
    } else {
        cx.reply.bulk(Bytes::EMPTY);
    }
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn client<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let sub = arguments.next().unwrap_or(Bytes::EMPTY);
    if sub.eq_ignore_case(b"id") {
        if cx.resume.id == 0 {
            let [_, id] = cx.store.start.update(cx.g(), &cx.context, |[start, ids]| [start, ids + 1])?;
            cx.resume.id = id;
        }
        cx.reply.integer(cx.resume.id as i64);
    } else if sub.eq_ignore_case(b"getname") {
        cx.reply.nil();
    } else if sub.eq_ignore_case(b"setinfo") && arguments.len() == 2 {
        // What library a client uses: Redis shows it in CLIENT LIST.
        cx.reply.ok();
    } else {
        unknown_subcommand(cx, sub, b"CLIENT");
    }
    Ok(Outcome::Done)
}

fn unknown_subcommand<G: Group>(cx: &mut Cx<'_, '_, G>, sub: Bytes<'_>, command: &'static [u8]) {
    cx.reply.raw(b"-ERR unknown subcommand '");
    cx.reply.quoted(sub, 128, false);
    cx.reply.raw(b"'. Try ");
    cx.reply.raw(command);
    cx.reply.raw(b" HELP.\r\n");
}

pub(super) fn dbsize<G: Group>(cx: &mut Cx<'_, '_, G>) -> Outcome {
    cx.reply.integer(cx.store.map.len(cx.g()) as i64);
    Outcome::Done
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn flush<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    match arguments.next() {
        Some(how) if !how.eq_ignore_case(b"sync") && !how.eq_ignore_case(b"async") => cx.reply.syntax(),
        _ if !arguments.is_empty() => cx.reply.syntax(),
        _ => {
            cx.store.map.clear(cx.g(), &cx.context)?;
            cx.reply.ok();
        }
    }
    Ok(Outcome::Done)
}

/// A text that is collected before its length is known.
struct Text {
    bytes: [u8; 1024],
    len: usize,
}

impl Text {
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn text(&mut self, text: &[u8]) -> &mut Self {
        for &byte in text {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
        self
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn number(&mut self, value: u64) -> &mut Self {
        let digits = Digits::of(value as i64);
        let mut at = 0;
        while at < digits.bytes().len() {
            self.text(&[digits.bytes().get(at)]);
            at += 1;
        }
        self
    }

    fn field(&mut self, name: &[u8], value: u64) -> &mut Self {
        self.text(name).text(b":").number(value).text(b"\r\n")
    }
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn info<G: Group>(cx: &mut Cx<'_, '_, G>) -> Outcome {
    let mut text = Text { bytes: [0; 1024], len: 0 };
    let (map, heap) = (&cx.store.map, &cx.store.heap);
    text.text(b"# Server\r\nredis_version:7.0.0\r\nserver_name:gpunet-kv\r\nredis_mode:standalone\r\n");
    text.field(b"blocks", cx.g().count() as u64).field(b"threads_per_block", cx.g().size() as u64);
    text.text(b"\r\n# Clients\r\n").field(b"connected_clients", cx.connections.count(cx.g()));
    text.text(b"\r\n# Memory\r\n").field(b"used_memory", heap.used(cx.g()) as u64);
    text.field(b"maxmemory", heap.len() as u64).text(b"maxmemory_policy:allkeys-lru\r\n");
    text.text(b"\r\n# Stats\r\n").field(b"evicted_keys", map.evicted(cx.g()));
    // Of this block: the host has the sums (`gpunet-kv` prints them at its end).
    text.field(b"block_commands_processed", cx.counters.own[own::COMMANDS]);
    text.field(b"block_keyspace_hits", cx.counters.own[own::HITS]);
    text.field(b"block_keyspace_misses", cx.counters.own[own::MISSES]);
    text.text(b"\r\n# Keyspace\r\n");
    let keys = map.len(cx.g());
    if keys > 0 {
        text.text(b"db0:keys=").number(keys).text(b",expires=0,avg_ttl=0\r\n");
    }
    cx.reply.bulk(Bytes::from(&text.bytes).first(text.len));
    Outcome::Done
}
