//! Pins the shared-memory instructions of the shipped PTX. Needs nothing but `cargo test`: it reads
//! the checked-in files.
//!
//! A missing file is a failure. `cargo run -p gpunet-build-ptx` makes them.

use std::path::{Path, PathBuf};

use gpunet_build_ptx::shipped::{self, SHIPPED};
use gpunet_build_ptx::text::{Function, Instruction, Module};
use gpunet_build_ptx::{lint, report};

fn root() -> PathBuf {
    shipped::workspace_root(Path::new(env!("CARGO_MANIFEST_DIR")))
        .expect("this package lies in the gpunet workspace")
}

fn read(output: &str) -> String {
    let path = root().join(output);
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{output}: {error}; make it with `cargo run -p gpunet-build-ptx`"))
}

fn device() -> Module {
    Module::parse(&read("gpunet-device/ptx/gpunet_device.ptx"))
}

fn opcodes<'a>(functions: &[&'a Function]) -> Vec<&'a str> {
    functions.iter().flat_map(|f| &f.instructions).map(|i| i.opcode.as_str()).collect()
}

/// Whether `opcode` is `head`, in any state space, on 64 bits.
fn is_u64(opcode: &str, head: &str) -> bool {
    opcode
        .strip_prefix(head)
        .is_some_and(|rest| matches!(rest, ".b64" | ".u64" | ".global.b64" | ".global.u64"))
}

#[test]
fn every_shipped_file_meets_every_lint() {
    for shipped in SHIPPED {
        let findings = lint::run(&read(shipped.output), &[]);
        assert!(findings.is_empty(), "{}:\n{}", shipped.output, report::describe(&findings));
    }
}

#[test]
fn every_shipped_file_holds_visible_functions_for_the_oldest_gpu() {
    for shipped in SHIPPED {
        let text = read(shipped.output);
        assert!(
            Module::parse(&text).functions.iter().any(|f| f.visible),
            "{} exports nothing",
            shipped.output
        );
        assert!(
            text.lines().any(|line| line.trim() == ".target sm_80"),
            "{} is not for sm_80",
            shipped.output
        );
    }
}

/// LLVM copies a structure of 128 bytes or more by a loop that moves single bytes. A request of
/// gpunet-kv once made 4,000 such moves, most of its time. (gpunet-tokens is not among them: it
/// moves 192 bytes twice when it starts, and none later.)
#[test]
fn servers_move_no_structure_byte_by_byte() {
    for output in [
        "apps/kv/ptx/gpunet_kv_kernel.ptx",
        "apps/echo/ptx/gpunet_echo_kernel.ptx",
        "apps/hello-http/ptx/gpunet_hello_http_kernel.ptx",
    ] {
        let module = Module::parse(&read(output));
        let mut found = Vec::new();
        for function in &module.functions {
            for (at, test) in function.instructions.iter().enumerate().skip(4) {
                let moves = |before: usize, head: &str| {
                    let opcode = &function.instructions[at - before].opcode;
                    opcode.starts_with(head) && opcode.ends_with(".b8")
                };
                let bytes = test.operands.rsplit(' ').next().and_then(|last| last.parse::<usize>().ok());
                let is_loop = test.opcode == "setp.lt.u64" && moves(4, "ld") && moves(2, "st");
                if let (true, Some(64..)) = (is_loop, bytes) {
                    found.push(format!("line {}: {} of {}", test.line, test.operands, function.name));
                }
            }
        }
        assert!(found.is_empty(), "{output}: pass these by reference\n{}", found.join("\n"));
    }
}

/// ptxas cannot tell how much stack a thread needs that may call a function in itself. The driver
/// then gives it 1,024 bytes, and what lies beyond is somebody else's memory.
#[test]
fn no_function_calls_itself() {
    for shipped in SHIPPED {
        let module = Module::parse(&read(shipped.output));
        for function in &module.functions {
            let called: std::collections::BTreeSet<&str> =
                function.instructions.iter().filter_map(Instruction::callee).collect();
            let calls_itself = called
                .iter()
                .any(|name| module.reachable(name).iter().any(|reached| reached.name == function.name));
            assert!(!calls_itself, "{}: {} calls itself", shipped.output, function.name);
        }
    }
}

#[test]
fn calls_that_publish_do_so_by_a_system_scope_release_store() {
    let module = device();
    for call in [
        "gpunet_send",
        "gpunet_recv",
        "gpunet_put_signal",
        "gpunet_signal_set_warp",
        "gpunet_word_set_thread",
        "gpunet_barrier",
    ] {
        let reached = module.reachable(call);
        assert!(!reached.is_empty(), "the PTX exports no {call}");
        assert!(
            opcodes(&reached).iter().any(|op| is_u64(op, "st.release.sys")),
            "{call} publishes no 64-bit word by st.release.sys"
        );
    }
}

#[test]
fn calls_that_observe_do_so_by_a_system_scope_acquire_load() {
    let module = device();
    for call in [
        "gpunet_send",
        "gpunet_recv",
        "gpunet_signal_wait",
        "gpunet_signal_test_warp",
        "gpunet_word_wait_thread",
        "gpunet_barrier",
    ] {
        let reached = module.reachable(call);
        assert!(!reached.is_empty(), "the PTX exports no {call}");
        assert!(
            opcodes(&reached).iter().any(|op| is_u64(op, "ld.acquire.sys")),
            "{call} observes no 64-bit word by ld.acquire.sys"
        );
    }
}

/// A data thread tells of space only in a ring that it saw full. So a poll for space passes a full
/// fence between what its device has published and its look at `released`, as the data thread does
/// between the two.
#[test]
fn calls_that_poll_for_space_pass_a_full_fence() {
    let module = device();
    for call in [
        "gpunet_poll",
        "gpunet_poll_warp",
        "gpunet_poll_thread",
        "gpunet_epoll_wait",
        "gpunet_epoll_wait_warp",
        "gpunet_epoll_wait_thread",
    ] {
        let reached = module.reachable(call);
        assert!(!reached.is_empty(), "the PTX exports no {call}");
        assert!(opcodes(&reached).contains(&"fence.sc.sys"), "{call} has no fence.sc.sys");
    }
}

/// A line's units are stored and loaded whole, eight bytes at once, two by one instruction, and by
/// no load that may be stale.
#[test]
fn lines_are_stored_and_loaded_by_units_of_eight_bytes() {
    let module = device();
    for (call, access, other) in [
        ("gpunet_send", "st.relaxed.sys.v2.b64", "st.relaxed.sys.v4.b32"),
        ("gpunet_send_warp", "st.relaxed.sys.v2.b64", "st.relaxed.sys.v4.b32"),
        ("gpunet_recv", "ld.relaxed.sys.v2.b64", "ld.relaxed.sys.v4.b32"),
        ("gpunet_recv_warp", "ld.relaxed.sys.v2.b64", "ld.relaxed.sys.v4.b32"),
    ] {
        let reached = module.reachable(call);
        let found = opcodes(&reached);
        assert!(found.contains(&access) && !found.contains(&other), "{call}: {access}");
    }
    // One thread uses no lines.
    assert!(!opcodes(&module.reachable("gpunet_recv_thread")).contains(&"ld.relaxed.sys.v2.b64"));
}

/// A record is stored by units, and orders nothing: a kernel that only writes records of warps
/// passes no fence, publishes nothing and meets at no barrier of its block.
#[test]
fn records_are_stored_by_units_and_order_nothing() {
    let module = Module::parse(&read("apps/watch/ptx/gpunet_watch_kernel.ptx"));
    let entry = module.functions.iter().find(|f| f.name == "gpunet_watch_flood").expect("the entry");
    let stores = |i: &Instruction| i.opcode == "st.relaxed.sys.v2.b64";
    let first = entry.instructions.iter().position(stores).expect("it stores units");
    let last = entry.instructions.iter().rposition(stores).expect("it stores units");
    assert!(last > first, "records, lines, and records of lanes");
    let found = opcodes(&[entry]);
    for (at, opcode) in found.iter().enumerate() {
        let orders =
            ["fence", "membar", "barrier", "st.release", "ld.acquire", "atom.acquire", "atom.release"];
        if orders.iter().any(|order| opcode.starts_with(order)) {
            // To take the ring and to give it back.
            let may = ["atom.acquire.gpu.cas.b64", "st.release.gpu.b64"];
            assert!(may.contains(opcode), "line {}: {opcode}", entry.instructions[at].line);
        }
    }
    assert_eq!(found.iter().filter(|op| op.starts_with("st.release")).count(), 1, "it gives the ring back");
    assert_eq!(found.iter().filter(|op| op.starts_with("atom.acquire")).count(), 1, "it takes the ring");
}

/// gpunet-diagnose's litmus test is valid for streams only if its words are published and observed
/// as theirs are.
#[test]
fn the_litmus_test_publishes_and_observes_as_sockets_do() {
    let module = Module::parse(&read("utils/diagnose/ptx/gpunet_diagnose_kernel.ptx"));
    for entry in ["gpunet_diagnose_order", "gpunet_diagnose_ring"] {
        let reached = module.reachable(entry);
        let found = opcodes(&reached);
        for head in ["st.release.sys", "st.release.gpu", "ld.acquire.sys", "ld.acquire.gpu"] {
            assert!(found.iter().any(|op| is_u64(op, head)), "{entry} has no 64-bit {head}");
        }
        assert!(found.contains(&"barrier.sync"), "{entry} has no barrier.sync");
    }
}

#[test]
fn block_calls_meet_at_unaligned_barriers() {
    let module = device();
    for call in ["gpunet_send", "gpunet_recv"] {
        let reached = module.reachable(call);
        let found = opcodes(&reached);
        assert!(found.contains(&"barrier.sync"), "{call} has no barrier.sync");
    }
}

/// What another agent reads takes system scope (the two tests above). GPU scope is for what only
/// threads of this GPU read: the locks of the C calls, the words of a stream between two of its own
/// sockets. Nothing orders by less, and nothing leaves its scope to the assembler.
#[test]
fn every_ordered_access_has_system_or_gpu_scope() {
    for shipped in SHIPPED {
        let module = Module::parse(&read(shipped.output));
        for function in &module.functions {
            for i in &function.instructions {
                let parts: Vec<_> = i.opcode.split('.').collect();
                let ordered = matches!(parts[0], "ld" | "st" | "fence")
                    && parts.iter().any(|p| matches!(*p, "acquire" | "release" | "sc" | "acq_rel"));
                assert!(
                    !ordered || parts.contains(&"sys") || parts.contains(&"gpu"),
                    "{}: line {}: `{}` in {}",
                    shipped.output,
                    i.line,
                    i.opcode,
                    function.name
                );
            }
        }
    }
}

/// Programs load some of a file's kernels, and with them whatever these reach: the same
/// instructions as in the whole file.
#[test]
fn each_kernel_alone_has_all_that_it_reaches() {
    for shipped in SHIPPED {
        let text = read(shipped.output);
        let whole = Module::parse(&text);
        for kernel in whole.functions.iter().filter(|f| f.entry) {
            let only = gpu_usermap::ptx::only_entries(&text, &[&kernel.name]);
            let alone = Module::parse(&only);
            assert_eq!(alone.functions.iter().filter(|f| f.entry).count(), 1, "{}", kernel.name);
            let reached = |module: &Module| {
                let functions = module.reachable(&kernel.name);
                functions.iter().map(|f| (f.name.clone(), f.instructions.len())).collect::<Vec<_>>()
            };
            assert_eq!(reached(&alone), reached(&whole), "{}", kernel.name);
            let declared: Vec<_> = alone.functions.iter().map(|f| f.name.as_str()).collect();
            let calls = alone.functions.iter().flat_map(|f| &f.instructions).filter_map(|i| i.callee());
            for callee in calls {
                assert!(declared.contains(&callee), "{} lacks {callee}", kernel.name);
            }
            assert_eq!(alone.private_variables, whole.private_variables, "{}", kernel.name);
        }
    }
}
