//! The command line.

use crate::catalogue;
use crate::child::Task;
use crate::verdict::Requirement;
use clap::Parser;
use std::path::PathBuf;

const AFTER: &str = "\
Exit code: 0 all is well; 1 gpunet works, without some speed or some feature (no GPU, no RDMA device, a limit);
2 gpunet, or what --require or --daemon names, cannot work, or the report cannot be written. A wrong command line is 64.

Examples:
  gpunet-diagnose                              everything
  gpunet-diagnose --only rdma,topology         two groups
  gpunet-diagnose --only gpu.bar1 --json       one check, for a program
  gpunet-diagnose --require gpu,gpudirect -q   in a deployment: exit code 2 unless both are there";

/// Says what this machine offers to gpunet, what is missing, and what to do about it.
///
/// It looks and tries; it changes nothing, repairs nothing and needs no root.
#[derive(Clone, Debug, Parser)]
#[command(name = "gpunet-diagnose", version, after_help = AFTER)]
pub struct Args {
    /// Only these checks and groups, with commas between them; --list shows them.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub only: Vec<String>,
    /// What this machine must have: its absence is exit code 2.
    #[arg(long, value_name = "WHAT,..", value_delimiter = ',', value_enum)]
    pub require: Vec<Requirement>,
    /// Look for the gpunetd that programs are to use at PATH [default: $GPUNET_DAEMON; where gpunetctl looks].
    #[arg(long, value_name = "PATH")]
    pub daemon: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print only what is not as it should be, and the last lines.
    #[arg(long, short)]
    pub quiet: bool,
    /// List all checks, and do nothing else.
    #[arg(long)]
    pub list: bool,
    /// Read facts below this directory instead of /; libraries and self-tests are left out. For tests.
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
    /// Do this task and print lines of JSON. For the program itself.
    #[arg(long, value_name = "TASK", hide = true, value_parser = task)]
    pub child: Option<Task>,
}

impl Args {
    /// The checks that are wanted.
    ///
    /// # Errors
    /// A name that is none.
    pub fn selected(&self) -> Result<Vec<&'static str>, String> {
        catalogue::select(&self.only)
    }
}

fn task(text: &str) -> Result<Task, String> {
    serde_json::from_str(text).map_err(|why| why.to_string())
}
