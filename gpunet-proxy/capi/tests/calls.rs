//! The C interface, called as C calls it: a kernel on the CPU, a host socket, errors. The programs
//! in `tests/c` go further; `gpunet-proxy/capi/check` runs them against an installed library.

use gpunet::*;
use gpunet_posix::capi::*;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

const SETTINGS: &CStr = c"sockets = 64\nshared_rings = 8_388_608\nrc = 'off'";

fn address(port: u16) -> libc::sockaddr_in {
    let place = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: place.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(place.ip().octets()) },
        sin_zero: [0; 8],
    }
}

const LEN: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;

/// What the kernel tells.
#[derive(Default)]
struct Told {
    port: AtomicU32,
    failed: AtomicI32,
}

/// Serves one connection.
unsafe extern "C" fn echo(net: u64, _block: u32, _blocks: u32, told: *mut c_void) {
    // SAFETY: the test's, which outlives the kernel.
    let told = unsafe { &*told.cast::<Told>() };
    let (mut at, mut len, mut bytes) = (address(0), LEN, [0_u8; 100]);
    // SAFETY: pointers to this function's own variables.
    unsafe {
        let listener = gpunet_socket(net, libc::AF_INET, libc::SOCK_STREAM, 0);
        let mut results = vec![
            gpunet_bind(net, listener, (&raw const at).cast(), LEN),
            gpunet_listen(net, listener, 1),
            gpunet_getsockname(net, listener, (&raw mut at).cast(), &raw mut len),
        ];
        told.port.store(u32::from(u16::from_be(at.sin_port)), Ordering::Release);
        let stream = gpunet_accept(net, listener, null_mut(), null_mut());
        loop {
            let n = gpunet_recv(net, stream, bytes.as_mut_ptr(), bytes.len() as u64, 0);
            if n <= 0 {
                break results.push(n as i32);
            }
            let sent = gpunet_send(net, stream, bytes.as_ptr(), n as u64, libc::MSG_WAITALL);
            results.push(i32::from(sent != n));
        }
        results.push(gpunet_close(net, stream));
        told.failed.store(results.into_iter().find(|&result| result != 0).unwrap_or(0), Ordering::Release);
    }
}

fn reason() -> String {
    // SAFETY: a text that is valid until this thread asks again.
    unsafe { CStr::from_ptr(gpunet_host_last_error()) }.to_string_lossy().into_owned()
}

#[test]
fn a_socket_of_the_host_talks_to_a_c_function() {
    let (mut proxy, mut attachment, mut token, mut socket) = (null_mut(), null_mut(), null_mut(), null_mut());
    let told = Told::default();
    // SAFETY: pointers to this function's own variables.
    unsafe {
        assert_eq!(gpunet_host_embed(SETTINGS.as_ptr(), &raw mut proxy), 0, "{}", reason());
        assert_eq!(gpunet_host_attach_cpu(proxy, &raw mut attachment), 0, "{}", reason());
        assert_eq!(gpunet_host_token(attachment, &raw mut token), 0);
        assert_eq!(gpunet_host_token_launch(token, 1, Some(echo), (&raw const told).cast_mut().cast()), 0);
        while told.port.load(Ordering::Acquire) == 0 && told.failed.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(told.failed.load(Ordering::Acquire), 0, "the kernel");
        let at = address(told.port.load(Ordering::Acquire) as u16);
        assert_eq!(gpunet_host_socket(attachment, &raw mut socket), 0);
        assert_eq!(gpunet_host_connect(socket, (&raw const at).cast(), LEN), 0, "{}", reason());
        let sent: Vec<u8> = (0..100_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
        for piece in sent.chunks(999) {
            let mut back = vec![0; piece.len()];
            assert_eq!(gpunet_host_send(socket, piece.as_ptr().cast(), piece.len(), 0), piece.len() as isize);
            let received = gpunet_host_recv(socket, back.as_mut_ptr().cast(), back.len(), libc::MSG_WAITALL);
            assert_eq!((received, &back[..]), (piece.len() as isize, piece));
        }
        assert_eq!(gpunet_host_shutdown(socket, libc::SHUT_WR), 0);
        assert_eq!(gpunet_host_recv(socket, (&raw const told).cast_mut().cast(), 1, 0), 0, "the end");
        assert_eq!(gpunet_host_close(socket), 0);
        let mut left_open = 0;
        assert_eq!(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, &raw mut left_open), 0);
        assert_eq!((left_open, told.failed.load(Ordering::Acquire)), (1, 0), "the listener");
        assert_eq!(gpunet_host_close(socket), -libc::EBADF);
        assert_eq!(reason(), "not the handle of a socket: it was closed");
        assert_eq!(gpunet_host_attachment_close(attachment, null_mut()), 0);
        assert_eq!(gpunet_host_proxy_close(proxy), 0);
    }
}

/// Counts the calls, and keeps what it is told.
unsafe extern "C" fn tell(user: *mut c_void, error: c_int) {
    // SAFETY: the test's, which waits for this call.
    let told = unsafe { &*user.cast::<Told>() };
    told.failed.store(error, Ordering::Release);
    told.port.fetch_add(1, Ordering::Release);
}

/// No queue has started it.
static UNSTARTED: gpunet_host_started =
    gpunet_host_started { queue: 0, number: 0, direction: 0, reserved: 0 };

#[test]
fn a_direction_is_taken_used_by_a_queue_and_given_back() {
    let (mut proxy, mut attachment, mut listener) = (null_mut(), null_mut(), null_mut());
    let (mut near, mut far, mut sender, mut receiver, mut queue) =
        (null_mut(), null_mut(), null_mut(), null_mut(), null_mut());
    let (mut at, mut len, told) = (address(0), LEN, Told::default());
    let options = gpunet_posix::open::CallOptions { transport: 1, ..Default::default() };
    // SAFETY: pointers to this function's own variables, which outlive the queue's operations.
    unsafe {
        assert_eq!(gpunet_host_embed(SETTINGS.as_ptr(), &raw mut proxy), 0, "{}", reason());
        assert_eq!(gpunet_host_attach_cpu(proxy, &raw mut attachment), 0, "{}", reason());
        let any = (&raw const at).cast();
        assert_eq!(
            gpunet_host_device_listen(attachment, any, LEN, &raw const options, 1, &raw mut listener),
            0
        );
        assert_eq!(gpunet_host_device_getsockname(listener, (&raw mut at).cast(), &raw mut len), 0);
        assert_eq!(gpunet_host_device_accept(listener, 5_000_000, &raw mut far), -libc::EAGAIN);
        let there = (&raw const at).cast();
        let connected = gpunet_host_device_connect(
            attachment,
            there,
            LEN,
            &raw const options,
            60_000_000_000,
            &raw mut near,
        );
        assert_eq!(connected, 0, "{}", reason());
        assert_eq!(gpunet_host_device_accept(listener, 60_000_000_000, &raw mut far), 0, "{}", reason());
        assert_eq!(gpunet_host_device_take_send(near, &raw mut sender), 0, "{}", reason());
        assert_eq!(gpunet_host_device_take_recv(far, &raw mut receiver), 0, "{}", reason());
        assert_eq!(gpunet_host_queue_cpu(attachment, &raw mut queue), 0, "{}", reason());

        let (sent, mut heard) = ([7_u8; 5000], [0_u8; 5000]);
        assert_eq!(gpunet_host_queue_send(queue, sender, sent.as_ptr().cast(), sent.len()), 0);
        assert_eq!(gpunet_host_queue_recv(queue, receiver, heard.as_mut_ptr().cast(), heard.len()), 0);
        let user = (&raw const told).cast_mut().cast();
        assert_eq!(gpunet_host_queue_notify(queue, Some(tell), user), 0, "{}", reason());
        assert_eq!(gpunet_host_queue_synchronize(queue, 60_000_000_000), 0, "{}", reason());
        assert_eq!(heard, sent);
        while told.port.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(told.failed.load(Ordering::Acquire), 0);

        // The same beside each other, and how it went.
        heard.fill(0);
        let (data, mut both, mut failed) = (heard.as_mut_ptr().cast(), [UNSTARTED; 2], 9);
        let [sending, receiving] = &mut both;
        assert_eq!(gpunet_host_queue_start_recv(queue, receiver, data, sent.len(), receiving), 0);
        assert_eq!(gpunet_host_queue_start_send(queue, sender, sent.as_ptr().cast(), sent.len(), sending), 0);
        assert_eq!(gpunet_host_queue_finish(queue, both.as_ptr(), 2), 0, "{}", reason());
        assert_eq!(gpunet_host_queue_check(queue, &raw mut failed), 0, "{}", reason());
        assert_eq!(gpunet_host_queue_synchronize(queue, 60_000_000_000), 0, "{}", reason());
        assert_eq!((heard, failed), (sent, 0));
        assert_eq!(gpunet_host_queue_finish(queue, &raw const UNSTARTED, 1), -libc::EINVAL);
        assert_eq!(reason(), "a message that is to be finished was not started on this queue");

        // A kernel has the directions again once they are given back.
        let (mut token, number) = (null_mut(), gpunet_host_device_number(near));
        assert_eq!(gpunet_host_token(attachment, &raw mut token), 0);
        let net = gpunet_host_token_net(token);
        let send = || gpunet_send(net, number, sent.as_ptr(), 9, libc::MSG_WAITALL);
        assert_eq!(send(), -i64::from(libc::EALREADY));
        assert_eq!(gpunet_host_token_finish(token, GPUNET_HOST_KEEP, null_mut()), 0);
        assert_eq!(gpunet_host_sender_give_back(sender), 0, "{}", reason());
        assert_eq!(gpunet_host_token(attachment, &raw mut token), 0);
        let net = gpunet_host_token_net(token);
        let send = || gpunet_send(net, number, sent.as_ptr(), 9, libc::MSG_WAITALL);
        assert_eq!(send(), 9);
        assert_eq!(gpunet_host_queue_recv(queue, receiver, heard.as_mut_ptr().cast(), 9), 0);
        assert_eq!(gpunet_host_queue_synchronize(queue, 60_000_000_000), 0, "{}", reason());
        assert_eq!(gpunet_host_token_finish(token, GPUNET_HOST_KEEP, null_mut()), 0);
        assert_eq!(gpunet_host_queue_destroy(queue), 0);
        assert_eq!(gpunet_host_receiver_give_back(receiver), 0, "{}", reason());
        for socket in [near, far, listener] {
            assert_eq!(gpunet_host_device_close(socket), 0);
        }
        assert_eq!(gpunet_host_device_number(near), -libc::EBADF);
        assert_eq!(gpunet_host_attachment_close(attachment, null_mut()), 0);
        assert_eq!(gpunet_host_proxy_close(proxy), 0);
    }
    assert_eq!(told.port.load(Ordering::Acquire), 1, "called once");
}

#[test]
fn code_above_the_library_says_why_it_failed() {
    // SAFETY: texts that live for the calls; a null handle is refused.
    unsafe {
        assert_eq!(gpunet_host_proxy_close(null_mut()), -libc::EBADF);
        assert_ne!(reason(), "");
        assert_eq!(gpunet_host_set_last_error(c"CUDA is out of memory".as_ptr()), 0);
        assert_eq!(reason(), "CUDA is out of memory");
        assert_eq!(gpunet_host_set_last_error(null()), 0);
        assert_eq!(reason(), "");
        assert_eq!(gpunet_host_proxy_close(null_mut()), -libc::EBADF);
        assert_ne!(reason(), "");
    }
}

#[test]
fn a_queue_is_asked_without_waiting() {
    let (mut proxy, mut attachment, mut queue, mut word) = (null_mut(), null_mut(), null_mut(), 0_u64);
    let mut outcome = gpunet_host_queue_report { done: 0, operation: 0, bytes: 0, error: 0, reserved: 0 };
    // SAFETY: pointers to this function's own variables, which outlive the queue's operations.
    unsafe {
        assert_eq!(gpunet_host_embed(SETTINGS.as_ptr(), &raw mut proxy), 0, "{}", reason());
        assert_eq!(gpunet_host_attach_cpu(proxy, &raw mut attachment), 0, "{}", reason());
        assert_eq!(gpunet_host_queue_cpu(attachment, &raw mut queue), 0, "{}", reason());
        let ask_often = || (0..100).map(|_| gpunet_host_queue_synchronize(queue, 0)).collect::<Vec<_>>();
        assert_eq!(ask_often(), [0; 100], "nothing was enqueued");
        assert_eq!(gpunet_host_queue_wait_word(queue, &raw mut word, 1), 0);
        assert_eq!(ask_often(), [-libc::ETIMEDOUT; 100]);
        assert_eq!(reason(), "the queue has operations under way after 0ns");
        std::sync::atomic::AtomicU64::from_ptr(&raw mut word).store(1, Ordering::Release);
        assert_eq!(gpunet_host_queue_synchronize(queue, -1), 0, "{}", reason());
        assert_eq!(ask_often(), [0; 100], "all is done");
        assert_eq!(gpunet_host_queue_outcome(queue, &raw mut outcome), 0);
        assert_eq!((outcome.done, outcome.error), (2, 0), "to ask is no operation");
        assert_eq!(gpunet_host_queue_destroy(queue), 0);
        assert_eq!(gpunet_host_attachment_close(attachment, null_mut()), 0);
        assert_eq!(gpunet_host_proxy_close(proxy), 0);
    }
}

#[test]
fn settings_of_a_queue_are_checked() {
    let (mut proxy, mut attachment, mut queue, mut word) = (null_mut(), null_mut(), null_mut(), 0_u64);
    let fine = || gpunet_host_queue_settings { short_bytes: 0, fragment_bytes: 0, depth: 0, flags: 0 };
    // SAFETY: pointers to this function's own variables; the stream is not used where there is no
    // GPU.
    unsafe {
        assert_eq!(gpunet_host_embed(SETTINGS.as_ptr(), &raw mut proxy), 0, "{}", reason());
        assert_eq!(gpunet_host_attach_cpu(proxy, &raw mut attachment), 0, "{}", reason());
        let stream = (&raw mut word).cast();
        for (settings, errno, text) in [
            (fine(), libc::EOPNOTSUPP, "gpunet_host_queue_cpu"),
            (gpunet_host_queue_settings { depth: 64, flags: 2, ..fine() }, libc::EOPNOTSUPP, "streams"),
            (gpunet_host_queue_settings { depth: 65, ..fine() }, libc::EINVAL, "at most 64"),
            (gpunet_host_queue_settings { flags: 4, ..fine() }, libc::EINVAL, "flags is"),
            (
                gpunet_host_queue_settings { flags: 1, short_bytes: 1, ..fine() },
                libc::EINVAL,
                "short_bytes is 0",
            ),
        ] {
            let made = gpunet_host_queue_cuda_with(attachment, stream, &raw const settings, &raw mut queue);
            assert_eq!(made, -errno, "{}", reason());
            assert!(reason().contains(text), "{}", reason());
        }
        assert_eq!(gpunet_host_queue_cuda(attachment, stream, &raw mut queue), -libc::EOPNOTSUPP);
        assert!(queue.is_null());
        assert_eq!(gpunet_host_attachment_close(attachment, null_mut()), 0);
        assert_eq!(gpunet_host_proxy_close(proxy), 0);
    }
}

/// Takes an event of the log.
unsafe extern "C" fn log(_: c_int, _: *const c_char, _: *const c_char, _: *mut c_void) {}

#[test]
fn a_program_that_logs_itself_is_told_so_each_time() {
    tracing::subscriber::set_global_default(tracing_subscriber::registry()).expect("the first");
    for _ in 0..2 {
        // SAFETY: a function that ignores its arguments.
        let set = unsafe { gpunet_host_set_log(GPUNET_HOST_LOG_INFO, Some(log), null_mut()) };
        assert_eq!(set, -libc::EBUSY);
        assert_eq!(reason(), "the program has a subscriber for tracing's events already");
    }
}

#[test]
fn what_is_wrong_is_an_errno_and_a_reason() {
    let mut proxy = null_mut();
    // SAFETY: texts, and a pointer to this function's own variable.
    unsafe {
        assert_eq!(gpunet_host_embed(c"threads = 17".as_ptr(), &raw mut proxy), -libc::EINVAL);
        assert_eq!(reason(), "bad setting: threads = 17; expected 1 to 16, or 0: automatic");
        assert_eq!(gpunet_host_attach(c"/run/nobody".as_ptr(), null(), &raw mut proxy), -libc::ENOENT);
        assert!(reason().contains("start gpunetd"), "{}", reason());
        assert_eq!(gpunet_host_attach_cpu(null(), &raw mut proxy as *mut _), -libc::EBADF);
        assert_eq!(reason(), "not the handle of a proxy: it is null");
        assert!(proxy.is_null());
    }
}

#[test]
fn what_cannot_be_reached_or_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("bound").port();
    let at = address(port);
    let (mut proxy, mut attachment, mut socket, mut listener) =
        (null_mut(), null_mut(), null_mut(), null_mut());
    // SAFETY: pointers to this function's own variables.
    unsafe {
        assert_eq!(gpunet_host_embed(SETTINGS.as_ptr(), &raw mut proxy), 0, "{}", reason());
        assert_eq!(gpunet_host_attach_cpu(proxy, &raw mut attachment), 0, "{}", reason());
        assert_eq!(gpunet_host_socket(attachment, &raw mut socket), 0, "{}", reason());
        assert_eq!(gpunet_host_bind(socket, (&raw const at).cast(), LEN), 0);
        assert_eq!(gpunet_host_listen(socket, 1), -libc::EADDRINUSE);
        let prefix = format!("127.0.0.1:{port}: ");
        assert!(reason().starts_with(&prefix), "{}", reason());
        let listened =
            gpunet_host_device_listen(attachment, (&raw const at).cast(), LEN, null(), 1, &raw mut listener);
        assert_eq!(listened, -libc::EADDRINUSE);
        assert!(reason().starts_with(&prefix), "{}", reason());
        assert_eq!(gpunet_host_close(socket), 0);
        drop(taken);
        assert_eq!(gpunet_host_socket(attachment, &raw mut socket), 0, "{}", reason());
        assert_eq!(gpunet_host_connect(socket, (&raw const at).cast(), LEN), -libc::ECONNREFUSED);
        assert_eq!(reason(), format!("{prefix}Connection refused"));
        assert_eq!(gpunet_host_close(socket), 0);
        assert_eq!(gpunet_host_attachment_close(attachment, null_mut()), 0);
        assert_eq!(gpunet_host_proxy_close(proxy), 0);
    }
}

/// Newer versions of cargo-c need a newer Rust than the one that gpunet is tested with.
#[test]
fn the_documents_install_the_cargo_c_that_is_checked() {
    let check = include_str!("../check");
    let version = check.split("--version ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let version = version.expect("it names one");
    assert!(
        include_str!("../../../docs/c.md")
            .contains(&format!("cargo install cargo-c --locked --version {version}"))
    );
}

/// A server of HTTP for a few clients, one after another; keeps what calls return that are made in
/// the wrong place.
unsafe extern "C" fn http(net: u64, _block: u32, _blocks: u32, told: *mut c_void) {
    // SAFETY: the test's, which outlives the kernel.
    let told = unsafe { &*told.cast::<Told>() };
    let (mut at, mut len) = (address(0), LEN);
    let options = gpunet_posix::open::CallOptions { recv_ring: 16 << 10, transport: 1, ..Default::default() };
    let limits =
        gpunet_http::Limits { request_ns: 200_000_000, request_line: 0, head: 0, fields: 0, body: 0 };
    let mut wrong = Vec::new();
    // SAFETY: pointers to this function's own variables and to texts.
    unsafe {
        let listener = gpunet_listen_at(net, (&raw const at).cast(), LEN, 8, &raw const options);
        gpunet_getsockname(net, listener, (&raw mut at).cast(), &raw mut len);
        told.port.store(u32::from(u16::from_be(at.sin_port)), Ordering::Release);
        let mut results = vec![gpunet_http_is(null(), c"GET".as_ptr().cast(), c"/".as_ptr().cast())];
        loop {
            let client = gpunet_accept(net, listener, null_mut(), null_mut());
            if client < 0 {
                break;
            }
            let mut request = std::mem::zeroed::<HttpRequest>();
            let this = &raw mut request;
            let text = c"text/plain".as_ptr().cast();
            let answer = |status, kind, body: &[u8]| {
                gpunet_http_answer(net, client, this, status, kind, body.as_ptr(), body.len() as u64, -1)
            };
            results.push(gpunet_http_next(net, client, this, &raw const limits, 0) + libc::EAGAIN);
            results.push(answer(200, text, b"") + libc::EINVAL);
            while gpunet_http_next(net, client, this, &raw const limits, -1) == 1 {
                results.push(gpunet_http_next(net, client, this, &raw const limits, 0) + libc::EINVAL);
                results.push(answer(299, text, b"") + libc::EINVAL);
                let long = std::ffi::CString::new("a".repeat(300)).expect("a text");
                results.push(answer(200, long.as_ptr().cast(), b"") + libc::EMSGSIZE);
                let mut value = gpunet_http::alone::Part::default();
                let has_field = gpunet_http_field(this, c"x-a".as_ptr().cast(), &raw mut value) == 1;
                let is_root = gpunet_http_is(this, c"GET".as_ptr().cast(), c"/".as_ptr().cast()) == 1;
                let body = if has_field && value.len == 3 { b"field".as_slice() } else { b"none" };
                let goes_on = answer(if is_root { 200 } else { 404 }, text, body);
                results.push(goes_on - i32::from(request.state == State::NONE));
            }
            results.push(gpunet_http_next(net, client, this, null(), -1));
            gpunet_close(net, client);
        }
        wrong.extend(results.into_iter().filter(|&result| result != 0));
    }
    told.failed.store(wrong.first().copied().unwrap_or(0), Ordering::Release);
}

#[test]
fn http_is_spoken_by_c_functions() {
    use std::io::{Read, Write};
    let (mut proxy, mut attachment, mut token) = (null_mut(), null_mut(), null_mut());
    let told = Told::default();
    // SAFETY: pointers to this function's own variables, which outlive the kernel.
    unsafe {
        assert_eq!(gpunet_host_embed(SETTINGS.as_ptr(), &raw mut proxy), 0, "{}", reason());
        assert_eq!(gpunet_host_attach_cpu(proxy, &raw mut attachment), 0, "{}", reason());
        assert_eq!(gpunet_host_token(attachment, &raw mut token), 0);
        assert_eq!(gpunet_host_token_launch(token, 1, Some(http), (&raw const told).cast_mut().cast()), 0);
    }
    while told.port.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    let place = SocketAddrV4::new(Ipv4Addr::LOCALHOST, told.port.load(Ordering::Acquire) as u16);
    // The head's first bytes come when the kernel has asked for them once.
    let say = |request: &str, ends: bool| {
        let mut client = std::net::TcpStream::connect(place).expect("it listens");
        client.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("an option");
        std::thread::sleep(std::time::Duration::from_millis(50));
        let _ = client.write_all(request.as_bytes());
        if ends {
            client.shutdown(std::net::Shutdown::Write).expect("it is open");
        }
        let mut answers = String::new();
        let _ = client.read_to_string(&mut answers);
        answers
    };
    let get = "GET / HTTP/1.1\r\nHost: a\r\nX-A: b c\r\n\r\n";
    let answers = say(&get.repeat(3), true);
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{answers}");
    assert!(answers.ends_with("Content-Length: 5\r\n\r\nfield"), "{answers}");
    for (request, ends, expected) in [
        (
            "HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            true,
            "404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n",
        ),
        (
            "GET / HTTP/1.0\r\n\r\n".to_owned(),
            false,
            "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnone",
        ),
        // It is silent in the middle.
        ("GET / HT".to_owned(), false, "408 Request Timeout\r\n"),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".to_owned(), true, "400 Bad Request\r\n"),
        // More than the ring holds.
        (
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{}", "a".repeat(16 << 10)),
            false,
            "413 Content Too Large\r\n",
        ),
        (
            format!("GET / HTTP/1.1\r\n{}", "A: b\r\n".repeat(65)),
            false,
            "431 Request Header Fields Too Large\r\n",
        ),
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), false, "400 Bad Request\r\n"),
    ] {
        let answers = say(&request, ends);
        let is_whole = expected.ends_with("\r\n\r\n") || expected.ends_with("none");
        let rest = answers.strip_prefix("HTTP/1.1 ").expect("an answer");
        assert!(
            if is_whole { rest == expected } else { rest.starts_with(expected) },
            "{request:.60}: {answers}"
        );
    }
    // SAFETY: handles of this test.
    unsafe {
        assert_eq!(gpunet_host_token_cancel(token), 0);
        assert_eq!(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, null_mut()), 0);
        assert_eq!(told.failed.load(Ordering::Acquire), 0, "a call's result");
        assert_eq!(gpunet_host_attachment_close(attachment, null_mut()), 0);
        assert_eq!(gpunet_host_proxy_close(proxy), 0);
    }
}
