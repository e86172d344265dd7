//! Data threads that never go on, wherever they are.

use crate::support::rng::Rng;
use crate::support::world::LOOPBACK;
use crate::support::{Memory, SOLO, World, small};
use gpunet_device::abi::hand_off::Plan;
use gpunet_device::{Error, Listener, Net, Options, Stream, TransportKind};
use gpunet_proxy::Config;
use std::time::Duration;

/// The data threads, by the names that the proxy gives them.
const DATA_THREADS: &str = "gpunet-data-";
const BLOCKS: usize = 4;

pub fn plan(plan: Plan) -> Plan {
    Plan { deaths: vec![(DATA_THREADS, 2000)], polls: plan.seed % 2 == 1, ..plan }
}

/// One data thread after the other stops: while it sleeps, while another watches its words, with a
/// command or a request in its hands. Every block is told that the network is down, whichever
/// thread has its stream.
pub fn play(mut rng: Rng) {
    let heartbeat = Duration::from_millis(300);
    let world =
        World::with(Config { data_threads: 3, heartbeat, latency: Duration::from_millis(2), ..small() });
    std::thread::scope(|scope| {
        for _ in 0..BLOCKS {
            let (net, mut rng) = (world.net(), Rng::new(rng.next()));
            scope.spawn(move || {
                let told = live(net, &mut rng);
                assert_eq!(told, Err(Error::NetworkDown));
            });
        }
    });
    // The proxy cannot be stopped: its threads never end.
    std::mem::forget(world);
}

/// Connects to itself and talks, until it is told why it cannot.
fn live(net: Net, rng: &mut Rng) -> Result<(), Error> {
    let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    let memory = Memory::new(3000);
    loop {
        let listener = Listener::bind_with(&SOLO, net, LOOPBACK, tcp, 16)?;
        let mut one = Stream::connect_with(&SOLO, net, listener.local_addr(), tcp)?;
        let mut other = listener.accept(&SOLO)?;
        for _ in 0..10 {
            let message = memory.buffer().first(1 + rng.below(3000) as usize);
            one.send_all(&SOLO, message)?;
            other.recv_exact(&SOLO, message)?;
            std::thread::sleep(Duration::from_micros(rng.below(3000)));
        }
        one.close(&SOLO)?;
        other.close(&SOLO)?;
        listener.close(&SOLO)?;
    }
}
