//! A program that is attached, as gpunetctl shows it.

use crate::daemon::{Dir, GPUNETCTL, Running, clean, gpunetd, output, text};
use gpunet_proxy::Config;
use gpunet_proxy::abi::Options;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn it_is_shown_and_drained() {
    let dir = Dir::new();
    let mut daemon = Running::start(&mut gpunetd(&dir));
    let proxy = gpunet_proxy::attach(&dir.join("d.sock"), Config::small()).expect("attached");
    let host = proxy.host().expect("a host");
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = host.bind(any, Options::DEFAULT, 16).await.expect("bound");
    let addr = listener.local_addr().expect("bound");
    let mut foreign = tokio::net::TcpStream::connect(addr).await.expect("connected");
    let (mut stream, _) = listener.accept().await.expect("accepted");
    stream.write_all(&[7; 1000]).await.expect("sent");
    foreign.read_exact(&mut [0; 1000]).await.expect("received");

    let ctl = |args: &[&str]| {
        text(&output(clean(GPUNETCTL).arg("--path").arg(dir.join("d.sock")).args(args)).stdout)
    };
    let table = ctl(&["clients"]);
    let client = table.lines().nth(1).unwrap_or_default();
    for word in [&format!(" {} ", std::process::id()), " cpu ", " 16.0 MiB "] {
        assert!(client.contains(word), "{word}: {table}");
    }
    let clients: serde_json::Value = serde_json::from_str(&ctl(&["clients", "--json"])).expect("JSON");
    assert_eq!((&clients[0]["sockets"], &clients[0]["opened"]), (&2.into(), &1.into()), "{clients}");

    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}
