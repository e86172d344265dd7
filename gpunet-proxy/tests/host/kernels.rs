//! Kernels as the other end: CPU thread blocks of the same attachment over `peer`, of another over
//! the other transports.

use crate::bench::{Bench, LOOPBACK, bytes};
use crate::support::Memory;
use gpunet_device::group::Group;
use gpunet_device::{Buffer, Kernel, Listener, Net, Options, Result, SockAddr, Stream, TransportKind};
use gpunet_proxy::host::Host;
use gpunet_proxy::{Attachment, FinishPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Serves one connection after another: each block sends back what comes.
#[derive(Clone, Copy)]
struct Echo {
    net: Net,
    listener: gpunet_device::Handle,
    buffer: Buffer,
    connections: u32,
}

impl Kernel for Echo {
    const ENTRY: &'static str = "echo";
    fn run<G: Group>(self, g: &G) {
        self.serve(g).expect("served");
    }
}

impl Echo {
    fn serve<G: Group>(self, g: &G) -> Result<()> {
        let listener = Listener::from_handle(g, self.net, self.listener)?;
        for _ in 0..self.connections {
            let mut stream = listener.accept(g)?;
            loop {
                match stream.recv(g, self.buffer)? {
                    0 => break,
                    n => stream.send_all(g, self.buffer.first(n))?,
                }
            }
            stream.close(g)?;
        }
        Ok(())
    }
}

/// Connects, sends its buffer, and ends; each block does.
#[derive(Clone, Copy)]
struct Send {
    net: Net,
    to: SockAddr,
    options: Options,
    buffer: Buffer,
}

impl Kernel for Send {
    const ENTRY: &'static str = "send";
    fn run<G: Group>(self, g: &G) {
        let mut stream = Stream::connect_with(g, self.net, self.to, self.options).expect("connected");
        stream.send_all(g, self.buffer).expect("sent");
        stream.close(g).expect("closed");
    }
}

/// An attachment for kernels, and the host's sockets that reach them by the case's transport.
fn with_kernels(bench: &Bench) -> (Attachment, Host) {
    let attachment = bench.proxy.attach_cpu().expect("an attachment");
    let host = match bench.case.transport {
        TransportKind::Peer => attachment.host().expect("a host's sockets"),
        _ => bench.host.clone(),
    };
    (attachment, host)
}

pub async fn a_kernel_serves_a_task(bench: Bench) {
    let (attachment, host) = with_kernels(&bench);
    let token = attachment.token().expect("a launch number");
    let solo = gpunet_device::group::Solo::new(0, 1);
    let any = SockAddr::from_std(LOOPBACK);
    let listener = Listener::bind_with(&solo, token.net(), any, bench.options(), 128).expect("a free port");
    let addr = listener.local_addr().to_std().expect("an address");
    let memory = Memory::new(10_000);
    let program = attachment.load("", 1).expect("nothing to load");
    let kernel = |net| Echo { net, listener: listener.handle(), buffer: memory.buffer(), connections: 4 };
    // SAFETY: the memory lives until the launch is finished, and one block uses it.
    let launch = unsafe { attachment.launch(&program, 1, 1, kernel) }.expect("launched");
    for seed in 0..4 {
        let stream = host.connect(addr, bench.options()).await.expect("connected");
        let (mut read, mut write) = stream.into_split();
        let sent = bytes(seed, 0, 300_000);
        let mut back = Vec::new();
        let (written, received) = tokio::join!(
            async {
                write.write_all(&sent).await?;
                write.shutdown().await
            },
            read.read_to_end(&mut back)
        );
        written.expect("sent");
        received.expect("received");
        assert!(back == sent, "bytes came back changed");
    }
    finish(launch).await;
    listener.close(&solo).expect("open");
    assert_eq!(token.finish(FinishPolicy::Close).left_open, 0);
    drop(host);
    let report = attachment.close_async().await;
    assert_eq!((report.undelivered, report.unfinished), (0, 0));
    bench.end().await;
}

pub async fn a_task_serves_kernels(bench: Bench) {
    const BLOCKS: u32 = 4;
    let (attachment, host) = with_kernels(&bench);
    let listener = host.bind(LOOPBACK, bench.options(), 16).await.expect("a free port");
    let to = SockAddr::from_std(listener.local_addr().expect("an address"));
    let (memory, options) = (Memory::filled(9, 0, 150_000), bench.options());
    let program = attachment.load("", 1).expect("nothing to load");
    let kernel = |net| Send { net, to, options, buffer: memory.buffer() };
    // SAFETY: the memory lives until the launch is finished, and the blocks only read it.
    let launch = unsafe { attachment.launch(&program, BLOCKS, 1, kernel) }.expect("launched");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..BLOCKS {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        tasks.spawn(async move {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.expect("received");
            all
        });
    }
    while let Some(all) = tasks.join_next().await {
        assert!(all.expect("no panic") == bytes(9, 0, 150_000));
    }
    finish(launch).await;
    drop((listener, host));
    let report = attachment.close_async().await;
    assert_eq!((report.undelivered, report.unfinished), (0, 0));
    bench.end().await;
}

async fn finish(launch: gpunet_proxy::Launch) {
    let report = tokio::task::spawn_blocking(move || launch.finish(FinishPolicy::Close));
    assert_eq!(report.await.expect("no panic").expect("the kernel ended").left_open, 0);
}
