//! A program that is attached, as gpunetctl shows it.

use crate::daemon::{GPUNETCTL, Running, TempDir, clean, gpunetd, output, text};
use gpunet_proxy::Config;
use gpunet_proxy::abi::Options;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn its_sockets_are_shown_and_drained() {
    let dir = TempDir::new();
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
    let table = ctl(&["ss"]);
    eprintln!("{table}\n{}", ctl(&["clients"]));
    let line =
        |state: &str| table.lines().find(|line| line.starts_with(state)).unwrap_or_default().to_owned();
    assert!(line("listen").contains(&addr.to_string()), "{table}");
    for word in [&addr.to_string(), "tcp", "pinned", " 1000 ", &format!("{}/", std::process::id())] {
        assert!(line("established").contains(word), "{word}: {table}");
    }
    assert_eq!(ctl(&["ss", "--listening"]).lines().count(), 2);

    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}
