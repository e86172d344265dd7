//! The requests of HTTP's clients: the same is found whether the bytes come at once or in pieces,
//! and what is taken httparse takes, too, with the same head.
#![no_main]

use gpunet_http::alone::{Found, find};
use gpunet_http::fuzzing::{LIMITS, Read, read};
use gpunet_serve::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[first, stride], stream)) = data.split_first_chunk::<2>() else { return };
    let mut start = 0;
    // One request after another, as a connection's turns take them.
    while start < stream.len() {
        let rest = &stream[start..];
        let whole = read(rest, rest.len(), 1);
        let pieces = read(rest, usize::from(first) % 64, usize::from(stride) % 7 + 1);
        assert_eq!(pieces, whole, "pieces change what is found");
        let Ok(Some(request)) = whole else { return };
        assert!(request.head <= request.len && request.len <= rest.len() && request.len > 0);
        assert!(request.body.len() <= request.len - request.head);
        // What follows it changes nothing, and no byte of it is needless.
        assert_eq!(read(&rest[..request.len], request.len, 1).as_ref(), Ok(&Some(request.clone())));
        assert_eq!(read(&rest[..request.len - 1], request.len, 1), Ok(None));
        check(&rest[..request.head], request.target);
        check_alone(rest, &request);
        start += request.len;
    }
});

/// What C programs find is the same. They refuse bodies in chunks.
fn check_alone(stream: &[u8], request: &Read) {
    let bytes = Bytes::from(stream);
    let parts = match find(bytes, &LIMITS) {
        Ok(Found::Whole(parts)) => parts,
        Err(status) => {
            return assert_eq!((status.code(), request.body.len() < request.len - request.head), (411, true));
        }
        Ok(part) => panic!("{part:?} of a whole request"),
    };
    assert_eq!(parts.len, request.len as u64);
    assert!(parts.body.of(&bytes) == request.body[..]);
    let [path, query, end] = request.target;
    assert!(parts.path.of(&bytes) == stream[path..query]);
    assert!(parts.query.of(&bytes) == stream[query..end][usize::from(query < end)..]);
    if let Some(host) = parts.field(&bytes, b"host") {
        let blank = |byte: u8| byte == b' ' || byte == b'\t';
        let (host, behind) = (host.of(&bytes), stream[(host.at + host.len) as usize]);
        let last = host.get(host.len().saturating_sub(1));
        assert!(!blank(host.get(0)) && !blank(last) && (blank(behind) || behind == b'\r'));
    }
}

fn check(head: &[u8], [path, query, end]: [usize; 3]) {
    if !matches!(&head[end..end + 9], b" HTTP/1.0" | b" HTTP/1.1") {
        // httparse does not know later versions.
        return;
    }
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut parsed = httparse::Request::new(&mut fields);
    let status = parsed.parse(head).expect("httparse takes it, too");
    assert_eq!(status, httparse::Status::Complete(head.len()));
    let target = parsed.path.expect("a target").as_bytes();
    assert!(path <= query && query <= end && target.ends_with(&head[path..end]));
    assert!(matches!(head[path], b'/' | b'*') && (query == end || head[query] == b'?'));
    let value = |name: &str| {
        let mut found = parsed.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        let first = found.next().map(|field| field.value);
        assert!(found.next().is_none(), "{name} is there twice");
        first
    };
    let (length, coding) = (value("content-length"), value("transfer-encoding"));
    assert!(length.is_none() || coding.is_none());
    assert!(coding.is_none_or(|coding| coding.eq_ignore_ascii_case(b"chunked")));
    assert!(value("host").is_some() || parsed.version == Some(0));
}
