//! Commands about the server.

use super::{Cx, FRAME, KEYS_OF_A_TURN, Outcome};
use crate::glob::matches;
use crate::reply::send_from;
use crate::resp::{Arguments, MAX_BULK};
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Digits, SPACES};

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
