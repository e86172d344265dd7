//! The tables of documents, beside `all`, `machine` and `missing`.

use super::Of;
use super::compared::{self, Compared};
use super::printed::Printed;
use super::series::{Line, Series};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Words in the titles of tables: what a table of one measurement is about.
type Title = &'static [&'static str];
const GPU_TO_GPU: Title = &["-> NVIDIA", "one process, peer"];
const GPU_TO_CPU: Title = &["NVIDIA", "-> cpu, one process, peer"];
const ONE_GPU: Title = &["two blocks of one", ", peer"];
const TCP_OF_GPU: Title = &["two blocks of one", ", tcp"];
const CPU_BLOCKS: Title = &["two CPU blocks, peer"];
const TCP_OF_CPU: Title = &["two CPU blocks, tcp"];
const RC_OF_CPU: Title = &["two CPU blocks, rc"];
const BUSY: Title = &["one connection busy"];
const IN_TURN: Title = &["one connection after the other"];
const COMES_BACK: Title = &["bytes that come back"];
const CONNECTS: Title = &["connect, a byte there and back, close"];
const SILENCE: Title = &["after a silence, a blocking client"];
const BLOCK_SILENCE: Title = &["a block's first 64 B after a silence"];
const ONE_CLIENT: Title = &["key-value servers: round trip of one client"];
const BENCHMARK: Title = &["key-value servers: redis-benchmark"];
const HTTP: Title = &["HTTP servers"];
const TRITON: Title = &["echo servers in Python"];
const ARRAYS: Title = &["arrays from"];
const ARRAYS_OF_CPU: Title = &["arrays from cpu to cpu"];

const CONNECTS_OF_BLOCKS: Title = &["tcp"];
const OF_THE_PROXY: Title = &["the proxy's threads beside silent sockets"];
const ONE_BUSY_PAIR: Title = &["tcp, 1 busy pair"];

/// The measurement of arrays from a GPU to another one.
const BETWEEN_GPUS: &str = "tensors-between-gpus";

const fn of(what: &'static str, title: Title, series: &'static str, x: u64) -> Of {
    Of { what, title, series, x }
}

const ECHO: &str = "gpunet-echo, its defaults";
const BLOCKING: &str = "plain, a blocking thread a connection";
const ONE_SPINS: &str = "plain, one spinning thread";
/// By `redis-benchmark -P 16`: the place of GET.
const GET_16: u64 = 32;

const SERVER: compared::Line = compared::Line {
    what: "a TCP client's round trip to a kernel's echo server, 64 B",
    gpunet: &[of("clients", BUSY, ECHO, 0)],
    instead: &[
        ("a program that blocks", of("clients", BUSY, BLOCKING, 0)),
        ("one that spins", of("clients", BUSY, ONE_SPINS, 0)),
    ],
};
const ONE_GET: compared::Line = compared::Line {
    what: "GET by one Redis client, round trip",
    gpunet: &[
        of("servers", ONE_CLIENT, "gpunet-kv, its defaults", 0),
        of("servers", ONE_CLIENT, "gpunet-kv, 1 block", 0),
    ],
    instead: &[("redis-server", of("servers", ONE_CLIENT, "redis-server", 0))],
};
const MANY_GETS: compared::Line = compared::Line {
    what: "GETs of 50 Redis clients, 16 in a row",
    gpunet: &[
        of("servers", BENCHMARK, "gpunet-kv, its defaults", GET_16),
        of("servers", BENCHMARK, "gpunet-kv, 1 block", GET_16),
    ],
    instead: &[("redis-server", of("servers", BENCHMARK, "redis-server", GET_16))],
};
const HTTP_GET: compared::Line = compared::Line {
    what: "an HTTP request on an open connection, round trip",
    gpunet: &[
        of("servers", HTTP, "gpunet-hello-http, its defaults", 1),
        of("servers", HTTP, "gpunet-hello-http, 1 block", 1),
    ],
    instead: &[("hyper", of("servers", HTTP, "hyper, 1 thread", 1))],
};
const CLIENTS_CONNECT: compared::Line = compared::Line {
    what: "connections that 16 clients open, use and close",
    gpunet: &[of("clients", CONNECTS, ECHO, 16)],
    instead: &[("a program, a thread a connection", of("clients", CONNECTS, BLOCKING, 16))],
};
const AFTER_SILENCE: compared::Line = compared::Line {
    what: "a kernel's first message after 200 ms of silence, round trip over TCP",
    gpunet: &[of("idle", BLOCK_SILENCE, "block", 200)],
    instead: &[("a program", of("idle", BLOCK_SILENCE, "plain TCP", 200))],
};

pub const COMPARED: [Compared; 2] = [
    Compared {
        name: "decide-gpus",
        lines: &[
            compared::Line {
                what: "64 B from a kernel on one GPU to a kernel on another, one way",
                gpunet: &[of("latency", GPU_TO_GPU, "gpunet, peer", 64)],
                instead: &[
                    ("NVSHMEM `put_signal`", of("latency", GPU_TO_GPU, "NVSHMEM put_signal", 64)),
                    ("NCCL", of("latency", GPU_TO_GPU, "NCCL send/recv", 64)),
                ],
            },
            compared::Line {
                what: "a 16 MiB tensor from one process's GPU to another's",
                gpunet: &[of(BETWEEN_GPUS, ARRAYS, "gpunet", 16 * MIB)],
                instead: &[(
                    "TCP between buffers of the CPU",
                    of(BETWEEN_GPUS, ARRAYS, "plain TCP", 16 * MIB),
                )],
            },
            SERVER,
            compared::Line {
                what: "a TCP client's round trip to a Triton kernel that echoes, 64 B",
                gpunet: &[of("servers", TRITON, "a Triton kernel", 1)],
                instead: &[(
                    "Python and torch, which copy to the GPU and back",
                    of("servers", TRITON, "Python, torch copies to the GPU and back", 1),
                )],
            },
            ONE_GET,
            HTTP_GET,
            CLIENTS_CONNECT,
            AFTER_SILENCE,
        ],
    },
    Compared {
        name: "decide-cpu",
        lines: &[
            compared::Line {
                what: "64 B from a CPU block to another, one way",
                gpunet: &[of("latency", CPU_BLOCKS, "gpunet, peer", 64)],
                instead: &[
                    ("a Unix socket that spins", of("latency", CPU_BLOCKS, "Unix socket, spinning", 64)),
                    ("that blocks", of("latency", CPU_BLOCKS, "Unix socket, blocking", 64)),
                ],
            },
            compared::Line {
                what: "a 16 MiB array from one process to another",
                gpunet: &[of("tensors", ARRAYS_OF_CPU, "gpunet", 16 * MIB)],
                instead: &[("TCP", of("tensors", ARRAYS_OF_CPU, "plain TCP", 16 * MIB))],
            },
            compared::Line {
                what: "one TCP stream from a program to a block",
                gpunet: &[of("bandwidth", TCP_OF_CPU, "plain program -> block", 1)],
                instead: &[
                    ("iperf3", of("bandwidth", TCP_OF_CPU, "iperf3", 1)),
                    ("two programs", of("bandwidth", TCP_OF_CPU, "plain TCP, blocking", 1)),
                ],
            },
            SERVER,
            ONE_GET,
            MANY_GETS,
            HTTP_GET,
            CLIENTS_CONNECT,
            AFTER_SILENCE,
        ],
    },
];

const SIZES: [(u64, &str); 4] = [(64, "64 B"), (KIB, "1 KiB"), (64 * KIB, "64 KiB"), (MIB, "1 MiB")];
const MEMBERS: [(u64, &str); 3] = [(2, "2 members"), (3, "3 members"), (4, "4 members")];

const fn line(name: &'static str, what: &'static str, title: Title, series: &'static str) -> Line {
    Line { name, of: (what, title, series) }
}

pub const SERIES: [Series; 17] = [
    Series {
        name: "messages",
        corner: "one way, us, p50 / p99",
        columns: &SIZES,
        lines: &[
            line("two GPUs", "latency", GPU_TO_GPU, "gpunet, peer"),
            line("floor: data and a flag", "latency", GPU_TO_GPU, "floor: data and flag"),
            line("NVSHMEM `put_signal`", "latency", GPU_TO_GPU, "NVSHMEM put_signal"),
            line("NCCL send and receive", "latency", GPU_TO_GPU, "NCCL send/recv"),
            line("two blocks of one GPU", "latency", ONE_GPU, "gpunet, peer"),
            line("floor: data and a flag", "latency", ONE_GPU, "floor: data and flag"),
            line("a GPU and a CPU block", "latency", GPU_TO_CPU, "gpunet, peer"),
            line("floor: data and a flag", "latency", GPU_TO_CPU, "floor: data and flag"),
            line(
                "a GPU's block and a TCP client that spins",
                "latency",
                TCP_OF_GPU,
                "server block, spinning client",
            ),
            line("floor: plain TCP and a hand-off", "latency", TCP_OF_GPU, "floor: plain TCP + hand-off"),
            line("two plain TCP programs that spin", "latency", TCP_OF_GPU, "plain TCP, spinning"),
        ],
    },
    Series {
        name: "messages-cpu",
        corner: "one way, us, p50 / p99",
        columns: &SIZES,
        lines: &[
            line("two CPU blocks", "latency", CPU_BLOCKS, "gpunet, peer"),
            line("Unix socket, both ends spin", "latency", CPU_BLOCKS, "Unix socket, spinning"),
            line(
                "a CPU block and a TCP client that spins",
                "latency",
                TCP_OF_CPU,
                "server block, spinning client",
            ),
            line("two plain TCP programs that spin", "latency", TCP_OF_CPU, "plain TCP, spinning"),
        ],
    },
    Series {
        name: "streams",
        corner: "GB/s, 1 MiB a call",
        columns: &[(1, "1 pair of blocks"), (16, "16 pairs")],
        lines: &[
            line("two GPUs", "bandwidth", GPU_TO_GPU, "gpunet, 1 MiB a call"),
            line("the same without copies (`reserve`, `peek`)", "bandwidth", GPU_TO_GPU, "gpunet, zero-copy"),
            line("floor: bare copies", "bandwidth", GPU_TO_GPU, "floor: bare copies"),
            line("NVSHMEM put, 512 threads", "bandwidth", GPU_TO_GPU, "NVSHMEM put, 512 threads"),
            line("one GPU", "bandwidth", ONE_GPU, "gpunet, 1 MiB a call"),
            line("floor: bare copies", "bandwidth", ONE_GPU, "floor: bare copies"),
        ],
    },
    Series {
        name: "tcp",
        corner: "TCP, GB/s",
        columns: &[(1, "1 stream"), (4, "4 streams")],
        lines: &[
            line("a program to a GPU's block", "bandwidth", TCP_OF_GPU, "plain program -> block"),
            line("a GPU's block to a program", "bandwidth", TCP_OF_GPU, "block -> plain program"),
            line("two programs that block", "bandwidth", TCP_OF_GPU, "plain TCP, blocking"),
            line("iperf3", "bandwidth", TCP_OF_GPU, "iperf3"),
        ],
    },
    Series {
        name: "tcp-cpu",
        corner: "TCP, GB/s",
        columns: &[(1, "1 stream"), (4, "4 streams")],
        lines: &[
            line("a program to a CPU block", "bandwidth", TCP_OF_CPU, "plain program -> block"),
            line("a CPU block to a program", "bandwidth", TCP_OF_CPU, "block -> plain program"),
            line("two programs that block", "bandwidth", TCP_OF_CPU, "plain TCP, blocking"),
            line("iperf3", "bandwidth", TCP_OF_CPU, "iperf3"),
        ],
    },
    Series {
        name: "messages-rc",
        corner: "one way, us, p50 / p99",
        columns: &SIZES,
        lines: &[
            line("two CPU blocks over rc", "latency", RC_OF_CPU, "gpunet, rc"),
            line("rstream with itself (mean)", "latency", RC_OF_CPU, "rstream"),
            line("ib_write_lat (perftest)", "latency", RC_OF_CPU, "ib_write_lat"),
            line("two CPU blocks over TCP", "latency", TCP_OF_CPU, "gpunet, tcp"),
            line("two plain TCP programs that spin", "latency", TCP_OF_CPU, "plain TCP, spinning"),
            line("two that block", "latency", TCP_OF_CPU, "plain TCP, blocking"),
        ],
    },
    Series {
        name: "streams-rc",
        corner: "GB/s, 1 MiB a call",
        columns: &[(1, "1 stream"), (4, "4 streams")],
        lines: &[
            line("two CPU blocks over rc", "bandwidth", RC_OF_CPU, "gpunet, 1 MiB a call"),
            line("rstream with itself", "bandwidth", RC_OF_CPU, "rstream"),
            line("ib_write_bw (perftest)", "bandwidth", RC_OF_CPU, "ib_write_bw"),
            line("two CPU blocks over TCP", "bandwidth", TCP_OF_CPU, "gpunet, 1 MiB a call"),
            line("two plain TCP programs that block", "bandwidth", TCP_OF_CPU, "plain TCP, blocking"),
        ],
    },
    Series {
        name: "server",
        corner: "64 B round trip, us, p50 / p99",
        columns: &[(1, "1 connection"), (8, "8 in turn"), (32, "32"), (64, "64")],
        lines: &[
            line("gpunet-echo", "clients", IN_TURN, ECHO),
            line("gpunet-echo, 1 block", "clients", IN_TURN, "gpunet-echo, 1 block"),
            line("a plain thread that spins", "clients", IN_TURN, ONE_SPINS),
            line("a blocking thread a connection", "clients", IN_TURN, BLOCKING),
        ],
    },
    Series {
        name: "server-bytes",
        corner: "bytes that come back, GB/s",
        columns: &[(1, "1 connection"), (8, "8"), (32, "32"), (64, "64")],
        lines: &[
            line("gpunet-echo", "clients", COMES_BACK, ECHO),
            line("a plain thread that spins", "clients", COMES_BACK, ONE_SPINS),
            line("a blocking thread a connection", "clients", COMES_BACK, BLOCKING),
        ],
    },
    Series {
        name: "server-connects",
        corner: "connect, a byte there and back, close: a second",
        columns: &[(1, "1 client"), (4, "4 clients"), (16, "16 clients")],
        lines: &[
            line("gpunet-echo", "clients", CONNECTS, ECHO),
            line("a blocking thread a connection", "clients", CONNECTS, BLOCKING),
            line("4 plain threads that spin", "clients", CONNECTS, "plain, 4 spinning threads"),
        ],
    },
    Series {
        name: "silence",
        corner: "round trip after a silence, us, p50 / p99",
        columns: &[(1, "1 ms"), (5, "5 ms"), (20, "20 ms"), (200, "200 ms")],
        lines: &[
            line("a client asks gpunet-echo", "clients", SILENCE, ECHO),
            line("a client asks a plain server", "clients", SILENCE, BLOCKING),
            line("a block asks a plain server", "idle", BLOCK_SILENCE, "block"),
            line("the same, `latency` of 100 us", "idle", BLOCK_SILENCE, "block, Config::latency 100 us"),
            line("a program asks a plain server", "idle", BLOCK_SILENCE, "plain TCP"),
        ],
    },
    Series {
        name: "redis",
        corner: "requests a second, redis-benchmark, 50 clients",
        columns: &[(3, "SET"), (2, "GET"), (GET_16 + 1, "SET, `-P 16`"), (GET_16, "GET, `-P 16`")],
        lines: &[
            line("redis-server", "servers", BENCHMARK, "redis-server"),
            line("gpunet-kv, 1 block", "servers", BENCHMARK, "gpunet-kv, 1 block"),
            line("gpunet-kv, 2 blocks", "servers", BENCHMARK, "gpunet-kv, 2 blocks"),
            line("gpunet-kv on a GPU, its defaults", "servers", BENCHMARK, "gpunet-kv, its defaults"),
        ],
    },
    Series {
        name: "http",
        corner: "HTTP, GET of six bytes",
        columns: &[
            (1, "round trip, us, p50 / p99"),
            (8, "8 connections, a second"),
            (64, "64 connections, a second"),
        ],
        lines: &[
            line("hyper, 1 thread", "servers", HTTP, "hyper, 1 thread"),
            line("hyper, 4 threads", "servers", HTTP, "hyper, 4 threads"),
            line("gpunet-hello-http, 1 block", "servers", HTTP, "gpunet-hello-http, 1 block"),
            line(
                "gpunet-hello-http on a GPU, its defaults",
                "servers",
                HTTP,
                "gpunet-hello-http, its defaults",
            ),
        ],
    },
    Series {
        name: "tensors",
        corner: "an array between two processes, GB/s",
        columns: &[(64 * KIB, "64 KiB"), (MIB, "1 MiB"), (16 * MIB, "16 MiB")],
        lines: &[
            line("gpunet, two GPUs", BETWEEN_GPUS, ARRAYS, "gpunet"),
            line("one copy by one process", BETWEEN_GPUS, ARRAYS, "one copy"),
            line("gpunet, one device", "tensors", ARRAYS, "gpunet"),
            line("one copy by one process", "tensors", ARRAYS, "one copy"),
            line("gpunet over 8 connections", "tensors", ARRAYS, "gpunet over connections"),
            line("8 plain TCP connections between buffers of the CPU", "tensors", ARRAYS, "plain TCP"),
            line("gpunet over one connection", "tensors", ARRAYS, "gpunet over one connection"),
        ],
    },
    Series {
        name: "queues",
        corner: "two queues, round trip, us, p50 / p99",
        columns: &[(64, "64 B"), (KIB, "1 KiB"), (64 * KIB, "64 KiB")],
        lines: &[
            line("two GPUs", "stream", &[" and NVIDIA", "ping-pong"], "gpunet"),
            line("two streams by hand", "stream", &[" and NVIDIA", "ping-pong"], "two streams by hand"),
            line("one device", "stream", &["ping-pong", "peer"], "gpunet"),
            line("two streams by hand", "stream", &["ping-pong", "peer"], "two streams by hand"),
            line("one device, TCP", "stream", &["ping-pong", "tcp"], "gpunet"),
            line("two plain programs", "stream", &["ping-pong", "tcp"], "two plain programs"),
        ],
    },
    Series {
        name: "symmetric",
        corner: "a team of 2, us, p50 / p99",
        columns: &[(64, "64 B"), (4 * KIB, "4 KiB"), (64 * KIB, "64 KiB")],
        lines: &[
            line("`put_signal`, one way", "symmetric", &["put_signal"], "put_signal"),
            line("data and a flag by hand", "symmetric", &["put_signal"], "data and flag"),
            line("NVSHMEM `put_signal`", "symmetric", &["put_signal"], "NVSHMEM put_signal"),
            line("`all_gather`", "symmetric", &["all_gather of 2"], "all_gather"),
            line("NVSHMEM fcollect", "symmetric", &["all_gather of 2"], "NVSHMEM fcollect"),
            line("NCCL all_gather, from a stream", "symmetric", &["all_gather of 2"], "NCCL all_gather"),
            line("`reduce`", "symmetric", &["reduce", "of 2"], "reduce"),
            line("NVSHMEM sum_reduce", "symmetric", &["reduce", "of 2"], "NVSHMEM sum_reduce"),
            line("NCCL all_reduce, from a stream", "symmetric", &["reduce", "of 2"], "NCCL all_reduce"),
        ],
    },
    Series {
        name: "barrier",
        corner: "p50 / p99, us",
        columns: &MEMBERS,
        lines: &[
            line("barrier", "symmetric", &["barrier, "], "barrier"),
            line(
                "`std::sync::Barrier` of as many threads",
                "symmetric",
                &["barrier, "],
                "std::sync::Barrier",
            ),
            line("NVSHMEM barrier_all", "symmetric", &["barrier, "], "NVSHMEM barrier_all"),
            line("a flag, one way, both ends spin", "symmetric", &["barrier, "], "a flag, one way"),
        ],
    },
];

/// Examples for the tour.
pub const PRINTED: [Printed; 9] = [
    Printed { name: "printed-records", of: ("records", &[]), rows: &[] },
    Printed { name: "printed-calls", of: ("calls", &[]), rows: &[] },
    Printed { name: "printed-handoff", of: ("handoff", &[]), rows: &[] },
    Printed {
        name: "printed-latency",
        of: ("latency", GPU_TO_GPU),
        rows: &[
            "flags alone, the receiver's memory",
            "64 B and flag, copied out, the receiver's memory",
            "64 B, NVSHMEM put_signal, 128 threads",
            "64 B, NCCL send/recv",
            "64 B, block of 128",
            "64 B, warp of 32",
            "64 B, thread of 32",
        ],
    },
    Printed {
        name: "printed-bandwidth",
        of: ("bandwidth", GPU_TO_GPU),
        rows: &[
            "16 blocks copy into the receiver's memory",
            "16 blocks, NVSHMEM put, 512 threads, 1 MiB a call",
            "1 pair, 1 MiB a call",
            "16 pairs, 1 MiB a call",
            "1 pair, 1 MiB a call, zero-copy",
            "2 pairs, 1 MiB a call, half of them the other way",
        ],
    },
    Printed {
        name: "printed-connect",
        of: ("connect", CONNECTS_OF_BLOCKS),
        rows: &["1 pair, connect", "1 pair, accept to first byte", "16 pairs, connections"],
    },
    Printed {
        name: "printed-silent",
        of: ("idle", OF_THE_PROXY),
        rows: &["1000 silent sockets over tcp", "1000 silent sockets over tcp, Config::latency 100 us"],
    },
    Printed {
        name: "printed-silence",
        of: ("idle", BLOCK_SILENCE),
        rows: &[
            "after 5 ms, round trip, block",
            "after 200 ms, round trip, block",
            "after 200 ms, round trip, block, Config::latency 100 us",
        ],
    },
    Printed {
        name: "printed-scale",
        of: ("scale", ONE_BUSY_PAIR),
        rows: &[
            "2 sockets, round trip",
            "1000 sockets, round trip",
            "1000 sockets, the proxy's threads, a message",
            "1000 sockets, this process's memory, a connection",
        ],
    },
];
