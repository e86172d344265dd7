//! Requests and answers, one after another.

use crate::in_place::Span;
use crate::send::{MSG_MORE, MSG_WAITALL};
use gpunet_abi::{Error, Piece, RingSpan};
use gpunet_device::internal::Deadline;
use gpunet_device::{Group, Timeout};
use gpunet_http::alone::{CLOSES, Found, Part, Parts, find};
use gpunet_http::{Limits, Reply, Status};
use gpunet_serve::{Bytes, Digits};

/// What a connection's request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct State(u32);

impl State {
    /// There is none.
    pub const NONE: Self = Self(0);
    /// It waits for its answer.
    pub const GIVEN: Self = Self(1);
    /// There will be none: the connection is to be closed.
    pub const OVER: Self = Self(2);
}

/// `struct gpunet_http_request`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HttpRequest {
    /// All of it, where it was received.
    pub bytes: Span,
    /// Where its parts are.
    pub parts: Parts,
    /// Whether it is one.
    pub state: State,
    /// 0.
    pub reserved: u32,
}

impl HttpRequest {
    /// No request.
    const fn none(state: State) -> Self {
        let none = Part { at: 0, len: 0 };
        let parts = Parts { len: 0, path: none, query: none, fields: none, body: none, method: 0, flags: 0 };
        Self { bytes: Span::NONE, parts, state, reserved: 0 }
    }
}

/// The calls of a group on a stream.
pub(super) trait Calls {
    /// Who calls.
    fn group() -> impl Group;
    /// `gpunet_peek_more`.
    unsafe fn peek_more(net: u64, socket: i32, have: u64, len: u64, span: *mut Span, ns: i64) -> i64;
    /// `gpunet_release`.
    unsafe fn release(net: u64, socket: i32, len: u64) -> i32;
    /// `gpunet_send_timeout`.
    unsafe fn send(net: u64, socket: i32, data: *const u8, len: u64, flags: i32, ns: i64) -> i64;
}

/// What a program answers.
pub(super) struct Given {
    pub(super) status: i32,
    pub(super) content_type: *const u8,
    pub(super) body: *const u8,
    pub(super) len: u64,
}

const AGAIN: i64 = -(Error::WouldBlock.errno() as i64);
const TOO_LONG: i64 = -(Error::MessageTooLong.errno() as i64);
/// Bytes of an answer's head: enough for a content type of 128.
const HEAD: usize = 256;

/// The bytes of a text that ends with a zero byte; none behind a null pointer.
///
/// # Safety
/// `text` is null, or such a text that lives as long as the result is used.
pub(super) unsafe fn text<'a>(text: *const u8) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: before the zero byte or at it, by the caller's contract.
    while !text.is_null() && unsafe { text.wrapping_add(len).read() } != 0 {
        len += 1;
    }
    if len == 0 {
        return &[];
    }
    // SAFETY: so many bytes lie before the zero byte; a program's own text, which nobody writes.
    unsafe { core::slice::from_raw_parts(text, len) }
}

/// The request that waits for its answer.
///
/// # Safety
/// `request` is null or readable; if it waits, its bytes were not given back.
pub(super) unsafe fn given<'a>(request: *const HttpRequest) -> Option<(Parts, Bytes<'a>)> {
    if request.is_null() {
        return None;
    }
    // SAFETY: readable, by the caller's contract.
    let request = unsafe { request.read_volatile() };
    if request.state != State::GIVEN {
        return None;
    }
    // SAFETY: what was received, and not given back, by the caller's contract.
    Some((request.parts, unsafe { Bytes::of_span(request.bytes.ring()) }))
}

/// `gpunet_http_next`.
///
/// # Safety
/// As the header says.
#[inline(always)]
pub(super) unsafe fn next<C: Calls>(
    net: u64,
    socket: i32,
    request: *mut HttpRequest,
    limits: *const Limits,
    timeout_ns: i64,
) -> i64 {
    if request.is_null() {
        return crate::returned(Err(crate::errno::FAULT));
    }
    // SAFETY: readable, by the caller's contract.
    let old = unsafe { request.read_volatile() };
    match old.state {
        State::NONE => {}
        State::OVER => return 0,
        // A request that is dropped without an answer would be an accident.
        _ => return crate::returned(Err(Error::InvalidArgument)),
    }
    // SAFETY: null or readable, by the caller's contract.
    let limits = unsafe { limits_of(limits) };
    let g = &C::group();
    let end = |state, result| {
        // All lanes have read it; those that share one write the same.
        g.sync();
        // SAFETY: writable, by the caller's contract.
        unsafe { request.write_volatile(HttpRequest::none(state)) };
        g.sync();
        result
    };
    let (mut have, mut timeout, mut deadline) = (0, timeout_ns, Deadline::NEVER);
    let (mut in_body, mut is_told) = (false, false);
    let status = loop {
        let mut span = Span::NONE;
        // SAFETY: the caller's contract, and a variable of this lane.
        let found = unsafe { C::peek_more(net, socket, have, u32::MAX.into(), &raw mut span, timeout) };
        match found {
            AGAIN if have > 0 => break Status::RequestTimeout,
            TOO_LONG if in_body => break Status::ContentTooLarge,
            TOO_LONG => break Status::RequestHeaderFieldsTooLarge,
            ..0 => return found,
            _ if found as u64 <= have && have == 0 => return end(State::OVER, 0),
            _ if found as u64 <= have => break Status::BadRequest,
            _ => {}
        }
        // SAFETY: shown by the call, and not given back before this value's last use.
        let bytes = unsafe { Bytes::of_span(span.ring()) };
        match find(bytes, &limits) {
            Ok(Found::Whole(parts)) => {
                g.sync();
                let whole = HttpRequest { bytes: span, parts, state: State::GIVEN, reserved: 0 };
                // SAFETY: writable, by the caller's contract. Lanes that share one write the same.
                unsafe { request.write_volatile(whole) };
                g.sync();
                return 1;
            }
            Ok(Found::Head) => {}
            Ok(Found::Body { expects }) => {
                in_body = true;
                if expects && !is_told {
                    is_told = true;
                    // SAFETY: a text of this program.
                    let told = unsafe {
                        send_all::<C>(net, socket, b"HTTP/1.1 100 Continue\r\n\r\n", 0, timeout_ns)
                    };
                    if let Err(error) = told {
                        return end(State::OVER, error);
                    }
                }
            }
            Err(status) => break status,
        }
        if have == 0 {
            deadline = Deadline::of(Timeout::ns(limits.request_ns));
        }
        have = found as u64;
        // All lanes wait equally long.
        let left = deadline.left_of(Timeout::NON_BLOCKING).packed();
        timeout = g.broadcast(left) as i64;
    };
    let text = status.text();
    let parts = Parts { flags: CLOSES, ..HttpRequest::none(State::NONE).parts };
    let reply = Reply::new(status, b"text/plain");
    // SAFETY: the text is this program's; the caller's contract.
    let sent = unsafe { send_answer::<C>(net, socket, &parts, &reply, text, timeout_ns) };
    end(State::OVER, sent.err().unwrap_or(0))
}

/// `gpunet_http_answer`.
///
/// # Safety
/// As the header says.
#[inline(always)]
pub(super) unsafe fn answer<C: Calls>(
    net: u64,
    socket: i32,
    request: *mut HttpRequest,
    given: Given,
    timeout_ns: i64,
) -> i64 {
    let fault = crate::returned(Err(crate::errno::FAULT));
    let invalid = crate::returned(Err(Error::InvalidArgument));
    if request.is_null() || (given.body.is_null() && given.len > 0) {
        return fault;
    }
    // SAFETY: readable, by the caller's contract.
    let old = unsafe { request.read_volatile() };
    let Some(status) = Status::of(given.status) else { return invalid };
    if old.state != State::GIVEN {
        return invalid;
    }
    // SAFETY: null or a text, by the caller's contract.
    let reply = Reply::new(status, unsafe { text(given.content_type) });
    let body = RingSpan {
        first: Piece { ptr: given.body.cast_mut(), len: given.len as usize },
        second: Piece { ptr: core::ptr::null_mut(), len: 0 },
    };
    // SAFETY: readable while the call lasts, by the caller's contract.
    let body = unsafe { Bytes::of_span(body) };
    let g = &C::group();
    // SAFETY: the caller's contract.
    let sent = unsafe { send_body::<C>(net, socket, &old.parts, &reply, body, given.body, timeout_ns) };
    let released = sent.and_then(|()| {
        // SAFETY: the caller's contract.
        match unsafe { C::release(net, socket, old.parts.len) } {
            0 => Ok(()),
            error => Err(error.into()),
        }
    });
    if sent == Err(TOO_LONG) {
        // Nothing was sent: the program may give another answer.
        return TOO_LONG;
    }
    let goes_on = released.is_ok() && old.parts.flags & CLOSES == 0;
    g.sync();
    let state = if goes_on { State::NONE } else { State::OVER };
    // SAFETY: writable, by the caller's contract. Lanes that share one write the same.
    unsafe { request.write_volatile(HttpRequest::none(state)) };
    g.sync();
    released.err().unwrap_or(i64::from(goes_on))
}

/// Limits with the defaults where there are zeros.
///
/// # Safety
/// `limits` is null or readable.
#[inline(never)]
unsafe fn limits_of(limits: *const Limits) -> Limits {
    let mut all = Limits::DEFAULT;
    if !limits.is_null() {
        // SAFETY: readable, by the caller's contract.
        let given = unsafe { limits.read_volatile() };
        let or = |given: u32, own: u32| if given > 0 { given } else { own };
        all = Limits {
            request_line: or(given.request_line, all.request_line),
            head: or(given.head, all.head),
            fields: or(given.fields, all.fields),
            body: or(given.body, all.body),
            request_ns: if given.request_ns > 0 { given.request_ns } else { all.request_ns },
        };
    }
    all
}

/// Sends an answer whose body is this program's.
///
/// # Safety
/// As [`send_body`].
#[inline(always)]
unsafe fn send_answer<C: Calls>(
    net: u64,
    socket: i32,
    parts: &Parts,
    reply: &Reply<'_>,
    body: &'static [u8],
    ns: i64,
) -> core::result::Result<(), i64> {
    // SAFETY: the caller's contract.
    unsafe { send_body::<C>(net, socket, parts, reply, body.into(), body.as_ptr(), ns) }
}

/// Sends a head and a body, which are published together: -EMSGSIZE, before anything is sent, if
/// the head is too long.
///
/// # Safety
/// `net` is 0 or a context's address; `at` is where the body lies.
#[inline(never)]
unsafe fn send_body<C: Calls>(
    net: u64,
    socket: i32,
    parts: &Parts,
    reply: &Reply<'_>,
    body: Bytes<'_>,
    at: *const u8,
    ns: i64,
) -> core::result::Result<(), i64> {
    let mut head = [0; HEAD];
    let Some(len) = put_head(&mut head, parts, reply, body.len()) else { return Err(TOO_LONG) };
    let is_silent = parts.is_head() || reply.is_bodiless() || body.is_empty();
    let head = head.get(..len).unwrap_or_default();
    // SAFETY: the caller's contract.
    unsafe { send_all::<C>(net, socket, head, if is_silent { 0 } else { MSG_MORE }, ns) }?;
    if is_silent {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    unsafe { send_raw::<C>(net, socket, at, body.len(), 0, ns) }
}

/// Puts the head of an answer; returns how many bytes it has, if there is room.
#[inline(never)]
fn put_head(to: &mut [u8; HEAD], parts: &Parts, reply: &Reply<'_>, len: usize) -> Option<usize> {
    let digits = Digits::of(len as i64);
    put(to, &parts.answer(reply, &digits))
}

/// Puts pieces one behind the other; returns how many bytes they have, if there is room.
#[inline(never)]
fn put(to: &mut [u8; HEAD], parts: &[Bytes<'_>; 10]) -> Option<usize> {
    let (mut end, mut part) = (0, 0);
    while part < parts.len() {
        let mut at = 0;
        while at < parts[part].len() {
            *to.get_mut(end)? = parts[part].get(at);
            (at, end) = (at + 1, end + 1);
        }
        part += 1;
    }
    Some(end)
}

/// Sends all of some bytes.
///
/// # Safety
/// `net` is 0 or a context's address.
#[inline(always)]
unsafe fn send_all<C: Calls>(
    net: u64,
    socket: i32,
    bytes: &[u8],
    flags: i32,
    ns: i64,
) -> core::result::Result<(), i64> {
    // SAFETY: readable for its length; the caller's contract.
    unsafe { send_raw::<C>(net, socket, bytes.as_ptr(), bytes.len(), flags, ns) }
}

/// As [`send_all`].
///
/// # Safety
/// `net` is 0 or a context's address; `len` bytes are readable at `data`.
#[inline(never)]
unsafe fn send_raw<C: Calls>(
    net: u64,
    socket: i32,
    data: *const u8,
    len: usize,
    flags: i32,
    ns: i64,
) -> core::result::Result<(), i64> {
    let (mut done, mut ns) = (0, ns);
    loop {
        let (data, left) = (data.wrapping_add(done), len - done);
        // SAFETY: the rest of the bytes; the caller's contract.
        let sent = unsafe { C::send(net, socket, data, left as u64, flags | MSG_WAITALL, ns) };
        if sent < 0 {
            return Err(sent);
        }
        done += sent as usize;
        if done >= len {
            return Ok(());
        }
        // Fewer bytes met a failure, which the next call reports.
        ns = 0;
    }
}
