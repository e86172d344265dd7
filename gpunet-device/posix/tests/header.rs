//! `include/gpunet.h`, `include/gpunet_team.h`, `include/gpunet_http.h`, `include/gpunet_calls.h`
//! and `include/gpunet_types.h` against what they declare: the functions of the shipped PTX, and
//! Linux's numbers.
//!
//! nvcc is not needed: the files are text. (That nvcc and NVRTC take the header is a matter for a
//! machine that has them; see `gpunet-proxy/examples/cuda_echo_client`.)

use gpunet_calls::{Bytes, Caller, Calls, Ticket, number_of};
use gpunet_device::poll::POLLRDHUP;
use gpunet_device::poll_group::Event;
use gpunet_device::team::MAX_VALUE;
use gpunet_device::{Direction, Gate, Net, Prepared, SymmetricPtr, TeamHandle, Timeout, Trigger};
use gpunet_http::alone::{self, Part, Parts};
use gpunet_http::{Limits, Method};
use gpunet_posix::open::{self, CallOptions};
use gpunet_posix::{SOCKET_TIMEOUT, epoll, ioctl, options, socket, team};
use std::collections::BTreeMap;

const HEADER: &str = include_str!("../include/gpunet.h");
const TEAM: &str = include_str!("../include/gpunet_team.h");
const HTTP: &str = include_str!("../include/gpunet_http.h");
const CALLS: &str = include_str!("../include/gpunet_calls.h");
const TYPES: &str = include_str!("../include/gpunet_types.h");
const NAMES: &str = include_str!("../include/gpunet/names.h");
const TEAM_NAMES: &str = include_str!("../include/gpunet/team_names.h");
const PTX: &str = include_str!("../../ptx/gpunet_device.ptx");

/// By function: its parameters and, last, what it returns, in bits.
type Signatures = BTreeMap<String, Vec<u32>>;

/// What a call is given first.
#[derive(Clone, Copy)]
enum First {
    Net,
    Team,
    Request,
}

/// One `GPUNET_CALL` or `GPUNET_TEAM_CALL` of the headers.
struct Call {
    first: First,
    returned: String,
    name: String,
    parameters: Vec<String>,
}

fn calls() -> Vec<Call> {
    let table = |header: &'static str| header.split_once("extern \"C\" {\n#endif").unwrap().1;
    let of = |header, mark: &'static str| {
        table(header).split(mark).skip(1).map(|rest| &rest[..rest.find(");").unwrap()])
    };
    let sockets = of(HEADER, "GPUNET_CALL(").map(|call| (First::Net, call));
    let teams = of(TEAM, "GPUNET_TEAM_CALL(").chain(of(TEAM, "GPUNET_TEAM_CALL0("));
    let http = of(HTTP, "GPUNET_HTTP_CALL(").map(|call| (First::Net, call));
    let requests = of(HTTP, "GPUNET_HTTP_CALL0(").map(|call| (First::Request, call));
    let calls = of(CALLS, "GPUNET_CALLS_CALL(").map(|call| (First::Net, call));
    sockets
        .chain(calls)
        .chain(http.chain(requests))
        .chain(teams.map(|call| (First::Team, call)))
        .map(|(first, call)| {
            let mut parts = call.split(',').map(|part| part.trim().to_owned());
            let mut next = || parts.next().unwrap();
            let (returned, name) = (next(), next());
            Call { first, returned, name, parameters: parts.collect() }
        })
        .collect()
}

/// What nvcc makes of the tables.
fn declared() -> Signatures {
    let mut declared = Signatures::new();
    for call in calls() {
        let bits: Vec<_> = call.parameters.iter().chain([&call.returned]).map(|c| bits_of_c(c)).collect();
        let first = match call.first {
            First::Net | First::Request => 64,
            First::Team => 8 * size_of::<TeamHandle>() as u32,
        };
        declared.insert(call.name, [vec![first], bits].concat());
    }
    declared
}

fn bits_of_c(parameter: &str) -> u32 {
    let parameter = parameter.split("GPUNET_OR").next().unwrap().trim();
    if parameter.contains('*') || parameter.contains("long long") {
        return 64;
    }
    let by_value = [
        ("gpunet_trigger_t ", 128),
        ("gpunet_gate_t ", 128),
        ("gpunet_prepared_t ", 192),
        ("gpunet_symmetric_t ", 256),
        ("gpunet_calls_t ", 256),
    ];
    if let Some((_, bits)) = by_value.iter().find(|(kind, _)| parameter.starts_with(kind)) {
        return *bits;
    }
    let known = ["int", "unsigned int", "socklen_t"];
    let is = |c: &&str| parameter == *c || parameter.rsplit_once(' ').is_some_and(|(kind, _)| kind == *c);
    assert!(known.iter().any(is), "a type that this test does not know: {parameter:?}");
    32
}

/// What rustc made of the exported functions.
fn exported() -> Signatures {
    // The head of each function, of a declaration ahead of the function, too.
    let functions = PTX.split(".visible .func").skip(1).map(|rest| rest.split(['{', ';']).next().unwrap());
    functions
        .map(|function| {
            let (returned, rest) = function.split_once(')').unwrap();
            let (name, parameters) = rest.split_once('(').unwrap();
            let parameters = parameters.split(',').filter(|one| one.contains(".param"));
            let bits = parameters.chain([returned]).map(bits_of_ptx).collect();
            (name.trim().to_owned(), bits)
        })
        .collect()
}

fn bits_of_ptx(parameter: &str) -> u32 {
    // A structure by value: `.param .align 8 .b8 name[16]`.
    if let Some((_, bytes)) = parameter.split_once(".b8 ").and_then(|(_, rest)| rest.split_once('[')) {
        return 8 * bytes.split(']').next().unwrap().parse::<u32>().unwrap();
    }
    match (parameter.contains(".b64"), parameter.contains(".b32")) {
        (true, false) => 64,
        (false, true) => 32,
        _ => panic!("neither .b32 nor .b64: {parameter:?}"),
    }
}

#[test]
fn the_headers_declare_what_the_ptx_exports() {
    let (declared, exported) = (declared(), exported());
    assert!(declared.len() > 130, "the headers were not read");
    assert_eq!(declared, exported);
}

/// `gsend` is `gpunet_send` for the module's context, and GPUnet's `single_thread_gclose` is
/// `gpunet_close_thread`: with the same parameters and defaults, handed on in their order.
#[test]
fn gpunets_names_are_functions_of_the_headers() {
    let lines = |header: &'static str| header.lines().filter_map(|line| line.strip_prefix("GPUNET_NAME "));
    let names: Vec<_> = lines(NAMES).chain(lines(TEAM_NAMES)).collect();
    // Those of HTTP, and calls of the host, have one name.
    let short = |call: &Call| !["gpunet_http_", "gpunet_call"].iter().any(|with| call.name.starts_with(with));
    let calls: Vec<_> = calls().into_iter().filter(short).collect();
    assert_eq!(names.len(), calls.len());
    for call in calls {
        let short = call.name.strip_prefix("gpunet_").unwrap();
        let module = match call.first {
            First::Net => "gpunet_attachment",
            First::Team => "gpunet_team",
            First::Request => unreachable!("no short name"),
        };
        let argument = |one: &String| {
            let declared = one.split(" GPUNET_OR").next().unwrap();
            declared.rsplit([' ', '*']).next().unwrap().to_owned()
        };
        let given = std::iter::once(module.to_owned()).chain(call.parameters.iter().map(argument));
        let given = given.collect::<Vec<_>>().join(", ");
        let parameters =
            if call.parameters.is_empty() { "void".to_owned() } else { call.parameters.join(", ") };
        let gap = if call.returned.ends_with('*') { "" } else { " " };
        let of = |gpunets: String| {
            format!("{}{gap}{gpunets}({parameters}) {{ return {}({given}); }}", call.returned, call.name)
        };
        let single = short.strip_suffix("_thread").map(|plain| of(format!("single_thread_g{plain}")));
        let found = names
            .iter()
            .filter(|name| **name == of(format!("g{short}")) || single.as_deref() == Some(**name));
        assert_eq!(found.count(), 1, "{}", call.name);
    }
}

#[test]
fn the_ptx_has_the_variables_that_a_host_binds() {
    assert!(PTX.contains(".visible .global .align 8 .b8 gpunet_attachment[8];"));
    assert!(PTX.contains(".visible .global .align 8 .b8 gpunet_team[32];"));
    assert!(PTX.contains(".visible .global .align 8 .b8 gpunet_heap[32];"));
}

/// The numbers that the header gives where there are no system headers.
fn numbers() -> BTreeMap<&'static str, i32> {
    let own = HEADER.split("#else").nth(1).unwrap().split("#endif").next().unwrap();
    let enums = own.split("enum {").skip(1).map(|rest| rest.split('}').next().unwrap());
    enums
        .flat_map(|body| body.split(','))
        .map(|one| {
            let (name, value) = one.split_once('=').unwrap();
            (name.trim(), number(value.trim()))
        })
        .collect()
}

fn number(text: &str) -> i32 {
    let parsed = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(hex), _) => i32::from_str_radix(hex, 16),
        (_, Some(octal)) if !octal.is_empty() => i32::from_str_radix(octal, 8),
        _ => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("not a number: {text}"))
}

macro_rules! linux {
    ($($name:ident),* $(,)?) => { BTreeMap::from([$((stringify!($name), libc::$name as i32)),*]) };
}

#[test]
fn the_headers_own_numbers_are_linuxs() {
    let linux = linux![
        AF_INET,
        AF_INET6,
        SOCK_STREAM,
        SOCK_NONBLOCK,
        IPPROTO_TCP,
        IPPROTO_IPV6,
        MSG_PEEK,
        MSG_DONTWAIT,
        MSG_WAITALL,
        MSG_MORE,
        SHUT_RD,
        SHUT_WR,
        SHUT_RDWR,
        POLLIN,
        POLLOUT,
        POLLERR,
        POLLHUP,
        POLLNVAL,
        SOL_SOCKET,
        SO_REUSEADDR,
        SO_TYPE,
        SO_ERROR,
        SO_SNDBUF,
        SO_RCVBUF,
        SO_KEEPALIVE,
        SO_LINGER,
        SO_RCVLOWAT,
        SO_SNDLOWAT,
        SO_RCVTIMEO,
        SO_SNDTIMEO,
        SO_ACCEPTCONN,
        TCP_NODELAY,
        IPV6_V6ONLY,
        FIONREAD,
        TIOCOUTQ,
        FIONBIO,
        ENOENT,
        EBADF,
        EAGAIN,
        EFAULT,
        EEXIST,
        EINVAL,
        ENFILE,
        EMFILE,
        ENOSPC,
        EPIPE,
        ENAMETOOLONG,
        ENODATA,
        EPROTO,
        EMSGSIZE,
        EADDRINUSE,
        EADDRNOTAVAIL,
        ENETDOWN,
        ECONNRESET,
        ENOBUFS,
        ENOTCONN,
        ETIMEDOUT,
        ECONNREFUSED,
        EALREADY,
        ECANCELED,
    ];
    assert_eq!(numbers(), linux);
}

#[test]
fn the_headers_names_of_gpunets_own_are_the_librarys() {
    let own = [
        ("GPUNET_PROTO_PEER", socket::PROTO_PEER),
        ("GPUNET_PROTO_RC", socket::PROTO_RC),
        ("SOL_GPUNET", options::SOL_GPUNET),
        ("GPUNET_NONBLOCK", options::GPUNET_NONBLOCK),
        ("GPUNET_TRANSPORT", options::GPUNET_TRANSPORT),
        ("GPUNET_LINES", options::GPUNET_LINES),
        ("GPUNET_SPACE", ioctl::GPUNET_SPACE as i32),
        ("GPUNET_POLLRDHUP", i32::from(POLLRDHUP)),
        ("GPUNET_EPOLL_ADD", epoll::GPUNET_EPOLL_ADD),
        ("GPUNET_EPOLL_DEL", epoll::GPUNET_EPOLL_DEL),
        ("GPUNET_EPOLL_MOD", epoll::GPUNET_EPOLL_MOD),
        ("GPUNET_EPOLL_REARM", epoll::GPUNET_EPOLL_REARM),
        ("GPUNET_DELAY", open::DELAY as i32),
        ("GPUNET_EXCLUSIVE", open::EXCLUSIVE as i32),
        ("GPUNET_KEEPALIVE", open::KEEPALIVE as i32),
        ("GPUNET_V6ONLY", open::V6ONLY as i32),
        ("GPUNET_NO_WAIT", open::NONBLOCK as i32),
        ("GPUNET_LINGER", open::LINGER as i32),
    ];
    for (name, value) in own {
        let line = HEADER
            .lines()
            .chain(TYPES.lines())
            .find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name));
        let found = line.map(|rest| number(rest.split("/*").next().unwrap().trim().trim_end_matches('u')));
        assert_eq!(found, Some(value), "{name}");
    }
}

#[test]
fn the_headers_timeout_of_a_socket_is_the_librarys() {
    assert!(TYPES.contains("#define GPUNET_SOCKET_TIMEOUT (-0x7fffffffffffffffll - 1)"));
    assert_eq!(SOCKET_TIMEOUT, -0x7fff_ffff_ffff_ffff - 1);
}

/// The fields of a structure of the header with their offsets, and its size.
fn layout(structure: &str) -> (Vec<(&'static str, usize)>, usize) {
    let header = if structure.starts_with("gpunet_http") { HTTP } else { TYPES };
    let (_, rest) = header.split_once(&format!("struct {structure} {{")).unwrap();
    let (mut at, mut offsets) = (0, Vec::new());
    for line in rest[..rest.find('}').unwrap()].lines() {
        let Some((kind, name)) = line.split(';').next().and_then(|field| field.trim().rsplit_once(' '))
        else {
            continue;
        };
        offsets.push((name, at));
        at += match kind {
            long if long.contains("long long") => 8,
            "struct gpunet_span" => 32,
            "struct gpunet_http_part" => 8,
            short if short.contains("short") => 2,
            _ => 4,
        };
    }
    (offsets, at)
}

/// The same of a structure of the library.
macro_rules! library {
    ($of:ident: $($name:ident),* $(,)?) => {
        (vec![$((stringify!($name), std::mem::offset_of!($of, $name))),*], size_of::<$of>())
    };
}

#[test]
fn the_headers_prepared_values_have_the_librarys_fields_in_their_order() {
    assert_eq!(layout("gpunet_trigger"), library![Trigger: socket, direction, position]);
    assert_eq!(layout("gpunet_gate"), library![Gate: socket, direction, position]);
    assert_eq!(layout("gpunet_prepared"), library![Prepared: socket, direction, position, len]);
    assert_eq!((Direction::Send as u32, Direction::Recv as u32), (0, 1));
    assert!(TYPES.contains("#define GPUNET_SEND 0u") && TYPES.contains("#define GPUNET_RECV 1u"));
}

#[test]
fn the_headers_options_have_the_librarys_fields_in_their_order() {
    let library = library![
        CallOptions: send_ring,
        recv_ring,
        send_timeout_ns,
        recv_timeout_ns,
        transport,
        linger_ms,
        flags,
        reserved,
    ];
    assert_eq!(layout("gpunet_options"), library);
}

#[test]
fn the_headers_http_has_the_librarys_fields_in_their_order() {
    assert_eq!(layout("gpunet_http_limits"), library![Limits: request_line, head, fields, body, request_ns]);
    assert_eq!(layout("gpunet_http_part"), library![Part: at, len]);
    // The parts lie behind the span, and the state behind them.
    let (fields, size) = layout("gpunet_http_request");
    let (parts, parts_size) = library![Parts: len, path, query, fields, body, method, flags];
    let parts = parts.into_iter().map(|(name, at)| (name, 32 + at));
    let own = [("state", 32 + parts_size), ("reserved", 36 + parts_size)];
    let expected: Vec<_> = std::iter::once(("bytes", 0)).chain(parts).chain(own).collect();
    assert_eq!((fields, size), (expected, 40 + parts_size));
    for (name, value) in [
        ("GET", Method::Get as u32),
        ("HEAD", Method::Head as u32),
        ("POST", Method::Post as u32),
        ("PUT", Method::Put as u32),
        ("DELETE", Method::Delete as u32),
        ("PATCH", Method::Patch as u32),
        ("OPTIONS", Method::Options as u32),
        ("IS_11", alone::IS_11),
        ("CLOSES", alone::CLOSES),
    ] {
        assert!(HTTP.contains(&format!("#define GPUNET_HTTP_{name} {value}u")), "{name}");
    }
}

#[test]
fn the_headers_calls_have_the_librarys_sizes_and_numbers() {
    let size = |structure: &str, header: &'static str| {
        let (_, rest) = header.split_once(&format!("struct {structure} {{")).unwrap();
        let lines = rest[..rest.find('}').unwrap()].lines().skip(1).filter(|line| line.contains(';'));
        let bytes = |line: &str| match line.trim().split_once(' ').unwrap() {
            ("gpunet_calls_t", _) => size_of::<Calls>(),
            ("gpunet_net_t", _) => 8,
            (_, rest) if rest.starts_with("long long") => 8,
            (_, rest) => {
                assert!(rest.starts_with("int"), "{rest}");
                4
            }
        };
        lines.map(bytes).sum::<usize>()
    };
    assert_eq!(size("gpunet_calls_t", TYPES), size_of::<Calls>());
    assert_eq!(size("gpunet_caller", CALLS), size_of::<Caller>());
    assert_eq!(size("gpunet_ticket", CALLS), size_of::<Ticket<Bytes>>());
    // What gpunet_function computes.
    let hash = "look_up"
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    assert_eq!(number_of("look_up"), 1 << 30 | hash >> 2);
    for part in ["0x811c9dc5u", "0x01000193u", "return 1u << 30 | hash >> 2;"] {
        assert!(CALLS.contains(part), "{part}");
    }
}

#[test]
fn the_headers_event_has_the_librarys_fields_in_their_order() {
    let (fields, size) = layout("gpunet_event");
    let of_c = |name| if name == "handle" { "socket" } else { name };
    let (library, library_size) = library![Event: token, handle, revents, reserved, turn];
    assert_eq!(fields, library.iter().map(|&(name, at)| (of_c(name), at)).collect::<Vec<_>>());
    assert_eq!(size, library_size);
}

#[test]
fn the_headers_team_and_memory_have_the_librarys_fields_in_their_order() {
    const { assert!(size_of::<TeamHandle>() == 32 && size_of::<SymmetricPtr<u8>>() == 32) };
    // SAFETY: no call is made with them.
    let (handle, memory) = unsafe {
        let handle = TeamHandle::from_raw(Net::from_raw(1), 2, 4, 5).timeout(Timeout::ns(3));
        (handle, SymmetricPtr::<u8>::from_raw_parts(1, 2, 100).slice(3, 4))
    };
    // SAFETY: 32 bytes of numbers, without padding.
    let words = unsafe {
        [
            std::mem::transmute::<TeamHandle, [u64; 4]>(handle),
            std::mem::transmute::<SymmetricPtr<u8>, [u64; 4]>(memory),
        ]
    };
    assert_eq!(words, [[1, 2, 3, 4 | 5 << 32], [1, 2, 3, 4]]);
    let fields = |structure: &str| {
        let (_, rest) = TYPES.split_once(&format!("struct {structure} {{")).unwrap();
        let lines = rest[..rest.find('}').unwrap()].lines().skip(1);
        let fields: Vec<_> = lines.map(|line| line.split(';').next().unwrap().trim()).collect();
        fields.join(", ")
    };
    assert_eq!(
        fields("gpunet_team_t"),
        "unsigned long long net, unsigned long long state, unsigned long long timeout_ns, unsigned int rank, unsigned int size"
    );
    assert_eq!(
        fields("gpunet_symmetric_t"),
        "unsigned long long team, unsigned long long parts, unsigned long long offset, unsigned long long len"
    );
}

#[test]
fn the_headers_names_of_reductions_are_the_librarys() {
    let own = [
        ("GPUNET_SUM", team::SUM),
        ("GPUNET_MIN", team::MIN),
        ("GPUNET_MAX", team::MAX),
        ("GPUNET_INT32", team::INT32),
        ("GPUNET_UINT32", team::UINT32),
        ("GPUNET_INT64", team::INT64),
        ("GPUNET_UINT64", team::UINT64),
        ("GPUNET_FLOAT", team::FLOAT),
        ("GPUNET_DOUBLE", team::DOUBLE),
        ("GPUNET_HALF", team::HALF),
        ("GPUNET_BFLOAT16", team::BFLOAT16),
    ];
    for (name, value) in own {
        assert!(TYPES.contains(&format!("#define {name} {value}\n")), "{name}");
    }
    assert!(TYPES.contains("#define GPUNET_MAX_SIGNAL 0x1fffffffffffffffull\n"));
    assert_eq!(MAX_VALUE, 0x1fff_ffff_ffff_ffff);
}
