//! INFO.

use super::server::VERSION;
use super::{Cx, Outcome};
use crate::own;
use crate::reply::Reply;
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Counters, Digits, Full, SPACES};

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
