//! COMMAND and its subcommands: what the table of commands knows.

use super::server::unknown_subcommand;
use super::table::{Command, FAST, MEMORY, READ, WRITE};
use super::{Cx, FRAME, KEYS_OF_A_TURN, Outcome};
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_serve::Bytes;

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
