//! How sockets end that somebody waits for, and what an idle host costs.

use crate::bench::{Bench, Case, LOOPBACK, errno, eventually};
use crate::support::client::nobody;
use gpunet_device::{Error, TransportKind};
use gpunet_proxy::Config;
use gpunet_proxy::socket::SocketError;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// One task that reads, one that writes into a full ring, one that accepts: checks that each fails
/// with `expected` once `end` has happened. Their partners end by it too, which a reader or a
/// writer may learn first.
async fn expect_errors(bench: &Bench, expected: i32, end: impl AsyncFnOnce()) {
    let (reader, partner) = bench.pair().await;
    let (mut idle, other) = bench.pair().await;
    let (mut writer, full) = bench.pair_with(bench.options().with_rings(4096, 4096)).await;
    let listener = bench.listen().await;
    let steps = Arc::new(AtomicU32::new(0));
    let [read, wrote, accepted] = [(); 3].map(|()| steps.clone());
    let reads = tokio::spawn(async move {
        let mut reader = reader;
        read.fetch_add(1, Ordering::Relaxed);
        match reader.read(&mut [0; 1]).await {
            Ok(n) => n as i32,
            error => errno(error),
        }
    });
    let writes = tokio::spawn(async move {
        let scratch = [0; 4096];
        loop {
            wrote.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = writer.write(&scratch).await {
                return error.raw_os_error().expect("an errno");
            }
        }
    });
    let accepts = tokio::spawn(async move {
        accepted.fetch_add(1, Ordering::Relaxed);
        errno(listener.accept().await)
    });
    let (mut last, mut looks) = (0, 0);
    eventually("all three wait", || {
        let now = steps.load(Ordering::Relaxed);
        let rests = std::mem::replace(&mut last, now) == now;
        looks = if rests && now > 3 { looks + 1 } else { 0 };
        looks == 5
    })
    .await;
    end().await;
    let (read, write) = (reads.await.expect("no panic"), writes.await.expect("no panic"));
    assert!([expected, libc::ECONNRESET, 0].contains(&read), "reading: {read}");
    assert!([expected, libc::ECONNRESET, libc::EPIPE].contains(&write), "writing: {write}");
    assert_eq!(accepts.await.expect("no panic"), expected, "accepting");
    // There is room in its ring.
    let late = errno(idle.write(b"x").await);
    assert!([expected, libc::ECONNRESET, libc::EPIPE].contains(&late), "writing late: {late}");
    drop((partner, full, other));
}

pub async fn who_waits_hears_of_an_abort(bench: Bench) {
    expect_errors(&bench, libc::ENETDOWN, async || bench.proxy.abort()).await;
    assert_eq!(errno(bench.host.bind(LOOPBACK, bench.options(), 1).await), libc::ENETDOWN);
    assert_eq!(errno(bench.host.connect(LOOPBACK, bench.options()).await), libc::ENETDOWN);
    assert!(bench.proxy.host().is_err());
}

pub async fn who_waits_hears_of_a_close(bench: Bench) {
    let config = Config { linger: Duration::from_millis(500), ..bench.case.config() };
    let case = bench.case;
    bench.end().await;
    let bench = Bench::with(case, config);
    let host = bench.host.clone();
    let closed = async move || {
        host.close().await;
    };
    expect_errors(&bench, libc::ECANCELED, closed).await;
    let late = errno(bench.host.bind(LOOPBACK, bench.options(), 1).await);
    assert!([libc::ENETDOWN, libc::ECANCELED].contains(&late), "{late}");
}

pub async fn connects_to_nobody_are_refused(bench: Bench) {
    let addr = nobody().to_std().expect("an address");
    let error = bench.host.connect(addr, bench.options()).await.expect_err("nobody is there");
    assert!(matches!(error, SocketError::Failed(Error::ConnectionRefused)), "{error:?}");
    let error = std::io::Error::from(error);
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    bench.end().await;
}

pub async fn a_dropped_listener_refuses_and_frees_its_address(bench: Bench) {
    let listener = bench.listen().await;
    let addr = listener.local_addr().expect("an address");
    assert_eq!(errno(bench.host.bind(addr, bench.options(), 1).await), libc::EADDRINUSE);
    drop(listener);
    // The close was posted before these requests.
    assert_eq!(errno(bench.host.connect(addr, bench.options()).await), libc::ECONNREFUSED);
    drop(bench.host.bind(addr, bench.options(), 1).await.expect("the address is free"));
    bench.end().await;
}

pub async fn a_full_table_is_an_error_that_passes(bench: Bench) {
    let config = Config { sockets: 3, ..bench.case.config() };
    bench
        .end_with(config, async |bench| {
            let (a, b) = {
                let listener = bench.listen().await;
                let addr = listener.local_addr().expect("an address");
                let (a, b) = tokio::join!(bench.host.connect(addr, bench.options()), listener.accept());
                assert_eq!(errno(bench.host.connect(addr, bench.options()).await), libc::EMFILE);
                (a.expect("connected"), b.expect("accepted").0)
            };
            drop((a, b));
            bench.expect_all_free().await;
            drop(bench.listen().await);
        })
        .await;
}

#[test]
fn an_accept_waits_for_rings() {
    let case = Case { transport: TransportKind::Tcp, threads: 1 };
    case.run(async |bench: Bench| {
        // One stream's worth.
        let config = Config { shared_rings: 128 << 10, ..bench.case.config() };
        bench
            .end_with(config, async |bench| {
                let listener = bench.listen().await;
                let addr = listener.local_addr().expect("an address");
                let _clients = [(); 2].map(|()| std::net::TcpStream::connect(addr).expect("connected"));
                let (first, _) = listener.accept().await.expect("accepted");
                let mut second = Box::pin(listener.accept());
                // It asks, is refused, and does not ask again.
                let early = tokio::time::timeout(Duration::from_millis(50), &mut second).await;
                assert!(early.is_err(), "there are no rings");
                drop(first);
                drop(second.await.expect("accepted"));
            })
            .await;
    });
}

/// CPU time of each of this process' threads of that name, in clock ticks of 10 ms.
fn ticks(name: &str) -> HashMap<PathBuf, u64> {
    let mut spent = HashMap::new();
    for task in std::fs::read_dir("/proc/self/task").expect("procfs").flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim() == name {
            // Fields 14 and 15; the second, in parentheses, may contain spaces.
            let stat = read("stat");
            let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11);
            let ticks = fields.take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
            spent.insert(task.path(), ticks);
        }
    }
    spent
}

#[test]
fn waiting_costs_no_time() {
    let case = Case { transport: TransportKind::Tcp, threads: 1 };
    case.run(async |bench: Bench| {
        let (mut client, server) = bench.pair().await;
        let waits = tokio::spawn(async move {
            let mut server = server;
            server.read_u8().await.expect("received")
        });
        let (before, began) = (ticks("gpunet-host"), Instant::now());
        tokio::time::sleep(Duration::from_millis(600)).await;
        // Other tests' hosts are among them, and work. One that spins has all of the time.
        let all = began.elapsed().as_millis() as u64 / 10;
        let after = ticks("gpunet-host");
        for (task, ticks) in after {
            let spent = before.get(&task).map_or(0, |before| ticks.saturating_sub(*before));
            assert!(spent < all / 2, "{spent} of {all} ticks");
        }
        client.write_all(b"x").await.expect("sent");
        assert_eq!(waits.await.expect("no panic"), b'x');
        drop(client);
        bench.end().await;
    });
}

#[test]
fn dropped_hosts_leave_no_thread() {
    let case = Case { transport: TransportKind::Tcp, threads: 1 };
    case.run(async |bench: Bench| {
        // Threads cannot be told apart by host, so this one's are many.
        for _ in 0..20 {
            let host = bench.proxy.host().expect("a host's sockets");
            drop(host.bind(LOOPBACK, bench.options(), 1).await.expect("a free port"));
        }
        let threads = || {
            let tasks = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
            let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            names.filter(|name| name.trim() == "gpunet-host").count()
        };
        eventually("the threads have ended", || threads() < 15).await;
        bench.end().await;
    });
}
