//! Clients that others wrote.

use crate::api::{Api, serve_by};
use gpunet_serve_host::ServerSettings;
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a program with a script; it must succeed. Says loudly if it is not there.
fn run(program: &str, args: &[&str], script: &str) {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        let _ = writeln!(std::io::stderr(), "NOT RUN: there is no {program}");
        return;
    };
    child.stdin.take().expect("piped").write_all(script.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for line in text(&output.stdout).lines().filter(|line| line.starts_with("NOT RUN")) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    assert!(output.status.success(), "{program}: {}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn clients_of_python_are_content() {
    let server = serve_by((2, 1), Api::DEFAULT, ServerSettings::DEFAULT);
    let script = r#"
import http.client, json, socket, sys, urllib.error, urllib.request

host, port = "127.0.0.1", int(sys.argv[1])
connection = http.client.HTTPConnection(host, port, timeout=60)
connection.connect()
first = connection.sock
for _ in range(3):
    for method, path, body, expected in [
        ("GET", "/", None, b"hello\n"),
        ("HEAD", "/", None, b""),
        ("POST", "/echo", b"abc", b"abc"),
        ("POST", "/sum", b"a" * 300_000, b"300000 29100000"),
        ("GET", "/length/100", None, bytes(97 + at % 26 for at in range(100))),
        ("GET", "/stream/100000", None, bytes(97 + at % 26 for at in range(100000))),
    ]:
        connection.request(method, path, body=body)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, expected), (path, answer.status)
    # An iterator is sent in chunks.
    connection.request("POST", "/echo", body=iter([b"ab", b"c"]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    assert connection.getresponse().read() == b"abc"
    connection.request("DELETE", "/echo")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Allow"), answer.read()) == (405, "POST, PUT, OPTIONS", b"")
    document = {"a": ["\u00e4\U0001f600\"", 1, None, {"b": 0.5}]}
    connection.request("POST", "/json", body=json.dumps(document))
    assert json.loads(connection.getresponse().read()) == document
    assert connection.sock is first, "one connection"

# Events, as a browser reads them.
with urllib.request.urlopen(f"http://{host}:{port}/events/10", timeout=60) as stream:
    assert stream.headers["Content-Type"] == "text/event-stream"
    events, event = [], {}
    for line in stream:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            event[name] = event[name] + "\n" + value if name in event else value
        else:
            events.append(event)
            event = {}
assert events == [{"event": "first", "data": "event\n0"}] + [{"data": f"event\n{at}"} for at in range(1, 10)], events

# Many requests without waiting for answers.
with socket.create_connection((host, port), timeout=60) as raw:
    raw.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
    raw.shutdown(socket.SHUT_WR)
    answers = b"".join(iter(lambda: raw.recv(65536), b""))
assert answers.count(b"HTTP/1.1 200 OK\r\n") == 1000 and answers.endswith(b"\r\n\r\nhello\n")
"#;
    run("python3", &["-", &server.addr().port().to_string()], script);
}

#[test]
fn curl_is_content() {
    let server = serve_by((1, 1), Api::DEFAULT, ServerSettings::DEFAULT);
    let script = r#"
set -euo pipefail
url=http://127.0.0.1:$1
same() { [ "$1" = "$2" ] || { echo "got '$1', not '$2'"; exit 1; }; }
curl() { command curl -sS -m 60 "$@"; }
same "$(curl -w '%{num_connects} ' $url/ $url/ $url/ | tr -d '\n')" "hello1 hello0 hello0 "
same "$(curl -I $url/ | tr -d '\r' | head -n1)" "HTTP/1.1 200 OK"
same "$(curl -X OPTIONS -i $url/echo | tr -d '\r' | grep Allow)" "Allow: POST, PUT, OPTIONS"
# So long a body is announced by Expect.
head -c 1048576 /dev/zero | tr '\0' a >"$2"
same "$(curl -H 'Expect: 100-continue' --data-binary "@$2" $url/sum)" "1048576 101711872"
same "$(curl -H 'Transfer-Encoding: chunked' --data-binary "@$2" $url/sum)" "1048576 101711872"
same "$(curl -T - $url/echo <<<abc)" abc
same "$(curl -w '%{http_code}' --data-binary "@$2" -d a $url/sum)" "content too large"
"#;
    let script = script.replace("content too large", "413 Content Too Large\r\n413");
    let file = std::env::temp_dir().join(format!("gpunet-http-{}", std::process::id()));
    let (port, path) = (server.addr().port().to_string(), file.to_str().expect("a path"));
    run("bash", &["-s", &port, path], &script);
    let _ = std::fs::remove_file(&file);
}

#[test]
fn node_is_content() {
    let server = serve_by((2, 1), Api::DEFAULT, ServerSettings::DEFAULT);
    let script = r#"
const url = `http://127.0.0.1:${process.argv[2]}`;
const same = (a, b) => { if (a !== b) throw new Error(`${a} is not ${b}`); };
const main = async () => {
    const all = await Promise.all(Array.from({ length: 50 }, () => fetch(`${url}/`).then(answer => answer.text())));
    all.forEach(text => same(text, "hello\n"));
    const document = JSON.stringify({ a: ["\u00e4\u{1f600}", 1.5, null] });
    same(await (await fetch(`${url}/json`, { method: "POST", body: document })).text(), document);
    let text = "";
    for await (const piece of (await fetch(`${url}/events/20`)).body) text += new TextDecoder().decode(piece);
    same(text.split("\n\n").length, 21);
    // It goes in the middle.
    const abort = new AbortController();
    const reader = (await fetch(`${url}/events/1000000`, { signal: abort.signal })).body.getReader();
    await reader.read();
    abort.abort();
    same((await fetch(`${url}/nothing`)).status, 404);
    // Node has EventSource by default from version 25 on, and by an option from 22.3 on; npm has a
    // package.
    let { EventSource } = globalThis;
    try { EventSource ??= require("eventsource").EventSource; } catch { }
    if (!EventSource) console.log("NOT RUN: this node has no EventSource, and no package eventsource");
    else await new Promise((resolve, reject) => {
        const source = new EventSource(`${url}/events/1000000`), seen = [];
        source.onerror = reject;
        source.addEventListener("first", event => seen.push(event.data));
        source.onmessage = event => {
            seen.push(event.data);
            if (seen.length < 20) return;
            source.close();
            seen.forEach((data, at) => same(data, `event\n${at}`));
            resolve();
        };
    });
};
main().then(() => process.exit(0), error => { console.error(error); process.exit(1); });
"#;
    run("node", &["-", &server.addr().port().to_string()], script);
}
