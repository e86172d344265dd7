//! Commands about the server.

use super::{Cx, FRAME, Outcome};
use crate::own;
use crate::reply::Reply;
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Digits, Full, SPACES};

/// The version of Redis whose commands and answers these are.
pub(super) const VERSION: &[u8] = b"7.0.0";

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn ping<G: Group>(cx: &mut Cx<'_, '_, G>, arguments: Arguments<'_>) -> Result<Outcome> {
    if arguments.is_empty() {
        cx.reply.raw(b"+PONG\r\n");
        return Ok(Outcome::Done);
    }
    echo(cx, arguments)
}

/// Answers with its argument: `step` counts the bytes.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn echo<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let text = arguments.next().unwrap_or(Bytes::EMPTY);
    if cx.resume.step == 0 {
        if text.len() + FRAME <= cx.reply.out.room() {
            cx.reply.bulk(text);
            return Ok(Outcome::Done);
        }
        cx.reply.bulk_head(text.len());
        if cx.is_transaction {
            return cx.reply.long(text).map(|()| Outcome::Done);
        }
        // The first step is the head.
        cx.resume.step = 1;
    }
    loop {
        let rest = text.skip(cx.resume.step - 1);
        let (g, out) = (cx.reply.g, &mut cx.reply.out);
        if rest.is_empty() {
            if !out.make_room(g, 2)? {
                return Ok(Outcome::Unfinished);
            }
            out.put(g, b"\r\n");
            return Ok(Outcome::Done);
        }
        let sent = out.send_from(g, rest)?;
        cx.resume.step += sent;
        if sent < rest.len() {
            return Ok(Outcome::Unfinished);
        }
    }
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
    cx.reply.map(found);
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
        cx.reply.bulk(Bytes::from(b"16"));
    } else if name.eq_ignore_case(b"appendonly") {
        cx.reply.bulk(Bytes::from(b"no"));
    } else {
        cx.reply.bulk(Bytes::EMPTY);
    }
}

pub(super) fn unknown_subcommand<G: Group>(cx: &mut Cx<'_, '_, G>, sub: Bytes<'_>, command: &'static [u8]) {
    cx.reply.raw(b"-ERR unknown subcommand '");
    cx.reply.quoted(sub, 128, false);
    cx.reply.raw(b"'. Try ");
    cx.reply.raw(command);
    cx.reply.raw(b" HELP.\r\n");
}

pub(super) fn dbsize<G: Group>(cx: &mut Cx<'_, '_, G>) -> Outcome {
    let database = cx.session.database as u32;
    cx.reply.integer(cx.store.map.len_of(cx.g(), database) as i64);
    Outcome::Done
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn flush<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    is_all: bool,
) -> Result<Outcome> {
    match arguments.next() {
        Some(how) if !how.eq_ignore_case(b"sync") && !how.eq_ignore_case(b"async") => cx.reply.syntax(),
        _ if !arguments.is_empty() => cx.reply.syntax(),
        _ => {
            let (g, map) = (cx.g(), &cx.store.map);
            match is_all {
                true => map.clear(g, &cx.context)?,
                false => map.clear_space(g, &cx.context, cx.session.database as u32)?,
            }
            cx.reply.ok();
        }
    }
    Ok(Outcome::Done)
}

/// Numbers that INFO shows, as of one moment: it is written twice, the first time to learn how long it is.
struct Shown {
    connections: u64,
    used: u64,
    keys: [u64; SPACES as usize],
    evicted: u64,
    answers: u64,
    closed: [u64; 2],
}

/// Where INFO is written.
struct Sheet<'s, 'a, 't, G: Group> {
    /// `None`: it is measured.
    reply: Option<&'s mut Reply<'a, 't, G>>,
    len: usize,
}

impl<G: Group> Sheet<'_, '_, '_, G> {
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn bytes(&mut self, bytes: Bytes<'_>) -> &mut Self {
        self.len += bytes.len();
        if let Some(reply) = &mut self.reply {
            reply.raw(bytes);
        }
        self
    }

    fn text(&mut self, text: &'static [u8]) -> &mut Self {
        self.bytes(text.into())
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn field(&mut self, name: &'static [u8], value: u64) -> &mut Self {
        self.text(name).text(b":").bytes(Digits::of(value as i64).bytes()).text(b"\r\n")
    }

    /// Begins a section, if it is asked for.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn begins(&mut self, asked: Arguments<'_>, name: &'static [u8], title: &'static [u8]) -> bool {
        let mut rest = asked;
        let mut is_asked = asked.is_empty();
        while let Some(section) = rest.next() {
            is_asked |= section.eq_ignore_case(name)
                || section.eq_ignore_case(b"all")
                || section.eq_ignore_case(b"everything")
                || section.eq_ignore_case(b"default");
        }
        if is_asked {
            if self.len > 0 {
                self.text(b"\r\n");
            }
            self.text(b"# ").text(title).text(b"\r\n");
        }
        is_asked
    }
}

/// Bytes that INFO has at most.
const MOST_INFO: usize = 4096;

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn info<G: Group>(cx: &mut Cx<'_, '_, G>, sections: Arguments<'_>) -> Result<Outcome> {
    let (g, store) = (cx.g(), cx.store);
    if !cx.make_room(MOST_INFO)? {
        return Ok(Outcome::Unfinished);
    }
    let mut shown = Shown {
        connections: cx.connections.count(g),
        used: store.heap.used(g) as u64,
        keys: [0; SPACES as usize],
        evicted: store.map.evicted(g),
        answers: cx.backlogs.used(g) as u64,
        closed: [cx.backlogs.closed(g, Full::Each), cx.backlogs.closed(g, Full::All)],
    };
    for (space, keys) in shown.keys.iter_mut().enumerate() {
        *keys = store.map.len_of(g, space as u32);
    }
    let len = write_info(cx, sections, &shown, false);
    cx.reply.text_head(len);
    write_info(cx, sections, &shown, true);
    cx.reply.raw(b"\r\n");
    Ok(Outcome::Done)
}

/// Writes what INFO shows, or measures it; returns how long it is.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn write_info<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    sections: Arguments<'_>,
    shown: &Shown,
    writes: bool,
) -> usize {
    let (g, heap, own, backlogs) = (cx.g(), cx.store.heap, &cx.counters.own, cx.backlogs);
    let mut sheet = Sheet { reply: writes.then_some(&mut cx.reply), len: 0 };
    if sheet.begins(sections, b"server", b"Server") {
        sheet
            .text(b"redis_version:")
            .text(VERSION)
            .text(b"\r\nserver_name:gpunet-kv\r\nredis_mode:standalone\r\n");
        sheet.field(b"blocks", g.count() as u64).field(b"threads_per_block", g.size() as u64);
    }
    if sheet.begins(sections, b"clients", b"Clients") {
        sheet.field(b"connected_clients", shown.connections);
    }
    if sheet.begins(sections, b"memory", b"Memory") {
        sheet.field(b"used_memory", shown.used).field(b"maxmemory", heap.len() as u64);
        sheet.text(b"maxmemory_policy:allkeys-lru\r\n");
        sheet.field(b"client_output_memory", shown.answers);
        sheet.field(b"client_output_memory_limit", backlogs.each() as u64);
        sheet.field(b"client_output_memory_limit_total", backlogs.all() as u64);
    }
    if sheet.begins(sections, b"persistence", b"Persistence") {
        sheet.text(b"loading:0\r\n");
    }
    if sheet.begins(sections, b"stats", b"Stats") {
        sheet.field(b"evicted_keys", shown.evicted);
        // Of this block: the host has the sums (`gpunet-kv` prints them at its end).
        sheet.field(b"block_commands_processed", own[own::COMMANDS]);
        sheet.field(b"block_keyspace_hits", own[own::HITS]);
        sheet.field(b"block_keyspace_misses", own[own::MISSES]);
        let [each, all] = shown.closed;
        sheet.field(b"client_output_memory_limit_disconnections", each);
        sheet.field(b"client_output_memory_limit_total_disconnections", all);
    }
    if sheet.begins(sections, b"replication", b"Replication") {
        sheet.text(b"role:master\r\nconnected_slaves:0\r\n");
    }
    if sheet.begins(sections, b"keyspace", b"Keyspace") {
        for (space, keys) in shown.keys.iter().enumerate() {
            if *keys > 0 {
                sheet.text(b"db").bytes(Digits::of(space as i64).bytes()).text(b":keys=");
                sheet.bytes(Digits::of(*keys as i64).bytes()).text(b",expires=0,avg_ttl=0\r\n");
            }
        }
    }
    sheet.len
}
