//! Where two ranks of a program can be.

use super::{World, small};
use gpunet_core::verbs::sim::Fabric;
use gpunet_device::TransportKind;
use gpunet_proxy::config::Rdma;
use gpunet_proxy::{Attachment, Config};

/// Where two ranks are, and what carries their stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In one attachment.
    Together(TransportKind),
    /// In two attachments of one proxy.
    Apart(TransportKind),
    /// On two hosts of a simulated network, over rc.
    Hosts,
}

pub const TOGETHER: [Place; 2] = [Place::Together(TransportKind::Tcp), Place::Together(TransportKind::Peer)];
pub const APART: [Place; 3] =
    [Place::Apart(TransportKind::Tcp), Place::Apart(TransportKind::Peer), Place::Hosts];

pub fn places() -> impl Iterator<Item = Place> {
    TOGETHER.into_iter().chain(APART)
}

impl Place {
    pub fn kind(self) -> TransportKind {
        match self {
            Self::Together(kind) | Self::Apart(kind) => kind,
            Self::Hosts => TransportKind::Rc,
        }
    }

    /// The worlds of rank 0 and rank 1; `None` if they share one.
    pub fn worlds(self) -> (World, Option<World>) {
        // The test harness shows it when the test fails.
        println!("{self:?}");
        if self == Self::Hosts {
            let config = Config { rdma: Rdma::Simulated(Fabric::new(7)), ..small() };
            return (World::with(config.clone()), Some(World::with(config)));
        }
        let here = World::new();
        let there = matches!(self, Self::Apart(_)).then(|| World::beside(&here));
        (here, there)
    }

    /// Runs a program with the attachments of its two ranks, and checks that it leaves nothing.
    pub fn run(self, program: impl FnOnce(&Attachment, &Attachment)) {
        let (here, there) = self.worlds();
        program(here.attachment(), there.as_ref().unwrap_or(&here).attachment());
        here.end();
        if let Some(there) = there {
            there.end();
        }
    }
}
