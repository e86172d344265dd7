//! The facts, which are read before anything is judged.
//!
//! | file | holds |
//! |---|---|
//! | `machine`, `limits`, `modules` | the computer; what this process may use; kernel modules |
//! | `cards`, `topology` | RDMA devices; what lies between devices |

pub mod cards;
pub mod limits;
pub mod machine;
pub mod modules;
pub mod topology;

use crate::libraries::Libraries;
use crate::system::System;
use crate::system::pci::PciDevice;

pub use cards::{CardFacts, PortFacts};
pub use limits::Limits;
pub use machine::Machine;
pub use modules::Modules;
pub use topology::{Acs, Topology};

/// Everything that checks are made from.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The computer and its kernel.
    pub machine: Machine,
    /// What this process may use.
    pub limits: Limits,
    /// Kernel modules, their device files and parameters.
    pub modules: Modules,
    /// RDMA devices, as the kernel shows them.
    pub cards: Vec<CardFacts>,
    /// NVIDIA's GPUs on the PCI bus.
    pub gpus: Vec<PciDevice>,
    /// How they are connected.
    pub topology: Topology,
    /// The answers of libraries, or why there are none.
    pub libraries: Libraries,
}

impl Facts {
    /// Reads the system; libraries are asked by `ask`.
    pub fn gather(system: &System, ask: impl FnOnce() -> Libraries) -> Self {
        let gpus = PciDevice::gpus(system);
        let cards = CardFacts::all(system);
        Self {
            machine: Machine::read(system),
            limits: Limits::read(system),
            modules: Modules::read(system),
            topology: Topology::read(system, gpus.iter().chain(cards.iter().filter_map(|c| c.pci.as_ref()))),
            gpus,
            cards,
            libraries: ask(),
        }
    }

    /// The name of a GPU for people: CUDA's number if it has one, else its PCI address.
    #[must_use]
    pub fn gpu_name(&self, gpu: &PciDevice) -> String {
        let known = self.libraries.gpus().iter().find(|one| one.pci.as_ref() == Some(&gpu.address));
        known.map_or_else(|| gpu.address.clone(), |one| format!("cuda:{}", one.ordinal))
    }
}

/// Facts for tests of checks.
#[cfg(test)]
pub(crate) fn none() -> Facts {
    Facts {
        machine: Machine::default(),
        limits: Limits::default(),
        modules: Modules::default(),
        cards: Vec::new(),
        gpus: Vec::new(),
        topology: Topology::default(),
        libraries: Libraries::not_asked("not asked"),
    }
}
