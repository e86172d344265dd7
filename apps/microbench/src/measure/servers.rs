//! Servers of applications, each beside what a user would take instead.

mod http;
mod kv;
mod load;
mod triton;

use super::Run;
use super::server::Server;
use crate::outcome::Outcome;
use crate::report::{Axis, counted};
use clap::{Args, ValueEnum};

/// What `servers` takes.
#[derive(Clone, Debug, Default, Args)]
pub struct ServersArgs {
    /// Measure these parts only.
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// gpunet-kv beside redis-server: GET and SET of one client, and by redis-benchmark.
    Kv,
    /// gpunet-hello-http beside hyper.
    Http,
    /// An echo by a Triton kernel, beside a Python program that copies to the GPU and back.
    Triton,
}

/// Measures servers of applications as their clients see them.
pub fn servers(run: &mut Run<'_>, args: &ServersArgs) -> Outcome<()> {
    for &part in Part::value_variants() {
        if args.parts.is_empty() || args.parts.contains(&part) {
            match part {
                Part::Kv => kv::measure(run)?,
                Part::Http => http::measure(run)?,
                Part::Triton => triton::measure(run)?,
            }
        }
    }
    Ok(())
}

fn table(run: &mut Run<'_>, what: &str, rows: usize) -> Outcome<()> {
    let setting = vec![
        ("device", run.device.to_owned()),
        ("servers", "processes of their own, one at a time".to_owned()),
        ("clients", "kernel TCP on loopback".to_owned()),
    ];
    run.recorder.table("servers", format!("{}, {what}", run.device), Axis::None, setting, rows)
}

/// The numbers of blocks that a program is measured with; `None` is its default, which on the CPU
/// is one block.
fn shapes(run: &Run<'_>) -> Vec<Option<u32>> {
    let own = if run.device == "cpu" { None } else { Some(None) };
    [Some(1), Some(2)].into_iter().chain(own).collect()
}

fn name(program: &str, blocks: Option<u32>) -> String {
    match blocks {
        Some(blocks) => format!("{program}, {}", counted(blocks, "block")),
        None => format!("{program}, its defaults"),
    }
}
