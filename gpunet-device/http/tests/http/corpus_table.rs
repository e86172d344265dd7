fn table() -> Vec<(Verdict, Vec<String>)> {
    let long = "a".repeat(6000);
    vec![
        // ---- request lines ----
        (Both, each(|text| line(&format!("GET {text} HTTP/1.1")), [
            "/", "/a", "/a/b", "//", "/a//b", "/.", "/../a", "/a%20b", "/%", "/a?b", "/?", "/??", "/a?b=c&d=e", "/a?b?c", "/a;b", "/a:b@c",
            "/~a", "/a'()*!", "/a|b", "/[a]", "/a=b", "/$&+,", "/-._~", "/a^b", "/a?/", "/a?%2f",
            "http://a/", "http://a/b?c", "HTTP://a/b", "http://a:80/", "http://b/", "https://a/b", "http://[::1]/b", "http://[::1]:80/b",
        ])),
        (Both, each(|method| line(&format!("{method} /a HTTP/1.1")), ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])),
        (Both, each(line, ["OPTIONS * HTTP/1.1", "HEAD /a HTTP/1.1", "GET /a HTTP/1.0"])),
        (Both, each(|text| format!("{text}{}", get("")), ["\r\n", "\r\n\r\n"])),
        (Both, vec![line(&format!("GET /{long} HTTP/1.1")), line(&format!("GET /?{long} HTTP/1.1"))]),
        (Neither, each(line, [
            "GET", "GET /a", "GET  /a HTTP/1.1", "GET /a  HTTP/1.1", "GET /a HTTP/1.1 ", " GET /a HTTP/1.1", "GET\t/a HTTP/1.1", "GET /a\tHTTP/1.1",
            "GET /a HTTP/1", "GET /a HTTP/", "GET /a HTTP", "GET /a HTTP/1.", "GET /a HTTP/.1", "GET /a http/1.1", "GET /a HTTP/01.1",
            "GET /a HTTP/1.11", "GET /a HTTP/x.y", "GET /a HTTP/1,1", "GET /a HTTP 1.1", "GET /a FTP/1.1", "/a HTTP/1.1", "GET HTTP/1.1",
            "GET /a b HTTP/1.1", "(GET) /a HTTP/1.1", "G@T /a HTTP/1.1", "GET: /a HTTP/1.1", "\"GET\" /a HTTP/1.1", "GET /a HTTP/2.0",
            "GET /a HTTP/0.9", "GET /a HTTP/3.0", "GET /a\rb HTTP/1.1", "GET /a\0 HTTP/1.1", "PRI * HTTP/2.0", "GET ?a HTTP/1.1", "GET http:///a HTTP/1.1",
        ])),
        (Neither, bytes((1..32).filter(|byte| !b"\t\r\n".contains(byte)).chain([127]), |byte| line(&format!("GET /{byte} HTTP/1.1")))),
        // ---- fields ----
        (Both, each(get, [
            "A: b\r\n", "A:b\r\n", "A: \r\n", "A:\r\n", "A:\tb\t\r\n", "A:   b   \r\n", "A: b c\r\n", "A: b\tc\r\n", "A: b:c\r\n", "A: \"b\"\r\n",
            "a!#$%&'*+-.^_`|~9: b\r\n", "A: b\r\nA: c\r\n", "Connection: keep-alive\r\n", "Connection: close\r\n", "connection: CLOSE\r\n",
            "Connection: a, close\r\n", "Connection: a, keep-alive\r\n", "Connection: \r\n", "Connection: ,,\r\n", "Accept: */*\r\n", "Cookie: a=b; c=d\r\n",
            "Upgrade: h2c\r\n", "Content-Length: 0\r\n", "Trailer: a\r\n", "TE: trailers\r\n", "Authorization: Basic YTpi\r\n",
        ])),
        (Both, bytes(128..=255, |byte| get(&format!("A: {byte}\r\n")))),
        (Both, vec![get(&format!("A: {long}\r\n")), get(&"A: b\r\n".repeat(50)), get(&format!("{}: b\r\n", "a".repeat(1000)))]),
        (Neither, each(get, [
            "A b\r\n", "A : b\r\n", " A: b\r\n", "\tA: b\r\n", ": b\r\n", "A\r\n", "A: b\r\n c\r\n", "A: b\r\n\tc\r\n", "A: b\r\n \r\n", "A: b\rc\r\n",
            "A: b\r\r\n", "A(: b\r\n", "A/B: b\r\n", "A@: b\r\n", "A[]: b\r\n", "A{}: b\r\n", "A\"B: b\r\n", "A,B: b\r\n", "A;B: b\r\n", "A=B: b\r\n", "A\\: b\r\n",
            "\u{e4}: b\r\n", "A<>: b\r\n", "A?: b\r\n",
        ])),
        (Neither, bytes((0..32).filter(|byte| !b"\t\r\n".contains(byte)).chain([127]), |byte| get(&format!("A: b{byte}c\r\n")))),
        (Neither, vec![get(&"A: b\r\n".repeat(200)), get(&format!("A: {}\r\n", "b".repeat(1 << 20)))]),
        // ---- lengths ----
        (Both, each(post, [
            "Content-Length: 0\r\n\r\n", "Content-Length: 1\r\n\r\na", "content-length:3\r\n\r\nabc", "Content-Length: 3 \r\n\r\nabc", "Content-Length: 003\r\n\r\nabc",
            "Content-Length: 4\r\n\r\n\r\n\r\n", "Content-Length: 4\r\n\r\nGET ", "Content-Length: 00000000000000000001\r\n\r\na", "\r\n",
            "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na", "expect: 100-Continue\r\nContent-Length: 1\r\n\r\na",
        ])),
        (Both, vec![post(&format!("Content-Length: 6000\r\n\r\n{long}"))]),
        (Neither, each(post, [
            "Content-Length: -1\r\n\r\na", "Content-Length: +1\r\n\r\na", "Content-Length: 0x1\r\n\r\na", "Content-Length: 1a\r\n\r\na", "Content-Length: a\r\n\r\na",
            "Content-Length: 1 1\r\n\r\na", "Content-Length: 1.0\r\n\r\na", "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "Content-Length: 2\r\nContent-Length: 1\r\n\r\nab",
            "Content-Length: 1, 2\r\n\r\nab", "Content-Length: 1, 1\r\n\r\na", "Content-Length : 1\r\n\r\na", "Content-Length: 18446744073709551616\r\n\r\na", "Content-Length: 99999999999999999999999\r\n\r\na",
            "Content-Length: \u{b2}\r\n\r\na", "Content-Length: \r\n\r\n", "Content-Length: 1;\r\n\r\na",
        ])),
        // ---- codings ----
        (Both, each(chunked, [
            "0\r\n\r\n", "1\r\na\r\n0\r\n\r\n", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "A\r\n0123456789\r\n0\r\n\r\n", "a\r\n0123456789\r\n0\r\n\r\n", "001\r\na\r\n0\r\n\r\n",
            "1;x\r\na\r\n0\r\n\r\n", "1;x=y\r\na\r\n0\r\n\r\n", "1;x=\"y\"\r\na\r\n0\r\n\r\n", "1 ;x\r\na\r\n0\r\n\r\n", "1;\r\na\r\n0\r\n\r\n", "1;x;y=z\r\na\r\n0;w\r\n\r\n",
            "0\r\nA: b\r\n\r\n", "1\r\na\r\n0\r\nA: b\r\nB: c\r\n\r\n", "2\r\n\r\n\r\n0\r\n\r\n", "0000\r\n\r\n",
        ])),
        (Both, each(post, ["transfer-encoding:chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", "Transfer-Encoding: \t chunked \r\n\r\n0\r\n\r\n"])),
        (Neither, each(chunked, [
            "\r\n", "x\r\n", "g\r\n", "-1\r\na\r\n0\r\n\r\n", "+1\r\na\r\n0\r\n\r\n", "0x1\r\na\r\n0\r\n\r\n", "1\r\nab\r\n0\r\n\r\n", "2\r\na\r\n0\r\n\r\n", " 1\r\na\r\n0\r\n\r\n",
            "1\r\na0\r\n\r\n", "fffffffffffffffff\r\na", "1\ra\r\n0\r\n\r\n", ";x\r\n", "1 2\r\na\r\n", "1,2\r\na\r\n", "1\r\na\r0\r\n\r\n",
        ])),
        (Neither, each(post, [
            "Transfer-Encoding: gzip\r\n\r\na", "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", "Transfer-Encoding: identity\r\n\r\n", "Transfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: \r\n\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        ])),
        // ---- what differs ----
        (Hyper("two lengths, also equal ones: a program before this one may take the other"), each(post, [
            "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "Content-Length: 01\r\nContent-Length: 1\r\n\r\na",
        ])),
        (Hyper("a length beside Transfer-Encoding: RFC 9112, 6.3, has the connection closed"), each(post, [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        ])),
        (Hyper("chunked twice, or behind a coding that nobody decodes"), each(post, [
            "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        ])),
        (Hyper("an expectation that this server does not know: 417"), each(post, ["Expect: more\r\nContent-Length: 1\r\n\r\na"])),
        (Hyper("HTTP/1.1 has one Host: RFC 9112, 3.2"), vec![
            "GET /a HTTP/1.1\r\n\r\n".to_owned(), get("Host: a\r\n"), get("Host: b\r\n"), "GET /a HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(),
            "GET /a HTTP/1.1\r\nHost: a/b\r\n\r\n".to_owned(), "GET /a HTTP/1.1\r\nHost: \u{e4}\r\n\r\n".to_owned(),
        ]),
        (Hyper("lines that end with a bare LF"), vec![
            "GET /a HTTP/1.1\nHost: a\n\n".to_owned(), "GET /a HTTP/1.1\nHost: a\r\n\r\n".to_owned(), "GET /a HTTP/1.1\r\nHost: a\n\r\n".to_owned(),
            "GET /a HTTP/1.1\r\nHost: a\r\n\n".to_owned(), format!("\n{}", get("")),
        ]),
        (Hyper("methods that services are not given: 501"), each(|method| line(&format!("{method} /a HTTP/1.1")), ["BREW", "TRACE", "get", "Get", "G", "PROPFIND", "GETS", "GE"])),
        (Hyper("a target that is no path, no http(s) URL with one and no *: RFC 9112, 3.2"), each(line, [
            "GET * HTTP/1.1", "GET a HTTP/1.1", "GET http://a HTTP/1.1", "GET http://a?b HTTP/1.1", "GET ftp://a/ HTTP/1.1", "GET http://b@a/ HTTP/1.1",
            "GET a:80 HTTP/1.1", "OPTIONS http://a HTTP/1.1",
        ])),
        (Hyper("bytes beyond ASCII in a target"), each(line, ["GET /\u{c3}\u{a4} HTTP/1.1", "GET /?\u{c3}\u{a4} HTTP/1.1"])),
        (Hyper("a fragment, which stays with the client"), each(line, ["GET /a#b HTTP/1.1", "GET /#/../b HTTP/1.1", "GET /?a#b HTTP/1.1"])),
        (Hyper("limits: 64 fields, 8,000 bytes of a first line, 8 KiB of a head, 1 MiB of a body"), vec![
            get(&"A: b\r\n".repeat(70)), line(&format!("GET /{} HTTP/1.1", "a".repeat(9000))), get(&format!("A: {}\r\n", "b".repeat(9000))),
            post(&format!("Content-Length: 1100000\r\n\r\n{}", "a".repeat(1_100_000))), chunked(&format!("10c8e0\r\n{}\r\n0\r\n\r\n", "a".repeat(1_100_000))),
        ]),
        (Hyper("a size's line has 256 bytes at most, and a body 8 KiB of extensions and trailers"), vec![
            chunked(&format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(1000))), chunked(&format!("1\r\na\r\n0\r\nA: {}\r\n\r\n", "b".repeat(9000))),
        ]),
        (Neither, each(chunked, ["0\r\nA\r\n\r\n", "0\r\nA : b\r\n\r\n", "0\r\n A: b\r\n\r\n"])),
        (Hyper("control characters in extensions"), each(chunked, [
            "1;\0\r\na\r\n0\r\n\r\n", "1;\x7f\r\na\r\n0\r\n\r\n",
        ])),
        (Us("a later minor version of HTTP/1 is one of HTTP/1.1: RFC 9110, 2.5"), each(line, ["GET /a HTTP/1.2", "GET /a HTTP/1.9"])),
        // ---- several requests ----
        (Both, vec![get("").repeat(3), get("").repeat(50), chunked("1\r\na\r\n0\r\n\r\n").repeat(5), post("Content-Length: 1\r\n\r\na").repeat(5)]),
        (Both, vec![format!("{}\r\n{}", post("Content-Length: 1\r\n\r\na"), get("")), get("Connection: close\r\n") + &get("")]),
        (Both, vec!["GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".repeat(2), "GET /a HTTP/1.0\r\n\r\n".to_owned(), "POST /a HTTP/1.0\r\nContent-Length: 1\r\n\r\na".to_owned()]),
    ]
}
