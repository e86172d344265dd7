//! Commands about the server.

use super::table::{Command, FAST, MEMORY, READ, WRITE};
use super::{Cx, FRAME, KEYS_OF_A_TURN, Outcome};
use crate::glob::matches;
use crate::own;
use crate::reply::{Reply, send_from};
use crate::resp::{Arguments, MAX_BULK};
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Counters, Digits, Full, SPACES};

/// The version of Redis whose commands and answers these are.
pub(super) const VERSION: &[u8] = b"7.0.0";

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn ping<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    name: Bytes<'_>,
    arguments: Arguments<'_>,
) -> Result<Outcome> {
    match arguments.len() {
        0 => cx.reply.raw(b"+PONG\r\n"),
        1 => return echo(cx, arguments),
        _ => cx.reply.wrong_count(name, None),
    }
    Ok(Outcome::Done)
}

/// Answers with its argument: `step` counts the bytes.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn echo<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let text = arguments.next().unwrap_or(Bytes::EMPTY);
    if cx.reply.is_muted {
        return Ok(Outcome::Done);
    }
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
        let sent = send_from(g, out, rest)?;
        cx.resume.step += sent;
        if sent < rest.len() {
            return Ok(Outcome::Unfinished);
        }
    }
}

/// TIME: seconds since 1970, and the microseconds.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn time<G: Group>(cx: &mut Cx<'_, '_, G>) -> Outcome {
    let us = cx.unix_ns / 1000;
    cx.reply.array(2);
    cx.reply.bulk(Digits::of((us / 1_000_000) as i64).bytes());
    cx.reply.bulk(Digits::of((us % 1_000_000) as i64).bytes());
    Outcome::Done
}

/// A setting that CONFIG shows.
enum Value {
    Text(&'static [u8]),
    Number(Digits),
}

impl Value {
    fn bytes(&self) -> Bytes<'_> {
        match self {
            Self::Text(text) => (*text).into(),
            Self::Number(digits) => digits.bytes(),
        }
    }
}

/// The settings, by their numbers from 0 on: the name and the value of each.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn setting<G: Group>(cx: &Cx<'_, '_, G>, number: usize) -> Option<(&'static [u8], Value)> {
    Some(match number {
        0 => (b"save", Value::Text(b"")),
        1 => (b"appendonly", Value::Text(b"no")),
        2 => (b"maxmemory", Value::Number(Digits::of(cx.store.heap.len() as i64))),
        3 => (b"maxmemory-policy", Value::Text(b"allkeys-lru")),
        4 => (b"databases", Value::Number(Digits::of(SPACES as i64))),
        5 => (b"proto-max-bulk-len", Value::Number(Digits::of(MAX_BULK as i64))),
        _ => return None,
    })
}

/// GET shows settings; SET takes what they are, because none can be changed while the server runs.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn config<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Outcome {
    let sub = arguments.next().unwrap_or(Bytes::EMPTY);
    let is_set = sub.eq_ignore_case(b"set");
    if !is_set && !sub.eq_ignore_case(b"get") {
        unknown_subcommand(cx, sub, b"CONFIG");
    } else if arguments.is_empty() || (is_set && !arguments.len().is_multiple_of(2)) {
        cx.reply.wrong_count(Bytes::from(b"config"), Some(sub));
    } else if is_set {
        config_set(cx, arguments);
    } else {
        config_get(cx, arguments);
    }
    Outcome::Done
}

fn config_get<G: Group>(cx: &mut Cx<'_, '_, G>, patterns: Arguments<'_>) {
    let is_asked = |name: &'static [u8]| {
        let mut rest = patterns;
        while let Some(pattern) = rest.next() {
            if matches(pattern, name.into(), true) {
                return true;
            }
        }
        false
    };
    let (mut asked, mut number) = (0u32, 0);
    while let Some((name, _)) = setting(cx, number) {
        asked |= u32::from(is_asked(name)) << number;
        number += 1;
    }
    cx.reply.map(asked.count_ones() as usize);
    while asked != 0 {
        if let Some((name, value)) = setting(cx, asked.trailing_zeros() as usize) {
            cx.reply.bulk(name.into());
            cx.reply.bulk(value.bytes());
        }
        asked &= asked - 1;
    }
}

fn config_set<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) {
    while let Some(name) = arguments.next() {
        let wanted = arguments.next().unwrap_or(Bytes::EMPTY);
        let mut number = 0;
        let found = loop {
            match setting(cx, number) {
                Some((other, value)) if name.eq_ignore_case(other) => break Some(value),
                Some(_) => number += 1,
                None => break None,
            }
        };
        let (before, after): (&'static [u8], &'static [u8]) = match found {
            Some(value) if value.bytes() == wanted => continue,
            Some(_) => (
                b"-ERR CONFIG SET failed (possibly related to argument '",
                b"') - can't set immutable config\r\n",
            ),
            None => (b"-ERR Unknown option or number of arguments for CONFIG SET - '", b"'\r\n"),
        };
        cx.reply.raw(before);
        cx.reply.quoted(name, 128, false);
        cx.reply.raw(after);
        return;
    }
    cx.reply.ok();
}

/// There are no functions: a client that clears a server clears them, too.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn function<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Outcome {
    let sub = arguments.next().unwrap_or(Bytes::EMPTY);
    if !sub.eq_ignore_case(b"flush") {
        unknown_subcommand(cx, sub, b"FUNCTION");
        return Outcome::Done;
    }
    match arguments.next() {
        Some(how) if !how.eq_ignore_case(b"sync") && !how.eq_ignore_case(b"async") => {
            cx.reply.error(b"FUNCTION FLUSH only supports SYNC|ASYNC option");
        }
        _ if !arguments.is_empty() => cx.reply.error(b"FUNCTION FLUSH only supports SYNC|ASYNC option"),
        _ => cx.reply.ok(),
    }
    Outcome::Done
}

/// COMMAND and its subcommands: what the table knows.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn command<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(sub) = arguments.next() else { return show_commands(cx, arguments, Wanted::Rows) };
    if sub.eq_ignore_case(b"info") {
        return show_commands(cx, arguments, Wanted::Rows);
    } else if sub.eq_ignore_case(b"docs") {
        return show_commands(cx, arguments, Wanted::Docs);
    } else if sub.eq_ignore_case(b"count") || sub.eq_ignore_case(b"list") {
        if !arguments.is_empty() {
            cx.reply.wrong_count(Bytes::from(b"command"), Some(sub));
        } else if sub.eq_ignore_case(b"count") {
            cx.reply.integer(Command::COUNT as i64);
        } else {
            return show_commands(cx, arguments, Wanted::Names);
        }
    } else if sub.eq_ignore_case(b"getkeys") {
        if arguments.len() < 2 {
            cx.reply.wrong_count(Bytes::from(b"command"), Some(sub));
        } else {
            return show_keys(cx, arguments);
        }
    } else {
        unknown_subcommand(cx, sub, b"COMMAND");
    }
    Ok(Outcome::Done)
}

/// Bytes of what is shown of a command, at most.
const SHOWN: usize = 256;

/// What is wanted of commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Names,
    Rows,
    Docs,
}

/// Shows these commands, or all if none is named. `step` counts those that are shown.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn show_commands<G: Group>(cx: &mut Cx<'_, '_, G>, names: Arguments<'_>, wanted: Wanted) -> Result<Outcome> {
    cx.ends_turn = true;
    if names.len() > KEYS_OF_A_TURN {
        cx.reply.error(b"too many commands are asked for");
        return Ok(Outcome::Done);
    }
    let count = if names.is_empty() { Command::COUNT } else { names.len() };
    if cx.resume.step == 0 {
        match wanted {
            Wanted::Docs => cx.reply.map(if names.is_empty() { count } else { known(names) }),
            _ => cx.reply.array(count),
        }
        cx.resume.step = 1;
    }
    while cx.resume.step <= count {
        if !cx.make_room(SHOWN)? {
            return Ok(Outcome::Unfinished);
        }
        let number = cx.resume.step - 1;
        let found = match names.is_empty() {
            true => Command::nth(number),
            false => names.after(number).next().and_then(Command::of),
        };
        match found {
            Some(command) => match wanted {
                Wanted::Names => show_name(cx, command),
                Wanted::Rows => show_row(cx, command),
                Wanted::Docs => show_docs(cx, command),
            },
            // As Redis has it.
            None if wanted == Wanted::Docs => {}
            None => cx.reply.nil(),
        }
        cx.resume.step += 1;
    }
    Ok(Outcome::Done)
}

/// How many of these there are.
fn known(mut names: Arguments<'_>) -> usize {
    let mut known = 0;
    while let Some(name) = names.next() {
        known += usize::from(Command::of(name).is_some());
    }
    known
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn show_docs<G: Group>(cx: &mut Cx<'_, '_, G>, command: Command) {
    let [summary, since, group] = command.docs();
    show_name(cx, command);
    cx.reply.map(3);
    cx.reply.raw(b"$7\r\nsummary\r\n");
    cx.reply.bulk(summary.as_bytes().into());
    cx.reply.raw(b"$5\r\nsince\r\n");
    cx.reply.bulk(since.as_bytes().into());
    cx.reply.raw(b"$5\r\ngroup\r\n");
    cx.reply.bulk(group.as_bytes().into());
}

fn show_name<G: Group>(cx: &mut Cx<'_, '_, G>, command: Command) {
    let code = command.code();
    let bytes = code.to_le_bytes();
    cx.reply.bulk(Bytes::from(&bytes).first(bytes.len() - code.leading_zeros() as usize / 8));
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn show_row<G: Group>(cx: &mut Cx<'_, '_, G>, command: Command) {
    let row = command.row();
    cx.reply.array(10);
    show_name(cx, command);
    cx.reply.integer(row.arity());
    let shown = row.flags & (WRITE | READ | MEMORY | FAST);
    cx.reply.array(shown.count_ones() as usize);
    if shown & WRITE != 0 {
        cx.reply.raw(b"+write\r\n");
    }
    if shown & READ != 0 {
        cx.reply.raw(b"+readonly\r\n");
    }
    if shown & MEMORY != 0 {
        cx.reply.raw(b"+denyoom\r\n");
    }
    if shown & FAST != 0 {
        cx.reply.raw(b"+fast\r\n");
    }
    cx.reply.integer(row.first as i64);
    cx.reply.integer(row.last as i64);
    cx.reply.integer(row.step as i64);
    // Categories of access, hints, specifications of keys, subcommands.
    cx.reply.raw(b"*0\r\n*0\r\n*0\r\n*0\r\n");
}

/// Shows which arguments of a command are keys.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn show_keys<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(command) = arguments.next().and_then(Command::of) else {
        cx.reply.error(b"Invalid command specified");
        return Ok(Outcome::Done);
    };
    let row = command.row();
    let (first, count) = row.keys(arguments.len());
    if row.first == 0 {
        cx.reply.error(b"The command has no key arguments");
    } else if !row.takes(arguments.len()) {
        cx.reply.error(b"Invalid number of arguments specified for command");
    } else {
        let mut rest = arguments.after(first);
        if cx.resume.step == 0 {
            cx.reply.array(count);
            cx.resume.count = count as u32;
        }
        cx.go_on(&mut rest);
        let mut looks = 0;
        while cx.resume.count > 0 {
            if looks == KEYS_OF_A_TURN && !cx.is_transaction {
                return Ok(cx.leave(&rest));
            }
            looks += 1;
            // Copied: they may be longer than the room, and are as long as the request at most.
            let key = rest.next().unwrap_or(Bytes::EMPTY);
            cx.reply.out.force_room(cx.reply.g, FRAME)?;
            cx.reply.bulk_head(key.len());
            cx.reply.long(key)?;
            rest = rest.after(row.step as usize - 1);
            cx.resume.count -= 1;
        }
    }
    Ok(Outcome::Done)
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
            let space = if is_all { None } else { Some(cx.session.database as u32) };
            let from = cx.resume.step;
            if let Some(next) = cx.store.map.clear_some(cx.g(), &cx.context, space, from, KEYS_OF_A_TURN)? {
                cx.resume.step = next;
                return Ok(Outcome::Unfinished);
            }
            cx.reply.ok();
        }
    }
    Ok(Outcome::Done)
}

/// Numbers that INFO shows, as of one moment: it is written twice, the first time to learn how long
/// it is.
struct Shown {
    connections: u64,
    used: u64,
    keys: [u64; SPACES as usize],
    evicted: u64,
    /// Of requests under way.
    requests: u64,
    most_requests: u64,
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
            reply.all([bytes]);
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
        requests: store.requests.used(g) as u64,
        most_requests: store.requests.capacity() as u64,
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
    let (g, heap, backlogs) = (cx.g(), cx.store.heap, cx.backlogs);
    let Counters { own, turns, .. } = &*cx.counters;
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
        sheet.field(b"client_request_memory", shown.requests);
        sheet.field(b"client_request_memory_limit", shown.most_requests);
        sheet.field(b"client_output_memory", shown.answers);
        sheet.field(b"client_output_memory_limit", backlogs.each() as u64);
        sheet.field(b"client_output_memory_limit_total", backlogs.all() as u64);
    }
    if sheet.begins(sections, b"persistence", b"Persistence") {
        sheet.text(b"loading:0\r\n");
    }
    if sheet.begins(sections, b"stats", b"Stats") {
        sheet.field(b"evicted_keys", shown.evicted);
        sheet.field(b"block_turns", *turns);
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
