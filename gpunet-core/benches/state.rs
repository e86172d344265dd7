//! What the state machine of a proxy-driven stream adds to moving bytes: `Connection` without
//! memory, words or sockets.

use criterion::{BenchmarkId, Criterion, Throughput};
use gpunet_abi::StreamWord;
use gpunet_core::connection::{Action, Connection};
use std::hint::black_box;

/// The default ring.
const RING: u64 = 256 * 1024;

/// An echo: the device sends `len` bytes, gets them back and consumes them; the transport moves at
/// most `step` bytes at a time.
struct Echo {
    connection: Connection,
    position: u64,
}

impl Echo {
    fn new() -> Self {
        let mut connection = Connection::new(RING, RING);
        connection.handle_recv_blocked();
        Self { connection, position: 0 }
    }

    fn exchange(&mut self, len: u64, step: u64) {
        self.position += len;
        let word = StreamWord::at(self.position);
        self.connection.handle_published(black_box(word)).expect("a valid word");
        let mut left = len;
        while let Action::Send { len, .. } = self.connection.poll_action(0) {
            let taken = len.min(step);
            self.connection.handle_sent(taken);
            black_box(self.connection.handle_released(taken));
        }
        self.connection.handle_ready(true, true);
        while let Action::Receive { len, .. } = self.connection.poll_action(0) {
            if left == 0 {
                self.connection.handle_recv_blocked();
                continue;
            }
            let given = len.min(step).min(left);
            left -= given;
            black_box(self.connection.handle_received(given));
        }
        self.connection.handle_consumed(black_box(word)).expect("a valid word");
    }
}

fn state(c: &mut Criterion) {
    let mut group = c.benchmark_group("connection");
    let mut echo = Echo::new();
    group.throughput(Throughput::Elements(1));
    group.bench_function("one message of 64 B", |b| b.iter(|| echo.exchange(64, RING)));
    for step in [4 * 1024, 64 * 1024, RING] {
        let mut echo = Echo::new();
        group.throughput(Throughput::Bytes(1 << 20));
        group.bench_function(BenchmarkId::new("one MiB, bytes per system call", step), |b| {
            b.iter(|| (0..4).for_each(|_| echo.exchange(RING, step)));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    state(&mut criterion);
    criterion.final_summary();
}
