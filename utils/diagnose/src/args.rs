//! The command line.

use crate::catalogue;
use crate::child::Task;
use crate::verdict::Requirement;
use clap::Parser;
use std::path::PathBuf;

const AFTER: &str = "\
Exit codes: 0 all is well; 1 gpunet works, but lacks some speed or a feature (no GPU, no RDMA device, a limit);
2 gpunet, or what --require or --daemon names, cannot work, or the report cannot be written; 64 bad command line.

Examples:
  gpunet-diagnose                              everything
  gpunet-diagnose --only rdma,topology         two groups
  gpunet-diagnose --only gpu.bar1 --json       one check, for a program
  gpunet-diagnose --require gpu,gpudirect -q   in a deployment: exit code 2 unless both are there";

/// Reports what this machine offers to gpunet, what is missing, and what to do about it.
///
/// It inspects and tests; it changes nothing, repairs nothing and needs no root.
#[derive(Clone, Debug, Parser)]
#[command(name = "gpunet-diagnose", version, after_help = AFTER)]
pub struct Args {
    /// Run only these checks and groups, separated by commas; --list shows them.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Require that the machine has these: exit code 2 if one is missing.
    #[arg(long, value_name = "WHAT,..", value_delimiter = ',', value_enum)]
    pub require: Vec<Requirement>,
    /// Look at PATH for the gpunetd that programs use [default: $GPUNET_DAEMON, or where gpunetctl
    /// looks].
    #[arg(long, value_name = "PATH")]
    pub daemon: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print only problems and the summary.
    #[arg(long, short)]
    pub quiet: bool,
    /// List all checks, and do nothing else.
    #[arg(long)]
    pub list: bool,
    /// Read facts below this directory instead of /, without libraries and self-tests. For tests.
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
    /// Run this task and print lines of JSON. Only the program itself uses it.
    #[arg(long, value_name = "TASK", hide = true, value_parser = task)]
    pub child: Option<Task>,
}

impl Args {
    /// The selected checks.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn selected(&self) -> Result<Vec<&'static str>, String> {
        catalogue::select(&self.only)
    }
}

fn task(text: &str) -> Result<Task, String> {
    serde_json::from_str(text).map_err(|why| why.to_string())
}
