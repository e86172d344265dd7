//! Which data thread a stream belongs to, from its open to its end: the one with the fewest, or, if
//! this proxy has both ends of a TCP connection, the thread of the end that was opened first.
//!
//! Two threads would hand each piece to each other, which takes longer than to do both halves of
//! the work.

use super::ShardLink;
use super::tables::{Assignment, StreamEntry};
use crate::model::snapshot::Thread;
use gpunet_abi::options::TransportKind;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// This end and the other end of a TCP connection, both on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ends([(IpAddr, u16); 2]);

impl Ends {
    /// `None` if the other end is elsewhere. (Two sockets that are bound to different addresses of
    /// this host, none of them a loopback address, count as that.)
    fn on_this_host(transport: TransportKind, addrs: (SocketAddr, SocketAddr)) -> Option<Self> {
        // A socket for IPv6 names an IPv4 address otherwise than one for IPv4.
        let [local, peer] = [addrs.0, addrs.1].map(|addr| (addr.ip().to_canonical(), addr.port()));
        let is_here = local.0 == peer.0 || local.0.is_loopback() || peer.0.is_loopback();
        (transport == TransportKind::Tcp && is_here).then_some(Self([local, peer]))
    }

    /// The same connection as its other end names it.
    const fn reversed(self) -> Self {
        let Self([local, peer]) = self;
        Self([peer, local])
    }
}

/// The data threads, and how many streams of all attachments each has.
///
/// A stream counts from [`DataThreads::assign`] to [`DataThreads::release`]: as long as its slot
/// has the role of a stream.
pub(super) struct DataThreads {
    links: Vec<ShardLink>,
    open: Vec<u32>,
    /// Open streams whose other end is on this host, and has not been opened by this proxy so far.
    single: HashMap<Ends, Assignment>,
    /// Number of the next assignment.
    next: u64,
}

impl DataThreads {
    /// At least one thread; none has a stream.
    pub(super) fn new(links: Vec<ShardLink>) -> Self {
        let open = vec![0; links.len()];
        Self { links, open, single: HashMap::new(), next: 0 }
    }

    /// Chooses the thread of a new stream between these addresses, its own and the other end's:
    /// that of the other end if it is here, else the one with the fewest, of several the first.
    pub(super) fn assign(&mut self, transport: TransportKind, addrs: (SocketAddr, SocketAddr)) -> Assignment {
        let ends = Ends::on_this_host(transport, addrs);
        let other = ends.and_then(|ends| self.single.remove(&ends.reversed()));
        let fewest = || (0..).zip(&self.open).min_by_key(|&(_, open)| open).map_or(0, |(index, _)| index);
        let thread = other.map_or_else(fewest, |other| other.thread);
        self.open[thread as usize] += 1;
        let assignment = Assignment { thread, number: self.next };
        self.next += 1;
        if let (Some(ends), None) = (ends, other) {
            self.single.insert(ends, assignment);
        }
        assignment
    }

    /// A stream has ended.
    pub(super) fn release(&mut self, stream: &StreamEntry) {
        let Some(assignment) = stream.thread else { return };
        self.open[assignment.thread as usize] -= 1;
        if let Some(ends) = Ends::on_this_host(stream.transport, stream.addrs)
            && self.single.get(&ends) == Some(&assignment)
        {
            self.single.remove(&ends);
        }
    }

    /// How to reach the thread of a stream.
    pub(super) fn link(&self, assignment: Assignment) -> &ShardLink {
        &self.links[assignment.thread as usize]
    }

    /// How to reach each of them.
    pub(super) fn links(&self) -> impl Iterator<Item = &ShardLink> {
        self.links.iter()
    }

    /// Their streams and loads.
    pub(super) fn snapshot(&self) -> Vec<Thread> {
        let threads = (0..).zip(self.links.iter().zip(&self.open));
        threads
            .map(|(index, (link, &streams))| Thread { index, streams, busy_ns: link.load.busy_ns() })
            .collect()
    }

    /// How many streams each has.
    #[cfg(test)]
    pub(super) fn open(&self) -> &[u32] {
        &self.open
    }

    /// How many streams could still get an other end that this proxy opens.
    #[cfg(test)]
    pub(super) fn singles(&self) -> usize {
        self.single.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plane::shard_links;
    use super::super::tables::StreamMemory;
    use super::*;
    use crate::model::message::{Ring, Rings};

    fn open(threads: &mut DataThreads, transport: TransportKind, addrs: [&str; 2]) -> StreamEntry {
        let [local, peer] = addrs.map(|addr| addr.parse().unwrap());
        let ring = Ring { offset: 0, log2: 12 };
        let rings = Rings { region: 0, send: ring, recv: ring, registered: false, driven: true };
        StreamEntry {
            memory: StreamMemory::Own(rings),
            linger_ms: 0,
            closed: false,
            thread: Some(threads.assign(transport, (local, peer))),
            partner: None,
            final_positions: None,
            addrs: (local, peer),
            transport,
        }
    }

    fn tcp(threads: &mut DataThreads, local: &str, peer: &str) -> StreamEntry {
        open(threads, TransportKind::Tcp, [local, peer])
    }

    const SERVER: &str = "192.0.2.1:80";

    fn thread(stream: &StreamEntry) -> u32 {
        stream.thread.unwrap().thread
    }

    #[test]
    fn a_stream_goes_to_the_thread_with_the_fewest_and_of_several_to_the_first() {
        let mut threads = DataThreads::new(shard_links(3));
        let mut port = 1024..;
        let mut open =
            |threads: &mut DataThreads| tcp(threads, SERVER, &format!("192.0.2.2:{}", port.next().unwrap()));
        let one = open(&mut threads);
        threads.release(&one);
        assert_eq!(thread(&one), 0, "a stream alone is on thread 0");
        let streams: Vec<_> = (0..7).map(|_| open(&mut threads)).collect();
        assert_eq!(streams.iter().map(thread).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
        for ended in [1, 4, 2] {
            threads.release(&streams[ended]);
        }
        assert_eq!(threads.open(), [3, 0, 1]);
        assert_eq!([(); 3].map(|()| thread(&open(&mut threads))), [1, 1, 2]);
        assert_eq!(threads.snapshot().iter().map(|thread| thread.streams).sum::<u32>(), 7);
        assert_eq!(threads.singles(), 0, "their other ends are elsewhere");
    }

    #[test]
    fn both_ends_of_a_connection_are_on_one_thread_whichever_is_opened_first() {
        let mut threads = DataThreads::new(shard_links(3));
        let [client, mapped] = ["127.0.0.1:5000", "[::ffff:127.0.0.1]:5000"];
        let others = [("127.0.0.1:80", client), (SERVER, "192.0.2.1:7"), ("[::1]:80", "[::1]:5000")];
        let mapped_end = ("[::ffff:127.0.0.1]:80", mapped);
        for (number, (local, peer)) in others.into_iter().chain([mapped_end]).enumerate() {
            for [first, second] in [[(local, peer), (peer, local)], [(peer, local), (local, peer)]] {
                let before = threads.open().to_vec();
                let one = tcp(&mut threads, first.0, first.1);
                let other = tcp(&mut threads, second.0, second.1);
                assert_eq!(thread(&one), thread(&other), "{first:?}");
                assert_eq!(threads.singles(), 0);
                // The ends end in either order, and each counts once.
                let ends = if number % 2 == 0 { [&one, &other] } else { [&other, &one] };
                ends.into_iter().for_each(|end| threads.release(end));
                assert_eq!(threads.open(), before);
            }
        }
        // A socket for IPv6 that serves IPv4 as well.
        let one = tcp(&mut threads, client, "127.0.0.1:80");
        assert_eq!(thread(&tcp(&mut threads, mapped_end.0, mapped)), thread(&one));
        // They count, so that the next one goes elsewhere.
        assert_eq!(thread(&tcp(&mut threads, SERVER, "192.0.2.2:1")), 1);
        assert_eq!(threads.open(), [2, 1, 0]);
    }

    #[test]
    fn a_stream_without_an_other_end_here_is_remembered_until_it_ends() {
        let mut threads = DataThreads::new(shard_links(2));
        let [server, client] = ["127.0.0.1:80", "127.0.0.1:5000"];
        let left = tcp(&mut threads, server, client);
        assert_eq!((thread(&left), threads.singles()), (0, 1));
        // The other end is of another program. The port is used again, and its end was not reported
        // yet.
        let again = tcp(&mut threads, server, client);
        assert_eq!((thread(&again), threads.singles()), (1, 1));
        threads.release(&left);
        assert_eq!(threads.singles(), 1, "the newer one is still open");
        let other = tcp(&mut threads, client, server);
        assert_eq!((thread(&other), threads.singles()), (1, 0));
        for stream in [&other, &again] {
            threads.release(stream);
        }
        // A stream that has ended is not another end.
        let late = tcp(&mut threads, client, server);
        assert_eq!((thread(&late), threads.singles(), threads.open()), (0, 1, &[1, 0][..]));
        threads.release(&late);
        assert_eq!((threads.singles(), threads.open()), (0, &[0, 0][..]));
    }

    #[test]
    fn a_network_card_moves_the_bytes_of_rc_so_its_ends_are_on_two_threads() {
        let mut threads = DataThreads::new(shard_links(2));
        let ends = ["192.0.2.1:80", "192.0.2.1:5000"];
        let one = open(&mut threads, TransportKind::Rc, ends);
        let other = open(&mut threads, TransportKind::Rc, [ends[1], ends[0]]);
        assert_eq!(([thread(&one), thread(&other)], threads.singles()), ([0, 1], 0));
    }

    #[test]
    fn a_device_is_told_the_thread() {
        assert_eq!(Assignment { thread: 2, number: 7 }.link().data_thread(), Some(2));
    }
}
