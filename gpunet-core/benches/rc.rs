//! What the rc state machine costs: two of them face to face, without memory or network cards.

use criterion::{BenchmarkId, Criterion, Throughput};
use gpunet_core::rc::{Config, Machine, Remote, Variant};
use gpunet_core::verbs::Sge;
use std::hint::black_box;

#[path = "rc/pair.rs"]
mod pair;

use pair::{Pair, RING};

/// One direction of one machine; the other end is played by the benchmark.
struct Half {
    machine: Machine,
    position: u64,
    messages: u16,
}

impl Half {
    fn new() -> Self {
        let config = Config {
            variant: Variant::Immediate,
            send_ring: (1 << 32, u64::from(RING)),
            recv_ring: Remote { address: 1 << 33, rkey: 1, len: RING },
            sends: 64,
            receives: 384,
            keepalive: u64::MAX,
        };
        let peer = config.hello(Remote { address: 1 << 16, rkey: 2, len: 2 });
        Self { machine: Machine::new(&config, peer, 0), position: 0, messages: 0 }
    }

    /// A message goes out and its completion comes back; credits and areas come as from a peer.
    fn send(&mut self, len: u32) {
        self.position += u64::from(len);
        self.machine.offer(self.position);
        black_box(self.machine.poll(0)).expect("a data message");
        self.machine.handle_sent(0);
        self.messages = self.messages.wrapping_add(1);
        if self.messages.is_multiple_of(192) {
            let limit = u32::from(self.messages.wrapping_add(384));
            self.machine.handle_message(4 << 29 | limit, None, 0).expect("a limit");
        }
        if self.position.is_multiple_of(u64::from(RING)) {
            self.machine.handle_area(Sge { address: 1 << 34, rkey: 3, len: RING }).expect("an area");
        }
    }

    /// A message comes in and is consumed; grants go out and complete.
    fn receive(&mut self, len: u32) {
        black_box(self.machine.handle_message(black_box(len), Some(len), 0)).expect("an honest peer");
        self.machine.handle_consumed(self.machine.received());
        while let Some(op) = self.machine.poll(0) {
            black_box(op);
            self.machine.handle_sent(0);
        }
    }
}

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("rc");
    group.throughput(Throughput::Elements(1));
    let mut half = Half::new();
    group.bench_function("64 B out", |b| b.iter(|| half.send(64)));
    let mut half = Half::new();
    group.bench_function("64 B in", |b| b.iter(|| half.receive(64)));
    for variant in [Variant::Immediate, Variant::Send] {
        let mut pair = Pair::new(variant);
        let name = format!("{variant:?}");
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("round trip of 64 B", &name), |b| {
            b.iter(|| (0..2).for_each(|from| pair.transfer(from, 64)));
        });
        let mut pair = Pair::new(variant);
        group.throughput(Throughput::Bytes(1 << 20));
        group.bench_function(BenchmarkId::new("1 MiB in messages of 64 KiB", &name), |b| {
            b.iter(|| (0..16).for_each(|_| pair.transfer(0, 64 * 1024)));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    messages(&mut criterion);
    criterion.final_summary();
}
