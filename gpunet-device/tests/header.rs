//! `include/gpunet.h` against what it declares: the functions of the shipped PTX, and Linux's numbers.
//!
//! nvcc is not needed: both files are text. (That nvcc and NVRTC take the header is a matter for a
//! machine that has them; see `gpunet-proxy/examples/cuda_echo_client`.)

use gpunet_device::posix::{options, socket};
use std::collections::BTreeMap;

const HEADER: &str = include_str!("../include/gpunet.h");
const PTX: &str = include_str!("../ptx/gpunet_device.ptx");

/// By function: its parameters and, last, what it returns, in bits.
type Signatures = BTreeMap<String, Vec<u32>>;

/// What nvcc makes of `__device__ int gsend(int socket, const void *data, ...);`.
fn declared() -> Signatures {
    let text: String = HEADER.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let declarations = text.split("__device__ ").skip(1).map(|rest| &rest[..rest.find(");").unwrap()]);
    declarations
        .map(|declaration| {
            let (head, parameters) = declaration.split_once('(').unwrap();
            let (returned, name) = head.rsplit_once(' ').unwrap();
            let bits = parameters.split(',').chain([returned]).map(bits_of_c).collect();
            (name.to_owned(), bits)
        })
        .collect()
}

fn bits_of_c(parameter: &str) -> u32 {
    let parameter = parameter.split('=').next().unwrap().trim();
    if parameter.contains('*') || parameter.contains("long long") {
        return 64;
    }
    let known = ["int", "unsigned int", "socklen_t"];
    let is = |c: &&str| parameter == *c || parameter.rsplit_once(' ').is_some_and(|(kind, _)| kind == *c);
    assert!(known.iter().any(is), "a type that this test does not know: {parameter:?}");
    32
}

/// What rustc made of the exported functions.
fn exported() -> Signatures {
    let functions = PTX.split(".visible .func").skip(1).map(|rest| &rest[..rest.find('{').unwrap()]);
    functions
        .map(|function| {
            let (returned, rest) = function.split_once(')').unwrap();
            let (name, parameters) = rest.split_once('(').unwrap();
            let bits = parameters.split(',').chain([returned]).map(bits_of_ptx).collect();
            (name.trim().to_owned(), bits)
        })
        .collect()
}

fn bits_of_ptx(parameter: &str) -> u32 {
    match (parameter.contains(".b64"), parameter.contains(".b32")) {
        (true, false) => 64,
        (false, true) => 32,
        _ => panic!("neither .b32 nor .b64: {parameter:?}"),
    }
}

#[test]
fn the_header_declares_what_the_ptx_exports() {
    let (declared, exported) = (declared(), exported());
    assert!(declared.len() > 30, "the header was not read");
    assert_eq!(declared, exported);
}

#[test]
fn the_ptx_has_the_variable_that_a_host_binds() {
    assert!(PTX.contains(".visible .global .align 8 .b8 gpunet_attachment[8];"));
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
        SO_RCVTIMEO,
        SO_SNDTIMEO,
        SO_ACCEPTCONN,
        TCP_NODELAY,
        IPV6_V6ONLY,
        FIONREAD,
        TIOCOUTQ,
        FIONBIO,
        EBADF,
        EAGAIN,
        EINVAL,
        ENFILE,
        EMFILE,
        EPIPE,
        EPROTO,
        EADDRINUSE,
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
    ];
    for (name, value) in own {
        let line = HEADER.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name));
        assert_eq!(line.map(|rest| number(rest.trim())), Some(value), "{name}");
    }
}
