//! Commands about the connection.

use super::server::{VERSION, unknown_subcommand};
use super::{Cx, Outcome, clients};
use crate::resp::Arguments;
use crate::session::{Database, Replies, Session, Transaction};
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, SpillError};

pub(super) fn quit<G: Group>(cx: &mut Cx<'_, '_, G>) -> Outcome {
    cx.reply.ok();
    Outcome::Quit
}

/// All is as it was at first.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn reset<G: Group>(cx: &mut Cx<'_, '_, G>) -> Result<Outcome> {
    cx.session.clear(cx.reply.g, &cx.context, cx.store)?;
    *cx.session = Session::default();
    clients::show_name(cx, Bytes::EMPTY);
    cx.show_session();
    (cx.reply.is_resp3, cx.reply.is_muted) = (false, false);
    cx.reply.raw(b"+RESET\r\n");
    Ok(Outcome::Done)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn select<G: Group>(cx: &mut Cx<'_, '_, G>, arguments: Arguments<'_>) -> Outcome {
    match Database::of(arguments) {
        Database::Is(number) => {
            cx.session.database = number;
            cx.show_session();
            cx.reply.ok();
        }
        Database::OutOfRange => cx.reply.error(b"DB index is out of range"),
        Database::NoInteger => cx.reply.no_integer(),
        Database::NoInt32 => cx.reply.no_int32(),
    }
    Outcome::Done
}

/// Who gives a name has to give the default one.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn auth<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Outcome {
    match arguments.len() {
        1 if cx.password.is_set() => match let_in(cx, arguments.next()) {
            true => cx.reply.ok(),
            false => wrong_password(cx),
        },
        1 => cx.reply.error(
            b"AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        ),
        2 if is_user(arguments.next()) && let_in(cx, arguments.next()) => cx.reply.ok(),
        2 => wrong_password(cx),
        _ => cx.reply.syntax(),
    }
    Outcome::Done
}

/// Lets the client in if it gives the password. Returns whether it does.
fn let_in<G: Group>(cx: &mut Cx<'_, '_, G>, password: Option<Bytes<'_>>) -> bool {
    let is_right = password.is_some_and(|password| cx.password.is(password));
    if is_right {
        cx.session.let_in();
    }
    is_right
}

fn is_user(name: Option<Bytes<'_>>) -> bool {
    name.is_some_and(|name| name == b"default")
}

fn wrong_password<G: Group>(cx: &mut Cx<'_, '_, G>) {
    cx.reply.raw(b"-WRONGPASS invalid username-password pair or user is disabled.\r\n");
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn hello<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let version = match arguments.next().map(|version| version.number()) {
        Some(None) => {
            cx.reply.error(b"Protocol version is not an integer or out of range");
            return Ok(Outcome::Done);
        }
        Some(Some(version)) if version != 2 && version != 3 => {
            cx.reply.raw(b"-NOPROTO unsupported protocol version\r\n");
            return Ok(Outcome::Done);
        }
        Some(Some(version)) => Some(version),
        None => None,
    };
    let mut name = None;
    while let Some(option) = arguments.next() {
        if option.eq_ignore_case(b"auth") && arguments.len() >= 2 {
            let (user, password) = (arguments.next(), arguments.next());
            if !is_user(user) || !let_in(cx, password) {
                wrong_password(cx);
                return Ok(Outcome::Done);
            }
        } else if option.eq_ignore_case(b"setname") && !arguments.is_empty() {
            name = arguments.next();
        } else {
            cx.reply.raw(b"-ERR Syntax error in HELLO option '");
            cx.reply.quoted(option, 128, false);
            cx.reply.raw(b"'\r\n");
            return Ok(Outcome::Done);
        }
    }
    if cx.password.is_set() && !cx.session.is_let_in() {
        cx.reply.raw(b"-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time\r\n");
        return Ok(Outcome::Done);
    }
    if let Some(name) = name
        && !set_name(cx, name)?
    {
        return Ok(Outcome::Done);
    }
    if let Some(version) = version {
        cx.session.set_resp3(version == 3);
        cx.reply.is_resp3 = version == 3;
        cx.show_session();
    }
    cx.reply.map(7);
    cx.reply.raw(b"$6\r\nserver\r\n$9\r\ngpunet-kv\r\n$7\r\nversion\r\n");
    cx.reply.bulk(VERSION.into());
    cx.reply.raw(b"$5\r\nproto\r\n");
    cx.reply.integer(if cx.session.is_resp3() { 3 } else { 2 });
    cx.reply.raw(b"$2\r\nid\r\n");
    cx.reply.integer(cx.roll.id(cx.place) as i64);
    cx.reply.raw(b"$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n");
    Ok(Outcome::Done)
}

/// Returns whether a text has neither spaces nor special characters.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn is_name(name: Bytes<'_>) -> bool {
    let mut at = 0;
    // As Redis has it: bytes are signed there, so those from 0x80 on are below.
    while at < name.len() && (b'!'..=b'~').contains(&name.get(at)) {
        at += 1;
    }
    at == name.len()
}

/// Sets the connection's name; answers if it cannot be.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn set_name<G: Group>(cx: &mut Cx<'_, '_, G>, name: Bytes<'_>) -> Result<bool> {
    if !is_name(name) {
        cx.reply.error(b"Client names cannot contain spaces, newlines or special characters.");
        return Ok(false);
    }
    let (g, map, context) = (cx.reply.g, &cx.store.requests, &cx.context);
    cx.session.name.clear(g, context, map)?;
    let most = cx.most();
    match cx.session.name.append(g, context, map, name, most) {
        Ok(()) => {
            clients::show_name(cx, name);
            Ok(true)
        }
        Err(SpillError::NoMemory) => {
            clients::show_name(cx, Bytes::EMPTY);
            cx.reply.no_memory();
            Ok(false)
        }
        Err(SpillError::Over(error)) => Err(error),
    }
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn client<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let sub = arguments.next().unwrap_or(Bytes::EMPTY);
    let is_info = sub.eq_ignore_case(b"info");
    if sub.eq_ignore_case(b"list") {
        return clients::list(cx, arguments);
    } else if sub.eq_ignore_case(b"kill") {
        return clients::kill(cx, arguments);
    }
    let count = if sub.eq_ignore_case(b"id") || sub.eq_ignore_case(b"getname") || is_info {
        0
    } else if sub.eq_ignore_case(b"setname")
        || sub.eq_ignore_case(b"no-evict")
        || sub.eq_ignore_case(b"no-touch")
        || sub.eq_ignore_case(b"reply")
    {
        1
    } else if sub.eq_ignore_case(b"setinfo") {
        2
    } else {
        unknown_subcommand(cx, sub, b"CLIENT");
        return Ok(Outcome::Done);
    };
    if arguments.len() != count {
        cx.reply.wrong_count(Bytes::from(b"client"), Some(sub));
    } else if is_info {
        return clients::info(cx);
    } else if sub.eq_ignore_case(b"id") {
        cx.reply.integer(cx.roll.id(cx.place) as i64);
    } else if sub.eq_ignore_case(b"setname") {
        if set_name(cx, arguments.next().unwrap_or(Bytes::EMPTY))? {
            cx.reply.ok();
        }
    } else if sub.eq_ignore_case(b"no-evict") || sub.eq_ignore_case(b"no-touch") {
        // No client is evicted; and what is read counts as used, which is a hint.
        match arguments.next() {
            Some(how) if how.eq_ignore_case(b"on") || how.eq_ignore_case(b"off") => cx.reply.ok(),
            _ => cx.reply.syntax(),
        }
    } else if sub.eq_ignore_case(b"reply") {
        replies(cx, arguments.next().unwrap_or(Bytes::EMPTY));
    } else if sub.eq_ignore_case(b"setinfo") {
        library(cx, arguments);
    } else if cx.session.name.is_empty() {
        cx.reply.nil();
    } else {
        // Copied: it may be longer than the room.
        let (name, store) = (cx.session.name, cx.store);
        let name = name.bytes(&store.requests);
        cx.reply.bulk_head(name.len());
        cx.reply.long(name)?;
    }
    Ok(Outcome::Done)
}

/// `CLIENT SETINFO LIB-NAME|LIB-VER text`: what library a client uses, which nobody asks for here.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn library<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) {
    let option = arguments.next().unwrap_or(Bytes::EMPTY);
    let text = arguments.next().unwrap_or(Bytes::EMPTY);
    if !option.eq_ignore_case(b"lib-name") && !option.eq_ignore_case(b"lib-ver") {
        cx.reply.raw(b"-ERR Unrecognized option '");
        cx.reply.quoted(option, 128, false);
        cx.reply.raw(b"'\r\n");
    } else if !is_name(text) {
        cx.reply.raw(b"-ERR ");
        cx.reply.quoted(option, 128, false);
        cx.reply.raw(b" cannot contain spaces, newlines or special characters.\r\n");
    } else {
        cx.reply.ok();
    }
}

/// `CLIENT REPLY ON|OFF|SKIP`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn replies<G: Group>(cx: &mut Cx<'_, '_, G>, which: Bytes<'_>) {
    let replies = &mut cx.session.replies;
    if which.eq_ignore_case(b"on") {
        (*replies, cx.reply.is_muted) = (Replies::On, false);
        cx.reply.ok();
    } else if which.eq_ignore_case(b"off") {
        (*replies, cx.reply.is_muted) = (Replies::Off, true);
    } else if which.eq_ignore_case(b"skip") {
        if *replies != Replies::Off {
            *replies = Replies::SkipNext;
        }
    } else {
        cx.reply.syntax();
    }
}

/// Nothing is watched.
pub(super) fn unwatch<G: Group>(cx: &mut Cx<'_, '_, G>) -> Outcome {
    cx.reply.ok();
    Outcome::Done
}

pub(super) fn watch<G: Group>(cx: &mut Cx<'_, '_, G>) -> Outcome {
    match cx.session.transaction {
        Transaction::None => cx
            .reply
            .error(b"WATCH is not supported: EXEC carries out its commands whatever has become of the keys"),
        _ => cx.reply.error(b"WATCH inside MULTI is not allowed"),
    }
    Outcome::Done
}
