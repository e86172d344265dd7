//! Bytes arrive as they were sent.

use crate::pair::{Two, ends, peer, run};
use crate::support::{Memory, Team, bounded};
use gpunet_device::{Stream, TransportKind};

fn echo(lanes: u32, ring: usize, sizes: &'static [usize]) {
    bounded(move || {
        let two = Two::new();
        let longest = sizes.iter().copied().max().unwrap_or(1);
        let (served, sent, back) = (Memory::new(ring), Memory::filled(1, 0, longest), Memory::new(longest));
        let server = |g: &Team, mut stream: Stream| loop {
            match stream.recv(g, served.buffer())? {
                0 => return stream.close(g),
                n => stream.send_all(g, served.buffer().first(n))?,
            }
        };
        let client = |g: &Team, mut stream: Stream| {
            for &size in sizes {
                let mut done = 0;
                while done < size {
                    let n = (size - done).min(ring);
                    stream.send_all(g, sent.buffer().slice(done, n))?;
                    assert_eq!(stream.recv_exact(g, back.buffer().slice(done, n))?, n);
                    done += n;
                }
            }
            stream.close(g)
        };
        run(&two, lanes, peer().with_rings(ring as u64, ring as u64), server, client);
        assert!(back.holds(0, longest, 1, 0), "bytes came back changed");
        two.end();
    });
}

#[test]
fn one_lane_sends_messages_of_all_sizes() {
    echo(1, 1 << 18, &[1, 2, 3, 63, 64, 65, 4095, 4096, 4097, 65_536, 1 << 20]);
}

#[test]
fn many_lanes_do_too() {
    echo(33, 1 << 16, &[1, 15, 64, 4097, 65_536]);
}

#[test]
fn small_rings_wrap() {
    echo(2, 4096, &[1, 4096, 5000, 50_000]);
}

#[test]
fn connect_without_a_demand_finds_the_peer() {
    bounded(|| {
        let two = Two::new();
        let (client, server) = ends(&two, gpunet_device::Options::DEFAULT);
        assert_eq!(client.transport(), TransportKind::Peer);
        client.close(&crate::pair::ONE).expect("open");
        server.close(&crate::pair::ONE).expect("open");
        two.end();
    });
}

#[test]
fn a_pair_gets_more_memory_when_it_needs_more() {
    bounded(|| {
        let two = Two::new();
        // 1 MiB rings: the first arena has room for two.
        let streams: Vec<_> = (0..7).map(|_| ends(&two, peer().with_rings(1 << 20, 1 << 20))).collect();
        let (sent, got) = (Memory::filled(5, 0, 1 << 20), Memory::new(1 << 20));
        for (mut client, mut server) in streams {
            client.send_all(&crate::pair::ONE, sent.buffer()).expect("room");
            server.recv_exact(&crate::pair::ONE, got.buffer()).expect("data");
            assert!(got.holds(0, 1 << 20, 5, 0));
            client.close(&crate::pair::ONE).expect("open");
            server.close(&crate::pair::ONE).expect("open");
        }
        two.end();
    });
}
