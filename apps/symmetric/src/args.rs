//! The command line.

use clap::{Parser, ValueEnum};
use gpunet_app::cli::UsageError;
use gpunet_app::device::DeviceChoice;
use gpunet_app::proxy::ProxyArgs;
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  gpunet-symmetric ring                                    four members in this process
  gpunet-symmetric all --members 2 --device cuda:0 --device cuda:1
  torchrun --nproc-per-node 4 --no-python gpunet-symmetric all --launched
  mpirun -n 4 gpunet-symmetric all --launched

Exit codes: 0 success, 1 something failed or data differed, 2 bad command line.";

/// NVSHMEM's examples on gpunet's symmetric memory.
///
/// The members of a team are threads of this process, or, with --launched, the processes that
/// torchrun, mpirun or srun has started. Each has a device; its kernels store into the memory of
/// the others, and the host checks every element.
#[derive(Debug, Parser)]
#[command(name = "gpunet-symmetric", version, after_help = EXAMPLES)]
pub struct Args {
    /// What to run.
    #[arg(value_enum)]
    pub example: Example,
    /// Members in this process.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64), conflicts_with = "launched")]
    pub members: u32,
    /// Be the member that the environment of torchrun, Open MPI or Slurm names.
    #[arg(long)]
    pub launched: bool,
    /// Where kernels run: auto, cpu, cuda or cuda:N. Given several times, members take them in
    /// turn.
    #[arg(long = "device", value_name = "DEVICE", default_value = "cpu")]
    pub devices: Vec<DeviceChoice>,
    /// Thread blocks of the examples that have several.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub blocks: u32,
    /// Elements of each member.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    pub elements: u64,
    /// Elements of a chunk that travels at a time.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    pub chunk: u64,
    #[command(flatten)]
    pub proxy: ProxyArgs,
}

/// An example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Example {
    /// Every member tells all others who it is.
    Hello,
    /// A number for the right neighbour.
    Ring,
    /// Blocks put shares to the right neighbour, and count up a signal.
    PutBlock,
    /// A broadcast along the ring, chunk by chunk.
    RingBcast,
    /// A sum along the ring, chunk by chunk.
    RingReduce,
    /// A kernel and a queue that take turns.
    OnStream,
    /// all_gather, all_to_all, reduce and broadcast.
    Collectives,
    /// A gather by a block, by a warp, by a thread.
    ThreadGroup,
    /// Tokens travel to their experts and back.
    MoeShuffle,
    /// Laplace's equation, each block a band of the grid.
    Jacobi,
    /// All of them.
    All,
}

impl Example {
    /// The examples to run.
    #[must_use]
    pub fn each(self) -> Vec<Self> {
        let all = [
            Self::Hello,
            Self::Ring,
            Self::PutBlock,
            Self::RingBcast,
            Self::RingReduce,
            Self::OnStream,
            Self::Collectives,
            Self::ThreadGroup,
            Self::MoeShuffle,
            Self::Jacobi,
        ];
        if self == Self::All { all.to_vec() } else { vec![self] }
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Reads a command line.
///
/// # Errors
/// [`UsageError`].
pub fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Args, UsageError> {
    Ok(Args::try_parse_from(line)?)
}
