//! `gpunet-hello-http` as its users run it: the built program on the CPU device, and curl.

#[path = "../../common/tests/support/process.rs"]
#[allow(dead_code, reason = "each suite uses a part")]
mod process;

use process::{Server, command, finish};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

const HELLO: &str = env!("CARGO_BIN_EXE_gpunet-hello-http");

#[test]
fn curl_is_answered_on_one_connection() {
    let server = Server::start(command(HELLO, &["127.0.0.1:0", "--device", "cpu"]));
    let url = |path: &str| format!("http://{}{path}", server.addr);
    let (first, second) = (url("/"), url("/hello/gpu"));
    let marks = ["-sS", "-m", "60", "-w", "%{http_code} %{num_connects}\n"];
    let curl = finish(command("curl", &[&marks[..], &[&first, &second]].concat()).spawn().expect("curl"));
    assert_eq!(curl.out, "hello\n200 1\nhello, gpu\n200 0\n", "{}", curl.err);
    server.interrupt();
    let output = server.finish();
    assert!(output.status.success() && output.out.contains("served 1 connections"), "{}", output.out);
}

#[test]
fn what_it_has_not_is_said() {
    let server = Server::start(command(HELLO, &["127.0.0.1:0", "--device", "cpu", "--blocks", "2"]));
    let mut client = TcpStream::connect(server.addr).expect("it listens");
    let request = |line: &str| format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
    let requests =
        ["PUT /hello/a", "OPTIONS /", "GET /hello/", "GET /hello/a/b", "BREW /"].map(request).concat();
    client.write_all(requests.as_bytes()).expect("it takes them");
    client.shutdown(Shutdown::Write).expect("it is open");
    let mut answers = String::new();
    client.read_to_string(&mut answers).expect("it answers");
    let lines: Vec<_> =
        answers.lines().filter(|line| line.starts_with("HTTP") || line.starts_with("Allow")).collect();
    let allow = "Allow: GET, HEAD, OPTIONS";
    let expected = [
        "HTTP/1.1 405 Method Not Allowed",
        allow,
        "HTTP/1.1 204 No Content",
        allow,
        "HTTP/1.1 404 Not Found",
        "HTTP/1.1 404 Not Found",
        "HTTP/1.1 501 Not Implemented",
    ];
    assert_eq!(lines, expected, "{answers}");
}

/// The documents show the server in CUDA C++, as it is. It has 40 lines at most.
#[test]
fn the_documents_show_the_server_in_cuda() {
    let page = include_str!("../../../docs/servers.md");
    let kernel = include_str!("../../../gpunet-proxy/capi/examples/hello-http/hello_http.cu");
    assert!(page.contains(kernel), "docs/servers.md differs from hello_http.cu");
    assert!(kernel.lines().count() <= 40);
}

/// The documents show this server, as it is.
#[test]
fn the_documents_show_this_server() {
    let (page, source) = (include_str!("../../../docs/servers.md"), include_str!("../kernel/src/lib.rs"));
    let begins = source.find("use gpunet_device").expect("it begins");
    let ends = source.find("#[cfg(target_arch = \"nvptx64\")]\n#[allow").expect("it ends");
    assert!(page.contains(source[begins..ends].trim_end()), "docs/servers.md differs from the kernel");
}
